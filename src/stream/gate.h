/*
 * gate: keeps weir's own calls about streams apart from the beginnings and ends of captures. Asking a stream whether it
 * captures, and then recording an event on it or querying it, are two calls; a capture that began in between would be
 * ended by the second. Who makes such calls enters the gate; who begins or ends a capture closes it and waits until
 * nobody is inside. Nobody waits for a device's work inside: a thread that must, and would end captures by it, bars
 * their beginnings instead, and those sleep. Captures that weir is not told of do not pass the gate.
 * Owner: the process. Locks: entering and closing are counters; bars have a lock of their own (WR_RANK_LEAF), held only
 * to count. A thread that is inside, or has closed the gate, must not enter or close it, nor take the lock of a stream
 * table.
 */
#ifndef WR_STREAM_GATE_H
#define WR_STREAM_GATE_H

#include <stdbool.h>

/* Waits while the gate is closed, which is as long as the driver takes to begin or end a capture. */
void wr_gate_enter(void);
void wr_gate_leave(void);

/* For the end of a capture. Waits until nobody is inside. */
void wr_gate_close(void);
void wr_gate_open(void);

/* For the beginning of a capture: the same, once nobody bars it. */
void wr_gate_close_to_begin(void);
void wr_gate_open_begun(void);

/* Until the bar is lifted, no other thread begins a capture. Threads that waited to begin one then come before the next
 * bar. Nests. */
void wr_gate_bar(void);
void wr_gate_lift_bar(void);

/* One more capture is known, before it begins; one less, after it has ended. */
void wr_gate_capture_comes(void);
void wr_gate_capture_goes(void);

/* Whether any capture is known. Inside the gate: while none is, no stream joins one; while one is, a stream may still
 * join it. */
bool wr_gate_captures(void);

#endif
