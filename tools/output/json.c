#include "output/json.h"

#include "cli.h"
#include "grow.h"
#include "output/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void json_must(int result)
{
    if (result == 0) return;
    cli_say(NULL, "out of memory for JSON; close other programs or use a machine with more");
    exit(EXIT_FAILURE);
}

void json_add(json_t *object, const char *name, json_t *value)
{
    json_must(json_object_set_new(object, name, value));
}

void json_push(json_t *array, json_t *value)
{
    json_must(json_array_append_new(array, value));
}

json_t *json_count(uint64_t value)
{
    return json_integer(value < INT64_MAX ? (json_int_t)value : INT64_MAX);
}

json_t *json_name(uint64_t value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return json_integer(bits);
}

json_t *json_ratio(double ratio, int digits)
{
    if (!isfinite(ratio)) return json_null();
    double unit = pow(10, digits);
    return json_real(round(ratio * unit) / unit);
}

/* The length of the first character in bytes; 0 when it is not valid UTF-8. */
static size_t character(const char *text)
{
    size_t left = strnlen(text, 4);
    for (size_t n = 1; n <= left; n++) {
        json_t *whole = json_stringn(text, n);
        json_decref(whole);
        if (whole) return n;
    }
    return 0;
}

json_t *json_text(const char *text)
{
    static const char unknown[] = "\xef\xbf\xbd"; /* U+FFFD */
    json_t *whole = json_string(text);
    if (whole) return whole;

    char *mended = grow_new(strlen(text) + 1, sizeof unknown), *end = mended;
    while (*text) {
        size_t n = character(text);
        end = mempcpy(end, n ? text : unknown, n ? n : sizeof unknown - 1);
        text += n ? n : 1;
    }
    whole = json_stringn(mended, (size_t)(end - mended));
    free(mended);
    return whole;
}

bool json_write(const char *command, const json_t *value, const char *path)
{
    output_file file;
    if (!output_open(command, path, &file)) return false;
    /* A double holds 15 decimal digits, so 1.19 does not become 1.1899999999999999. Names in a trace may hold any
     * character, and terminals obey some beyond ASCII. */
    int result = json_dumpf(value, file.stream,
                            JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15));
    if (!ferror(file.stream)) json_must(result); /* output_commit reports that a write failed */
    fputc('\n', file.stream);
    return output_commit(command, &file);
}
