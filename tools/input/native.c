#include "native.h"

#include "grow.h"

#include <inttypes.h>
#include <string.h>

#define HEADER_BYTES 64
#define EVENT_BYTES 56
#define EVENT_BYTES_MAX 4096 /* far above what later versions may add */
#define UNCOUNTED UINT64_MAX

_Static_assert(sizeof(weir_trace_header) == HEADER_BYTES, "the header has no padding");
_Static_assert(sizeof(weir_event) == EVENT_BYTES, "an event has no padding");

static void put(uint8_t *to, size_t offset, size_t bytes, uint64_t value)
{
    for (size_t i = 0; i < bytes; i++) to[offset + i] = (uint8_t)(value >> 8 * i);
}

/* Field by field, for the file is little endian whatever the machine is. */
static weir_event decode(const uint8_t *from)
{
    return (weir_event){
        .time_ns = little_endian(from + offsetof(weir_event, time_ns), 8),
        .address = little_endian(from + offsetof(weir_event, address), 8),
        .size = little_endian(from + offsetof(weir_event, size), 8),
        .stream = little_endian(from + offsetof(weir_event, stream), 8),
        .pool = { little_endian(from + offsetof(weir_event, pool), 8),
                  little_endian(from + offsetof(weir_event, pool) + 8, 8) },
        .kind = (uint16_t)little_endian(from + offsetof(weir_event, kind), 2),
        .device = (int16_t)little_endian(from + offsetof(weir_event, device), 2),
        .thread = (uint32_t)little_endian(from + offsetof(weir_event, thread), 4),
    };
}

static void encode(const weir_event *e, uint8_t *to)
{
    put(to, offsetof(weir_event, time_ns), 8, e->time_ns);
    put(to, offsetof(weir_event, address), 8, e->address);
    put(to, offsetof(weir_event, size), 8, e->size);
    put(to, offsetof(weir_event, stream), 8, e->stream);
    put(to, offsetof(weir_event, pool), 8, e->pool[0]);
    put(to, offsetof(weir_event, pool) + 8, 8, e->pool[1]);
    put(to, offsetof(weir_event, kind), 2, e->kind);
    put(to, offsetof(weir_event, device), 2, (uint16_t)e->device);
    put(to, offsetof(weir_event, thread), 4, e->thread);
}

static bool decode_header(source *s, weir_trace_header *h)
{
    uint64_t offset = source_offset(s);
    size_t have = source_need(s, HEADER_BYTES);
    if (have < HEADER_BYTES)
        return source_fail(s, offset + have, "the file ends inside its header: it is not complete");
    const uint8_t *from = s->at;
    *h = (weir_trace_header){
        .version_major = (uint16_t)little_endian(from + offsetof(weir_trace_header, version_major), 2),
        .version_minor = (uint16_t)little_endian(from + offsetof(weir_trace_header, version_minor), 2),
        .header_bytes = (uint32_t)little_endian(from + offsetof(weir_trace_header, header_bytes), 4),
        .event_bytes = (uint32_t)little_endian(from + offsetof(weir_trace_header, event_bytes), 4),
        .flags = (uint32_t)little_endian(from + offsetof(weir_trace_header, flags), 4),
        .events = little_endian(from + offsetof(weir_trace_header, events), 8),
        .dropped = little_endian(from + offsetof(weir_trace_header, dropped), 8),
    };
    s->at += HEADER_BYTES;
    return true;
}

static bool check_header(source *s, const weir_trace_header *h, const trace_limits *limits)
{
    if (h->version_major == 0 || h->version_major > WEIR_TRACE_VERSION_MAJOR)
        return source_fail(s, offsetof(weir_trace_header, version_major),
                           "trace format version %u.%u: this weir reads %d.x; use a newer weir", h->version_major,
                           h->version_minor, WEIR_TRACE_VERSION_MAJOR);
    if (h->header_bytes < HEADER_BYTES)
        return source_fail(s, offsetof(weir_trace_header, header_bytes), "a header of %" PRIu32 " bytes: at least %d",
                           h->header_bytes, HEADER_BYTES);
    if (h->event_bytes < EVENT_BYTES || h->event_bytes > EVENT_BYTES_MAX)
        return source_fail(s, offsetof(weir_trace_header, event_bytes), "events of %" PRIu32 " bytes: %d to %d",
                           h->event_bytes, EVENT_BYTES, EVENT_BYTES_MAX);
    if (h->flags != 0)
        return source_fail(s, offsetof(weir_trace_header, flags), "unknown flags 0x%" PRIx32 ": use a newer weir",
                           h->flags);
    if (h->events != UNCOUNTED && h->events > limits->events)
        return source_fail(s, offsetof(weir_trace_header, events), "%" PRIu64 " events, the limit is %" PRIu64,
                           h->events, limits->events);
    return true;
}

/* A kind that this version does not know is an error, unless a newer minor version may have added it. */
static bool check_event(source *s, const weir_event *e, const weir_trace_header *h, uint64_t number, bool *known)
{
    *known = e->kind >= WEIR_EVENT_ALLOC && e->kind <= WEIR_EVENT_LAST;
    if (!*known && (e->kind == 0 || h->version_minor <= WEIR_TRACE_VERSION_MINOR))
        return source_fail(s, source_offset(s), "event %" PRIu64 " is of the unknown kind %u", number, e->kind);
    if (e->device < 0) return source_fail(s, source_offset(s), "event %" PRIu64 " is of device %d", number, e->device);
    return true;
}

bool native_detect(const uint8_t *head, size_t count)
{
    return count >= 8 && memcmp(head, WEIR_TRACE_MAGIC, 8) == 0;
}

bool native_read(source *s, const trace_limits *limits, trace *out)
{
    weir_trace_header h;
    if (!decode_header(s, &h) || !check_header(s, &h, limits)) return false;
    if (!source_skip(s, h.header_bytes - HEADER_BYTES))
        return source_fail(s, source_offset(s), "the file ends inside its header: it is not complete");
    out->dropped = h.dropped;

    /* Room is made as events come, not for as many as the header says: that may be a lie. */
    size_t capacity = 0;
    for (uint64_t i = 0; i < h.events; i++) {
        size_t have = source_need(s, h.event_bytes);
        if (have == 0 && h.events == UNCOUNTED) break;
        if (have < h.event_bytes)
            return source_fail(s, source_offset(s) + have, "the file ends inside event %" PRIu64 ": it is not complete",
                               i);
        weir_event e = decode(s->at);
        bool known;
        if (!check_event(s, &e, &h, i, &known)) return false;
        s->at += h.event_bytes;
        if (!known) continue;
        if (out->count >= limits->events)
            return source_fail(s, source_offset(s), "more than %" PRIu64 " events, the limit", limits->events);
        if (!grow((void **)&out->events, &capacity, out->count + 1, sizeof e)) return source_fail_memory(s);
        out->events[out->count++] = e;
    }
    return !s->failed;
}

bool trace_write_native(FILE *to, const trace *t)
{
    uint8_t bytes[HEADER_BYTES] = { 0 };
    memcpy(bytes, WEIR_TRACE_MAGIC, 8);
    put(bytes, offsetof(weir_trace_header, version_major), 2, WEIR_TRACE_VERSION_MAJOR);
    put(bytes, offsetof(weir_trace_header, version_minor), 2, WEIR_TRACE_VERSION_MINOR);
    put(bytes, offsetof(weir_trace_header, header_bytes), 4, HEADER_BYTES);
    put(bytes, offsetof(weir_trace_header, event_bytes), 4, EVENT_BYTES);
    put(bytes, offsetof(weir_trace_header, events), 8, t->count);
    put(bytes, offsetof(weir_trace_header, dropped), 8, t->dropped);
    if (fwrite(bytes, 1, HEADER_BYTES, to) != HEADER_BYTES) return false;

    for (size_t i = 0; i < t->count; i++) {
        encode(&t->events[i], bytes);
        if (fwrite(bytes, 1, EVENT_BYTES, to) != EVENT_BYTES) return false;
    }
    return fflush(to) == 0;
}
