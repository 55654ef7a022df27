/*
 * holders: who held memory at a point of the timeline: the blocks there, by pool, stream and caller.
 * Owner: the caller of holders_find, until holders_release. The list does not outlive its timeline.
 */
#ifndef WEIR_TOOLS_STAT_HOLDERS_H
#define WEIR_TOOLS_STAT_HOLDERS_H

#include "timeline/instant.h"

typedef struct holder {
    uint64_t requested, active; /* as in instant.h: these add up to those of the instant */
    size_t blocks;
    uint32_t largest, lane; /* largest: the block, whose stack has the caller of all */
    const char *caller;     /* as in caller.h */
} holder;

typedef struct holders {
    holder *list; /* most active bytes first */
    size_t count;
} holders;

holders holders_find(const timeline *l, const uint8_t *ranks, const instant_point *p);
void holders_release(holders *h);

#endif
