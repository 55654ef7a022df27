/*
 * trim_wait: the work that is queued on memory which is to go to the driver. First goes what has none; then the work on the rest
 * is waited for with no lock held, so that other threads get memory meanwhile, which that work may be waiting for. Only where new
 * work keeps coming is the last of it waited for under the move lock. Graphs that a program launches itself may run on streams that
 * weir was not told of: for those the device is waited for, and never under a lock.
 * Owner: who gives back, on its stack. Lock: the move lock, but for wr_trim_wait_again.
 */
#ifndef WR_POOL_TRIM_WAIT_H
#define WR_POOL_TRIM_WAIT_H

#include "pool/cache.h"

#define WR_TRIM_WAIT_STREAMS 32 /* waited for between two looks at what there is */

/* Zeroed but for the cache: nothing was found yet. */
typedef struct wr_trim_wait {
    wr_cache *cache;
    bool waits;          /* for each stream there and then */
    bool device;         /* is to be waited for, too */
    weir_status refused; /* not WEIR_OK: that was in vain, and is not tried again */
    unsigned rounds;
    size_t count; /* of streams that had work, since memory was last looked for */
    struct {
        const wr_stream *stream;
        void *event; /* behind that work; NULL: it captures, or the driver has none */
    } busy[WR_TRIM_WAIT_STREAMS];
} wr_trim_wait;

/* Whether the stream is among those. */
bool wr_trim_wait_busy(const wr_trim_wait *wait, const wr_stream *stream);

/* The stream's work is over, or was waited for. WEIR_ERR_NOT_READY: its memory stays for now; WEIR_ERR_CAPTURE: and for longer. */
WR_CHECKED weir_status wr_trim_wait_stream(wr_trim_wait *wait, const wr_stream *stream);

/* Of giving something back: that it stays for now is no failure, and that a stream captures is *captured. */
weir_status wr_trim_wait_spare(weir_status status, bool *captured);

/* No graph that a program launched itself uses what the pool has free. WEIR_ERR_NOT_READY: perhaps one does; else why nobody can
 * tell. The cache's lock is held, too. */
WR_CHECKED weir_status wr_trim_wait_launches_locked(wr_trim_wait *wait, const wr_mempool *pool);

/* Waits for what was found, without the move lock. False: there is nothing more to be had, or what there was is `enough`. */
bool wr_trim_wait_again(wr_trim_wait *wait, bool enough);

/* Waits for the work of a stream: before memory of it goes. WEIR_ERR_CAPTURE while it captures. */
WR_CHECKED weir_status wr_cache_finish_work(const wr_cache *cache, const wr_stream *stream);

#endif
