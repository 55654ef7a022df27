/*
 * detach_support: detaches a front (pool/front/detach.h) without contending threads.
 */
#ifndef WEIR_TESTS_DETACH_SUPPORT_H
#define WEIR_TESTS_DETACH_SUPPORT_H

#include "pool/address.h"
#include "pool/front/detach.h"

/* The front of a block; NULL: not a block, or of a pool without fronts. */
static inline wr_front *front_of(const void *block)
{
    const wr_segment *segment = wr_address_find(block);
    return segment ? atomic_load(&segment->front) : NULL;
}

static inline weir_status try_detach(wr_front *front)
{
    wr_front_lock(front->cache, front);
    weir_status status = wr_front_detach_locked(front);
    wr_front_unlock(front->cache, front);
    return status;
}

/* Lets the front know how much may become live before a peak is reached. */
static inline void settle(wr_front *front)
{
    wr_front_lock(front->cache, front);
    wr_front_settle_locked(front);
    wr_front_unlock(front->cache, front);
}

#endif
