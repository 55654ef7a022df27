/*
 * fork: whether this process is a child of fork() that must not go on with the library. device/runtime.c sets it in the
 * child before fork() returns; code that takes locks without entering the library checks it. It is never unset, so no
 * lock.
 */
#ifndef WR_BASE_FORK_H
#define WR_BASE_FORK_H

#include "base/status.h"

#include <stdatomic.h>

extern atomic_bool wr_forked;

/* WEIR_ERR_FORKED, with the remedy. */
WR_CHECKED weir_status wr_fork_refuse(void);

WR_CHECKED static inline weir_status wr_fork_check(void)
{
    return WR_UNLIKELY(atomic_load_explicit(&wr_forked, memory_order_relaxed)) ? wr_fork_refuse() : WEIR_OK;
}

#endif
