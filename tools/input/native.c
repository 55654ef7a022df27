#include "native.h"

#include "grow.h"
#include "sections.h"

#include <inttypes.h>
#include <string.h>

#define HEADER_BYTES 64
#define EVENT_BYTES 56
#define STACKED_BYTES 60     /* with a stack number */
#define EVENT_BYTES_MAX 4096 /* far above what later versions may add */
#define UNCOUNTED UINT64_MAX
#define FRAME_BYTES_MAX 65536 /* far above the longest name */
#define STACK_FRAMES_MAX 65536

_Static_assert(sizeof(weir_trace_header) == HEADER_BYTES, "the header has no padding");
_Static_assert(sizeof(weir_event) == EVENT_BYTES, "an event has no padding");

static void put(uint8_t *to, size_t offset, size_t bytes, uint64_t value)
{
    put_little_endian(to + offset, bytes, value);
}

/* Field by field, since the file is little endian on every machine. */
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
        .frames = (uint32_t)little_endian(from + offsetof(weir_trace_header, frames), 4),
        .stacks = (uint32_t)little_endian(from + offsetof(weir_trace_header, stacks), 4),
        .stacks_lost = little_endian(from + offsetof(weir_trace_header, stacks_lost), 8),
        .sections = (uint32_t)little_endian(from + offsetof(weir_trace_header, sections), 4),
    };
    if (h->version_minor < 2) h->frames = h->stacks = 0, h->stacks_lost = 0; /* these fields were reserved */
    if (h->version_minor < 4) h->sections = 0;
    s->at += HEADER_BYTES;
    return true;
}

static bool check_header(source *s, const weir_trace_header *h, const trace_limits *limits)
{
    if (h->version_major == 0)
        return source_fail(s, offsetof(weir_trace_header, version_major),
                           "trace format version 0.%u does not exist; record or convert the trace again",
                           h->version_minor);
    if (h->version_major > WEIR_TRACE_VERSION_MAJOR)
        return source_fail(s, offsetof(weir_trace_header, version_major),
                           "trace format version %u.%u: this weir reads %d.x; use a newer weir", h->version_major,
                           h->version_minor, WEIR_TRACE_VERSION_MAJOR);
    if (h->header_bytes < HEADER_BYTES)
        return source_fail(s, offsetof(weir_trace_header, header_bytes),
                           "the header has %" PRIu32 " bytes, but needs at least %d", h->header_bytes, HEADER_BYTES);
    if (h->event_bytes < EVENT_BYTES || h->event_bytes > EVENT_BYTES_MAX)
        return source_fail(s, offsetof(weir_trace_header, event_bytes),
                           "events have %" PRIu32 " bytes each; %d to %d are possible", h->event_bytes, EVENT_BYTES,
                           EVENT_BYTES_MAX);
    if (h->flags != 0)
        return source_fail(s, offsetof(weir_trace_header, flags), "unknown flags 0x%" PRIx32 ": use a newer weir",
                           h->flags);
    if (h->events != UNCOUNTED && h->events > limits->events)
        return source_fail(s, offsetof(weir_trace_header, events),
                           "the file has %" PRIu64 " events; the limit is %" PRIu64, h->events, limits->events);
    if (h->stacks != 0 && (h->event_bytes < STACKED_BYTES || h->events == UNCOUNTED))
        return source_fail(s, offsetof(weir_trace_header, stacks), "the file has %" PRIu32 " stacks, but %s", h->stacks,
                           h->events == UNCOUNTED ? "does not say how many events come before them"
                                                  : "its events have no room for the number of a stack");
    if (h->sections != 0 && h->events == UNCOUNTED)
        return source_fail(s, offsetof(weir_trace_header, sections),
                           "the file has %" PRIu32 " sections, but does not say how many events come before them",
                           h->sections);
    return true;
}

/* A kind that this version does not know is an error, unless a newer minor version may have added it. */
static bool check_event(source *s, const weir_event *e, const weir_trace_header *h, uint64_t number, bool *known)
{
    *known = e->kind >= WEIR_EVENT_ALLOC && e->kind <= WEIR_EVENT_LAST;
    if (!*known && (e->kind == 0 || h->version_minor <= WEIR_TRACE_VERSION_MINOR))
        return source_fail(s, source_offset(s), "event %" PRIu64 " is of the unknown kind %u", number, e->kind);
    if (e->device < 0)
        return source_fail(s, source_offset(s), "event %" PRIu64 " is on device %d, which is not a device", number,
                           e->device);
    return true;
}

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

static bool ends_inside(source *s, size_t have, const char *what, uint64_t number)
{
    return source_fail(s, source_offset(s) + have, "the file ends inside %s %" PRIu64 ": it is not complete", what,
                       number);
}

/* Reads a number of 4 bytes. `what` and `of` name the item that it belongs to, for messages. */
static bool read_number(source *s, const char *what, uint64_t of, uint32_t *number)
{
    size_t have = source_need(s, 4);
    if (have < 4) return ends_inside(s, have, what, of);
    *number = (uint32_t)little_endian(s->at, 4);
    s->at += 4;
    return true;
}

static bool read_frame(source *s, const trace_limits *limits, uint64_t *text_bytes, trace_stacks *out)
{
    uint32_t length;
    const uint64_t number = out->frame_count, offset = source_offset(s);
    if (!read_number(s, "frame", number, &length)) return false;
    *text_bytes += length;
    if (length > FRAME_BYTES_MAX || *text_bytes > limits->string_bytes)
        return source_fail(s, offset, "frame %" PRIu64 " has %" PRIu32 " bytes, more than the limit", number, length);
    size_t have = source_need(s, length);
    if (have < length) return ends_inside(s, have, "frame", number);
    if (memchr(s->at, '\0', length)) return source_fail(s, offset, "frame %" PRIu64 " has a zero in it", number);
    char *text = calloc((size_t)length + 1, 1);
    if (!text) return source_fail_memory(s);
    memcpy(text, s->at, length);
    out->frames[out->frame_count++] = text;
    s->at += length;
    return true;
}

static bool read_stack(source *s, const trace_limits *limits, size_t *capacity, trace_stacks *out)
{
    uint32_t frames;
    const uint64_t offset = source_offset(s);
    if (!read_number(s, "stack", out->count, &frames)) return false;
    size_t first = out->first[out->count];
    if (frames > STACK_FRAMES_MAX || first + frames > limits->memo)
        return source_fail(s, offset, "stack %zu has %" PRIu32 " frames, more than the limit", out->count, frames);
    if (!grow_try((void **)&out->items, capacity, first + frames, sizeof *out->items)) return source_fail_memory(s);
    for (uint32_t i = 0; i < frames; i++) {
        uint32_t *item = &out->items[first + i];
        if (!read_number(s, "stack", out->count, item)) return false;
        if (*item >= out->frame_count)
            return source_fail(s, source_offset(s) - 4, "stack %zu has frame %" PRIu32 ", but there are %zu frames",
                               out->count, *item, out->frame_count);
    }
    out->first[++out->count] = first + frames;
    return true;
}

/* Grows the arrays as stacks are read, as for events. Stack 0 is empty. */
static bool read_stacks(source *s, const trace_limits *limits, const weir_trace_header *h, trace_stacks *out)
{
    size_t frame_capacity = 0, first_capacity = 0, item_capacity = 0;
    uint64_t text_bytes = 0;
    if (h->stacks == 0) return true;
    while (out->frame_count < h->frames)
        if (!grow_try((void **)&out->frames, &frame_capacity, out->frame_count + 1, sizeof *out->frames))
            return source_fail_memory(s);
        else if (!read_frame(s, limits, &text_bytes, out))
            return false;
    for (uint64_t i = 0; i <= h->stacks; i++) {
        if (!grow_try((void **)&out->first, &first_capacity, (size_t)i + 2, sizeof *out->first))
            return source_fail_memory(s);
        if (i == 0) {
            out->first[0] = out->first[1] = 0;
            out->count = 1;
        } else if (!read_stack(s, limits, &item_capacity, out)) {
            return false;
        }
    }
    /* The array must exist even if all stacks are empty. */
    return grow_try((void **)&out->items, &item_capacity, 1, sizeof *out->items) || source_fail_memory(s);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Appends the next event, unless its kind is to be passed over. */
static bool read_event(source *s, const weir_trace_header *h, uint64_t number, size_t *capacity, size_t *of_capacity,
                       trace *out)
{
    bool known;
    uint32_t stack = h->stacks ? (uint32_t)little_endian(s->at + EVENT_BYTES, 4) : 0;
    weir_event e = decode(s->at);
    if (!check_event(s, &e, h, number, &known)) return false;
    if (stack > h->stacks)
        return source_fail(s, source_offset(s),
                           "event %" PRIu64 " has stack %" PRIu32 ", but there are %" PRIu32 " stacks", number, stack,
                           h->stacks);
    s->at += h->event_bytes;
    if (!known) return true;
    if (!grow_try((void **)&out->events, capacity, out->count + 1, sizeof e) ||
        (h->stacks && !grow_try((void **)&out->stacks.of, of_capacity, out->count + 1, sizeof stack)))
        return source_fail_memory(s);
    if (h->stacks) out->stacks.of[out->count] = stack;
    out->events[out->count++] = e;
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
    out->stacks.lost = h.stacks_lost;

    /* Grows the array as events are read, since the header's count cannot be trusted. */
    size_t capacity = 0, of_capacity = 0;
    if (h.stacks && !grow_try((void **)&out->stacks.of, &of_capacity, 1, sizeof *out->stacks.of))
        return source_fail_memory(s); /* allocated even if there are no events */
    for (uint64_t i = 0; i < h.events; i++) {
        size_t have = source_need(s, h.event_bytes);
        if (have == 0 && h.events == UNCOUNTED) break;
        if (have < h.event_bytes) return ends_inside(s, have, "event", i);
        if (out->count >= limits->events)
            return source_fail(s, source_offset(s), "more than %" PRIu64 " events, the limit", limits->events);
        if (!read_event(s, &h, i, &capacity, &of_capacity, out)) return false;
    }
    const bool newer = h.version_minor > WEIR_TRACE_VERSION_MINOR;
    return read_stacks(s, limits, &h, &out->stacks) && sections_read(s, limits, h.sections, newer, out) && !s->failed;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static bool write_number(FILE *to, size_t number)
{
    uint8_t bytes[4];
    put(bytes, 0, sizeof bytes, number);
    return fwrite(bytes, 1, sizeof bytes, to) == sizeof bytes;
}

static bool write_stacks(FILE *to, const trace_stacks *s)
{
    for (size_t i = 0; i < s->frame_count; i++) {
        size_t length = strnlen(s->frames[i], FRAME_BYTES_MAX);
        if (!write_number(to, length) || fwrite(s->frames[i], 1, length, to) != length) return false;
    }
    for (size_t i = 1; i < s->count; i++) {
        if (!write_number(to, s->first[i + 1] - s->first[i])) return false;
        for (size_t k = s->first[i]; k < s->first[i + 1]; k++)
            if (!write_number(to, s->items[k])) return false;
    }
    return true;
}

bool trace_write_native(FILE *to, const trace *t)
{
    uint8_t bytes[HEADER_BYTES] = { 0 };
    memcpy(bytes, WEIR_TRACE_MAGIC, 8);
    put(bytes, offsetof(weir_trace_header, version_major), 2, WEIR_TRACE_VERSION_MAJOR);
    put(bytes, offsetof(weir_trace_header, version_minor), 2, WEIR_TRACE_VERSION_MINOR);
    put(bytes, offsetof(weir_trace_header, header_bytes), 4, HEADER_BYTES);
    const bool stacked = t->stacks.of && t->stacks.count > 1;
    const size_t event_bytes = stacked ? STACKED_BYTES : EVENT_BYTES;
    put(bytes, offsetof(weir_trace_header, event_bytes), 4, event_bytes);
    put(bytes, offsetof(weir_trace_header, events), 8, t->count);
    put(bytes, offsetof(weir_trace_header, dropped), 8, t->dropped);
    put(bytes, offsetof(weir_trace_header, frames), 4, stacked ? t->stacks.frame_count : 0);
    put(bytes, offsetof(weir_trace_header, stacks), 4, stacked ? t->stacks.count - 1 : 0);
    put(bytes, offsetof(weir_trace_header, stacks_lost), 8, t->stacks.lost);
    put(bytes, offsetof(weir_trace_header, sections), 4, sections_count(t));
    if (fwrite(bytes, 1, HEADER_BYTES, to) != HEADER_BYTES) return false;

    for (size_t i = 0; i < t->count; i++) {
        encode(&t->events[i], bytes);
        if (stacked) put(bytes, EVENT_BYTES, 4, t->stacks.of[i]);
        if (fwrite(bytes, 1, event_bytes, to) != event_bytes) return false;
    }
    if (stacked && !write_stacks(to, &t->stacks)) return false;
    return sections_write(to, t) && fflush(to) == 0;
}
