/*
 * slot_support: sizes and parked blocks of a front's slots (pool/front/front.h). For tests that use cmocka.
 */
#ifndef WEIR_TESTS_SLOT_SUPPORT_H
#define WEIR_TESTS_SLOT_SUPPORT_H

#include "pool/front/hit.h"

/* A size whose blocks want the slot of `bytes`. */
static inline size_t size_beside(size_t bytes)
{
    size_t other = bytes + WR_FRONT_QUANTUM;
    while (wr_front_index(other) != wr_front_index(bytes)) other += WR_FRONT_QUANTUM;
    assert_true(other < WR_SMALL_MAX);
    return other;
}

/* Blocks of that size that are parked in the front. */
static inline uint32_t parked_of(wr_front *front, size_t bytes)
{
    const wr_front_slot *slot = wr_front_slot_of(wr_front_part_for(front, bytes), bytes);
    return slot->bytes == bytes ? wr_front_depth(front, bytes) - slot->room : 0;
}

#endif
