/*
 * A program resets the device under weir (cudaDeviceReset, cuDevicePrimaryCtxReset): weir reports it, never crashes,
 * and works again after being closed and opened.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu_support.h"
#include "vendor_work.h"

/* Once a program has handles, a library may hold the primary context for good, also after weir_close. */
static bool with_handles;

/* What a program has when it resets the device. */
typedef struct program {
    worker worker;
    void *live, *pending;
    weir_stream other;
} program;

static void compute(worker *w)
{
    void *handle;
    for (size_t i = 0; i < WORKS; i++) {
        weir_status status = weir_handle_get_on(works[i].kind, w->stream, &handle);
        if (status == WEIR_ERR_NO_LIBRARY) continue;
        assert_ok(status);
        if (!on_standin() && !run_work(w, i)) fail_msg("kind %d: %s", works[i].kind, w->failure);
    }
}

static void start(program *p)
{
    worker *w = &p->worker;
    *p = (program){ .worker.seed = 3 };
    assert_ok(weir_device_set_current(0));
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &w->stream));
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &p->other));
    assert_ok(weir_stream_native(w->stream, &w->native));
    assert_ok(weir_stream_set_current(w->stream));
    assert_ok(weir_alloc(3 * MIB, &p->live));
    assert_ok(weir_alloc(3 * MIB, &p->pending));
    assert_ok(weir_fill(p->pending, 1, 3 * MIB, p->other));
    assert_ok(weir_record_stream(p->pending, p->other));
    if (with_handles) compute(w);
}

/* Calls that ask the driver something. Hits ask it nothing, so they cannot notice. */
static void assert_lost(const program *p)
{
    weir_device_info info = { .size = sizeof info };
    weir_stream stream;
    void *block;
    assert_status(weir_stream_synchronize(p->worker.stream), WEIR_ERR_DEVICE_LOST);
    assert_status(weir_stream_query(p->worker.stream), WEIR_ERR_DEVICE_LOST);
    assert_status(weir_alloc(200 * MIB, &block), WEIR_ERR_DEVICE_LOST);
    assert_status(weir_alloc_on(200 * MIB, p->worker.stream, &block), WEIR_ERR_DEVICE_LOST);
    assert_status(weir_fill(p->live, 1, MIB, p->worker.stream), WEIR_ERR_DEVICE_LOST);
    assert_status(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &stream), WEIR_ERR_DEVICE_LOST);
    assert_status(weir_device_info_get(0, &info), WEIR_ERR_DEVICE_LOST);
    assert_status(weir_device_synchronize(0), WEIR_ERR_DEVICE_LOST);
    assert_non_null(strstr(weir_error_text(), "open it again"));
}

/* A call that has nothing to ask the driver succeeds. */
static void assert_done_or_lost(weir_status status)
{
    if (status != WEIR_OK && status != WEIR_ERR_DEVICE_LOST) fail_msg("%s", weir_error_text());
}

/* The libraries must not destroy handles that went with the context. */
static void give_everything_back(const program *p)
{
    assert_done_or_lost(weir_free(p->pending));
    assert_done_or_lost(weir_free(p->live));
    for (size_t i = 0; i < WORKS; i++) assert_ok(weir_handle_release(works[i].kind, 0));
    assert_done_or_lost(weir_handles_trim(0, 0, NULL));
    assert_done_or_lost(weir_empty_cache(0));
}

static void works_again(void)
{
    static program again;
    assert_status(weir_close(), WEIR_ERR_DEVICE_LOST);
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
    open_weir(NULL);
    start(&again);
    assert_ok(weir_stream_synchronize(again.worker.stream));
    assert_ok(weir_validate(0));
    assert_ok(weir_close());
}

static void reset_primary(void)
{
    CUresult (*reset)(CUdevice device);
    *(void **)&reset = driver_function("cuDevicePrimaryCtxReset_v2");
    assert_non_null(reset);
    driver_ok(reset(wr_cuda.devices[0].handle));
}

static program p;

static void assert_context_is_given_back(void)
{
    const bool active = has_context(0);
    if (!with_handles) assert_false(active);
    if (active) print_message("a library holds the primary context after weir_close\n");
}

static void reset_is_noticed_and_survived(void **state)
{
    with_handles = *state != NULL;
    open_weir(NULL);
    start(&p);
    reset_primary();
    assert_lost(&p);
    give_everything_back(&p);
    works_again();
    assert_context_is_given_back();
}

static void reset_is_survived_when_nobody_asked(void **state)
{
    with_handles = *state != NULL;
    open_weir(NULL);
    start(&p);
    reset_primary();
    works_again();
    assert_context_is_given_back();
}

/* The next user of the device after its reset makes a new primary context, which holds nothing of weir's. */
static void context_made_anew_is_noticed(void **state)
{
    with_handles = *state != NULL;
    CUcontext theirs;
    const CUdevice device = wr_cuda.devices[0].handle;
    open_weir(NULL);
    start(&p);
    reset_primary();
    driver_ok(wr_cu.cuDevicePrimaryCtxRetain(&theirs, device));
    driver_ok(wr_cu.cuCtxSetCurrent(theirs));
    assert_lost(&p);
    assert_ptr_equal(current_context(), theirs);
    assert_status(weir_close(), WEIR_ERR_DEVICE_LOST);
    assert_true(has_context(0)); /* weir's retain is gone, theirs is not */
    open_weir(NULL);
    start(&p);
    assert_ok(weir_close());
    assert_true(has_context(0));
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
    driver_ok(wr_cu.cuDevicePrimaryCtxRelease(device));
    assert_context_is_given_back();
}

/* The run-time library holds the context too, so it outlives weir_close. */
static void reset_by_the_run_time_library_is_noticed_and_survived(void **state)
{
    with_handles = *state != NULL;
    static const char *const files[] = { "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0" };
    int (*set_device)(int device), (*reset)(void);
    void *library = NULL;
    for (size_t i = 0; i < sizeof files / sizeof files[0] && library == NULL; i++) library = dlopen(files[i], RTLD_NOW);
    if (library == NULL || on_standin()) {
        print_message("skipped: no libcudart\n");
        skip();
    }
    *(void **)&set_device = dlsym(library, "cudaSetDevice");
    *(void **)&reset = dlsym(library, "cudaDeviceReset");
    assert_int_equal(set_device(0), 0);
    open_weir(NULL);
    start(&p);
    assert_int_equal(reset(), 0);
    assert_lost(&p);
    give_everything_back(&p);
    works_again();
    assert_int_equal(reset(), 0);
}

int main(int argc, char **argv)
{
#define WITH_HANDLES(test) { #test "_with_handles", test, NULL, NULL, &with_handles }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reset_is_noticed_and_survived),
        cmocka_unit_test(reset_is_survived_when_nobody_asked),
        cmocka_unit_test(context_made_anew_is_noticed),
        WITH_HANDLES(reset_is_noticed_and_survived),
        WITH_HANDLES(reset_is_survived_when_nobody_asked),
        WITH_HANDLES(context_made_anew_is_noticed),
        WITH_HANDLES(reset_by_the_run_time_library_is_noticed_and_survived),
    };
#undef WITH_HANDLES
    const int missing = no_gpu();
    if (missing != 0) return missing;
    if (!on_standin()) (void)vendor_find();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
