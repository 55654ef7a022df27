/*
 * pools: finds the private pools of recorded events where the file names the pools of segments only, as PyTorch's
 * snapshots do. An event belongs to the pool of the segment around its address, from that segment's creation on.
 * Segments that were gone when the snapshot was taken are unknown: their events stay in the default pool.
 */
#ifndef WEIR_TOOLS_INPUT_POOLS_H
#define WEIR_TOOLS_INPUT_POOLS_H

#include "input.h"

/* Sets events[].pool if no event has a pool but a segment has. The segments must be sorted by device, then address.
 * False: no memory, and nothing is set. */
bool pools_tell(trace *t);

#endif
