/*
 * stitch_bounds: how much may be held in relation to what is live, and in chunks of what size. docs/decisions/0007 has
 * the figures behind the numbers. Lock: the cache's.
 */
#ifndef WR_POOL_CHUNK_STITCH_BOUNDS_H
#define WR_POOL_CHUNK_STITCH_BOUNDS_H

#include "pool/chunk/stitch_plan.h"

/* Whether memory may become short with `held` bytes held. */
bool wr_stitch_is_tight(const wr_cache *cache, size_t held);

/* What the limit, the pool's cap and, where it is made of chunks, the device leave, as far as that is known. */
uint64_t wr_stitch_left(const wr_mempool *pool);

/* The largest chunk to make for so many bytes more: a share of what is then held, so that what is free in chunks partly
 * in use is always little in comparison. */
size_t wr_stitch_most(const wr_cache *cache, size_t bytes);

/* The smallest chunk to make, where the largest is `most`. */
size_t wr_stitch_least(const wr_stitch_plan *plan, size_t most);

/* The least memory that a range of planned places gets at a time: a share of what they have already, as with other
 * chunks, so that a program that is served little holds little. */
size_t wr_stitch_cell(const wr_stitch_plan *plan);

/* An account of something that may take a share of the program's time: `time` is what must pass for what was done until
 * `now`, by the back end's clock. True: more was done than that and some patience allow. */
bool wr_stitch_pay(uint64_t *paid_at, uint64_t time, uint64_t now);

/* Chunks were mapped again, which took so many nanoseconds until `now` by the back end's clock. Where that takes too
 * much of the program's time, more may be held. */
void wr_stitch_note_moved(wr_cache *cache, size_t count, size_t bytes, uint64_t took, uint64_t now);

/* So many bytes of free chunks were used again where they were mapped. */
void wr_stitch_note_reused(wr_cache *cache, size_t bytes);

/* Memory is short, or wanted elsewhere: what took too long so far is no reason to hold more. */
void wr_stitch_note_scarce(wr_cache *cache);

/* Whether so many bytes more may be held before free memory is looked for. */
bool wr_stitch_has_slack(const wr_stitch_plan *plan, size_t bytes);

/* The same for the plan's request. Small blocks have memory of their own while that is little of the whole and memory
 * is not short. */
bool wr_stitch_may_grow(const wr_stitch_plan *plan, size_t bytes);

/* Whether other streams have much parked, which is to be used before so much new memory; the stream's own parked blocks
 * are free already. Not during a capture, when no stream can be asked whether its work is over. */
bool wr_stitch_may_gather(const wr_stitch_plan *plan, size_t bytes);

#endif
