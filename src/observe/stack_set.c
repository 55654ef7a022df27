#include "observe/stack_set.h"

#include "base/meta.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

weir_status wr_stack_set_begin(wr_stack_set *set)
{
    void *memory = NULL;
    *set = (wr_stack_set){ 0 };
    if (wr_stacks_end() == 0) return WEIR_OK;
    const size_t bytes = wr_stacks_end() * sizeof(uint32_t);
    WR_TRY(wr_meta_reserve(bytes, "numbers of call stacks", &memory));
    set->number = memory;
    set->number_bytes = bytes;
    return WEIR_OK;
}

weir_status wr_stack_set_mention(wr_stack_set *set, uint32_t stack)
{
    const wr_stack *found = set->number ? wr_stacks_find(stack) : NULL;
    if (!found || set->number[stack]) return WEIR_OK;
    WR_TRY(wr_meta_grow(&set->stacks, &set->capacity, set->count + 1, sizeof *set->stacks, "call stacks of a file"));
    set->stacks[set->count++] = found;
    set->number[stack] = set->count;
    return WEIR_OK;
}

static int by_address(const void *left, const void *right)
{
    const uintptr_t a = (uintptr_t)*(void *const *)left, b = (uintptr_t)*(void *const *)right;
    return (a > b) - (a < b);
}

weir_status wr_stack_set_end(wr_stack_set *set)
{
    size_t all = 0;
    void *memory = NULL;
    for (uint32_t i = 0; i < set->count; i++) all += set->stacks[i]->count;
    if (all == 0) return WEIR_OK;
    WR_TRY(wr_meta_alloc(all * sizeof(void *), "frames of a file", &memory));
    set->frames = memory;
    size_t at = 0;
    for (uint32_t i = 0; i < set->count; i++)
        for (uint32_t k = 0; k < set->stacks[i]->count; k++) set->frames[at++] = set->stacks[i]->frames[k];
    qsort(set->frames, all, sizeof(void *), by_address);
    for (size_t i = 0; i < all; i++)
        if (i == 0 || set->frames[i] != set->frames[i - 1]) set->frames[set->frame_count++] = set->frames[i];
    return WEIR_OK;
}

void wr_stack_set_release(wr_stack_set *set)
{
    wr_meta_release(set->number, set->number_bytes);
    wr_meta_free((void *)set->stacks);
    wr_meta_free((void *)set->frames);
    *set = (wr_stack_set){ 0 };
}

uint32_t wr_stack_set_frame(const wr_stack_set *set, const void *frame)
{
    void *const *found = bsearch(&frame, set->frames, set->frame_count, sizeof(void *), by_address);
    return (uint32_t)(found - set->frames);
}

void wr_frame_name(const wr_frame *frame, char name[WR_FRAME_NAME])
{
    if (frame->is_source)
        snprintf(name, WR_FRAME_NAME, "%s", frame->symbol ? frame->symbol : "??");
    else if (frame->symbol)
        snprintf(name, WR_FRAME_NAME, "%s+%#" PRIx64, frame->symbol, frame->in_symbol);
    else
        snprintf(name, WR_FRAME_NAME, "%#" PRIx64, frame->in_object);
}
