/*
 * detach_support: detaching a front without threads that wait.
 */
#ifndef WEIR_TESTS_DETACH_SUPPORT_H
#define WEIR_TESTS_DETACH_SUPPORT_H

#include "host_support.h"

#include "pool/address.h"
#include "pool/detach.h"

/* The front of a block of the default pool. */
static inline wr_front *front_of(const void *block)
{
    const wr_segment *segment = wr_address_find(block);
    return atomic_load(&segment->front);
}

/* What the front's stream has free is cut and joined without the cache's lock from now on. */
static inline void detach(wr_front *front)
{
    const wr_front_hold h = wr_front_lock(front->cache, front);
    assert_ok(wr_front_detach_locked(front));
    wr_front_settle_locked(front);
    wr_front_unlock(front->cache, &h);
    assert_true(wr_front_is_detached(front));
}

#endif
