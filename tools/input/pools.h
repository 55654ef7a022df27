/*
 * pools: in which private pool recorded events were, where the file tells it of segments only, as PyTorch's snapshots do. An event
 * was in the pool of the segment that its address lies in, from that segment's beginning on. Of segments that were gone when the
 * snapshot was taken nobody knows: their events stay with the default pool.
 */
#ifndef WEIR_TOOLS_INPUT_POOLS_H
#define WEIR_TOOLS_INPUT_POOLS_H

#include "input.h"

/* Sets events[].pool, if no event has one and a segment has. The segments are sorted by device, then address. False: no memory, and
 * nothing is set. */
bool pools_tell(trace *t);

#endif
