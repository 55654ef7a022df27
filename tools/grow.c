#include "grow.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

void grow_stop(size_t count, size_t item)
{
    fprintf(stderr, "weir: out of memory for %zu items of %zu bytes; close other programs or use a machine with more\n",
            count, item);
    exit(EXIT_FAILURE);
}

void *grow_new(size_t count, size_t item)
{
    void *made = calloc(count ? count : 1, item);
    if (!made) grow_stop(count, item);
    return made;
}

void *grow_array(void *array, size_t count, size_t *capacity, size_t item)
{
    if (!grow_try(&array, capacity, count, item)) grow_stop(count, item);
    return array;
}
