#include "ranges.h"

#include "grow.h"

#include <stdlib.h>
#include <string.h>

static uint64_t end_of(const range *r)
{
    return r->address > UINT64_MAX - r->bytes ? UINT64_MAX : r->address + r->bytes;
}

size_t ranges_find(const ranges *r, int16_t device, uint64_t address)
{
    size_t low = 0, high = r->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const range *m = &r->at[middle];
        bool before = m->device != device ? m->device < device : end_of(m) <= address;
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const range *ranges_at(const ranges *r, int16_t device, uint64_t address)
{
    size_t i = ranges_find(r, device, address);
    bool inside = i < r->count && r->at[i].device == device && r->at[i].address <= address;
    return inside ? &r->at[i] : NULL;
}

void ranges_add(ranges *r, range added)
{
    if (added.bytes == 0) return;
    size_t i = ranges_find(r, added.device, added.address);
    r->at = grow_array(r->at, r->count + 1, &r->capacity, sizeof *r->at);
    memmove(&r->at[i + 1], &r->at[i], (r->count - i) * sizeof *r->at);
    r->at[i] = added;
    r->count++;
}

uint64_t ranges_cut(ranges *r, int16_t device, uint64_t address, uint64_t bytes, ranges_on_cut on_cut, void *user)
{
    range wanted = { .address = address, .bytes = bytes, .device = device };
    uint64_t end = end_of(&wanted), found = 0;

    for (size_t i; i = ranges_find(r, device, address), i < r->count;) {
        range old = r->at[i];
        if (old.device != device || old.address >= end) break;
        memmove(&r->at[i], &r->at[i + 1], (--r->count - i) * sizeof *r->at);

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
    free(r->at);
    *r = (ranges){ 0 };
}
