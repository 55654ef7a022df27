/*
 * grow: arrays of a command. A command has nothing to save when memory is out, so these stop it with a message and
 * exit code 1 instead of failing.
 */
#ifndef WEIR_TOOLS_GROW_H
#define WEIR_TOOLS_GROW_H

#include <stddef.h>

/* Zeroed memory for `count` items, never NULL; freed with free(). */
void *grow_new(size_t count, size_t item);

/* `array` with room for at least `count` items of which it has room for *capacity; *capacity grows by half at least. */
void *grow_array(void *array, size_t count, size_t *capacity, size_t item);

#endif
