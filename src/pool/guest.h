/*
 * guest: addresses that streams share, decided with the lives of a round known. One stream, which holds most, is the host.
 * What each other one, a guest, holds at the moment when most is live in all, it has to itself. Beyond that, at other
 * times, its blocks are lent addresses of the host's: there its work has to wait for the host's.
 * Owner: the items are the caller's. No lock; any thread.
 */
#ifndef WR_POOL_GUEST_H
#define WR_POOL_GUEST_H

#include "pool/place.h"

#include <stdbool.h>

/* Who has an arena of a learned plan. */
#define WR_ARENA_ALONE UINT32_MAX
typedef struct wr_arena_user {
    uint64_t native; /* the stream, as events have it */
    uint64_t own;    /* what lies beyond so many bytes is lent: it lies in the host's arena, counted from there */
    uint32_t host;   /* that arena; WR_ARENA_ALONE: nothing is lent */
} wr_arena_user;

/* Items are in the order of their starts, one in each step. */
typedef struct wr_guest_item {
    wr_item item;    /* offset, set by wr_place_guests: in the stream's addresses, or in the host's */
    uint32_t stream; /* counted from 0 */
    bool lent;       /* set by wr_place_guests */
} wr_guest_item;

/* No two items that live at one time overlap. bytes[stream] is what the stream's addresses reach to. */
WR_CHECKED weir_status wr_place_guests(wr_guest_item *items, uint32_t count, uint32_t streams, uint64_t *bytes,
                                       uint32_t *host);

#endif
