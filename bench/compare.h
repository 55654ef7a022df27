/*
 * compare: a table of the same figure for every peer of a field, each also as its ratio to the first one, weir.
 * Owner: the benchmark that fills it, from compare_begin to compare_print.
 */
#ifndef WEIR_BENCH_COMPARE_H
#define WEIR_BENCH_COMPARE_H

#include "output/table.h"
#include "peers.h"

typedef struct compare {
    table rows;
    const field *field;
    char align[TABLE_COLUMNS + 1];
} compare;

/* Rows are named by `what` and a number of threads. */
void compare_begin(compare *c, const char *what, const field *f);

/* The results of the field's players are arrays of double, of which the row shows those at `index`; 0: it has none. */
void compare_row(compare *c, const char *what, unsigned threads, size_t index);

/* Shows the table, and releases it. */
void compare_print(compare *c);

/* A player's figure of a row. */
double compare_figure(const player *p, size_t index);

#endif
