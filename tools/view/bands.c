#include "view/bands.h"

#include "grow.h"

#include <stdlib.h>
#include <string.h>

/* Pixels: smaller bands would not be visible. */
#define LEAST_WIDE 0.7
#define LEAST_TALL 0.15
#define LEAST_AREA 0.8

typedef struct candidate {
    double area;
    uint32_t block;
} candidate;

static int larger_first(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    if (a->area != b->area) return a->area > b->area ? -1 : 1;
    return a->block < b->block ? -1 : a->block > b->block;
}

static int older_first(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    return a->block < b->block ? -1 : a->block > b->block;
}

uint32_t bands_column(uint32_t moment, uint32_t moments, uint32_t columns)
{
    if (moment >= moments) return columns;
    return (uint32_t)((uint64_t)moment * columns / moments);
}

/* The blocks that fill most of the picture, in the order of their start. */
static size_t choose(const timeline *l, double columns_per_moment, double bytes_per_pixel, size_t most, candidate **out)
{
    candidate *found = NULL;
    size_t count = 0, capacity = 0;
    for (size_t i = 0; i < l->block_count; i++) {
        const timeline_block *b = &l->blocks[i];
        uint32_t end = b->until < l->moments ? b->until : l->moments;
        double wide = (end - b->from) * columns_per_moment, tall = (double)b->bytes / bytes_per_pixel;
        if (wide < LEAST_WIDE || tall < LEAST_TALL || wide * tall < LEAST_AREA) continue;
        found = grow_array(found, count + 1, &capacity, sizeof *found);
        found[count++] = (candidate){ wide * tall, (uint32_t)i };
    }
    if (count > most) {
        qsort(found, count, sizeof *found, larger_first);
        count = most;
    }
    if (count) qsort(found, count, sizeof *found, older_first);
    *out = found;
    return count;
}

static void add_step(band *b, uint32_t x, uint64_t y)
{
    if (b->count && b->steps[b->count - 1].y == y) return;
    b->steps = grow_array(b->steps, b->count + 1, &b->capacity, sizeof *b->steps);
    b->steps[b->count++] = (band_step){ x, y };
}

/* In each column, the live bands are stacked in the order of their start. */
static void stack(const timeline *l, uint32_t columns, bands *out)
{
    size_t *live = grow_new(out->count, sizeof *live);
    size_t begun = 0, live_count = 0;
    for (uint32_t x = 0; x < columns; x++) {
        size_t kept = 0;
        uint64_t y = 0;
        while (begun < out->count && out->at[begun].begins <= x) live[live_count++] = begun++;
        for (size_t i = 0; i < live_count; i++) {
            band *b = &out->at[live[i]];
            if (b->ends <= x) continue;
            live[kept++] = live[i];
            add_step(b, x, y);
            y += l->blocks[b->block].bytes;
        }
        live_count = kept;
    }
    free(live);
}

void bands_build(const timeline *l, uint32_t moments, uint32_t columns, double bytes_per_pixel, size_t most, bands *out)
{
    candidate *chosen;
    *out = (bands){ .count = choose(l, (double)columns / moments, bytes_per_pixel, most, &chosen) };
    out->at = grow_new(out->count, sizeof *out->at);
    for (size_t i = 0; i < out->count; i++) {
        const timeline_block *b = &l->blocks[chosen[i].block];
        uint32_t begins = bands_column(b->from, moments, columns), ends = bands_column(b->until, moments, columns);
        out->at[i] = (band){ .block = chosen[i].block, .begins = begins, .ends = ends > begins ? ends : begins + 1 };
    }
    free(chosen);
    stack(l, columns, out);
}

void bands_release(bands *b)
{
    for (size_t i = 0; i < b->count; i++) free(b->at[i].steps);
    free(b->at);
    *b = (bands){ 0 };
}
