/*
 * quiet: a time at which waiting for a whole device ends no capture: no stream that weir knows there (on any device, where
 * the back end says so) captures, and no capture begins (pool/gate.h). Work that was there before is waited for ahead of
 * it, so that beginnings are barred for as long as one last look takes, and what is done in that time.
 * Owner: the thread that began it, which ends it. No lock; while it waits for work ahead of it, it bars nobody.
 */
#ifndef WR_POOL_QUIET_H
#define WR_POOL_QUIET_H

#include "pool/event.h"
#include "pool/stream.h"

/* `events` are those of the streams' device. WEIR_ERR_CAPTURE when a stream captures, or the driver's word when it cannot
 * tell: then there is nothing to end. Nests. */
WR_CHECKED weir_status wr_quiet_begin(wr_event_pool *events, wr_stream_table *streams);
void wr_quiet_end(void);

/* Waits for the present work of each stream that weir knows and that does not capture. All are; the first failure is returned. */
WR_CHECKED weir_status wr_quiet_wait_for_streams(wr_event_pool *events, wr_stream_table *streams);

/* Waits for the device, so that no graph that is gone runs there. WEIR_ERR_CAPTURE, having harmed nothing, when that would end a
 * capture; `call` is whose text it is. */
WR_CHECKED weir_status wr_quiet_synchronize(wr_event_pool *events, wr_stream_table *streams, const char *call);

#endif
