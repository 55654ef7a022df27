#include "compare.h"

#include <assert.h>
#include <stdio.h>

enum { LABELS = 2 };
static_assert(LABELS + 2 * FIELD_MAX - 1 <= TABLE_COLUMNS, "a column and a ratio for every player");

void compare_begin(compare *c, const char *what, const field *f)
{
    const size_t columns = LABELS + 2 * f->count - 1;
    *c = (compare){ .field = f };
    memset(c->align, 'r', columns);
    c->align[0] = 'l';
    table_init(&c->rows, c->align);
    table_cell(&c->rows, "%s", what);
    table_cell(&c->rows, "threads");
    for (size_t i = 0; i < f->count; i++) table_cell(&c->rows, "%s", f->at[i].name);
    for (size_t i = 1; i < f->count; i++) table_cell(&c->rows, "%s/%s", f->at[i].name, f->at[0].name);
}

double compare_figure(const player *p, size_t index)
{
    return ((const double *)p->result)[index];
}

void compare_row(compare *c, const char *what, unsigned threads, size_t index)
{
    const field *f = c->field;
    const double weir = compare_figure(&f->at[0], index);
    table_cell(&c->rows, "%s", what);
    table_cell(&c->rows, "%u", threads);
    for (size_t i = 0; i < f->count; i++) {
        const double figure = compare_figure(&f->at[i], index);
        table_cell(&c->rows, figure > 0 ? "%.1f" : "-", figure);
    }
    for (size_t i = 1; i < f->count; i++) {
        const double ratio = weir > 0 ? compare_figure(&f->at[i], index) / weir : 0;
        table_cell(&c->rows, ratio <= 0 ? "-" : ratio < 0.1 ? "%.4f" : ratio < 10 ? "%.2f" : "%.0f", ratio);
    }
}

void compare_print(compare *c)
{
    table_print(&c->rows, stdout);
    putchar('\n');
    table_release(&c->rows);
}
