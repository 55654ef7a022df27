#include "pools.h"

#include <stdlib.h>

static bool is_private(const uint64_t pool[2])
{
    return pool[0] != 0 || pool[1] != 0;
}

static bool is_needed(const trace *t)
{
    bool needed = false;
    for (size_t i = 0; i < t->segment_count && !needed; i++) needed = is_private(t->segments[i].pool);
    for (size_t i = 0; i < t->count && needed; i++) needed = !is_private(t->events[i].pool);
    return needed;
}

/* The segment, of those listed at the end of the trace, that the event's address lies in; `segment_count`: none. */
static size_t segment_of(const trace *t, const weir_event *e)
{
    size_t low = 0, high = t->segment_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const trace_segment *s = &t->segments[middle];
        const bool before = s->device != e->device ? s->device < e->device : s->address <= e->address;
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    const trace_segment *s = low ? &t->segments[low - 1] : NULL;
    const bool inside = s && s->device == e->device && e->address - s->address < s->bytes;
    return inside ? low - 1 : t->segment_count;
}

static bool has_place(const weir_event *e)
{
    return e->kind <= WEIR_EVENT_SEGMENT_UNMAP;
}

bool pools_tell(trace *t)
{
    if (!is_needed(t)) return true;
    size_t *born = calloc(t->segment_count, sizeof *born); /* the event that made it, or 0: before all */
    if (!born) return false;
    for (size_t i = 0; i < t->count; i++) {
        const weir_event *e = &t->events[i];
        const size_t s = e->kind == WEIR_EVENT_SEGMENT_ALLOC ? segment_of(t, e) : t->segment_count;
        if (s < t->segment_count) born[s] = i;
    }
    for (size_t i = 0; i < t->count; i++) {
        weir_event *e = &t->events[i];
        const size_t s = has_place(e) ? segment_of(t, e) : t->segment_count;
        if (s == t->segment_count || i < born[s]) continue;
        e->pool[0] = t->segments[s].pool[0];
        e->pool[1] = t->segments[s].pool[1];
    }
    free(born);
    return true;
}
