#include "input/csv.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const trace_limits limits = { .events = 10000, .memo = 1, .depth = 1, .string_bytes = 1 };
    if (!csv_detect(data, size)) return 0;
    source s;
    trace t = { 0 };
    bool good = source_open_memory(&s, data, size) && csv_read(&s, &limits, &t);
    if (!good && s.error.text[0] == '\0') abort();
    if (t.count > limits.events) abort();
    for (size_t i = 0; i < t.count; i++) {
        /* Threads are numbered by row, and some rows make no event. */
        if (t.events[i].kind == 0 || t.events[i].thread > size) abort();
    }
    source_close(&s);
    trace_release(&t);
    return 0;
}
