/*
 * empties: how many allocations of 0 bytes are live at each address. Several may share an address, since none has
 * memory.
 */
#ifndef WEIR_TOOLS_INPUT_EMPTIES_H
#define WEIR_TOOLS_INPUT_EMPTIES_H

#include <stdbool.h>
#include <stdint.h>

/* Counts one more; *set is NULL at first. False: no memory. */
bool empties_add(void **set, uint64_t address);

/* Counts one less; false: there was none. */
bool empties_remove(void **set, uint64_t address);

void empties_release(void *set);

#endif
