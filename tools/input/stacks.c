#include "stacks.h"

#include "grow.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST UINT32_C(0x7fffffff)

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

typedef bool (*same_as)(const stack_table *t, uint32_t number, const void *wanted);

/* The slot that holds the item's number, or a free slot for it. NULL: the error is set. */
static uint32_t *find(stack_table *t, stack_index *x, uint64_t hash, same_as same, const void *wanted)
{
    if (x->count * 2 >= x->slot_count) {
        size_t slot_count = x->slot_count ? x->slot_count * 2 : 256;
        uint32_t *slots = x->count < MOST ? calloc(slot_count, sizeof *slots) : NULL;
        if (!slots) {
            (void)source_fail_memory(t->s);
            return NULL;
        }
        for (size_t i = 0; i < x->count; i++) {
            size_t at = x->hashes[i] & (slot_count - 1);
            while (slots[at]) at = (at + 1) & (slot_count - 1);
            slots[at] = (uint32_t)i + 1;
        }
        free(x->slots);
        x->slots = slots;
        x->slot_count = slot_count;
    }
    size_t at = hash & (x->slot_count - 1);
    for (; x->slots[at]; at = (at + 1) & (x->slot_count - 1)) {
        uint32_t number = x->slots[at] - 1;
        if (x->hashes[number] == hash && same(t, number, wanted)) break;
    }
    return &x->slots[at];
}

/* Gives the free slot the next number. */
static bool number_slot(stack_table *t, stack_index *x, uint32_t *slot, uint64_t hash)
{
    if (!grow_try((void **)&x->hashes, &x->capacity, x->count + 1, sizeof *x->hashes)) return source_fail_memory(t->s);
    x->hashes[x->count] = hash;
    *slot = (uint32_t)++x->count;
    return true;
}

static bool same_frame(const stack_table *t, uint32_t number, const void *wanted)
{
    const stack_frame *a = &t->frames[number], *b = wanted;
    return a->file == b->file && a->function == b->function && a->line == b->line; /* strings are interned */
}

bool stacks_frame(stack_table *t, stack_frame frame, uint32_t *number)
{
    uint64_t hash = mix(mix(frame.line, frame.file ? frame.file->id : 0), frame.function ? frame.function->id : 0);
    uint32_t *slot = find(t, &t->frame_index, hash, same_frame, &frame);
    if (!slot) return false;
    if (!*slot) {
        size_t count = t->frame_index.count;
        if (!grow_try((void **)&t->frames, &t->frame_capacity, count + 1, sizeof *t->frames))
            return source_fail_memory(t->s);
        t->frames[count] = frame;
        if (!number_slot(t, &t->frame_index, slot, hash)) return false;
    }
    *number = *slot - 1;
    return true;
}

typedef struct run {
    const uint32_t *frames;
    size_t count;
} run;

static bool same_stack(const stack_table *t, uint32_t number, const void *wanted)
{
    const run *r = wanted;
    size_t first = t->first[number], count = t->first[number + 1] - first;
    return count == r->count && (count == 0 || memcmp(t->items + first, r->frames, count * sizeof *r->frames) == 0);
}

/* Appends a stack that is not in the table yet. */
static bool add_stack(stack_table *t, const run *r)
{
    size_t stacks = t->stack_index.count;
    if (r->count > MOST - t->item_count ||
        !grow_try((void **)&t->items, &t->item_capacity, t->item_count + r->count, sizeof *t->items) ||
        !grow_try((void **)&t->first, &t->first_capacity, stacks + 2, sizeof *t->first))
        return source_fail_memory(t->s);
    if (r->count) memcpy(t->items + t->item_count, r->frames, r->count * sizeof *r->frames);
    t->first[stacks] = t->item_count;
    t->first[stacks + 1] = t->item_count += r->count;
    return true;
}

bool stacks_stack(stack_table *t, const uint32_t *frames, size_t count, uint32_t *number)
{
    uint32_t empty;
    if (count && t->stack_index.count == 0 && !stacks_stack(t, NULL, 0, &empty)) return false;

    run wanted = { frames, count };
    uint64_t hash = count;
    for (size_t i = 0; i < count; i++) hash = mix(hash, frames[i]);
    uint32_t *slot = find(t, &t->stack_index, hash, same_stack, &wanted);
    if (!slot) return false;
    if (!*slot && (!add_stack(t, &wanted) || !number_slot(t, &t->stack_index, slot, hash))) return false;
    *number = *slot - 1;
    return true;
}

/* "train.py:12:step", as PyTorch's own tools write it; without line or file if unknown, as for compiled code. */
static char *frame_text(const stack_frame *f)
{
    const char *file = f->file ? f->file->text : "", *function = f->function ? f->function->text : "";
    bool placed = file[0] && strcmp(file, "??") != 0;
    char *text;
    int length = !placed   ? asprintf(&text, "%s", function[0] ? function : "??")
                 : f->line ? asprintf(&text, "%s:%" PRIu64 ":%s", file, f->line, function)
                           : asprintf(&text, "%s:%s", file, function);
    return length < 0 ? NULL : text;
}

bool stacks_finish(const stack_table *t, trace_stacks *out)
{
    size_t stacks = t->stack_index.count, frames = t->frame_index.count;
    if (stacks < 2) return true;
    out->frames = calloc(frames, sizeof *out->frames);
    out->items = malloc((t->item_count + 1) * sizeof *out->items);
    out->first = malloc((stacks + 1) * sizeof *out->first);
    if (!out->frames || !out->items || !out->first) return source_fail_memory(t->s);

    memcpy(out->items, t->items, t->item_count * sizeof *out->items);
    memcpy(out->first, t->first, (stacks + 1) * sizeof *out->first);
    out->count = stacks;
    for (; out->frame_count < frames; out->frame_count++) {
        out->frames[out->frame_count] = frame_text(&t->frames[out->frame_count]);
        if (!out->frames[out->frame_count]) return source_fail_memory(t->s);
    }
    return true;
}

void stacks_release(stack_table *t)
{
    free(t->frames);
    free(t->items);
    free(t->first);
    free(t->frame_index.slots);
    free(t->frame_index.hashes);
    free(t->stack_index.slots);
    free(t->stack_index.hashes);
}
