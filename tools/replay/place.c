#include "replay/place.h"

#include "grow.h"

#include <stdlib.h>

/* Segments are multiples of 2 MiB, and the library needs them aligned to that, which not every recorded driver did.
 * Rounding down keeps their order, and keeps segments disjoint. */
#define PLACE_ALIGN (UINT64_C(2) << 20)

/* Beyond any device's addresses and segments; below it, sums cannot overflow. */
#define PLACE_MOST (UINT64_C(1) << 62)

typedef struct recorded {
    uint64_t address, bytes;
    size_t index;
} recorded;

static int by_address(const void *left, const void *right)
{
    const recorded *a = left, *b = right;
    return a->address < b->address ? -1 : a->address > b->address;
}

size_t place_segments(const script *s, bool from_start, int device, weir_host_place **places, uint64_t *span)
{
    const size_t first = from_start ? s->start.count : 0;
    recorded *sorted = grow_new(first + s->segment_count, sizeof *sorted);
    size_t count = 0;
    for (size_t i = 0; i < first + s->segment_count; i++) {
        const script_segment *g = i < first ? &s->start.segments[i] : &s->segments[i - first];
        if (g->kind != WEIR_EVENT_SEGMENT_ALLOC || g->device != device) continue;
        if (g->address >= PLACE_MOST || g->bytes >= PLACE_MOST) continue;
        sorted[count] = (recorded){ g->address / PLACE_ALIGN * PLACE_ALIGN, g->bytes, count };
        count++;
    }
    qsort(sorted, count, sizeof *sorted, by_address);

    /* Segments that touch or overlap (at different times) keep their relative positions. */
    weir_host_place *made = grow_new(count, sizeof *made);
    uint64_t start = 0, end = 0, offset = 0;
    for (size_t i = 0; i < count; i++) {
        const recorded *r = &sorted[i];
        if (i == 0 || r->address > end) {
            uint64_t used = offset + (end - start);
            offset = (used + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
            start = end = r->address;
        }
        made[r->index] = (weir_host_place){ offset + (r->address - start), r->bytes };
        if (r->address + r->bytes > end) end = r->address + r->bytes;
    }
    free(sorted);
    *places = made;
    *span = offset + (end - start);
    return count;
}
