/*
 * gate: keeps weir's own calls about streams apart from the beginnings and ends of captures. Asking a stream whether it
 * captures and then recording an event on it, or querying it, are two calls; a capture that began in between would be
 * ended by the second. Who makes such calls enters the gate; who begins or ends a capture closes it and waits until
 * nobody is inside. Nobody waits for a device's work inside: who must, and would end captures by it, bars their
 * beginnings instead, and those sleep. Captures that weir is not told of do not come by here.
 * Owner: the process. Locks: entering and closing are counters; bars have a lock of their own (WR_RANK_LEAF), held to count
 * only. Nobody enters or closes the gate, or takes the lock of a stream table, while inside, or while he has closed it.
 */
#ifndef WR_POOL_GATE_H
#define WR_POOL_GATE_H

#include <stdbool.h>

/* Waits while it is closed, which is as long as the driver takes to begin or end a capture. */
void wr_gate_enter(void);
void wr_gate_leave(void);

/* For the end of a capture. Waits until nobody is inside. */
void wr_gate_close(void);
void wr_gate_open(void);

/* For its beginning: the same, once nobody bars it. */
void wr_gate_close_to_begin(void);
void wr_gate_open_begun(void);

/* No other thread begins a capture until the bar is lifted; those that would begin then come before whoever bars them next.
 * Nests. */
void wr_gate_bar(void);
void wr_gate_lift_bar(void);

/* One capture more is known, before it begins; one less, after it ended. */
void wr_gate_capture_comes(void);
void wr_gate_capture_goes(void);

/* Whether any is known. Inside the gate: while none is, no stream joins one; while one is, a stream may still join it. */
bool wr_gate_captures(void);

#endif
