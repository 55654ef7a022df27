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

/* How many of the listed segments begin at the event's address or before. */
static size_t segments_up_to(const trace *t, const weir_event *e)
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
    return low;
}

/* The segment, of those listed at the end of the trace, that the event's address lies in; `segment_count`: none. */
static size_t segment_of(const trace *t, const weir_event *e)
{
    const size_t count = segments_up_to(t, e);
    const trace_segment *s = count ? &t->segments[count - 1] : NULL;
    const bool inside = s && s->device == e->device && e->address - s->address < s->bytes;
    return inside ? count - 1 : t->segment_count;
}

static bool has_place(const weir_event *e)
{
    return e->kind <= WEIR_EVENT_SEGMENT_UNMAP;
}

/* How much of the segment the event took or gave back. */
static uint64_t shared(const trace_segment *s, const weir_event *e)
{
    if (s->device != e->device) return 0;
    const uint64_t from = s->address > e->address ? s->address : e->address;
    if (from - s->address >= s->bytes || from - e->address >= e->size) return 0;
    const uint64_t left = s->bytes - (from - s->address), right = e->size - (from - e->address);
    return left < right ? left : right;
}

/* Going backwards, a segment begins where nothing of it is held any more: one that grows has it piece by piece. */
static void find_beginnings(const trace *t, uint64_t *held, size_t *born)
{
    for (size_t k = 0; k < t->segment_count; k++) held[k] = t->segments[k].bytes;
    for (size_t i = t->count; i-- > 0;) {
        const weir_event *e = &t->events[i];
        if (!trace_kind_takes(e->kind) && !trace_kind_gives(e->kind)) continue;
        const size_t up_to = segments_up_to(t, e);
        for (size_t k = up_to ? up_to - 1 : 0; k < t->segment_count; k++) {
            const uint64_t bytes = shared(&t->segments[k], e);
            if (!bytes && k >= up_to) break;
            if (!held[k]) continue; /* what was there before is another segment */
            if (trace_kind_gives(e->kind))
                held[k] += bytes;
            else
                held[k] -= bytes < held[k] ? bytes : held[k];
            if (!held[k]) born[k] = i;
        }
    }
}

bool pools_tell(trace *t)
{
    if (!is_needed(t)) return true;
    size_t *born = calloc(t->segment_count, sizeof *born); /* the event that began it, or 0: before all */
    uint64_t *held = malloc(t->segment_count * sizeof *held);
    if (born && held) find_beginnings(t, held, born);
    for (size_t i = 0; i < t->count && born && held; i++) {
        weir_event *e = &t->events[i];
        const size_t s = has_place(e) ? segment_of(t, e) : t->segment_count;
        if (s == t->segment_count || i < born[s]) continue;
        e->pool[0] = t->segments[s].pool[0];
        e->pool[1] = t->segments[s].pool[1];
    }
    const bool good = born && held;
    free(born);
    free(held);
    return good;
}
