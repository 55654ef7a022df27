#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/numa.h"
#include "capture_support.h"
#include "thread_support.h"
#include "unit/hip_support.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>

/* HIP's calls wait for streams, though weir does not ask for it. The tests show where, and that weir keeps the waits
 * off the hit path. */
static int open_library(void **state)
{
    (void)state;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "hip";
    use_standin(HIP_STANDIN_6);
    assert_ok(weir_open(&settings));
    assert_ok(weir_device_set_current(0));
    return 0;
}

static int close_library(void **state)
{
    (void)state;
    assert_ok(weir_validate(0));
    assert_ok(weir_close());
    return 0;
}

static int open_one_node(void **state)
{
    wr_numa_pretend("0", 0);
    return open_library(state);
}

static int open_two_nodes(void **state)
{
    wr_numa_pretend("0-1", 0);
    return open_library(state);
}

static int close_pretended(void **state)
{
    wr_numa_pretend(NULL, 0);
    return close_library(state);
}

/* ---- streams that are kept busy ---------------------------------------------------------------------------------- */

static sem_t gate;

static void wait_at_gate(void *unused)
{
    (void)unused;
    wait_for(&gate);
}

/* Runs `what` on a thread while `stream` is busy; it must not return before the stream is released. */
static atomic_bool came_back;
static void *(*what_to_run)(void *);

static void *run_and_tell(void *argument)
{
    void *result = what_to_run(argument);
    atomic_store(&came_back, true);
    return result;
}

static void assert_waits_for(void *stream, void *(*what)(void *), void *argument)
{
    pthread_t thread;
    void *result;
    const struct timespec while_ = { 0, 50000000 };
    sem_init(&gate, 0, 0);
    ok(b->stream_callback(0, stream, wait_at_gate, NULL));
    atomic_store(&came_back, false);
    what_to_run = what;
    assert_int_equal(pthread_create(&thread, NULL, run_and_tell, argument), 0);
    nanosleep(&while_, NULL);
    assert_false(atomic_load(&came_back));
    sem_post(&gate);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal((intptr_t)result, WEIR_OK);
    ok(b->stream_synchronize(0, stream));
    sem_destroy(&gate);
}

static void *segment;
static void *reservation;
static weir_chunk chunk;

static void *free_segment(void *unused)
{
    (void)unused;
    return (void *)(intptr_t)b->segment_free(0, segment, 2 * MIB);
}

static void *map_chunk(void *unused)
{
    (void)unused;
    return (void *)(intptr_t)b->vm_map(0, reservation, 2 * MIB, chunk);
}

static void *unmap_chunk(void *unused)
{
    (void)unused;
    return (void *)(intptr_t)b->vm_unmap(0, reservation, 2 * MIB);
}

static void giving_a_segment_back_waits_for_every_stream(void **state)
{
    (void)state;
    void *stream = new_stream();
    ok(b->segment_alloc(0, 2 * MIB, &segment));
    assert_waits_for(stream, free_segment, NULL);
    ok(b->stream_destroy(0, stream));
}

static void mapping_waits_for_the_default_stream_only(void **state)
{
    (void)state;
    void *stream = new_stream();
    ok(b->vm_reserve(0, 2 * MIB, 0, &reservation));
    ok(b->vm_create(0, 2 * MIB, &chunk));
    assert_waits_for(NULL, map_chunk, NULL);
    assert_waits_for(NULL, unmap_chunk, NULL);

    sem_init(&gate, 0, 0);
    ok(b->stream_callback(0, stream, wait_at_gate, NULL));
    ok(b->vm_map(0, reservation, 2 * MIB, chunk));
    ok(b->vm_unmap(0, reservation, 2 * MIB));
    assert_int_equal(b->stream_query(0, stream), WEIR_ERR_NOT_READY);
    sem_post(&gate);
    ok(b->stream_synchronize(0, stream));
    sem_destroy(&gate);

    ok(b->vm_destroy(0, chunk, 2 * MIB));
    ok(b->vm_release(0, reservation, 2 * MIB));
    ok(b->stream_destroy(0, stream));
}

/* ---- the pool ---------------------------------------------------------------------------------------------------- */

static void use_all_sizes(weir_stream stream)
{
    static const size_t sizes[] = { 512, 64 << 10, 3 << 20, 40 << 20 };
    void *blocks[4];
    for (int i = 0; i < 4; i++) assert_ok(weir_alloc_on(sizes[i], stream, &blocks[i]));
    for (int i = 0; i < 4; i++) assert_ok(weir_free(blocks[i]));
}

/* Waits for neither the default stream nor any other, though both are busy. */
static void a_hit_asks_the_runtime_nothing(void **state)
{
    (void)state;
    weir_stream stream;
    void *native;
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &stream));
    assert_ok(weir_stream_native(stream, &native));
    use_all_sizes(stream);
    sem_init(&gate, 0, 0);
    ok(b->stream_callback(0, NULL, wait_at_gate, NULL));
    ok(b->stream_callback(0, native, wait_at_gate, NULL));
    const unsigned long before = standin_calls(NULL);
    for (int i = 0; i < 100; i++) use_all_sizes(stream);
    assert_int_equal(standin_calls(NULL), before);
    sem_post(&gate);
    sem_post(&gate);
    assert_ok(weir_stream_synchronize(stream));
    ok(b->stream_synchronize(0, NULL));
    sem_destroy(&gate);
    assert_ok(weir_stream_destroy(stream));
}

static void memory_is_given_back_by_trimming_only(void **state)
{
    (void)state;
    void *block;
    assert_ok(weir_alloc(40 * MIB, &block));
    const unsigned long before = standin_calls("hipFree") + standin_calls("hipMemUnmap");
    assert_ok(weir_free(block));
    assert_int_equal(standin_calls("hipFree") + standin_calls("hipMemUnmap"), before);
    assert_ok(weir_empty_cache(0));
    assert_true(standin_calls("hipFree") + standin_calls("hipMemUnmap") > before);
}

static void out_of_memory_is_reported_and_overcome(void **state)
{
    (void)state;
    void *most, *more;
    assert_ok(weir_alloc(400 * MIB, &most));
    assert_int_equal(weir_alloc(200 * MIB, &more), WEIR_ERR_OUT_OF_MEMORY);
    assert_ok(weir_free(most));
    assert_ok(weir_alloc(200 * MIB, &more));
    assert_ok(weir_free(more));
}

static void recorded_streams_keep_a_block_until_they_are_done(void **state)
{
    (void)state;
    weir_stream one, two;
    void *block, *again, *native;
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &one));
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &two));
    assert_ok(weir_stream_native(two, &native));
    assert_ok(weir_alloc_on(3 * MIB, one, &block));
    sem_init(&gate, 0, 0);
    ok(b->stream_callback(0, native, wait_at_gate, NULL));
    assert_ok(weir_record_stream(block, two));
    assert_ok(weir_free(block));
    assert_ok(weir_alloc_on(3 * MIB, one, &again));
    assert_ptr_not_equal(again, block);
    assert_ok(weir_free(again));
    sem_post(&gate);
    assert_ok(weir_stream_synchronize(two));
    sem_destroy(&gate);
    assert_ok(weir_stream_destroy(two));
    assert_ok(weir_stream_destroy(one));
}

/* ---- pinned memory ----------------------------------------------------------------------------------------------- */

/* The address that kernels must use for it. */
static void *device_address_of(void *host, int device)
{
    hipError_t (*ask)(void **base, void *host, unsigned int flags);
    void *address = NULL;
    *(void **)&ask = standin_function(dlopen(HIP_STANDIN_6, RTLD_NOW | RTLD_LOCAL), "hipHostGetDevicePointer");
    assert_ok(weir_device_set_current(device));
    runtime_ok(ask(&address, host, 0));
    assert_ok(weir_device_set_current(0));
    return address;
}

static void assert_of_one_address(void *block, size_t bytes)
{
    for (int device = 0; device < 2; device++) {
        assert_ptr_equal(device_address_of(block, device), block);
        assert_ptr_equal(device_address_of((char *)block + bytes - 1, device), (char *)block + bytes - 1);
    }
}

static void pinned_memory_has_one_address_for_host_and_device(void **state)
{
    (void)state;
    void *block;
    for (size_t bytes = 512; bytes <= 32 * MIB; bytes *= 256) {
        assert_ok(weir_pinned_alloc(bytes, WEIR_NUMA_ANY, &block));
        assert_of_one_address(block, bytes);
        assert_ok(weir_pinned_free(block));
    }
    weir_mempool pool;
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.memory = WEIR_MEMORY_PINNED;
    options.device = 0;
    assert_ok(weir_mempool_create(&options, &pool));
    assert_ok(weir_alloc_from(pool, 3 * MIB, WEIR_STREAM_CURRENT, &block));
    assert_of_one_address(block, 3 * MIB);
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(standin_calls("hipHostRegister"), 0);
}

/* Otherwise the test above proves nothing. */
static void registered_memory_has_two_addresses_here(void **state)
{
    (void)state;
    hipError_t (*enlist)(void *base, size_t bytes, unsigned int flags), (*dismiss)(void *base);
    void *library = dlopen(HIP_STANDIN_6, RTLD_NOW | RTLD_LOCAL), *pages = aligned_alloc(4096, 4096);
    *(void **)&enlist = standin_function(library, "hipHostRegister");
    *(void **)&dismiss = standin_function(library, "hipHostUnregister");
    runtime_ok(enlist(pages, 4096, 0));
    assert_ptr_not_equal(device_address_of(pages, 0), pages);
    runtime_ok(dismiss(pages));
    free(pages);
}

static void the_only_node_may_be_named(void **state)
{
    (void)state;
    void *block = NULL;
    assert_ok(weir_pinned_alloc(MIB, 0, &block));
    assert_ok(weir_pinned_free(block));
}

static void one_of_several_nodes_is_refused(void **state)
{
    (void)state;
    void *block = NULL;
    assert_int_equal(weir_pinned_alloc(MIB, 1, &block), WEIR_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(weir_error_text(), "back end hip cannot register host memory"));
    assert_int_equal(weir_pinned_reserve(MIB, 1), WEIR_ERR_NOT_SUPPORTED);
    assert_ok(weir_pinned_alloc(MIB, WEIR_NUMA_ANY, &block));
    assert_ok(weir_pinned_free(block));
}

/* ---- captures ---------------------------------------------------------------------------------------------------- */

static void pausing_leaves_captures_of_all_devices_alone(void **state)
{
    (void)state;
    void *block;
    weir_mempool pool;
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.memory = WEIR_MEMORY_MAPPED;
    options.device = 0;
    options.tag[0] = 'a';
    assert_ok(weir_mempool_create(&options, &pool));
    assert_ok(weir_alloc_from(pool, MIB, WEIR_STREAM_CURRENT, &block));
    for (int device = 0; device < 2; device++) {
        weir_stream stream;
        assert_ok(weir_stream_create(device, WEIR_PRIORITY_DEFAULT, &stream));
        weir_graph graph = begin_on(stream);
        assert_int_equal(weir_pause(0, "a", WEIR_PAUSE_DROP), WEIR_ERR_CAPTURE);
        end_unharmed(graph, stream);
    }
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_DROP));
    assert_ok(weir_resume(0, "a"));
    assert_ok(weir_free(block));
}

static void waiting_for_a_device_leaves_captures_of_all_devices_alone(void **state)
{
    (void)state;
    for (int device = 0; device < 2; device++) {
        weir_stream stream;
        assert_ok(weir_stream_create(device, WEIR_PRIORITY_DEFAULT, &stream));
        weir_graph graph = begin_on(stream);
        assert_int_equal(weir_device_synchronize(0), WEIR_ERR_CAPTURE);
        assert_int_equal(weir_device_synchronize(1), WEIR_ERR_CAPTURE);
        end_unharmed(graph, stream);
    }
    assert_ok(weir_device_synchronize(0));
}

#define library_test(test) cmocka_unit_test_setup_teardown(test, open_library, close_library)

static void wait_until_freed(void *freed)
{
    wait_for(freed);
}

static void *empty_cache(void *unused)
{
    (void)unused;
    return (void *)(uintptr_t)weir_empty_cache(0);
}

/* hipFree() waits for all streams, and one of them for this thread. */
static void a_free_that_would_be_overwritten_does_not_wait_for_memory_to_go_back(void **state)
{
    (void)state;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "hip";
    settings.policy = "segments";
    settings.debug = "poison";
    weir_stream busy, idle;
    void *block = NULL, *cached = NULL, *status = NULL;
    pthread_t emptier;
    sem_t freed;
    use_standin(HIP_STANDIN_6);
    sem_init(&freed, 0, 0);
    assert_ok(weir_open(&settings));
    assert_ok(weir_device_set_current(0));
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &busy));
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &idle));
    assert_ok(weir_alloc_on(4096, idle, &block));
    assert_ok(weir_alloc_on(30 << 20, idle, &cached));
    assert_ok(weir_free(cached));
    assert_ok(weir_stream_synchronize(idle));
    assert_ok(weir_stream_callback(busy, wait_until_freed, &freed));
    const unsigned long frees = standin_calls("hipFree");
    assert_int_equal(pthread_create(&emptier, NULL, empty_cache, NULL), 0);
    while (standin_calls("hipFree") == frees) sched_yield();
    assert_ok(weir_free(block));
    sem_post(&freed);
    assert_int_equal(pthread_join(emptier, &status), 0);
    assert_null(status);
    assert_ok(weir_close());
    sem_destroy(&freed);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_free_that_would_be_overwritten_does_not_wait_for_memory_to_go_back),
    hip_test(giving_a_segment_back_waits_for_every_stream),
    hip_test(mapping_waits_for_the_default_stream_only),
    library_test(a_hit_asks_the_runtime_nothing),
    library_test(memory_is_given_back_by_trimming_only),
    library_test(out_of_memory_is_reported_and_overcome),
    library_test(recorded_streams_keep_a_block_until_they_are_done),
    library_test(pinned_memory_has_one_address_for_host_and_device),
    library_test(registered_memory_has_two_addresses_here),
    cmocka_unit_test_setup_teardown(the_only_node_may_be_named, open_one_node, close_pretended),
    cmocka_unit_test_setup_teardown(one_of_several_nodes_is_refused, open_two_nodes, close_pretended),
    library_test(pausing_leaves_captures_of_all_devices_alone),
    library_test(waiting_for_a_device_leaves_captures_of_all_devices_alone),
};

int main(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}
