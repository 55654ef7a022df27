/*
 * fail_support: what tests share that make weir's own allocations, or calls of the driver, fail. Include after the cmocka
 * headers.
 */
#ifndef WEIR_TESTS_FAIL_SUPPORT_H
#define WEIR_TESTS_FAIL_SUPPORT_H

#include "base/meta.h"
#include "weir/weir.h"

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

static inline int close_after_failure(void **state)
{
    (void)state;
    wr_meta_fail_nth(0);
    return weir_close() == WEIR_OK ? 0 : -1;
}

#define FAIL_TEST(test) cmocka_unit_test_teardown(test, close_after_failure)

#endif
