/*
 * What the driver and NVIDIA's libraries themselves do to a capture, without weir: each call in a fresh capture of its
 * own, in every mode, on the capturing thread and on another, as it is and inside the relaxed capture-mode exchange.
 * Behaviour that weir relies on is asserted; all of it is printed as rows of a table.
 *
 * A column is "GLOBAL THREAD_LOCAL RELAXED"; each is the call's code, with an x when the capture did not survive.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "gpu_support.h"
#include "vendor_raw.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MODES = 3 };

typedef enum promise {
    NONE,               /* only recorded */
    SURVIVES_EXCHANGED, /* inside the exchange, as weir always calls: the call succeeds and the capture survives */
    SURVIVES_ALWAYS     /* both also without the exchange */
} promise;

typedef struct cell cell;
typedef struct subject {
    const char *name;
    promise promise;
    void (*before)(cell *c); /* outside the capture; NULL: nothing */
    int (*run)(cell *c);
    void (*after)(cell *c);
} subject;

struct cell {
    const subject *subject;
    bool exchange;
    CUstream captured, idle;
    CUevent event;
    CUdeviceptr memory;
    void *pinned;
    void *handle;
    int code;
};

static CUcontext primary;
static weir_device_caps caps;

/* ---- calls of the driver ----------------------------------------------------------------------------------------- */

static int query_event(cell *c)
{
    return wr_cu.cuEventQuery(c->event);
}

static int synchronize_event(cell *c)
{
    return wr_cu.cuEventSynchronize(c->event);
}

static int query_idle_stream(cell *c)
{
    return wr_cu.cuStreamQuery(c->idle);
}

static int synchronize_idle_stream(cell *c)
{
    return wr_cu.cuStreamSynchronize(c->idle);
}

static int query_captured_stream(cell *c)
{
    return wr_cu.cuStreamQuery(c->captured);
}

static int synchronize_context(cell *c)
{
    (void)c;
    return wr_cu.cuCtxSynchronize();
}

static int allocate(cell *c)
{
    return wr_cu.cuMemAlloc(&c->memory, 2 * MIB);
}

static void allocate_before(cell *c)
{
    driver_ok(allocate(c));
}

static int release(cell *c)
{
    const CUresult code = wr_cu.cuMemFree(c->memory);
    if (code == WR_CUDA_SUCCESS) c->memory = 0;
    return code;
}

static void release_after(cell *c)
{
    if (c->memory != 0) driver_ok(release(c));
}

static int allocate_pinned(cell *c)
{
    return wr_cu.cuMemHostAlloc(&c->pinned, 2 * MIB, WR_CU_MEMHOSTALLOC_PORTABLE);
}

static void release_pinned(cell *c)
{
    if (c->pinned != NULL) driver_ok(wr_cu.cuMemFreeHost(c->pinned));
    c->pinned = NULL;
}

static CUresult map_and_unmap(CUdeviceptr base, CUmemGenericAllocationHandle chunk)
{
    const CUmemAccessDesc access = { .location = { .type = WR_CU_MEM_LOCATION_TYPE_DEVICE },
                                     .flags = WR_CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    CUresult code = wr_cu.cuMemMap(base, caps.granularity, 0, chunk, 0);
    if (code == WR_CUDA_SUCCESS) code = wr_cu.cuMemSetAccess(base, caps.granularity, &access, 1);
    if (code == WR_CUDA_SUCCESS) code = wr_cu.cuMemUnmap(base, caps.granularity);
    return code;
}

static int use_virtual_memory(cell *c)
{
    const CUmemAllocationProp kind = { .type = WR_CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = { .type = WR_CU_MEM_LOCATION_TYPE_DEVICE } };
    CUdeviceptr base = 0;
    CUmemGenericAllocationHandle chunk;
    (void)c;
    CUresult code = wr_cu.cuMemAddressReserve(&base, caps.granularity, 0, 0, 0);
    if (code == WR_CUDA_SUCCESS) code = wr_cu.cuMemCreate(&chunk, caps.granularity, &kind, 0);
    if (code != WR_CUDA_SUCCESS) return code;
    code = map_and_unmap(base, chunk);
    if (code == WR_CUDA_SUCCESS) code = wr_cu.cuMemRelease(chunk);
    return code == WR_CUDA_SUCCESS ? wr_cu.cuMemAddressFree(base, caps.granularity) : code;
}

static int make_stream(cell *c)
{
    CUstream made;
    (void)c;
    const CUresult code = wr_cu.cuStreamCreateWithPriority(&made, WR_CU_STREAM_NON_BLOCKING, 0);
    return code == WR_CUDA_SUCCESS ? wr_cu.cuStreamDestroy(made) : code;
}

static int make_event(cell *c)
{
    CUevent made;
    (void)c;
    const CUresult code = wr_cu.cuEventCreate(&made, WR_CU_EVENT_DISABLE_TIMING);
    return code == WR_CUDA_SUCCESS ? wr_cu.cuEventDestroy(made) : code;
}

static int chain_idle_streams(cell *c)
{
    const CUresult code = wr_cu.cuEventRecord(c->event, c->idle);
    return code == WR_CUDA_SUCCESS ? wr_cu.cuStreamWaitEvent(c->idle, c->event, 0) : code;
}

static int ask_for_memory(cell *c)
{
    size_t free_bytes, total;
    (void)c;
    return wr_cu.cuMemGetInfo(&free_bytes, &total);
}

static int ask_about_capture(cell *c)
{
    CUstreamCaptureStatus status;
    cuuint64_t id;
    return wr_cu.cuStreamGetCaptureInfo(c->captured, &status, &id, NULL, NULL, NULL);
}

static int ask_about_context(cell *c)
{
    CUcontext found = NULL;
    const CUresult code = wr_cu.cuStreamGetCtx(c->captured, &found);
    return code == WR_CUDA_SUCCESS && found != primary ? WR_CUDA_ERROR_INVALID_CONTEXT : code;
}

static int ask_about_green_context(cell *c)
{
    CUcontext found = NULL;
    CUgreenCtx green;
    if (!wr_cu.cuStreamGetCtx_v2) return WR_CUDA_SUCCESS;
    const CUresult code = wr_cu.cuStreamGetCtx_v2(c->captured, &found, &green);
    return code == WR_CUDA_SUCCESS && found != primary ? WR_CUDA_ERROR_INVALID_CONTEXT : code;
}

static const subject driver_calls[] = {
    { "cuEventQuery of an idle event", SURVIVES_EXCHANGED, NULL, query_event, NULL },
    { "cuEventSynchronize of an idle event", SURVIVES_EXCHANGED, NULL, synchronize_event, NULL },
    { "cuStreamQuery of another stream", SURVIVES_EXCHANGED, NULL, query_idle_stream, NULL },
    { "cuStreamSynchronize of another stream", SURVIVES_EXCHANGED, NULL, synchronize_idle_stream, NULL },
    { "cuStreamQuery of the captured stream", NONE, NULL, query_captured_stream, NULL },
    { "cuCtxSynchronize", NONE, NULL, synchronize_context, NULL },
    { "cuMemAlloc", SURVIVES_EXCHANGED, NULL, allocate, release_after },
    { "cuMemFree", SURVIVES_EXCHANGED, allocate_before, release, release_after },
    { "cuMemHostAlloc", SURVIVES_EXCHANGED, NULL, allocate_pinned, release_pinned },
    { "cuMemCreate, Map, SetAccess, Unmap, Release", SURVIVES_ALWAYS, NULL, use_virtual_memory, NULL },
    { "cuStreamCreateWithPriority, Destroy", SURVIVES_ALWAYS, NULL, make_stream, NULL },
    { "cuEventCreate, Destroy", SURVIVES_ALWAYS, NULL, make_event, NULL },
    { "cuEventRecord and WaitEvent on another stream", SURVIVES_EXCHANGED, NULL, chain_idle_streams, NULL },
    { "cuMemGetInfo", SURVIVES_EXCHANGED, NULL, ask_for_memory, NULL },
    { "cuStreamGetCaptureInfo of the captured stream", SURVIVES_EXCHANGED, NULL, ask_about_capture, NULL },
    { "cuStreamGetCtx of the captured stream", SURVIVES_EXCHANGED, NULL, ask_about_context, NULL },
    { "cuStreamGetCtx_v2 of the captured stream", SURVIVES_EXCHANGED, NULL, ask_about_green_context, NULL },
};

/* ---- calls of the libraries -------------------------------------------------------------------------------------- */

static int create_handle(cell *c)
{
    return raw_create(&c->handle);
}

static void create_before(cell *c)
{
    assert_int_equal(create_handle(c), 0);
    assert_non_null(c->handle);
}

/* Destroys only once, whatever the call returns. */
static int destroy_handle(cell *c)
{
    void *handle = c->handle;
    c->handle = NULL;
    return raw.destroy(handle);
}

static void destroy_after(cell *c)
{
    if (c->handle != NULL) assert_int_equal(destroy_handle(c), 0);
}

static int set_captured_stream(cell *c)
{
    return raw.set_stream(c->handle, c->captured);
}

/* ---- cells ------------------------------------------------------------------------------------------------------- */

static void *run_call(void *argument)
{
    cell *c = argument;
    CUcontext before = NULL;
    CUstreamCaptureMode mode = WR_CU_STREAM_CAPTURE_MODE_RELAXED;
    c->code = wr_cu.cuCtxGetCurrent(&before);
    if (c->code == WR_CUDA_SUCCESS) c->code = wr_cu.cuCtxSetCurrent(primary);
    if (c->code != WR_CUDA_SUCCESS) return NULL;
    if (c->exchange) wr_cu.cuThreadExchangeStreamCaptureMode(&mode);
    c->code = c->subject->run(c);
    if (c->exchange) wr_cu.cuThreadExchangeStreamCaptureMode(&mode);
    wr_cu.cuCtxSetCurrent(before);
    return NULL;
}

static char row_text[256]; /* of the row at hand, for when the process ends in it */

/* Whether both call and capture were good; adds the cell to the row. */
static bool run_cell(const subject *s, CUstreamCaptureMode mode, bool other_thread, bool exchange)
{
    cell c = { .subject = s, .exchange = exchange };
    recording r;
    driver_ok(wr_cu.cuStreamCreateWithPriority(&c.captured, WR_CU_STREAM_NON_BLOCKING, 0));
    driver_ok(wr_cu.cuStreamCreateWithPriority(&c.idle, WR_CU_STREAM_NON_BLOCKING, 0));
    driver_ok(wr_cu.cuEventCreate(&c.event, WR_CU_EVENT_DISABLE_TIMING));
    driver_ok(wr_cu.cuEventRecord(c.event, c.idle));
    if (s->before != NULL) s->before(&c);
    recording_begin(&r, c.captured, mode);
    run_on(other_thread, run_call, &c);
    const CUresult end = recording_end(&r);
    if (s->after != NULL) s->after(&c);
    driver_ok(wr_cu.cuEventDestroy(c.event));
    driver_ok(wr_cu.cuStreamDestroy(c.idle));
    driver_ok(wr_cu.cuStreamDestroy(c.captured));
    const size_t length = strlen(row_text);
    snprintf(row_text + length, sizeof row_text - length, " %d%s", c.code, end == WR_CUDA_SUCCESS ? "" : "x");
    return c.code == 0 && end == WR_CUDA_SUCCESS;
}

static void run_row(const char *library_name, const subject *s, bool exchange)
{
    int good = 0;
    snprintf(row_text, sizeof row_text, "| %s%s, %s |", library_name, s->name, exchange ? "exchanged" : "plain");
    for (int other_thread = 0; other_thread < 2; other_thread++) {
        for (int mode = 0; mode < MODES; mode++) good += run_cell(s, mode, other_thread, exchange);
        const size_t length = strlen(row_text);
        snprintf(row_text + length, sizeof row_text - length, " |");
    }
    print_message("%s\n", row_text);
    if (s->promise == SURVIVES_ALWAYS || (exchange && s->promise == SURVIVES_EXCHANGED))
        assert_int_equal(good, 2 * MODES);
}

static void print_head(void)
{
    print_message("| call | same thread | other thread |\n");
}

static void driver_calls_leave_captures_alone(void **state)
{
    (void)state;
    print_head();
    for (size_t i = 0; i < sizeof driver_calls / sizeof driver_calls[0]; i++) {
        run_row("", &driver_calls[i], true);
        run_row("", &driver_calls[i], false);
    }
}

static void need_library(const wr_library_row *row)
{
    if (raw_find(row)) return;
    print_message("skipped: %s: %.80s\n", row->name, weir_error_text());
    skip();
}

static void run_library(const wr_library_row *row, bool exchange)
{
    /* Kinds not marked as synchronising in their destroy must not harm a capture by it. */
    const promise destroys = row->flags & WEIR_HANDLE_DESTROY_SYNCS ? NONE : SURVIVES_EXCHANGED;
    const subject create = { " create", SURVIVES_EXCHANGED, NULL, create_handle, destroy_after };
    const subject set_stream = { " set stream", SURVIVES_EXCHANGED, create_before, set_captured_stream, destroy_after };
    const subject destroy = { " destroy", destroys, create_before, destroy_handle, NULL };
    need_library(row);
    print_head();
    run_row(row->name, &create, exchange);
    if (raw.set_stream != NULL) run_row(row->name, &set_stream, exchange);
    run_row(row->name, &destroy, exchange);
}

/* weir's way for the very first call of the library in the process. */
static void library_calls_leave_captures_alone(void **state)
{
    run_library(*state, true);
}

static void library_calls_without_the_exchange(void **state)
{
    run_library(*state, false);
}

/* ---- processes of their own: what a library does when it is refused is not always survived ----------------------- */

#define PLAIN "plain_"

static void tell_row(int number)
{
    const ssize_t written = write(STDOUT_FILENO, row_text, strlen(row_text));
    (void)written;
    signal(number, SIG_DFL);
    raise(number);
}

static void library_is_asked_in_a_process_of_its_own(void **state)
{
    const wr_library_row *row = *state;
    char name[64];
    int status = 0;
    need_library(row);
    if (sanitized()) skip(); /* this test is about the library alone */
    snprintf(name, sizeof name, PLAIN "%s", row->name);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl("/proc/self/exe", "gpu_cuda_capture_raw", name, (char *)NULL);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        print_message(" the library ended the process with signal %d |\n", WTERMSIG(status));
    else
        assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* The back end is opened for its table of functions and its description of the device. */
static int make_primary_current(void **state)
{
    static const weir_backend_config config = { .size = sizeof config };
    (void)state;
    assert_ok(wr_backend_cuda.open(&config));
    assert_ok(wr_backend_cuda.device_open(0, &caps));
    primary = wr_cuda.devices[0].context;
    driver_ok(wr_cu.cuCtxSetCurrent(primary));
    return 0;
}

static int release_primary(void **state)
{
    (void)state;
    assert_ok(wr_backend_cuda.close());
    return 0;
}

enum { MOST = 16 };

/* One test for each kind. */
static size_t add_tests(struct CMUnitTest *tests, char (*names)[64], const char *format, CMUnitTestFunction function)
{
    for (size_t i = 0; i < wr_cuda_kind_count; i++) {
        snprintf(names[i], sizeof names[i], format, wr_cuda_kinds[i].name);
        tests[i] = (struct CMUnitTest){ names[i], function, NULL, NULL, (void *)&wr_cuda_kinds[i] };
    }
    return wr_cuda_kind_count;
}

int main(int argc, char **argv)
{
    static char names[2][MOST][64];
    struct CMUnitTest tests[1 + 2 * MOST] = { cmocka_unit_test(driver_calls_leave_captures_alone) };
    size_t count = 1;
    const int missing = no_gpu();
    if (missing != 0) return missing;
    if (wr_cuda_kind_count > MOST) return 1;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc > 1 && strncmp(argv[1], PLAIN, strlen(PLAIN)) == 0) {
        signal(SIGABRT, tell_row);
        signal(SIGSEGV, tell_row);
        count = add_tests(tests, names[0], PLAIN "%s", library_calls_without_the_exchange);
    } else {
        count +=
            add_tests(tests + count, names[0], "%s_calls_leave_captures_alone", library_calls_leave_captures_alone);
        count += add_tests(tests + count, names[1], "%s_is_asked_in_a_process_of_its_own",
                           library_is_asked_in_a_process_of_its_own);
    }
    return _cmocka_run_group_tests("captures without weir", tests, count, make_primary_current, release_primary);
}
