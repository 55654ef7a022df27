/*
 * compare: a table of one figure for every peer of a field, and of its ratio to the first peer's, weir's.
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

/* The results of the field's players are arrays of double; the row shows those at `index`. 0: no result. */
void compare_row(compare *c, const char *what, unsigned threads, size_t index);

/* Prints the table and releases it. */
void compare_print(compare *c);

/* A player's figure of a row. */
double compare_figure(const player *p, size_t index);

#endif
