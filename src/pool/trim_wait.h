/*
 * trim_wait: waiting for work queued on memory that is to go back to the driver. Memory without work goes first. Then
 * work on the rest is waited for with no lock held: other threads, which it may be waiting for, can get memory
 * meanwhile. Only where new work keeps coming is the last of it waited for under the move lock, for a second at most,
 * and what is not over then stays. Graphs that a program launches itself may run on streams that weir was not told of.
 * For those the device is waited for, never under a lock.
 * Owner: the function that gives back, on its stack. Lock: the move lock, except for wr_trim_wait_again.
 */
#ifndef WR_POOL_TRIM_WAIT_H
#define WR_POOL_TRIM_WAIT_H

#include "pool/cache.h"

#define WR_TRIM_WAIT_STREAMS 32 /* the most to wait for before looking again at what can go */

/* All zero except the cache: nothing was found yet. */
typedef struct wr_trim_wait {
    wr_cache *cache;
    bool waits;          /* for each stream, as soon as it is met, */
    uint64_t until;      /* until then; 0: it has not waited yet */
    bool device;         /* the device is to be waited for, too */
    weir_status refused; /* not WEIR_OK: that failed, and is not tried again */
    unsigned rounds;
    size_t count; /* of streams with work, found since memory was last looked for */
    struct {
        const wr_stream *stream;
        void *event; /* behind that work; NULL: the stream captures, or the driver has no event */
    } busy[WR_TRIM_WAIT_STREAMS];
} wr_trim_wait;

/* Whether the stream is among the busy ones. */
bool wr_trim_wait_busy(const wr_trim_wait *wait, const wr_stream *stream);

/* WEIR_OK: the stream's work is over, or was waited for. WEIR_ERR_NOT_READY: its memory stays for now.
 * WEIR_ERR_CAPTURE: it stays for longer. */
WR_CHECKED weir_status wr_trim_wait_stream(wr_trim_wait *wait, const wr_stream *stream);

/* Converts the status of giving something back: what stays for now is no failure, a capturing stream only sets
 * *captured. */
weir_status wr_trim_wait_spare(weir_status status, bool *captured);

/* WEIR_OK: no graph that a program launched itself uses the pool's free memory. WEIR_ERR_NOT_READY: one may; other
 * errors say why nobody can tell. The cache's lock is held too. */
WR_CHECKED weir_status wr_trim_wait_launches_locked(wr_trim_wait *wait, const wr_mempool *pool);

/* Waits, without the move lock, for what was found. False: nothing more can be had, or what was given back is
 * `enough`. */
bool wr_trim_wait_again(wr_trim_wait *wait, bool enough);

/* The same for so long at most, since the work may be waiting for this thread, or take any time. False: none of it is
 * over. Else the next look is the last one: for streams that have got new work it waits itself, for a tenth of a
 * second. */
bool wr_trim_wait_briefly(wr_trim_wait *wait, uint64_t nanoseconds);

/* Waits for the work of a stream, before its memory goes. WEIR_ERR_CAPTURE while the stream captures. */
WR_CHECKED weir_status wr_cache_finish_work(const wr_cache *cache, const wr_stream *stream);

#endif
