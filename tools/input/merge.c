#include "merge.h"

#include <stdlib.h>
#include <string.h>

static void merge_two(const weir_event *from, size_t first, size_t second, size_t end, weir_event *to)
{
    size_t a = first, b = second;
    for (size_t at = first; at < end; at++) {
        bool take_a = a < second && (b == end || from[a].time_ns <= from[b].time_ns);
        to[at] = from[take_a ? a++ : b++];
    }
}

bool merge_by_time(weir_event **events, size_t *bounds, size_t runs)
{
    size_t count = bounds[runs];
    if (runs < 2 || count == 0) return true;
    weir_event *spare = malloc(count * sizeof *spare);
    if (!spare) return false;

    while (runs > 1) {
        size_t merged = 0;
        for (size_t i = 0; i < runs; i += 2) {
            size_t second = bounds[i + 1], end = i + 1 < runs ? bounds[i + 2] : second;
            size_t first = bounds[i];
            merge_two(*events, first, second, end, spare);
            bounds[merged++] = first;
        }
        bounds[merged] = count;
        runs = merged;
        weir_event *swap = *events;
        *events = spare;
        spare = swap;
    }
    free(spare);
    return true;
}
