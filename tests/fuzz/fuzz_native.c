/* Any file that can be read is written again, and must then read the same. */
#include "input/native.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same_live(const trace_live *a, const trace_live *b, bool stacked)
{
    return a->address == b->address && a->bytes == b->bytes && a->requested == b->requested && a->stream == b->stream &&
           a->pool[0] == b->pool[0] && a->pool[1] == b->pool[1] && (!stacked || a->stack == b->stack) &&
           a->device == b->device && a->pending == b->pending;
}

static bool same_segment(const trace_segment *a, const trace_segment *b)
{
    return a->address == b->address && a->bytes == b->bytes && a->stream == b->stream && a->pool[0] == b->pool[0] &&
           a->pool[1] == b->pool[1] && a->device == b->device && a->mapped == b->mapped;
}

static bool same_settings(const trace_settings *a, const trace_settings *b)
{
    return a->known == b->known && a->expandable_segments == b->expandable_segments &&
           a->max_split_size == b->max_split_size &&
           memcmp(&a->gc_threshold, &b->gc_threshold, sizeof a->gc_threshold) == 0 &&
           strcmp(a->roundup_power2_divisions, b->roundup_power2_divisions) == 0 && strcmp(a->config, b->config) == 0;
}

static void check_listed(const trace *a, const trace *b)
{
    if (a->live_count != b->live_count || a->segment_count != b->segment_count) abort();
    for (size_t i = 0; i < a->live_count; i++)
        if (!same_live(&a->live[i], &b->live[i], a->stacks.count > 1)) abort();
    for (size_t i = 0; i < a->segment_count; i++)
        if (!same_segment(&a->segments[i], &b->segments[i])) abort();
    if (!same_settings(&a->settings, &b->settings)) abort();
}

static void check_round_trip(const trace *first, const trace_limits *limits)
{
    char *bytes = NULL;
    size_t count = 0;
    FILE *file = open_memstream(&bytes, &count);
    if (!file || !trace_write_native(file, first)) abort();
    fclose(file);
    source s;
    trace second = { 0 };
    if (!source_open_memory(&s, bytes, count) || !native_read(&s, limits, &second)) abort();
    if (second.count != first->count || second.dropped != first->dropped) abort();
    const trace_stacks *a = &first->stacks, *b = &second.stacks;
    const bool stacked = a->count > 1;
    if (b->lost != a->lost || (b->count > 1) != stacked || (stacked && b->frame_count != a->frame_count)) abort();
    if (stacked && first->count && memcmp(b->of, a->of, first->count * sizeof *a->of) != 0) abort();
    if (stacked && memcmp(b->first, a->first, (a->count + 1) * sizeof *a->first) != 0) abort();
    if (stacked && memcmp(b->items, a->items, a->first[a->count] * sizeof *a->items) != 0) abort();
    for (size_t i = 0; stacked && i < a->frame_count; i++)
        if (strcmp(a->frames[i], b->frames[i]) != 0) abort();
    if (first->count && memcmp(second.events, first->events, first->count * sizeof *first->events) != 0) abort();
    check_listed(first, &second);
    source_close(&s);
    trace_release(&second);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const trace_limits limits = { .events = 10000, .memo = 10000, .depth = 1, .string_bytes = 10000 };
    source s;
    trace t = { 0 };
    bool good = source_open_memory(&s, data, size) && native_read(&s, &limits, &t);
    if (good)
        check_round_trip(&t, &limits);
    else if (s.error.text[0] == '\0')
        abort();
    source_close(&s);
    trace_release(&t);
    return 0;
}
