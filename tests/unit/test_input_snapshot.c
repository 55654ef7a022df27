#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/input_support.h"

/* Snapshots are written here as protocol 0 text, which a reader of the test can follow: S is a string, I a number,
 * (d and (l start a dict and a list, s and a put an item in. */
#define EVENT(action, size, time)                                                                                      \
    "(dS'action'\nS'" action "'\nsS'addr'\nI4096\nsS'size'\n" size "sS'stream'\nI0\nsS'time_us'\n" time "s"
#define BLOCK(size, state) "(dS'size'\nI" size "\nsS'state'\nS'" state "'\ns"
#define TRACES(items) "(dS'device_traces'\n(l" items "s."
#define SEGMENTS(blocks)                                                                                               \
    "(dS'segments'\n(l(dS'device'\nI0\nsS'address'\nI65536\nsS'stream'\nI0\nsS'blocks'\n(l" blocks "sas."

static void read_text(const char *text, trace *t)
{
    trace_error e;
    if (!read_exact(text, strlen(text), NULL, t, &e)) fail_msg("at %llu: %s", (unsigned long long)e.offset, e.text);
}

/* The linker has the reader allocate through these (cmake/tests.cmake). */
static unsigned failing; /* which allocation from now on fails; 0: none */

static bool fails(void)
{
    return failing != 0 && --failing == 0;
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    return fails() ? NULL : __real_realloc(memory, bytes);
}
/* NOLINTEND(bugprone-reserved-identifier) */

static void an_unknown_action_is_named(void **state)
{
    (void)state;
    uint64_t offset = REFUSED(TRACES("(l" EVENT("alloc", "I1\n", "I1\n") "a" EVENT("teleport", "I1\n", "I1\n") "aa"),
                              "the event action \"teleport\" is unknown; remove such events, or use a newer weir");
    assert_true(offset > 100); /* the offset of that event, not of the place where the list turned out to matter */
}

static void an_unknown_action_elsewhere_does_not_matter(void **state)
{
    (void)state;
    trace t;
    read_text("(dS'external_annotations'\n(l" EVENT("mine", "I1\n", "I1\n") "asS'device_traces'\n(ls.", &t);
    assert_int_equal(t.count, 0);
    trace_release(&t);
}

static void annotations_of_the_program_are_passed_over(void **state)
{
    (void)state;
    trace t;
    read_text(TRACES("(l" EVENT("user_defined", "I0\n", "I1\n") "aa(l" EVENT("alloc", "I5\n", "I2\n") "a" EVENT(
                  "user_defined", "I0\n", "I3\n") "aa(l" EVENT("user_defined", "I0\n", "I4\n") "aa"),
              &t);
    assert_int_equal(t.count, 1);
    assert_int_equal(t.events[0].size, 5);
    assert_int_equal(t.events[0].device, 1);
    trace_release(&t);
}

static void unusable_fields_are_refused(void **state)
{
    (void)state;
    REFUSED(TRACES("(l" EVENT("alloc", "I-5\n", "I1\n") "aa"), "alloc event has no usable size");
    REFUSED(TRACES("(l" EVENT("alloc", "S'x'\n", "I1\n") "aa"), "alloc event has no usable size");
    REFUSED(TRACES("(l" EVENT("alloc", "N", "I1\n") "aa"), "alloc event has no usable size");
    REFUSED(TRACES("(l" EVENT("alloc", "I1\n", "L18446744073709551615L\n") "aa"), "alloc event has no usable time_us");
    REFUSED(TRACES("(l" EVENT("alloc", "I1\n", "F-1.5\n") "aa"), "alloc event has no usable time_us");
    REFUSED(TRACES("(l" EVENT("alloc", "I1\n", "Fnan\n") "aa"), "alloc event has no usable time_us");
    REFUSED(TRACES("(l(dS'action'\nS'alloc'\nsaa"), "alloc event has no usable size");
    REFUSED(TRACES("(l(dS'action'\nS'alloc'\nsS'size'\nI1\nsaa"), "alloc event has no usable addr");
}

static void a_time_may_be_a_float(void **state)
{
    (void)state;
    trace t;
    read_text(TRACES("(l" EVENT("alloc", "I1\n", "F2.5\n") "aa"), &t);
    assert_int_equal(t.events[0].time_ns, 2500);
    trace_release(&t);
}

static void something_else_among_the_events_is_refused(void **state)
{
    (void)state;
    REFUSED(TRACES("(l" EVENT("alloc", "I1\n", "I1\n") "aI7\naa"), "items of different kinds");
    REFUSED(TRACES("(lI7\naa"), "\"device_traces\" is not the list");
    REFUSED(TRACES("I7\na"), "\"device_traces\" is not the list");
    REFUSED("(dS'device_traces'\nI7\ns.", "\"device_traces\" is not the list");
}

static void a_trace_used_twice_is_refused(void **state)
{
    (void)state;
    REFUSED("(dS'first'\n(lp0\n" EVENT("alloc", "I1\n", "I1\n") "asS'device_traces'\ng0\ns.",
            "\"device_traces\" is shared with another place");
    REFUSED(TRACES("(l" EVENT("alloc", "I1\n", "I1\n") "aa(lp0\nag0\na"),
            "an item of a list is shared with another place");
}

static void shared_stacks_are_fine(void **state)
{
    (void)state;
    trace t;
    read_text(TRACES("(l(dS'action'\nS'alloc'\nsS'addr'\nI4096\nsS'size'\nI1\nsS'frames'\n(lp0\n(dS'line'\nI1\nsas"
                     "a(dS'action'\nS'alloc'\nsS'addr'\nI4096\nsS'size'\nI2\nsS'frames'\ng0\nsaa"),
              &t);
    assert_int_equal(t.count, 2);
    assert_int_equal(t.events[1].size, 2);
    trace_release(&t);
}

/* The text of a frame of an event's stack; NULL when the stack is shorter. */
static const char *frame_of(const trace *t, size_t event, size_t frame)
{
    uint32_t stack = t->stacks.of[event];
    size_t at = t->stacks.first[stack] + frame;
    return at < t->stacks.first[stack + 1] ? t->stacks.frames[t->stacks.items[at]] : NULL;
}

#define STACKED(frames) "(dS'action'\nS'alloc'\nsS'addr'\nI4096\nsS'size'\nI1\nsS'frames'\n" frames "sa"
#define FRAME(file, line, name) "(dS'filename'\nS'" file "'\nsS'line'\nI" line "\nsS'name'\nS'" name "'\ns"

static void stacks_are_kept_once_each(void **state)
{
    (void)state;
    trace t;
    read_text(TRACES("(l" STACKED("(l" FRAME("a.py", "1", "f") "a" FRAME("b.py", "2", "g") "a")
                         STACKED("(l" FRAME("a.py", "1", "f") "a" FRAME("b.py", "2", "g") "a")
                             STACKED("(l" FRAME("b.py", "2", "g") "a") STACKED("(l") "a"),
              &t);
    assert_int_equal(t.stacks.count, 3); /* with the empty one */
    assert_int_equal(t.stacks.frame_count, 2);
    assert_int_equal(t.stacks.of[0], t.stacks.of[1]);
    assert_string_equal(frame_of(&t, 0, 0), "a.py:1:f");
    assert_string_equal(frame_of(&t, 0, 1), "b.py:2:g");
    assert_null(frame_of(&t, 0, 2));
    assert_string_equal(frame_of(&t, 2, 0), "b.py:2:g");
    assert_int_equal(t.stacks.of[3], 0);
    for (int i = 0; i < 4; i++) assert_int_equal(t.events[i].thread, 0);
    trace_release(&t);
}

/* As PyTorch writes them: stacks that events share, of frames that stacks share. */
static void shared_stacks_and_frames_are_met_again(void **state)
{
    (void)state;
    trace t;
    read_text(TRACES("(l" STACKED("(lp0\n" FRAME("a.py", "1", "f") "p1\na") STACKED("g0\n")
                         STACKED("(l" FRAME("??", "0", "c()") "ag1\na") "a"),
              &t);
    assert_string_equal(frame_of(&t, 1, 0), "a.py:1:f");
    assert_string_equal(frame_of(&t, 2, 0), "c()");
    assert_string_equal(frame_of(&t, 2, 1), "a.py:1:f");
    trace_release(&t);
}

static void stacks_follow_their_events_through_the_merge(void **state)
{
    (void)state;
    trace t;
    read_text(
        TRACES("(l(dS'action'\nS'alloc'\nsS'addr'\nI4096\nsS'size'\nI1\nsS'time_us'\nI9\nsS'frames'\n(l" FRAME(
            "late.py", "1",
            "f") "asaa(l(dS'action'\nS'alloc'\nsS'addr'\nI4096\nsS'size'\nI1\nsS'time_us'\nI3\nsS'frames'\n(l" FRAME("early.py",
                                                                                                                     "1",
                                                                                                                     "f") "asaa"),
        &t);
    assert_string_equal(frame_of(&t, 0, 0), "early.py:1:f");
    assert_string_equal(frame_of(&t, 1, 0), "late.py:1:f");
    trace_release(&t);
}

static void segments_are_listed_by_place(void **state)
{
    (void)state;
    trace t;
    read_text(
        "(dS'segments'\n(l(dS'device'\nI0\nsS'address'\nI65536\nsS'total_size'\nI4096\nsS'stream'\nI7\nsS'blocks'\n"
        "(lsa(dS'device'\nI0\nsS'address'\nI512\nsS'total_size'\nI1024\nsS'is_expandable'\nI01\nsS'blocks'\n(lsas.",
        &t);
    assert_int_equal(t.segment_count, 2);
    assert_int_equal(t.segments[0].address, 512);
    assert_true(t.segments[0].mapped);
    assert_false(t.segments[1].mapped);
    assert_int_equal(t.segments[1].bytes, 4096);
    assert_int_equal(t.segments[1].stream, 7);
    trace_release(&t);
}

static void devices_are_merged_by_time_each_in_its_own_order(void **state)
{
    (void)state;
    trace t;
    read_text(TRACES("(l" EVENT("alloc", "I1\n", "I10\n") "a" EVENT(
                  "alloc", "I2\n", "I5\n") "aa"  /* its clock goes back */
                                           "(la" /* device 1: silent */
                                           "(l" EVENT("alloc", "I3\n", "I10\n") "a" EVENT(
                                               "alloc", "I4\n", "I20\n") "aa"
                                                                         "(l" EVENT("alloc", "I5\n", "I1\n") "a" EVENT(
                                                                             "alloc", "I6\n", "I15\n") "aa"),
              &t);
    static const int sizes[] = { 5, 1, 2, 3, 6, 4 }, devices[] = { 3, 0, 0, 2, 3, 2 };
    assert_int_equal(t.count, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(t.events[i].size, sizes[i]);
        assert_int_equal(t.events[i].device, devices[i]);
    }
    trace_release(&t);
}

static void too_many_events_are_refused(void **state)
{
    (void)state;
    trace_limits two = trace_limits_default;
    two.events = 2;
    static const char text[] = TRACES(
        "(l" EVENT("alloc", "I1\n", "I1\n") "a" EVENT("alloc", "I1\n", "I1\n") "a" EVENT("alloc", "I1\n", "I1\n") "aa");
    refused(text, sizeof text - 1, &two, "more than 2 events");
}

static void old_blocks_are_placed_and_measured(void **state)
{
    (void)state;
    trace t;
    trace_error e;
    assert_true(trace_read(WEIR_TEST_DATA "/pickles/segments-old.pickle", &t, &e, NULL, NULL));
    assert_int_equal(t.count, 0);
    assert_int_equal(t.live_count, 2);
    assert_int_equal(t.live[0].address, 4096);
    assert_int_equal(t.live[0].bytes, 512);
    assert_int_equal(t.live[0].requested, 300);
    assert_int_equal(t.live[0].device, 1);
    assert_false(t.live[0].pending);
    assert_int_equal(t.live[1].address, 4096 + 512 + 1536);
    assert_int_equal(t.live[1].requested, 2048);
    assert_true(t.live[1].pending);
    assert_false(t.settings.known);
    trace_release(&t);
}

static void blocks_are_where_their_addresses_say(void **state)
{
    (void)state;
    trace t;
    read_text(SEGMENTS(BLOCK("512", "active_allocated") "S'address'\nI69632\nsa" BLOCK("512", "active_allocated") "a"),
              &t);
    assert_int_equal(t.live_count, 2);
    assert_int_equal(t.live[0].address, 69632);
    assert_int_equal(t.live[1].address, 69632 + 512);
    trace_release(&t);
}

/* Also when there are no events: a list of segments alone. */
static void live_blocks_have_their_stacks(void **state)
{
    (void)state;
#define STACKED_BLOCKS                                                                                                 \
    "(l(dS'device'\nI0\nsS'address'\nI512\nsS'blocks'\n(l" BLOCK(                                                      \
        "512", "active_allocated") "a"                                                                                 \
                                   "(dS'size'\nI512\nsS'state'\nS'active_allocated'\nsS'frames'\n(l" FRAME(            \
                                       "a.py", "1", "f") "asasa"
    static const char *const texts[] = { "(dS'segments'\n" STACKED_BLOCKS "s.", STACKED_BLOCKS "." };
    for (size_t i = 0; i < 2; i++) {
        trace t;
        read_text(texts[i], &t);
        assert_int_equal(t.live_count, 2);
        assert_int_equal(t.live[0].stack, 0);
        assert_int_equal(t.live[1].stack, 1);
        assert_int_equal(t.stacks.count, 2);
        assert_string_equal(t.stacks.frames[t.stacks.items[t.stacks.first[1]]], "a.py:1:f");
        trace_release(&t);
    }
}

static void an_unknown_block_state_is_named(void **state)
{
    (void)state;
    REFUSED(SEGMENTS(BLOCK("512", "asleep") "a"), "the block state \"asleep\" is unknown");
    REFUSED(SEGMENTS(BLOCK("-1", "inactive") "a"), "a block has no usable size");
}

static void live_blocks_come_by_device_and_address(void **state)
{
    (void)state;
#define SEGMENT(device, address)                                                                                       \
    "(dS'device'\nI" device "\nsS'address'\nI" address "\nsS'blocks'\n(l" BLOCK("1", "active_allocated") "asa"
    trace t;
    read_text("(l" SEGMENT("1", "100") SEGMENT("0", "300") SEGMENT("0", "200") ".", &t);
    static const int devices[] = { 0, 0, 1 }, addresses[] = { 200, 300, 100 };
    assert_int_equal(t.live_count, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(t.live[i].device, devices[i]);
        assert_int_equal(t.live[i].address, addresses[i]);
    }
    trace_release(&t);
}

static void a_pickle_of_something_else_is_refused(void **state)
{
    (void)state;
    REFUSED("(dS'weights'\nI1\ns.", "neither \"device_traces\" nor \"segments\"");
    REFUSED("\x80\x02K\x01.", "neither");
    REFUSED("(lI1\na.", "is not the list that a PyTorch memory snapshot has there");
}

static void settings_are_read_and_checked(void **state)
{
    (void)state;
    trace t;
    read_text("(dS'segments'\n(lsS'allocator_settings'\n(dS'max_split_size'\nI-1\nsS'PYTORCH_ALLOC_CONF'\nS'a:b'\nss.",
              &t);
    assert_true(t.settings.known);
    assert_int_equal(t.settings.max_split_size, 0);
    assert_string_equal(t.settings.config, "a:b");
    trace_release(&t);
    REFUSED("(dS'segments'\n(lsS'allocator_settings'\n(dS'roundup_power2_divisions'\n(dS'256'\nI3\nsss.",
            "roundup_power2_divisions has no power of two at \"256\"");
    REFUSED("(dS'segments'\n(lsS'allocator_settings'\n(dS'roundup_power2_divisions'\n(dS'32768'\nI65536\nsss.",
            "roundup_power2_divisions has no power of two at \"32768\"");
}

static void settings_of_other_types_are_passed_over(void **state)
{
    (void)state;
    trace t;
    read_text(
        "(dS'segments'\n(lsS'allocator_settings'\n(dS'max_split_size'\nS'x'\nsS'garbage_collection_threshold'\nI1\n"
        "sS'PYTORCH_CUDA_ALLOC_CONF'\nI7\nss.",
        &t);
    assert_true(t.settings.known);
    assert_int_equal(t.settings.max_split_size, 0);
    assert_true(t.settings.gc_threshold == 0);
    assert_string_equal(t.settings.config, "");
    trace_release(&t);
}

static void a_key_given_twice_counts_the_last_time(void **state)
{
    (void)state;
    trace t;
    read_text("(dS'device_traces'\n(l(l" EVENT("alloc", "I1\n",
                                               "I1\n") "aasS'device_traces'\n(l(l" EVENT("oom", "I2\n", "I1\n") "aas.",
              &t);
    assert_int_equal(t.count, 1);
    assert_int_equal(t.events[0].kind, WEIR_EVENT_OOM);
    trace_release(&t);
}

/* Each allocation fails in turn. */
static void lack_of_memory_is_reported(void **state)
{
    (void)state;
    static const char text[] =
        TRACES("(l" STACKED("(l" FRAME("a.py", "1", "f") "a") EVENT("alloc", "I1\n", "I1\n") "aa");
    unsigned failed = 0;
    for (unsigned nth = 1, left = 0; left == 0; nth++) {
        trace t;
        trace_error e = { .text = "" };
        failing = nth;
        const bool good = trace_read_memory(text, sizeof text - 1, NULL, &t, &e);
        left = failing;
        failing = 0;
        if (good) trace_release(&t);
        if (!good) assert_non_null(strstr(e.text, "out of memory"));
        failed += !good;
    }
    assert_in_range(failed, 20, 60);
}

/* Not the last one: it may be the first that causes the others. */
static void of_several_reasons_the_first_is_given(void **state)
{
    (void)state;
    REFUSED(TRACES("(l" EVENT("teleport", "I1\n", "I1\n") "aa(l" EVENT("alloc", "I1\n", "I1\n") "aa(l" EVENT(
                "vanish", "I1\n", "I1\n") "aa"),
            "the event action \"teleport\" is unknown");
    REFUSED(TRACES("(l" EVENT("teleport", "I1\n", "I1\n") "aa(l" EVENT("vanish", "I1\n", "I1\n") "aa"),
            "the event action \"teleport\" is unknown");
    REFUSED(TRACES("(l" EVENT("alloc", "I1\n", "I1\n") "aa(l" EVENT("vanish", "I1\n", "I1\n") "aa"),
            "the event action \"vanish\" is unknown");
}

static void there_are_as_many_devices_as_have_numbers(void **state)
{
    (void)state;
    enum { MOST = INT16_MAX + 1 };
    static const char head[] = "(dS'device_traces'\n(l", event[] = "(l" EVENT("alloc", "I7\n", "I1\n") "aas.";
    const size_t begin = sizeof head - 1, end = sizeof event - 1, count = begin + 2 * MOST + end;
    char *text = malloc(count + 1);
    assert_non_null(text);
    memcpy(text, head, begin);
    for (size_t i = 0; i < MOST; i++) memcpy(text + begin + 2 * i, "]a", 2);
    memcpy(text + begin + (size_t)2 * (MOST - 1), event, sizeof event);
    trace t;
    read_text(text, &t);
    assert_int_equal(t.count, 1);
    assert_int_equal(t.events[0].device, INT16_MAX);
    trace_release(&t);
    memcpy(text + begin + (size_t)2 * (MOST - 1), "]a", 2);
    memcpy(text + begin + (size_t)2 * MOST, event, end);
    refused(text, count, NULL, "traces of 32769 devices, more than 32768");
    free(text);
}

static void events_without_a_place_need_no_address(void **state)
{
    (void)state;
    trace t;
    read_text(TRACES("(l(dS'action'\nS'snapshot'\nsS'size'\nI0\nsa(dS'action'\nS'oom'\nsS'size'\nI5\nsaa"), &t);
    assert_int_equal(t.count, 2);
    assert_int_equal(t.events[0].address | t.events[1].address, 0);
    trace_release(&t);
    REFUSED(TRACES("(l(dS'action'\nS'segment_unmap'\nsS'size'\nI5\nsaa"), "segment_unmap event has no usable addr");
}

static void only_a_failure_tells_what_the_device_has_free(void **state)
{
    (void)state;
    trace t;
    read_text(TRACES("(l" EVENT("oom", "I1\n", "I1\n") "a" EVENT("oom", "I1\n", "I1\n") "S'device_free'\nI7\nsa" EVENT(
                  "alloc", "I1\n", "I1\n") "S'device_free'\nI7\nsaa"),
              &t);
    assert_int_equal(t.events[0].address, 4096);
    assert_int_equal(t.events[1].address, 7);
    assert_int_equal(t.events[2].address, 4096);
    trace_release(&t);
}

static void a_pool_of_none_is_the_default_pool(void **state)
{
    (void)state;
    trace t;
    read_text(TRACES("(l" EVENT("alloc", "I1\n", "I1\n") "S'pool_id'\nNsaa"), &t);
    assert_int_equal(t.events[0].pool[0] | t.events[0].pool[1], 0);
    trace_release(&t);
    REFUSED(TRACES("(l" EVENT("alloc", "I1\n", "I1\n") "S'pool_id'\nI7\nsaa"), "alloc event has no usable pool_id");
}

static void only_true_is_true(void **state)
{
    (void)state;
    trace t;
    read_text("(l(dS'total_size'\nI512\nsS'is_expandable'\nI1\nsS'blocks'\n(lsa.", &t);
    assert_int_equal(t.segment_count, 1);
    assert_false(t.segments[0].mapped);
    trace_release(&t);
}

/* No name that matters is so long. */
static void text_of_more_than_4096_bytes_is_no_name(void **state)
{
    (void)state;
    static const char *const ends[][2] = { { "S'", "'\n" }, { "V", "\n" } };
    static char text[20000], name[10001];
    for (size_t i = 0; i < 2; i++) {
        for (size_t length = 4000; length <= 10000; length += 6000) {
            memset(name, 'n', length);
            name[length] = '\0';
            snprintf(text, sizeof text, "%s%s%s%s%s",
                     "(dS'device_traces'\n(l(l(dS'action'\nS'alloc'\nsS'addr'\nI4096\nsS'size'\nI1\nsS'frames'\n(l"
                     "(dS'filename'\nS'f'\nsS'line'\nI1\nsS'name'\n",
                     ends[i][0], name, ends[i][1], "sasaas.");
            trace t;
            read_text(text, &t);
            assert_int_equal(strlen(frame_of(&t, 0, 0)), length <= 4096 ? strlen("f:1:") + length : strlen("f:1:"));
            trace_release(&t);
        }
    }
}

static void frames_without_names_are_unknown_places(void **state)
{
    (void)state;
    trace t;
    read_text(TRACES("(l" STACKED("(l(dS'filename'\nI7\nsS'line'\nI3\nsS'name'\nI7\nsa(dS'filename'\nNsS'line'\n"
                                  "Ns"
                                  "S'name'\nS'g'\nsa" FRAME("c.cpp", "0", "h") "a") "a"),
              &t);
    assert_string_equal(frame_of(&t, 0, 0), "??");
    assert_string_equal(frame_of(&t, 0, 1), "g");
    assert_string_equal(frame_of(&t, 0, 2), "c.cpp:h");
    trace_release(&t);
}

static void without_rounding_there_is_no_text_of_it(void **state)
{
    (void)state;
    trace t;
    read_text("(dS'segments'\n(lsS'allocator_settings'\n(dS'roundup_power2_divisions'\n(dS'1'\nI0\nsS'2'\nI0\nsss.",
              &t);
    assert_string_equal(t.settings.roundup_power2_divisions, "");
    trace_release(&t);
}

/* What comes after it makes no difference. */
static void sizes_whose_sum_exceeds_64_bits_are_refused(void **state)
{
    (void)state;
#define HALF "L9223372036854775808L\n"
#define LISTED(bytes) "(l(dS'total_size'\n" bytes "sS'blocks'\n(l" BLOCK("512", "active_allocated") "asa"
    REFUSED("(dS'segments'\n" LISTED("I512\n") "sS'device_traces'\n(l(l" EVENT("alloc", HALF, "I1\n") "a" EVENT(
                "alloc", HALF, "I1\n") "aas.",
            "its sizes add up to 16 EiB or more");
    REFUSED("(dS'segments'\n" LISTED(HALF) "(dS'total_size'\n" HALF "sS'blocks'\n(lsas.",
            "its sizes add up to 16 EiB or more");
    REFUSED("(dS'segments'\n(l(dS'total_size'\nI512\nsS'blocks'\n(l(dS'state'\nS'active_allocated'\nsS'size'\n" HALF
            "sa(dS'state'\nS'active_allocated'\nsS'size'\n" HALF "sasas.",
            "its sizes add up to 16 EiB or more");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_action_is_named),
        cmocka_unit_test(an_unknown_action_elsewhere_does_not_matter),
        cmocka_unit_test(annotations_of_the_program_are_passed_over),
        cmocka_unit_test(unusable_fields_are_refused),
        cmocka_unit_test(a_time_may_be_a_float),
        cmocka_unit_test(something_else_among_the_events_is_refused),
        cmocka_unit_test(a_trace_used_twice_is_refused),
        cmocka_unit_test(shared_stacks_are_fine),
        cmocka_unit_test(stacks_are_kept_once_each),
        cmocka_unit_test(shared_stacks_and_frames_are_met_again),
        cmocka_unit_test(stacks_follow_their_events_through_the_merge),
        cmocka_unit_test(segments_are_listed_by_place),
        cmocka_unit_test(devices_are_merged_by_time_each_in_its_own_order),
        cmocka_unit_test(too_many_events_are_refused),
        cmocka_unit_test(old_blocks_are_placed_and_measured),
        cmocka_unit_test(blocks_are_where_their_addresses_say),
        cmocka_unit_test(live_blocks_have_their_stacks),
        cmocka_unit_test(an_unknown_block_state_is_named),
        cmocka_unit_test(live_blocks_come_by_device_and_address),
        cmocka_unit_test(a_pickle_of_something_else_is_refused),
        cmocka_unit_test(settings_are_read_and_checked),
        cmocka_unit_test(settings_of_other_types_are_passed_over),
        cmocka_unit_test(a_key_given_twice_counts_the_last_time),
        cmocka_unit_test(of_several_reasons_the_first_is_given),
        cmocka_unit_test(there_are_as_many_devices_as_have_numbers),
        cmocka_unit_test(events_without_a_place_need_no_address),
        cmocka_unit_test(only_a_failure_tells_what_the_device_has_free),
        cmocka_unit_test(a_pool_of_none_is_the_default_pool),
        cmocka_unit_test(only_true_is_true),
        cmocka_unit_test(text_of_more_than_4096_bytes_is_no_name),
        cmocka_unit_test(frames_without_names_are_unknown_places),
        cmocka_unit_test(without_rounding_there_is_no_text_of_it),
        cmocka_unit_test(sizes_whose_sum_exceeds_64_bits_are_refused),
        cmocka_unit_test(lack_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
