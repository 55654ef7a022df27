/*
 * Parked blocks of private pools: who owns them, who gets them, and when they go back to the cache.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "detach_support.h"
#include "graph_support.h"
#include "pool/count.h"
#include "thread_support.h"
#include "weir/observe.h"
#include "weir/plan.h"

#include <pthread.h>
#include <time.h>

static weir_mempool_options options_of(const char *tag)
{
    return pool_options(WEIR_MEMORY_MAPPED, tag);
}

static weir_mempool new_pool(void)
{
    return make_pool(options_of("private"));
}

static int64_t parked(const wr_front *front)
{
    return wr_front_parked_in_all(front, WR_FLOW_BLOCKS);
}

/* Finds the front of a block that was freed and parked; the block is parked again. */
static wr_front *front_with_one(weir_mempool pool, size_t bytes, weir_stream stream)
{
    void *block = alloc_from(pool, bytes, stream);
    wr_front *front = front_of(block);
    assert_non_null(front);
    assert_ok(weir_free(block));
    block = alloc_from(pool, bytes, stream);
    assert_ok(weir_free(block));
    assert_int_equal(parked(front), 1);
    return front;
}

static void take_and_give(weir_mempool pool, weir_stream stream, void *blocks[], int count, size_t bytes)
{
    for (int i = 0; i < count; i++) blocks[i] = alloc_from(pool, bytes, stream);
    for (int i = 0; i < count; i++) assert_ok(weir_free(blocks[i]));
}

/* ---- who gets it ------------------------------------------------------------------------------------------------- */

static void a_freed_block_serves_the_next_request_of_its_size_in_its_pool(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    void *first = alloc_from(pool, 4096, stream), *second = alloc_from(pool, 4096, stream);
    assert_ok(weir_free(second));
    assert_ok(weir_free(first));
    assert_ptr_equal(alloc_from(pool, 4096, stream), first);
    assert_ptr_equal(alloc_from(pool, 4096, stream), second);
    assert_ok(weir_validate(0));
}

static void other_pools_and_streams_do_not_get_a_parked_block(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool(), other = new_pool();
    const weir_stream stream = new_stream(0);
    void *block = alloc_from(pool, 4096, stream);
    assert_ok(weir_free(block));
    assert_ptr_not_equal(alloc_from(other, 4096, stream), block);
    assert_ptr_not_equal(alloc_on(4096, stream), block);
    assert_ptr_not_equal(alloc_from(pool, 4096, new_stream(0)), block);
    assert_int_equal(parked(front_of(block)), 1);
    assert_ptr_equal(alloc_from(pool, 4096, stream), block);
}

static void a_thread_gets_a_parked_block_of_the_pool_that_it_entered(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool(), inner = new_pool();
    const weir_stream stream = new_stream(0);
    void *in_default = alloc_on(4096, stream), *in_pool = alloc_from(pool, 4096, stream),
         *in_inner = alloc_from(inner, 4096, stream);
    assert_ok(weir_free(in_default));
    assert_ok(weir_free(in_pool));
    assert_ok(weir_free(in_inner));
    assert_ok(weir_mempool_enter(pool));
    assert_ok(weir_mempool_enter(inner));
    assert_ptr_equal(alloc_on(4096, stream), in_inner);
    assert_ok(weir_mempool_leave(inner));
    assert_ptr_equal(alloc_on(4096, stream), in_pool);
    assert_ok(weir_mempool_leave(pool));
    assert_ptr_equal(alloc_on(4096, stream), in_default);
}

static void the_current_stream_gets_a_parked_block_of_the_pool_that_was_entered(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    assert_ok(weir_stream_set_current(stream));
    void *block = alloc_from(pool, 4096, stream);
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_enter(pool));
    assert_ptr_equal(alloc(4096), block);
    assert_ok(weir_mempool_leave(pool));
}

/* A segment holds blocks of one size class only. */
static void a_miss_frees_the_parked_blocks_of_its_class(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    void *blocks[4];
    wr_front *front = front_with_one(pool, 4096, stream);
    take_and_give(pool, stream, blocks, 2, 3 * MIB); /* neighbours */
    assert_int_equal(parked(front), 3);
    void *both = alloc_from(pool, 6 * MIB, stream);
    assert_int_equal(parked(front), 1);
    assert_ptr_equal(both, blocks[0]);
    assert_ok(weir_free(both));
    take_and_give(pool, stream, blocks, 4, 512 << 10); /* more than the segment has left */
    assert_true(wr_front_parked(&front->parts[WR_LARGE], WR_FLOW_BLOCKS) == 1);
    assert_ok(weir_validate(0));
}

/* Runs in a thread while another one has the cache's lock. */
typedef struct turns {
    weir_mempool pool;
    weir_stream stream;
    size_t bytes;
    bool entered;
    pthread_barrier_t step;
    atomic_bool done;
} turns;

static void take_turns(const turns *t)
{
    void *block = NULL;
    for (int i = 0; i < 1000; i++) {
        assert_ok(t->entered ? weir_alloc_on(t->bytes, t->stream, &block)
                             : weir_alloc_from(t->pool, t->bytes, t->stream, &block));
        assert_ok(weir_free(block));
    }
}

static void *work(void *argument)
{
    turns *t = argument;
    if (t->entered) assert_ok(weir_mempool_enter(t->pool));
    take_turns(t);
    pthread_barrier_wait(&t->step);
    pthread_barrier_wait(&t->step); /* the lock is held */
    take_turns(t);
    atomic_store(&t->done, true);
    pthread_barrier_wait(&t->step);
    if (t->entered) assert_ok(weir_mempool_leave(t->pool));
    return NULL;
}

static void assert_hits_without_the_caches_lock(weir_mempool pool, bool entered, size_t bytes)
{
    turns t = { .pool = pool, .stream = new_stream(0), .bytes = bytes, .entered = entered };
    enum { BLOCKS = 128 };
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = alloc_on(bytes, t.stream);
    for (int i = 0; i < BLOCKS; i++) assert_ok(weir_free(blocks[i])); /* still live to the cache */
    void *block = alloc_from(t.pool, bytes, t.stream);
    wr_cache *cache = front_of(block)->cache;
    assert_ok(weir_free(block));
    pthread_t thread;
    assert_int_equal(pthread_barrier_init(&t.step, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, work, &t), 0);
    pthread_barrier_wait(&t.step);
    wr_bias_acquire(&cache->lock, WR_BIAS_INNER);
    pthread_barrier_wait(&t.step);
    for (int i = 0; i < 6000 && !atomic_load(&t.done); i++) nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    const bool done = atomic_load(&t.done);
    wr_bias_release(&cache->lock, WR_BIAS_INNER);
    pthread_barrier_wait(&t.step);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_barrier_destroy(&t.step);
    assert_true(done);
}

static void a_hit_in_a_pool_that_was_entered_needs_no_shared_lock(void **state)
{
    (void)state;
    assert_hits_without_the_caches_lock(new_pool(), true, 4096);
    assert_hits_without_the_caches_lock(new_pool(), true, 3 * MIB + 1);
}

static void a_hit_in_a_pool_that_is_named_needs_no_shared_lock(void **state)
{
    (void)state;
    assert_hits_without_the_caches_lock(new_pool(), false, 4096);
    assert_hits_without_the_caches_lock(new_pool(), false, 3 * MIB + 1);
}

static void a_hit_in_the_default_pool_that_is_named_needs_no_shared_lock(void **state)
{
    (void)state;
    assert_hits_without_the_caches_lock((weir_mempool){ 0, 0 }, false, 4096);
    assert_hits_without_the_caches_lock((weir_mempool){ 0, 0 }, false, 3 * MIB + 1);
}

/* Large requests are rounded to multiples of 64 KiB there. */
static void a_large_block_serves_the_next_request_that_rounds_to_its_size(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    void *block = NULL;
    for (int i = 0; i < 64; i++) { /* the lock becomes this thread's */
        block = alloc_from(pool, MIB + 1, stream);
        assert_int_equal(info_of(block).bytes, MIB + (64 << 10));
        assert_ok(weir_free(block));
        assert_ptr_equal(alloc_from(pool, MIB + (60 << 10), stream), block);
        assert_int_equal(info_of(block).bytes, MIB + (64 << 10));
        assert_int_equal(info_of(block).requested, MIB + (60 << 10));
        assert_ok(weir_free(block));
    }
    assert_ptr_not_equal(alloc_from(pool, MIB, stream), block);
    assert_int_equal(parked(front_of(block)), 1);
    assert_ok(weir_validate(0));
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static void assert_parks(weir_mempool_options options, bool parks)
{
    void *block = alloc_from(make_pool(options), 4096, new_stream(0));
    assert_int_equal(front_of(block) != NULL, parks);
    assert_ok(weir_free(block));
    assert_ok(weir_validate(0));
}

static void pools_whose_rules_choose_the_next_block_park_nothing(void **state)
{
    (void)state;
    weir_mempool_options whole = options_of("whole"), fixed = options_of("fixed"), lending = options_of("lending");
    weir_mempool_options wide = options_of("wide");
    wide.alignment = 2 * MIB; /* a small request becomes a block of a large one's size */
    whole.no_split = fixed.deterministic = true;
    lending.memory = WEIR_MEMORY_DEVICE;
    lending.use_on_oom = true;
    assert_parks(options_of("private"), true);
    assert_parks(whole, false);
    assert_parks(fixed, false);
    assert_parks(lending, false);
    assert_parks(wide, false);
}

static void the_pool_of_a_capture_parks_nothing(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    const weir_graph graph = begin_on(stream);
    void *block = alloc_on(4096, stream);
    assert_null(front_of(block));
    assert_ok(weir_free(block));
    assert_ptr_equal(alloc_on(4096, stream), block);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_graph_destroy(graph));
    assert_ok(weir_free(block));
}

static void a_pool_with_a_capture_parks_blocks_freed_there(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    const weir_mempool pool = new_pool();
    const weir_graph graph = begin_in(stream, pool);
    void *block = alloc_on(4096, stream);
    wr_front *front = front_of(block);
    assert_ok(weir_free(block));
    assert_int_equal(parked(front), 1);
    assert_ptr_equal(alloc_on(4096, stream), block);
    assert_ok(weir_free(block));
    assert_ok(weir_graph_end(graph));
    launch_and_wait(graph, stream);
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(parked(front), 1); /* the graph holds the pool */
    assert_ok(weir_graph_destroy(graph));
    assert_int_equal(parked(front), 0);
    assert_int_equal(reserved_on(0), 0);
}

/* The join proves that the other stream is done with blocks that the capture itself handed out. */
static void assert_reused_after_a_join(weir_mempool pool, weir_stream stream, wr_front *detached)
{
    const weir_stream side = new_stream(0);
    const weir_graph graph = begin_in(stream, pool);
    if (detached) {
        assert_ok(try_detach(detached));
        settle(detached);
    }
    void *block = alloc_on(16 * MIB, stream);
    assert_ok(weir_stream_wait(side, stream));
    assert_ok(weir_fill(block, 2, 100, side));
    assert_ok(weir_record_stream(block, side));
    assert_ok(weir_free(block));
    assert_ok(weir_stream_wait(stream, side));
    assert_ptr_equal(alloc_on(16 * MIB, stream), block);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_free(block));
    assert_ok(weir_graph_destroy(graph));
}

static void a_capture_may_reuse_blocks_parked_before(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    (void)front_with_one(pool, 16 * MIB, stream);
    assert_reused_after_a_join(pool, stream, NULL);
}

static void a_capture_may_reuse_blocks_of_a_detached_front(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    assert_reused_after_a_join(pool, stream, front_with_one(pool, 16 * MIB, stream));
}

static void aligned_blocks_are_parked_by_the_size_that_they_have(void **state)
{
    (void)state;
    weir_mempool_options options = options_of("aligned");
    options.alignment = 64 << 10;
    const weir_mempool pool = make_pool(options);
    const weir_stream stream = new_stream(0);
    void *blocks[8];
    assert_ok(weir_mempool_enter(pool));
    for (int i = 0; i < 1000; i++)
        assert_ok(weir_free(alloc_on(100, stream))); /* from then on the thread owns the front's lock */
    for (int i = 0; i < 8; i++) {
        blocks[i] = alloc_on(70, stream);
        assert_int_equal((uintptr_t)blocks[i] % options.alignment, 0);
    }
    for (int i = 0; i < 8; i++) assert_ok(weir_free(blocks[i]));
    assert_int_equal(parked(front_of(blocks[0])), 8);
    assert_ok(weir_mempool_leave(pool));
}

/* ---- when it goes back ------------------------------------------------------------------------------------------- */

static void a_released_pool_serves_no_parked_block(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    void *live = alloc_from(pool, 4096, stream), *out = NULL;
    wr_front *front = front_with_one(pool, 8192, stream);
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(parked(front), 0);
    assert_status(weir_alloc_from(pool, 8192, stream, &out), WEIR_ERR_POOL_MISMATCH);
    assert_ok(weir_free(live));
    assert_int_equal(parked(front), 0);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
}

static void a_pool_that_is_opened_again_parks_again(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    void *live = alloc_from(pool, 4096, stream);
    assert_ok(weir_mempool_unref(pool));
    assert_ok(weir_mempool_ref(pool));
    (void)front_with_one(pool, 8192, stream);
    assert_ok(weir_free(live));
}

static void *enter_and_end(void *argument)
{
    const weir_mempool *pool = argument;
    assert_ok(weir_mempool_enter(*pool));
    assert_ok(weir_mempool_unref(*pool));
    return alloc(8192);
}

/* The last reference belongs to a thread that ends. */
static void a_pool_released_by_a_thread_that_ends_serves_no_parked_block(void **state)
{
    (void)state;
    weir_mempool pool = new_pool();
    void *live = alloc_from(pool, 4096, default_stream(0)), *out = NULL;
    wr_front *front = front_with_one(pool, 8192, default_stream(0));
    assert_ok(weir_free(in_a_thread(enter_and_end, &pool)));
    assert_int_equal(parked(front), 0);
    assert_status(weir_alloc_from(pool, 8192, default_stream(0), &out), WEIR_ERR_POOL_MISMATCH);
    assert_ok(weir_free(live));
}

static void a_paused_pool_serves_no_parked_block(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    void *live = alloc_from(pool, 4096, stream), *out = NULL;
    wr_front *front = front_with_one(pool, 8192, stream);
    assert_ok(weir_mempool_enter(pool));
    assert_ok(weir_free(alloc_on(8192, stream)));
    assert_ok(weir_pause(0, "private", WEIR_PAUSE_KEEP));
    assert_status(weir_alloc_on(8192, stream, &out), WEIR_ERR_BUSY);
    assert_ok(weir_free(live));
    assert_status(weir_alloc_on(4096, stream, &out), WEIR_ERR_BUSY);
    assert_int_equal(parked(front), 0);
    assert_ok(weir_resume(0, "private"));
    assert_ok(weir_free(alloc_on(8192, stream)));
    assert_ok(weir_free(alloc_on(8192, stream)));
    assert_int_equal(parked(front), 1);
    assert_ok(weir_mempool_leave(pool));
}

/* A source of one segment. When it is asked in vain for the last time, it frees a block. */
typedef struct tight {
    void *arena, *freed_late;
    int asked;
} tight;

static weir_status give_one(void *user, size_t bytes, int device, void *native_stream, void **out)
{
    tight *t = user;
    (void)bytes, (void)device, (void)native_stream;
    *out = t->asked++ == 0 ? t->arena : NULL;
    if (t->asked == 3) assert_ok(weir_free(t->freed_late));
    return *out ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

static weir_status take_back(void *user, void *base, size_t bytes, int device, void *native_stream)
{
    (void)user, (void)base, (void)bytes, (void)device, (void)native_stream;
    return WEIR_OK;
}

static void a_block_parked_while_memory_is_searched_is_found(void **state)
{
    (void)state;
    tight t = { .arena = aligned_alloc(2 * MIB, 32 * MIB) };
    const weir_segment_source source = { give_one, take_back, NULL, &t };
    weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "tight");
    const weir_stream stream = new_stream(0);
    void *out = NULL;
    assert_non_null(t.arena);
    options.source = &source;
    const weir_mempool pool = make_pool(options);
    t.freed_late = alloc_from(pool, 30 * MIB, stream);
    assert_ok(weir_alloc_from(pool, 30 * MIB, stream, &out));
    assert_ptr_equal(out, t.freed_late);
    assert_int_equal(t.asked, 3);
    assert_ok(weir_free(out));
    assert_ok(weir_mempool_unref(pool));
    free(t.arena);
}

static void emptying_a_pools_cache_includes_parked_blocks(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool();
    (void)front_with_one(pool, 30 * MIB, new_stream(0));
    assert_ok(weir_mempool_empty_cache(pool));
    assert_int_equal(pool_stats(pool).reserved_bytes[WEIR_STAT_ALL].current, 0);
}

static void parked_blocks_are_free_at_a_checkpoint(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    weir_checkpoint *checkpoint = NULL;
    void *live = alloc_from(pool, 4096, stream);
    wr_front *front = front_with_one(pool, 8192, stream);
    assert_ok(weir_mempool_checkpoint(pool, &checkpoint));
    (void)front_with_one(pool, 8192, stream);
    assert_ok(weir_mempool_restore(pool, checkpoint, NULL, NULL, NULL));
    assert_int_equal(parked(front), 0);
    assert_int_equal(pool_stats(pool).allocation[WEIR_STAT_ALL].current, 1);
    weir_checkpoint_destroy(checkpoint);
    assert_ok(weir_free(live));
    assert_ok(weir_validate(0));
}

static void *served_by(weir_mempool pool, uint64_t planned, size_t bytes, weir_stream stream)
{
    void *block = alloc_on(bytes, stream);
    assert_int_equal(pool_stats(pool).plan_served, planned);
    return block;
}

/* The thread remembers the pool's front, and other free memory would fit, too. */
static void planned_blocks_in_a_pool_that_was_entered_lie_as_planned(void **state)
{
    (void)state;
    const weir_plan_entry entries[] = { { 0, MIB, WEIR_PLAN_FOREVER, 0 }, { MIB, MIB, WEIR_PLAN_FOREVER, 0 } };
    const weir_plan_arena arena = { .pool = 1, .streams = 1, .entries = 2, .bytes = 2 * MIB };
    const weir_plan plan = { .arena_count = 1, .entry_count = 2, .arenas = &arena, .entries = entries };
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    assert_ok(weir_mempool_enter(pool));
    for (int i = 0; i < 1000; i++) assert_ok(weir_free(alloc_on(8192, stream)));
    assert_ok(weir_mempool_empty_cache(pool));
    assert_ok(weir_plan_serve(0, &plan));
    char *first = served_by(pool, 1, MIB, stream);
    void *unplanned = served_by(pool, 1, 8192, stream);
    assert_ptr_equal(served_by(pool, 2, MIB, stream), first + MIB);
    assert_ok(weir_free(unplanned));
    assert_ok(weir_mempool_leave(pool));
}

/* Of MIB, in one private pool. */
static void serve_one_place(void)
{
    const weir_plan_entry entry = { 0, MIB, WEIR_PLAN_FOREVER, 0 };
    const weir_plan_arena arena = { .pool = 1, .streams = 1, .entries = 1, .bytes = MIB };
    const weir_plan plan = { .arena_count = 1, .entry_count = 1, .arenas = &arena, .entries = &entry };
    assert_ok(weir_plan_serve(0, &plan));
}

/* A planned request must not be served by a block that happens to be parked. */
static void while_a_plan_has_places_for_private_pools_they_park_nothing(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    wr_front *front = front_with_one(pool, 8192, stream);
    serve_one_place();
    assert_int_equal(parked(front), 0);
    void *block = alloc_from(pool, 8192, stream);
    assert_ok(weir_free(block));
    assert_int_equal(parked(front), 0);
    assert_ok(weir_plan_serve(0, NULL));
    (void)front_with_one(pool, 8192, stream);
}

/* As long as it is there, it may be asked for a block of the plan. */
static void once_the_pool_of_an_earlier_plan_is_gone_others_park_again(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    serve_one_place();
    assert_ok(weir_free(alloc_from(pool, MIB, stream)));
    assert_ok(weir_plan_serve(0, NULL));
    assert_ok(weir_mempool_unref(pool));
    (void)front_with_one(new_pool(), 8192, stream);
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static uint32_t fronts_of(const wr_cache *cache)
{
    return cache->front_count;
}

static void the_front_of_a_pool_that_is_gone_goes_to_the_next_pool(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    weir_mempool pool = new_pool();
    wr_front *front = front_with_one(pool, 8192, stream);
    const uint32_t before = fronts_of(front->cache);
    for (int i = 0; i < 20; i++) {
        assert_ok(weir_mempool_unref(pool));
        assert_true(wr_front_is_of(front, WR_MEMPOOL_NOBODY));
        pool = new_pool();
        assert_ptr_equal(front_with_one(pool, 8192, stream), front);
    }
    assert_int_equal(fronts_of(front->cache), before);
    assert_ok(weir_validate(0));
}

/* The default pool's front stays for good. */
static void the_default_pool_does_not_take_over_a_front(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    const weir_mempool pool = new_pool();
    wr_front *front = front_with_one(pool, 8192, stream);
    assert_ok(weir_mempool_unref(pool));
    void *small = alloc_on(8192, stream), *large = alloc_on(4 * MIB, stream);
    assert_ptr_not_equal(front_of(small), front);
    assert_ptr_equal(front_of(small), front_of(large));
    assert_ok(weir_free(small));
    assert_ptr_equal(alloc_on(8192, stream), small);
}

static void more_pools_than_a_stream_has_fronts_for_serve_without(void **state)
{
    enum { POOLS = WR_FRONTS_OF_STREAM + 1 };
    (void)state;
    weir_mempool pools[POOLS];
    const weir_stream stream = new_stream(0);
    void *small[POOLS];
    for (int p = 0; p < POOLS; p++) {
        pools[p] = new_pool();
        small[p] = alloc_from(pools[p], 8192, stream);
        assert_int_equal(front_of(small[p]) != NULL, p < WR_FRONTS_OF_STREAM);
    }
    assert_non_null(front_of(alloc_on(8192, stream)));
    assert_ok(weir_free(small[0]));
    assert_ok(weir_mempool_unref(pools[0]));
    void *large = alloc_from(pools[POOLS - 1], 4 * MIB, stream);
    assert_null(front_of(large)); /* as its small blocks */
    assert_ok(weir_free(large));
    assert_ok(weir_free(small[POOLS - 1]));
    assert_ptr_equal(alloc_from(pools[POOLS - 1], 8192, stream), small[POOLS - 1]);
    assert_non_null(front_of(alloc_from(new_pool(), 8192, stream)));
    assert_ok(weir_validate(0));
}

static void a_front_made_again_while_fronts_are_closed_is_closed(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    weir_mempool pool = new_pool();
    wr_front *front = front_with_one(pool, 8192, stream);
    assert_ok(weir_mempool_unref(pool));
    pool = new_pool();
    wr_fronts_close(front->cache);
    void *block = alloc_from(pool, 8192, stream);
    assert_ptr_equal(front_of(block), front);
    assert_ok(weir_free(block));
    assert_int_equal(parked(front), 0);
    wr_fronts_open(front->cache);
    (void)front_with_one(pool, 8192, stream);
}

static void a_stream_that_ends_takes_its_fronts_along(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    void *live = alloc_from(pool, 4096, stream);
    wr_front *front = front_with_one(pool, 8192, stream);
    assert_ok(weir_stream_destroy(stream));
    assert_int_equal(parked(front), 0);
    assert_ptr_not_equal(front_of(live), front);
    assert_ok(weir_free(live));
    assert_ok(weir_validate(0));
}

/* Streams that were there once cost nobody anything: only fronts of streams that have memory are visited. */
static void fronts_of_ended_streams_are_not_listed(void **state)
{
    enum { STREAMS = 40 };
    (void)state;
    weir_stream streams[STREAMS];
    const weir_mempool pool = new_pool();
    const weir_stream first = new_stream(0);
    wr_cache *cache = front_with_one(pool, 8192, first)->cache;
    assert_ok(weir_free(alloc_on(8192, first)));
    const uint32_t before = fronts_of(cache);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < STREAMS; i++) {
            streams[i] = new_stream(0);
            (void)front_with_one(pool, 8192, streams[i]);
            assert_ok(weir_free(alloc_on(8192, streams[i])));
            assert_ok(weir_free(alloc_on(8192, streams[i])));
        }
        assert_in_range(fronts_of(cache), before + 2 * STREAMS, before + 2 * STREAMS + 2);
        assert_ok(weir_validate(0));
        for (int i = 0; i < STREAMS; i++) assert_ok(weir_stream_destroy(streams[i]));
        assert_true(fronts_of(cache) <= before + 2); /* the default stream has inherited */
        const weir_memory_stats now = stats_of(0);
        assert_int_equal(now.allocation[WEIR_STAT_ALL].current, 0);
        assert_int_equal(now.hits + now.driver_allocs, now.allocation[WEIR_STAT_ALL].added);
    }
    assert_ok(weir_mempool_unref(pool));
    assert_true(fronts_of(cache) <= before + 1);
    assert_ok(weir_validate(0));
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static void hits_and_requested_bytes_count_for_the_pool(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    assert_ok(weir_mempool_enter(pool));
    assert_ok(weir_free(alloc_on(4096, stream)));
    for (int i = 0; i < 100; i++) assert_ok(weir_free(alloc_on(4000, stream)));
    void *live = alloc_on(3600, stream);
    assert_ok(weir_mempool_leave(pool));
    const weir_memory_stats own = pool_stats(pool), all = stats_of(0), rest = pool_stats((weir_mempool){ 0, 0 });
    assert_int_equal(own.hits, 101);
    assert_int_equal(own.allocation[WEIR_STAT_ALL].added, 102);
    assert_int_equal(own.requested_bytes[WEIR_STAT_ALL].current, 3600);
    assert_int_equal(own.requested_bytes[WEIR_STAT_ALL].peak, 4096);
    assert_int_equal(all.hits, 101);
    assert_int_equal(all.requested_bytes[WEIR_STAT_ALL].current, 3600);
    assert_int_equal(rest.allocation[WEIR_STAT_ALL].added, 0);
    assert_ok(weir_free(live));
}

/* The device and the stream had as much live before, but not the pool. Blocks of two sizes come by turns and stay
 * parked. */
static void a_peak_of_the_pool_alone_is_noticed(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    void *blocks[16];
    take_and_give((weir_mempool){ 0, 0 }, stream, blocks, 16, MIB);
    for (int round = 0; round < 3; round++) {
        take_and_give(pool, stream, blocks, 4, 4096);
        take_and_give(pool, stream, blocks, 4, 8192);
    }
    assert_int_equal(parked(front_of(blocks[0])), 8);
    for (int i = 0; i < 8; i++) blocks[i] = alloc_from(pool, i < 4 ? 4096 : 8192, stream);
    for (int i = 0; i < 8; i++) assert_ok(weir_free(blocks[i]));
    assert_int_equal(pool_stats(pool).allocation[WEIR_STAT_ALL].peak, 8);
    assert_int_equal(pool_stats(pool).allocated_bytes[WEIR_STAT_ALL].peak, 4 * (4096 + 8192));
}

static void peaks_of_pools_that_take_turns_are_their_own(void **state)
{
    (void)state;
    const weir_mempool pools[] = { new_pool(), new_pool() };
    const weir_stream stream = new_stream(0);
    void *blocks[8];
    for (int round = 0; round < 3; round++)
        for (int p = 0; p < 2; p++) take_and_give(pools[p], stream, blocks, p == 0 ? 8 : 5, 8192);
    assert_int_equal(pool_stats(pools[0]).allocation[WEIR_STAT_ALL].peak, 8);
    assert_int_equal(pool_stats(pools[1]).allocation[WEIR_STAT_ALL].peak, 5);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].peak, 8);
}

/* So many fronts report their parked bytes only now and then. */
static void numbers_of_many_pools_stay_apart(void **state)
{
    enum { POOLS = 2 * WR_FRONTS_SUMMED };
    (void)state;
    weir_mempool pools[POOLS];
    const weir_stream stream = new_stream(0);
    for (int p = 0; p < POOLS; p++) {
        pools[p] = new_pool();
        (void)front_with_one(pools[p], 8192, stream);
    }
    for (int round = 0; round < 3; round++)
        for (int p = 0; p < POOLS; p++) (void)front_with_one(pools[p], 8192, stream);
    for (int p = 0; p < POOLS; p++) {
        assert_int_equal(pool_stats(pools[p]).allocation[WEIR_STAT_ALL].current, 0);
        assert_int_equal(pool_stats(pools[p]).allocation[WEIR_STAT_ALL].added, 8);
    }
    for (int p = 0; p < POOLS; p++) {
        void *live = alloc_from(pools[p], 8000, stream); /* less than was reported to the cache */
        assert_ok(weir_mempool_unref(pools[p]));
        assert_ok(weir_free(live));
    }
    assert_ok(weir_empty_cache(0));
    wr_cache *cache = front_of(alloc_on(512, stream))->cache;
    (void)stats_of(0);
    for (int class = WR_SMALL; class < WR_CLASSES; class ++)
        for (int i = 0; i < WR_FLOW_LIVE; i++) assert_int_equal(cache->parked[class][i], 0);
    assert_ok(weir_validate(0));
}

/* ---- detached ---------------------------------------------------------------------------------------------------- */

static void exchange(weir_mempool pool, weir_stream stream, void *blocks[16], size_t from, int turns)
{
    for (int i = 0; i < turns; i++) {
        assert_ok(weir_free(blocks[i % 16]));
        blocks[i % 16] = alloc_from(pool, from + 512 * (size_t)(i * 7 % 997), stream);
    }
}

static void a_private_pools_front_is_detached_and_its_numbers_come_back(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    void *blocks[16];
    for (int i = 0; i < 16; i++) blocks[i] = alloc_from(pool, 600000, stream);
    exchange(pool, stream, blocks, 512, 1000);
    wr_front *front = front_of(blocks[0]);
    (void)stats_of(0);
    assert_ok(try_detach(front));
    assert_true(wr_front_is_detached(front));
    exchange(pool, stream, blocks, 700, 1000);
    assert_true(wr_front_is_detached(front));
    assert_true(front->ledger.hits > 100);
    const weir_memory_stats own = pool_stats(pool);
    assert_false(wr_front_is_detached(front));
    assert_int_equal(own.allocation[WEIR_STAT_ALL].current, 16);
    assert_int_equal(own.allocation[WEIR_STAT_ALL].added, 2016);
    assert_int_equal(own.allocation[WEIR_STAT_ALL].peak, 16);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 16);
    for (int i = 0; i < 16; i++) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_validate(0));
}

/* Only one front's lock can guard the count of the stream's live bytes. */
static void only_one_front_of_a_stream_is_detached(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    wr_front *one = front_with_one(new_pool(), 8192, stream), *other = front_with_one(new_pool(), 8192, stream);
    wr_front *of_default = front_of(alloc_on(8192, stream));
    assert_ok(try_detach(one));
    assert_ok(try_detach(other));
    assert_ok(try_detach(of_default));
    assert_true(wr_front_is_detached(one));
    assert_false(wr_front_is_detached(other));
    assert_false(wr_front_is_detached(of_default));
    (void)stats_of(0);
    assert_ok(try_detach(other));
    assert_true(wr_front_is_detached(other));
}

/* Blocks larger than the request are handed out whole. The last one exceeds the spare bytes, while its request does
 * not. */
static void an_unsplit_block_of_a_detached_front_counts_whole(void **state)
{
    enum { LARGE = 8 };
    (void)state;
    open_host((weir_settings){ .host_memory = UINT64_C(2048) * MIB, .max_split_size = 40 * MIB });
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    void *large[LARGE + 1], *rest[] = { NULL, NULL };
    for (int i = 0; i < LARGE + 1; i++) large[i] = alloc_from(pool, 60 * MIB, stream);
    wr_front *front = front_of(large[0]);
    for (int i = 0; i < LARGE + 1; i++) assert_ok(weir_free(large[i]));
    assert_ok(weir_stats_reset_peaks(0));
    for (int i = 0; i < LARGE; i++) large[i] = alloc_from(pool, 60 * MIB, stream);
    for (int i = 0; i < 2; i++) rest[i] = alloc_from(pool, 22 * MIB, stream);
    for (int i = 0; i < 2; i++) assert_ok(weir_free(rest[i]));
    for (int i = 0; i < LARGE; i++) assert_ok(weir_free(large[i]));
    (void)stats_of(0); /* nothing is parked */
    assert_ok(try_detach(front));
    settle(front);
    for (size_t i = 0; i < 100; i++) assert_ok(weir_free(alloc_from(pool, 41 * MIB + 65536 * i, stream)));
    for (int i = 0; i < LARGE + 1; i++) large[i] = alloc_from(pool, 41 * MIB, stream);
    for (int i = 0; i < LARGE + 1; i++) assert_ok(weir_free(large[i]));
    assert_int_equal(pool_stats(pool).allocated_bytes[WEIR_STAT_ALL].peak, (LARGE + 1) * 60 * MIB);
}

static void a_detached_front_whose_pool_goes_is_attached(void **state)
{
    (void)state;
    const weir_mempool pool = new_pool();
    const weir_stream stream = new_stream(0);
    wr_front *front = front_with_one(pool, 8192, stream);
    assert_ok(try_detach(front));
    assert_ok(weir_mempool_unref(pool));
    assert_false(wr_front_is_detached(front));
    assert_true(wr_front_is_of(front, WR_MEMPOOL_NOBODY));
    assert_int_equal(reserved_on(0), 0);
    assert_ok(weir_validate(0));
}

/* A stream's load in a pool whose peak is far below the device's. */
enum { MOST = 64 };

typedef struct load {
    weir_mempool pool;
    weir_stream stream;
    void *blocks[MOST];
    wr_front *front;
} load;

static void take_more(load *l, int from, int to)
{
    for (int i = from; i < to; i++) l->blocks[i] = alloc_from(l->pool, 1000 * 1000 - 512 * (size_t)(i % 40), l->stream);
}

static void give_all(const load *l, int count)
{
    for (int i = 0; i < count; i++) assert_ok(weir_free(l->blocks[i]));
}

static load new_load(weir_mempool pool)
{
    load l = { .pool = pool, .stream = new_stream(0) };
    assert_ok(weir_free(alloc_on(200 * MIB, new_stream(0))));
    take_more(&l, 0, MOST);
    l.front = front_of(l.blocks[0]);
    give_all(&l, MOST);
    return l;
}

static void assert_peak_of_about(weir_mempool pool, int blocks, int detached)
{
    const int64_t most = blocks * INT64_C(1000000), little = detached * 9 * (int64_t)MIB;
    assert_in_range(pool_stats(pool).allocated_bytes[WEIR_STAT_ALL].peak, most - little, most);
}

/* Each stream alone has had as much live before, and does not know of the others. */
static void a_peak_of_a_pool_with_detached_fronts_is_noticed_but_for_a_little(void **state)
{
    enum { STREAMS = 2, TOGETHER = 55 };
    (void)state;
    const weir_mempool pool = new_pool();
    load loads[STREAMS] = { new_load(pool), new_load(pool) };
    (void)stats_of(0); /* nothing is parked */
    for (int s = 0; s < STREAMS; s++) assert_ok(try_detach(loads[s].front));
    for (int s = 0; s < STREAMS; s++) settle(loads[s].front);
    for (int s = 0; s < STREAMS; s++) take_more(&loads[s], 0, TOGETHER);
    for (int s = 0; s < STREAMS; s++) give_all(&loads[s], TOGETHER);
    assert_peak_of_about(pool, STREAMS * TOGETHER, STREAMS);
}

/* The other stream is not detached, and takes memory that was free below the peak. */
static void a_peak_of_a_pool_beside_a_detached_front_is_noticed(void **state)
{
    enum { OTHERS = 30, TOGETHER = 56 };
    (void)state;
    const weir_mempool pool = new_pool();
    load other = new_load(pool), l = new_load(pool);
    (void)stats_of(0); /* nothing is parked */
    assert_ok(try_detach(l.front));
    settle(l.front);
    take_more(&l, 0, OTHERS);
    take_more(&other, 0, OTHERS);
    take_more(&l, OTHERS, TOGETHER);
    give_all(&l, TOGETHER);
    give_all(&other, OTHERS);
    assert_peak_of_about(pool, TOGETHER + OTHERS, 1);
}

#define POOL_TEST(test) cmocka_unit_test_setup_teardown(test, open_medium_host, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(a_freed_block_serves_the_next_request_of_its_size_in_its_pool),
        POOL_TEST(other_pools_and_streams_do_not_get_a_parked_block),
        POOL_TEST(a_thread_gets_a_parked_block_of_the_pool_that_it_entered),
        POOL_TEST(the_current_stream_gets_a_parked_block_of_the_pool_that_was_entered),
        POOL_TEST(a_miss_frees_the_parked_blocks_of_its_class),
        POOL_TEST(a_hit_in_a_pool_that_was_entered_needs_no_shared_lock),
        POOL_TEST(a_hit_in_a_pool_that_is_named_needs_no_shared_lock),
        POOL_TEST(a_hit_in_the_default_pool_that_is_named_needs_no_shared_lock),
        POOL_TEST(a_large_block_serves_the_next_request_that_rounds_to_its_size),
        POOL_TEST(pools_whose_rules_choose_the_next_block_park_nothing),
        POOL_TEST(aligned_blocks_are_parked_by_the_size_that_they_have),
        POOL_TEST(a_released_pool_serves_no_parked_block),
        POOL_TEST(a_pool_that_is_opened_again_parks_again),
        POOL_TEST(a_pool_released_by_a_thread_that_ends_serves_no_parked_block),
        POOL_TEST(a_paused_pool_serves_no_parked_block),
        POOL_TEST(a_block_parked_while_memory_is_searched_is_found),
        POOL_TEST(emptying_a_pools_cache_includes_parked_blocks),
        POOL_TEST(parked_blocks_are_free_at_a_checkpoint),
        POOL_TEST(planned_blocks_in_a_pool_that_was_entered_lie_as_planned),
        POOL_TEST(while_a_plan_has_places_for_private_pools_they_park_nothing),
        POOL_TEST(once_the_pool_of_an_earlier_plan_is_gone_others_park_again),
        POOL_TEST(the_pool_of_a_capture_parks_nothing),
        POOL_TEST(a_pool_with_a_capture_parks_blocks_freed_there),
        POOL_TEST(a_capture_may_reuse_blocks_parked_before),
        POOL_TEST(a_capture_may_reuse_blocks_of_a_detached_front),
        POOL_TEST(the_front_of_a_pool_that_is_gone_goes_to_the_next_pool),
        POOL_TEST(the_default_pool_does_not_take_over_a_front),
        POOL_TEST(more_pools_than_a_stream_has_fronts_for_serve_without),
        POOL_TEST(a_front_made_again_while_fronts_are_closed_is_closed),
        POOL_TEST(a_stream_that_ends_takes_its_fronts_along),
        POOL_TEST(fronts_of_ended_streams_are_not_listed),
        POOL_TEST(hits_and_requested_bytes_count_for_the_pool),
        POOL_TEST(a_peak_of_the_pool_alone_is_noticed),
        POOL_TEST(peaks_of_pools_that_take_turns_are_their_own),
        POOL_TEST(numbers_of_many_pools_stay_apart),
        POOL_TEST(a_private_pools_front_is_detached_and_its_numbers_come_back),
        POOL_TEST(only_one_front_of_a_stream_is_detached),
        cmocka_unit_test_teardown(an_unsplit_block_of_a_detached_front_counts_whole, close_host),
        POOL_TEST(a_detached_front_whose_pool_goes_is_attached),
        POOL_TEST(a_peak_of_a_pool_with_detached_fronts_is_noticed_but_for_a_little),
        POOL_TEST(a_peak_of_a_pool_beside_a_detached_front_is_noticed),
    };
    return cmocka_run_group_tests_name("front_pools", tests, NULL, NULL);
}
