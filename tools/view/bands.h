/*
 * bands: chooses the blocks of a timeline worth drawing, and stacks each on the older ones; bands.js does the same for
 * a window. Blocks left out still count in the total drawn behind them.
 * Owner: the caller of bands_build, until bands_release.
 */
#ifndef WEIR_TOOLS_VIEW_BANDS_H
#define WEIR_TOOLS_VIEW_BANDS_H

#include "timeline/timeline.h"

/* From column `x` on, the lower edge is at `y` bytes. */
typedef struct band_step {
    uint32_t x;
    uint64_t y;
} band_step;

typedef struct band {
    uint32_t block;
    uint32_t begins, ends; /* columns; a narrower band gets one column */
    size_t count, capacity;
    band_step *steps;
} band;

typedef struct bands {
    band *at; /* by begin */
    size_t count;
} bands;

/* Fits `moments` moments (those of the longest of several timelines) into `columns` columns. A row of pixels stands for
 * `bytes_per_pixel`. At most `most` bands. */
void bands_build(const timeline *l, uint32_t moments, uint32_t columns, double bytes_per_pixel, size_t most,
                 bands *out);

/* The column of a moment. */
uint32_t bands_column(uint32_t moment, uint32_t moments, uint32_t columns);

void bands_release(bands *b);

#endif
