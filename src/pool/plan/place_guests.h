/*
 * place_guests: lets streams share addresses, given the lives of blocks in a round. The stream that holds most is the
 * host. Every other one is a guest: it has to itself what it holds when most is live in all. What it holds beyond that
 * at other times is lent addresses of the host's, where its work must wait for the host's.
 * Owner: the items are the caller's. No lock; any thread.
 */
#ifndef WR_POOL_PLAN_PLACE_GUESTS_H
#define WR_POOL_PLAN_PLACE_GUESTS_H

#include "pool/plan/place.h"

#include <stdbool.h>

/* The user of an arena of a learned plan. */
#define WR_ARENA_ALONE UINT32_MAX
typedef struct wr_arena_user {
    uint64_t native; /* the stream, as in events */
    /* Bytes of its own; places beyond that are lent, and lie in the host's arena, counted from there */
    uint64_t own;
    uint32_t host; /* number of that arena; WR_ARENA_ALONE: nothing is lent */
} wr_arena_user;

/* Items are in order of their starts, one per step. */
typedef struct wr_guest_item {
    wr_item item;    /* offset, set by wr_place_guests: in the stream's addresses or, if lent, in the host's */
    uint32_t stream; /* counted from 0 */
    bool lent;       /* set by wr_place_guests */
} wr_guest_item;

/* No two items that live at the same time overlap. bytes[stream] is the height that the stream's addresses reach;
 * UINT64_MAX: the limit, of each stream, was reached before all was placed there. alone[stream]: the most that lives at
 * once on the stream. */
WR_CHECKED weir_status wr_place_guests(wr_guest_item *items, uint32_t count, uint32_t streams, wr_place_limit limit,
                                       uint64_t *bytes, uint64_t *alone, uint32_t *host);

#endif
