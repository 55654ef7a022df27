/*
 * stitch_bounds: how much may be held for what is live, and in chunks of what size. docs/decisions/0007 has the figures behind
 * the numbers. Lock: the cache's.
 */
#ifndef WR_POOL_STITCH_BOUNDS_H
#define WR_POOL_STITCH_BOUNDS_H

#include "pool/stitch_plan.h"

/* Whether memory may become short with so many bytes held. */
bool wr_stitch_is_tight(const wr_cache *cache, size_t held);

/* The largest chunk to make for so many bytes more: a share of what is held then, so that what a chunk partly in use keeps
 * from others is little at any time. */
size_t wr_stitch_most(const wr_cache *cache, size_t bytes);

/* The smallest, where the largest is `most`. */
size_t wr_stitch_least(const wr_stitch_plan *plan, size_t most);

/* How much a range of planned places gets at least: a share of what they have already, as with other chunks, since who is served
 * little holds little. */
size_t wr_stitch_cell(const wr_stitch_plan *plan);

/* Chunks were mapped again, which took so many nanoseconds, until that time of the back end's clock: where that takes too much of a
 * program's time, more may be held. */
void wr_stitch_note_moved(wr_cache *cache, size_t count, size_t bytes, uint64_t took, uint64_t now);

/* Whether that much more may be held before what is free is looked for. */
bool wr_stitch_has_slack(const wr_stitch_plan *plan, size_t bytes);

/* The same for the plan's request: small blocks have memory of their own while that is little of the whole, and memory is not
 * short. */
bool wr_stitch_may_grow(const wr_stitch_plan *plan, size_t bytes);

/* Whether what other streams have parked is much, and is to serve before anything new; the stream's own is free already. Not during
 * a capture: then no stream can be asked whether its work is over. */
bool wr_stitch_may_gather(const wr_stitch_plan *plan);

#endif
