/*
 * place: where the segments of a recording lay. PyTorch breaks ties between blocks of one size by address, so a replay
 * that is to come out the same must put its segments in the same order.
 */
#ifndef WEIR_TOOLS_REPLAY_PLACE_H
#define WEIR_TOOLS_REPLAY_PLACE_H

#include "script/script.h"
#include "weir/host.h"

/* The recorded SEGMENT_ALLOCs of a device in order, with gaps between segments closed, so that *span bytes of address
 * range hold them all. *places is for free(). Returns how many there are. */
size_t place_segments(const script *s, int device, weir_host_place **places, uint64_t *span);

#endif
