#include "grow.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static _Noreturn void stop(size_t count, size_t item)
{
    fprintf(stderr, "weir: out of memory for %zu items of %zu bytes; close other programs or use a machine with more\n",
            count, item);
    exit(EXIT_FAILURE);
}

void *grow_new(size_t count, size_t item)
{
    void *made = calloc(count ? count : 1, item);
    if (!made) stop(count, item);
    return made;
}

void *grow_array(void *array, size_t count, size_t *capacity, size_t item)
{
    if (count <= *capacity) return array;

    size_t wanted = *capacity + *capacity / 2;
    if (wanted < count) wanted = count;
    if (wanted < 16) wanted = 16;
    if (wanted > SIZE_MAX / item) stop(wanted, item);

    void *grown = realloc(array, wanted * item);
    if (!grown) stop(wanted, item);
    *capacity = wanted;
    return grown;
}
