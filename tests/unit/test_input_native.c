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

/* The same file with two stacks, those of the first event and the last. */
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

static void a_written_trace_is_read_back(void **state)
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

/* weir's own recorder leaves none out: what lacks was still pending. */
static void requests_without_completions_stay_alone(void **state)
{
    (void)state;
    weir_event events[] = { { .size = 512, .address = 512, .kind = WEIR_EVENT_ALLOC },
                            { .size = 512, .address = 512, .kind = WEIR_EVENT_FREE_REQUESTED } };
    file_bytes f = written(&(trace){ .events = events, .count = 2 });
    trace t;
    assert_true(read_exact(f.bytes, f.count, NULL, &t, NULL));
    assert_int_equal(t.count, 2);
    trace_release(&t);
    free(f.bytes);
}

static void bytes_are_where_the_format_says(void **state)
{
    (void)state;
    file_bytes f = sample_file();
    static const uint8_t head[32] = { 'w', 'e', 'i', 'r', 't', 'r', 'c', '\n', 1, 0, 4, 0, 64, 0, 0, 0,
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
        { 8, 2, "trace format version 2.4: this weir reads 1.x" },
        { 8, 0, "trace format version 0.4 does not exist" },
        { 12, 63, "the header has 63 bytes" },
        { 16, 55, "events have 55 bytes" },
        { 18, 1, "events have 65592 bytes" },
        { 20, 1, "unknown flags 0x1" },
        { 31, 1, "events; the limit is" },
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
    refused(f.bytes, f.count, NULL, "event 1 is on device -");
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

static void a_false_count_costs_no_memory(void **state)
{
    (void)state;
    file_bytes f = sample_file();
    memset(f.bytes + 24, 0xff, 3); /* 16,777,215 events, and the bytes of three */
    refused(f.bytes, f.count, NULL, "ends inside event 3");
    free(f.bytes);
}

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

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

/* A reader of version 1.1 accepts the longer records and does not look behind the last one. */
static void a_reader_of_1_1_reads_the_events_of_a_file_with_stacks(void **state)
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
        { 16, 56, "2 stacks, but its events have no room for the number of a stack" },
        { 64 + 60 + 56, 3, "event 1 has stack 3, but there are 2 stacks" },
        { FRAMES_AT + 2, 0x01, "frame 0 has" },
        { FRAMES_AT + 4, 0, "frame 0 has a zero in it" },
        { STACKS_AT + 2, 0x01, "stack 1 has" },
        { STACKS_AT + 4, 2, "stack 1 has frame 2, but there are 2 frames" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file_bytes f = stacked_file();
        f.bytes[cases[i].offset] = cases[i].value;
        refused(f.bytes, f.count, NULL, cases[i].part);
        free(f.bytes);
    }
    file_bytes f = stacked_file();
    memset(f.bytes + 24, 0xff, 8);
    refused(f.bytes, f.count, NULL, "2 stacks, but does not say how many events");
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

/* ---- sections ---------------------------------------------------------------------------------------------------- */

/* Three: two live blocks, two segments, settings. */
enum { LIVE_AT = 64 + EVENTS * 56, SEGMENTS_AT = LIVE_AT + 16 + 2 * 56, SETTINGS_AT = SEGMENTS_AT + 16 + 2 * 48 };
static const trace_live listed[] = { { 0x1000, 1024, 1000, 7, { 1, 2 }, 0, 0, true },
                                     { UINT64_MAX, UINT64_MAX, 1, 0, { 0, 0 }, 0, 32767, false } };
static const trace_segment held[] = { { 0x1000, 2097152, 7, { 1, 2 }, 0, false }, { 0, 1, 0, { 0, 3 }, 1, true } };
static const trace_settings settings = { true, true, 123, 0.8, "4,8", "max_split_size_mb:200" };

static file_bytes snapshot_file(void)
{
    return written(&(trace){ .events = (weir_event *)(uintptr_t)sample,
                             .count = EVENTS,
                             .live = (trace_live *)(uintptr_t)listed,
                             .live_count = 2,
                             .segments = (trace_segment *)(uintptr_t)held,
                             .segment_count = 2,
                             .settings = settings });
}

static void live_blocks_that_were_written_are_read(void **state)
{
    (void)state;
    file_bytes f = snapshot_file();
    trace t;
    assert_true(read_exact(f.bytes, f.count, NULL, &t, NULL));
    assert_int_equal(t.live_count, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t.live[i].address, listed[i].address);
        assert_int_equal(t.live[i].bytes, listed[i].bytes);
        assert_int_equal(t.live[i].requested, listed[i].requested);
        assert_int_equal(t.live[i].stream, listed[i].stream);
        assert_memory_equal(t.live[i].pool, listed[i].pool, sizeof listed[i].pool);
        assert_int_equal(t.live[i].device, listed[i].device);
        assert_int_equal(t.live[i].pending, listed[i].pending);
    }
    trace_release(&t);
    free(f.bytes);
}

static void segments_that_were_written_are_read(void **state)
{
    (void)state;
    file_bytes f = snapshot_file();
    trace t;
    assert_true(read_exact(f.bytes, f.count, NULL, &t, NULL));
    assert_int_equal(t.segment_count, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t.segments[i].address, held[i].address);
        assert_int_equal(t.segments[i].bytes, held[i].bytes);
        assert_int_equal(t.segments[i].stream, held[i].stream);
        assert_memory_equal(t.segments[i].pool, held[i].pool, sizeof held[i].pool);
        assert_int_equal(t.segments[i].device, held[i].device);
        assert_int_equal(t.segments[i].mapped, held[i].mapped);
    }
    trace_release(&t);
    free(f.bytes);
}

static void settings_that_were_written_are_read(void **state)
{
    (void)state;
    file_bytes f = snapshot_file();
    assert_int_equal(f.count, SETTINGS_AT + 16 + 28 + 3 + 21);
    trace t;
    assert_true(read_exact(f.bytes, f.count, NULL, &t, NULL));
    assert_true(t.settings.known && t.settings.expandable_segments);
    assert_int_equal(t.settings.max_split_size, 123);
    assert_memory_equal(&t.settings.gc_threshold, &settings.gc_threshold, sizeof settings.gc_threshold);
    assert_string_equal(t.settings.roundup_power2_divisions, "4,8");
    assert_string_equal(t.settings.config, "max_split_size_mb:200");
    trace_release(&t);
    free(f.bytes);
}

static void stacks_of_live_blocks_are_kept(void **state)
{
    (void)state;
    static char frame[] = "train.py:12:step";
    static char *frames[] = { frame };
    static uint32_t items[] = { 0 }, of[] = { 0 };
    static size_t first[] = { 0, 0, 1 };
    trace_live one = { .address = 512, .bytes = 512, .requested = 512, .stack = 1 };
    file_bytes f = written(&(trace){ .live = &one, .live_count = 1, .stacks = { frames, 1, items, first, 2, of, 0 } });
    trace t;
    assert_true(read_exact(f.bytes, f.count, NULL, &t, NULL));
    assert_int_equal(t.live[0].stack, 1);
    assert_string_equal(t.stacks.frames[0], frame);
    trace_release(&t);
    free(f.bytes);
}

static void without_stacks_no_frames_follow_the_events(void **state)
{
    (void)state;
    file_bytes f = snapshot_file();
    f.bytes[offsetof(weir_trace_header, frames)] = 1;
    trace t;
    assert_true(read_exact(f.bytes, f.count, NULL, &t, NULL));
    assert_int_equal(t.live_count, 2);
    assert_int_equal(t.segment_count, 2);
    assert_int_equal(t.stacks.count, 0);
    trace_release(&t);
    free(f.bytes);
}

static void listed_blocks_are_sorted_by_device_and_address(void **state)
{
    (void)state;
    trace_live blocks[] = { { .address = 1, .device = 1 }, { .address = 9 }, { .address = 2 } };
    file_bytes f = written(&(trace){ .live = blocks, .live_count = 3 });
    trace t;
    assert_true(read_exact(f.bytes, f.count, NULL, &t, NULL));
    assert_int_equal(t.live[0].address, 2);
    assert_int_equal(t.live[1].address, 9);
    assert_int_equal(t.live[2].address, 1);
    trace_release(&t);
    free(f.bytes);
}

/* A reader of version 1.3 ignores the bytes that were reserved then, and does not look behind the last record. */
static void a_reader_of_1_3_reads_the_events_of_a_file_with_sections(void **state)
{
    (void)state;
    file_bytes f = snapshot_file();
    f.bytes[10] = 3;
    trace t;
    assert_true(read_exact(f.bytes, LIVE_AT, NULL, &t, NULL));
    assert_memory_equal(t.events, sample, sizeof sample);
    assert_int_equal(t.live_count + t.segment_count + t.settings.known, 0);
    trace_release(&t);
    free(f.bytes);
}

static void sections_cut_anywhere_are_refused(void **state)
{
    (void)state;
    file_bytes f = snapshot_file();
    for (size_t count = LIVE_AT; count < f.count; count++)
        assert_int_equal(refused(f.bytes, count, NULL, "it is not complete"), count);
    free(f.bytes);
}

static void sections_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        uint8_t value;
        const char *part;
    } cases[] = {
        { 31, 0xff, "events; the limit is" },
        { LIVE_AT, 0, "section 0 is of the unknown kind 0" },
        { LIVE_AT, 4, "section 0 is of the unknown kind 4" },
        { LIVE_AT + 4, 55, "section 0 has items of 55 bytes; 56 to 65536 are possible" },
        { LIVE_AT + 15, 1, "section 0 has 72057594037927938 items" },
        { LIVE_AT + 16 + 48, 1, "live block 0 has stack 1, but there are 0 stacks" },
        { LIVE_AT + 16 + 53, 0x80, "live block 0 is on device -" },
        { SEGMENTS_AT, 1, "section 1 is the second of kind 1" },
        { SEGMENTS_AT + 16 + 41, 0x80, "segment 0 is on device -" },
        { SETTINGS_AT + 8, 2, "section 2 has 2 items" },
        { SETTINGS_AT + 16 + 21, 1, "the settings have a text of 259 bytes" },
        { SETTINGS_AT + 16 + 24, 22, "the settings have a text of 22 bytes" },
        { SETTINGS_AT + 16 + 28, 0, "the settings have a text of 3 bytes" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file_bytes f = snapshot_file();
        f.bytes[cases[i].offset] = cases[i].value;
        refused(f.bytes, f.count, NULL, cases[i].part);
        free(f.bytes);
    }
    file_bytes f = snapshot_file();
    memset(f.bytes + 24, 0xff, 8);
    refused(f.bytes, f.count, NULL, "3 sections, but does not say how many events");
    free(f.bytes);
}

static void a_text_of_the_settings_without_room_for_its_end_is_refused(void **state)
{
    (void)state;
    trace t = { .settings = { .known = true } };
    memset(t.settings.config, 'x', 300);
    file_bytes f = written(&t);
    memcpy(f.bytes + 64 + 16 + 20, (uint8_t[]){ 0, 1 }, 2); /* its length: one more than has room */
    refused(f.bytes, f.count, NULL, "the settings have a text of 256 bytes");
    free(f.bytes);
}

static void sections_of_newer_minor_versions_are_passed_over(void **state)
{
    (void)state;
    file_bytes f = snapshot_file();
    f.bytes[10] = WEIR_TRACE_VERSION_MINOR + 1;
    f.bytes[LIVE_AT] = 200;
    trace t;
    assert_true(read_exact(f.bytes, f.count, NULL, &t, NULL));
    assert_int_equal(t.live_count, 0);
    assert_int_equal(t.segment_count, 2);
    trace_release(&t);
    refused(f.bytes, SEGMENTS_AT - 1, NULL, "ends inside section 0");
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
        cmocka_unit_test(a_written_trace_is_read_back),
        cmocka_unit_test(requests_without_completions_stay_alone),
        cmocka_unit_test(bytes_are_where_the_format_says),
        cmocka_unit_test(a_file_cut_anywhere_is_refused_with_its_length_as_offset),
        cmocka_unit_test(an_uncounted_file_ends_where_it_ends),
        cmocka_unit_test(longer_headers_and_events_are_read),
        cmocka_unit_test(headers_that_make_no_sense_are_refused),
        cmocka_unit_test(events_that_make_no_sense_are_refused),
        cmocka_unit_test(kinds_of_newer_minor_versions_are_passed_over),
        cmocka_unit_test(a_false_count_costs_no_memory),
        cmocka_unit_test(stacks_that_were_written_are_read),
        cmocka_unit_test(a_reader_of_1_1_reads_the_events_of_a_file_with_stacks),
        cmocka_unit_test(stacks_cut_anywhere_are_refused),
        cmocka_unit_test(stacks_that_make_no_sense_are_refused),
        cmocka_unit_test(live_blocks_that_were_written_are_read),
        cmocka_unit_test(segments_that_were_written_are_read),
        cmocka_unit_test(settings_that_were_written_are_read),
        cmocka_unit_test(stacks_of_live_blocks_are_kept),
        cmocka_unit_test(without_stacks_no_frames_follow_the_events),
        cmocka_unit_test(listed_blocks_are_sorted_by_device_and_address),
        cmocka_unit_test(a_reader_of_1_3_reads_the_events_of_a_file_with_sections),
        cmocka_unit_test(sections_cut_anywhere_are_refused),
        cmocka_unit_test(sections_that_make_no_sense_are_refused),
        cmocka_unit_test(a_text_of_the_settings_without_room_for_its_end_is_refused),
        cmocka_unit_test(sections_of_newer_minor_versions_are_passed_over),
        cmocka_unit_test(writing_to_a_full_device_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
