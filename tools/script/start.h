/*
 * start: how memory lay when a recording began that does not begin with the program: the segments and, in them, the
 * blocks from before the first event, found by walking backwards from the segments that the file lists at the end.
 * PyTorch's native rules decide by where blocks lie, so only from there do they repeat such a recording.
 * Owner: the script.
 */
#ifndef WEIR_TOOLS_SCRIPT_START_H
#define WEIR_TOOLS_SCRIPT_START_H

#include "script/script.h"
#include "timeline/segments.h"

/* A block from before the first event. */
typedef struct start_block {
    uint64_t address, bytes; /* as requested */
    uint64_t held;           /* bytes that it has; 0: not known */
    uint32_t slot, stream;
    int16_t device;
    bool gone; /* private to start_make */
} start_block;

/* Makes the script's start, once `before` is complete, and adds its segments to `held`. `blocks`: its residents, by
 * device, then address. `number`: gives the script's stream; what it gives for a device that the script does not have
 * is not used. */
void start_make(script *s, const trace *t, start_block *blocks, segments_number number, void *user);

void start_release(script_start *start);

#endif
