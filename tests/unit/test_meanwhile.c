/*
 * What another thread does between two steps of one, while the driver or the program is slow.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device_support.h"
#include "graph_support.h"
#include "meanwhile_support.h"
#include "pool/address.h"
#include "pool/pending.h"
#include "pool/starts.h"
#include "pool_support.h"
#include "weir/observe.h"

static int open_two(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 128 * MIB, .host_devices = 2 });
    return 0;
}

static void *free_it(void *block)
{
    assert_ok(weir_free(block));
    return NULL;
}

static void *destroy_it(void *stream)
{
    assert_ok(weir_stream_destroy(*(weir_stream *)stream));
    return NULL;
}

static void *empty_cache(void *unused)
{
    assert_ok(weir_empty_cache(0));
    return unused;
}

/* ---- growth that is refused -------------------------------------------------------------------------------------- */

static int open_limited(void **state)
{
    (void)state;
    open_host((weir_settings){ .policy = "segments", .host_memory = 100 * MIB, .memory_limit = 160 * MIB });
    return 0;
}

static void *ask_for_too_much(void *unused)
{
    void *block = NULL;
    assert_status(weir_alloc_on(90 * MIB, default_stream(0), &block), WEIR_ERR_OUT_OF_MEMORY);
    return unused;
}

/* Its bytes count against the limit until the driver has refused them. */
static void a_request_waits_for_another_that_the_driver_then_refuses(void **state)
{
    (void)state;
    pthread_t thread;
    (void)alloc_on(20 * MIB, default_stream(0));
    start_slowly(&thread, ask_for_too_much, NULL, WEIR_BACKEND_segment_alloc);
    assert_non_null(alloc_on(60 * MIB, default_stream(0)));
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static int open_torch(void **state)
{
    (void)state;
    open_host((weir_settings){ .policy = "torch", .host_memory = 100 * MIB });
    return 0;
}

static struct {
    atomic_bool asked;
    pthread_mutex_t of_program;
} waiting = { .of_program = PTHREAD_MUTEX_INITIALIZER };

static weir_status give_when_free(void *user, size_t bytes, int device, void *stream, void **base)
{
    (void)user, (void)bytes, (void)device, (void)stream, (void)base;
    atomic_store(&waiting.asked, true);
    assert_int_equal(pthread_mutex_lock(&waiting.of_program), 0);
    assert_int_equal(pthread_mutex_unlock(&waiting.of_program), 0);
    return WEIR_ERR_OUT_OF_MEMORY;
}

static weir_status take_none_back(void *user, void *base, size_t bytes, int device, void *stream)
{
    (void)user, (void)base, (void)bytes, (void)device, (void)stream;
    return WEIR_OK;
}

static void *ask_source(void *pool)
{
    void *block = NULL;
    assert_status(weir_alloc_from(*(weir_mempool *)pool, 90 * MIB, default_stream(0), &block), WEIR_ERR_OUT_OF_MEMORY);
    return NULL;
}

/* The program holds its own lock while it asks for memory, and its source takes the same lock. */
static void a_refused_request_does_not_wait_for_a_source_that_waits_for_it(void **state)
{
    (void)state;
    static const weir_segment_source source = { give_when_free, take_none_back, NULL, NULL };
    pthread_t thread;
    void *block = NULL;
    weir_mempool pool = make_pool_from(&source);
    assert_int_equal(pthread_mutex_lock(&waiting.of_program), 0);
    start(&thread, ask_source, &pool);
    while (!atomic_load(&waiting.asked)) sched_yield();
    assert_status(weir_alloc_on(80 * MIB, default_stream(0), &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(pthread_mutex_unlock(&waiting.of_program), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* ---- streams that end -------------------------------------------------------------------------------------------- */

static void a_stream_does_not_end_while_an_event_is_recorded_on_it(void **state)
{
    (void)state;
    pthread_t freeing;
    weir_stream home = new_stream(0), other = new_stream(0);
    void *block = alloc_on(12 * MIB, home);
    assert_ok(weir_record_stream(block, other));
    start_slowly(&freeing, free_it, block, WEIR_BACKEND_event_record);
    const wr_wait *wait = device_0()->cache.waits;
    assert_non_null(wait);
    assert_ok(weir_stream_destroy(other));
    assert_int_equal(atomic_load(&wait->marking), 0);
    pthread_join(freeing, NULL);
    assert_ptr_equal(alloc_on(12 * MIB, home), block);
}

/* The block is of a deterministic pool, whose stream waits for the other one at once. */
static void a_block_freed_while_a_stream_that_used_it_ends_delays_no_thread(void **state)
{
    (void)state;
    pthread_t freeing, destroying;
    weir_stream home = new_stream(0), other = new_stream(0);
    weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "");
    options.deterministic = true;
    void *plain = alloc_on(12 * MIB, home), *exact = alloc_from(make_pool(options), 12 * MIB, home);
    assert_ok(weir_record_stream(plain, other));
    assert_ok(weir_record_stream(exact, other));
    start_slowly(&freeing, free_it, plain, WEIR_BACKEND_event_record);
    const wr_wait *wait = device_0()->cache.waits;
    start(&destroying, destroy_it, &other);
    while (!atomic_load(&wait->ended)) sched_yield();
    assert_ok(weir_free(exact));
    pthread_join(destroying, NULL);
    pthread_join(freeing, NULL);
}

static weir_stream ended;

static void *allocate_on_one_that_ends(void *unused)
{
    void *block = NULL;
    assert_status(weir_alloc_on(4 * MIB, ended, &block), WEIR_ERR_INVALID_STREAM);
    assert_null(block);
    return unused;
}

/* The next stream has the record of the one that ended. */
static void a_segment_for_a_stream_that_ends_meanwhile_is_not_the_next_streams(void **state)
{
    (void)state;
    pthread_t thread;
    ended = new_stream(0);
    start_slowly(&thread, allocate_on_one_that_ends, NULL, WEIR_BACKEND_segment_alloc);
    assert_ok(weir_stream_destroy(ended));
    (void)new_stream(0);
    pthread_join(thread, NULL);
    assert_int_equal(reserved_on(0), 0);
}

static struct {
    atomic_bool asked, refuse;
} slow_source;

/* Refuses the first one that asks, once it is told to. */
static weir_status refuse_the_first(void *user, size_t bytes, int device, void *stream, void **base)
{
    (void)user, (void)device, (void)stream;
    if (atomic_exchange(&slow_source.asked, true)) {
        *base = aligned_alloc(2 * MIB, bytes);
        return *base ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
    }
    while (!atomic_load(&slow_source.refuse)) sched_yield();
    return WEIR_ERR_OUT_OF_MEMORY;
}

static weir_status take_back(void *user, void *base, size_t bytes, int device, void *stream)
{
    (void)user, (void)bytes, (void)device, (void)stream;
    free(base);
    return WEIR_OK;
}

static void *allocate_from_on_one_that_ends(void *pool)
{
    void *block = NULL;
    assert_status(weir_alloc_from(*(weir_mempool *)pool, 4 * MIB, ended, &block), WEIR_ERR_INVALID_STREAM);
    assert_null(block);
    return NULL;
}

/* Under this policy the request looks among free blocks again after its own segment was refused. */
static void a_request_for_a_stream_that_ends_meanwhile_gets_no_block_of_the_next_one(void **state)
{
    (void)state;
    static const weir_segment_source source = { refuse_the_first, take_back, NULL, NULL };
    pthread_t thread;
    weir_mempool pool = make_pool_from(&source);
    slow_source.asked = slow_source.refuse = false;
    ended = new_stream(0);
    start(&thread, allocate_from_on_one_that_ends, &pool);
    while (!atomic_load(&slow_source.asked)) sched_yield();
    assert_ok(weir_stream_destroy(ended));
    assert_ok(weir_free(alloc_from(pool, 4 * MIB, new_stream(0))));
    atomic_store(&slow_source.refuse, true);
    pthread_join(thread, NULL);
}

/* ---- memory on its way ------------------------------------------------------------------------------------------- */

static void a_chunk_partly_handed_out_meanwhile_stays(void **state)
{
    (void)state;
    pthread_t emptying;
    char *one = alloc(8 * MIB), *two = alloc(8 * MIB);
    assert_ok(weir_free(one));
    assert_ok(weir_free(two));
    assert_int_equal(device_0()->cache.chunks.count, 2);
    start_slowly(&emptying, empty_cache, NULL, WEIR_BACKEND_vm_destroy);
    char *first = alloc(3 * MIB), *second = alloc(3 * MIB); /* both in the other chunk, while one is with the driver */
    assert_ok(weir_free(first));
    (void)stats_of(0); /* no longer parked: free, and before the block in use */
    write_pattern(second, 3 * MIB, 7);
    pthread_join(emptying, NULL);
    assert_true(has_pattern(second, 3 * MIB, 7));
    assert_int_equal(device_0()->cache.chunks.count, 1);
    assert_ok(weir_validate(0));
}

static atomic_bool told, enabled;

static bool wait_for_the_peer(void *user, weir_range_change change, void *base, size_t bytes, int device)
{
    (void)user, (void)base, (void)bytes, (void)device;
    if (change != WEIR_RANGE_ADDED) return true;
    atomic_store(&told, true);
    while (!atomic_load(&enabled)) sched_yield();
    return true;
}

static void *take_4_mib(void *pool)
{
    (void)alloc_from(*(weir_mempool *)pool, 4 * MIB, default_stream(0));
    return NULL;
}

static void a_peer_enabled_while_memory_is_being_mapped_reaches_it(void **state)
{
    (void)state;
    pthread_t mapping;
    weir_mempool_options options = pool_options(WEIR_MEMORY_MAPPED, "");
    options.range_changed = wait_for_the_peer;
    weir_mempool pool = make_pool(options);
    (void)default_stream(1);
    const uint64_t before = calls_of(WEIR_BACKEND_vm_access);
    start(&mapping, take_4_mib, &pool);
    while (!atomic_load(&told)) sched_yield();
    assert_ok(weir_device_enable_peer(1, 0));
    atomic_store(&enabled, true);
    pthread_join(mapping, NULL);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_access), before + 2); /* the device, then the peer */
}

static void *empty_pool(void *pool)
{
    assert_ok(weir_mempool_empty_cache(*(weir_mempool *)pool));
    return NULL;
}

static void chunks_of_a_pool_that_a_graph_begins_to_use_meanwhile_stay(void **state)
{
    (void)state;
    pthread_t emptying;
    const weir_stream stream = new_stream(0), capturing = new_stream(0);
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    char *one = alloc_from(pool, 8 * MIB, stream), *two = alloc_from(pool, 8 * MIB, stream);
    assert_ok(weir_free(one));
    assert_ok(weir_free(two));
    start_slowly(&emptying, empty_pool, &pool, WEIR_BACKEND_vm_destroy);
    const weir_graph graph = begin_in(capturing, pool);
    pthread_join(emptying, NULL);
    assert_int_equal(pool_stats(pool).reserved_bytes[WEIR_STAT_ALL].current, 8 * MIB);
    assert_ok(weir_graph_end(graph));
}

/* What another thread does while the driver maps memory, at the first and the second time. */
static struct {
    weir_backend table;
    const weir_backend *real;
    void *(*work[2])(void *);
    char *tail; /* what is left of it */
    void *block;
    int times;
    bool refused; /* the second time */
} slow_mapping;

static weir_status map_meanwhile(int device, void *base, size_t bytes, weir_chunk chunk)
{
    pthread_t other;
    if (slow_mapping.times < 2) {
        start(&other, slow_mapping.work[slow_mapping.times++], NULL);
        pthread_join(other, NULL);
        if (slow_mapping.times == 2 && slow_mapping.refused) return WEIR_ERR_DRIVER;
    }
    return slow_mapping.real->vm_map(device, base, bytes, chunk);
}

static void *take_of_the_free_tail(void *unused)
{
    slow_mapping.block = alloc(5 * MIB);
    return unused;
}

static void *free_beside_the_tail_and_take_again(void *unused)
{
    assert_ok(weir_free(slow_mapping.block));
    (void)stats_of(0); /* no longer parked */
    slow_mapping.block = alloc(3 * MIB);
    const wr_segment *region = wr_address_find(slow_mapping.tail);
    assert_int_equal(wr_starts_block_at(region, slow_mapping.tail)->state, WR_BLOCK_HELD);
    assert_ok(weir_validate(0));
    return unused;
}

static void *do_nothing_else(void *unused)
{
    return unused;
}

/* The request for 12 MiB needs the 8 MiB that are free at the end of the region, and new memory behind them. When
 * another thread has got some of that end it tries again, and hides the end. */
static weir_status ask_twice(char *end, void *(*second)(void *), bool refused, char **out)
{
    void *block = NULL;
    wr_cache *cache = &device_0()->cache;
    assert_ok(weir_free(end));
    (void)stats_of(0);
    slow_mapping.real = cache->backend;
    slow_mapping.table = *cache->backend;
    slow_mapping.table.vm_map = map_meanwhile;
    slow_mapping.work[0] = take_of_the_free_tail;
    slow_mapping.work[1] = second;
    slow_mapping.times = 0;
    slow_mapping.tail = end + 5 * MIB;
    slow_mapping.refused = refused;
    cache->backend = &slow_mapping.table;
    const weir_status status = weir_alloc(12 * MIB, &block);
    cache->backend = slow_mapping.real;
    assert_int_equal(slow_mapping.times, 2);
    assert_ok(weir_validate(0));
    *out = block;
    return status;
}

static void a_free_end_that_another_thread_got_is_nobody_elses_at_the_second_try(void **state)
{
    (void)state;
    char *first = alloc(4 * MIB), *end = alloc(8 * MIB), *large = NULL;
    assert_ok(ask_twice(end, free_beside_the_tail_and_take_again, false, &large));
    assert_ptr_equal(slow_mapping.block, end);
    assert_ptr_equal(large, end + 3 * MIB);
    write_pattern(large, 12 * MIB, 7);
    assert_ok(weir_free(slow_mapping.block));
    assert_ok(weir_free(first));
    assert_ok(weir_validate(0));
    assert_true(has_pattern(large, 12 * MIB, 7));
}

static void a_free_end_serves_again_when_the_driver_refuses_the_second_try(void **state)
{
    (void)state;
    (void)alloc(4 * MIB);
    char *end = alloc(8 * MIB), *large = NULL;
    assert_status(ask_twice(end, do_nothing_else, true, &large), WEIR_ERR_DRIVER);
    assert_ok(weir_free(slow_mapping.block));
    (void)stats_of(0);
    const uint64_t calls = driver_calls();
    assert_ptr_equal(alloc(8 * MIB), end);
    assert_int_equal(driver_calls(), calls);
}

/* ---- work that comes --------------------------------------------------------------------------------------------- */

static slow_work late = { .milliseconds = 100 };
static weir_stream near;

static void queue_more(void *unused)
{
    (void)unused;
    start_slow_work(near, &late);
}

/* The callback runs in the thread that waits for the stream of the other device. */
static void work_that_comes_while_frees_are_waited_for_is_over_before_a_pool_pauses(void **state)
{
    (void)state;
    near = new_stream(0);
    weir_stream far = new_stream(1);
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, "model"));
    void *block = alloc_from(pool, MIB, near);
    (void)alloc_from(pool, MIB, near);
    hold(far);
    assert_ok(weir_stream_callback(far, queue_more, NULL));
    assert_ok(weir_record_stream(block, far));
    assert_ok(weir_free(block));
    assert_ok(weir_pause(0, "model", WEIR_PAUSE_DROP));
    assert_true(atomic_load(&late.done));
    assert_ok(weir_resume(0, "model"));
    let_run(far);
}

/* ---- graphs that are launched ------------------------------------------------------------------------------------ */

typedef struct launch {
    weir_graph graph;
    weir_stream stream;
    weir_status status;
    atomic_bool done;
} launch;

static void *launch_it(void *argument)
{
    launch *l = argument;
    l->status = weir_graph_launch(l->graph, l->stream);
    atomic_store(&l->done, true);
    return NULL;
}

/* A graph that writes 7 to its block in a pool that can be paused. */
static unsigned char *capture_it(launch *l)
{
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    options.pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, "model"));
    options.mode = WEIR_CAPTURE_RELAXED;
    *l = (launch){ .stream = new_stream(0) };
    assert_ok(weir_graph_begin(l->stream, &options, &l->graph));
    unsigned char *block = alloc_on(MIB, l->stream);
    assert_ok(weir_fill(block, 7, MIB, l->stream));
    assert_ok(weir_graph_end(l->graph));
    return block;
}

static void a_pool_that_pauses_while_its_graph_is_instantiated_is_not_used(void **state)
{
    (void)state;
    launch l;
    pthread_t thread;
    (void)capture_it(&l);
    start_slowly(&thread, launch_it, &l, WEIR_BACKEND_graph_instantiate);
    assert_ok(weir_pause(0, "model", WEIR_PAUSE_KEEP));
    pthread_join(thread, NULL);
    if (l.status != WEIR_OK) assert_status(l.status, WEIR_ERR_BUSY); /* OK: it came before the pause */
    assert_ok(weir_stream_synchronize(l.stream));
    assert_ok(weir_resume(0, "model"));
    assert_ok(weir_graph_destroy(l.graph));
}

static void a_pool_pauses_only_once_its_graph_is_launched_and_over(void **state)
{
    (void)state;
    launch l;
    pthread_t thread;
    const unsigned char *block = capture_it(&l);
    start_slowly(&thread, launch_it, &l, WEIR_BACKEND_graph_launch);
    assert_ok(weir_pause(0, "model", WEIR_PAUSE_KEEP));
    pthread_join(thread, NULL);
    assert_status(l.status, WEIR_OK);
    assert_ok(weir_resume(0, "model"));
    assert_true(block[0] == 7 && block[MIB - 1] == 7);
    assert_ok(weir_graph_destroy(l.graph));
}

/* ---- pools that go ----------------------------------------------------------------------------------------------- */

static int open_oversize(void **state)
{
    (void)state;
    open_host((weir_settings){ .policy = "torch", .host_memory = 256 * MIB, .max_split_size = 64 * MIB });
    return 0;
}

static void *ask_pool_for_too_much(void *pool)
{
    void *block = NULL;
    return (void *)(intptr_t)weir_alloc_from(*(weir_mempool *)pool, 200 * MIB, near, &block);
}

static void a_pool_that_goes_while_the_driver_refuses_its_request_is_not_looked_into(void **state)
{
    (void)state;
    pthread_t asking;
    void *status = NULL;
    (void)alloc(100 * MIB);
    near = new_stream(0);
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    start_slowly(&asking, ask_pool_for_too_much, &pool, WEIR_BACKEND_segment_alloc);
    assert_ok(weir_mempool_unref(pool));
    pthread_join(asking, &status);
    const intptr_t told = (intptr_t)status;
    assert_true(told == WEIR_ERR_OUT_OF_MEMORY || told == WEIR_ERR_POOL_MISMATCH);
    assert_ok(weir_validate(0));
}

static int64_t bytes_of_blocks(void)
{
    enum { MOST = 64 };
    weir_block_info blocks[MOST];
    size_t count = 0;
    int64_t sum = 0;
    assert_ok(weir_mempool_blocks((weir_mempool){ 0, 0 }, blocks, MOST, &count));
    assert_in_range(count, 0, MOST);
    for (size_t i = 0; i < count; i++) sum += (int64_t)blocks[i].bytes;
    return sum;
}

/* They are reserved until the driver has taken them back. */
static void segments_on_their_way_to_the_driver_are_told_of(void **state)
{
    (void)state;
    enum { SEGMENTS = 3 };
    weir_stream stream = new_stream(0);
    weir_stream_stats of_stream = { .size = sizeof of_stream };
    pthread_t thread;
    void *blocks[SEGMENTS];
    for (int i = 0; i < SEGMENTS; i++) blocks[i] = alloc_on(30 * MIB, stream);
    for (int i = 0; i < SEGMENTS; i++) assert_ok(weir_free(blocks[i]));
    start_slowly(&thread, empty_cache, NULL, WEIR_BACKEND_segment_free);
    assert_in_range(reserved_on(0), 30 * MIB, 30 * MIB * SEGMENTS);
    assert_int_equal(bytes_of_blocks(), reserved_on(0));
    assert_ok(weir_stream_stats_get(stream, &of_stream));
    assert_int_equal(of_stream.reserved_bytes, reserved_on(0));
    assert_ok(weir_validate(0));
    pthread_join(thread, NULL);
    assert_int_equal(bytes_of_blocks(), 0);
    assert_int_equal(reserved_on(0), 0);
}

#define MEANWHILE_TEST(test) cmocka_unit_test_setup_teardown(test, open_two, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_request_waits_for_another_that_the_driver_then_refuses, open_limited,
                                        close_host),
        cmocka_unit_test_setup_teardown(a_refused_request_does_not_wait_for_a_source_that_waits_for_it, open_limited,
                                        close_host),
        MEANWHILE_TEST(a_stream_does_not_end_while_an_event_is_recorded_on_it),
        MEANWHILE_TEST(a_block_freed_while_a_stream_that_used_it_ends_delays_no_thread),
        cmocka_unit_test_setup_teardown(a_segment_for_a_stream_that_ends_meanwhile_is_not_the_next_streams,
                                        open_limited, close_host),
        cmocka_unit_test_setup_teardown(a_request_for_a_stream_that_ends_meanwhile_gets_no_block_of_the_next_one,
                                        open_torch, close_host),
        MEANWHILE_TEST(a_chunk_partly_handed_out_meanwhile_stays),
        MEANWHILE_TEST(a_peer_enabled_while_memory_is_being_mapped_reaches_it),
        MEANWHILE_TEST(chunks_of_a_pool_that_a_graph_begins_to_use_meanwhile_stay),
        MEANWHILE_TEST(a_free_end_that_another_thread_got_is_nobody_elses_at_the_second_try),
        MEANWHILE_TEST(a_free_end_serves_again_when_the_driver_refuses_the_second_try),
        MEANWHILE_TEST(work_that_comes_while_frees_are_waited_for_is_over_before_a_pool_pauses),
        MEANWHILE_TEST(a_pool_that_pauses_while_its_graph_is_instantiated_is_not_used),
        MEANWHILE_TEST(a_pool_pauses_only_once_its_graph_is_launched_and_over),
        cmocka_unit_test_setup_teardown(segments_on_their_way_to_the_driver_are_told_of, open_torch, close_host),
        cmocka_unit_test_setup_teardown(a_pool_that_goes_while_the_driver_refuses_its_request_is_not_looked_into,
                                        open_oversize, close_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
