/*
 * fail_support: what tests share that make weir's own allocations fail.
 */
#ifndef WEIR_TESTS_FAIL_SUPPORT_H
#define WEIR_TESTS_FAIL_SUPPORT_H

#include "base/meta.h"

#include <stdbool.h>

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

#endif
