/*
 * recording: switches a cache's recorded events, and the stacks of its calls, on and off. All under the runtime's lock.
 */
#ifndef WR_POOL_REPORT_RECORDING_H
#define WR_POOL_REPORT_RECORDING_H

#include "pool/cache.h"

/* Whether the stacks of calls are recorded from now on. */
void wr_recording_watch(wr_cache *cache, bool stacks);

/* Records events from now on, or keeps another number of them. */
void wr_recording_start(wr_cache *cache, uint64_t events);

/* Forgets all events, and the stacks of blocks. */
void wr_recording_stop(wr_cache *cache);

#endif
