/*
 * place: where the segments of a recording lay. PyTorch breaks ties between blocks of one size by address, so an exact
 * replay must place its segments in the same order.
 */
#ifndef WEIR_TOOLS_REPLAY_PLACE_H
#define WEIR_TOOLS_REPLAY_PLACE_H

#include "script/script.h"
#include "weir/host.h"

/* Places the recorded SEGMENT_ALLOCs of a device in order; with `from_start`, the segments of the start come first. The
 * gaps between segments are closed, so that an address range of *span bytes holds them all. The caller frees *places.
 * Returns their number. */
size_t place_segments(const script *s, bool from_start, int device, weir_host_place **places, uint64_t *span);

#endif
