/*
 * bands: which blocks of a timeline are worth drawing, and where each lies on top of the older ones: bands.js does the
 * same for a window. What is left out stays part of the total behind them.
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
    uint32_t begins, ends; /* columns; a band of less than one column has one */
    size_t count, capacity;
    band_step *steps;
} band;

typedef struct bands {
    band *at; /* by begin */
    size_t count;
} bands;

/* The whole timeline of `moments` moments (of the longest of several) in `columns` columns; a row of pixels is
 * `bytes_per_pixel` high. At most `most` bands. */
void bands_build(const timeline *l, uint32_t moments, uint32_t columns, double bytes_per_pixel, size_t most,
                 bands *out);

/* The column of a moment. */
uint32_t bands_column(uint32_t moment, uint32_t moments, uint32_t columns);

void bands_release(bands *b);

#endif
