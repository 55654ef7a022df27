/*
 * table: rows of text in aligned columns, for people.
 * Owner: the caller, until table_release. Texts are copied and made safe by text.h.
 */
#ifndef WEIR_TOOLS_OUTPUT_TABLE_H
#define WEIR_TOOLS_OUTPUT_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TABLE_COLUMNS 40

typedef struct table {
    size_t columns;
    const char *align; /* one letter per column: 'l' or 'r' */
    char **cells;      /* rows * columns; an unset one is NULL */
    size_t count, capacity;
} table;

/* `align` is static; its length is the number of columns, at most TABLE_COLUMNS. */
void table_init(table *t, const char *align);

/* A row of titles, one per column. */
void table_titles(table *t, const char *const *titles);

/* The next cell, left to right and row by row. */
void table_cell(table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Columns are as wide as their widest cell, with two blanks between them. */
void table_print(const table *t, FILE *out);
void table_release(table *t);

#define TABLE_SIZE 32

/* "512 B", "4.00 KiB", "20.0 MiB": three significant digits. Returns `buffer`. */
const char *table_size(uint64_t bytes, char buffer[TABLE_SIZE]);

#endif
