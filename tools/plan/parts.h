/*
 * parts: a layout divided into parts. Residents, which live through half of it or through its end, are piled up first,
 * in the order of their allocation; they are the floor for all others. Time is cut where only residents live. The parts
 * on both sides of a cut are placed independently, and the height is that of the highest part.
 * Owner: the caller of parts_init, until parts_release. Immutable in between.
 */
#ifndef WEIR_TOOLS_PLAN_PARTS_H
#define WEIR_TOOLS_PLAN_PARTS_H

#include "plan/layout.h"

typedef struct part {
    const uint32_t *blocks; /* in the order of their first section */
    size_t count;
    span sections;
    uint64_t load; /* the most live bytes in it, residents included */
    bool exact;    /* the floor is level without holes, so the best placement of the part on it bounds the whole */
} part;

typedef struct parts {
    part *at; /* by load, the largest first */
    size_t count;
    uint32_t *order; /* blocks of all parts */
    uint64_t *floor; /* by section: the height of the residents */
    uint64_t floor_height;
    size_t residents;
} parts;

/* Whether the block is one of the residents. */
bool parts_resident(const layout *l, const plan_block *b);

/* Places the residents, in offset[] by the layout's blocks. Without `piling` no block is a resident, and time is cut
 * only where nothing lives. */
void parts_init(parts *p, const layout *l, const uint64_t *load, bool piling, uint64_t *offset);

void parts_release(parts *p);

#endif
