/*
 * shares: what is spare below one peak (spare.c), divided among fronts that hand it out without asking each other.
 * Their shares add up to no more, except that each gets a little in any case, so as not to ask for every block; a peak
 * may be too low by that. What a front frees is added to its share, so together they may come to have more than is
 * spare. No lock of its own: whoever adds up has the cache's.
 */
#ifndef WR_POOL_FRONT_SHARES_H
#define WR_POOL_FRONT_SHARES_H

#include "pool/front/front.h"

/* What some fronts may hand out before they ask again. */
typedef struct wr_shares {
    int64_t count, spare;
} wr_shares;

/* A front that is to ask has none. */
static inline void wr_shares_add(wr_shares *shares, const wr_front *front, wr_flow_number number)
{
    shares->count++;
    if (wr_front_is_settled(front)) shares->spare += wr_front_spare_in_all(front, number);
}

/* Whether they were promised more of what is spare than they are to have; then they must ask again. */
static inline bool wr_shares_exceed(wr_shares shares, int64_t spare, int64_t least)
{
    return shares.spare > spare + shares.count * least;
}

/* The share of one more front. */
static inline int64_t wr_shares_next(wr_shares others, int64_t spare, int64_t least)
{
    if (others.count == 0) return spare;
    const int64_t share = (spare - others.spare) / (others.count + 1);
    return share > least ? share : least;
}

#endif
