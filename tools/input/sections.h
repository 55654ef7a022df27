/*
 * sections: the part of weir's own trace files behind the events and stacks (docs/trace-format.md): the blocks and
 * segments that a snapshot lists, and the settings of the recorded allocator.
 */
#ifndef WEIR_TOOLS_INPUT_SECTIONS_H
#define WEIR_TOOLS_INPUT_SECTIONS_H

#include "source.h"

/* Reads `count` sections, which follow the stacks. Skips unknown kinds if the file has a `newer` minor version. On
 * false the source's error is set; *out may hold something. */
bool sections_read(source *s, const trace_limits *limits, uint32_t count, bool newer, trace *out);

/* How many sections sections_write will write: none for what the trace lacks. */
uint32_t sections_count(const trace *t);

/* False: errno says why. */
bool sections_write(FILE *to, const trace *t);

/* Orders the live blocks and the segments by device, then address. */
void sections_sort(trace *t);

#endif
