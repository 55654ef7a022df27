#include "observe/emit.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void wr_emit_bytes(wr_emit *e, const char *bytes, size_t count)
{
    if (e->length < e->capacity) {
        const size_t room = e->capacity - e->length;
        memcpy(e->buffer + e->length, bytes, count < room ? count : room);
    }
    e->length += count;
}

/* For short pieces: numbers, names. */
void wr_emit_format(wr_emit *e, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length > 0) wr_emit_bytes(e, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
}

void wr_emit_finish(wr_emit *e)
{
    if (e->capacity == 0) return;
    const bool cut = e->length >= e->capacity;
    e->buffer[cut ? wr_utf8_whole(e->buffer, e->capacity - 1) : e->length] = '\0';
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void quote(wr_emit *e, const char *text)
{
    wr_emit_bytes(e, "\"", 1);
    for (const char *end = text + strlen(text); text != end;) {
        const unsigned char c = (unsigned char)*text;
        size_t bytes;
        const char *character = wr_utf8_next(&text, end, &bytes);
        if (c == '"' || c == '\\')
            wr_emit_format(e, "\\%c", c);
        else if (c < 0x20)
            wr_emit_format(e, "\\u%04x", c);
        else
            wr_emit_bytes(e, character, bytes);
    }
    wr_emit_bytes(e, "\"", 1);
}

static void begin_value(wr_emit *e, const char *key)
{
    if (e->follows) wr_emit_bytes(e, ",", 1);
    e->follows = true;
    if (!key) return;
    quote(e, key);
    wr_emit_bytes(e, ":", 1);
}

void wr_json_open(wr_emit *e, const char *key, char bracket)
{
    begin_value(e, key);
    wr_emit_bytes(e, &bracket, 1);
    e->follows = false;
}

void wr_json_close(wr_emit *e, char bracket)
{
    wr_emit_bytes(e, &bracket, 1);
    e->follows = true;
}

void wr_json_string(wr_emit *e, const char *key, const char *text)
{
    begin_value(e, key);
    quote(e, text);
}

void wr_json_number(wr_emit *e, const char *key, int64_t number)
{
    begin_value(e, key);
    wr_emit_format(e, "%lld", (long long)number);
}

void wr_json_count(wr_emit *e, const char *key, uint64_t number)
{
    begin_value(e, key);
    wr_emit_format(e, "%llu", (unsigned long long)number);
}
