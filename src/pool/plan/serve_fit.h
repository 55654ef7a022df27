/*
 * serve_fit: of what use a plan is that is served: how many requests got their places, whether that is nearly all, and
 * when the plan is given up.
 * Owner and lock as serve.h says.
 */
#ifndef WR_POOL_PLAN_SERVE_FIT_H
#define WR_POOL_PLAN_SERVE_FIT_H

#include "pool/count.h"
#include "pool/plan/serve.h"

/* Of which requests of the last rounds nearly all got their places, as far as can be told. */
typedef enum wr_serve_fit {
    WR_FITS_NOT,         /* of none, or no plan is served */
    WR_FITS_ITS_STREAMS, /* of those of the streams that the plan is for; others ask for much, too */
    WR_FITS              /* of all */
} wr_serve_fit;

/* Begins to count anew once it can tell. */
wr_serve_fit wr_serve_fits(wr_cache *cache);

/* Whether one of the users has no arena in the plan that is served. */
bool wr_serve_lacks(wr_cache *cache, const wr_arena_user *users, uint64_t count);

/* Once for each plan: gives back free memory that is not for planned places. */
WR_CHECKED weir_status wr_serve_settle(wr_cache *cache);

/* Counts what became of a request of the stream. True: the plan has been of no use for so long that it is no longer
 * served. The cache's lock is held. */
bool wr_serve_count_locked(wr_cache *cache, const wr_stream *stream, wr_outcome found);

#endif
