/*
 * After weir_close the driver reports as much free memory as before. The test reads it in a primary context that it
 * retains itself, so that code loaded once by libraries and driver is included from the warm-up on. It repeats the
 * cycle, so that leaks add up. Skipped under tools that hold device memory of their own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu_support.h"
#include "sanitized.h"
#include "vendor_raw.h"
#include "vendor_work.h"

/* The driver takes memory for itself in pieces of 2 MiB. Over all rounds, two may differ without a leak: cuDNN on an
 * H200 was seen to take one. */
enum { WARM_UPS = 2, ROUNDS = SANITIZED ? 6 : 20, STREAMS = 6, BLOCKS = 40, BOUND = 4 << 20 };

static CUcontext context; /* retained by the test */

static int retain_context(void **state)
{
    (void)state;
    driver_ok(wr_cu.cuDevicePrimaryCtxRetain(&context, wr_cuda.devices[0].handle));
    return 0;
}

static int release_context(void **state)
{
    (void)state;
    driver_ok(wr_cu.cuDevicePrimaryCtxRelease(wr_cuda.devices[0].handle));
    return 0;
}

static int64_t free_memory(void)
{
    size_t free_bytes, total;
    driver_ok(wr_cu.cuCtxSetCurrent(context));
    driver_ok(wr_cu.cuMemGetInfo(&free_bytes, &total));
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
    return (int64_t)free_bytes;
}

/* Bytes that `rounds` calls took and did not give back, beyond what the warm-ups took. */
static int64_t taken_by(void (*round)(const void *what), const void *what)
{
    for (int i = 0; i < WARM_UPS; i++) round(what);
    const int64_t before = free_memory();
    for (int i = 0; i < ROUNDS; i++) round(what);
    return before - free_memory();
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* Leaves blocks live and pending, streams and events, which weir_close has to end. */
static void use_memory(void)
{
    static void *blocks[BLOCKS];
    weir_stream streams[STREAMS], pooled;
    for (int i = 0; i < STREAMS; i++) assert_ok(weir_stream_create(0, -i, &streams[i]));
    assert_ok(weir_stream_from_pool(0, WEIR_PRIORITY_DEFAULT, &pooled));
    for (int i = 0; i < BLOCKS; i++) {
        const size_t bytes = (size_t)512 << (i % 17);
        assert_ok(weir_alloc_on(bytes, streams[i % STREAMS], &blocks[i]));
        assert_ok(weir_fill(blocks[i], 1, bytes, streams[i % STREAMS]));
        assert_ok(weir_stream_wait(pooled, streams[i % STREAMS]));
        assert_ok(weir_record_stream(blocks[i], pooled));
        if (i % 3 != 0) assert_ok(weir_free(blocks[i]));
    }
    assert_ok(weir_stream_destroy(streams[0]));
}

static void program_without_handles(const void *what)
{
    (void)what;
    open_weir(NULL);
    use_memory();
    close_weir(NULL);
}

typedef struct user {
    worker worker;
    const wr_library_row *row; /* NULL: all kinds */
} user;

static bool use_handles(user *u)
{
    worker *w = &u->worker;
    weir_stream_guard guard;
    void *handle;
    ENSURE_WEIR(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &w->stream));
    ENSURE_WEIR(weir_stream_native(w->stream, &w->native));
    ENSURE_WEIR(weir_stream_enter(w->stream, &guard));
    for (size_t i = 0; i < WORKS; i++) {
        if (u->row != NULL && u->row->kind != works[i].kind) continue;
        weir_status status = weir_handle_get(works[i].kind, &handle);
        if (status == WEIR_ERR_NO_LIBRARY) continue;
        ENSURE(status == WEIR_OK, "%s", weir_error_text());
        if (vendor_has[works[i].kind]) STEP(run_work(w, i));
    }
    ENSURE_WEIR(weir_stream_leave(&guard));
    return true;
}

static void *user_main(void *argument)
{
    user *u = argument;
    if (!use_handles(u) && u->worker.failure[0] == '\0') failed(&u->worker, "failed without a text");
    return NULL;
}

/* Two handles of each kind: one that its thread gave back by ending, one still owned. */
static void use_two_handles(const wr_library_row *row)
{
    static user users[2];
    users[0] = users[1] = (user){ .worker.seed = 5, .row = row };
    users[1].worker.seed = 6;
    run_on(false, user_main, &users[0]);
    run_on(true, user_main, &users[1]);
    for (int i = 0; i < 2; i++)
        if (users[i].worker.failure[0] != '\0') fail_msg("%s", users[i].worker.failure);
}

static void program_with_handles(const void *row)
{
    open_weir(NULL);
    use_two_handles(row);
    close_weir(NULL);
}

static void mixed_program(const void *what)
{
    (void)what;
    open_weir(NULL);
    use_memory();
    use_two_handles(NULL);
    close_weir(NULL);
}

/* Measures what the library itself does not give back. */
static void library_alone(const void *row)
{
    void *handles[2];
    (void)row;
    driver_ok(wr_cu.cuCtxSetCurrent(context));
    for (int i = 0; i < 2; i++) assert_int_equal(raw_create(&handles[i]), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(raw.destroy(handles[i]), 0);
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

static double mib(int64_t bytes)
{
    return (double)bytes / (double)MIB;
}

static void memory_comes_back(void **state)
{
    (void)state;
    const int64_t taken = taken_by(program_without_handles, NULL);
    print_message("| streams, events, blocks, pending frees | %.2f MiB in %d rounds | - |\n", mib(taken), ROUNDS);
    assert_true(taken <= BOUND);
}

static int64_t lost_by_libraries;

static void handles_come_back(void **state)
{
    const wr_library_row *row = *state;
    if (!raw_find(row)) {
        print_message("skipped: %s: %.80s\n", row->name, weir_error_text());
        skip();
    }
    const int64_t taken = taken_by(program_with_handles, row), alone = taken_by(library_alone, row);
    print_message("| %s | %.2f MiB in %d rounds | %.2f MiB |\n", row->name, mib(taken), ROUNDS, mib(alone));
    if (alone > 0) lost_by_libraries += alone;
    assert_true(taken <= alone + BOUND);
}

/* Runs last: by then the leaks of the libraries themselves are known. */
static void mixed_program_comes_back(void **state)
{
    (void)state;
    const int64_t taken = taken_by(mixed_program, NULL);
    print_message("| everything together | %.2f MiB in %d rounds | %.2f MiB |\n", mib(taken), ROUNDS,
                  mib(lost_by_libraries));
    assert_true(taken <= lost_by_libraries + BOUND);
}

int main(int argc, char **argv)
{
    enum { MOST_KINDS = 16 };
    static char names[MOST_KINDS][48];
    struct CMUnitTest tests[MOST_KINDS + 2] = { cmocka_unit_test(memory_comes_back) };
    size_t count = 1;
    const int gpu = no_gpu();
    if (gpu != 0) return gpu;
    if (sanitized()) {
        print_message("skipped: the tool that the test runs under holds memory of its own on the device\n");
        return 77;
    }
    const char *missing = on_standin() ? NULL : vendor_find();
    if (missing != NULL || wr_cuda_kind_count > MOST_KINDS) {
        print_error("%s is not in the library that weir loaded, or there are too many kinds\n", missing);
        return 1;
    }
    for (size_t i = 0; i < wr_cuda_kind_count; i++) {
        snprintf(names[i], sizeof names[i], "%s_handles_come_back", wr_cuda_kinds[i].name);
        tests[count++] = (struct CMUnitTest){ names[i], handles_come_back, NULL, NULL, (void *)&wr_cuda_kinds[i] };
    }
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(mixed_program_comes_back);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    print_message("| what | taken and not given back | by the library alone |\n");
    return _cmocka_run_group_tests("memory comes back", tests, count, retain_context, release_context);
}
