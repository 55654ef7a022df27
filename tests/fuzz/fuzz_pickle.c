/* Reads whole files, so that gzip, the detection of formats and the pickle machine are all covered. */
#include "input/input.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const trace_limits limits = {
        .events = 10000, .memo = 100000, .stack = 100000, .depth = 1000, .string_bytes = 1 << 20
    };
    trace t;
    trace_error e = { .text = "" };
    if (trace_read_memory(data, size, &limits, &t, &e)) {
        if (t.count > limits.events || t.live_count > limits.events) abort();
        for (size_t i = 1; i < t.live_count; i++) {
            if (t.live[i - 1].device > t.live[i].device) abort();
        }
        trace_release(&t);
    } else if (e.text[0] == '\0' || t.events || t.live || t.name) {
        abort();
    }
    return 0;
}
