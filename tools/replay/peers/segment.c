#include "replay/peers/segment.h"

#include "grow.h"

#include <stdlib.h>

chunk *chunk_alloc(chunks *from, driver *d, uint64_t bytes, void *owner)
{
    uint64_t address;
    return driver_alloc(d, bytes, &address) ? chunk_new(from, address, bytes, owner) : NULL;
}

void chunk_free(chunks *from, driver *d, chunk *c)
{
    driver_free(d, c->address, c->bytes);
    chunk_drop(from, c);
}

void chunk_release_idle(chunks *from, struct chunk_tree *tree, driver *d)
{
    for (chunk *c = chunk_best(tree, 0), *next; c; c = next) {
        next = chunk_next(c);
        if (c->before || c->after) continue;
        chunk_take(tree, c);
        chunk_free(from, d, c);
    }
}

struct chunk_tree *chunk_list(chunk_lists *lists, uint32_t index)
{
    while (lists->count <= index) {
        lists->at = grow_array(lists->at, lists->count + 1, &lists->capacity, sizeof(struct chunk_tree *));
        lists->at[lists->count++] = grow_new(1, sizeof(struct chunk_tree));
    }
    return lists->at[index];
}

void chunk_lists_release(chunk_lists *lists)
{
    for (size_t i = 0; i < lists->count; i++) free(lists->at[i]);
    free(lists->at);
    *lists = (chunk_lists){ 0 };
}

uint64_t round_up(uint64_t bytes, uint64_t multiple)
{
    return (bytes + multiple - 1) / multiple * multiple;
}
