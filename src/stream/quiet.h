/*
 * quiet: a time in which waiting for a whole device ends no capture: no stream that weir knows there (on any device,
 * where the back end says so) captures, and no capture begins (stream/gate.h). Work already queued is waited for
 * beforehand, so that beginnings are barred only for one last look and for what is done in the quiet time.
 * Owner: the thread that begins it, which also ends it. No lock. While it waits for work beforehand, it bars nobody.
 */
#ifndef WR_STREAM_QUIET_H
#define WR_STREAM_QUIET_H

#include "stream/event.h"
#include "stream/stream.h"

/* `events` belong to the streams' device. WEIR_ERR_CAPTURE when a stream captures, or the driver's error when it cannot
 * tell; then there is nothing to end. Nests. */
WR_CHECKED weir_status wr_quiet_begin(wr_event_pool *events, wr_stream_table *streams);
void wr_quiet_end(void);

/* The same without a wait for work beforehand: for what does not wait for streams of weir's, but is refused while one
 * captures. */
WR_CHECKED weir_status wr_quiet_begin_at_once(wr_stream_table *streams);

/* Waits for the present work of each stream that weir knows and that does not capture. Waits for all of them; returns
 * the first failure. */
WR_CHECKED weir_status wr_quiet_wait_for_streams(wr_event_pool *events, wr_stream_table *streams);

/* Waits for the device, so that no graph that is gone still runs there. WEIR_ERR_CAPTURE, with no harm done, when that
 * would end a capture; `call` names the caller in the error text. */
WR_CHECKED weir_status wr_quiet_synchronize(wr_event_pool *events, wr_stream_table *streams, const char *call);

#endif
