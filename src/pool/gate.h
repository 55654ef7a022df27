/*
 * gate: keeps weir's own calls about streams apart from the beginnings and ends of captures. Asking a stream whether it
 * captures and then recording an event on it, or querying it, are two calls; a capture that began in between would be
 * ended by the second. Who makes such calls enters the gate; who begins or ends a capture closes it and waits until
 * nobody is inside. Captures that weir is not told of do not come by here.
 * Owner: the process. No lock: counters. Nobody enters or closes it while inside, or while it has closed it.
 */
#ifndef WR_POOL_GATE_H
#define WR_POOL_GATE_H

#include <stdbool.h>

/* Waits while it is closed, which is as long as the driver takes to begin or end a capture. */
void wr_gate_enter(void);
void wr_gate_leave(void);

/* Waits until nobody is inside. */
void wr_gate_close(void);
void wr_gate_open(void);

/* One capture more is known, before it begins; one less, after it ended. */
void wr_gate_capture_comes(void);
void wr_gate_capture_goes(void);

/* Whether any is known. Inside the gate: while none is, no stream joins one; while one is, a stream may still join it. */
bool wr_gate_captures(void);

#endif
