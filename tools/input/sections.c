#include "sections.h"

#include "grow.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SECTION_LIVE = 1, SECTION_SEGMENTS, SECTION_SETTINGS, SECTION_LAST = SECTION_SETTINGS };

enum {
    HEAD_BYTES = 16,
    LIVE_BYTES = 56,
    SEGMENT_BYTES = 48,
    SETTINGS_BYTES = 28,    /* before the texts */
    ITEM_BYTES_MAX = 65536, /* far above what later versions may add */
    FLAG = 1                /* of a live block: pending; of a segment: mapped; of settings: expandable segments */
};

static const uint32_t least_bytes[] = { 0, LIVE_BYTES, SEGMENT_BYTES, SETTINGS_BYTES };

typedef struct section {
    uint32_t kind, item_bytes;
    uint64_t items;
} section;

/* ---- order ------------------------------------------------------------------------------------------------------- */

static int by_place(int a_device, uint64_t a, int b_device, uint64_t b)
{
    if (a_device != b_device) return a_device < b_device ? -1 : 1;
    return (a > b) - (a < b);
}

static int live_by_place(const void *left, const void *right)
{
    const trace_live *a = left, *b = right;
    return by_place(a->device, a->address, b->device, b->address);
}

static int segments_by_place(const void *left, const void *right)
{
    const trace_segment *a = left, *b = right;
    return by_place(a->device, a->address, b->device, b->address);
}

void sections_sort(trace *t)
{
    if (t->live_count) qsort(t->live, t->live_count, sizeof *t->live, live_by_place);
    if (t->segment_count) qsort(t->segments, t->segment_count, sizeof *t->segments, segments_by_place);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Makes `bytes` bytes available at `at`. `what` and `number` name the item, for messages. */
static bool need(source *s, size_t bytes, const char *what, uint64_t number)
{
    const size_t have = source_need(s, bytes);
    return have >= bytes || source_fail(s, source_offset(s) + have,
                                        "the file ends inside %s %" PRIu64 ": it is not complete", what, number);
}

static bool is_device(source *s, int16_t device, const char *what, uint64_t number)
{
    return device >= 0 || source_fail(s, source_offset(s), "%s %" PRIu64 " is on device %d, which is not a device",
                                      what, number, device);
}

static bool read_live(source *s, uint64_t number, const trace_stacks *stacks, trace_live *out)
{
    const uint8_t *from = s->at;
    *out = (trace_live){
        .address = little_endian(from, 8),
        .bytes = little_endian(from + 8, 8),
        .requested = little_endian(from + 16, 8),
        .stream = little_endian(from + 24, 8),
        .pool = { little_endian(from + 32, 8), little_endian(from + 40, 8) },
        .stack = (uint32_t)little_endian(from + 48, 4),
        .device = (int16_t)little_endian(from + 52, 2),
        .pending = little_endian(from + 54, 2) & FLAG,
    };
    if (out->stack != 0 && out->stack >= stacks->count)
        return source_fail(s, source_offset(s),
                           "live block %" PRIu64 " has stack %" PRIu32 ", but there are %zu stacks", number, out->stack,
                           stacks->count ? stacks->count - 1 : 0);
    return is_device(s, out->device, "live block", number);
}

static bool read_segment(source *s, uint64_t number, trace_segment *out)
{
    const uint8_t *from = s->at;
    *out = (trace_segment){
        .address = little_endian(from, 8),
        .bytes = little_endian(from + 8, 8),
        .stream = little_endian(from + 16, 8),
        .pool = { little_endian(from + 24, 8), little_endian(from + 32, 8) },
        .device = (int16_t)little_endian(from + 40, 2),
        .mapped = little_endian(from + 42, 2) & FLAG,
    };
    return is_device(s, out->device, "segment", number);
}

/* Copies a text of the settings; `capacity` includes its NUL. */
static bool read_text(source *s, const uint8_t **from, const uint8_t *end, size_t length, char *to, size_t capacity)
{
    if (length >= capacity || length > (size_t)(end - *from) || memchr(*from, '\0', length))
        return source_fail(s, source_offset(s), "the settings have a text of %zu bytes that is too long or not text",
                           length);
    memcpy(to, *from, length);
    to[length] = '\0';
    *from += length;
    return true;
}

static bool read_settings(source *s, const section *head, trace_settings *out)
{
    const uint8_t *from = s->at, *end = from + head->item_bytes;
    const uint64_t threshold = little_endian(from + 8, 8);
    const size_t divisions = little_endian(from + 20, 4), config = little_endian(from + 24, 4);
    out->known = true;
    out->max_split_size = little_endian(from, 8);
    memcpy(&out->gc_threshold, &threshold, sizeof out->gc_threshold);
    out->expandable_segments = little_endian(from + 16, 4) & FLAG;
    from += SETTINGS_BYTES;
    return read_text(s, &from, end, divisions, out->roundup_power2_divisions, sizeof out->roundup_power2_divisions) &&
           read_text(s, &from, end, config, out->config, sizeof out->config);
}

/* Grows the arrays as items are read, since their count cannot be trusted. */
static bool read_item(source *s, const section *head, uint64_t number, size_t *capacity, trace *out)
{
    switch (head->kind) {
    case SECTION_LIVE:
        if (!grow_try((void **)&out->live, capacity, out->live_count + 1, sizeof *out->live))
            return source_fail_memory(s);
        return read_live(s, number, &out->stacks, &out->live[out->live_count++]);
    case SECTION_SEGMENTS:
        if (!grow_try((void **)&out->segments, capacity, out->segment_count + 1, sizeof *out->segments))
            return source_fail_memory(s);
        return read_segment(s, number, &out->segments[out->segment_count++]);
    default: return read_settings(s, head, &out->settings);
    }
}

static bool read_items(source *s, const section *head, trace *out)
{
    static const char *const names[] = { "", "live block", "segment", "settings" };
    size_t capacity = 0;
    for (uint64_t i = 0; i < head->items; i++) {
        if (!need(s, head->item_bytes, names[head->kind], i) || !read_item(s, head, i, &capacity, out)) return false;
        s->at += head->item_bytes;
    }
    return true;
}

/* *seen: a bit for each kind read so far. */
static bool read_head(source *s, const trace_limits *limits, uint32_t number, bool newer, uint32_t *seen, section *out)
{
    const uint64_t offset = source_offset(s);
    if (!need(s, HEAD_BYTES, "section", number)) return false;
    *out = (section){ (uint32_t)little_endian(s->at, 4), (uint32_t)little_endian(s->at + 4, 4),
                      little_endian(s->at + 8, 8) };
    s->at += HEAD_BYTES;
    const bool known = out->kind >= SECTION_LIVE && out->kind <= SECTION_LAST;
    if (!known && (out->kind == 0 || !newer))
        return source_fail(s, offset, "section %" PRIu32 " is of the unknown kind %" PRIu32, number, out->kind);
    if (known && *seen >> out->kind & 1)
        return source_fail(s, offset, "section %" PRIu32 " is the second of kind %" PRIu32, number, out->kind);
    if (known) *seen |= UINT32_C(1) << out->kind;
    const uint32_t least = known ? least_bytes[out->kind] : 0;
    if (out->item_bytes < least || out->item_bytes > ITEM_BYTES_MAX)
        return source_fail(s, offset + 4,
                           "section %" PRIu32 " has items of %" PRIu32 " bytes; %" PRIu32 " to %d are possible", number,
                           out->item_bytes, least, ITEM_BYTES_MAX);
    if (out->items > limits->events || (out->kind == SECTION_SETTINGS && out->items != 1))
        return source_fail(s, offset + 8, "section %" PRIu32 " has %" PRIu64 " items, which is not a possible number",
                           number, out->items);
    return true;
}

bool sections_read(source *s, const trace_limits *limits, uint32_t count, bool newer, trace *out)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; i < count; i++) {
        section head;
        if (!read_head(s, limits, i, newer, &seen, &head)) return false;
        if (head.kind > SECTION_LAST) {
            if (!source_skip(s, head.items * head.item_bytes))
                return source_fail(s, source_offset(s), "the file ends inside section %" PRIu32 ": it is not complete",
                                   i);
        } else if (!read_items(s, &head, out)) {
            return false;
        }
    }
    sections_sort(out);
    return true;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

uint32_t sections_count(const trace *t)
{
    return (t->live_count != 0) + (t->segment_count != 0) + t->settings.known;
}

static bool write_bytes(FILE *to, const void *bytes, size_t count)
{
    return fwrite(bytes, 1, count, to) == count;
}

static bool write_head(FILE *to, section head)
{
    uint8_t bytes[HEAD_BYTES];
    put_little_endian(bytes, 4, head.kind);
    put_little_endian(bytes + 4, 4, head.item_bytes);
    put_little_endian(bytes + 8, 8, head.items);
    return write_bytes(to, bytes, sizeof bytes);
}

static bool write_live(FILE *to, const trace_live *l, bool stacked)
{
    uint8_t bytes[LIVE_BYTES];
    put_little_endian(bytes, 8, l->address);
    put_little_endian(bytes + 8, 8, l->bytes);
    put_little_endian(bytes + 16, 8, l->requested);
    put_little_endian(bytes + 24, 8, l->stream);
    put_little_endian(bytes + 32, 8, l->pool[0]);
    put_little_endian(bytes + 40, 8, l->pool[1]);
    put_little_endian(bytes + 48, 4, stacked ? l->stack : 0);
    put_little_endian(bytes + 52, 2, (uint16_t)l->device);
    put_little_endian(bytes + 54, 2, l->pending ? FLAG : 0);
    return write_bytes(to, bytes, sizeof bytes);
}

static bool write_segment(FILE *to, const trace_segment *g)
{
    uint8_t bytes[SEGMENT_BYTES] = { 0 };
    put_little_endian(bytes, 8, g->address);
    put_little_endian(bytes + 8, 8, g->bytes);
    put_little_endian(bytes + 16, 8, g->stream);
    put_little_endian(bytes + 24, 8, g->pool[0]);
    put_little_endian(bytes + 32, 8, g->pool[1]);
    put_little_endian(bytes + 40, 2, (uint16_t)g->device);
    put_little_endian(bytes + 42, 2, g->mapped ? FLAG : 0);
    return write_bytes(to, bytes, sizeof bytes);
}

static bool write_settings(FILE *to, const trace_settings *of)
{
    uint8_t bytes[SETTINGS_BYTES];
    uint64_t threshold;
    const size_t divisions = strlen(of->roundup_power2_divisions), config = strlen(of->config);
    memcpy(&threshold, &of->gc_threshold, sizeof threshold);
    put_little_endian(bytes, 8, of->max_split_size);
    put_little_endian(bytes + 8, 8, threshold);
    put_little_endian(bytes + 16, 4, of->expandable_segments ? FLAG : 0);
    put_little_endian(bytes + 20, 4, divisions);
    put_little_endian(bytes + 24, 4, config);
    return write_head(to, (section){ SECTION_SETTINGS, (uint32_t)(sizeof bytes + divisions + config), 1 }) &&
           write_bytes(to, bytes, sizeof bytes) && write_bytes(to, of->roundup_power2_divisions, divisions) &&
           write_bytes(to, of->config, config);
}

bool sections_write(FILE *to, const trace *t)
{
    const bool stacked = t->stacks.of && t->stacks.count > 1;
    bool good = !t->live_count || write_head(to, (section){ SECTION_LIVE, LIVE_BYTES, t->live_count });
    for (size_t i = 0; good && i < t->live_count; i++) good = write_live(to, &t->live[i], stacked);
    if (good && t->segment_count) good = write_head(to, (section){ SECTION_SEGMENTS, SEGMENT_BYTES, t->segment_count });
    for (size_t i = 0; good && i < t->segment_count; i++) good = write_segment(to, &t->segments[i]);
    return good && (!t->settings.known || write_settings(to, &t->settings));
}
