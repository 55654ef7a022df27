#include "empties.h"

#include <search.h>
#include <stdlib.h>

typedef struct empty {
    uint64_t address, count;
} empty;

static int by_address(const void *left, const void *right)
{
    const empty *a = left, *b = right;
    return (a->address > b->address) - (a->address < b->address);
}

bool empties_add(void **set, uint64_t address)
{
    empty *made = malloc(sizeof *made);
    if (!made) return false;
    *made = (empty){ .address = address };
    empty **at = tsearch(made, set, by_address);
    if (at) (*at)->count++;
    if (!at || *at != made) free(made);
    return at != NULL;
}

bool empties_remove(void **set, uint64_t address)
{
    const empty key = { .address = address };
    empty **at = tfind(&key, set, by_address);
    const bool there = at && (*at)->count != 0;
    if (there) (*at)->count--;
    return there;
}

void empties_release(void *set)
{
    tdestroy(set, free);
}
