/*
 * Recordings in which one half of each free is left out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/input_support.h"

/* As protocol 0 text: see test_input_snapshot.c. */
#define EVENT(action, address) "(dS'action'\nS'" action "'\nsS'addr'\nI" address "\nsS'size'\nI512\nsa"
#define STACKED(action, address, name)                                                                                 \
    "(dS'action'\nS'" action "'\nsS'addr'\nI" address                                                                  \
    "\nsS'size'\nI512\nsS'frames'\n(l(dS'filename'\nS'f'\nsS'line'\n"                                                  \
    "I0\nsS'name'\nS'" name "'\nsasa"
#define DEVICE(events) "(l" events "a"
#define SNAPSHOT(devices) "(dS'device_traces'\n(l" devices "s."
#define WAITING(address)                                                                                               \
    "S'segments'\n(l(dS'device'\nI0\nsS'address'\nI" address "\nsS'blocks'\n(l(dS'size'\nI512\nsS'state'\n"            \
    "S'active_pending_free'\nsasas"

static void read_text(const char *text, trace *t)
{
    trace_error e;
    if (!read_exact(text, strlen(text), NULL, t, &e)) fail_msg("at %llu: %s", (unsigned long long)e.offset, e.text);
}

/* Expects a letter per event: alloc, requested, completed; upper case for device 1. */
static void assert_events(const char *text, const char *wanted)
{
    static const char letters[] = "?arc";
    trace t;
    read_text(text, &t);
    assert_int_equal(t.count, strlen(wanted));
    for (size_t i = 0; i < t.count; i++) {
        const char letter = letters[t.events[i].kind];
        assert_int_equal(t.events[i].device ? letter & ~0x20 : letter, wanted[i]);
        assert_int_equal(t.events[i].size, 512);
    }
    trace_release(&t);
}

static void a_request_alone_is_the_completion_too(void **state)
{
    (void)state;
    assert_events(SNAPSHOT(DEVICE(EVENT("alloc", "512") EVENT("free_requested", "512") EVENT("alloc", "512")
                                      EVENT("free_requested", "512"))),
                  "arcarc");
}

static void a_completion_alone_is_the_request_too(void **state)
{
    (void)state;
    assert_events(SNAPSHOT(DEVICE(EVENT("alloc", "512") EVENT("free_completed", "512"))), "arc");
}

static void completions_of_blocks_from_before_have_their_requests_before(void **state)
{
    (void)state;
    assert_events(SNAPSHOT(DEVICE(EVENT("alloc", "512") EVENT("free_completed", "1024") EVENT("alloc", "1024"))),
                  "aca");
}

static void devices_are_told_apart(void **state)
{
    (void)state;
    assert_events(SNAPSHOT(DEVICE(EVENT("alloc", "512") EVENT("free_requested", "512") EVENT("free_completed", "512")
                                      EVENT("free_requested", "1024")) DEVICE(EVENT("free_requested", "512"))),
                  "arcrRC");
}

static void a_free_still_pending_at_the_end_is_not_completed(void **state)
{
    (void)state;
    assert_events("(d" WAITING("512") "S'device_traces'\n(l" DEVICE(
                      EVENT("alloc", "512") EVENT("free_requested", "512") EVENT("alloc", "512")
                          EVENT("free_requested", "512") EVENT("free_requested", "2048")) "s.",
                  "arcarrc");
}

static void a_pending_free_is_found_among_many_blocks(void **state)
{
    (void)state;
#define LISTED(address, state)                                                                                         \
    "(dS'device'\nI0\nsS'address'\nI" address "\nsS'blocks'\n(l(dS'size'\nI512\nsS'state'\nS'" state "'\nsasa"
#define LIVE(address) LISTED(address, "active_allocated")
#define PENDING(address) LISTED(address, "active_pending_free")
    assert_events("(dS'segments'\n(l" PENDING("512") LIVE("1024") LIVE("2048") LIVE("4096")
                      PENDING("8192") "sS'device_traces'\n(l" DEVICE(EVENT("free_requested", "512") EVENT(
                          "free_requested", "8192") EVENT("free_requested", "4096")) "s.",
                  "rrrc");
}

/* Its last request is not recorded. */
static void a_completion_where_a_free_is_pending_is_of_the_block_before(void **state)
{
    (void)state;
    assert_events("(d" WAITING("512") "S'device_traces'\n(l" DEVICE(EVENT("alloc", "512") EVENT("free_completed", "512")
                                                                        EVENT("alloc", "512")) "s.",
                  "arca");
}

static void stacks_stay_with_their_events(void **state)
{
    (void)state;
    trace t;
    read_text(SNAPSHOT(DEVICE(STACKED("alloc", "512", "make") STACKED("free_requested", "512", "drop")
                                  STACKED("alloc", "512", "more"))),
              &t);
    static const char *const wanted[] = { "f:make", "f:drop", "f:drop", "f:more" };
    assert_int_equal(t.count, 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(t.stacks.frames[t.stacks.items[t.stacks.first[t.stacks.of[i]]]], wanted[i]);
    trace_release(&t);
}

static void stacks_stay_with_their_events_where_a_free_is_pending(void **state)
{
    (void)state;
    trace t;
    read_text("(d" WAITING("512") "S'device_traces'\n(l" DEVICE(STACKED("alloc", "512", "make") STACKED(
                  "free_requested", "512", "drop") STACKED("free_requested", "2048", "old")) "s.",
              &t);
    static const char *const wanted[] = { "f:make", "f:drop", "f:old", "f:old" };
    assert_int_equal(t.count, 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(t.stacks.frames[t.stacks.items[t.stacks.first[t.stacks.of[i]]]], wanted[i]);
    trace_release(&t);
}

static void the_limit_holds_for_the_halves_too(void **state)
{
    (void)state;
    trace_limits three = trace_limits_default;
    three.events = 3;
    static const char text[] = SNAPSHOT(DEVICE(EVENT("free_requested", "512") EVENT("free_requested", "1024")));
    refused(text, sizeof text - 1, &three, "more than 3 events, the limit, counting the halves of frees");
    trace_limits four = three;
    four.events = 4;
    trace t;
    assert_true(read_exact(text, sizeof text - 1, &four, &t, NULL));
    assert_int_equal(t.count, 4);
    trace_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_alone_is_the_completion_too),
        cmocka_unit_test(a_completion_alone_is_the_request_too),
        cmocka_unit_test(completions_of_blocks_from_before_have_their_requests_before),
        cmocka_unit_test(devices_are_told_apart),
        cmocka_unit_test(a_free_still_pending_at_the_end_is_not_completed),
        cmocka_unit_test(a_pending_free_is_found_among_many_blocks),
        cmocka_unit_test(a_completion_where_a_free_is_pending_is_of_the_block_before),
        cmocka_unit_test(stacks_stay_with_their_events),
        cmocka_unit_test(stacks_stay_with_their_events_where_a_free_is_pending),
        cmocka_unit_test(the_limit_holds_for_the_halves_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
