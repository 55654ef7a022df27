/*
 * fail_support: what tests share that make weir's own allocations, or calls of the driver, fail. Include after the cmocka
 * headers.
 */
#ifndef WEIR_TESTS_FAIL_SUPPORT_H
#define WEIR_TESTS_FAIL_SUPPORT_H

#include "base/meta.h"
#include "host_support.h"

/* Ends the wait for the n-th allocation. Whether it came: if not, it is among the next ones. */
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

/* The same where pools are made, whose ids are never given back: one record per thousand, of which a test needs fewer. */
static inline void assert_records_but_pages(uint64_t before, uint64_t nth, int *pages)
{
    if (wr_meta_live() == before + 1 && (*pages)++ == 0) return;
    assert_records(before, nth);
}

static inline int close_after_failure(void **state)
{
    (void)state;
    wr_meta_fail_nth(0);
    return weir_close() == WEIR_OK ? 0 : -1;
}

/* What fails: the n-th call of the driver, or the n-th of weir's own records. */
typedef struct failing {
    void *state;        /* of the test */
    weir_status status; /* of the call; WEIR_OK: a record is refused */
    uint64_t nth, called;
    bool came;
} failing;

static inline void begin_failing(failing *f)
{
    if (f->status == WEIR_OK) {
        wr_meta_fail_nth(f->nth);
    } else {
        assert_ok(weir_host_fail_any(f->nth, f->status));
        f->called = driver_calls();
    }
}

static inline void end_failing(failing *f)
{
    f->came = f->status == WEIR_OK ? failure_came(f->nth) : driver_calls() - f->called >= f->nth;
}

/* Plays a scenario, which begins and ends the failing, until there is no n-th. */
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

static inline void fail_each_record(void (*play)(failing *f), void *state, uint64_t enough)
{
    fail_each(play, (failing){ .state = state, .status = WEIR_OK }, enough);
}

#define FAIL_TEST(test) cmocka_unit_test_teardown(test, close_after_failure)

#endif
