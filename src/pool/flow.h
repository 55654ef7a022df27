/*
 * flow: counts what was handed out, freed, split and coalesced since the statistics of a cache or pool were last
 * updated. So each block costs only one addition and two subtractions per number. The statistics that result, and
 * whether they are at a peak, are worked out when somebody asks, or when no room is left below a peak (pool/count.h).
 * Owner: the pool, or a ledger. Lock: the cache's or, for the ledger of a detached front, its cutting lock.
 */
#ifndef WR_POOL_FLOW_H
#define WR_POOL_FLOW_H

#include "weir/weir.h"

#include <stdatomic.h>

typedef enum wr_flow_number {
    WR_FLOW_BLOCKS, /* handed out and not yet free again */
    WR_FLOW_BYTES,
    WR_FLOW_REQUESTED,
    WR_FLOW_LIVE,                  /* the numbers before this one count what is live */
    WR_FLOW_SPLITS = WR_FLOW_LIVE, /* free blocks in segments that are partly in use */
    WR_FLOW_SPLIT_BYTES,
    WR_FLOW_NUMBERS
} wr_flow_number;

/* Bytes that come and go pass 2^63 within days. Then the total begins again at 0, as a counter that was reset does:
 * negative it would be none. */
static inline void wr_total_add(int64_t *total, uint64_t amount)
{
    *total = (int64_t)(((uint64_t)*total + amount) & INT64_MAX);
}

/* By kind, as in weir_memory_stats. All zero: nothing came, and there is no room. */
typedef struct wr_flow {
    /* Modulo 2^64; not kept for WEIR_STAT_ALL, which is the others' sum */
    uint64_t came[WEIR_STAT_KINDS][WR_FLOW_NUMBERS];
    int64_t room[WEIR_STAT_KINDS][WR_FLOW_NUMBERS]; /* below the peak */
    int64_t had[WEIR_STAT_KINDS][WR_FLOW_NUMBERS];  /* the room at the last update: the difference came and stayed */
} wr_flow;

/* What may become live below a peak and is in no share of a detached front (pool/front/detach.h). Such fronts add of it
 * to their shares, and put here what those have too much, with their cutting locks alone. */
typedef struct wr_unshared {
    atomic_int_fast64_t rest[WR_FLOW_LIVE];
    int64_t share[WR_FLOW_LIVE]; /* a usual one; read with a cutting lock */
} wr_unshared;

/* Negative: no room is left, and there may be a peak. */
static inline int64_t wr_flow_come(wr_flow *flow, int kind, wr_flow_number number, size_t amount)
{
    flow->came[kind][number] += amount;
    const int64_t of_kind = flow->room[kind][number] -= (int64_t)amount;
    return of_kind | (flow->room[WEIR_STAT_ALL][number] -= (int64_t)amount);
}

/* What became free less what became live since the last update. */
static inline int64_t wr_flow_untold(const wr_flow *flow, int kind, int number)
{
    return flow->room[kind][number] - flow->had[kind][number];
}

static inline void wr_flow_go(wr_flow *flow, int kind, wr_flow_number number, int64_t amount)
{
    flow->room[kind][number] += amount;
    flow->room[WEIR_STAT_ALL][number] += amount;
}

#endif
