#include "script/order.h"

#include "grow.h"

#include <stdlib.h>

/* What a device's events come to, from one of them on, before the next operation. */
typedef enum outlook {
    OUTLOOK_NONE,
    OUTLOOK_WANTS, /* memory is taken, or could not be had */
    OUTLOOK_SHORT, /* the same, after other memory was given back */
} outlook;

typedef struct ordering {
    const trace *t;
    bool unmaps;
    uint8_t *outlooks; /* by event */
    uint32_t *next;    /* by event: the device's next one, or the number of events */
    bool *done;        /* by event */
    order *out;
    size_t count;
} ordering;

static outlook look(const ordering *o, const weir_event *e, outlook after)
{
    if (!o->unmaps && trace_kind_maps(e->kind)) return after;
    if (trace_kind_takes(e->kind) || e->kind == WEIR_EVENT_OOM) return OUTLOOK_WANTS;
    if (trace_kind_gives(e->kind)) return after == OUTLOOK_NONE ? OUTLOOK_NONE : OUTLOOK_SHORT;
    if (e->kind == WEIR_EVENT_FREE_REQUESTED) return after == OUTLOOK_SHORT ? OUTLOOK_SHORT : OUTLOOK_NONE;
    return e->kind == WEIR_EVENT_ALLOC ? OUTLOOK_NONE : after;
}

static void look_ahead(ordering *o, int devices)
{
    const trace *t = o->t;
    uint8_t *now = grow_new((size_t)devices, sizeof *now);
    uint32_t *first = grow_new((size_t)devices, sizeof *first);
    for (int device = 0; device < devices; device++) first[device] = (uint32_t)t->count;
    for (size_t i = t->count; i-- > 0;) {
        const weir_event *e = &t->events[i];
        const outlook after = (outlook)now[e->device];
        now[e->device] = o->outlooks[i] = (uint8_t)look(o, e, after);
        /* The free before begins it, if nothing else came in between. */
        if (e->kind == WEIR_EVENT_FREE_REQUESTED) now[e->device] = OUTLOOK_NONE;
        o->next[i] = first[e->device];
        first[e->device] = (uint32_t)i;
    }
    free(first);
    free(now);
}

/* Adds the event, and those of its device that belong to it. */
static void add(ordering *o, size_t i)
{
    bool is_short = false, ends = false;
    for (; i < o->t->count && !ends; i = o->next[i]) {
        const uint16_t kind = o->t->events[i].kind;
        o->out->at[o->count++] = (uint32_t)i;
        o->done[i] = true;
        is_short |= o->outlooks[i] == OUTLOOK_SHORT;
        ends = !is_short || kind == WEIR_EVENT_ALLOC || kind == WEIR_EVENT_OOM;
    }
}

void order_make(const trace *t, int devices, bool unmaps, order *out)
{
    *out = (order){ 0 };
    if (devices < 2) return;
    ordering o = { .t = t, .unmaps = unmaps, .out = out };
    out->at = grow_new(t->count, sizeof *out->at);
    o.outlooks = grow_new(t->count, sizeof *o.outlooks);
    o.next = grow_new(t->count, sizeof *o.next);
    o.done = grow_new(t->count, sizeof *o.done);
    look_ahead(&o, devices);
    for (size_t i = 0; i < t->count; i++)
        if (!o.done[i]) add(&o, i);
    free(o.outlooks);
    free(o.next);
    free(o.done);
}

void order_release(order *o)
{
    free(o->at);
    *o = (order){ 0 };
}
