/*
 * Memory of adopted graphs, which the program launches where weir cannot see it: it is given back once the device is
 * idle, and waiting for that holds up no other thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device_support.h"
#include "graph_support.h"
#include "meanwhile_support.h"

#include <pthread.h>
#include <time.h>

#define BLOCK (8 * MIB)
#define MS UINT64_C(1000000)

static weir_stream origin, elsewhere; /* of captures, and of launches */
static weir_mempool pool;
static slow_work launched; /* the work of a graph */

static int open_default(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 512 * MIB });
    origin = new_stream(0);
    elsewhere = new_stream(0);
    pool = (weir_mempool){ 0, 0 };
    launched = (slow_work){ .milliseconds = 500 };
    return 0;
}

static void nap(void)
{
    const struct timespec time = { 0, 20 * MS };
    nanosleep(&time, NULL);
}

static int64_t reserved_by_pool(void)
{
    return pool_stats(pool).reserved_bytes[WEIR_STAT_ALL].current;
}

/* A capture of the program's own that uses a block of the pool; *native is its graph, NULL: nobody launches it. */
static weir_graph adopt(void **native)
{
    const weir_backend *backend = device_0()->backend;
    weir_graph graph = { 0 };
    void *captured = NULL;
    assert_ok(backend->capture_begin(0, native_of(origin), WEIR_CAPTURE_RELAXED));
    assert_ok(try_adopt(origin, pool, &graph));
    void *block = alloc_on(BLOCK, origin);
    if (native) assert_ok(weir_stream_callback(origin, do_slow_work, &launched));
    assert_ok(weir_fill(block, 1, BLOCK, origin));
    assert_ok(weir_free(block));
    assert_ok(backend->capture_end(0, native_of(origin), &captured));
    assert_ok(weir_graph_end(graph));
    if (native)
        *native = captured;
    else
        assert_ok(backend->graph_destroy(0, captured));
    return graph;
}

static void launch(void *native)
{
    const weir_backend *backend = device_0()->backend;
    void *executable = NULL;
    assert_ok(backend->graph_instantiate(0, native, &executable));
    assert_ok(backend->graph_launch(0, executable, native_of(elsewhere)));
    assert_ok(backend->graph_destroy(0, native));
}

/* The pool's memory was used by such a graph, which nobody launched. */
static void make_stray(void)
{
    assert_ok(weir_graph_destroy(adopt(NULL)));
}

static void *empty_it(void *unused)
{
    assert_ok(weir_mempool_empty_cache(pool));
    return unused;
}

static pthread_t empty_in_another_thread(void)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, empty_it, NULL), 0);
    return thread;
}

static void *destroy_it(void *graph)
{
    assert_ok(weir_graph_destroy(*(weir_graph *)graph));
    return graph;
}

static pthread_t destroy_in_another_thread(weir_graph *graph)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, destroy_it, graph), 0);
    return thread;
}

static void memory_of_an_adopted_graph_goes_once_the_device_is_idle(void **state)
{
    (void)state;
    slow_work work = { .milliseconds = 50 };
    const weir_graph graph = adopt(NULL);
    start_slow_work(new_stream(0), &work);
    assert_ok(weir_graph_destroy(graph));
    assert_true(atomic_load(&work.done));
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_map), calls_of(WEIR_BACKEND_vm_unmap));
}

static void memory_of_an_adopted_graph_goes_once_no_stream_captures(void **state)
{
    (void)state;
    const weir_graph graph = adopt(NULL), other = begin_on(new_stream(0));
    assert_ok(weir_graph_destroy(graph));
    assert_int_equal(reserved_on(0), BLOCK);
    assert_ok(weir_graph_end(other));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
}

/* What the driver keeps is looked at when pools are made. */
static void free_and_wait_for_its_memory(void *block)
{
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(make_pool(pool_options(WEIR_MEMORY_DEVICE, ""))));
    assert_int_equal(reserved_on(0), BLOCK);
    assert_ok(weir_device_synchronize(0));
    (void)make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    assert_int_equal(reserved_on(0), 0);
}

/* A block that was live then goes at a later check, once a thread has waited for the device. */
static void a_block_freed_later_goes_after_the_next_wait_for_the_device(void **state)
{
    (void)state;
    const weir_graph graph = adopt(NULL);
    void *block = alloc_from(pool_of(graph), BLOCK, origin);
    assert_ok(weir_graph_destroy(graph));
    assert_int_equal(reserved_on(0), BLOCK);
    free_and_wait_for_its_memory(block);
}

static void memory_of_an_adopted_graph_goes_after_a_wait_that_did_not_fail(void **state)
{
    (void)state;
    const weir_graph graph = adopt(NULL), other = begin_on(new_stream(0));
    assert_ok(weir_graph_destroy(graph));
    assert_ok(weir_graph_end(other));
    assert_ok(weir_host_fail(WEIR_BACKEND_device_synchronize, 1, WEIR_ERR_DRIVER));
    assert_status(weir_device_synchronize(0), WEIR_ERR_DRIVER);
    const uint64_t waits = calls_of(WEIR_BACKEND_device_synchronize);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(calls_of(WEIR_BACKEND_device_synchronize), waits + 1);
    assert_int_equal(reserved_on(0), 0);
}

static void *wait_for_the_device(void *unused)
{
    assert_ok(weir_device_synchronize(0));
    return unused;
}

/* The program may have launched it after the wait began. */
static void memory_of_a_graph_destroyed_during_a_wait_goes_after_the_next(void **state)
{
    (void)state;
    pthread_t thread;
    const weir_graph graph = adopt(NULL);
    void *block = alloc_from(pool_of(graph), BLOCK, origin);
    start_slowly(&thread, wait_for_the_device, NULL, WEIR_BACKEND_device_synchronize);
    assert_ok(weir_graph_destroy(graph));
    pthread_join(thread, NULL);
    free_and_wait_for_its_memory(block);
}

/* Even a driver that waits by itself cannot take mapped segments back earlier. */
static void mapped_segments_go_once_the_device_is_idle(void **state)
{
    (void)state;
    void *native = NULL;
    pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, ""));
    const weir_graph graph = adopt(&native);
    launch(native);
    assert_ok(weir_mempool_unref(pool));
    assert_ok(weir_graph_destroy(graph));
    assert_true(atomic_load(&launched.done));
    assert_int_equal(reserved_on(0), 0);
}

static atomic_bool given_up, let_on;

/* Work that ends when the test lets it, or has failed. */
static void wait_to_be_let_on(void *unused)
{
    (void)unused;
    for (int i = 0; i < 500 && !atomic_load(&let_on); i++) nap();
    if (!atomic_load(&let_on)) atomic_store(&given_up, true);
}

static void make_device_busy(void)
{
    atomic_store(&given_up, false);
    atomic_store(&let_on, false);
    assert_ok(weir_stream_callback(new_stream(0), wait_to_be_let_on, NULL));
}

/* The busy stream is the last one, so the last to be waited for. */
static void memory_that_a_graph_adopts_meanwhile_stays(void **state)
{
    (void)state;
    pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    make_stray();
    make_device_busy();
    const uint64_t waits = calls_of(WEIR_BACKEND_event_synchronize);
    const pthread_t thread = empty_in_another_thread();
    for (uint32_t i = 0; i < wr_streams_used(&device_0()->streams); i++)
        await_call_of(WEIR_BACKEND_event_synchronize, waits + i);
    const weir_graph graph = adopt(NULL);
    atomic_store(&let_on, true);
    pthread_join(thread, NULL);
    assert_false(atomic_load(&given_up));
    assert_int_equal(reserved_by_pool(), BLOCK);
    assert_ok(weir_graph_destroy(graph));
}

/* While one chunk is given back, a graph uses another, is launched, and destroyed. The pool is no longer the graph's,
 * but the launch still runs. */
static void a_launch_that_comes_meanwhile_is_waited_for(void **state)
{
    (void)state;
    void *native = NULL;
    pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    make_stray();
    void *large = alloc_from(pool, 2 * BLOCK, origin), *small = alloc_from(pool, BLOCK, origin);
    assert_ok(weir_free(small));
    assert_ok(weir_free(large));
    const uint64_t before = calls_of(WEIR_BACKEND_vm_destroy);
    assert_ok(weir_host_latency(WEIR_BACKEND_vm_destroy, 100 * MS));
    const pthread_t thread = empty_in_another_thread();
    await_call_of(WEIR_BACKEND_vm_destroy, before);
    assert_ok(weir_host_latency(WEIR_BACKEND_vm_destroy, 0));
    const weir_graph graph = adopt(&native);
    launch(native);
    assert_ok(weir_graph_destroy(graph));
    (void)reserved_by_pool(); /* nothing stays parked */
    pthread_join(thread, NULL);
    if (reserved_by_pool() == 0) assert_true(atomic_load(&launched.done));
    assert_ok(weir_device_synchronize(0));
}

/* ---- who else waits ---------------------------------------------------------------------------------------------- */

static void a_thread_that_needs_memory_is_not_delayed_by_the_wait(void **state)
{
    (void)state;
    weir_graph graph = adopt(NULL);
    make_device_busy();
    const pthread_t thread = destroy_in_another_thread(&graph);
    nap();
    void *block = alloc_on(2 * BLOCK, new_stream(0));
    atomic_store(&let_on, true);
    pthread_join(thread, NULL);
    assert_false(atomic_load(&given_up));
    assert_ok(weir_free(block));
}

static void a_capture_that_begins_does_not_wait(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    const weir_graph graph = adopt(NULL), other = begin_on(stream);
    assert_ok(weir_graph_destroy(graph)); /* its memory stays, because a stream captures */
    assert_ok(weir_graph_end(other));
    make_device_busy();
    const weir_graph next = begin_on(stream);
    atomic_store(&let_on, true);
    assert_ok(weir_graph_end(next));
    assert_ok(weir_device_synchronize(0));
    assert_false(atomic_load(&given_up));
}

static void making_a_pool_does_not_wait(void **state)
{
    (void)state;
    const weir_graph graph = adopt(NULL), other = begin_on(new_stream(0));
    assert_ok(weir_graph_destroy(graph));
    assert_ok(weir_graph_end(other));
    make_device_busy();
    const weir_mempool made = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    atomic_store(&let_on, true);
    assert_ok(weir_device_synchronize(0));
    assert_false(atomic_load(&given_up));
    assert_ok(weir_mempool_unref(made));
}

/* A capture that weir does not know of prevents the wait, so each stream is asked once, not once for each chunk. */
static void each_stream_is_asked_once_about_a_hidden_capture(void **state)
{
    (void)state;
    enum { STREAMS = 16, CHUNKS = 12 };
    const weir_backend *backend = device_0()->backend;
    void *blocks[CHUNKS];
    for (int i = 0; i < STREAMS; i++) (void)new_stream(0);
    const weir_stream unseen = new_stream(0);
    pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    make_stray();
    for (int i = 0; i < CHUNKS; i++) blocks[i] = alloc_from(pool, BLOCK, origin);
    for (int i = 0; i < CHUNKS; i++) assert_ok(weir_free(blocks[i]));
    const int64_t reserved = reserved_by_pool();
    assert_ok(backend->capture_begin(0, native_of(unseen), WEIR_CAPTURE_RELAXED));
    const uint64_t asked = calls_of(WEIR_BACKEND_capture_status);
    assert_ok(weir_mempool_empty_cache(pool));
    assert_true(calls_of(WEIR_BACKEND_capture_status) - asked <= 2 * (STREAMS + CHUNKS));
    assert_int_equal(reserved_by_pool(), reserved);
    end_natively(native_of(unseen));
}

#define ADOPTED(test) cmocka_unit_test_setup_teardown(test, open_default, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ADOPTED(memory_of_an_adopted_graph_goes_once_the_device_is_idle),
        ADOPTED(memory_of_an_adopted_graph_goes_once_no_stream_captures),
        ADOPTED(a_block_freed_later_goes_after_the_next_wait_for_the_device),
        ADOPTED(memory_of_an_adopted_graph_goes_after_a_wait_that_did_not_fail),
        ADOPTED(memory_of_a_graph_destroyed_during_a_wait_goes_after_the_next),
        ADOPTED(mapped_segments_go_once_the_device_is_idle),
        ADOPTED(memory_that_a_graph_adopts_meanwhile_stays),
        ADOPTED(a_launch_that_comes_meanwhile_is_waited_for),
        ADOPTED(a_thread_that_needs_memory_is_not_delayed_by_the_wait),
        ADOPTED(a_capture_that_begins_does_not_wait),
        ADOPTED(making_a_pool_does_not_wait),
        ADOPTED(each_stream_is_asked_once_about_a_hidden_capture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
