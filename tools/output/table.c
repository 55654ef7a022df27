#include "output/table.h"

#include "grow.h"
#include "output/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void table_init(table *t, const char *align)
{
    *t = (table){ .columns = strlen(align), .align = align };
}

void table_cell(table *t, const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0) grow_stop(strlen(format), 1);
    va_end(arguments);

    const size_t size = strlen(text) + 1; /* unprintable characters become one byte each */
    t->cells = grow_array(t->cells, t->count + 1, &t->capacity, sizeof *t->cells);
    t->cells[t->count] = grow_new(size, 1);
    text_plain(text, t->cells[t->count++], size);
    free(text);
}

void table_titles(table *t, const char *const *titles)
{
    for (size_t i = 0; i < t->columns; i++) table_cell(t, "%s", titles[i]);
}

/* The number of UTF-8 characters; all are assumed to be equally wide. */
static size_t characters(const char *text)
{
    size_t count = 0;
    for (; *text; text++) count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

void table_print(const table *t, FILE *out)
{
    size_t width[TABLE_COLUMNS] = { 0 };
    for (size_t i = 0; i < t->count; i++) {
        size_t length = characters(t->cells[i]);
        if (length > width[i % t->columns]) width[i % t->columns] = length;
    }
    for (size_t i = 0; i < t->count; i++) {
        size_t column = i % t->columns;
        bool last = column + 1 == t->columns, right = t->align[column] == 'r';
        const int blanks = (int)(width[column] - characters(t->cells[i]));
        fprintf(out, "%*s%s%*s%s", right ? blanks : 0, "", t->cells[i], right || last ? 0 : blanks, "",
                last ? "\n" : "  ");
    }
}

void table_release(table *t)
{
    for (size_t i = 0; i < t->count; i++) free(t->cells[i]);
    free(t->cells);
    *t = (table){ 0 };
}

const char *table_size(uint64_t bytes, char buffer[TABLE_SIZE])
{
    static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    if (bytes < 1024) {
        snprintf(buffer, TABLE_SIZE, "%" PRIu64 " B", bytes);
        return buffer;
    }
    double size = (double)bytes / 1024;
    size_t unit = 0;
    while (size >= 1023.95 && unit + 1 < sizeof units / sizeof *units) {
        size /= 1024;
        unit++;
    }
    snprintf(buffer, TABLE_SIZE, "%.*f %s", size < 10 ? 2 : size < 100 ? 1 : 0, size, units[unit]);
    return buffer;
}
