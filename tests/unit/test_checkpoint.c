/*
 * Checkpoints of private pools, through the public functions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "base/meta.h"
#include "capture_support.h"
#include "device_support.h"
#include "pool/address.h"
#include "pool/checkpoint.h"
#include "pool/starts.h"
#include "pool_support.h"
#include "random_support.h"
#include "weir/observe.h"
#include "weir/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define BLOCKS_MAX 256

static weir_mempool pool;

static weir_mempool new_pool(void)
{
    return make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
}

static int open_with(const char *policy)
{
    open_host((weir_settings){ .host_memory = 512 * MIB, .policy = policy });
    pool = new_pool();
    return 0;
}

static int open_weir(void **state)
{
    (void)state;
    return open_with("weir");
}

static int open_torch(void **state)
{
    (void)state;
    return open_with("torch");
}

static void *from_pool_on(size_t bytes, weir_stream stream)
{
    void *block = NULL;
    assert_ok(weir_alloc_from(pool, bytes, stream, &block));
    return block;
}

static void *from_pool(size_t bytes)
{
    return from_pool_on(bytes, WEIR_STREAM_CURRENT);
}

static weir_checkpoint *checkpoint(void)
{
    weir_checkpoint *made = NULL;
    assert_ok(weir_mempool_checkpoint(pool, &made));
    assert_non_null(made);
    return made;
}

static void restore(const weir_checkpoint *to)
{
    assert_ok(weir_mempool_restore(pool, to, NULL, NULL, NULL));
    assert_ok(weir_validate(0));
}

static int by_address(const void *a, const void *b)
{
    const weir_block_info *one = a, *other = b;
    return one->base < other->base ? -1 : one->base > other->base;
}

/* The layout of a pool. */
typedef struct layout {
    size_t count;
    weir_block_info blocks[BLOCKS_MAX];
} layout;

static void look(layout *out)
{
    assert_ok(weir_mempool_blocks(pool, out->blocks, BLOCKS_MAX, &out->count));
    assert_true(out->count <= BLOCKS_MAX);
    qsort(out->blocks, out->count, sizeof out->blocks[0], by_address);
}

static void assert_looks_like(const layout *expected)
{
    static layout now;
    look(&now);
    assert_int_equal(now.count, expected->count);
    for (size_t i = 0; i < now.count; i++) {
        assert_ptr_equal(now.blocks[i].base, expected->blocks[i].base);
        assert_int_equal(now.blocks[i].bytes, expected->blocks[i].bytes);
        assert_int_equal(now.blocks[i].requested, expected->blocks[i].requested);
        assert_int_equal(now.blocks[i].state, expected->blocks[i].state);
    }
}

/* Later segments stay as free ones, so only live blocks are compared. */
static void keep_live(layout *l)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->count; i++)
        if (l->blocks[i].state == WEIR_BLOCK_LIVE) l->blocks[kept++] = l->blocks[i];
    l->count = kept;
}

static void assert_live_as(const layout *expected)
{
    static layout now;
    look(&now);
    keep_live(&now);
    assert_int_equal(now.count, expected->count);
    for (size_t i = 0; i < now.count; i++) {
        assert_ptr_equal(now.blocks[i].base, expected->blocks[i].base);
        assert_int_equal(now.blocks[i].bytes, expected->blocks[i].bytes);
        assert_int_equal(now.blocks[i].requested, expected->blocks[i].requested);
    }
}

static void a_state_without_live_blocks_comes_back_as_one_free_segment(void **state)
{
    (void)state;
    assert_ok(weir_free(from_pool(100 * KIB)));
    weir_checkpoint *empty = checkpoint();
    void *block = from_pool(100 * KIB);
    restore(empty);
    static layout now;
    look(&now);
    assert_int_equal(now.count, 1);
    assert_int_equal(now.blocks[0].state, WEIR_BLOCK_FREE);
    assert_status(weir_free(block), WEIR_ERR_DOUBLE_FREE);
    assert_ptr_equal(from_pool(2 * MIB - 1 * MIB), block);
    weir_checkpoint_destroy(empty);
}

static void a_block_freed_since_is_live_again_with_its_contents(void **state)
{
    (void)state;
    char *block = from_pool(100 * KIB);
    memset(block, 5, 100 * KIB);
    weir_checkpoint *then = checkpoint();
    assert_ok(weir_free(block));
    restore(then);
    assert_int_equal(info_of(block).requested, 100 * KIB);
    assert_int_equal(info_of(block).pool.user, pool.user);
    assert_int_equal(block[99999], 5);
    assert_ptr_not_equal(from_pool(100 * KIB), block);
    assert_ok(weir_free(block));
    weir_checkpoint_destroy(then);
}

static void a_block_in_the_middle_of_a_segment_comes_back(void **state)
{
    (void)state;
    void *left = from_pool(200 * KIB), *middle = from_pool(300 * KIB), *right = from_pool(100 * KIB);
    static layout before;
    assert_ok(weir_free(left));
    assert_ok(weir_free(right));
    look(&before);
    weir_checkpoint *then = checkpoint();
    assert_ok(weir_free(middle));
    restore(then);
    assert_looks_like(&before);
    assert_ok(weir_free(middle));
    weir_checkpoint_destroy(then);
}

static void blocks_in_the_middle_of_segments_come_back(void **state)
{
    (void)state;
    static layout before;
    void *blocks[24];
    for (size_t i = 0; i < 24; i++) blocks[i] = from_pool(i % 4 ? 60 * KIB * (i + 1) : 3 * MIB);
    for (size_t i = 0; i < 24; i += 3) assert_ok(weir_free(blocks[i]));
    look(&before);
    weir_checkpoint *then = checkpoint();
    for (size_t i = 0; i < 24; i++)
        if (i % 3) assert_ok(weir_free(blocks[i]));
    for (size_t i = 0; i < 10; i++) from_pool(45 * KIB * (i * i + 1));
    restore(then);
    assert_looks_like(&before);
    for (size_t i = 0; i < 24; i++)
        if (i % 3) assert_ok(weir_free(blocks[i]));
    weir_checkpoint_destroy(then);
}

static void neighbouring_blocks_come_back(void **state)
{
    (void)state;
    static layout before;
    void *blocks[6];
    for (int i = 0; i < 6; i++) blocks[i] = from_pool(10 * KIB);
    look(&before);
    weir_checkpoint *then = checkpoint();
    for (int i = 1; i < 5; i++) assert_ok(weir_free(blocks[i]));
    restore(then);
    assert_looks_like(&before);
    weir_checkpoint_destroy(then);
}

static void a_checkpoint_can_be_returned_to_again_and_from_another(void **state)
{
    (void)state;
    static layout early_layout, late_layout;
    void *first = from_pool(100 * KIB);
    look(&early_layout);
    weir_checkpoint *early = checkpoint();
    void *second = from_pool(150 * KIB);
    assert_ok(weir_free(first));
    look(&late_layout);
    weir_checkpoint *late = checkpoint();
    for (int i = 0; i < 3; i++) {
        restore(early);
        assert_looks_like(&early_layout);
        restore(late);
        assert_looks_like(&late_layout);
        assert_ok(weir_free(second));
    }
    weir_checkpoint_destroy(early);
    weir_checkpoint_destroy(late);
}

static void a_restored_block_dies_like_any_other(void **state)
{
    (void)state;
    void *block = from_pool(100 * KIB);
    weir_checkpoint *then = checkpoint();
    assert_ok(weir_free(block));
    restore(then);
    assert_ok(weir_free(block));
    assert_status(weir_free(block), WEIR_ERR_DOUBLE_FREE);
    assert_ptr_equal(from_pool(100 * KIB), block);
    weir_checkpoint_destroy(then);
}

static void segments_that_came_later_are_free_and_can_go(void **state)
{
    (void)state;
    void *block = from_pool(100 * KIB);
    weir_checkpoint *then = checkpoint();
    from_pool(30 * MIB);
    from_pool(5 * MIB);
    restore(then);
    assert_true(pool_stats(pool).segment[WEIR_STAT_ALL].current >= 3);
    assert_int_equal(pool_stats(pool).allocation[WEIR_STAT_ALL].current, 1);
    assert_ok(weir_mempool_empty_cache(pool));
    assert_int_equal(pool_stats(pool).segment[WEIR_STAT_ALL].current, 1);
    restore(then);
    assert_ok(weir_free(block));
    weir_checkpoint_destroy(then);
}

/* ---- being told -------------------------------------------------------------------------------------------------- */

typedef struct told {
    void *freed[8], *restored[8];
    size_t freed_count, restored_count;
} told;

static void note_freed(void *user, void *pointer)
{
    told *t = user;
    assert_int_equal(t->restored_count, 0);
    assert_ok(weir_validate(0)); /* no lock is held */
    t->freed[t->freed_count++] = pointer;
}

static void note_restored(void *user, void *pointer)
{
    told *t = user;
    assert_ptr_equal(info_of(pointer).base, pointer);
    t->restored[t->restored_count++] = pointer;
}

static bool among(void *const *pointers, size_t count, const void *wanted)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) found += pointers[i] == wanted;
    return found == 1;
}

static void the_program_is_told_of_each_block(void **state)
{
    (void)state;
    told t = { .freed_count = 0 };
    void *stays = from_pool(100 * KIB), *comes_back = from_pool(3 * MIB);
    weir_checkpoint *then = checkpoint();
    assert_ok(weir_free(comes_back));
    void *goes = from_pool(40 * MIB);
    assert_ok(weir_mempool_restore(pool, then, note_freed, note_restored, &t));
    assert_int_equal(t.freed_count, 2);
    assert_true(among(t.freed, 2, stays) && among(t.freed, 2, goes));
    assert_int_equal(t.restored_count, 2);
    assert_true(among(t.restored, 2, stays) && among(t.restored, 2, comes_back));
    weir_checkpoint_destroy(then);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static void pending_frees_are_waited_for(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    slow_work work = { .milliseconds = 20 };
    void *block = from_pool(100 * KIB);
    start_slow_work(stream, &work);
    assert_ok(weir_record_stream(block, stream));
    assert_ok(weir_free(block));
    weir_checkpoint *then = checkpoint();
    assert_true(atomic_load(&work.done));
    block = from_pool(100 * KIB);
    atomic_store(&work.done, false);
    start_slow_work(stream, &work);
    assert_ok(weir_record_stream(block, stream));
    assert_ok(weir_free(block));
    restore(then);
    assert_true(atomic_load(&work.done));
    weir_checkpoint_destroy(then);
}

/* One after the other, behind work of its own. */
static void any_number_of_frees_is_waited_for(void **state)
{
    (void)state;
    weir_stream side = new_stream(0);
    assert_ok(weir_host_stream_hold(0, native_of(side)));
    for (int i = 0; i < 1000; i++) {
        void *block = from_pool(512);
        assert_ok(weir_record_stream(block, side));
        assert_ok(weir_fill(block, 1, 512, side));
        assert_ok(weir_free(block));
    }
    weir_checkpoint_destroy(checkpoint());
}

static void a_free_that_waits_for_a_capture_is_refused(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *block = from_pool(100 * KIB);
    weir_checkpoint *then = checkpoint(), *other = NULL;
    assert_ok(wr_backend_host.capture_begin(0, native_of(stream), WEIR_CAPTURE_GLOBAL));
    assert_ok(weir_record_stream(block, stream));
    assert_ok(weir_free(block));
    assert_status(weir_mempool_checkpoint(pool, &other), WEIR_ERR_BUSY);
    assert_null(other);
    assert_status(weir_mempool_restore(pool, then, NULL, NULL, NULL), WEIR_ERR_BUSY);
    end_natively(native_of(stream));
    restore(then);
    assert_ok(weir_free(block));
    weir_checkpoint_destroy(then);
}

static void a_free_that_waits_for_a_known_capture_is_refused_at_once(void **state)
{
    (void)state;
    weir_checkpoint *none = NULL;
    weir_stream stream = new_stream(0);
    void *block = from_pool(100 * KIB);
    weir_graph graph = begin_on(stream);
    assert_ok(weir_record_stream(block, stream));
    assert_ok(weir_free(block));
    const uint64_t before = calls_of(WEIR_BACKEND_capture_status);
    assert_status(weir_mempool_checkpoint(pool, &none), WEIR_ERR_BUSY);
    assert_in_range(calls_of(WEIR_BACKEND_capture_status) - before, 0, 10); /* a look asks twice or so */
    end_unharmed(graph, stream);
}

static void other_frees_are_waited_for_during_a_capture(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0), captured = new_stream(0);
    void *block = from_pool(100 * KIB);
    weir_graph graph = begin_on(captured);
    make_busy(stream);
    assert_ok(weir_record_stream(block, stream));
    assert_ok(weir_free(block));
    weir_checkpoint_destroy(checkpoint());
    assert_int_equal(pool_stats(pool).pending_frees, 0);
    end_unharmed(graph, captured);
    let_run(stream);
}

/* For how many questions a capture that weir was not told of still goes on. */
static int questions;

static weir_status capture_for_a_while(int device, void *native, weir_capture_state *state, uint64_t *id)
{
    if (questions == 0) return wr_backend_host.capture_status(device, native, state, id);
    questions--;
    *state = WEIR_CAPTURE_ACTIVE;
    *id = 1;
    return WEIR_OK;
}

/* As for a block that another thread is about to queue. */
static void a_free_that_cannot_be_waited_for_yet_is_looked_at_again(void **state)
{
    (void)state;
    wr_event_pool *events = &device_0()->events;
    const weir_backend *real = events->backend;
    weir_backend driver = *real;
    void *block = from_pool(100 * KIB);
    assert_ok(weir_record_stream(block, new_stream(0)));
    driver.capture_status = capture_for_a_while;
    questions = 20;
    events->backend = &driver;
    assert_ok(weir_free(block));
    weir_checkpoint *made = NULL;
    const weir_status status = weir_mempool_checkpoint(pool, &made);
    events->backend = real;
    assert_ok(status);
    assert_int_equal(questions, 0);
    weir_checkpoint_destroy(made);
}

static void a_recorded_block_of_a_later_segment_becomes_pending(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    weir_checkpoint *then = checkpoint();
    void *block = from_pool(30 * MIB);
    hold(stream);
    assert_ok(weir_fill(block, 1, 100, stream));
    assert_ok(weir_record_stream(block, stream));
    restore(then);
    assert_int_equal(stats_of(0).pending_frees, 1);
    assert_ptr_not_equal(from_pool(30 * MIB), block);
    let_run(stream);
    assert_ptr_equal(from_pool(30 * MIB), block);
    weir_checkpoint_destroy(then);
}

static void a_recorded_block_that_was_there_then_stays_recorded(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *block = from_pool(100 * KIB);
    weir_checkpoint *then = checkpoint();
    hold(stream);
    assert_ok(weir_fill(block, 1, 100, stream));
    assert_ok(weir_record_stream(block, stream));
    restore(then);
    assert_ok(weir_free(block));
    assert_ptr_not_equal(from_pool(100 * KIB), block);
    let_run(stream);
    weir_checkpoint_destroy(then);
}

static void a_recorded_block_beside_others_stays_recorded(void **state)
{
    (void)state;
    enum { BLOCKS = 7 };
    weir_stream stream = new_stream(0);
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = from_pool(100 * KIB);
    weir_checkpoint *then = checkpoint();
    for (int i = 0; i < BLOCKS; i++) {
        assert_ok(weir_record_stream(blocks[i], stream));
        restore(then);
    }
    weir_checkpoint_destroy(then);
}

static void recorded_blocks_of_many_segments_stay_recorded(void **state)
{
    (void)state;
    enum { SEGMENTS = 7 };
    weir_stream stream = new_stream(0);
    void *blocks[SEGMENTS];
    for (int i = 0; i < SEGMENTS; i++) blocks[i] = from_pool(30 * MIB);
    weir_checkpoint *then = checkpoint();
    hold(stream);
    for (int i = 0; i < SEGMENTS; i++) assert_ok(weir_record_stream(blocks[i], stream));
    assert_ok(weir_fill(blocks[0], 1, 100, stream));
    restore(then);
    assert_int_equal(stats_of(0).pending_frees, 0);
    for (int i = 0; i < SEGMENTS; i++) assert_ok(weir_free(blocks[i]));
    assert_int_equal(stats_of(0).pending_frees, SEGMENTS);
    let_run(stream);
    weir_checkpoint_destroy(then);
}

/* Every statistic and event treats the block like the others: as freed, and as handed out by the restore. */
static void a_recorded_block_that_stays_counts_as_freed_and_handed_out(void **state)
{
    (void)state;
    weir_event events[8];
    weir_stream_stats own = { .size = sizeof own };
    size_t count = 0;
    open_host((weir_settings){ .host_memory = 512 * MIB, .history = 100 });
    pool = new_pool();
    void *block = from_pool(100 * KIB);
    weir_checkpoint *then = checkpoint();
    assert_ok(weir_free(block));
    assert_ptr_equal(from_pool(100 * KIB - 100), block);
    assert_ok(weir_record_stream(block, new_stream(0)));
    assert_ok(weir_history_clear(0));
    restore(then);
    assert_ok(weir_stream_stats_get(default_stream(0), &own));
    assert_int_equal(own.allocations, stats_of(0).allocation[WEIR_STAT_ALL].added);
    assert_int_equal(own.live, 1);
    assert_ok(weir_history_read(0, events, 8, &count, NULL));
    assert_int_equal(count, 3);
    assert_true(events[1].kind == WEIR_EVENT_FREE_COMPLETED && events[1].size == 100 * KIB - 100);
    assert_true(events[2].kind == WEIR_EVENT_ALLOC && events[2].size == 100 * KIB);
    weir_checkpoint_destroy(then);
}

static void a_recorded_block_in_the_way_is_refused_and_nothing_changes(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    static layout before;
    void *block = from_pool(100 * KIB);
    weir_checkpoint *then = checkpoint();
    assert_ok(weir_free(block));
    void *other = from_pool(200 * KIB), *third = from_pool(50 * KIB);
    assert_ptr_equal(other, block);
    assert_ok(weir_fill(other, 1, 100, stream));
    assert_ok(weir_record_stream(other, stream));
    look(&before);
    assert_status(weir_mempool_restore(pool, then, NULL, NULL, NULL), WEIR_ERR_BUSY);
    assert_non_null(strstr(weir_error_text(), "weir_free()"));
    assert_looks_like(&before);
    assert_ok(weir_validate(0));
    assert_ok(weir_free(other));
    restore(then);
    assert_status(weir_free(third), WEIR_ERR_DOUBLE_FREE);
    assert_ok(weir_free(block));
    weir_checkpoint_destroy(then);
}

static void a_recorded_block_of_the_same_size_in_the_way_is_refused(void **state)
{
    (void)state;
    void *block = from_pool(100 * KIB);
    weir_checkpoint *then = checkpoint();
    assert_ok(weir_free(block));
    char *first = from_pool(50 * KIB), *second = from_pool(100 * KIB);
    assert_ptr_equal(first, block);
    assert_ptr_equal(second, first + 50 * KIB);
    assert_ok(weir_record_stream(second, new_stream(0)));
    assert_status(weir_mempool_restore(pool, then, NULL, NULL, NULL), WEIR_ERR_BUSY);
    assert_ok(weir_free(second));
    restore(then);
    assert_ok(weir_free(block));
    weir_checkpoint_destroy(then);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void a_segment_that_is_gone_is_refused_and_nothing_changes(void **state)
{
    (void)state;
    static layout before;
    void *block = from_pool(30 * MIB);
    weir_checkpoint *then = checkpoint();
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_empty_cache(pool));
    void *other = from_pool(3 * MIB);
    look(&before);
    assert_status(weir_mempool_restore(pool, then, NULL, NULL, NULL), WEIR_ERR_POOL_MISMATCH);
    assert_looks_like(&before);
    assert_ok(weir_free(other));
    weir_checkpoint_destroy(then);
}

static void memory_that_is_gone_is_named_by_a_block_of_the_checkpoint(void **state)
{
    (void)state;
    char named[80];
    void *block = from_pool(30 * MIB);
    weir_checkpoint *then = checkpoint();
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_empty_cache(pool));
    assert_status(weir_mempool_restore(pool, then, NULL, NULL, NULL), WEIR_ERR_POOL_MISMATCH);
    snprintf(named, sizeof named, "block of %zu bytes at %p was given back", (size_t)(30 * MIB), block);
    assert_non_null(strstr(weir_error_text(), named));
    weir_checkpoint_destroy(then);
}

static void a_segment_of_another_stream_is_refused(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *block = from_pool_on(30 * MIB, stream);
    weir_checkpoint *then = checkpoint();
    assert_ok(weir_free(block));
    assert_ok(weir_stream_destroy(stream)); /* its memory goes to the default stream */
    assert_status(weir_mempool_restore(pool, then, NULL, NULL, NULL), WEIR_ERR_POOL_MISMATCH);
    weir_checkpoint_destroy(then);
}

/* The new stream has the number of the old one. */
static void a_segment_of_a_later_stream_is_refused(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *block = from_pool_on(24 * MIB, stream);
    weir_checkpoint *then = checkpoint();
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_empty_cache(pool));
    assert_ok(weir_stream_destroy(stream));
    void *again = from_pool_on(24 * MIB, new_stream(0));
    assert_ptr_equal(again, block);
    assert_ok(weir_free(again));
    assert_status(weir_mempool_restore(pool, then, NULL, NULL, NULL), WEIR_ERR_POOL_MISMATCH);
    weir_checkpoint_destroy(then);
}

static int open_with_small_segments(void **state)
{
    open_host((weir_settings){ .host_memory = 512 * MIB, .policy = *state, .large_segment = 2 * MIB });
    pool = new_pool();
    return 0;
}

/* Of the same stream, at the same place and as large, but for large blocks. */
static void a_segment_of_the_other_size_class_is_refused(void **state)
{
    (void)state;
    void *small = from_pool(100 * KIB);
    weir_checkpoint *then = checkpoint();
    assert_ok(weir_free(small));
    assert_ok(weir_mempool_empty_cache(pool));
    void *large = from_pool(3 * MIB / 2);
    assert_ptr_equal(large, small);
    assert_ok(weir_free(large));
    assert_status(weir_mempool_restore(pool, then, NULL, NULL, NULL), WEIR_ERR_POOL_MISMATCH);
    assert_non_null(strstr(weir_error_text(), "size class"));
    weir_checkpoint_destroy(then);
}

static void use_records_up(void)
{
    while (device_0()->cache.ledger.unused_block_count > 4) (void)alloc(4096);
}

static void a_restore_that_has_begun_needs_no_memory(void **state)
{
    (void)state;
    enum { BLOCKS = 100, TRIES = 12 };
    static void *blocks[2 * BLOCKS];
    bool live = true;
    int restored = 0;
    for (int i = 0; i < 2 * BLOCKS; i++) blocks[i] = from_pool(4 * KIB);
    for (int i = 0; i < 2 * BLOCKS; i += 2) assert_ok(weir_free(blocks[i]));
    weir_checkpoint *then = checkpoint();
    for (uint64_t nth = 1; nth <= TRIES; nth++) {
        for (int i = 1; i < 2 * BLOCKS && live; i += 2) assert_ok(weir_free(blocks[i]));
        use_records_up();
        wr_meta_fail_nth(nth);
        const weir_status status = weir_mempool_restore(pool, then, NULL, NULL, NULL);
        wr_meta_fail_nth(0);
        assert_true(status == WEIR_OK || status == WEIR_ERR_OUT_OF_HOST_MEMORY);
        live = status == WEIR_OK;
        restored += live;
        assert_ok(weir_validate(0));
    }
    assert_in_range(restored, 1, TRIES - 1);
    weir_checkpoint_destroy(then);
}

static void a_restore_that_fails_for_lack_of_records_keeps_none(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) from_pool(4 * KIB);
    weir_checkpoint *then = checkpoint();
    const uint64_t before = wr_meta_live();
    int refused = 0;
    for (int i = 0; i < 20; i++) {
        wr_meta_fail_nth(3); /* the list of blocks and 64 records are given, no more */
        const weir_status status = weir_mempool_restore(pool, then, NULL, NULL, NULL);
        wr_meta_fail_nth(0);
        assert_true(status == WEIR_OK || status == WEIR_ERR_OUT_OF_HOST_MEMORY);
        refused += status != WEIR_OK;
        assert_ok(weir_validate(0));
    }
    assert_true(refused > 0);
    assert_true(wr_meta_live() <= before + 5);
    weir_checkpoint_destroy(then);
}

static void another_pool_is_refused(void **state)
{
    (void)state;
    weir_mempool other = new_pool();
    weir_checkpoint *then = checkpoint(), *none = NULL;
    assert_status(weir_mempool_restore(other, then, NULL, NULL, NULL), WEIR_ERR_POOL_MISMATCH);
    assert_status(weir_mempool_restore((weir_mempool){ 0, 0 }, then, NULL, NULL, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_mempool_checkpoint((weir_mempool){ 0, 0 }, &none), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_mempool_checkpoint(pool, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_mempool_restore(pool, NULL, NULL, NULL, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_ok(weir_mempool_unref(pool));
    assert_status(weir_mempool_checkpoint(pool, &none), WEIR_ERR_POOL_MISMATCH);
    assert_status(weir_mempool_restore(pool, then, NULL, NULL, NULL), WEIR_ERR_POOL_MISMATCH);
    assert_null(none);
    weir_checkpoint_destroy(then);
    weir_checkpoint_destroy(NULL);
}

/* A thread that once had memory there frees it before weir has noted whose it is. */
static void a_block_that_is_freed_in_error_before_it_is_a_librarys_is_none(void **state)
{
    (void)state;
    weir_checkpoint *then = checkpoint();
    void *block = from_pool(4 * KIB);
    assert_ok(weir_free(block));
    wr_checkpoint_set_library(block, true);
    assert_ptr_equal(from_pool(4 * KIB), block);
    restore(then); /* which is refused while a library has memory there */
    weir_checkpoint_destroy(then);
}

/* Nor one that the default pool has got at that place since. */
static void a_block_of_the_default_pool_is_no_librarys(void **state)
{
    (void)state;
    void *block = alloc(4 * KIB);
    wr_checkpoint_set_library(block, true);
    assert_false(wr_starts_block_at(wr_address_find(block), block)->library);
}

static void a_checkpoint_outlives_the_library(void **state)
{
    const uint64_t before = wr_meta_live();
    open_weir(state);
    from_pool(100 * KIB);
    weir_checkpoint *then = checkpoint();
    assert_ok(weir_close());
    open_weir(state);
    assert_status(weir_mempool_restore(pool, then, NULL, NULL, NULL), WEIR_ERR_POOL_MISMATCH);
    weir_checkpoint_destroy(then);
    assert_ok(weir_close());
    assert_int_equal(wr_meta_live(), before);
}

/* ---- numbers, at random ------------------------------------------------------------------------------------------ */

static void current_statistics_are_as_they_were(void **state)
{
    (void)state;
    from_pool(100 * KIB);
    void *block = from_pool(7 * MIB);
    weir_memory_stats before = pool_stats(pool), device_before = stats_of(0);
    weir_checkpoint *then = checkpoint();
    assert_ok(weir_free(block));
    from_pool(50 * KIB);
    restore(then);
    weir_memory_stats after = pool_stats(pool), device_after = stats_of(0);
    weir_stat *b = before.allocation, *d = device_before.allocation, *e = device_after.allocation;
    for (weir_stat *a = after.allocation; (void *)a < (void *)&after.hits; a++, b++, d++, e++) {
        assert_int_equal(a->current, b->current);
        assert_int_equal(d->current, e->current);
    }
    weir_checkpoint_destroy(then);
}

static void assert_peaks_at_least_current(const weir_memory_stats *stats)
{
    for (const weir_stat *s = stats->allocation; (const void *)s < (const void *)&stats->hits; s++)
        assert_true(s->peak >= s->current);
}

static void peaks_include_blocks_that_a_restore_brings_back(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *block = from_pool(1000);
    weir_checkpoint *then = checkpoint();
    assert_ok(weir_free(block));
    assert_ptr_equal(from_pool(900), block);
    assert_ok(weir_record_stream(block, stream));
    assert_ok(weir_stats_reset(0));
    assert_ok(weir_mempool_restore(pool, then, NULL, NULL, NULL));
    const weir_memory_stats of_pool = pool_stats(pool), of_device = stats_of(0);
    assert_int_equal(of_pool.requested_bytes[WEIR_STAT_SMALL].peak, 1000);
    assert_int_equal(of_device.requested_bytes[WEIR_STAT_ALL].peak, 1000);
    assert_peaks_at_least_current(&of_pool);
    assert_peaks_at_least_current(&of_device);
    weir_checkpoint_destroy(then);
}

static void any_history_can_be_undone(void **state)
{
    (void)state;
    static layout saved[4];
    weir_checkpoint *then[4] = { NULL };
    void *live[64] = { NULL };
    uint32_t random = 1;
    for (int step = 0; step < 4000; step++) {
        const uint32_t r = next_random(&random);
        void **slot = &live[r % 64];
        if (*slot) {
            assert_ok(weir_free(*slot));
            *slot = NULL;
        } else {
            *slot = from_pool(r % 5 ? 1 + r % (300 * KIB) : MIB + r % (12 * MIB));
        }
        if (step % 97 != 0) continue;
        const int which = (int)(r / 64 % 4);
        if (!then[which]) {
            then[which] = checkpoint();
            look(&saved[which]);
            keep_live(&saved[which]);
            continue;
        }
        restore(then[which]);
        assert_live_as(&saved[which]);
        memset(live, 0, sizeof live);
        for (size_t i = 0; i < saved[which].count; i++) live[i] = saved[which].blocks[i].base;
        if (r % 3 == 0) {
            weir_checkpoint_destroy(then[which]);
            then[which] = NULL;
        }
    }
    for (int i = 0; i < 64; i++) assert_ok(weir_free(live[i]));
    for (int i = 0; i < 4; i++) weir_checkpoint_destroy(then[i]);
    assert_int_equal(pool_stats(pool).active_bytes[WEIR_STAT_ALL].current, 0);
    assert_ok(weir_validate(0)); /* no free neighbours */
}

static void fill(void **blocks, size_t count, size_t bytes)
{
    for (size_t i = 0; i < count; i++) blocks[i] = from_pool(bytes);
}

/* A device of 512 MiB, full of small blocks. */
static void a_large_request_gets_what_small_blocks_have_left(void **state)
{
    (void)state;
    static void *blocks[512];
    fill(blocks, 512, MIB);
    weir_checkpoint *then = checkpoint();
    for (int i = 1; i < 4; i++) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_free(from_pool(2 * MIB + MIB / 2)));
    restore(then);
    assert_int_equal(pool_stats(pool).active_bytes[WEIR_STAT_ALL].current, 512 * MIB);
    assert_int_equal(stats_of(0).driver_frees, 0);
    weir_checkpoint_destroy(then);
}

#define both(test)                                                                                                     \
    { #test " (weir)", test, open_weir, close_host, NULL },                                                            \
    {                                                                                                                  \
        #test " (torch)", test, open_torch, close_host, NULL                                                           \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        both(a_state_without_live_blocks_comes_back_as_one_free_segment),
        both(a_block_freed_since_is_live_again_with_its_contents),
        both(a_block_in_the_middle_of_a_segment_comes_back),
        both(blocks_in_the_middle_of_segments_come_back),
        both(neighbouring_blocks_come_back),
        both(a_checkpoint_can_be_returned_to_again_and_from_another),
        both(a_restored_block_dies_like_any_other),
        both(segments_that_came_later_are_free_and_can_go),
        both(the_program_is_told_of_each_block),
        both(pending_frees_are_waited_for),
        both(any_number_of_frees_is_waited_for),
        both(a_free_that_waits_for_a_capture_is_refused),
        both(a_free_that_waits_for_a_known_capture_is_refused_at_once),
        both(other_frees_are_waited_for_during_a_capture),
        both(a_free_that_cannot_be_waited_for_yet_is_looked_at_again),
        both(a_recorded_block_of_a_later_segment_becomes_pending),
        both(a_recorded_block_that_was_there_then_stays_recorded),
        both(a_recorded_block_beside_others_stays_recorded),
        both(recorded_blocks_of_many_segments_stay_recorded),
        cmocka_unit_test_teardown(a_recorded_block_that_stays_counts_as_freed_and_handed_out, close_host),
        both(a_recorded_block_in_the_way_is_refused_and_nothing_changes),
        both(a_recorded_block_of_the_same_size_in_the_way_is_refused),
        both(a_segment_that_is_gone_is_refused_and_nothing_changes),
        both(memory_that_is_gone_is_named_by_a_block_of_the_checkpoint),
        both(a_segment_of_another_stream_is_refused),
        both(a_segment_of_a_later_stream_is_refused),
        cmocka_unit_test_prestate_setup_teardown(a_segment_of_the_other_size_class_is_refused, open_with_small_segments,
                                                 close_host, (void *)(uintptr_t)"torch"),
        both(a_restore_that_has_begun_needs_no_memory),
        both(a_restore_that_fails_for_lack_of_records_keeps_none),
        cmocka_unit_test_setup_teardown(a_large_request_gets_what_small_blocks_have_left, open_weir, close_host),
        both(another_pool_is_refused),
        both(a_block_that_is_freed_in_error_before_it_is_a_librarys_is_none),
        both(a_block_of_the_default_pool_is_no_librarys),
        cmocka_unit_test(a_checkpoint_outlives_the_library),
        both(current_statistics_are_as_they_were),
        both(peaks_include_blocks_that_a_restore_brings_back),
        both(any_history_can_be_undone),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
