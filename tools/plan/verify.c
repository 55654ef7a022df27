#include "plan/verify.h"

#include "grow.h"
#include "ranges.h"

#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_BLOCK UINT32_MAX

/* For a search tree of address ranges: overlapping ranges compare as equal. */
static int by_place(const void *left, const void *right)
{
    const range *a = left, *b = right;
    if (a->address + a->bytes <= b->address) return -1;
    return a->address >= b->address + b->bytes;
}

static void keep(void *node)
{
    (void)node; /* the ranges are in an array */
}

/* The block that ends at each step; NO_BLOCK where none does. */
static uint32_t *ends_of(const arena *a)
{
    uint32_t *ends = grow_new((size_t)a->steps + 1, sizeof *ends);
    memset(ends, 0xff, ((size_t)a->steps + 1) * sizeof *ends);
    for (uint32_t i = 0; i < a->count; i++)
        if (a->blocks[i].end < a->steps) ends[a->blocks[i].end] = i;
    return ends;
}

static _Noreturn void stop(void)
{
    fputs("weir: out of memory for checking a plan; close other programs or use a machine with more\n", stderr);
    exit(EXIT_FAILURE);
}

bool verify(const arena *a, const uint64_t *offset, uint64_t peak, char *error, size_t error_size)
{
    range *places = grow_new(a->count, sizeof *places);
    uint32_t *ends = ends_of(a);
    uint64_t highest = 0;
    void *live = NULL;
    bool good = true;
    uint32_t next = 0;

    for (uint32_t step = 0; good && step < a->steps; step++) {
        if (ends[step] != NO_BLOCK) tdelete(&places[ends[step]], &live, by_place);
        if (next == a->count || a->blocks[next].start != step) continue;
        range *r = &places[next];
        *r = (range){ .address = offset[next], .bytes = a->blocks[next].bytes, .number = next };
        if (r->address + r->bytes > highest) highest = r->address + r->bytes;
        range **found = tsearch(r, &live, by_place);
        if (!found) stop();
        if (*found != r) {
            good = false;
            snprintf(error, error_size, "allocation %" PRIu32 " overlaps allocation %" PRIu32 ", which is still live",
                     next, (*found)->number);
        } else if (r->address % PLAN_ALIGNMENT != 0) {
            good = false;
            snprintf(error, error_size, "allocation %" PRIu32 " is at %" PRIu64 ", which is not aligned", next,
                     r->address);
        }
        next++;
    }
    if (good && highest != peak) {
        good = false;
        snprintf(error, error_size, "it reaches %" PRIu64 " bytes, but states %" PRIu64, highest, peak);
    }
    tdestroy(live, keep);
    free(ends);
    free(places);
    return good;
}

/* Counts the waits of a block that takes over addresses of others. */
typedef struct takeover {
    const arena *a;
    uint32_t taker; /* a block of the arena */
    size_t *waited; /* by stream: 1 + the last block that counted it */
    uint64_t waits;
} takeover;

static void take_over(void *user, const range *old, range *left, range *right)
{
    (void)left;
    (void)right;
    takeover *t = user;
    uint32_t stream = t->a->blocks[old->number].stream;
    if (stream == t->a->blocks[t->taker].stream || t->waited[stream] == (size_t)t->taker + 1) return;
    t->waited[stream] = (size_t)t->taker + 1;
    t->waits++;
}

uint64_t count_waits(const arena *a, const uint64_t *offset)
{
    if (a->stream_count < 2) return 0;
    ranges users = { 0 }; /* number: the block that used the range last */
    takeover t = { .a = a, .waited = grow_new(a->stream_count, sizeof *t.waited) };
    for (; t.taker < a->count; t.taker++) {
        uint64_t address = offset[t.taker], bytes = a->blocks[t.taker].bytes;
        ranges_cut(&users, 0, address, bytes, take_over, &t);
        ranges_add(&users, (range){ .address = address, .bytes = bytes, .number = t.taker });
    }
    free(t.waited);
    ranges_release(&users);
    return t.waits;
}
