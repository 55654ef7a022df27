/*
 * fail_support: shared by tests that make weir's own allocations, or driver calls, fail. Include after the cmocka
 * headers.
 */
#ifndef WEIR_TESTS_FAIL_SUPPORT_H
#define WEIR_TESTS_FAIL_SUPPORT_H

#include "backend/backend.h"
#include "base/meta.h"
#include "device_support.h"
#include "host_support.h"
#include "weir/observe.h"

/* Stops waiting for the n-th allocation to fail. Returns whether it has come; if it has not, one of the next `nth`
 * allocations would fail. */
static inline bool failure_came(uint64_t nth)
{
    bool came = true;
    for (uint64_t i = 0; i < nth && came; i++) {
        void *probe = NULL;
        came = wr_meta_alloc(8, "probe", &probe) == WEIR_OK;
        wr_meta_free(probe);
    }
    wr_meta_fail_nth(0);
    return came;
}

static inline void assert_records(uint64_t expected, uint64_t nth)
{
    const int64_t more = (int64_t)(wr_meta_live() - expected);
    if (more != 0) fail_msg("failure %llu left %lld records", (unsigned long long)nth, (long long)more);
}

static inline int close_after_failure(void **state)
{
    (void)state;
    wr_meta_fail_nth(0);
    return weir_close() == WEIR_OK ? 0 : -1;
}

/* Asserts that the thread's last error belongs to the status that a call returned. */
static inline weir_status as_told(weir_status status)
{
    weir_error error = { .size = sizeof error };
    assert_ok(weir_last_error(&error));
    if (status != WEIR_OK && status != WEIR_ERR_NOT_READY) assert_status(status, error.status);
    return status;
}

/* What fails: the n-th call of the driver, or the n-th of weir's own records. */
typedef struct failing {
    void *state;        /* of the test */
    weir_status status; /* status of the failing call; WEIR_OK: a record is refused instead */
    weir_status then;   /* of the FAILING_THEN calls after it, so that clean-up fails, too; WEIR_OK: these succeed */
    uint64_t nth, called;
    bool came;
    bool paged; /* a page of pool ids was allocated meanwhile */
} failing;

enum { FAILING_THEN = 4 };

static inline void begin_failing(failing *f)
{
    if (f->status == WEIR_OK) {
        wr_meta_fail_nth(f->nth);
    } else {
        assert_ok(weir_host_fail_any(f->nth, f->status));
        for (uint64_t i = 1; i <= FAILING_THEN && f->then != WEIR_OK; i++)
            assert_ok(weir_host_fail_any(f->nth + i, f->then));
        f->called = driver_calls();
    }
}

static inline void end_failing(failing *f)
{
    f->came = f->status == WEIR_OK ? failure_came(f->nth) : driver_calls() - f->called >= f->nth;
}

/* As assert_records, but allows one page of pool ids, which are never freed: a page holds a thousand, and a test needs
 * fewer. */
static inline void assert_records_but_pages(uint64_t before, failing *f)
{
    if (!f->paged && wr_meta_live() == before + 1)
        f->paged = true;
    else
        assert_records(before, f->nth);
}

/* If the driver refused to end a capture, ends it as the program must: weir has dropped it. */
static inline void end_what_goes_on(const weir_backend *backend, weir_stream stream)
{
    weir_capture_state state = WEIR_CAPTURE_NONE;
    uint64_t id = 0;
    void *graph = NULL;
    assert_ok(backend->capture_status(0, native_of(stream), &state, &id));
    if (state != WEIR_CAPTURE_NONE && backend->capture_end(0, native_of(stream), &graph) == WEIR_OK)
        assert_ok(backend->graph_destroy(0, graph));
}

/* All memory of the device is free, reserved, or counted as lost. */
static inline void assert_nothing_is_uncounted(uint64_t nth)
{
    weir_device_memory memory = { .size = sizeof memory };
    assert_ok(weir_device_memory_get(0, &memory));
    const uint64_t counted = memory.reserved_bytes + atomic_load(&device_0()->cache.lost);
    if (memory.free_bytes + counted != memory.total_bytes)
        fail_msg("failure %llu: %llu bytes are gone", (unsigned long long)nth,
                 (unsigned long long)(memory.total_bytes - memory.free_bytes - counted));
}

/* Ends a play in which clean-up fails, too. */
static inline void end_failing_soundly(failing *f)
{
    end_failing(f);
    assert_ok(weir_host_fail_clear());
    assert_ok(weir_validate(0));
    assert_nothing_is_uncounted(f->nth);
}

/* Plays a scenario, which calls begin_failing and end_failing, for n = 1, 2, ... until there is no n-th. */
static inline void fail_each(void (*play)(failing *f), failing f, uint64_t enough)
{
    f.came = true;
    for (f.nth = 1; f.came; f.nth++) play(&f);
    if (f.nth <= enough) fail_msg("no failure %llu", (unsigned long long)f.nth - 1);
}

static inline void fail_each_call(void (*play)(failing *f), weir_status status, void *state, uint64_t enough)
{
    fail_each(play, (failing){ .state = state, .status = status }, enough);
}

static inline void fail_each_call_and_its_clean_up(void (*play)(failing *f), void *state, uint64_t enough)
{
    fail_each(play, (failing){ .state = state, .status = WEIR_ERR_DRIVER, .then = WEIR_ERR_TIMEOUT }, enough);
}

static inline void fail_each_record(void (*play)(failing *f), void *state, uint64_t enough)
{
    fail_each(play, (failing){ .state = state, .status = WEIR_OK }, enough);
}

#define FAIL_TEST(test) cmocka_unit_test_teardown(test, close_after_failure)

/* The tests of a scenario in which every call and record may fail. `calls` and `records`: it must have more than
 * these. */
#define FAIL_ALL_OF(play, calls, records)                                                                              \
    static void every_driver_call_may_break(void **state)                                                              \
    {                                                                                                                  \
        fail_each_call(play, WEIR_ERR_DRIVER, *state, calls);                                                          \
    }                                                                                                                  \
    static void every_driver_call_may_run_out_of_memory(void **state)                                                  \
    {                                                                                                                  \
        fail_each_call(play, WEIR_ERR_OUT_OF_MEMORY, *state, calls);                                                   \
    }                                                                                                                  \
    static void every_record_may_be_refused(void **state)                                                              \
    {                                                                                                                  \
        fail_each_record(play, *state, records);                                                                       \
    }

#define FAIL_TESTS                                                                                                     \
    FAIL_TEST(every_driver_call_may_break), FAIL_TEST(every_driver_call_may_run_out_of_memory),                        \
        FAIL_TEST(every_record_may_be_refused)

#endif
