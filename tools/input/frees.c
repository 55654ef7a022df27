#include "frees.h"

#include <inttypes.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

enum { REQUESTED = 1, COMPLETED = 2, OWN = 4 };

static int half_of(const weir_event *e)
{
    return e->kind == WEIR_EVENT_FREE_REQUESTED ? REQUESTED : e->kind == WEIR_EVENT_FREE_COMPLETED ? COMPLETED : 0;
}

typedef struct pairing {
    trace *t;
    uint8_t halves[INT16_MAX + 1]; /* by device: which halves of frees it has; without requests, also whether a block
                                      that an event made was freed (OWN): if not, all were requested before */
    bool *waits;                   /* by live block: the request of its pending free was found */
} pairing;

static bool is_alone(const pairing *p, const weir_event *e)
{
    const uint8_t halves = p->halves[e->device];
    return half_of(e) != 0 && (halves == REQUESTED || halves == (COMPLETED | OWN));
}

static int compare_place(const weir_event *e, int16_t device, uint64_t address)
{
    if (e->device != device) return e->device < device ? -1 : 1;
    return (e->address > address) - (e->address < address);
}

static int by_place(const void *left, const void *right)
{
    const weir_event *other = right;
    return compare_place(left, other->device, other->address);
}

static void keep(void *event)
{
    (void)event;
}

/* False: no memory. */
static bool find_halves(pairing *p)
{
    const trace *t = p->t;
    void *made = NULL; /* tree of allocations */
    bool good = true;
    for (size_t i = 0; i < t->count; i++) p->halves[t->events[i].device] |= (uint8_t)half_of(&t->events[i]);
    for (size_t i = 0; i < t->count && good; i++) {
        const weir_event *e = &t->events[i];
        uint8_t *halves = &p->halves[e->device];
        if (*halves != COMPLETED) continue;
        if (e->kind == WEIR_EVENT_ALLOC) good = tsearch(e, &made, by_place) != NULL;
        if (half_of(e) == COMPLETED && tfind(e, &made, by_place)) *halves |= OWN;
    }
    tdestroy(made, keep);
    return good;
}

static int by_listed(const void *left, const void *right)
{
    const trace_live *l = right;
    return compare_place(left, l->device, l->address);
}

/* Going backwards, the first request at the address of a pending block is that block's own. */
static bool waits(pairing *p, const weir_event *e)
{
    const trace *t = p->t;
    if (half_of(e) != REQUESTED || !t->live_count) return false;
    const trace_live *at = bsearch(e, t->live, t->live_count, sizeof *t->live, by_listed);
    if (!at || !at->pending || p->waits[at - t->live]) return false;
    p->waits[at - t->live] = true;
    return true;
}

static void put(trace *t, size_t at, weir_event e, weir_event_kind kind, uint32_t stack)
{
    e.kind = (uint16_t)kind;
    t->events[at] = e;
    if (t->stacks.of) t->stacks.of[at] = stack;
}

/* Moves events from the end, so that none is overwritten before it has moved. Then closes the gap in front. */
static void spread(pairing *p, size_t room)
{
    trace *t = p->t;
    size_t to = room;
    for (size_t i = t->count; i-- > 0;) {
        const weir_event e = t->events[i];
        const uint32_t stack = trace_stack(t, i);
        if (is_alone(p, &e) && !waits(p, &e)) {
            put(t, --to, e, WEIR_EVENT_FREE_COMPLETED, stack);
            put(t, --to, e, WEIR_EVENT_FREE_REQUESTED, stack);
        } else {
            put(t, --to, e, (weir_event_kind)e.kind, stack);
        }
    }
    t->count = room - to;
    memmove(t->events, t->events + to, t->count * sizeof *t->events);
    if (t->stacks.of) memmove(t->stacks.of, t->stacks.of + to, t->count * sizeof *t->stacks.of);
}

static bool make_room(pairing *p, size_t room)
{
    trace *t = p->t;
    weir_event *events = realloc(t->events, room * sizeof *events);
    if (events) t->events = events;
    uint32_t *of = t->stacks.of ? realloc(t->stacks.of, room * sizeof *of) : NULL;
    if (of) t->stacks.of = of;
    p->waits = calloc(t->live_count + 1, sizeof *p->waits);
    return events && p->waits && (of || !t->stacks.of);
}

bool frees_pair(source *s, const trace_limits *limits, trace *t)
{
    pairing p = { .t = t };
    size_t room = t->count;
    if (!find_halves(&p)) return source_fail_memory(s);
    for (size_t i = 0; i < t->count; i++) room += is_alone(&p, &t->events[i]);
    if (room == t->count) return true;
    if (room > limits->events)
        return source_fail(s, source_offset(s),
                           "more than %" PRIu64
                           " events, the limit, counting the halves of frees that the file leaves out",
                           limits->events);
    const bool good = make_room(&p, room);
    if (good) spread(&p, room);
    free(p.waits);
    return good || source_fail_memory(s);
}
