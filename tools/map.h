/*
 * map: (device, number) -> value, for the addresses and streams of a trace. Entries are never removed.
 * Owner: the caller, until map_release. An entry is valid until the next map_put.
 */
#ifndef WEIR_TOOLS_MAP_H
#define WEIR_TOOLS_MAP_H

#include <stddef.h>
#include <stdint.h>

typedef struct map_entry {
    uint64_t number;
    uint32_t value;
    int16_t device;
    uint16_t state; /* the user's; 0: not in the map */
} map_entry;

typedef struct map {
    map_entry *entries;
    size_t capacity, count; /* capacity is 0 or a power of two */
} map;

/* NULL when it is not there. */
map_entry *map_find(const map *m, int16_t device, uint64_t number);

/* The entry, made if needed with value and state 0. The caller must set a state before the next call. */
map_entry *map_put(map *m, int16_t device, uint64_t number);

void map_release(map *m);

#endif
