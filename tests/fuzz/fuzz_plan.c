/* Any plan that can be read must be in range, and reads the same after it was written again. */
#include "weir/plan.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_ranges(const weir_plan *plan)
{
    for (uint64_t i = 0; i < plan->arena_count; i++) {
        const weir_plan_arena *a = &plan->arenas[i];
        if (a->entries > plan->entry_count || a->first > plan->entry_count - a->entries) abort();
        if (a->loop_times && (a->loop_entries == 0 || a->loop_first + a->loop_entries > a->entries)) abort();
        if (a->residents > (a->loop_times ? a->loop_first : a->entries)) abort();
        for (uint64_t n = 0; n < a->entries; n++) {
            const weir_plan_entry *e = &plan->entries[a->first + n];
            if (e->bytes == 0 || e->offset + e->bytes > a->bytes || e->stream >= a->streams) abort();
            if (weir_plan_entry_of(a, n * 7) >= a->entries && a->loop_times) abort();
        }
    }
}

static void check_round_trip(const weir_plan *first)
{
    size_t count = 0;
    if (weir_plan_encode(first, NULL, 0, &count) != WEIR_OK) abort();
    void *bytes = malloc(count);
    weir_plan *second;
    if (!bytes || weir_plan_encode(first, bytes, count, &count) != WEIR_OK) abort();
    if (weir_plan_decode(bytes, count, &second) != WEIR_OK) abort();
    if (second->trace != first->trace || second->arena_count != first->arena_count) abort();
    if (second->entry_count != first->entry_count) abort();
    if (memcmp(second->arenas, first->arenas, first->arena_count * sizeof *first->arenas) != 0) abort();
    if (memcmp(second->entries, first->entries, first->entry_count * sizeof *first->entries) != 0) abort();
    weir_plan_destroy(second);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_plan *plan;
    if (weir_plan_decode(data, size, &plan) == WEIR_OK) {
        check_ranges(plan);
        check_round_trip(plan);
        weir_plan_destroy(plan);
    } else if (weir_error_text()[0] == '\0') {
        abort();
    }
    return 0;
}
