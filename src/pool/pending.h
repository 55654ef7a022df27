/*
 * pending: freed blocks that other streams may still use. Recording a stream on a block makes a use. Freeing it records
 * an event per use and queues the use behind the stream's earlier ones; polling pops what has completed.
 * Owner: the cache. Locks: the cache's for all links. Only the holder of a wait's lock takes uses out of it, so it may
 * walk that queue and poll its events without the cache's lock, while others queue uses behind them; threads that free
 * blocks used by different streams do not meet there. Only the holder of the cache's poll_lock takes waits out of the
 * list.
 */
#ifndef WR_POOL_PENDING_H
#define WR_POOL_PENDING_H

#include "pool/cache.h"

/* A stream that blocks wait for. Lives while a use refers to it. */
struct wr_wait {
    wr_wait *next;
    uint64_t stream_id;
    void *native;
    wr_event_pool *events; /* of the stream's device, which may not be the block's */
    wr_use *last;
    uint32_t uses;                /* queued here, or still held by a live block */
    atomic_bool ended;            /* the stream's work is over, and `native` no longer exists */
    char between[WR_CACHE_LINES]; /* padding: what comes is written without the cache's lock */
    wr_lock lock;                 /* WR_RANK_WAIT */
    _Atomic(wr_use *) first;      /* freed blocks, oldest first */
    atomic_uint marking;          /* threads that may be using `native` without the lock */
    char beyond[WR_CACHE_LINES];
};

/* A block's use on a stream. */
struct wr_use {
    wr_use *next_of_block;
    _Atomic(wr_use *) next_in_wait; /* also links unused records */
    wr_block *block;
    wr_wait *wait;
    void *event;     /* NULL: none could be recorded yet, so the stream itself is asked */
    uint64_t serial; /* in order of queueing, from 1 */
    /* Threads that wait for the event without a lock: it and the record stay for the last of them */
    uint32_t holders;
};

/* Records that `stream` uses the live block at `address`. `events` is the pool of the stream's device. */
WR_CHECKED weir_status wr_pending_record(const wr_segment *segment, const void *address, const wr_stream *stream,
                                         wr_event_pool *events);

/* Starts waiting for all uses of a block that has just become pending. No lock held. Cannot fail: a use whose event
 * cannot be recorded falls back to asking the stream. */
void wr_pending_start(wr_cache *cache, wr_block *block);

/* The alternative for deterministic pools and lent blocks: the block is free at once, and later work on its stream
 * waits on the device for the uses. Where a stream captures or the driver refuses, it is pending. Takes the move
 * lock. */
void wr_pending_chain(wr_cache *cache, wr_block *block);

/* Drops the uses of a block that is freed after all. The cache's lock is held. */
WR_COLD void wr_pending_forget_locked(wr_cache *cache, wr_block *block);

/* Frees a block that has become pending and was not started: what comes next on its stream comes after its uses. */
void wr_pending_skip(wr_block *block);

/* Bracket calls about a wait's native stream without the wait's lock. False: the stream no longer exists. To be left in
 * either case. */
WR_CHECKED bool wr_wait_enter(wr_wait *wait);
void wr_wait_leave(wr_wait *wait);

/* A graph keeps the live block that contains `address`: once freed, it is not reused until the graph lets go of it. */
WR_CHECKED weir_status wr_pending_keep(const wr_segment *segment, const void *address);
void wr_pending_let_go(const wr_segment *segment, const void *base);

/* Reclaims blocks whose uses have completed. Returns at once if another thread is doing so, and leaves out what others
 * are just reclaiming. Device errors stay with the block. */
void wr_pending_poll(wr_cache *cache);

/* The same, but waits for that thread. */
void wr_pending_flush(wr_cache *cache);

/* How many uses were ever queued. A thread that waits for pending frees waits for those only, since others may free
 * more all the time. */
uint64_t wr_pending_queued(wr_cache *cache);

/* Waits for one stream's oldest use that is among the first `newest` ever queued, then polls. With a pool, only streams
 * that blocks of it wait for, since the work of others may wait for this thread. *waited: whether there was one that
 * can be waited for. Fails if there was none for a refusal, the first of them. */
WR_CHECKED weir_status wr_pending_wait(wr_cache *cache, const wr_mempool *pool, uint64_t newest, bool *waited);

/* Waits for all uses queued so far, of a pool's blocks or of all, that can be waited for. Fails as wr_pending_wait. */
WR_CHECKED weir_status wr_pending_wait_all(wr_cache *cache, const wr_mempool *pool);

/* Ends the waits for a stream: its work is over, and it is about to be destroyed. */
void wr_pending_end_stream(wr_cache *cache, uint64_t stream_id);

/* At close: drops all waits without touching the blocks. Events go back to their pools, which may be other devices'. */
void wr_pending_release(wr_cache *cache);

#endif
