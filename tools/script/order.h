/*
 * order: in which order the events of several devices go into a script. As recorded, but what a device's allocator did
 * while it was short of memory comes in one piece, from a free right before it to the allocation that it was for: what
 * other devices did meanwhile comes behind it, since no device's allocator asks what others do.
 * Owner: the caller of order_make, until order_release.
 */
#ifndef WEIR_TOOLS_SCRIPT_ORDER_H
#define WEIR_TOOLS_SCRIPT_ORDER_H

#include "input/input.h"

typedef struct order {
    uint32_t *at; /* indices of events, in this order; NULL: as recorded */
} order;

/* `unmaps`: unmapping gives memory back. The trace has less than 2^32 events. */
void order_make(const trace *t, int devices, bool unmaps, order *out);

void order_release(order *o);

static inline size_t order_event(const order *o, size_t i)
{
    return o->at ? o->at[i] : i;
}

#endif
