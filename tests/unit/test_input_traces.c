#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/input_support.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

/* Obtained with Python's own pickle: counts and sums of sizes by action, the number of events, a hash over
 * (time_us * 1000, addr, size, stream) of every event with h = (h * 31 + v) mod 2^64, and of the blocks that are not
 * inactive: how many, their bytes, their requested bytes, how many wait to be freed. */
typedef struct facts {
    const char *name;
    uint64_t counts[4], sizes[4]; /* alloc, free_requested, free_completed, segment_alloc */
    uint64_t events, hash, live, live_bytes, live_requested, pending;
} facts;

static const facts recorded[] = {
    { "convnext_prefetch",
      { 21621, 21618, 21617, 134 },
      { 157996864933, 157928707493, 157919073701, 4387241984 },
      64990,
      0x9aa46e84de7e6421,
      4,
      77791232,
      77791232,
      1 },
    { "gpt2_lora_recompute",
      { 71936, 71932, 71932, 163 },
      { 1327488863062, 1327419657046, 1327419657046, 10796138496 },
      215963,
      0xe794b3b19beb736,
      4,
      69206016,
      69206016,
      0 },
    { "gpt2_varlen",
      { 38959, 38956, 38956, 341 },
      { 873194675371, 873126517931, 873126517931, 28546433024 },
      117212,
      0x610c349f401d2dbf,
      3,
      68157440,
      68157440,
      0 },
    { "graphsage",
      { 4590, 4587, 4587, 23 },
      { 544685360824, 544617203384, 544617203384, 16494100480 },
      13787,
      0xeb9f8b8d546a3298,
      3,
      68157440,
      68157440,
      0 },
    { "resnet50_amp",
      { 9688, 9685, 9685, 104 },
      { 129151298484, 129083141044, 129083141044, 3797942272 },
      29162,
      0x451110a4baa2bf44,
      3,
      68157440,
      68157440,
      0 },
};

static void read_recorded(const facts *f, trace *t)
{
    char path[512];
    snprintf(path, sizeof path, WEIR_TEST_DATA "/traces/%s.pickle.gz", f->name);
    trace_error e;
    if (!trace_read(path, t, &e, NULL, NULL))
        fail_msg("%s at byte %llu: %s", path, (unsigned long long)e.offset, e.text);
}

static void recorded_snapshots_give_every_event(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++) {
        const facts *f = &recorded[i];
        trace t;
        read_recorded(f, &t);
        assert_string_equal(t.name, f->name);
        assert_string_equal(t.format, "pytorch-snapshot");
        assert_int_equal(t.count, f->events);

        uint64_t counts[16] = { 0 }, sizes[16] = { 0 }, hash = 0;
        for (size_t k = 0; k < t.count; k++) {
            const weir_event *e = &t.events[k];
            assert_int_equal(e->device, 0);
            counts[e->kind & 15]++;
            sizes[e->kind & 15] += e->size;
            const uint64_t values[] = { e->time_ns, e->address, e->size, e->stream };
            for (int v = 0; v < 4; v++) hash = hash * 31 + values[v];
        }
        for (int kind = 0; kind < 4; kind++) {
            assert_int_equal(counts[kind + WEIR_EVENT_ALLOC], f->counts[kind]);
            assert_int_equal(sizes[kind + WEIR_EVENT_ALLOC], f->sizes[kind]);
        }
        assert_true(hash == f->hash);
        trace_release(&t);
    }
}

static void recorded_snapshots_give_live_blocks(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++) {
        const facts *f = &recorded[i];
        trace t;
        read_recorded(f, &t);
        uint64_t bytes = 0, requested = 0, pending = 0;
        for (size_t k = 0; k < t.live_count; k++) {
            bytes += t.live[k].bytes;
            requested += t.live[k].requested;
            pending += t.live[k].pending;
            if (k > 0) assert_true(t.live[k - 1].address < t.live[k].address);
        }
        assert_int_equal(t.live_count, f->live);
        assert_int_equal(bytes, f->live_bytes);
        assert_int_equal(requested, f->live_requested);
        assert_int_equal(pending, f->pending);
        trace_release(&t);
    }
}

static void recorded_snapshots_give_settings(void **state)
{
    (void)state;
    trace t;
    read_recorded(&recorded[3], &t);
    assert_true(t.settings.known);
    assert_false(t.settings.expandable_segments);
    assert_int_equal(t.settings.max_split_size, 0);
    assert_true(t.settings.gc_threshold == 0);
    assert_string_equal(t.settings.roundup_power2_divisions, "");
    assert_string_equal(t.settings.config, "");
    trace_release(&t);
}

typedef struct seen {
    uint64_t last, total, calls;
} seen;

static void note_progress(void *user, uint64_t bytes_read, uint64_t total)
{
    seen *s = user;
    assert_true(bytes_read >= s->last);
    s->last = bytes_read;
    s->total = total;
    s->calls++;
}

static void progress_reaches_the_size_of_the_file(void **state)
{
    (void)state;
    const char *path = WEIR_TEST_DATA "/traces/gpt2_lora_recompute.pickle.gz";
    file_bytes f = read_file(path);
    seen s = { 0 };
    trace t;
    assert_true(trace_read(path, &t, NULL, note_progress, &s));
    assert_int_equal(s.total, f.count);
    assert_int_equal(s.last, f.count);
    assert_true(s.calls > 2);
    trace_release(&t);
    free(f.bytes);
}

/* ---- a large snapshot, written into a pipe while it is read ------------------------------------------------------ */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED
#define LARGE_EVENTS 20000u
#else
#define LARGE_EVENTS 1000000u
#endif
#define FRAMES 12

typedef struct writer {
    FILE *to;
    uint32_t memo; /* entries so far */
} writer;

static void put_string(writer *w, const char *text)
{
    fputc(0x8c, w->to);
    fputc((int)strlen(text), w->to);
    fputs(text, w->to);
    fputc(0x94, w->to);
    w->memo++;
}

static void put_bytes(writer *w, const char *bytes, size_t count)
{
    fwrite(bytes, 1, count, w->to);
}
#define PUT(w, literal) put_bytes((w), literal, sizeof(literal) - 1)

static void put_get(writer *w, uint32_t index)
{
    uint8_t bytes[5] = { 'j' };
    for (int i = 0; i < 4; i++) bytes[i + 1] = (uint8_t)(index >> 8 * i);
    put_bytes(w, (char *)bytes, sizeof bytes);
}

static void put_long(writer *w, uint64_t value)
{
    uint8_t bytes[9] = { 0x8a, 7 };
    for (int i = 0; i < 7; i++) bytes[i + 2] = (uint8_t)(value >> 8 * i);
    put_bytes(w, (char *)bytes, sizeof bytes);
}

static void put_memoized(writer *w, char opcode)
{
    fputc(opcode, w->to);
    fputc(0x94, w->to);
    w->memo++;
}

enum { ACTION, ALLOC, ADDR, SIZE, STREAM, TIME_US, STACK, FILENAME, PATH, LINE, NAME, CALL, TEXTS };
static const char *const texts[TEXTS] = {
    "action", "alloc",    "addr",
    "size",   "stream",   "time_us",
    "frames", "filename", "/usr/lib/python3/site-packages/torch/nn/modules/module.py",
    "line",   "name",     "_wrapped_call_impl"
};

static uint32_t put_stack(writer *w, uint32_t base)
{
    uint32_t index = w->memo;
    put_memoized(w, ']');
    PUT(w, "(");
    for (int i = 0; i < FRAMES; i++) {
        put_memoized(w, '}');
        PUT(w, "(");
        put_get(w, base + FILENAME), put_get(w, base + PATH);
        put_get(w, base + LINE), PUT(w, "M\x12\x07");
        put_get(w, base + NAME), put_get(w, base + CALL);
        PUT(w, "u");
    }
    PUT(w, "e");
    return index;
}

/* As CPython's pickler writes events: strings out of the memo, a batch per thousand; every tenth event has a stack of
 * its own, which the next nine share. */
static void *write_large(void *user)
{
    writer w = { user, 0 };
    PUT(&w, "\x80\x04");
    uint32_t base = w.memo, stack = 0;
    PUT(&w, "(");
    for (int i = 0; i < TEXTS; i++) put_string(&w, texts[i]);
    PUT(&w, "1"); /* the strings are in the memo now */
    put_memoized(&w, '}');
    put_string(&w, "device_traces");
    put_memoized(&w, ']');
    put_memoized(&w, ']');
    PUT(&w, "(");
    for (uint32_t i = 0; i < LARGE_EVENTS; i++) {
        if (i > 0 && i % 1000 == 0) PUT(&w, "e(");
        put_memoized(&w, '}');
        PUT(&w, "(");
        put_get(&w, base + ACTION), put_get(&w, base + ALLOC);
        put_get(&w, base + ADDR), put_long(&w, 0x7f0000000000 + (uint64_t)i * 512);
        put_get(&w, base + SIZE), PUT(&w, "M\x00\x02");
        put_get(&w, base + STREAM), PUT(&w, "K\x00");
        put_get(&w, base + TIME_US), put_long(&w, 1795194794626933 + i);
        put_get(&w, base + STACK);
        if (i % 10 == 0)
            stack = put_stack(&w, base);
        else
            put_get(&w, stack);
        PUT(&w, "u");
    }
    PUT(&w, "eas.");
    fclose(w.to);
    return NULL;
}

static uint64_t peak_rss_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024;
}

static void a_large_snapshot_streams_from_standard_input(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_true(dup2(ends[0], STDIN_FILENO) >= 0);
    close(ends[0]);
    FILE *to = fdopen(ends[1], "wb");
    assert_non_null(to);
    uint64_t before = peak_rss_bytes();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_large, to), 0);

    trace t;
    trace_error e = { .text = "" };
    bool good = trace_read("-", &t, &e, NULL, NULL);
    pthread_join(thread, NULL);
    assert_string_equal(e.text, "");
    assert_true(good);
    assert_string_equal(t.name, "stdin");
    assert_int_equal(t.count, LARGE_EVENTS);
    assert_int_equal(t.events[LARGE_EVENTS - 1].address, 0x7f0000000000 + (uint64_t)(LARGE_EVENTS - 1) * 512);
    assert_int_equal(t.events[0].size, 512);
#ifndef SANITIZED
    /* Events, room to grow them by half, and 4 bytes per container in the memo (2.3 of those per event); the stacks
     * themselves, 60 MB of the file, must not show. */
    uint64_t allowed = (uint64_t)LARGE_EVENTS * (sizeof(weir_event) * 3 / 2 + 14) + (8 << 20);
    uint64_t grown = peak_rss_bytes() - before;
    if (grown > allowed)
        fail_msg("reading took %llu bytes, %llu are allowed", (unsigned long long)grown, (unsigned long long)allowed);
#else
    (void)before;
#endif
    trace_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_snapshot_streams_from_standard_input), /* runs first, because it measures the peak */
        cmocka_unit_test(recorded_snapshots_give_every_event),
        cmocka_unit_test(recorded_snapshots_give_live_blocks),
        cmocka_unit_test(recorded_snapshots_give_settings),
        cmocka_unit_test(progress_reaches_the_size_of_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
