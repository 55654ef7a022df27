/*
 * snapshot: where every block of a cache is, and its recorded events, at one instant.
 */
#ifndef WR_POOL_REPORT_SNAPSHOT_H
#define WR_POOL_REPORT_SNAPSHOT_H

#include "observe/snapshot.h"
#include "pool/cache.h"

/* What to include. */
typedef struct wr_snapshot_what {
    const wr_mempool *pool; /* NULL: all */
    wr_mempool_name pool_name;
    bool history;
} wr_snapshot_what;

/* Fills `out`, which is zero on entry. WEIR_ERR_POOL_MISMATCH: the pool is gone. On failure the caller releases what
 * has been filled in. */
WR_CHECKED weir_status wr_snapshot_take(wr_cache *cache, const wr_snapshot_what *what, wr_snapshot_device *out);

#endif
