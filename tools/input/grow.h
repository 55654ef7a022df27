/*
 * grow: the one way in which tools/input's arrays grow. The caller owns the array and frees it with free().
 */
#ifndef WEIR_TOOLS_INPUT_GROW_H
#define WEIR_TOOLS_INPUT_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Makes room for at least `wanted` items. On false the array stands as it was. */
static inline bool grow(void **items, size_t *capacity, size_t wanted, size_t item_bytes)
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

#endif
