/*
 * part: a stretch of a script as a script of its own, for what-if replays under settings other than the recorded ones.
 * It leaves out what the recorded allocator did for its own sake: the addresses of segments, and memory given back to
 * get other memory.
 * Owner: the caller, until script_part_release. The whole script must outlive its parts, which share its streams.
 */
#ifndef WEIR_TOOLS_SCRIPT_PART_H
#define WEIR_TOOLS_SCRIPT_PART_H

#include "script/script.h"

/* Makes a script of operations [from, to) of the body. Blocks live at `from` are allocated before, in their original
 * order, and so are those that were freed and wait for a stream; blocks live at `to` are freed after. */
void script_part(const script *whole, size_t from, size_t to, script *out);

void script_part_release(script *part);

#endif
