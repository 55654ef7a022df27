#include "csv.h"

#include "empties.h"
#include "grow.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#define COLUMNS_MAX 32
#define DAY_NS (UINT64_C(86400) * 1000000000)
#define LATE_NS (UINT64_C(60) * 1000000000) /* by how much rows may be out of order */

typedef enum column { THREAD, TIME, ACTION, POINTER, SIZE, STREAM, COLUMN_COUNT } column;
static const char *const column_names[] = { "Thread", "Time", "Action", "Pointer", "Size", "Stream" };

typedef struct span {
    const char *text;
    size_t length;
} span;

typedef struct log_reader {
    source *s;
    const trace_limits *limits;
    trace *out;
    size_t capacity;
    uint64_t line, offset;   /* of the current line, for messages; lines count from 1 */
    bool whole;              /* the line ended with a newline */
    int place[COLUMN_COUNT]; /* -1: the log has no such column */
    int columns;
    uint64_t last_ns, days_ns; /* clock times start again at midnight */
    uint64_t *thread_ids;      /* hash table, open addressing */
    uint32_t *thread_numbers;  /* 0: free slot */
    size_t thread_slots;
    uint32_t threads;
    void *empties; /* allocations of 0 bytes that are live */
} log_reader;

static bool is(span field, const char *text)
{
    return field.length == strlen(text) && memcmp(field.text, text, field.length) == 0;
}

static span trimmed(const char *text, size_t length)
{
    while (length && (*text == ' ' || *text == '"')) text++, length--;
    while (length && (text[length - 1] == ' ' || text[length - 1] == '"')) length--;
    return (span){ text, length };
}

static int split(const char *line, size_t length, span fields[COLUMNS_MAX])
{
    int count = 0;
    for (const char *at = line, *end = line + length; count < COLUMNS_MAX; at++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        if (!comma) comma = end;
        fields[count++] = trimmed(at, (size_t)(comma - at));
        if (comma == end) break;
        at = comma;
    }
    return count;
}

/* The names of the columns. Returns how many there are. */
static int split_header(const char *line, size_t length, span fields[COLUMNS_MAX])
{
    const bool marked = length >= 3 && memcmp(line, "\xEF\xBB\xBF", 3) == 0; /* as UTF-8, by some editors */
    if (marked) line += 3, length -= 3;
    const char *end = memchr(line, '\r', length); /* csv_read refuses what has no other line ends */
    return split(line, end ? (size_t)(end - line) : length, fields);
}

static bool find_columns(const char *line, size_t length, int place[COLUMN_COUNT], int *columns)
{
    span fields[COLUMNS_MAX];
    *columns = split_header(line, length, fields);
    for (int c = 0; c < COLUMN_COUNT; c++) {
        place[c] = -1;
        for (int i = 0; i < *columns; i++) {
            if (is(fields[i], column_names[c])) place[c] = i;
        }
    }
    return place[ACTION] >= 0 && place[POINTER] >= 0 && place[SIZE] >= 0;
}

/* NULL: no column is. */
static const char *named_twice(const char *line, size_t length)
{
    span fields[COLUMNS_MAX];
    const int columns = split_header(line, length, fields);
    for (int c = 0; c < COLUMN_COUNT; c++) {
        int times = 0;
        for (int i = 0; i < columns; i++) times += is(fields[i], column_names[c]);
        if (times > 1) return column_names[c];
    }
    return NULL;
}

/* Whether the first line ends with a carriage return alone. */
static bool lacks_newlines(const source *s)
{
    const uint8_t *end = memchr(s->at, '\r', (size_t)(s->end - s->at));
    return end && end + 1 < s->end && end[1] != '\n' && !memchr(s->at, '\n', (size_t)(end - s->at));
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

static bool fail_field(log_reader *r, column c, span field)
{
    return source_fail(r->s, r->offset, "line %" PRIu64 ": %s \"%.*s\" is not valid%s", r->line, column_names[c],
                       field.length > 64 ? 64 : (int)field.length, field.text,
                       r->whole ? "" : "; the line has no newline: remove it if the log was cut off");
}

static bool parse_digits(span field, unsigned base, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < field.length; i++) {
        unsigned char c = (unsigned char)field.text[i];
        unsigned digit = isdigit(c) ? c - (unsigned)'0' : isxdigit(c) ? (unsigned)tolower(c) - 'a' + 10 : 16;
        if (digit >= base || __builtin_mul_overflow(value, (uint64_t)base, &value) ||
            __builtin_add_overflow(value, (uint64_t)digit, &value))
            return false;
    }
    *out = value;
    return field.length > 0;
}

/* Pointers are hexadecimal with or without 0x; printf's %p writes a null pointer as "(nil)". */
static bool parse_number(span field, unsigned base, uint64_t *out)
{
    if (is(field, "(nil)")) {
        *out = 0;
        return true;
    }
    if (field.length > 2 && field.text[0] == '0' && (field.text[1] | 32) == 'x') {
        field = (span){ field.text + 2, field.length - 2 };
        base = 16;
    }
    return parse_digits(field, base, out);
}

/* "15:47:02" */
static bool parse_clock(span field, uint64_t *seconds)
{
    static const unsigned limits[] = { 24, 60, 61 }; /* a leap second is :60 */
    const char *at = field.text, *end = at + field.length;
    *seconds = 0;
    for (int i = 0; i < 3; i++) {
        const char *colon = memchr(at, ':', (size_t)(end - at));
        uint64_t part;
        if (!colon != (i == 2)) return false;
        if (!colon) colon = end;
        if (!parse_digits((span){ at, (size_t)(colon - at) }, 10, &part) || part >= limits[i]) return false;
        *seconds = *seconds * 60 + part;
        at = colon + 1;
    }
    return true;
}

/* The length up to the fraction of a second, which follows a point, or a third colon in old logs. */
static size_t seconds_length(span field)
{
    int colons = 0;
    for (size_t i = 0; i < field.length; i++) {
        colons += field.text[i] == ':';
        if (field.text[i] == '.' || colons == 3) return i;
    }
    return field.length;
}

/* "15:47:02.841961", "15:47:02:841961" in old logs; some tools write seconds, "1634567890.123456". */
static bool parse_time(span field, uint64_t *out, bool *clock)
{
    span whole = { field.text, seconds_length(field) };
    uint64_t fraction = 0, seconds;
    if (whole.length < field.length) {
        span digits = { field.text + whole.length + 1, field.length - whole.length - 1 };
        if (digits.length > 9 || !parse_digits(digits, 10, &fraction)) return false;
        for (size_t i = digits.length; i < 9; i++) fraction *= 10;
    }
    *clock = memchr(whole.text, ':', whole.length) != NULL;
    if (!(*clock ? parse_clock(whole, &seconds) : parse_digits(whole, 10, &seconds))) return false;
    if (seconds > UINT64_MAX / 1000000000 - 1) return false;
    *out = seconds * 1000000000 + fraction;
    return true;
}

/* Rows of racing threads may be a little out of order, also around midnight. A step back by half a day is midnight. */
static uint64_t unwrap(log_reader *r, uint64_t ns)
{
    if (r->days_ns && ns + LATE_NS > DAY_NS + r->last_ns) return r->days_ns - DAY_NS + ns;
    if (r->last_ns > ns + DAY_NS / 2) r->days_ns += DAY_NS;
    r->last_ns = ns;
    return r->days_ns + ns;
}

static bool grow_threads(log_reader *r)
{
    size_t slots = r->thread_slots ? r->thread_slots * 2 : 64;
    uint64_t *ids = calloc(slots, sizeof *ids);
    uint32_t *numbers = calloc(slots, sizeof *numbers);
    if (!ids || !numbers) {
        free(ids);
        free(numbers);
        return source_fail_memory(r->s);
    }
    for (size_t i = 0; i < r->thread_slots; i++) {
        if (!r->thread_numbers[i]) continue;
        size_t at = r->thread_ids[i] * 0x9e3779b97f4a7c15u >> 20 & (slots - 1);
        while (numbers[at]) at = (at + 1) & (slots - 1);
        ids[at] = r->thread_ids[i];
        numbers[at] = r->thread_numbers[i];
    }
    free(r->thread_ids);
    free(r->thread_numbers);
    r->thread_ids = ids;
    r->thread_numbers = numbers;
    r->thread_slots = slots;
    return true;
}

/* Numbers threads from 1, in the order of appearance. */
static bool thread_number(log_reader *r, uint64_t id, uint32_t *out)
{
    if ((size_t)r->threads * 2 >= r->thread_slots && !grow_threads(r)) return false;
    size_t mask = r->thread_slots - 1;
    size_t at = id * 0x9e3779b97f4a7c15u >> 20 & mask;
    while (r->thread_numbers[at] && r->thread_ids[at] != id) at = (at + 1) & mask;
    if (!r->thread_numbers[at]) {
        r->thread_ids[at] = id;
        r->thread_numbers[at] = ++r->threads;
    }
    *out = r->thread_numbers[at];
    return true;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static bool add(log_reader *r, weir_event e, weir_event_kind kind)
{
    if (r->out->count >= r->limits->events)
        return source_fail(r->s, r->offset, "more than %" PRIu64 " events, the limit", r->limits->events);
    if (!grow_try((void **)&r->out->events, &r->capacity, r->out->count + 1, sizeof e)) return source_fail_memory(r->s);
    e.kind = (uint16_t)kind;
    r->out->events[r->out->count++] = e;
    return true;
}

static bool read_fields(log_reader *r, const span *fields, weir_event *e)
{
    static const unsigned base[] = { [THREAD] = 10, [POINTER] = 16, [SIZE] = 10, [STREAM] = 10 };
    uint64_t thread = 0;
    uint64_t *const to[] = { [THREAD] = &thread, [POINTER] = &e->address, [SIZE] = &e->size, [STREAM] = &e->stream };
    for (column c = 0; c < COLUMN_COUNT; c++) {
        if (c == TIME || c == ACTION || r->place[c] < 0) continue;
        span field = fields[r->place[c]];
        bool good = parse_number(field, base[c], to[c]) || (c == STREAM && parse_number(field, 16, to[c]));
        if (!good) return fail_field(r, c, field);
    }
    if (r->place[TIME] >= 0) {
        span field = fields[r->place[TIME]];
        bool clock;
        if (!parse_time(field, &e->time_ns, &clock)) return fail_field(r, TIME, field);
        if (clock) e->time_ns = unwrap(r, e->time_ns);
    }
    return r->place[THREAD] < 0 || thread_number(r, thread, &e->thread);
}

/* Passes over allocations and frees of 0 bytes. Some logs give frees no size, so a free of 0 bytes is passed over only
 * if it matches an empty allocation. */
static bool pass_empty(log_reader *r, const weir_event *e, bool allocates, bool *passed)
{
    *passed = e->size == 0 && (allocates || empties_remove(&r->empties, e->address));
    if (!*passed || !allocates) return true;
    return empties_add(&r->empties, e->address) || source_fail_memory(r->s);
}

static bool read_row(log_reader *r, const char *line, size_t length)
{
    span fields[COLUMNS_MAX];
    int count = split(line, length, fields);
    if (count == 1 && fields[0].length == 0) return true;
    if (count != r->columns)
        return source_fail(r->s, r->offset, "line %" PRIu64 ": the line has %d fields, but the header has %d%s",
                           r->line, count, r->columns,
                           r->whole ? "" : "; the line has no newline: remove it if the log was cut off");
    weir_event e = { 0 };
    if (!read_fields(r, fields, &e)) return false;

    span action = fields[r->place[ACTION]];
    const bool allocates = is(action, "allocate"), frees = is(action, "free");
    bool passed = false;
    if ((allocates || frees) && !pass_empty(r, &e, allocates, &passed)) return false;
    if (passed) return true;
    if (allocates) return add(r, e, WEIR_EVENT_ALLOC);
    if (frees) return add(r, e, WEIR_EVENT_FREE_REQUESTED) && add(r, e, WEIR_EVENT_FREE_COMPLETED);
    if (!is(action, "allocate failure")) return fail_field(r, ACTION, action);
    e.address = 0; /* would be the device's free bytes, which the log lacks */
    return add(r, e, WEIR_EVENT_OOM);
}

static const char *next_line(log_reader *r, size_t *length)
{
    r->offset = source_offset(r->s);
    r->line++;
    return (const char *)source_line(r->s, length, &r->whole);
}

bool csv_detect(const uint8_t *head, size_t count)
{
    const uint8_t *end = memchr(head, '\n', count);
    size_t length = end ? (size_t)(end - head) : count;
    int place[COLUMN_COUNT], columns;
    return find_columns((const char *)head, length, place, &columns);
}

bool csv_read(source *s, const trace_limits *limits, trace *out)
{
    log_reader r = { .s = s, .limits = limits, .out = out };
    size_t length;
    if (lacks_newlines(s))
        return source_fail(s, 0, "lines end with a carriage return alone; replace each by a newline: tr '\\r' '\\n'");
    const char *line = next_line(&r, &length);
    if (!line || !find_columns(line, length, r.place, &r.columns))
        return source_fail(s, 0, "the first line does not name the columns Action, Pointer and Size");
    const char *twice = named_twice(line, length);
    if (twice) return source_fail(s, 0, "the first line names the column %s twice; keep one of the two", twice);

    bool good = true;
    while (good && (line = next_line(&r, &length))) good = read_row(&r, line, length);
    empties_release(r.empties);
    free(r.thread_ids);
    free(r.thread_numbers);
    return good && !s->failed;
}
