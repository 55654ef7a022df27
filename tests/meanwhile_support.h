/*
 * meanwhile_support: a thread that is stopped in the middle of an operation by a slow driver call. Include after the
 * cmocka headers.
 */
#ifndef WEIR_TESTS_MEANWHILE_SUPPORT_H
#define WEIR_TESTS_MEANWHILE_SUPPORT_H

#include "host_support.h"
#include "thread_support.h"

#define SLOW_MS 400

static inline void start(pthread_t *thread, void *(*work)(void *), void *argument)
{
    assert_int_equal(pthread_create(thread, NULL, work, argument), 0);
}

/* Starts a thread whose next call of the entry takes SLOW_MS. Returns once it has begun; later calls are fast. */
static inline void start_slowly(pthread_t *thread, void *(*work)(void *), void *argument, enum weir_backend_entry entry)
{
    const uint64_t before = calls_of(entry);
    assert_ok(weir_host_latency(entry, SLOW_MS * UINT64_C(1000000)));
    start(thread, work, argument);
    await_call_of(entry, before);
    assert_ok(weir_host_latency(entry, 0));
}

/* A thread that lets a held stream run once somebody waits for an event, in the driver. */
typedef struct releaser {
    pthread_t thread;
    weir_stream stream;
    uint64_t waits;
} releaser;

static inline void *release_once_waited_for(void *argument)
{
    const releaser *r = argument;
    await_call_of(WEIR_BACKEND_event_synchronize, r->waits);
    (void)!weir_host_stream_release(device_of(r->stream), native_of(r->stream));
    return NULL;
}

/* The stream has work until then. */
static inline void start_releaser(releaser *r, weir_stream stream)
{
    make_busy(stream);
    *r = (releaser){ .stream = stream, .waits = calls_of(WEIR_BACKEND_event_synchronize) };
    start(&r->thread, release_once_waited_for, r);
}

#endif
