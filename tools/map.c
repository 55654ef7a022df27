#include "map.h"

#include "grow.h"

#include <stdlib.h>

/* The entry of the key, or the empty one where it belongs. At most half of the entries are taken, so the loop ends. */
static map_entry *probe(const map *m, int16_t device, uint64_t number)
{
    uint64_t hash = (number ^ (uint64_t)(uint16_t)device << 48) * UINT64_C(0x9e3779b97f4a7c15);
    size_t mask = m->capacity - 1;
    for (size_t i = (size_t)(hash >> 32) & mask;; i = (i + 1) & mask) {
        map_entry *e = &m->entries[i];
        if (e->state == 0 || (e->number == number && e->device == device)) return e;
    }
}

map_entry *map_find(const map *m, int16_t device, uint64_t number)
{
    if (m->capacity == 0) return NULL;
    map_entry *e = probe(m, device, number);
    return e->state ? e : NULL;
}

static void enlarge(map *m)
{
    map old = *m;
    m->capacity = old.capacity ? 2 * old.capacity : 1024;
    m->entries = grow_new(m->capacity, sizeof *m->entries);
    for (size_t i = 0; i < old.capacity; i++) {
        const map_entry *e = &old.entries[i];
        if (e->state) *probe(m, e->device, e->number) = *e;
    }
    free(old.entries);
}

map_entry *map_put(map *m, int16_t device, uint64_t number)
{
    if (2 * (m->count + 1) > m->capacity) enlarge(m);
    map_entry *e = probe(m, device, number);
    if (e->state) return e;
    *e = (map_entry){ .number = number, .device = device };
    m->count++;
    return e;
}

void map_release(map *m)
{
    free(m->entries);
    *m = (map){ 0 };
}
