/*
 * sections: what weir's own trace files have behind their events and stacks (docs/trace-format.md): the blocks and
 * segments that a snapshot lists, and the settings of the allocator that was recorded.
 */
#ifndef WEIR_TOOLS_INPUT_SECTIONS_H
#define WEIR_TOOLS_INPUT_SECTIONS_H

#include "source.h"

/* Reads `count` of them, behind the stacks. Those of an unknown kind are passed over where the file is of a `newer`
 * minor version. On false the source's error is set; *out may hold something. */
bool sections_read(source *s, const trace_limits *limits, uint32_t count, bool newer, trace *out);

/* How many sections_write makes: none for what the trace does not have. */
uint32_t sections_count(const trace *t);

/* False: errno says why. */
bool sections_write(FILE *to, const trace *t);

/* Orders the live blocks and the segments by device, then address. */
void sections_sort(trace *t);

#endif
