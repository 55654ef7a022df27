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
    if (first->count && memcmp(second.events, first->events, first->count * sizeof *first->events) != 0) abort();
    trace_release(&second);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const trace_limits limits = { .events = 10000, .memo = 1, .depth = 1, .string_bytes = 1 };
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
