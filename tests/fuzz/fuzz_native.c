/* What can be read is written again, and what was written must read the same. */
#include "input/native.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_round_trip(const trace *first, const trace_limits *limits)
{
    char *bytes = NULL;
    size_t count = 0;
    FILE *file = open_memstream(&bytes, &count);
    if (!file || !trace_write_native(file, first)) abort();
    fclose(file);
    trace second;
    trace_error e;
    if (!trace_read_memory(bytes, count, limits, &second, &e)) abort();
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
