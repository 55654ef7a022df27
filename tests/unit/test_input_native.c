#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/input_support.h"

#include "input/native.h"

#define EVENTS 3
static const weir_event sample[EVENTS] = {
    { 1, 0x7f0000000000, 100, 7, { 1, 2 }, WEIR_EVENT_ALLOC, 0, 3 },
    { 2, 0xffffffffffffffff, UINT64_MAX, 0, { 0, UINT64_MAX }, WEIR_EVENT_RECORD_STREAM, 32767, UINT32_MAX },
    { 2, 4096, 1, 0, { 0, 0 }, WEIR_EVENT_OOM, 1, 0 },
};

static file_bytes written(const trace *t)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_true(trace_write_native(file, t));
    file_bytes f = { malloc(4096), 0 };
    assert_non_null(f.bytes);
    rewind(file);
    f.count = fread(f.bytes, 1, 4096, file);
    fclose(file);
    return f;
}

static file_bytes sample_file(void)
{
    return written(&(trace){ .events = (weir_event *)(uintptr_t)sample, .count = EVENTS, .dropped = 12 });
}

/* The same with two stacks, of the first event and the last. */
static const char *const frame_texts[] = { "train.py:12:step", "/usr/bin/solver:solve+0x1d" };
enum { FRAMES_AT = 64 + EVENTS * 60, STACKS_AT = FRAMES_AT + 4 + 16 + 4 + 26 };
static file_bytes stacked_file(void)
{
    static char *frames[2];
    static uint32_t items[] = { 1, 0, 0 }, of[EVENTS] = { 1, 0, 2 };
    static size_t first[] = { 0, 0, 2, 3 };
    for (int i = 0; i < 2; i++) frames[i] = (char *)(uintptr_t)frame_texts[i];
    return written(&(trace){
        .events = (weir_event *)(uintptr_t)sample, .count = EVENTS, .stacks = { frames, 2, items, first, 3, of, 7 } });
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    file_bytes f = sample_file();
    assert_int_equal(f.count, 64 + EVENTS * 56);
    trace t;
    assert_true(read_exact(f.bytes, f.count, NULL, &t, NULL));
    assert_string_equal(t.format, "weir");
    assert_int_equal(t.count, EVENTS);
    assert_int_equal(t.dropped, 12);
    assert_memory_equal(t.events, sample, sizeof sample);
    trace_release(&t);
    free(f.bytes);
}

static void bytes_are_where_the_format_says(void **state)
{
    (void)state;
    file_bytes f = sample_file();
    static const uint8_t head[32] = { 'w', 'e', 'i', 'r', 't', 'r', 'c', '\n', 1, 0, 3, 0, 64, 0, 0, 0,
                                      56,  0,   0,   0,   0,   0,   0,   0,    3, 0, 0, 0, 0,  0, 0, 0 };
    assert_memory_equal(f.bytes, head, sizeof head);
    assert_int_equal(f.bytes[32], 12);
    static const uint8_t tail[8] = { WEIR_EVENT_ALLOC, 0, 0, 0, 3, 0, 0, 0 };
    assert_memory_equal(f.bytes + 64 + 48, tail, sizeof tail);
    free(f.bytes);
}

static void a_file_cut_anywhere_is_refused_with_its_length_as_offset(void **state)
{
    (void)state;
    file_bytes f = sample_file();
    for (size_t count = 8; count < f.count; count++)
        assert_int_equal(refused(f.bytes, count, NULL, count < 64 ? "inside its header" : "ends inside event"), count);
    free(f.bytes);
}

static void an_uncounted_file_ends_where_it_ends(void **state)
{
    (void)state;
    file_bytes f = sample_file();
    memset(f.bytes + 24, 0xff, 8);
    trace t;
    assert_true(read_exact(f.bytes, f.count, NULL, &t, NULL));
    assert_int_equal(t.count, EVENTS);
    trace_release(&t);
    refused(f.bytes, 64 + EVENTS * 56 - 1, NULL, "ends inside event 2");
    trace_limits two = trace_limits_default;
    two.events = 2;
    refused(f.bytes, f.count, &two, "more than 2 events");
    free(f.bytes);
}

static void longer_headers_and_events_are_read(void **state)
{
    (void)state;
    file_bytes f = sample_file();
    uint8_t longer[80 + EVENTS * 72] = { 0 };
    memcpy(longer, f.bytes, 64);
    longer[12] = 80;
    longer[16] = 72;
    for (int i = 0; i < EVENTS; i++) memcpy(longer + 80 + i * 72, f.bytes + 64 + i * 56, 56);
    trace t;
    assert_true(read_exact(longer, sizeof longer, NULL, &t, NULL));
    assert_int_equal(t.count, EVENTS);
    assert_memory_equal(t.events, sample, sizeof sample);
    trace_release(&t);
    free(f.bytes);
}

static void headers_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        uint8_t value;
        const char *part;
    } cases[] = {
        { 8, 2, "trace format version 2.3: this weir reads 1.x" },
        { 8, 0, "version 0.3" },
        { 12, 63, "a header of 63 bytes" },
        { 16, 55, "events of 55 bytes" },
        { 18, 1, "events of 65592 bytes" },
        { 20, 1, "unknown flags 0x1" },
        { 31, 1, "events, the limit is" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file_bytes f = sample_file();
        f.bytes[cases[i].offset] = cases[i].value;
        assert_int_equal(refused(f.bytes, f.count, NULL, cases[i].part),
                         cases[i].offset & ~(size_t)(cases[i].offset < 24 ? 3 : 7));
        free(f.bytes);
    }
}

static void events_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    file_bytes f = sample_file();
    f.bytes[64 + 56 + 48] = 200;
    assert_int_equal(refused(f.bytes, f.count, NULL, "event 1 is of the unknown kind 200"), 64 + 56);
    f.bytes[64 + 56 + 48] = 0;
    refused(f.bytes, f.count, NULL, "event 1 is of the unknown kind 0");
    f.bytes[64 + 56 + 48] = 1;
    f.bytes[64 + 56 + 51] = 0x80;
    refused(f.bytes, f.count, NULL, "event 1 is of device -");
    free(f.bytes);
}

static void kinds_of_newer_minor_versions_are_passed_over(void **state)
{
    (void)state;
    file_bytes f = sample_file();
    f.bytes[10] = WEIR_TRACE_VERSION_MINOR + 1;
    f.bytes[64 + 56 + 48] = 200;
    trace t;
    assert_true(read_exact(f.bytes, f.count, NULL, &t, NULL));
    assert_int_equal(t.count, EVENTS - 1);
    assert_memory_equal(&t.events[1], &sample[2], sizeof sample[2]);
    trace_release(&t);
    free(f.bytes);
}

static void a_count_that_lies_costs_no_memory(void **state)
{
    (void)state;
    file_bytes f = sample_file();
    memset(f.bytes + 24, 0xff, 3); /* 16,777,215 events, and the bytes of three */
    refused(f.bytes, f.count, NULL, "ends inside event 3");
    free(f.bytes);
}

/* ---- stacks ---------------------------------------------------------------------------------------------------------- */

static void stacks_that_were_written_are_read(void **state)
{
    (void)state;
    file_bytes f = stacked_file();
    assert_int_equal(f.count, STACKS_AT + 4 + 2 * 4 + 4 + 4);
    trace t;
    assert_true(read_exact(f.bytes, f.count, NULL, &t, NULL));
    assert_memory_equal(t.events, sample, sizeof sample);
    static const uint32_t items[] = { 1, 0, 0 }, of[EVENTS] = { 1, 0, 2 };
    static const size_t first[] = { 0, 0, 2, 3 };
    assert_int_equal(t.stacks.count, 3);
    assert_memory_equal(t.stacks.of, of, sizeof of);
    assert_memory_equal(t.stacks.items, items, sizeof items);
    assert_memory_equal(t.stacks.first, first, sizeof first);
    assert_int_equal(t.stacks.frame_count, 2);
    for (int i = 0; i < 2; i++) assert_string_equal(t.stacks.frames[i], frame_texts[i]);
    assert_int_equal(t.stacks.lost, 7);
    trace_release(&t);
    free(f.bytes);
}

/* A reader of version 1.1 takes the longer records, and does not look behind the last one. */
static void who_does_not_know_of_stacks_reads_the_events(void **state)
{
    (void)state;
    file_bytes f = stacked_file();
    f.bytes[10] = 1;
    trace t;
    assert_true(read_exact(f.bytes, FRAMES_AT, NULL, &t, NULL));
    assert_memory_equal(t.events, sample, sizeof sample);
    assert_int_equal(t.stacks.count, 0);
    trace_release(&t);
    free(f.bytes);
}

static void stacks_cut_anywhere_are_refused(void **state)
{
    (void)state;
    file_bytes f = stacked_file();
    for (size_t count = FRAMES_AT; count < f.count; count++)
        assert_int_equal(refused(f.bytes, count, NULL, count < STACKS_AT ? "ends inside frame" : "ends inside stack"),
                         count);
    free(f.bytes);
}

static void stacks_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        uint8_t value;
        const char *part;
    } cases[] = {
        { 16, 56, "2 stacks, but events without the number of theirs" },
        { 64 + 60 + 56, 3, "event 1 has stack 3 of 2" },
        { FRAMES_AT + 2, 0x01, "frame 0 has" },
        { FRAMES_AT + 4, 0, "frame 0 has a zero in it" },
        { STACKS_AT + 2, 0x01, "stack 1 has" },
        { STACKS_AT + 4, 2, "stack 1 has frame 2 of 2" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file_bytes f = stacked_file();
        f.bytes[cases[i].offset] = cases[i].value;
        refused(f.bytes, f.count, NULL, cases[i].part);
        free(f.bytes);
    }
    file_bytes f = stacked_file();
    memset(f.bytes + 24, 0xff, 8);
    refused(f.bytes, f.count, NULL, "2 stacks, but no number of events");
    free(f.bytes);
    f = stacked_file();
    trace_limits few = trace_limits_default;
    few.string_bytes = 20;
    refused(f.bytes, f.count, &few, "frame 1 has 26 bytes, more than the limit");
    few = trace_limits_default;
    few.memo = 2;
    refused(f.bytes, f.count, &few, "stack 2 has 1 frames, more than the limit");
    free(f.bytes);
}

static void writing_to_a_full_device_fails(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "wb");
    if (!full) skip();
    trace t = { .events = (weir_event *)(uintptr_t)sample, .count = EVENTS };
    assert_false(trace_write_native(full, &t));
    fclose(full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(bytes_are_where_the_format_says),
        cmocka_unit_test(a_file_cut_anywhere_is_refused_with_its_length_as_offset),
        cmocka_unit_test(an_uncounted_file_ends_where_it_ends),
        cmocka_unit_test(longer_headers_and_events_are_read),
        cmocka_unit_test(headers_that_make_no_sense_are_refused),
        cmocka_unit_test(events_that_make_no_sense_are_refused),
        cmocka_unit_test(kinds_of_newer_minor_versions_are_passed_over),
        cmocka_unit_test(a_count_that_lies_costs_no_memory),
        cmocka_unit_test(stacks_that_were_written_are_read),
        cmocka_unit_test(who_does_not_know_of_stacks_reads_the_events),
        cmocka_unit_test(stacks_cut_anywhere_are_refused),
        cmocka_unit_test(stacks_that_make_no_sense_are_refused),
        cmocka_unit_test(writing_to_a_full_device_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
