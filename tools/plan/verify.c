#include "plan/verify.h"

#include "grow.h"

#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_BLOCK UINT32_MAX

/* A range of addresses. In a search tree whose order calls overlapping ranges equal. */
typedef struct range {
    uint64_t low, high;
    uint32_t block;
} range;

static int by_place(const void *left, const void *right)
{
    const range *a = left, *b = right;
    if (a->high <= b->low) return -1;
    return a->low >= b->high;
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
    range *ranges = grow_new(a->count, sizeof *ranges);
    uint32_t *ends = ends_of(a);
    uint64_t highest = 0;
    void *live = NULL;
    bool good = true;
    uint32_t next = 0;

    for (uint32_t step = 0; good && step < a->steps; step++) {
        if (ends[step] != NO_BLOCK) tdelete(&ranges[ends[step]], &live, by_place);
        if (next == a->count || a->blocks[next].start != step) continue;
        range *r = &ranges[next];
        *r = (range){ offset[next], offset[next] + a->blocks[next].bytes, next };
        if (r->high > highest) highest = r->high;
        range **found = tsearch(r, &live, by_place);
        if (!found) stop();
        if (*found != r) {
            good = false;
            snprintf(error, error_size, "allocation %" PRIu32 " overlaps allocation %" PRIu32 ", which lives", next,
                     (*found)->block);
        } else if (r->low % PLAN_ALIGNMENT != 0) {
            good = false;
            snprintf(error, error_size, "allocation %" PRIu32 " is at %" PRIu64 ", which is not aligned", next, r->low);
        }
        next++;
    }
    if (good && highest != peak) {
        good = false;
        snprintf(error, error_size, "it reaches %" PRIu64 " bytes, not the %" PRIu64 " that it says", highest, peak);
    }
    tdestroy(live, keep);
    free(ends);
    free(ranges);
    return good;
}

/* Addresses by who used them last: ranges that follow each other, the first from 0, the last without end. */
typedef struct users {
    range *at; /* high is the next one's low */
    size_t count, capacity;
} users;

/* The range that holds `address`. */
static size_t user_of(const users *u, uint64_t address)
{
    size_t low = 0, high = u->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (u->at[middle].low <= address)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Makes a range begin at `address`, and returns which. */
static size_t split(users *u, uint64_t address)
{
    size_t i = user_of(u, address);
    if (u->at[i].low == address) return i;
    u->at = grow_array(u->at, u->count + 1, &u->capacity, sizeof *u->at);
    memmove(u->at + i + 2, u->at + i + 1, (u->count - i - 1) * sizeof *u->at);
    u->at[i + 1] = (range){ address, u->at[i].high, u->at[i].block };
    u->at[i].high = address;
    u->count++;
    return i + 1;
}

uint64_t count_waits(const arena *a, const uint64_t *offset)
{
    if (a->stream_count < 2) return 0;
    users u = { 0 };
    u.at = grow_array(NULL, 1, &u.capacity, sizeof *u.at);
    u.at[u.count++] = (range){ 0, UINT64_MAX, NO_BLOCK };
    uint64_t waits = 0;
    size_t *waited = grow_new(a->stream_count, sizeof *waited); /* by stream: the last block that counted it, and one */

    for (uint32_t i = 0; i < a->count; i++) {
        const arena_block *b = &a->blocks[i];
        size_t first = split(&u, offset[i]), end = split(&u, offset[i] + b->bytes);
        for (size_t j = first; j < end; j++) {
            if (u.at[j].block == NO_BLOCK) continue;
            uint32_t stream = a->blocks[u.at[j].block].stream;
            if (stream == b->stream || waited[stream] == (size_t)i + 1) continue;
            waited[stream] = (size_t)i + 1;
            waits++;
        }
        u.at[first] = (range){ offset[i], offset[i] + b->bytes, i };
        memmove(u.at + first + 1, u.at + end, (u.count - end) * sizeof *u.at);
        u.count -= end - first - 1;
    }
    free(waited);
    free(u.at);
    return waits;
}
