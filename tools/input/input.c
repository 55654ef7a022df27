#include "input.h"

#include "csv.h"
#include "frees.h"
#include "native.h"
#include "pools.h"
#include "snapshot.h"
#include "source.h"

#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES 1024 /* given to the detect functions */

const trace_limits trace_limits_default = {
    .events = UINT64_C(1) << 31,
    .memo = UINT64_C(1) << 28,
    .stack = UINT64_C(1) << 24, /* PyTorch's own writer pushes all elements of a list */
    .depth = 10000,
    .string_bytes = UINT64_C(1) << 30,
};

typedef struct input_format {
    const char *name;
    bool (*detect)(const uint8_t *head, size_t count);
    bool (*read)(source *s, const trace_limits *limits, trace *out);
    bool leaves_out; /* a recorder may write only one half of a free */
} input_format;

static const input_format formats[] = {
    { "weir", native_detect, native_read, false },
    { "pytorch-snapshot", snapshot_detect, snapshot_read, true },
    { "rmm-csv", csv_detect, csv_read, false },
};

/* How files begin that hold a trace in a wrapping that is not read, and what unwraps them. */
static const struct wrapping {
    const char *magic, *name, *remedy;
} wrappings[] = {
    { "PK\3\4", "a ZIP archive", "unzip -p" },
    { "\x28\xb5\x2f\xfd", "compressed with zstd", "zstd -dc" },
    { "\xfd\x37zXZ", "compressed with xz", "xz -dc" },
    { "BZh", "compressed with bzip2", "bzip2 -dc" },
    { "\x04\x22\x4d\x18", "compressed with lz4", "lz4 -dc" },
};

static bool refuse_unknown(source *s, size_t have)
{
    for (size_t i = 0; i < sizeof wrappings / sizeof *wrappings; i++) {
        const struct wrapping *w = &wrappings[i];
        const size_t length = strlen(w->magic);
        if (have >= length && memcmp(s->at, w->magic, length) == 0)
            return source_fail(s, 0, "%s, which is not read, only gzip is: unpack it with '%s FILE | weir ... -'",
                               w->name, w->remedy);
    }
    return source_fail(s, 0,
                       "neither a PyTorch memory snapshot (pickle), an RMM log (CSV) nor a weir trace, gzip or not");
}

/* Whether no sum of sizes of blocks or segments exceeds 64 bits. Failed requests and labels are in no such sum. */
static bool adds_up(const trace *t)
{
    uint64_t sum = 0;
    bool over = false;
    for (size_t i = 0; i < t->count; i++)
        if (t->events[i].kind <= WEIR_EVENT_SEGMENT_UNMAP) over |= __builtin_add_overflow(sum, t->events[i].size, &sum);
    for (size_t i = 0; i < t->live_count; i++) {
        const trace_live *l = &t->live[i];
        over |= __builtin_add_overflow(sum, l->requested ? l->requested : l->bytes, &sum);
    }
    for (size_t i = 0; i < t->segment_count; i++) over |= __builtin_add_overflow(sum, t->segments[i].bytes, &sum);
    return !over;
}

static bool read_as_found(source *s, const trace_limits *limits, trace *out)
{
    size_t have = source_need(s, HEAD_BYTES);
    if (s->failed) return false;
    if (have == 0) return source_fail(s, 0, "the file is empty");
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (!formats[i].detect(s->at, have)) continue;
        out->format = formats[i].name;
        if (!formats[i].read(s, limits, out)) return false;
        source_need(s, 1); /* reaching the end of gzip data verifies its checksum */
        if (s->failed) return false;
        if (formats[i].leaves_out && !frees_pair(s, limits, out)) return false;
        if (!adds_up(out))
            return source_fail(s, source_offset(s), "its sizes add up to 16 EiB or more, which no program allocates");
        if (!pools_tell(out)) return source_fail_memory(s);
        weir_event *exact = out->count ? realloc(out->events, out->count * sizeof *exact) : NULL;
        if (exact) out->events = exact;
        return true;
    }
    return refuse_unknown(s, have);
}

static bool ends_in(const char *name, size_t length, const char *ending)
{
    const size_t tail = strlen(ending);
    return length > tail && memcmp(name + length - tail, ending, tail) == 0;
}

bool trace_is_named(const char *path)
{
    static const char *const endings[] = { ".pickle", ".pickle.gz", ".pkl", ".weirtrace" };
    bool named = false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) named |= ends_in(path, strlen(path), endings[i]);
    return named;
}

char *trace_name_of(const char *path)
{
    static const char *const extensions[] = { ".gz", ".pickle", ".pkl", ".csv", ".txt", ".log", ".weirtrace" };
    const char *slash = strrchr(path, '/');
    char *name = strdup(strcmp(path, "-") == 0 ? "stdin" : slash ? slash + 1 : path);
    if (!name) return NULL;
    size_t length = strlen(name);
    for (bool found = true; found;) {
        found = false;
        for (size_t i = 0; i < sizeof extensions / sizeof *extensions && !found; i++) {
            found = ends_in(name, length, extensions[i]);
            if (found) name[length -= strlen(extensions[i])] = '\0';
        }
    }
    return name;
}

/* The common part of both ways to read, once opening the source succeeded or failed. */
static bool read_and_close(source *s, bool opened, const char *path, const trace_limits *limits, trace *out,
                           trace_error *error)
{
    *out = (trace){ .name = trace_name_of(path) };
    bool good = opened && (out->name || source_fail_memory(s)) && read_as_found(s, limits, out);
    if (!good) {
        if (error) *error = s->error;
        trace_release(out);
    }
    source_close(s);
    return good;
}

bool trace_read(const char *path, trace *out, trace_error *error, trace_progress progress, void *user)
{
    source s;
    bool opened = source_open(&s, path, progress, user);
    return read_and_close(&s, opened, path, &trace_limits_default, out, error);
}

bool trace_read_memory(const void *bytes, size_t count, const trace_limits *limits, trace *out, trace_error *error)
{
    source s;
    bool opened = source_open_memory(&s, bytes, count);
    return read_and_close(&s, opened, "memory", limits ? limits : &trace_limits_default, out, error);
}

void trace_release(trace *t)
{
    if (!t) return;
    free(t->name);
    free(t->events);
    free(t->live);
    free(t->segments);
    for (size_t i = 0; i < t->stacks.frame_count; i++) free(t->stacks.frames[i]);
    free(t->stacks.frames);
    free(t->stacks.items);
    free(t->stacks.first);
    free(t->stacks.of);
    *t = (trace){ 0 };
}
