/*
 * pending: freed blocks that other streams may still use. Naming a stream makes a use; freeing the block records an
 * event per use and queues it behind the stream's earlier ones; polling pops what has completed.
 * Owner: the cache. Locks: the cache's for all links; only the holder of the cache's poll_lock takes uses out, so the
 * first use of a queue stays put while its event is polled without the cache's lock.
 */
#ifndef WR_POOL_PENDING_H
#define WR_POOL_PENDING_H

#include "pool/cache.h"

/* One stream that blocks wait for. Lives while a use names it. */
struct wr_wait {
    wr_wait *next;
    uint64_t stream_id;
    void *native;
    wr_event_pool *events; /* of the stream's device, which may be another than the block's */
    wr_use *first, *last;  /* freed blocks, oldest first */
    uint32_t uses;         /* queued here, or still held by a live block */
    atomic_bool ended;     /* the stream's work is over and `native` is no more */
    atomic_uint marking;   /* threads that may be using `native` without the poll lock */
};

/* A block used on a stream. */
struct wr_use {
    wr_use *next_of_block;
    wr_use *next_in_wait; /* also links unused records */
    wr_block *block;
    wr_wait *wait;
    void *event;      /* NULL: none could be recorded yet; the stream itself is asked */
    uint64_t serial;  /* in the order in which uses were queued, from 1 */
    uint32_t holders; /* threads that wait for the event without a lock: it and the record stay for the last of them */
};

/* Says that `stream` uses the live block at `address`. `events` is the pool of the stream's device. */
WR_CHECKED weir_status wr_pending_record(wr_cache *cache, const wr_segment *segment, const void *address,
                                         const wr_stream *stream, wr_event_pool *events);

/* Starts waiting for all uses of a block that has just become pending. No lock held. Cannot fail: a use whose event
 * cannot be recorded falls back to asking the stream. */
void wr_pending_start(wr_cache *cache, wr_block *block);

/* Instead, for deterministic pools and for lent blocks: the block is free at once, and later work on its stream waits on the device
 * for the uses. Where that cannot be, because a stream captures or the driver refuses, it is pending. Takes the move lock. */
void wr_pending_chain(wr_cache *cache, wr_block *block);

/* A block that is freed after all has no uses any more. The cache's lock is held. */
WR_COLD void wr_pending_forget_locked(wr_cache *cache, wr_block *block);

/* Frees a block that has become pending and was not started: its uses are known to be over. */
void wr_pending_skip(wr_block *block);

/* Around calls about the native stream of a wait, without the poll lock: false when the stream is no more. To be left in
 * either case. */
WR_CHECKED bool wr_wait_enter(wr_wait *wait);
void wr_wait_leave(wr_wait *wait);

/* A graph uses the live block that `address` lies in: freed, it is not reused before the graph lets go of it. */
WR_CHECKED weir_status wr_pending_keep(wr_cache *cache, const wr_segment *segment, const void *address);
void wr_pending_let_go(wr_cache *cache, const wr_segment *segment, const void *base);

/* Reclaims what has completed. Returns at once when another thread is at it. Device errors stay with the block. */
void wr_pending_poll(wr_cache *cache);

/* The same, waiting for that thread. */
void wr_pending_flush(wr_cache *cache);

/* How many uses were ever queued. Who waits for pending frees waits for those only: others may free more all the time. */
uint64_t wr_pending_queued(wr_cache *cache);

/* Waits for the oldest use of one stream that is among the first `newest` that were ever queued, then polls. *waited: whether there was any
 * that can be waited for. */
WR_CHECKED weir_status wr_pending_wait(wr_cache *cache, uint64_t newest, bool *waited);

/* Waits for all that are queued by now and that can be waited for. */
WR_CHECKED weir_status wr_pending_wait_all(wr_cache *cache);

/* Nothing needs to be waited for on this stream any more: its work is over, and it is about to be destroyed. */
void wr_pending_end_stream(wr_cache *cache, uint64_t stream_id);

/* Forgets all waits without touching the blocks; events go back to their pools, which may be other devices'. At
 * close. */
void wr_pending_release(wr_cache *cache);

#endif
