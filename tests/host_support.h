/*
 * host_support: shared by tests of the whole library: opening it on the host back end, calls that must succeed, and
 * streams held by hand. Include after the cmocka headers.
 */
#ifndef WEIR_TESTS_HOST_SUPPORT_H
#define WEIR_TESTS_HOST_SUPPORT_H

#include "assert_weir.h"
#include "backend/backend.h"
#include "weir/host.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* TEST_BACKEND names another back end, for tests that do not use weir/host.h. */
static inline const char *test_backend(void)
{
    const char *backend = getenv("TEST_BACKEND");
    return backend ? backend : "host";
}

static inline void open_host(weir_settings settings)
{
    settings.size = sizeof settings;
    settings.backend = test_backend();
    assert_ok(weir_open(&settings));
}

/* A set-up: a device of 64 MiB. */
static inline int open_small_host(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 64 * MIB });
    return 0;
}

/* A set-up: two devices of 64 MiB. */
static inline int open_two_small_hosts(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_devices = 2, .host_memory = 64 * MIB });
    return 0;
}

/* A set-up: a device of 512 MiB. */
static inline int open_medium_host(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 512 * MIB });
    return 0;
}

/* The same with a policy, the test's initial state. */
static inline int open_host_of_policy(void **state)
{
    open_host((weir_settings){ .policy = *state, .host_memory = 512 * MIB });
    return 0;
}

/* A set-up: a device of 16 GiB. */
static inline int open_large_host(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 16384 * MIB });
    return 0;
}

static inline void *alloc(size_t bytes)
{
    return alloc_on(bytes, WEIR_STREAM_CURRENT);
}

static inline weir_stream new_stream(int device)
{
    weir_stream stream = { 0 };
    assert_ok(weir_stream_create(device, WEIR_PRIORITY_DEFAULT, &stream));
    return stream;
}

static inline weir_stream default_stream(int device)
{
    weir_stream stream = { 0 };
    assert_ok(weir_stream_default(device, &stream));
    return stream;
}

static inline void *native_of(weir_stream stream)
{
    void *native = NULL;
    assert_ok(weir_stream_native(stream, &native));
    return native;
}

/* Ends a capture that the program began itself, whose graph it does not need. */
static inline void end_natively(void *native)
{
    void *graph = NULL;
    assert_ok(wr_backend_host.capture_end(0, native, &graph));
    assert_ok(wr_backend_host.graph_destroy(0, graph));
}

static inline int device_of(weir_stream stream)
{
    int device = -1;
    assert_ok(weir_stream_device(stream, &device));
    return device;
}

/* From now on, work on the stream does not run. */
static inline void hold(weir_stream stream)
{
    assert_ok(weir_host_stream_hold(device_of(stream), native_of(stream)));
}

static inline void do_nothing(void *argument)
{
    (void)argument;
}

/* Work that does not run until the stream is stepped or released. */
static inline void make_busy(weir_stream stream)
{
    hold(stream);
    assert_ok(weir_stream_callback(stream, do_nothing, NULL));
}

static inline void let_run(weir_stream stream)
{
    assert_ok(weir_host_stream_release(device_of(stream), native_of(stream)));
    assert_ok(weir_stream_synchronize(stream));
}

/* Work that takes a while and says when it is over. */
typedef struct slow_work {
    atomic_bool done;
    int milliseconds;
} slow_work;

static inline void do_slow_work(void *argument)
{
    slow_work *work = argument;
    struct timespec time = { 0, work->milliseconds * 1000000L };
    nanosleep(&time, NULL);
    atomic_store(&work->done, true);
}

static inline void start_slow_work(weir_stream stream, slow_work *work)
{
    assert_ok(weir_stream_callback(stream, do_slow_work, work));
}

static inline weir_memory_stats stats_of(int device)
{
    weir_memory_stats stats = { .size = sizeof stats };
    assert_ok(weir_stats_get(device, &stats));
    return stats;
}

static inline int64_t reserved_on(int device)
{
    return stats_of(device).reserved_bytes[WEIR_STAT_ALL].current;
}

static inline uint64_t driver_calls(void)
{
    uint64_t count = 0;
    assert_ok(weir_driver_calls(&count));
    return count;
}

static inline uint64_t calls_of(enum weir_backend_entry entry)
{
    uint64_t count = 0;
    assert_ok(weir_host_calls(entry, &count));
    return count;
}

/* Returns once another thread has made another call of it than the `before` first ones. */
static inline void await_call_of(enum weir_backend_entry entry, uint64_t before)
{
    while (calls_of(entry) == before) sched_yield();
}

static inline weir_pointer_info info_of(const void *pointer)
{
    weir_pointer_info info = { .size = sizeof info };
    assert_ok(weir_pointer_info_get(pointer, &info));
    return info;
}

/* Teardown: all structures are still consistent, and closing works. */
static inline int close_host(void **state)
{
    (void)state;
    int count = 0;
    assert_ok(weir_device_count(&count));
    for (int device = 0; device < count; device++) assert_ok(weir_validate(device));
    assert_ok(weir_close());
    return 0;
}

/* The driver calls by which a policy, the test's initial state, takes memory and gives it back. */
static inline enum weir_backend_entry taking_entry(void *const *policy)
{
    return strcmp(*policy, "weir") == 0 ? WEIR_BACKEND_vm_create : WEIR_BACKEND_segment_alloc;
}

static inline enum weir_backend_entry giving_entry(void *const *policy)
{
    return strcmp(*policy, "weir") == 0 ? WEIR_BACKEND_vm_destroy : WEIR_BACKEND_segment_free;
}

/* A fault in weir's structures: weir_validate() must notice it, and succeed again once it is mended. */
#define assert_noticed(word)                                                                                           \
    do {                                                                                                               \
        assert_status(weir_validate(0), WEIR_ERR_INTERNAL);                                                            \
        assert_non_null(strstr(weir_error_text(), word));                                                              \
    } while (0)

#endif
