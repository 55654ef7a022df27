#include "plan/order.h"

#include "grow.h"

#include <stdlib.h>
#include <string.h>

typedef struct sortable {
    double first, second; /* in descending order */
    uint32_t place, block;
} sortable;

static int descending(const void *left, const void *right)
{
    const sortable *a = left, *b = right;
    if (a->first != b->first) return a->first > b->first ? -1 : 1;
    if (a->second != b->second) return a->second > b->second ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

static void sort_blocks(sortable *s, size_t count, uint32_t *out)
{
    qsort(s, count, sizeof *s, descending);
    for (size_t i = 0; i < count; i++) out[i] = s[i].block;
    free(s);
}

/* The distance in sections between the block's life and section `at`. */
static uint32_t distance(const plan_block *b, uint32_t at)
{
    uint32_t nearest = UINT32_MAX;
    for (int i = 0; i < 2; i++) {
        span s = b->life[i];
        if (s.start == s.end) continue;
        uint32_t far = at < s.start ? s.start - at : at >= s.end ? at - s.end + 1 : 0;
        if (far < nearest) nearest = far;
    }
    return nearest;
}

static uint32_t fullest(const part *p, const uint64_t *load)
{
    uint32_t best = p->sections.start;
    for (uint32_t i = best; i < p->sections.end; i++)
        if (load[i] > load[best]) best = i;
    return best;
}

void order_blocks(const layout *l, const part *p, const uint64_t *load, order_kind kind, uint32_t *out)
{
    uint32_t peak = fullest(p, load);
    sortable *s = grow_new(p->count, sizeof *s);
    for (uint32_t i = 0; i < p->count; i++) {
        const plan_block *b = &l->blocks[p->blocks[i]];
        double bytes = (double)b->bytes, life = block_sections(b);
        s[i] = (sortable){ 0, 0, i, p->blocks[i] };
        switch (kind) {
        case ORDER_SIZE: s[i].first = bytes, s[i].second = life; break;
        case ORDER_LIFE: s[i].first = life, s[i].second = bytes; break;
        case ORDER_AREA: s[i].first = bytes * life; break;
        case ORDER_PEAK: s[i].first = -(double)distance(b, peak), s[i].second = bytes; break;
        case ORDER_START: break;
        }
    }
    sort_blocks(s, p->count, out);
}

void order_by(uint32_t *blocks, size_t count, const double *weight)
{
    sortable *s = grow_new(count, sizeof *s);
    for (uint32_t i = 0; i < count; i++) s[i] = (sortable){ weight[blocks[i]], 0, i, blocks[i] };
    sort_blocks(s, count, blocks);
}

void order_by_offset(uint32_t *blocks, size_t count, const uint64_t *offset)
{
    sortable *s = grow_new(count, sizeof *s);
    for (uint32_t i = 0; i < count; i++) s[i] = (sortable){ -(double)offset[blocks[i]], 0, i, blocks[i] };
    sort_blocks(s, count, blocks);
}
