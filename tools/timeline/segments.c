#include "timeline/segments.h"

static uint32_t number_of(segments_number number, void *user, int16_t device, uint64_t stream, const uint64_t pool[2],
                          bool mapped)
{
    return number ? number(user, device, stream, pool, mapped) : 0;
}

/* Adds a range in place of whatever overlapped it. */
static void put(ranges *to, range added)
{
    ranges_cut(to, added.device, added.address, added.bytes, NULL, NULL);
    ranges_add(to, added);
}

ranges segments_first(const trace *t, segments_number number, void *user)
{
    ranges first = { 0 };
    for (size_t i = 0; i < t->segment_count; i++) {
        const trace_segment *s = &t->segments[i];
        const uint32_t own = number_of(number, user, s->device, s->stream, s->pool, s->mapped);
        put(&first, (range){ .address = s->address, .bytes = s->bytes, .number = own, .device = s->device });
    }
    for (size_t i = t->count; i-- > 0;) {
        const weir_event *e = &t->events[i];
        const bool mapped = e->kind == WEIR_EVENT_SEGMENT_UNMAP;
        if (trace_kind_takes(e->kind)) ranges_cut(&first, e->device, e->address, e->size, NULL, NULL);
        if (!trace_kind_gives(e->kind)) continue;
        const uint32_t own = number_of(number, user, e->device, e->stream, e->pool, mapped);
        put(&first, (range){ .address = e->address, .bytes = e->size, .number = own, .device = e->device });
    }
    return first;
}

void segments_release(segments *s)
{
    ranges_release(&s->held);
    ranges_release(&s->gone);
}

/* True when every byte of the block is in a range; for a block of 0 bytes, its address. */
static bool covered(const ranges *r, const weir_event *e)
{
    const uint64_t bytes = e->size ? e->size : 1;
    uint64_t done = 0;
    for (range *held = ranges_find(r, e->device, e->address); done < bytes; held = ranges_next(held)) {
        const uint64_t at = e->address + done;
        if (!held || held->device != e->device || held->address > at || at < e->address) return false;
        done += held->address + held->bytes - at;
    }
    return true;
}

/* Whether the trace takes segments and gives none back. */
static bool takes_only(const segments *s)
{
    return (s->told[WEIR_EVENT_SEGMENT_ALLOC] && !s->told[WEIR_EVENT_SEGMENT_FREE]) ||
           (s->told[WEIR_EVENT_SEGMENT_MAP] && !s->told[WEIR_EVENT_SEGMENT_UNMAP]);
}

/* A segment from before the first event, given back without an event, is in no list. */
static segments_verdict on_block(const segments *s, const weir_event *e)
{
    if (!s->recorded[e->device] || covered(&s->held, e)) return SEGMENTS_FINE;
    if (!s->lists_all && !ranges_at(&s->gone, e->device, e->address)) return SEGMENTS_FINE;
    return s->late && takes_only(s) ? SEGMENTS_LEFT_OUT : SEGMENTS_OUTSIDE;
}

static uint16_t undo(uint16_t kind)
{
    static const uint16_t kinds[] = { [WEIR_EVENT_SEGMENT_ALLOC] = WEIR_EVENT_SEGMENT_FREE,
                                      [WEIR_EVENT_SEGMENT_FREE] = WEIR_EVENT_SEGMENT_ALLOC,
                                      [WEIR_EVENT_SEGMENT_MAP] = WEIR_EVENT_SEGMENT_UNMAP,
                                      [WEIR_EVENT_SEGMENT_UNMAP] = WEIR_EVENT_SEGMENT_MAP };
    return kinds[kind];
}

uint16_t segments_lacks(const segments *s, uint16_t kind)
{
    if (kind != WEIR_EVENT_ALLOC) return undo(kind);
    return s->told[WEIR_EVENT_SEGMENT_ALLOC] && !s->told[WEIR_EVENT_SEGMENT_FREE] ? WEIR_EVENT_SEGMENT_FREE
                                                                                  : WEIR_EVENT_SEGMENT_UNMAP;
}

segments_verdict segments_follow(segments *s, const weir_event *e)
{
    if (e->kind == WEIR_EVENT_ALLOC) return on_block(s, e);
    if (!trace_kind_takes(e->kind) && !trace_kind_gives(e->kind)) return SEGMENTS_FINE;
    const bool told = s->told[undo(e->kind)];
    const range named = { .address = e->address, .bytes = e->size, .device = e->device };
    const uint64_t known = ranges_cut(&s->held, e->device, e->address, e->size, NULL, NULL);
    if (trace_kind_takes(e->kind)) {
        ranges_cut(&s->gone, e->device, e->address, e->size, NULL, NULL);
        ranges_add(&s->held, named);
        return !known ? SEGMENTS_FINE : told ? SEGMENTS_OVERLAP : SEGMENTS_LEFT_OUT;
    }
    put(&s->gone, named);
    return known || e->size == 0 ? SEGMENTS_FINE : told ? SEGMENTS_SECOND_FREE : SEGMENTS_LEFT_OUT;
}

/* Where segments overlap because no event says that they were given back, blocks outside all of them are in others from
 * before the first event, which went in the same way. */
static bool lies_before(segments *s, const trace *t)
{
    bool overlap = false, outside = false;
    for (size_t i = 0; i < t->count && !(overlap && outside); i++) {
        const segments_verdict verdict = segments_follow(s, &t->events[i]);
        overlap |= verdict == SEGMENTS_LEFT_OUT;
        outside |= verdict == SEGMENTS_OUTSIDE;
    }
    segments_release(s);
    s->held = segments_first(t, NULL, NULL);
    return overlap && outside;
}

void segments_init(segments *s, const trace *t)
{
    *s = (segments){ .held = segments_first(t, NULL, NULL), .lists_all = t->segment_count != 0 };
    for (size_t i = 0; i < t->count; i++) {
        const weir_event *e = &t->events[i];
        s->recorded[e->device] |= trace_kind_takes(e->kind);
        if (e->kind <= WEIR_EVENT_LAST) s->told[e->kind] = true;
    }
    s->late = s->held.count != 0 || (takes_only(s) && lies_before(s, t));
}
