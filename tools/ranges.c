#include "ranges.h"

#include "grow.h"

#include <stdlib.h>

static int by_place(const range *a, const range *b)
{
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    return (a->address > b->address) - (a->address < b->address);
}

/* The header's macro for static functions says __unused, which glibc does not have. */
RB_GENERATE_INTERNAL(range_tree, range, link, by_place, __attribute__((unused)) static)

static uint64_t end_of(const range *r)
{
    return r->address > UINT64_MAX - r->bytes ? UINT64_MAX : r->address + r->bytes;
}

range *ranges_find(const ranges *r, int16_t device, uint64_t address)
{
    range *found = NULL, *at = RB_ROOT(&r->tree);
    while (at) {
        const bool before = at->device != device ? at->device < device : end_of(at) <= address;
        if (!before) found = at;
        at = before ? RB_RIGHT(at, link) : RB_LEFT(at, link);
    }
    return found;
}

range *ranges_first(const ranges *r)
{
    return ranges_find(r, INT16_MIN, 0);
}

range *ranges_next(range *of)
{
    return RB_NEXT(range_tree, NULL, of);
}

const range *ranges_at(const ranges *r, int16_t device, uint64_t address)
{
    const range *at = ranges_find(r, device, address);
    return at && at->device == device && at->address <= address ? at : NULL;
}

void ranges_add(ranges *r, range added)
{
    if (end_of(&added) == added.address) return; /* 0 bytes, or wholly beyond the last address */
    range *made = grow_new(1, sizeof *made);
    *made = added;
    RB_INSERT(range_tree, &r->tree, made);
    r->count++;
}

static void drop(ranges *r, range *gone)
{
    RB_REMOVE(range_tree, &r->tree, gone);
    r->count--;
    free(gone);
}

uint64_t ranges_cut(ranges *r, int16_t device, uint64_t address, uint64_t bytes, ranges_on_cut on_cut, void *user)
{
    const range wanted = { .address = address, .bytes = bytes, .device = device };
    const uint64_t end = end_of(&wanted);
    uint64_t found = 0;

    for (range *at; (at = ranges_find(r, device, address));) {
        const range old = *at;
        if (old.device != device || old.address >= end) break;
        drop(r, at);

        range left = old, right = old;
        left.bytes = old.address < address ? address - old.address : 0;
        right.address = end < end_of(&old) ? end : end_of(&old);
        right.bytes = end_of(&old) - right.address;
        found += old.bytes - left.bytes - right.bytes;
        if (on_cut) on_cut(user, &old, &left, &right);
        ranges_add(r, left);
        ranges_add(r, right);
    }
    return found;
}

void ranges_release(ranges *r)
{
    for (range *at = ranges_first(r), *next; at; at = next) {
        next = ranges_next(at);
        drop(r, at);
    }
    *r = (ranges){ 0 };
}
