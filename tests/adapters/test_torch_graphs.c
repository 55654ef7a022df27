/*
 * PyTorch's graph captures: PyTorch opens a scope, begins the capture itself, ends it, closes the scope, and much later
 * releases the pool.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "graph_support.h"
#include "handle_support.h"
#include "pluggable.h"
#include "thread_support.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static weir_stream stream, side;
static int copies; /* of filters */
static const weir_backend *b;

static int open_scene(void **state)
{
    (void)state;
    b = strcmp(test_backend(), "cuda") == 0 ? &wr_backend_cuda : &wr_backend_host;
    open_host((weir_settings){ .host_memory = 256 * MIB, .host_devices = 2 });
    stream = new_stream(0);
    side = new_stream(0);
    copies = 0;
    return 0;
}

static int close_scene(void **state)
{
    assert_int_equal(copies, 0);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
    return close_host(state);
}

#define assert_good(call) assert_string_equal(call, "")

/* A capture as PyTorch's CUDAGraph has it. */
typedef struct capture {
    weir_stream stream;
    unsigned long long pool; /* the second number of its id */
    uint64_t id;             /* the driver's, once begun */
    void *native;
} capture;

static bool same_capture(void *argument, void *native)
{
    const capture *c = argument;
    weir_capture_state state = WEIR_CAPTURE_NONE;
    uint64_t id = 0;
    return b->capture_status(device_of(c->stream), native, &state, &id) == WEIR_OK && state == WEIR_CAPTURE_ACTIVE &&
           id == c->id;
}

static void begin(capture *c)
{
    const int device = device_of(c->stream);
    weir_capture_state state = WEIR_CAPTURE_NONE;
    assert_good(pluggable_begin_allocate_to_pool(device, 0, c->pool, same_capture, c, &copies));
    assert_int_equal(b->capture_begin(device, native_of(c->stream), WEIR_CAPTURE_RELAXED), 0);
    assert_int_equal(b->capture_status(device, native_of(c->stream), &state, &c->id), 0);
}

static void end(capture *c)
{
    const int device = device_of(c->stream);
    assert_int_equal(b->capture_end(device, native_of(c->stream), &c->native), 0);
    assert_good(pluggable_end_allocate_to_pool(device, 0, c->pool));
}

static void release(capture *c)
{
    pluggable_release_pool(device_of(c->stream), 0, c->pool);
    assert_int_equal(b->graph_destroy(device_of(c->stream), c->native), 0);
}

static void *take(size_t bytes, weir_stream on)
{
    void *pointer = NULL;
    assert_good(pluggable_alloc(bytes, device_of(on), native_of(on), &pointer));
    return pointer;
}

static void give(void *pointer)
{
    pluggable_free(pointer, 0, 0, NULL);
}

static bool in_private_pool(const void *pointer)
{
    const weir_mempool pool = info_of(pointer).pool;
    return pool.capture != 0 || pool.user != 0;
}

static void a_capture_allocates_from_a_pool_that_lasts_until_its_release(void **state)
{
    (void)state;
    capture c = { .stream = stream, .pool = 7 };
    begin(&c);
    void *inside = take(30 * MIB, stream), *outside = take(MIB, side);
    const weir_mempool pool = info_of(inside).pool;
    assert_true(in_private_pool(inside));
    assert_false(in_private_pool(outside));
    give(inside);
    end(&c);
    void *after = take(30 * MIB, stream);
    assert_false(in_private_pool(after));
    assert_int_equal(pool_info(pool).graphs, 1);
    assert_good(pluggable_reset()); /* memory that a graph uses stays */
    weir_memory_stats stats = { .size = sizeof stats };
    assert_ok(weir_mempool_stats_get(pool, &stats));
    assert_true(stats.reserved_bytes[WEIR_STAT_ALL].current >= (int64_t)(30 * MIB));
    release(&c);
    weir_mempool_info info = { .size = sizeof info };
    assert_status(weir_mempool_info_get(pool, &info), WEIR_ERR_POOL_MISMATCH);
    give(after);
    give(outside);
}

static void memory_that_outlives_its_graph_stays_valid(void **state)
{
    (void)state;
    capture c = { .stream = stream, .pool = 1 };
    begin(&c);
    void *kept = take(30 * MIB, stream);
    end(&c);
    release(&c);
    memset(kept, 1, 30 * MIB);
    give(kept);
}

static void streams_that_join_the_capture_are_in_it(void **state)
{
    (void)state;
    capture c = { .stream = stream, .pool = 2 };
    begin(&c);
    assert_ok(weir_stream_wait(side, stream));
    void *first = take(MIB, side), *second = take(MIB, stream);
    assert_true(in_private_pool(first));
    assert_true(SAME_POOL(info_of(first).pool, info_of(second).pool));
    give(first);
    give(second);
    assert_ok(weir_stream_wait(stream, side));
    end(&c);
    release(&c);
}

static void a_block_recorded_inside_is_reused_once_its_stream_was_joined(void **state)
{
    (void)state;
    capture c = { .stream = stream, .pool = 3 };
    begin(&c);
    void *block = take(MIB, stream);
    assert_ok(weir_stream_wait(side, stream));
    assert_ok(weir_fill(block, 1, MIB, side));
    assert_good(pluggable_record_stream(block, native_of(side)));
    give(block);
    void *before = take(MIB, stream);
    assert_ptr_not_equal(before, block);
    assert_ok(weir_stream_wait(stream, side));
    void *joined = take(MIB, stream);
    assert_ptr_equal(joined, block);
    give(before);
    give(joined);
    end(&c);
    release(&c);
}

static void graphs_may_share_a_pool(void **state)
{
    (void)state;
    capture one = { .stream = stream, .pool = 4 }, two = { .stream = stream, .pool = 4 };
    begin(&one);
    void *first = take(30 * MIB, stream);
    const weir_mempool pool = info_of(first).pool;
    give(first);
    end(&one);
    begin(&two);
    void *second = take(30 * MIB, stream);
    assert_ptr_equal(second, first);
    give(second);
    end(&two);
    assert_int_equal(pool_info(pool).graphs, 2);
    release(&one);
    assert_int_equal(pool_info(pool).graphs, 2); /* either graph may be the one that lives on */
    release(&two);
    weir_mempool_info info = { .size = sizeof info };
    assert_status(weir_mempool_info_get(pool, &info), WEIR_ERR_POOL_MISMATCH);
}

/* PyTorch names the pool of the graph that ends, and not the graph. */
static void a_graph_that_shares_a_pool_keeps_its_handles_when_another_ends(void **state)
{
    (void)state;
    static library maths = { .name = "maths" };
    capture one = { .stream = stream, .pool = 9 }, two = { .stream = stream, .pool = 9 };
    library_start(&maths);
    library_register(&maths, 0);
    begin(&one);
    give(take(MIB, stream));
    end(&one);
    begin(&two);
    give(take(MIB, stream));
    (void)get_on(&maths, stream);
    end(&two);
    assert_ok(weir_handle_release(maths.kind, 0));
    release(&one);
    assert_int_equal(trim(&maths, 0), 0);
    release(&two);
    assert_int_equal(trim(&maths, 0), 1);
    library_end(&maths);
}

/* What adapters/python/weir/cupy.py has CuPy call. */
void weir_cupy_use_interpreter(void *(*save)(void), void (*restore)(void *));
void *weir_cupy_malloc(void *native, size_t bytes, int device);
void weir_cupy_free(void *unused, void *pointer, int device);

static void *let_go_of_interpreter(void)
{
    return NULL;
}

static void have_interpreter_again(void *thread)
{
    assert_null(thread);
}

static void cupys_first_request_in_a_capture_belongs_to_the_graph(void **state)
{
    (void)state;
    capture c = { .stream = stream, .pool = 9 };
    weir_cupy_use_interpreter(let_go_of_interpreter, have_interpreter_again);
    begin(&c);
    void *cupys = weir_cupy_malloc(native_of(stream), MIB, 0), *torchs = take(MIB, stream);
    void *outside = weir_cupy_malloc(native_of(side), MIB, 0);
    assert_true(in_private_pool(cupys));
    assert_true(SAME_POOL(info_of(cupys).pool, info_of(torchs).pool));
    assert_false(in_private_pool(outside));
    weir_cupy_free(NULL, cupys, 0);
    weir_cupy_free(NULL, outside, 0);
    give(torchs);
    end(&c);
    release(&c);
}

static void a_capture_without_allocations_leaves_nothing(void **state)
{
    (void)state;
    capture c = { .stream = stream, .pool = 5 };
    const uint64_t calls = driver_calls();
    begin(&c);
    end(&c);
    release(&c);
    assert_int_equal(driver_calls(), calls); /* the calls that capture are not made by weir */
}

static bool is_the_stream(void *argument, void *native)
{
    return native == argument;
}

static bool every_stream(void *argument, void *native)
{
    (void)argument, (void)native;
    return true;
}

static void a_scope_without_a_capture_routes_its_stream(void **state)
{
    (void)state;
    assert_good(pluggable_begin_allocate_to_pool(0, 9, 0, is_the_stream, native_of(stream), &copies));
    void *inside = take(MIB, stream), *outside = take(MIB, side), *zero = take(0, stream);
    assert_true(in_private_pool(inside));
    assert_false(in_private_pool(outside));
    assert_null(zero);
    assert_good(pluggable_end_allocate_to_pool(0, 9, 0));
    void *after = take(MIB, stream);
    assert_false(in_private_pool(after));
    give(inside);
    give(outside);
    give(after);
    pluggable_release_pool(0, 9, 0);
}

static void a_pool_that_is_held_keeps_its_memory_between_scopes(void **state)
{
    (void)state;
    weir_mempool ours;
    void *first = NULL;
    assert_int_equal(weir_torch_mempool_hold(0, 0, 9, false, false, NULL), WEIR_OK);
    for (int i = 0; i < 2; i++) {
        assert_good(pluggable_begin_allocate_to_pool(0, 0, 9, is_the_stream, native_of(stream), &copies));
        assert_int_equal(weir_torch_mempool_references(0, 0, 9, &ours), 2);
        void *p = take(MIB, stream);
        assert_good(pluggable_end_allocate_to_pool(0, 0, 9));
        pluggable_release_pool(0, 0, 9);
        assert_true(SAME_POOL(info_of(p).pool, ours));
        if (i == 0) first = p;
        assert_ptr_equal(p, first);
        give(p);
    }
    assert_int_equal(weir_torch_mempool_references(0, 0, 9, &ours), 1);
    weir_mempool name = ours, others = { 3, 4 };
    assert_true(weir_torch_mempool_name(0, &name));
    assert_true(SAME_POOL(name, ((weir_mempool){ 0, 9 })));
    assert_false(weir_torch_mempool_name(0, &others));
    assert_true(SAME_POOL(others, ((weir_mempool){ 3, 4 })));
    assert_int_equal(weir_torch_mempool_release(0, 0, 9), WEIR_OK);
    assert_int_equal(weir_torch_mempool_references(0, 0, 9, &ours), 0);
    assert_int_equal(reserved_on(0), 0);
}

static void pools_of_two_devices_have_nothing_in_common(void **state)
{
    (void)state;
    const weir_stream far = new_stream(1);
    assert_good(pluggable_begin_allocate_to_pool(0, 0, 6, is_the_stream, native_of(stream), &copies));
    assert_good(pluggable_begin_allocate_to_pool(1, 0, 6, is_the_stream, native_of(far), &copies));
    void *near = take(MIB, stream), *distant = take(MIB, far);
    assert_true(in_private_pool(near) && in_private_pool(distant));
    assert_false(SAME_POOL(info_of(near).pool, info_of(distant).pool));
    assert_int_equal(weir_torch_mempools(0, NULL, NULL, 0), 1);
    assert_int_equal(weir_torch_mempools(1, NULL, NULL, 0), 1);
    assert_good(pluggable_end_allocate_to_pool(1, 0, 6));
    assert_good(pluggable_end_allocate_to_pool(0, 0, 6));
    give(near);
    give(distant);
    pluggable_release_pool(0, 0, 6);
    pluggable_release_pool(1, 0, 6);
}

static void a_scope_of_all_streams_is_of_one_device(void **state)
{
    (void)state;
    assert_good(pluggable_begin_allocate_to_pool(0, 0, 6, every_stream, NULL, &copies));
    void *near = take(MIB, default_stream(0)), *distant = take(MIB, default_stream(1));
    assert_true(in_private_pool(near));
    assert_false(in_private_pool(distant));
    assert_good(pluggable_end_allocate_to_pool(0, 0, 6));
    give(near), give(distant);
    pluggable_release_pool(0, 0, 6);
    assert_ok(weir_empty_cache(1));
}

static void a_pools_id_is_both_of_its_numbers(void **state)
{
    (void)state;
    void *blocks[2];
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(weir_torch_mempool_hold(0, i, 6, false, false, NULL), WEIR_OK);
        assert_good(pluggable_begin_allocate_to_pool(0, i, 6, is_the_stream, native_of(stream), &copies));
        blocks[i] = take(MIB, stream);
        assert_good(pluggable_end_allocate_to_pool(0, i, 6));
        pluggable_release_pool(0, i, 6);
    }
    assert_false(SAME_POOL(info_of(blocks[0]).pool, info_of(blocks[1]).pool));
    for (unsigned i = 0; i < 2; i++) {
        give(blocks[i]);
        assert_int_equal(weir_torch_mempool_release(0, i, 6), WEIR_OK);
    }
}

static void a_reference_that_is_dropped_inside_a_scope_is_not_the_scopes(void **state)
{
    (void)state;
    assert_int_equal(weir_torch_mempool_hold(0, 0, 9, false, false, NULL), WEIR_OK);
    assert_good(pluggable_begin_allocate_to_pool(0, 0, 9, is_the_stream, native_of(stream), &copies));
    assert_int_equal(weir_torch_mempool_release(0, 0, 9), WEIR_OK);
    void *inside = take(MIB, stream);
    assert_true(in_private_pool(inside));
    assert_good(pluggable_end_allocate_to_pool(0, 0, 9));
    give(inside);
    pluggable_release_pool(0, 0, 9);
}

static void a_pool_that_is_released_inside_its_scope_ends_that(void **state)
{
    (void)state;
    assert_good(pluggable_begin_allocate_to_pool(0, 0, 9, is_the_stream, native_of(stream), &copies));
    pluggable_release_pool(0, 0, 9);
    assert_int_equal(copies, 0);
    void *outside = take(MIB, stream);
    assert_false(in_private_pool(outside));
    give(outside);
}

static void a_pool_that_was_never_opened_can_be_ended_and_released(void **state)
{
    (void)state;
    assert_good(pluggable_end_allocate_to_pool(0, 0, 77));
    pluggable_release_pool(0, 0, 77);
}

static void running_out_inside_a_capture_can_be_caught(void **state)
{
    (void)state;
    capture c = { .stream = stream, .pool = 8 };
    void *pointer = NULL;
    begin(&c);
    assert_memory_equal(pluggable_alloc((size_t)1 << 45, 0, native_of(stream), &pointer), "OutOfMemoryError", 16);
    give(take(MIB, stream));
    end(&c);
    release(&c);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static atomic_bool stop;

static void *work_beside(void *unused)
{
    const weir_stream own = new_stream(0);
    while (!atomic_load(&stop)) {
        void *pointer = take(MIB, own);
        if (in_private_pool(pointer)) fail_msg("memory of a capture went to another stream");
        give(pointer);
    }
    return unused;
}

static void captures_and_other_threads_do_not_mix(void **state)
{
    (void)state;
    pthread_t threads[3];
    atomic_store(&stop, false);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, work_beside, NULL), 0);
    for (unsigned i = 0; i < 200; i++) {
        capture c = { .stream = stream, .pool = 100 + i % 3 };
        begin(&c);
        void *pointer = take(MIB, stream);
        assert_true(in_private_pool(pointer));
        give(pointer);
        end(&c);
        release(&c);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_ok(weir_validate(0));
}

/* ---- scopes that are no captures: torch.cuda.use_mem_pool -------------------------------------------------------- */

/* Releases an old graph's pool with all that it holds. */
static bool drop_a_graph(void *block, int device, size_t needed)
{
    (void)needed;
    give(*(void **)block);
    pluggable_release_pool(device, 0, 7);
    return true;
}

static void a_reclaim_callback_may_release_a_scope(void **state)
{
    (void)state;
    void *old = NULL;
    assert_ok(weir_memory_limit_set(0, 256 * MIB));
    assert_good(pluggable_begin_allocate_to_pool(0, 0, 7, every_stream, NULL, &copies));
    old = take(200 * MIB, default_stream(0));
    assert_good(pluggable_end_allocate_to_pool(0, 0, 7));
    assert_good(pluggable_begin_allocate_to_pool(0, 0, 8, every_stream, NULL, &copies));
    assert_ok(weir_reclaim_add(drop_a_graph, &old));
    give(take(100 * MIB, default_stream(0)));
    assert_ok(weir_reclaim_remove(drop_a_graph, &old));
    assert_good(pluggable_end_allocate_to_pool(0, 0, 8));
    pluggable_release_pool(0, 0, 8);
}

static void *arrive(void *arrived)
{
    const struct timespec tenth = { 0, 100000000 };
    nanosleep(&tenth, NULL); /* by then the other thread waits */
    give(take(1000, default_stream(1)));
    atomic_store((atomic_bool *)arrived, true);
    return NULL;
}

static void a_release_that_waits_for_work_blocks_no_other_thread(void **state)
{
    (void)state;
    atomic_bool arrived = false;
    pthread_t thread;
    assert_good(pluggable_begin_allocate_to_pool(0, 0, 7, every_stream, NULL, &copies));
    give(take(MIB, stream));
    assert_good(pluggable_end_allocate_to_pool(0, 0, 7));
    assert_ok(weir_stream_callback(stream, last_until,
                                   &arrived)); /* a collective: it ends once the other device has joined */
    assert_good(pluggable_begin_allocate_to_pool(1, 0, 8, every_stream, NULL, &copies));
    assert_int_equal(pthread_create(&thread, NULL, arrive, &arrived), 0);
    pluggable_release_pool(0, 0, 7);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_good(pluggable_end_allocate_to_pool(1, 0, 8));
    pluggable_release_pool(1, 0, 8);
}

/* ---- checkpoints: torch.compile(mode="reduce-overhead") ---------------------------------------------------------- */

static void install(void)
{
    pluggable_become_current(PLUGGABLE_PLAIN);
    assert_true(pluggable_answer(11));
}

enum { POOL = 6 };

/* A scope of the stream, in which PyTorch's allocator is asked as PyTorch asks it. */
static void open_pool(weir_stream of)
{
    install();
    pluggable_set_current(device_of(of), native_of(of));
    assert_int_equal(weir_torch_mempool_hold(device_of(of), 0, POOL, false, false, NULL), WEIR_OK);
    assert_good(pluggable_begin_allocate_to_pool(device_of(of), 0, POOL, is_the_stream, native_of(of), &copies));
}

static void close_pool(weir_stream of)
{
    assert_good(pluggable_end_allocate_to_pool(device_of(of), 0, POOL));
    pluggable_release_pool(device_of(of), 0, POOL);
    assert_int_equal(weir_torch_mempool_release(device_of(of), 0, POOL), WEIR_OK);
    pluggable_set_current(0, NULL);
    pluggable_become_current(PLUGGABLE_NONE);
}

static void *ask(size_t bytes)
{
    void *pointer = NULL;
    assert_good(pluggable_raw_alloc(bytes, &pointer));
    return pointer;
}

static pluggable_state *checkpoint_of(weir_stream of)
{
    pluggable_state *made = NULL;
    assert_good(pluggable_get_checkpoint(device_of(of), 0, POOL, &made));
    return made;
}

static void a_pool_goes_back_to_a_checkpoint(void **state)
{
    (void)state;
    pluggable_change change;
    open_pool(stream);
    void *then = ask(30 * MIB);
    pluggable_state *checkpoint = checkpoint_of(stream);
    assert_good(pluggable_delete(then));
    void *since = ask(10 * MIB);
    assert_ptr_equal(since, then);
    assert_good(pluggable_set_checkpoint(0, checkpoint, &change));
    assert_int_equal(change.freed_count, 1);
    assert_ptr_equal(change.freed[0], since);
    assert_int_equal(change.restored_count, 1);
    assert_ptr_equal(change.restored[0], then);
    assert_int_equal(info_of(then).requested, 30 * MIB);
    pluggable_end_checkpoint(checkpoint);
    assert_good(pluggable_delete(then));
    close_pool(stream);
}

static void a_checkpoint_is_of_the_pool_of_its_device(void **state)
{
    (void)state;
    pluggable_change change;
    const weir_stream far = new_stream(1);
    open_pool(far);
    void *then = ask(MIB);
    pluggable_state *checkpoint = checkpoint_of(far);
    assert_good(pluggable_delete(then));
    assert_good(pluggable_set_checkpoint(1, checkpoint, &change));
    assert_int_equal(change.restored_count, 1);
    assert_ptr_equal(change.restored[0], then);
    assert_int_equal(info_of(then).device, 1);
    assert_good(pluggable_delete(then));
    pluggable_end_checkpoint(checkpoint);
    close_pool(far);
}

static void the_live_blocks_of_a_pool_are_told(void **state)
{
    (void)state;
    void *live[2];
    size_t count = 7;
    assert_int_equal(weir_torch_mempool_live(0, 0, POOL, live, 2, &count), WEIR_OK);
    assert_int_equal(count, 0); /* there is no such pool */
    open_pool(stream);
    void *one = ask(MIB), *two = ask(MIB), *three = ask(MIB);
    assert_int_equal(weir_torch_mempool_live(0, 0, POOL, live, 2, &count), WEIR_OK);
    assert_int_equal(count, 3); /* more than there is room for */
    assert_good(pluggable_delete(two));
    assert_int_equal(weir_torch_mempool_live(0, 0, POOL, live, 2, &count), WEIR_OK);
    assert_int_equal(count, 2);
    assert_true((live[0] == one && live[1] == three) || (live[0] == three && live[1] == one));
    assert_good(pluggable_delete(one));
    assert_good(pluggable_delete(three));
    close_pool(stream);
}

static void what_a_checkpoint_brings_back_is_freed_by_torch_once(void **state)
{
    (void)state;
    pluggable_change change;
    open_pool(stream);
    void *one = ask(MIB), *two = ask(MIB);
    pluggable_state *checkpoint = checkpoint_of(stream);
    assert_good(pluggable_delete(one));
    for (int i = 0; i < 2; i++) {
        assert_good(pluggable_set_checkpoint(0, checkpoint, &change));
        assert_int_equal(change.restored_count, 2);
        assert_good(pluggable_delete(one));
        assert_memory_equal(pluggable_delete(one), "exception: weir: ", 17);
    }
    assert_good(pluggable_delete(two));
    pluggable_end_checkpoint(checkpoint);
    close_pool(stream);
}

static void a_checkpoint_may_outlive_its_pool_but_not_be_gone_back_to(void **state)
{
    (void)state;
    pluggable_change change;
    open_pool(stream);
    assert_good(pluggable_delete(ask(MIB)));
    pluggable_state *checkpoint = checkpoint_of(stream);
    close_pool(stream);
    install();
    assert_memory_equal(pluggable_set_checkpoint(0, checkpoint, &change), "exception: weir: ", 17);
    pluggable_end_checkpoint(checkpoint);
    pluggable_become_current(PLUGGABLE_NONE);
}

static void a_checkpoint_of_an_unknown_pool_is_refused(void **state)
{
    (void)state;
    pluggable_state *checkpoint = NULL;
    install();
    assert_non_null(strstr(pluggable_get_checkpoint(0, 0, 99, &checkpoint), "does not exist"));
    assert_null(checkpoint);
    pluggable_become_current(PLUGGABLE_NONE);
}

/* ---- pools that threads share ------------------------------------------------------------------------------------ */

static bool is_thread(void *thread, void *native)
{
    (void)native;
    return pthread_equal(pthread_self(), *(pthread_t *)thread);
}

typedef struct turns {
    sem_t opened, go;
} turns;

static void *open_in_between(void *argument)
{
    turns *t = argument;
    pthread_t self = pthread_self();
    assert_good(pluggable_begin_allocate_to_pool(0, 0, 5, is_thread, &self, &copies));
    sem_post(&t->opened);
    wait_for(&t->go);
    void *inside = take(MIB, side);
    assert_true(in_private_pool(inside));
    assert_good(pluggable_end_allocate_to_pool(0, 0, 5));
    void *outside = take(MIB, side);
    assert_false(in_private_pool(outside));
    give(inside), give(outside);
    pluggable_release_pool(0, 0, 5);
    return NULL;
}

static void threads_may_have_scopes_of_one_pool_at_once(void **state)
{
    (void)state;
    turns t;
    pthread_t self = pthread_self(), other;
    assert_int_equal(sem_init(&t.opened, 0, 0) | sem_init(&t.go, 0, 0), 0);
    assert_good(pluggable_begin_allocate_to_pool(0, 0, 5, is_thread, &self, &copies));
    assert_int_equal(pthread_create(&other, NULL, open_in_between, &t), 0);
    wait_for(&t.opened);
    void *inside = take(MIB, stream);
    assert_good(pluggable_end_allocate_to_pool(0, 0, 5));
    void *outside = take(MIB, stream);
    assert_true(in_private_pool(inside));
    assert_false(in_private_pool(outside));
    sem_post(&t.go);
    assert_int_equal(pthread_join(other, NULL), 0);
    give(inside), give(outside);
    pluggable_release_pool(0, 0, 5);
    sem_destroy(&t.opened);
    sem_destroy(&t.go);
}

static void memory_of_a_pool_alone_is_reached_by_other_devices_too(void **state)
{
    (void)state;
    if (strcmp(test_backend(), "host") != 0) skip(); /* which alone counts calls */
    pthread_t self = pthread_self();
    const weir_stream far = new_stream(1);
    give(take(MIB, stream));
    assert_int_equal(calls_of(WEIR_BACKEND_peer_enable), 0);
    assert_good(pluggable_begin_allocate_to_pool(1, 0, 5, is_thread, &self, &copies));
    give(take(MIB, far));
    assert_int_equal(calls_of(WEIR_BACKEND_peer_enable), 2);
    assert_good(pluggable_end_allocate_to_pool(1, 0, 5));
    pluggable_release_pool(1, 0, 5);
    assert_ok(weir_empty_cache(1));
}

static void *take_from_pool(unsigned long long torchs)
{
    pthread_t self = pthread_self();
    assert_good(pluggable_begin_allocate_to_pool(0, 0, torchs, is_thread, &self, &copies));
    void *pointer = take(MIB, stream);
    assert_good(pluggable_end_allocate_to_pool(0, 0, torchs));
    pluggable_release_pool(0, 0, torchs);
    return pointer;
}

static void a_pools_id_is_known_as_long_as_memory_of_it_is_in_use(void **state)
{
    (void)state;
    void *first = take_from_pool(77);
    const weir_mempool ours = info_of(first).pool;
    weir_mempool id = ours;
    assert_true(weir_torch_mempool_name(0, &id));
    assert_true(id.capture == 0 && id.user == 77);
    give(first);
    assert_ok(weir_empty_cache(0));
    void *second = take_from_pool(78);
    id = ours;
    assert_false(weir_torch_mempool_name(0, &id));
    give(second);
}

static turns asking;

static bool wait_while_asked(void *unused, void *native)
{
    (void)unused, (void)native;
    sem_post(&asking.opened);
    wait_for(&asking.go);
    return false;
}

static void *allocate(void *unused)
{
    give(take(MIB, side));
    return unused;
}

/* As the destructor of a pool or of a graph in a process that loads data. */
static void a_forked_child_may_release_a_pool(void **state)
{
    (void)state;
    pthread_t thread;
    int status = 0;
    assert_int_equal(sem_init(&asking.opened, 0, 0) | sem_init(&asking.go, 0, 0), 0);
    sem_post(&asking.go); /* for the question as it opens */
    assert_good(pluggable_begin_allocate_to_pool(0, 0, 5, wait_while_asked, NULL, &copies));
    while (sem_trywait(&asking.opened) == 0) continue;
    while (sem_trywait(&asking.go) == 0) continue;
    assert_int_equal(pthread_create(&thread, NULL, allocate, NULL), 0);
    wait_for(&asking.opened);
    fflush(NULL);
    const pid_t child = fork(); /* while a filter is asked */
    assert_true(child >= 0);
    if (child == 0) {
        alarm(30);
        pluggable_release_pool(0, 0, 5);
        (void)weir_torch_mempool_release(0, 0, 5);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    sem_post(&asking.go);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_good(pluggable_end_allocate_to_pool(0, 0, 5));
    pluggable_release_pool(0, 0, 5);
    sem_destroy(&asking.opened);
    sem_destroy(&asking.go);
}

/* ---- parts of a capture ------------------------------------------------------------------------------------------ */

enum { PART = 9 };

static bool is_the_current(void *argument, void *native)
{
    return native == argument;
}

/* As use_mem_pool() does; its filter asks for the thread. */
static void begin_part(void)
{
    pluggable_set_current(0, native_of(stream));
    assert_good(pluggable_begin_allocate_to_pool(0, 0, PART, is_the_current, native_of(stream), &copies));
}

static void end_part(void)
{
    assert_good(pluggable_end_allocate_to_pool(0, 0, PART));
    pluggable_release_pool(0, 0, PART);
    pluggable_set_current(0, NULL);
}

static bool lies_in(const void *pointer, unsigned long long torchs)
{
    weir_mempool ours;
    assert_int_not_equal(weir_torch_mempool_references(0, 0, torchs, &ours), 0);
    return SAME_POOL(info_of(pointer).pool, ours);
}

/* The pools' order, and whether the capture asks for something first, make no difference. */
static void a_part_of_a_capture_has_its_memory_from_its_own_pool(void **state)
{
    (void)state;
    for (int form = 0; form < 6; form++) {
        const bool pool_first = form % 3 == 0, graph_first = form % 3 == 1, asks_first = form >= 3;
        capture before = { .stream = stream, .pool = 7 }, c = { .stream = stream, .pool = 7 };
        if (graph_first) {
            begin(&before);
            give(take(MIB, stream));
            end(&before);
        }
        if (pool_first || graph_first)
            assert_int_equal(weir_torch_mempool_hold(0, 0, PART, false, false, NULL), WEIR_OK);
        begin(&c);
        if (!pool_first && !graph_first)
            assert_int_equal(weir_torch_mempool_hold(0, 0, PART, false, false, NULL), WEIR_OK);
        void *first = asks_first ? take(MIB, stream) : NULL;
        begin_part();
        void *inside = take(MIB, stream), *beside = take(MIB, stream);
        end_part();
        void *after = take(MIB, stream);
        assert_true(lies_in(inside, PART) && lies_in(beside, PART) && lies_in(after, 7));
        if (first) assert_true(lies_in(first, 7));
        end(&c);
        give(first), give(inside), give(beside), give(after);
        release(&c);
        if (graph_first) release(&before);
        assert_int_equal(weir_torch_mempool_release(0, 0, PART), WEIR_OK);
    }
}

static void a_graph_keeps_the_pool_that_a_part_of_it_used(void **state)
{
    (void)state;
    weir_mempool ours;
    weir_mempool_info info = { .size = sizeof info };
    capture c = { .stream = stream, .pool = 7 };
    assert_int_equal(weir_torch_mempool_hold(0, 0, PART, false, false, NULL), WEIR_OK);
    assert_int_equal(weir_torch_mempool_references(0, 0, PART, &ours), 1);
    begin(&c);
    begin_part();
    give(take(30 * MIB, stream));
    end_part();
    end(&c);
    assert_int_equal(weir_torch_mempool_release(0, 0, PART), WEIR_OK);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(pool_info(ours).graphs, 1);
    assert_true(reserved_on(0) >= (int64_t)(30 * MIB));
    release(&c);
    assert_status(weir_mempool_info_get(ours, &info), WEIR_ERR_POOL_MISMATCH);
}

/* PyTorch opens the scope of the body of a conditional node once that is being captured, on a stream of its own. */
static void the_body_of_a_conditional_node_is_a_capture_of_its_own(void **state)
{
    (void)state;
    weir_capture_state now = WEIR_CAPTURE_NONE;
    capture c = { .stream = stream, .pool = 7 }, body = { .stream = side, .pool = 7 };
    begin(&c);
    void *around = take(MIB, stream);
    assert_int_equal(b->capture_begin(0, native_of(side), WEIR_CAPTURE_RELAXED), 0);
    assert_int_equal(b->capture_status(0, native_of(side), &now, &body.id), 0);
    pluggable_set_current(0, native_of(side));
    assert_good(pluggable_begin_allocate_to_pool(0, 0, body.pool, same_capture, &body, &copies));
    void *inside = take(MIB, side), *of_others = NULL;
    assert_ok(weir_alloc_on(MIB, side, &of_others)); /* which weir refuses in a capture that it was not told of */
    assert_true(lies_in(around, 7) && lies_in(inside, 7) && lies_in(of_others, 7));
    end(&body);
    pluggable_set_current(0, NULL);
    end(&c);
    give(around), give(inside), give(of_others);
    release(&body);
    release(&c);
}

static bool asked;

static bool note_that_it_is_asked(void *argument, void *native)
{
    asked = true;
    return same_capture(argument, native);
}

/* PyTorch does not close the scope of a capture that failed as it ended, and what its filter asks may be gone. */
static void the_filter_of_a_capture_that_failed_is_asked_by_nobody_later(void **state)
{
    (void)state;
    capture failed = { .stream = side, .pool = 5 }, c = { .stream = stream, .pool = 7 };
    assert_int_equal(weir_torch_mempool_hold(0, 0, PART, false, false, NULL), WEIR_OK);
    weir_capture_state state_now = WEIR_CAPTURE_NONE;
    assert_good(pluggable_begin_allocate_to_pool(0, 0, failed.pool, note_that_it_is_asked, &failed, &copies));
    assert_int_equal(b->capture_begin(0, native_of(side), WEIR_CAPTURE_RELAXED), 0);
    assert_int_equal(b->capture_status(0, native_of(side), &state_now, &failed.id), 0);
    give(take(MIB, side)); /* weir knows of it now */
    assert_int_equal(b->capture_end(0, native_of(side), &failed.native), 0);
    asked = false;
    begin(&c);
    begin_part();
    give(take(MIB, stream));
    end_part();
    give(take(MIB, stream));
    end(&c);
    assert_false(asked);
    release(&c);
    assert_good(pluggable_end_allocate_to_pool(0, 0, failed.pool));
    release(&failed);
    assert_int_equal(weir_torch_mempool_release(0, 0, PART), WEIR_OK);
}

static void assert_another_graphs_memory_goes_back_from(unsigned long long pool)
{
    const uint64_t before = (uint64_t)reserved_on(0);
    capture other = { .stream = stream, .pool = pool };
    begin(&other);
    give(take(40 * MIB, stream));
    end(&other);
    release(&other);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), before);
}

static void assert_another_graphs_memory_goes_back(void)
{
    assert_another_graphs_memory_goes_back_from(7);
}

/* As PyTorch 2.12's begin_capture_to_if_node() and end_capture_to_conditional_node() have it: the scope around is
 * closed while its capture goes on, and opened anew when the body's is over. */
static void the_scope_around_a_conditional_node_is_closed_meanwhile(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        const bool asks_before = form & 1, asks_inside = form & 2;
        weir_capture_state now = WEIR_CAPTURE_NONE;
        capture c = { .stream = stream, .pool = 7 }, body = { .stream = side, .pool = 7 };
        pluggable_set_current(0, native_of(stream));
        begin(&c);
        void *around = asks_before ? take(MIB, stream) : NULL;
        assert_good(pluggable_end_allocate_to_pool(0, 0, 7));
        assert_good(pluggable_begin_allocate_to_pool(0, 0, 7, same_capture, &body, &copies));
        assert_int_equal(b->capture_begin(0, native_of(side), WEIR_CAPTURE_RELAXED), 0);
        assert_int_equal(b->capture_status(0, native_of(side), &now, &body.id), 0);
        pluggable_set_current(0, native_of(side));
        void *inside = asks_inside ? take(MIB, side) : NULL;
        assert_int_equal(b->capture_end(0, native_of(side), &body.native), 0);
        pluggable_set_current(0, native_of(stream));
        assert_good(pluggable_end_allocate_to_pool(0, 0, 7));
        assert_good(pluggable_begin_allocate_to_pool(0, 0, 7, same_capture, &c, &copies));
        void *after = take(MIB, stream);
        assert_true(lies_in(after, 7) && (!around || lies_in(around, 7)) && (!inside || lies_in(inside, 7)));
        end(&c);
        give(around), give(inside), give(after);
        assert_another_graphs_memory_goes_back_from(8);
        release(&c);
        pluggable_release_pool(0, 0, 7); /* which PyTorch forgets */
        release(&body);
        pluggable_set_current(0, NULL);
    }
}

static void after_a_capture_that_failed_memory_of_other_graphs_goes_back(void **state)
{
    capture failed = { .stream = side, .pool = 5 };
    (void)state;
    begin(&failed);
    give(take(MIB, side));
    assert_int_equal(b->capture_end(0, native_of(side), &failed.native), 0);
    assert_another_graphs_memory_goes_back();
    assert_good(pluggable_end_allocate_to_pool(0, 0, failed.pool)); /* for the scene's end */
    release(&failed);
}

/* As the body of a conditional node is. The graphs stay. */
static void after_a_capture_inside_another_memory_of_other_graphs_goes_back(void **state)
{
    (void)state;
    capture outer = { .stream = stream, .pool = 5 }, inner = { .stream = side, .pool = 6 };
    begin(&outer);
    give(take(MIB, stream));
    begin(&inner);
    give(take(MIB, side));
    end(&inner);
    end(&outer);
    assert_another_graphs_memory_goes_back();
    release(&inner);
    release(&outer);
}

static void after_a_capture_that_failed_memory_of_earlier_graphs_goes_back(void **state)
{
    capture earlier = { .stream = stream, .pool = 7 }, failed = { .stream = side, .pool = 5 };
    (void)state;
    begin(&earlier);
    give(take(40 * MIB, stream));
    end(&earlier);
    const uint64_t before = (uint64_t)reserved_on(0);
    begin(&failed);
    give(take(MIB, side));
    assert_int_equal(b->capture_end(0, native_of(side), &failed.native), 0);
    release(&earlier);
    assert_ok(weir_empty_cache(0));
    assert_true((uint64_t)reserved_on(0) < before);
    assert_good(pluggable_end_allocate_to_pool(0, 0, failed.pool)); /* for the scene's end */
    release(&failed);
}

static void a_capture_inside_such_a_scope_has_its_own_pool(void **state)
{
    (void)state;
    capture c = { .stream = stream, .pool = 7 };
    assert_int_equal(weir_torch_mempool_hold(0, 0, PART, false, false, NULL), WEIR_OK);
    begin_part();
    void *before = take(MIB, stream);
    begin(&c);
    void *inside = take(MIB, stream), *again = take(MIB, stream);
    assert_true(lies_in(before, PART) && lies_in(inside, 7) && lies_in(again, 7));
    end(&c);
    void *after = take(MIB, stream);
    assert_true(lies_in(after, PART));
    end_part();
    give(before), give(inside), give(again), give(after);
    release(&c);
    assert_int_equal(weir_torch_mempool_release(0, 0, PART), WEIR_OK);
}

#define test(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_capture_allocates_from_a_pool_that_lasts_until_its_release),
        test(memory_that_outlives_its_graph_stays_valid),
        test(streams_that_join_the_capture_are_in_it),
        test(a_block_recorded_inside_is_reused_once_its_stream_was_joined),
        test(graphs_may_share_a_pool),
        test(cupys_first_request_in_a_capture_belongs_to_the_graph),
        test(a_graph_that_shares_a_pool_keeps_its_handles_when_another_ends),
        test(a_capture_without_allocations_leaves_nothing),
        test(a_scope_without_a_capture_routes_its_stream),
        test(a_pool_that_is_held_keeps_its_memory_between_scopes),
        test(pools_of_two_devices_have_nothing_in_common),
        test(a_scope_of_all_streams_is_of_one_device),
        test(a_pools_id_is_both_of_its_numbers),
        test(a_reference_that_is_dropped_inside_a_scope_is_not_the_scopes),
        test(a_pool_that_is_released_inside_its_scope_ends_that),
        test(a_pool_that_was_never_opened_can_be_ended_and_released),
        test(running_out_inside_a_capture_can_be_caught),
        test(captures_and_other_threads_do_not_mix),
        test(a_reclaim_callback_may_release_a_scope),
        test(a_release_that_waits_for_work_blocks_no_other_thread),
        test(a_pool_goes_back_to_a_checkpoint),
        test(a_checkpoint_is_of_the_pool_of_its_device),
        test(the_live_blocks_of_a_pool_are_told),
        test(what_a_checkpoint_brings_back_is_freed_by_torch_once),
        test(a_checkpoint_may_outlive_its_pool_but_not_be_gone_back_to),
        test(a_checkpoint_of_an_unknown_pool_is_refused),
        test(threads_may_have_scopes_of_one_pool_at_once),
        test(memory_of_a_pool_alone_is_reached_by_other_devices_too),
        test(a_pools_id_is_known_as_long_as_memory_of_it_is_in_use),
        test(a_forked_child_may_release_a_pool),
        test(a_part_of_a_capture_has_its_memory_from_its_own_pool),
        test(a_graph_keeps_the_pool_that_a_part_of_it_used),
        test(the_body_of_a_conditional_node_is_a_capture_of_its_own),
        test(the_scope_around_a_conditional_node_is_closed_meanwhile),
        test(the_filter_of_a_capture_that_failed_is_asked_by_nobody_later),
        test(after_a_capture_that_failed_memory_of_other_graphs_goes_back),
        test(after_a_capture_inside_another_memory_of_other_graphs_goes_back),
        test(after_a_capture_that_failed_memory_of_earlier_graphs_goes_back),
        test(a_capture_inside_such_a_scope_has_its_own_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
