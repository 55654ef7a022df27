/*
 * Contexts other than the one that weir works in: none on unused devices, a program's own (cuCtxCreate, a green
 * context), and the devices that CUDA_VISIBLE_DEVICES leaves. The current context stays current.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/library.h"
#include "gpu_support.h"

#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- contexts that a program makes ------------------------------------------------------------------------------- */

static CUcontext make_user_context(void)
{
    CUresult (*create)(CUcontext *context, unsigned flags, CUdevice device);
    CUcontext made = NULL;
    *(void **)&create = driver_function("cuCtxCreate_v2");
    assert_non_null(create);
    driver_ok(create(&made, 0, wr_cuda.devices[0].handle));
    assert_ptr_equal(current_context(), made);
    return made;
}

static void end_user_context(CUcontext context)
{
    CUresult (*destroy)(CUcontext context);
    *(void **)&destroy = driver_function("cuCtxDestroy_v2");
    driver_ok(destroy(context));
}

/* CUdevResource of cuda.h: a type, padding, and what the type needs, with room to spare. */
typedef struct resource {
    int type;
    unsigned char rest[252];
} resource;

typedef struct green {
    void *green;
    CUcontext context;
    CUstream stream;
} green;

static const char *make_standins_green_context(green *g)
{
    CUresult (*make)(CUcontext *out, CUdevice device);
    *(void **)&make = driver_function("standin_cuda_green_context");
    driver_ok(make(&g->context, 0));
    driver_ok(wr_cu.cuStreamCreateWithPriority(&g->stream, WR_CU_STREAM_NON_BLOCKING, 0));
    return NULL;
}

/* Makes a green context with one multiprocessor, and makes it current. Returns NULL, or why that is not possible. */
static const char *make_green_context(green *g)
{
    enum { MULTIPROCESSORS = 1, DEFAULT_STREAM = 1 };
    CUresult (*get)(CUdevice device, resource *out, int type);
    CUresult (*describe)(void **description, resource *resources, unsigned count);
    CUresult (*create)(void **out, void *description, CUdevice device, unsigned flags);
    CUresult (*convert)(CUcontext *out, void *green);
    CUresult (*stream)(CUstream *out, void *green, unsigned flags, int priority);
    resource all = { 0 };
    void *description = NULL;
    if (on_standin()) return make_standins_green_context(g);
    *(void **)&get = driver_function("cuDeviceGetDevResource");
    *(void **)&describe = driver_function("cuDevResourceGenerateDesc");
    *(void **)&create = driver_function("cuGreenCtxCreate");
    *(void **)&convert = driver_function("cuCtxFromGreenCtx");
    *(void **)&stream = driver_function("cuGreenCtxStreamCreate");
    if (get == NULL || describe == NULL || create == NULL || convert == NULL || stream == NULL)
        return "the driver has no green contexts";
    if (get(wr_cuda.devices[0].handle, &all, MULTIPROCESSORS) != WR_CUDA_SUCCESS)
        return "cuDeviceGetDevResource failed";
    if (describe(&description, &all, 1) != WR_CUDA_SUCCESS) return "cuDevResourceGenerateDesc failed";
    if (create(&g->green, description, wr_cuda.devices[0].handle, DEFAULT_STREAM) != WR_CUDA_SUCCESS)
        return "cuGreenCtxCreate failed";
    driver_ok(convert(&g->context, g->green));
    driver_ok(stream(&g->stream, g->green, WR_CU_STREAM_NON_BLOCKING, 0));
    driver_ok(wr_cu.cuCtxSetCurrent(g->context));
    return NULL;
}

/* As PyTorch does, which leaves the streams to it. */
static void end_only_green_context(const green *g)
{
    CUresult (*destroy)(void *green);
    CUstreamCaptureMode mode = WR_CU_STREAM_CAPTURE_MODE_RELAXED;
    *(void **)&destroy = driver_function("cuGreenCtxDestroy");
    driver_ok(wr_cu.cuThreadExchangeStreamCaptureMode(&mode));
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
    if (g->green == NULL)
        end_user_context(g->context);
    else
        driver_ok(destroy(g->green));
    driver_ok(wr_cu.cuThreadExchangeStreamCaptureMode(&mode));
}

static void end_green_context(const green *g)
{
    driver_ok(wr_cu.cuStreamDestroy(g->stream));
    end_only_green_context(g);
}

/* ---- what weir does in them -------------------------------------------------------------------------------------- */

/* Calls that default to the current device or stream are refused and change nothing. */
static void assert_implicit_calls_are_refused(CUcontext current)
{
    void *block = &block, *handle = NULL;
    int device = 7;
    weir_stream stream = { 0 };
    weir_stream_guard guard = { .thread = 0 };
    assert_status(weir_alloc(512, &block), WEIR_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(weir_error_text(), "primary"));
    assert_status(weir_device_get_current(&device), WEIR_ERR_NOT_SUPPORTED);
    assert_status(weir_stream_get_current(WEIR_DEVICE_CURRENT, &stream), WEIR_ERR_NOT_SUPPORTED);
    assert_status(weir_handle_get(WEIR_CUBLAS, &handle), WEIR_ERR_NOT_SUPPORTED);
    assert_ok(weir_stream_default(0, &stream));
    assert_status(weir_stream_enter(stream, &guard), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(guard.thread, 0);
    assert_int_equal(device, 7);
    assert_ptr_equal(current_context(), current);
}

static void assert_copies(weir_stream stream)
{
    unsigned char sent[512], received[512] = { 0 };
    void *block;
    for (size_t i = 0; i < sizeof sent; i++) sent[i] = (unsigned char)(i * 7);
    assert_ok(weir_alloc_on(sizeof sent, stream, &block));
    assert_ok(weir_copy(block, sent, sizeof sent, stream));
    assert_ok(weir_copy(received, block, sizeof received, stream));
    assert_ok(weir_stream_synchronize(stream));
    assert_memory_equal(sent, received, sizeof sent);
    assert_ok(weir_free(block));
}

/* Each call leaves the current context as it was. */
static void assert_named_calls_work(CUcontext current)
{
    weir_stream stream, pooled;
    weir_device_info info = { .size = sizeof info };
    void *block, *native, *handle;
#define STAYS(call)                                                                                                    \
    do {                                                                                                               \
        assert_ok(call);                                                                                               \
        assert_ptr_equal(current_context(), current);                                                                  \
    } while (0)
    STAYS(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &stream));
    STAYS(weir_stream_from_pool(0, WEIR_PRIORITY_DEFAULT, &pooled));
    STAYS(weir_stream_native(stream, &native));
    STAYS(weir_stream_from_native(0, native, &stream));
    STAYS(weir_alloc_on(3 * MIB, stream, &block));
    STAYS(weir_fill(block, 1, 3 * MIB, stream));
    STAYS(weir_record_stream(block, pooled));
    STAYS(weir_stream_wait(pooled, stream));
    STAYS(weir_free(block));
    STAYS(weir_stream_synchronize(stream));
    STAYS(weir_stream_query(stream));
    STAYS(weir_device_info_get(0, &info));
    assert_copies(stream);
    for (size_t i = 0; i < wr_cuda_kind_count; i++) {
        const weir_status status = weir_handle_get_on(wr_cuda_kinds[i].kind, stream, &handle);
        assert_ptr_equal(current_context(), current);
        if (status == WEIR_ERR_NO_LIBRARY) continue;
        assert_ok(status);
        STAYS(weir_handle_get_on(wr_cuda_kinds[i].kind, pooled, &handle));
        STAYS(weir_handle_release(wr_cuda_kinds[i].kind, 0));
    }
    STAYS(weir_handles_trim(0, 0, NULL));
    STAYS(weir_empty_cache(0));
    STAYS(weir_device_synchronize(0));
    STAYS(weir_stream_destroy(stream));
#undef STAYS
}

static void open_device_0(void)
{
    weir_device_info info = { .size = sizeof info };
    assert_ok(weir_device_info_get(0, &info));
}

/* On device 0; the test is skipped where that is not possible. */
static green begin_green_context(void)
{
    green g = { 0 };
    open_device_0();
    const char *missing = make_green_context(&g);
    if (missing != NULL) {
        print_message("skipped: %s\n", missing);
        skip();
    }
    return g;
}

/* As weir knows it. */
static weir_stream stream_of(const green *g)
{
    weir_stream adopted = { 0 };
    assert_ok(weir_stream_from_native(0, g->stream, &adopted));
    return adopted;
}

static void thread_without_a_context_keeps_none(void **state)
{
    (void)state;
    assert_null(current_context());
    assert_named_calls_work(NULL);
}

static void user_made_context_is_refused_or_left_alone(void **state)
{
    (void)state;
    CUstream theirs;
    weir_stream adopted = { 0 };
    open_device_0();
    CUcontext own = make_user_context();
    assert_implicit_calls_are_refused(own);
    assert_named_calls_work(own);
    driver_ok(wr_cu.cuStreamCreateWithPriority(&theirs, WR_CU_STREAM_NON_BLOCKING, 0));
    assert_status(weir_stream_from_native(0, theirs, &adopted), WEIR_ERR_INVALID_STREAM);
    assert_int_equal(adopted.id, 0);
    driver_ok(wr_cu.cuStreamDestroy(theirs));
    assert_ptr_equal(current_context(), own);
    end_user_context(own);
    assert_ok(weir_device_set_current(0));
    assert_copies(WEIR_STREAM_CURRENT);
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
}

/* weir takes no device for the context's, not even one that it has not opened. */
static void user_made_context_without_a_primary_one_is_refused(void **state)
{
    (void)state;
    assert_false(has_context(0));
    CUcontext own = make_user_context();
    void *block;
    assert_status(weir_alloc(512, &block), WEIR_ERR_NOT_SUPPORTED);
    assert_false(has_context(0));
    assert_ptr_equal(current_context(), own);
    end_user_context(own);
}

static void green_context_is_refused_or_left_alone(void **state)
{
    (void)state;
    green g = begin_green_context();
    assert_ptr_not_equal(g.context, wr_cuda.devices[0].context);
    assert_implicit_calls_are_refused(g.context);
    assert_named_calls_work(g.context);
    end_green_context(&g);
}

static void assert_handles(weir_stream stream)
{
    void *handle;
    for (size_t i = 0; i < wr_cuda_kind_count; i++) {
        const weir_status status = weir_handle_get_on(wr_cuda_kinds[i].kind, stream, &handle);
        if (status != WEIR_ERR_NO_LIBRARY) assert_ok(status);
    }
}

static void assert_captures(weir_stream stream)
{
    unsigned char received[512] = { 0 };
    void *block;
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    weir_graph graph;
    assert_ok(weir_graph_begin(stream, &options, &graph));
    assert_ok(weir_alloc_on(sizeof received, stream, &block));
    assert_ok(weir_fill(block, 42, sizeof received, stream));
    assert_ok(weir_copy(received, block, sizeof received, stream));
    assert_ok(weir_free(block));
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_graph_launch(graph, stream));
    assert_ok(weir_stream_synchronize(stream));
    for (size_t i = 0; i < sizeof received; i++) assert_int_equal(received[i], 42);
    assert_ok(weir_graph_destroy(graph));
}

/* Memory goes from one stream to the other and back, each time after the work of the one before. */
static void assert_shares_memory(weir_stream one, weir_stream other)
{
    static unsigned char received[3 * MIB];
    const weir_stream streams[] = { one, other };
    for (unsigned char round = 1; round <= 8; round++) {
        const weir_stream mine = streams[round % 2], theirs = streams[1 - round % 2];
        void *block;
        assert_ok(weir_alloc_on(sizeof received, mine, &block));
        assert_ok(weir_fill(block, round, sizeof received, mine));
        assert_ok(weir_stream_wait(theirs, mine));
        assert_ok(weir_copy(received, block, sizeof received, theirs));
        assert_ok(weir_record_stream(block, theirs));
        assert_ok(weir_free(block));
        assert_ok(weir_stream_synchronize(theirs));
        for (size_t i = 0; i < sizeof received; i += 4096) assert_int_equal(received[i], round);
    }
}

static void stream_of_a_green_context_is_like_any_other(void **state)
{
    (void)state;
    green g = begin_green_context();
    weir_stream stream = stream_of(&g), other;
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &other));
    assert_copies(stream);
    assert_shares_memory(stream, other);
    assert_captures(stream);
    assert_handles(stream);
    assert_ok(weir_handles_trim(0, 0, NULL));
    assert_ok(weir_stream_destroy(other));
    assert_ok(weir_stream_destroy(stream));
    assert_ptr_equal(current_context(), g.context);
    end_green_context(&g);
}

/* A green context that ends first, as PyTorch's does, takes its streams with it. Until weir has forgotten them, calls
 * that name them fail, and no others do. */
static void green_context_may_end_before_its_stream_is_destroyed(void **state)
{
    (void)state;
    green g = begin_green_context();
    weir_stream stream = stream_of(&g), other;
    weir_memory_stats stats = { .size = sizeof stats };
    void *block, *lent, *none;
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &other));
    assert_copies(stream);
    assert_ok(weir_alloc_on(3 * MIB, stream, &block));
    assert_ok(weir_fill(block, 1, 3 * MIB, stream));
    assert_ok(weir_alloc_on(3 * MIB, other, &lent));
    assert_ok(weir_record_stream(lent, stream));
    assert_handles(stream);
    end_only_green_context(&g);

    assert_ok(weir_device_synchronize(0));
    assert_ok(weir_empty_cache(0));
    assert_status(weir_alloc((size_t)1 << 45, &none), WEIR_ERR_OUT_OF_MEMORY);
    assert_copies(WEIR_STREAM_CURRENT);
    assert_status(weir_stream_synchronize(stream), WEIR_ERR_INVALID_STREAM);
    assert_non_null(strstr(weir_error_text(), "green context"));
    assert_handles(other);
    assert_ok(weir_free(lent));
    assert_ok(weir_stream_destroy(stream));
    assert_status(weir_stream_query(stream), WEIR_ERR_INVALID_STREAM);

    assert_ok(weir_free(block));
    assert_handles(other);
    assert_ok(weir_stream_destroy(other));
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_stats_get(0, &stats)); /* nothing waits for the stream any more */
    assert_int_equal(stats.active_bytes[WEIR_STAT_ALL].current, stats.allocated_bytes[WEIR_STAT_ALL].current);
}

static void work_slowly(void *done)
{
    nanosleep(&(struct timespec){ 0, 100000000 }, NULL);
    atomic_store((atomic_bool *)done, true);
}

static void destroying_the_stream_of_an_ended_green_context_waits_for_its_work(void **state)
{
    (void)state;
    green g = begin_green_context();
    weir_stream stream = stream_of(&g);
    atomic_bool worked = false;
    assert_copies(stream);
    driver_ok(wr_cu.cuLaunchHostFunc(g.stream, work_slowly, &worked));
    end_only_green_context(&g);
    assert_ok(weir_stream_destroy(stream));
    assert_true(atomic_load(&worked));
}

/* A capture of weir's, or one that the program began itself. */
static void capture_ends_with_its_green_context(bool adopted)
{
    green g = begin_green_context();
    weir_stream stream = stream_of(&g);
    void *block;
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    weir_graph graph;
    if (adopted) {
        driver_ok(wr_cu.cuStreamBeginCapture(g.stream, WR_CU_STREAM_CAPTURE_MODE_RELAXED));
        assert_ok(weir_graph_adopt(stream, &options, &graph));
    } else {
        assert_ok(weir_graph_begin(stream, &options, &graph));
    }
    assert_ok(weir_alloc_on(512, stream, &block));
    assert_ok(weir_free(block));
    end_only_green_context(&g);
    assert_status(weir_graph_end(graph), adopted ? WEIR_OK : WEIR_ERR_CAPTURE);
    if (!adopted) assert_non_null(strstr(weir_error_text(), "already over"));
    assert_ok(weir_graph_destroy(graph));
    assert_ok(weir_stream_destroy(stream));
    assert_copies(WEIR_STREAM_CURRENT);
}

static void capture_is_over_with_the_green_context_of_its_stream(void **state)
{
    (void)state;
    capture_ends_with_its_green_context(false);
}

static void adopted_capture_is_over_with_the_green_context_of_its_stream(void **state)
{
    (void)state;
    capture_ends_with_its_green_context(true);
}

/* ---- where nobody works ------------------------------------------------------------------------------------------ */

static void only_used_devices_have_a_context(void **state)
{
    (void)state;
    int count, current;
    assert_ok(weir_device_count(&count));
    assert_ok(weir_device_get_current(&current));
    for (int i = 0; i < count; i++) assert_false(has_context(i));
    void *block;
    assert_ok(weir_alloc(512, &block));
    assert_true(has_context(0));
    for (int i = 1; i < count; i++) assert_false(has_context(i));
    assert_ok(weir_close());
    for (int i = 0; i < count; i++) assert_false(has_context(i));
    open_weir(NULL);
}

/* ---- CUDA_VISIBLE_DEVICES, in a child: the driver reads it once -------------------------------------------------- */

enum { NO_DEVICE = 100, BROKEN = 101 };

/* The child: how many devices, and of the first one its address on the bus, on the given descriptor. */
static int show_devices(const char *descriptor)
{
    int count = 0;
    char address[32] = "";
    CUresult (*bus)(char *text, int bytes, CUdevice device);
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "cuda";
    weir_status status = weir_open(&settings);
    if (status == WEIR_ERR_NO_DEVICE) return NO_DEVICE;
    if (status != WEIR_OK || weir_device_count(&count) != WEIR_OK) return BROKEN;
    *(void **)&bus = driver_function("cuDeviceGetPCIBusId");
    if (bus != NULL && bus(address, sizeof address, wr_cuda.devices[0].handle) != WR_CUDA_SUCCESS) return BROKEN;
    void *block;
    if (weir_alloc(512, &block) != WEIR_OK || weir_free(block) != WEIR_OK) return BROKEN;
    for (int i = 1; i < count; i++)
        if (has_context(i)) return BROKEN;
    const size_t length = strlen(address);
    const int out = (int)strtol(descriptor, NULL, 10);
    if (write(out, address, length) != (ssize_t)length || weir_close() != WEIR_OK) return BROKEN;
    return count;
}

static int devices_with(const char *visible, char address[32])
{
    char descriptor[16];
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    snprintf(descriptor, sizeof descriptor, "%d", ends[1]);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (visible != NULL) setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        execl("/proc/self/exe", "gpu_cuda_contexts", "--show-devices", descriptor, (char *)NULL);
        _exit(BROKEN);
    }
    close(ends[1]);
    const ssize_t length = read(ends[0], address, 31);
    address[length > 0 ? length : 0] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void no_visible_device_is_no_device(void **state)
{
    (void)state;
    char address[32];
    if (sanitized()) skip(); /* the tool ends such a process itself */
    assert_int_equal(devices_with("", address), NO_DEVICE);
}

static void first_visible_device_is_device_0(void **state)
{
    (void)state;
    char forward[32], backward[32], one[32];
    const int count = devices_with(NULL, forward);
    assert_in_range(count, 1, WR_CUDA_DEVICES_MAX);
    if (on_standin()) skip(); /* the stand-in does not order devices */
    assert_int_equal(devices_with("0", one), 1);
    assert_string_equal(one, forward);
    if (count < 2) {
        print_message("one device only: no other order was tried\n");
        return;
    }
    assert_int_equal(devices_with("1,0", backward), 2);
    assert_string_not_equal(backward, forward);
    assert_int_equal(devices_with("1", one), 1);
    assert_string_equal(one, backward);
}

#define context_test(test) cmocka_unit_test_setup_teardown(test, open_weir, close_weir)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        context_test(only_used_devices_have_a_context),
        context_test(
            user_made_context_without_a_primary_one_is_refused), /* must run before a library retains it for good */
        context_test(thread_without_a_context_keeps_none),
        context_test(user_made_context_is_refused_or_left_alone),
        context_test(green_context_is_refused_or_left_alone),
        context_test(stream_of_a_green_context_is_like_any_other),
        context_test(green_context_may_end_before_its_stream_is_destroyed),
        context_test(destroying_the_stream_of_an_ended_green_context_waits_for_its_work),
        context_test(capture_is_over_with_the_green_context_of_its_stream),
        context_test(adopted_capture_is_over_with_the_green_context_of_its_stream),
        cmocka_unit_test(no_visible_device_is_no_device),
        cmocka_unit_test(first_visible_device_is_device_0),
    };
    if (argc == 3 && strcmp(argv[1], "--show-devices") == 0) return show_devices(argv[2]);
    const int missing = no_gpu();
    if (missing != 0) return missing;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
