/*
 * trace: writes recorded events in weir's own format (docs/trace-format.md): the header, the events, their stacks, the
 * settings. No state but the output's and the set of stacks, which must be complete.
 */
#ifndef WR_OBSERVE_TRACE_H
#define WR_OBSERVE_TRACE_H

#include "observe/output.h"
#include "observe/settings.h"
#include "observe/stack_set.h"
#include "weir/trace.h"

void wr_trace_write_header(wr_output *out, uint64_t events, uint64_t dropped, const wr_stack_set *set);

/* `stacks`: the events' stacks, by their numbers in the process's table; NULL: the events have none. */
void wr_trace_write_events(wr_output *out, const weir_event *events, const uint32_t *stacks, size_t count,
                           const wr_stack_set *set);

/* To be called after the last event. */
void wr_trace_write_stacks(wr_output *out, const wr_stack_set *set);

/* To be called after the last stack. */
void wr_trace_write_settings(wr_output *out, const wr_settings *settings);

#endif
