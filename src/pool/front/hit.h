/*
 * hit: the slots of a front, and the path of an allocation and a free that need no more, inlined into the calls of the
 * program. Lock: the front's is held, unless it says so.
 */
#ifndef WR_POOL_FRONT_HIT_H
#define WR_POOL_FRONT_HIT_H

#include "base/hash.h"
#include "pool/front/front.h"

#include <assert.h>

/* Blocks in a slot, at most. Small blocks of one size are many, as between threads of which one allocates and the other
 * frees; large ones, and more bytes than these, are memory that others may need. */
#define WR_FRONT_DEPTH_SMALL 1024
#define WR_FRONT_DEPTH_LARGE 32
#define WR_FRONT_DEPTH_BYTES ((size_t)128 << 20)
#define WR_SIDE_DEPTH_SMALL 64 /* the same of a side */
#define WR_SIDE_DEPTH_LARGE 4
#define WR_SIDE_DEPTH_BYTES ((size_t)32 << 20)

/* A block's size tells its class, for no size is in both (wr_bin_class_of). */
static inline wr_class wr_front_class(size_t block_bytes)
{
    return block_bytes <= WR_SMALL_MAX ? WR_SMALL : WR_LARGE;
}

static inline wr_front_part *wr_front_part_for(wr_front *front, size_t block_bytes)
{
    return wr_front_class(block_bytes) == WR_SMALL ? &front->parts[WR_SMALL] : &front->parts[WR_LARGE];
}

static inline size_t wr_front_index(size_t block_bytes)
{
    return wr_hash(block_bytes / WR_FRONT_QUANTUM) >> (64 - WR_FRONT_SLOT_BITS);
}

/* The block size of a plain request. */
static inline size_t wr_front_block_bytes(const wr_front *front, size_t requested)
{
    const size_t unit = requested > WR_SMALL_MAX ? front->large_unit : WR_FRONT_QUANTUM;
    return (requested + unit - 1) & ~(unit - 1); /* no division */
}

/* Of a slot for blocks of that size. */
static inline uint32_t wr_front_depth(const wr_front *front, size_t block_bytes)
{
    const bool side = wr_front_is_side(front), large = wr_front_class(block_bytes) == WR_LARGE;
    if (large && !side) return WR_FRONT_DEPTH_LARGE;
    const size_t most = (side ? WR_SIDE_DEPTH_BYTES : WR_FRONT_DEPTH_BYTES) / block_bytes;
    const uint32_t count = !side ? WR_FRONT_DEPTH_SMALL : large ? WR_SIDE_DEPTH_LARGE : WR_SIDE_DEPTH_SMALL;
    return most < count ? (uint32_t)most : count;
}

static inline wr_front_slot *wr_front_slot_of(wr_front_part *part, size_t block_bytes)
{
    return &part->slots[wr_front_index(block_bytes)];
}

/* False: nothing is parked. True: something may be. */
static inline bool wr_front_any(const wr_front *front)
{
    return front->parts[WR_SMALL].in_use || front->parts[WR_LARGE].in_use;
}

static inline bool wr_front_slot_has(const wr_front_slot *slot, size_t block_bytes)
{
    return slot->bytes == block_bytes && slot->first;
}

static inline bool wr_front_has(wr_front *front, size_t block_bytes)
{
    return wr_front_slot_has(wr_front_slot_of(wr_front_part_for(front, block_bytes), block_bytes), block_bytes);
}

/* How much remains spare after such a block is taken. */
typedef struct wr_front_rest {
    int64_t blocks, bytes, requested;
} wr_front_rest;

static inline wr_front_rest wr_front_rest_of(const wr_front_part *part, size_t block_bytes, size_t requested)
{
    return (wr_front_rest){ .blocks = wr_front_spare(part, WR_FLOW_BLOCKS) - 1,
                            .bytes = wr_front_spare(part, WR_FLOW_BYTES) - (int64_t)block_bytes,
                            .requested = wr_front_spare(part, WR_FLOW_REQUESTED) - (int64_t)requested };
}

/* Whether no peak is exceeded then. Means nothing while it is unknown how much is spare. */
static inline bool wr_front_spares(wr_front_rest rest)
{
    return (rest.blocks | rest.bytes | rest.requested) >= 0;
}

/* Whether such a block can become live without a new peak. The front is settled. */
static inline bool wr_front_is_below_peak(wr_front *front, size_t block_bytes, size_t requested)
{
    return wr_front_spares(wr_front_rest_of(wr_front_part_for(front, block_bytes), block_bytes, requested));
}

static inline void wr_front_leave_spare(wr_front_part *part, wr_front_rest rest)
{
    wr_front_set(part, WR_FLOW_BLOCKS, rest.blocks);
    wr_front_set(part, WR_FLOW_BYTES, rest.bytes);
    wr_front_set(part, WR_FLOW_REQUESTED, rest.requested);
}

/* The block is still marked as parked. */
static inline void wr_front_pop(wr_front_part *part, wr_front_slot *slot, wr_block *block, size_t requested,
                                wr_front_rest rest)
{
    assert(block == slot->first);
    slot->first = block->next_parked;
    slot->room++;
    slot->hits++;
    part->hits[WR_FLOW_REQUESTED] += requested;
    block->requested = requested;
    wr_front_leave_spare(part, rest);
}

static inline void wr_front_push(wr_front_part *part, size_t index, wr_block *block)
{
    wr_front_slot *slot = &part->slots[index];
    block->next_parked = slot->first;
    slot->first = block;
    slot->room--;
    part->in_use |= UINT64_C(1) << index;
    wr_block_mark_as(block, WR_MARK_PARKED);
    wr_front_count(part, WR_FLOW_BLOCKS, 1);
    wr_front_count(part, WR_FLOW_BYTES, (int64_t)slot->bytes);
    wr_front_count(part, WR_FLOW_REQUESTED, (int64_t)block->requested);
}

/* Without a lock: the front for a block that the program names; NULL: it has none. The record may be another block's by
 * now. */
WR_RACES static inline wr_front *wr_front_of_block(const wr_block *block)
{
    return atomic_load_explicit(&block->segment->front, memory_order_acquire);
}

/* With any lock or none: whether the block still begins there, is live, and may be freed here now. A pointer that was
 * freed before may lead to a record that another thread is changing. It is a record with a segment all the same, and
 * the cache reports the error, under its lock. */
WR_RACES static inline bool wr_front_good(const wr_front *front, const wr_block *block, const void *pointer)
{
    /* The mark first, and acquired: what is read after it belongs to the block that it is the mark of, or to a later
     * one. A table that was replaced still leads to unused records, which have their last block's base until they
     * become another's, and no correct free may take that one for its own. */
    /* Whoever moves segments closes the fronts first. It has taken this front's lock meanwhile, or opened them again
     * before this thread took it, and then the segment's front is the current one. */
    return WR_LIKELY(wr_block_is_seen(block, WR_MARK_PARKABLE) && block->base == pointer &&
                     atomic_load_explicit(&block->segment->front, memory_order_relaxed) == front);
}

/* For a free that another thread might do at once, without the same lock: claims a block that was just found good. The
 * caller marks it before it takes any lock. False: it is not parkable any more. If this free or that thread's is one
 * too many, the record may even be another block's by now: who frees or records that one waits for the look. */
WR_RACES static inline bool wr_front_claim(const wr_front *front, wr_block *block, const void *pointer)
{
    if (wr_block_change_mark(block, WR_MARK_PARKABLE, WR_MARK_CLAIMED) != WR_MARK_PARKABLE) return false;
    if (WR_LIKELY(block->base == pointer && wr_front_of_block(block) == front)) return true;
    (void)wr_block_change_mark(block, WR_MARK_CLAIMED, WR_MARK_PARKABLE);
    return false;
}

/* The hit path of an allocation and of a free. NULL or false: nothing has changed. */

/* A block that is to be handed out (wr_block_hand_out). *at: the slot for blocks of that size. */
static WR_ALWAYS_INLINE wr_block *wr_front_hit(wr_front *front, size_t requested, wr_front_slot **at)
{
    const size_t block_bytes = wr_front_block_bytes(front, requested);
    wr_front_part *part = wr_front_part_for(front, block_bytes);
    wr_front_slot *slot = *at = wr_front_slot_of(part, block_bytes);
    wr_block *block = slot->first;
    if (WR_UNLIKELY(requested >= atomic_load_explicit(&front->below, memory_order_relaxed) ||
                    slot->bytes != block_bytes || !block))
        return NULL;
    const wr_front_rest rest = wr_front_rest_of(part, block_bytes, requested);
    if (WR_UNLIKELY(!wr_front_spares(rest))) return NULL;
    wr_front_pop(part, slot, block, requested, rest);
    return block;
}

static WR_ALWAYS_INLINE bool wr_front_park(wr_front *front, wr_block *block, const void *pointer)
{
    if (WR_UNLIKELY(!front->plain || !wr_front_good(front, block, pointer))) return false;
    wr_front_part *part = wr_front_part_for(front, block->bytes);
    const size_t index = wr_front_index(block->bytes);
    const wr_front_slot *slot = &part->slots[index];
    if (WR_UNLIKELY(slot->bytes != block->bytes || slot->room == 0)) return false;
    wr_front_push(part, index, block);
    return true;
}

/* Records the event of a hit, and hands the block out. */
void *wr_front_hand_out_recorded(const wr_front *front, wr_block *block);

/* The slow path: a miss, and a free that cannot be parked as it is. They are called with the lock from
 * wr_bias_acquire_owned, and release it. False: nothing was done, and the caller goes on without the lock. */
bool wr_front_miss(wr_front *front, const wr_front_slot *slot, size_t requested, wr_bias_thread *self, void **out);
WR_NOINLINE bool wr_front_park_other(wr_front *front, wr_block *block, const void *pointer, wr_bias_thread *self);

#endif
