/*
 * Served plans while other threads are in the driver.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "capture_support.h"
#include "device/device.h"
#include "meanwhile_support.h"
#include "pool/plan/serve.h"
#include "pool_support.h"
#include "thread/thread.h"
#include "weir/plan.h"

enum { ENTRIES = 20 };

static size_t bytes_of(int entry)
{
    return (size_t)(1 + entry) * MIB / 2;
}

/* A plan of one arena, for the first stream to come. `pool`: 0, or a private pool's number in the plan. */
static void serve_one_arena(uint32_t pool)
{
    weir_plan_entry entries[ENTRIES];
    weir_plan_arena arena = { .pool = pool, .streams = 1, .entries = ENTRIES };
    for (int i = 0; i < ENTRIES; i++) {
        entries[i] = (weir_plan_entry){ arena.bytes, bytes_of(i), WEIR_PLAN_FOREVER, 0 };
        arena.bytes += bytes_of(i);
    }
    const weir_plan plan = { .arenas = &arena, .arena_count = 1, .entries = entries, .entry_count = ENTRIES };
    assert_ok(weir_plan_serve(0, &plan));
}

static int open_default(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 1024 * MIB });
    return 0;
}

static void *take_first(void *stream)
{
    return alloc_on(bytes_of(0), *(weir_stream *)stream);
}

/* Another stream asks for what the arena begins with while the arena gets its first memory. */
static void a_stream_gets_no_place_of_a_stream_that_is_just_getting_its_first(void **state)
{
    (void)state;
    weir_stream first = new_stream(0), second = new_stream(0);
    pthread_t thread;
    void *place = NULL;
    serve_one_arena(0);
    start_slowly(&thread, take_first, &first, WEIR_BACKEND_vm_create);
    for (int i = 0; i < ENTRIES; i++) {
        const char *block = alloc_on(bytes_of(i), second);
        assert_int_equal(info_of(block).stream.id, second.id);
    }
    pthread_join(thread, &place);
    assert_int_equal(info_of(place).stream.id, first.id);
    assert_int_equal(stats_of(0).plan_served, 1);
}

typedef struct user {
    weir_mempool pool;
    weir_stream stream;
} user;

static void *take_for_one_that_ends(void *argument)
{
    const user *u = argument;
    void *block = NULL;
    assert_status(weir_alloc_from(u->pool, bytes_of(0), u->stream, &block), WEIR_ERR_INVALID_STREAM);
    return NULL;
}

/* It ends while the driver is asked whether it captures, as long as others do. */
static void a_stream_that_ends_meanwhile_gets_no_arena_of_a_pool(void **state)
{
    (void)state;
    user u = { make_pool(pool_options(WEIR_MEMORY_DEVICE, "")), new_stream(0) };
    weir_stream capturing = new_stream(0), other = new_stream(0);
    pthread_t thread;
    serve_one_arena(1);
    weir_graph graph = begin_on(capturing);
    start_slowly(&thread, take_for_one_that_ends, &u, WEIR_BACKEND_capture_status);
    assert_ok(weir_stream_destroy(u.stream));
    pthread_join(thread, NULL);
    end_unharmed(graph, capturing);
    (void)alloc_from(make_pool(pool_options(WEIR_MEMORY_DEVICE, "")), bytes_of(0), other);
    assert_int_equal(stats_of(0).plan_served, 1);
}

/* A request that has found its stream, but has not yet come to the plan. */
static wr_request begin_request(weir_stream stream, size_t bytes)
{
    wr_device *device = NULL;
    wr_stream *found = NULL;
    assert_ok(wr_thread_resolve_stream(stream, &device, &found));
    return wr_cache_request(device->cache.pools, 0, found, bytes);
}

static void assert_gets_no_place(const wr_request *request)
{
    void *none = request->pool; /* of no account */
    assert_false(wr_serve_take(request->pool->cache, request, &none));
    assert_null(none);
}

static void a_stream_that_ends_meanwhile_does_not_get_the_only_arena(void **state)
{
    (void)state;
    weir_stream ended = new_stream(0), late = new_stream(0);
    serve_one_arena(0);
    const wr_request request = begin_request(ended, bytes_of(0));
    assert_ok(weir_stream_destroy(ended));
    assert_gets_no_place(&request);
    for (int i = ENTRIES / 2; i < ENTRIES; i++) (void)alloc_on(bytes_of(i), late);
    assert_true(stats_of(0).plan_served > 0);
}

/* The stream's record is used again. */
static void a_stream_that_ends_meanwhile_gets_no_place_of_the_next_one(void **state)
{
    (void)state;
    weir_stream ended = new_stream(0);
    serve_one_arena(0);
    const wr_request request = begin_request(ended, bytes_of(1));
    assert_ok(weir_stream_destroy(ended));
    weir_stream next = new_stream(0);
    assert_ptr_equal(begin_request(next, 1).stream, request.stream);
    const char *first = alloc_on(bytes_of(0), next);
    assert_gets_no_place(&request);
    assert_ptr_equal(alloc_on(bytes_of(1), next), first + bytes_of(0));
}

static void a_stream_that_ends_meanwhile_is_lent_no_place(void **state)
{
    (void)state;
    weir_stream ended = new_stream(0);
    void *none = &ended; /* of no account */
    serve_one_arena(0);
    const wr_request request = begin_request(ended, bytes_of(0));
    assert_ok(weir_stream_destroy(ended));
    weir_stream next = new_stream(0);
    assert_ptr_equal(begin_request(next, 1).stream, request.stream);
    assert_ok(weir_free(alloc_on(bytes_of(0), next)));
    assert_ok(weir_plan_serve(0, NULL)); /* its places are ordinary free memory now */
    wr_serve_lend(request.pool->cache, &request, &none);
    assert_null(none);
}

#define SERVE_TEST(test) cmocka_unit_test_setup_teardown(test, open_default, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVE_TEST(a_stream_gets_no_place_of_a_stream_that_is_just_getting_its_first),
        SERVE_TEST(a_stream_that_ends_meanwhile_gets_no_arena_of_a_pool),
        SERVE_TEST(a_stream_that_ends_meanwhile_does_not_get_the_only_arena),
        SERVE_TEST(a_stream_that_ends_meanwhile_gets_no_place_of_the_next_one),
        SERVE_TEST(a_stream_that_ends_meanwhile_is_lent_no_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
