#include "stat/holders.h"

#include "grow.h"
#include "output/caller.h"

#include <stdlib.h>
#include <string.h>

/* Equal frames are nearly always one string. */
static int by_origin(const void *left, const void *right)
{
    const holder *a = left, *b = right;
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    return a->caller == b->caller ? 0 : strcmp(a->caller, b->caller);
}

static int by_bytes(const void *left, const void *right)
{
    const holder *a = left, *b = right;
    if (a->active != b->active) return a->active > b->active ? -1 : 1;
    return by_origin(a, b);
}

/* Of equal blocks the older counts as the largest. */
static void add(const timeline *l, holder *to, const holder *from)
{
    const uint64_t bytes = l->blocks[from->largest].bytes, most = l->blocks[to->largest].bytes;
    if (bytes > most || (bytes == most && from->largest < to->largest)) to->largest = from->largest;
    to->requested += from->requested;
    to->active += from->active;
    to->blocks += from->blocks;
}

holders holders_find(const timeline *l, const uint8_t *ranks, const instant_point *p)
{
    holder *list = NULL;
    size_t held = 0, capacity = 0, count = 0;
    for (size_t i = 0; i < l->block_count; i++) {
        const timeline_block *b = &l->blocks[i];
        if (!instant_holds(l, p, b)) continue;
        list = grow_array(list, held + 1, &capacity, sizeof *list);
        list[held++] = (holder){ .requested = timeline_lives(b, p->moment) ? b->bytes : 0,
                                 .active = b->bytes,
                                 .blocks = 1,
                                 .largest = (uint32_t)i,
                                 .lane = b->lane,
                                 .caller = caller_first(&l->trace->stacks, ranks, b->stack) };
    }
    if (!held) return (holders){ 0 };
    qsort(list, held, sizeof *list, by_origin);
    for (size_t i = 0; i < held; i++) {
        if (count && by_origin(&list[count - 1], &list[i]) == 0)
            add(l, &list[count - 1], &list[i]);
        else
            list[count++] = list[i];
    }
    qsort(list, count, sizeof *list, by_bytes);
    return (holders){ list, count };
}

void holders_release(holders *h)
{
    free(h->list);
    *h = (holders){ 0 };
}
