/*
 * What a thread remembers of the streams that it allocates on, and of pools that it names: it finds out anew where
 * their allocations go as soon as that may have changed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph_support.h"
#include "meanwhile_support.h"
#include "thread/thread.h"
#include "thread_support.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Uses the stream so often that the thread remembers it. */
static void use(weir_stream stream)
{
    for (int i = 0; i < 200; i++) assert_ok(weir_free(alloc_on(4096, stream)));
}

static weir_mempool new_pool(void)
{
    return make_pool(pool_options(WEIR_MEMORY_DEVICE, "named"));
}

/* Uses pool and stream so often that the thread remembers both. */
static void use_in(weir_mempool pool, weir_stream stream)
{
    for (int i = 0; i < 200; i++) assert_ok(weir_free(alloc_from(pool, 4096, stream)));
}

static uint64_t pool_of_next_on(weir_stream stream)
{
    void *pointer = alloc_on(4096, stream);
    const weir_mempool pool = info_of(pointer).pool;
    assert_ok(weir_free(pointer));
    return pool.user;
}

/* Another stream has the same record and front, and is used so that the thread's memory of the first is left alone. */
static void a_stream_that_has_ended_is_refused(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    void *out = NULL;
    use(stream);
    assert_ok(weir_stream_destroy(stream));
    assert_status(weir_alloc_on(4096, stream, &out), WEIR_ERR_INVALID_STREAM);
    assert_ok(weir_stream_set_current(new_stream(0)));
    for (int i = 0; i < 200; i++) assert_ok(weir_free(alloc(4096)));
    assert_status(weir_alloc_on(4096, stream, &out), WEIR_ERR_INVALID_STREAM);
}

static void a_stream_from_before_a_close_is_refused(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    void *out = NULL;
    use(stream);
    assert_ok(weir_close());
    assert_status(weir_alloc_on(4096, stream, &out), WEIR_ERR_CLOSED);
    open_medium_host(NULL);
    assert_status(weir_alloc_on(4096, stream, &out), WEIR_ERR_INVALID_STREAM);
    use(new_stream(0));
}

typedef struct route {
    weir_stream stream;
    weir_mempool pool;
} route;

static void *route_it(void *argument)
{
    const route *r = argument;
    return (void *)(intptr_t)weir_mempool_route_stream(r->pool, r->stream);
}

static void by_another_thread(route r)
{
    assert_ok((weir_status)(intptr_t)in_a_thread(route_it, &r));
}

static void a_route_that_another_thread_opens_is_followed(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, "x"));
    use(stream);
    by_another_thread((route){ stream, pool });
    assert_int_equal(pool_of_next_on(stream), pool.user);
    by_another_thread((route){ stream, { 0, 0 } });
    use(stream);
    assert_int_equal(pool_of_next_on(stream), 0);
}

static void a_pool_that_the_thread_enters_serves_until_it_is_left(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, "x"));
    for (int i = 0; i < 3; i++) {
        use(stream);
        assert_int_equal(pool_of_next_on(stream), 0);
        assert_ok(weir_mempool_enter(pool));
        assert_int_equal(pool_of_next_on(stream), pool.user);
        use(stream);
        assert_int_equal(pool_of_next_on(stream), pool.user);
        assert_ok(weir_mempool_leave(pool));
        assert_int_equal(pool_of_next_on(stream), 0);
    }
}

static bool everything(void *user, weir_stream stream, size_t bytes)
{
    (void)user, (void)stream, (void)bytes;
    return true;
}

static void a_filter_that_is_opened_is_asked(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, "x"));
    use(stream);
    assert_ok(weir_mempool_route_filter(pool, everything, NULL));
    assert_int_equal(pool_of_next_on(stream), pool.user);
    assert_ok(weir_mempool_unroute_filter(pool, everything, NULL));
    assert_int_equal(pool_of_next_on(stream), 0);
}

static void a_child_of_fork_is_refused(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    const weir_mempool pool = new_pool();
    int status = 0;
    void *out = NULL;
    use_in(pool, stream);
    use(stream);
    void *live = alloc_on(4096, stream);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const bool refused = weir_alloc_on(4096, stream, &out) == WEIR_ERR_FORKED &&
                             weir_alloc_from(pool, 4096, stream, &out) == WEIR_ERR_FORKED &&
                             weir_free(live) == WEIR_ERR_FORKED;
        _exit(refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_ok(weir_free(live));
    use(stream);
}

static void more_streams_than_are_remembered_are_distinguished(void **state)
{
    (void)state;
    enum { STREAMS = 11, TURNS = 300 };
    weir_stream streams[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = new_stream(0);
        use(streams[i]);
    }
    const uint64_t calls = driver_calls();
    for (int turn = 0; turn < TURNS; turn++) {
        const weir_stream stream = streams[turn * 7 % STREAMS];
        void *pointer = alloc_on(4096, stream);
        assert_int_equal(info_of(pointer).stream.id, stream.id);
        assert_ok(weir_free(pointer));
    }
    assert_int_equal(driver_calls(), calls);
}

/* ---- the current stream ------------------------------------------------------------------------------------------ */

static void *current(void)
{
    return alloc(4096);
}

static void *unnamed(void)
{
    void *pointer = NULL;
    assert_ok(weir_alloc(4096, &pointer));
    return pointer;
}

/* Uses the current stream, in both ways to ask for it, so often that the thread remembers it. */
static void use_current(weir_stream expected, int device)
{
    void *(*const ask[])(void) = { unnamed, current };
    for (int i = 0; i < 400; i++) {
        void *pointer = ask[i / 200]();
        if (i % 200 == 0 || i % 200 == 199) {
            assert_int_equal(info_of(pointer).stream.id, expected.id);
            assert_int_equal(info_of(pointer).device, device);
        }
        assert_ok(weir_free(pointer));
    }
}

static void *end_it(void *argument)
{
    return (void *)(intptr_t)weir_stream_destroy(*(weir_stream *)argument);
}

static void the_current_stream_is_followed(void **state)
{
    (void)state;
    weir_stream one = new_stream(0), other = new_stream(0);
    use_current(default_stream(0), 0);
    for (int i = 0; i < 3; i++) {
        assert_ok(weir_stream_set_current(one));
        use_current(one, 0);
        assert_ok(weir_stream_set_current(other));
        use_current(other, 0);
    }
    assert_ok((weir_status)(intptr_t)in_a_thread(end_it, &other));
    use_current(default_stream(0), 0);
    const uint64_t calls = driver_calls();
    for (int i = 0; i < 200; i++) assert_ok(weir_free(i % 2 ? unnamed() : current()));
    assert_int_equal(driver_calls(), calls);
}

/* Another stream gets the record of the one that ends while the driver is still ending that. */
static void the_next_stream_of_a_record_is_not_current_for_who_had_the_last_one(void **state)
{
    (void)state;
    pthread_t ending;
    void *result = NULL;
    weir_stream one = new_stream(0);
    assert_ok(weir_stream_set_current(one));
    use_current(one, 0);
    start_slowly(&ending, end_it, &one, WEIR_BACKEND_stream_destroy);
    const weir_stream next = new_stream(0);
    for (int i = 0; i < 500; i++) use(next); /* until its front is this thread's alone */
    use_current(default_stream(0), 0);
    assert_int_equal(pthread_join(ending, &result), 0);
    assert_ok((weir_status)(intptr_t)result);
}

static void routes_have_a_say_in_what_the_current_stream_gets(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    const weir_mempool entered = new_pool(), routed = new_pool();
    assert_ok(weir_stream_set_current(stream));
    for (int i = 0; i < 3; i++) {
        use_current(stream, 0);
        assert_int_equal(info_of(unnamed()).pool.user, 0);
        assert_ok(weir_mempool_enter(entered));
        use_current(stream, 0);
        assert_int_equal(info_of(unnamed()).pool.user, entered.user);
        by_another_thread((route){ stream, routed });
        assert_int_equal(info_of(unnamed()).pool.user, routed.user);
        use_current(stream, 0);
        by_another_thread((route){ stream, { 0, 0 } });
        assert_int_equal(info_of(unnamed()).pool.user, entered.user);
        assert_ok(weir_mempool_leave(entered));
    }
}

/* ---- pools that the call names ----------------------------------------------------------------------------------- */

static void the_current_stream_is_followed_in_a_named_pool(void **state)
{
    (void)state;
    const weir_stream streams[] = { new_stream(0), new_stream(0) };
    const weir_mempool pool = new_pool();
    for (int i = 0; i < 6; i++) {
        assert_ok(weir_stream_set_current(streams[i % 2]));
        use_in(pool, WEIR_STREAM_CURRENT);
        void *pointer = alloc_from(pool, 4096, WEIR_STREAM_CURRENT);
        assert_int_equal(info_of(pointer).stream.id, streams[i % 2].id);
        assert_int_equal(info_of(pointer).pool.user, pool.user);
        assert_ok(weir_free(pointer));
    }
    const uint64_t calls = driver_calls();
    use_in(pool, WEIR_STREAM_CURRENT);
    assert_int_equal(driver_calls(), calls);
}

/* The next pool has its record and front. */
static void a_pool_that_is_gone_is_refused_by_name(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    const weir_mempool pool = new_pool();
    void *out = NULL;
    use_in(pool, stream);
    assert_ok(weir_mempool_unref(pool));
    assert_status(weir_alloc_from(pool, 4096, stream, &out), WEIR_ERR_POOL_MISMATCH);
    const weir_mempool next = new_pool();
    void *block = alloc_from(next, 4096, stream);
    assert_ok(weir_free(block));
    assert_status(weir_alloc_from(pool, 4096, stream, &out), WEIR_ERR_POOL_MISMATCH);
    assert_ptr_equal(alloc_from(next, 4096, stream), block);
}

/* A pool that uses the same entry of the thread's memory as another. */
static weir_mempool new_pool_like(weir_mempool other)
{
    weir_mempool pool = new_pool();
    while (pool.user % WR_THREAD_WAYS != other.user % WR_THREAD_WAYS) {
        assert_ok(weir_mempool_unref(pool));
        pool = new_pool();
    }
    return pool;
}

static void *take_first(void *argument)
{
    const route *r = argument;
    return alloc_from(r->pool, 4096, r->stream);
}

/* Another thread gives the front to the next pool, and is just asking the driver for its memory. For the thread
 * sanitizer. */
static void a_remembered_front_serves_its_next_pool_only_once_it_belongs_to_it(void **state)
{
    (void)state;
    pthread_t thread;
    void *first = NULL;
    route r = { .stream = new_stream(0), .pool = new_pool() };
    use_in(r.pool, r.stream);
    assert_ok(weir_mempool_unref(r.pool));
    r.pool = new_pool_like(r.pool);
    assert_ok(weir_host_latency(WEIR_BACKEND_segment_alloc, 100000000));
    assert_int_equal(pthread_create(&thread, NULL, take_first, &r), 0);
    nanosleep(&(struct timespec){ .tv_nsec = 30000000 }, NULL);
    void *second = alloc_from(r.pool, 1536, r.stream);
    assert_int_equal(pthread_join(thread, &first), 0);
    assert_int_equal(info_of(first).pool.user, r.pool.user);
    assert_int_equal(info_of(second).pool.user, r.pool.user);
    assert_ptr_not_equal(first, second);
}

static void ids_of_no_pool_are_refused_beside_one_that_is_remembered(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    const weir_mempool pool = new_pool();
    void *out = NULL;
    use_in(pool, stream);
    const weir_mempool wrong[] = {
        { 0, pool.user | UINT64_C(1) << 63 }, { 0, pool.user | UINT64_C(1) << 62 }, { pool.user, 0 }, { 1, pool.user }
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_status(weir_alloc_from(wrong[i], 4096, stream, &out), WEIR_ERR_POOL_MISMATCH);
}

static void a_stream_that_has_ended_is_refused_in_a_named_pool(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    const weir_mempool pool = new_pool();
    void *out = NULL;
    use_in(pool, stream);
    assert_ok(weir_stream_destroy(stream));
    assert_status(weir_alloc_from(pool, 4096, stream, &out), WEIR_ERR_INVALID_STREAM);
    assert_ok(weir_stream_set_current(new_stream(0)));
    for (int i = 0; i < 200; i++) assert_ok(weir_free(alloc_from(pool, 4096, WEIR_STREAM_CURRENT)));
    assert_status(weir_alloc_from(pool, 4096, stream, &out), WEIR_ERR_INVALID_STREAM);
}

static void a_graph_keeps_the_pool_that_is_named_in_its_capture(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    const weir_mempool pool = new_pool();
    use_in(pool, stream);
    const weir_graph graph = begin_on(stream);
    assert_int_equal(pool_info(pool).graphs, 0);
    void *block = alloc_from(pool, 4096, stream);
    assert_int_equal(pool_info(pool).graphs, 1);
    assert_ok(weir_free(block));
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_graph_destroy(graph));
    assert_int_equal(pool_info(pool).graphs, 0);
}

/* Named pools, one that was entered, and the default one, on several streams. */
static void more_pools_than_are_remembered_are_distinguished(void **state)
{
    (void)state;
    enum { POOLS = 7, STREAMS = 6, TURNS = 300 };
    weir_mempool pools[POOLS];
    weir_stream streams[STREAMS];
    for (int i = 0; i < STREAMS; i++) streams[i] = new_stream(0);
    for (int i = 0; i < POOLS * STREAMS; i++) {
        if (i < POOLS) pools[i] = new_pool();
        use(streams[i % STREAMS]);
    }
    for (int i = 0; i < POOLS * STREAMS; i++) use_in(pools[i % POOLS], streams[i % STREAMS]);
    assert_ok(weir_mempool_enter(pools[0]));
    const uint64_t calls = driver_calls();
    for (int turn = 0; turn < TURNS; turn++) {
        const weir_stream stream = streams[turn % STREAMS];
        const weir_mempool pool = pools[turn / STREAMS * 5 % POOLS];
        void *named = alloc_from(pool, 4096, stream), *entered = alloc_on(4096, stream);
        assert_int_equal(info_of(named).pool.user, pool.user);
        assert_int_equal(info_of(named).stream.id, stream.id);
        assert_int_equal(info_of(entered).pool.user, pools[0].user);
        assert_ok(weir_free(named));
        assert_ok(weir_free(entered));
    }
    assert_int_equal(driver_calls(), calls);
    assert_ok(weir_mempool_leave(pools[0]));
}

/* ---- what a free goes by ----------------------------------------------------------------------------------------- */

static int open_two_devices(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 512 * MIB, .host_devices = 2 });
    return 0;
}

static void the_current_device_is_followed(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_ok(weir_device_set_current(1));
        use_current(default_stream(1), 1);
        assert_ok(weir_device_set_current(0));
        use_current(default_stream(0), 0);
    }
}

static void blocks_of_two_devices_are_freed_in_turn(void **state)
{
    (void)state;
    const weir_stream streams[] = { new_stream(0), new_stream(1) };
    for (int i = 0; i < 2; i++) use(streams[i]);
    const uint64_t calls = driver_calls();
    for (int i = 0; i < 300; i++) {
        void *a = alloc_on(4096, streams[0]), *b = alloc_on(4096, streams[1]);
        assert_ok(weir_free(a));
        assert_ok(weir_free(b));
        assert_status(weir_free(a), WEIR_ERR_DOUBLE_FREE);
        assert_status(weir_free(b), WEIR_ERR_DOUBLE_FREE);
    }
    assert_int_equal(driver_calls(), calls);
    for (int i = 0; i < 2; i++) assert_int_equal(stats_of(i).allocation[WEIR_STAT_ALL].current, 0);
}

static void a_pointer_from_before_a_close_is_unknown(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    use(stream);
    void *stale = alloc_on(4096, stream);
    assert_ok(weir_close());
    assert_status(weir_free(stale), WEIR_ERR_CLOSED);
    open_medium_host(NULL);
    assert_status(weir_free(stale), WEIR_ERR_UNKNOWN_POINTER);
}

/* The thread remembers the smaller table, which has room for a small program's blocks only. */
static void blocks_are_found_after_their_table_has_grown(void **state)
{
    (void)state;
    enum { BLOCKS = 6000 };
    static void *blocks[BLOCKS];
    const weir_stream stream = new_stream(0);
    use(stream);
    for (int i = 0; i < BLOCKS; i++) blocks[i] = alloc_on(512, stream);
    for (int i = 0; i < BLOCKS; i++) {
        assert_ok(weir_free(blocks[i]));
        assert_status(weir_free(blocks[i]), WEIR_ERR_DOUBLE_FREE);
    }
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 0);
}

static void a_pointer_into_a_block_is_not_freed(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    use(stream);
    char *block = alloc_on(4096, stream);
    assert_status(weir_free(block + 512), WEIR_ERR_INVALID_ARGUMENT);
    assert_ok(weir_free(block));
}

#define WAYS_TEST(test) cmocka_unit_test_setup_teardown(test, open_medium_host, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WAYS_TEST(a_stream_that_has_ended_is_refused),
        WAYS_TEST(a_stream_from_before_a_close_is_refused),
        WAYS_TEST(a_route_that_another_thread_opens_is_followed),
        WAYS_TEST(a_pool_that_the_thread_enters_serves_until_it_is_left),
        WAYS_TEST(a_filter_that_is_opened_is_asked),
        WAYS_TEST(a_child_of_fork_is_refused),
        WAYS_TEST(more_streams_than_are_remembered_are_distinguished),
        WAYS_TEST(the_current_stream_is_followed),
        WAYS_TEST(the_next_stream_of_a_record_is_not_current_for_who_had_the_last_one),
        WAYS_TEST(routes_have_a_say_in_what_the_current_stream_gets),
        cmocka_unit_test_setup_teardown(the_current_device_is_followed, open_two_devices, close_host),
        WAYS_TEST(the_current_stream_is_followed_in_a_named_pool),
        WAYS_TEST(a_pool_that_is_gone_is_refused_by_name),
        WAYS_TEST(a_remembered_front_serves_its_next_pool_only_once_it_belongs_to_it),
        WAYS_TEST(ids_of_no_pool_are_refused_beside_one_that_is_remembered),
        WAYS_TEST(a_stream_that_has_ended_is_refused_in_a_named_pool),
        WAYS_TEST(a_graph_keeps_the_pool_that_is_named_in_its_capture),
        WAYS_TEST(more_pools_than_are_remembered_are_distinguished),
        cmocka_unit_test_setup_teardown(blocks_of_two_devices_are_freed_in_turn, open_two_devices, close_host),
        WAYS_TEST(a_pointer_from_before_a_close_is_unknown),
        WAYS_TEST(blocks_are_found_after_their_table_has_grown),
        WAYS_TEST(a_pointer_into_a_block_is_not_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
