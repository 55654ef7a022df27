/*
 * columns: numbers packed for the page, column after column, as variable-length integers (7 bits per byte, the low ones
 * first), deflated, in base64. data.js reads them.
 * Owner: the caller, until columns_release.
 */
#ifndef WEIR_TOOLS_VIEW_COLUMNS_H
#define WEIR_TOOLS_VIEW_COLUMNS_H

#include "timeline/timeline.h"

#include <jansson.h>
#include <stdio.h>

typedef struct columns {
    uint8_t *bytes;
    size_t count, capacity;
    uint64_t base; /* addresses count from here */
    json_t *about; /* array of {name, count}, in order */
} columns;

void columns_build(const timeline *l, columns *out);
void columns_write(const columns *c, FILE *to);
void columns_release(columns *c);

#endif
