#include "timeline/segments.h"

static bool takes(const weir_event *e)
{
    return e->kind == WEIR_EVENT_SEGMENT_ALLOC || e->kind == WEIR_EVENT_SEGMENT_MAP;
}

static bool gives(const weir_event *e)
{
    return e->kind == WEIR_EVENT_SEGMENT_FREE || e->kind == WEIR_EVENT_SEGMENT_UNMAP;
}

/* The same bytes are there once, whatever of them was there. */
static void put(ranges *to, int16_t device, uint64_t address, uint64_t bytes)
{
    ranges_cut(to, device, address, bytes, NULL, NULL);
    ranges_add(to, (range){ .address = address, .bytes = bytes, .device = device });
}

/* From the segments at the end, where they are listed, back to those at the beginning. */
static void find_first(segments *s, const trace *t)
{
    for (size_t i = 0; i < t->segment_count; i++)
        put(&s->held, t->segments[i].device, t->segments[i].address, t->segments[i].bytes);
    for (size_t i = t->count; i-- > 0;) {
        const weir_event *e = &t->events[i];
        if (takes(e)) ranges_cut(&s->held, e->device, e->address, e->size, NULL, NULL);
        if (gives(e)) put(&s->held, e->device, e->address, e->size);
    }
}

void segments_init(segments *s, const trace *t)
{
    *s = (segments){ .lists_all = t->segment_count != 0 };
    find_first(s, t);
    for (size_t i = 0; i < t->count; i++) s->recorded[t->events[i].device] |= takes(&t->events[i]);
}

void segments_release(segments *s)
{
    ranges_release(&s->held);
    ranges_release(&s->gone);
}

/* True when every byte of the block is in a range; of one of 0 bytes its address. */
static bool covered(const ranges *r, const weir_event *e)
{
    const uint64_t bytes = e->size ? e->size : 1;
    uint64_t done = 0;
    for (size_t i = ranges_find(r, e->device, e->address); done < bytes; i++) {
        const uint64_t at = e->address + done;
        if (i == r->count || r->at[i].device != e->device || r->at[i].address > at || at < e->address) return false;
        done += r->at[i].address + r->at[i].bytes - at;
    }
    return true;
}

static segments_verdict on_block(const segments *s, const weir_event *e)
{
    if (!s->recorded[e->device] || covered(&s->held, e)) return SEGMENTS_FINE;
    return s->lists_all || ranges_at(&s->gone, e->device, e->address) ? SEGMENTS_OUTSIDE : SEGMENTS_FINE;
}

segments_verdict segments_follow(segments *s, const weir_event *e)
{
    if (e->kind == WEIR_EVENT_ALLOC) return on_block(s, e);
    if (takes(e)) {
        const uint64_t known = ranges_cut(&s->held, e->device, e->address, e->size, NULL, NULL);
        ranges_cut(&s->gone, e->device, e->address, e->size, NULL, NULL);
        ranges_add(&s->held, (range){ .address = e->address, .bytes = e->size, .device = e->device });
        return known ? SEGMENTS_OVERLAP : SEGMENTS_FINE;
    }
    if (!gives(e)) return SEGMENTS_FINE;
    const uint64_t known = ranges_cut(&s->held, e->device, e->address, e->size, NULL, NULL);
    put(&s->gone, e->device, e->address, e->size);
    return known || e->size == 0 ? SEGMENTS_FINE : SEGMENTS_SECOND_FREE;
}
