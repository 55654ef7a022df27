/*
 * debug_streams_support: three streams whose uses of memory are watched, and what is said of them. Include after the
 * cmocka headers.
 */
#ifndef WEIR_TESTS_UNIT_DEBUG_STREAMS_SUPPORT_H
#define WEIR_TESTS_UNIT_DEBUG_STREAMS_SUPPORT_H

#include "host_support.h"
#include "log_support.h"
#include "weir/trace.h"

static weir_stream home, other, third;
static unsigned char host[4096];

static const char *policy;
static uint64_t history;

static inline void open_streams(const char *words)
{
    open_host((weir_settings){
        .policy = policy, .host_devices = 2, .host_memory = 256 * MIB, .debug = words, .history = history });
    home = new_stream(0);
    other = new_stream(0);
    third = new_stream(0);
    begin_log();
}

static inline int open_them(void **state)
{
    (void)state;
    open_streams("streams");
    return 0;
}

static inline uint64_t misuses(void)
{
    return stats_of(0).stream_misuses;
}

/* The log since the beginning of the test. */
static inline const char *said(void)
{
    const char *text = end_log();
    begin_log();
    return text;
}

static inline void expect_silence(void)
{
    assert_int_equal(misuses(), 0);
    assert_string_equal(said(), "");
}

/* One line with all of these, and the stacks. */
static inline void expect_said(const char *first, const char *second, const char *third_part)
{
    const char *text = said();
    const char *parts[] = { first, second, third_part, "\nweir: " };
    for (int i = 0; i < 4; i++)
        if (!strstr(text, parts[i])) fail_msg("\"%s\" is not in: %s", parts[i], text);
    assert_int_equal(misuses(), 1);
}

static inline int close_them(void **state)
{
    end_log();
    return close_host(state);
}

static inline void use(const void *block, weir_stream stream)
{
    assert_ok(weir_copy(host, block, 64, stream));
}

/* The last event, which must be of that kind and about that block. */
static inline void expect_event(weir_event_kind kind, const void *block, size_t bytes, weir_stream stream)
{
    static weir_event events[1000];
    size_t count = 0;
    assert_ok(weir_history_read(0, events, 1000, &count, NULL));
    assert_in_range(count, 1, 1000);
    const weir_event *e = &events[count - 1];
    assert_int_equal(e->kind, kind);
    assert_int_equal(e->address, (uintptr_t)block);
    assert_int_equal(e->size, bytes);
    assert_int_equal(e->stream, (uintptr_t)native_of(stream));
}

#endif
