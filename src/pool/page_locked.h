/*
 * page_locked: page-locked host memory, in whole segments. weir maps it, binds it to a NUMA node, faults it in with
 * several threads, and then registers it with the driver in one piece: one registration is far cheaper when its pages
 * are there. Back ends that cannot register memory supply it themselves.
 * No lock is taken; callers hold at most the move lock.
 */
#ifndef WR_POOL_PAGE_LOCKED_H
#define WR_POOL_PAGE_LOCKED_H

#include "pool/source.h"

#define WR_PAGE_LOCKED_ANYWHERE (-1)

/* Takes range->bytes, a multiple of WR_SEGMENT_UNIT, through `device`, on a node or anywhere. WEIR_ERR_OUT_OF_MEMORY:
 * the system or the driver has no more. */
WR_CHECKED weir_status wr_page_locked_take(const weir_backend *backend, int device, int node, wr_range *range);

/* On failure the range is as before. */
weir_status wr_page_locked_give(const weir_backend *backend, int device, const wr_range *range);

/* When the driver does not take it back and is closed next, which ends its hold: at least the pages return to the
 * system. */
void wr_page_locked_abandon(const wr_range *range);

#endif
