/*
 * grow: arrays that grow. The caller owns them and frees them with free().
 */
#ifndef WEIR_TOOLS_GROW_H
#define WEIR_TOOLS_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Makes room for at least `wanted` items. On false the array is unchanged; readers then say what was too large. */
static inline bool grow_try(void **items, size_t *capacity, size_t wanted, size_t item_bytes)
{
    if (wanted <= *capacity) return true;
    size_t roomy = *capacity + *capacity / 2;
    if (roomy < 16) roomy = 16;
    if (roomy < wanted) roomy = wanted;
    if (roomy > SIZE_MAX / item_bytes) return false;

    void *moved = realloc(*items, roomy * item_bytes);
    if (!moved) return false;
    *items = moved;
    *capacity = roomy;
    return true;
}

/* A command has nothing to save when memory runs out, so these end it with a message and exit code 1. */

_Noreturn void grow_stop(size_t count, size_t item);

/* Zeroed memory for `count` items, never NULL; freed with free(). */
void *grow_new(size_t count, size_t item);

/* `array`, which has room for *capacity items, grown to at least `count`. */
void *grow_array(void *array, size_t count, size_t *capacity, size_t item);

#endif
