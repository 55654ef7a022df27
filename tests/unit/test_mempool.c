/*
 * Private memory pools: ids, references, memory, lending, sources. On two host devices of 64 MiB.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "mempool_support.h"
#include "pool/report/inspect.h"
#include "thread_support.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static int64_t segments_of(weir_mempool pool)
{
    return pool_stats(pool).segment[WEIR_STAT_ALL].current;
}

/* ---- ids and references ------------------------------------------------------------------------------------------ */

static void ids_of_users_have_no_capture_part_and_count_up(void **state)
{
    (void)state;
    weir_mempool first = plain(), second = plain(), third = { 0, 0 };
    assert_ok(weir_mempool_reserve(&third));
    assert_int_equal(first.capture, 0);
    assert_int_equal(second.capture, 0);
    assert_int_equal(second.user, first.user + 1);
    assert_int_equal(third.user, second.user + 1);
    assert_int_equal(third.capture, 0);
}

static void *create_one(void *out)
{
    *(weir_mempool *)out = plain();
    return NULL;
}

static void pools_made_by_many_threads_have_different_ids(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    weir_mempool pools[THREADS];
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, create_one, &pools[i]), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < i; j++) assert_int_not_equal(pools[i].user, pools[j].user);
}

static void a_pool_belongs_to_the_device_that_was_named(void **state)
{
    (void)state;
    void *block = NULL;
    weir_mempool pool = make_pool(options_on(1));
    assert_int_equal(pool_info(pool).device, 1);
    assert_status(weir_alloc_from(pool, MIB, default_stream(0), &block), WEIR_ERR_WRONG_DEVICE);
    assert_status(weir_mempool_route_stream(pool, default_stream(0)), WEIR_ERR_WRONG_DEVICE);
    assert_int_equal(pool_info(pool).references, 1);
    assert_ok(weir_mempool_enter(pool));
    void *here = alloc_on(MIB, default_stream(0)), *there = alloc_on(MIB, default_stream(1));
    assert_pool(here, default_pool);
    assert_pool(there, pool);
    assert_ok(weir_mempool_leave(pool));
}

static void an_id_that_can_be_no_pools_is_refused(void **state)
{
    (void)state;
    const weir_mempool ids[] = { { 1, 1 }, { UINT64_C(1) << 62, 0 }, { 0, UINT64_MAX } };
    void *block = NULL;
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        assert_status(weir_alloc_from(ids[i], MIB, default_stream(0), &block), WEIR_ERR_POOL_MISMATCH);
        assert_status(weir_mempool_enter(ids[i]), WEIR_ERR_POOL_MISMATCH);
    }
}

static weir_status alloc_nothing(void *user, size_t bytes, int device, void *native, void **base)
{
    (void)user, (void)bytes, (void)device, (void)native, (void)base;
    return WEIR_ERR_OUT_OF_MEMORY;
}

static weir_status free_nothing(void *user, void *base, size_t bytes, int device, void *native)
{
    (void)user, (void)base, (void)bytes, (void)device, (void)native;
    return WEIR_OK;
}

static void creating_refuses_invalid_options(void **state)
{
    (void)state;
    weir_mempool pool = { 7, 7 };
    weir_mempool_options o = WEIR_MEMPOOL_OPTIONS_INIT;
    const weir_segment_source half = { .alloc = alloc_nothing }, other_half = { .free = free_nothing };
    assert_status(weir_mempool_create(&o, &pool), WEIR_ERR_INVALID_ARGUMENT); /* no device named */
    assert_non_null(strstr(weir_error_text(), "device"));
    o = options_on(2);
    assert_status(weir_mempool_create(&o, &pool), WEIR_ERR_NO_DEVICE);
    o = options_on(0);
    o.alignment = 768;
    assert_status(weir_mempool_create(&o, &pool), WEIR_ERR_INVALID_ARGUMENT);
    o.alignment = 4 * MIB;
    assert_status(weir_mempool_create(&o, &pool), WEIR_ERR_INVALID_ARGUMENT);
    o = options_on(0);
    o.source = &half;
    assert_status(weir_mempool_create(&o, &pool), WEIR_ERR_INVALID_ARGUMENT);
    o.source = &other_half;
    assert_status(weir_mempool_create(&o, &pool), WEIR_ERR_INVALID_ARGUMENT);
    o = options_on(0);
    o.deterministic = o.use_on_oom = true;
    assert_status(weir_mempool_create(&o, &pool), WEIR_ERR_INVALID_ARGUMENT);
    o = options_on(0);
    o.use_on_oom = true;
    o.memory = WEIR_MEMORY_PINNED;
    assert_status(weir_mempool_create(&o, &pool),
                  WEIR_ERR_INVALID_ARGUMENT); /* a request that borrows wants device memory */
    o.memory = WEIR_MEMORY_MANAGED;
    assert_status(weir_mempool_create(&o, &pool), WEIR_ERR_INVALID_ARGUMENT);
    o = options_on(0);
    o.memory = (weir_memory_kind)17;
    assert_status(weir_mempool_create(&o, &pool), WEIR_ERR_INVALID_ARGUMENT);
    o = options_on(0);
    memset(o.tag, 'x', sizeof o.tag);
    assert_status(weir_mempool_create(&o, &pool), WEIR_ERR_INVALID_ARGUMENT);
    o = options_on(0);
    o.size = 8;
    assert_status(weir_mempool_create(&o, &pool), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(pool.user, 7);
}

static void a_pool_with_a_source_takes_no_kind_of_memory_from_the_driver(void **state)
{
    (void)state;
    weir_mempool pool = { 7, 7 };
    weir_mempool_options o = options_on(0);
    const weir_segment_source source = { .alloc = alloc_nothing, .free = free_nothing };
    o.source = &source;
    for (int kind = WEIR_MEMORY_DEVICE + 1; kind <= WEIR_MEMORY_PINNED; kind++) {
        o.memory = (weir_memory_kind)kind;
        assert_status(weir_mempool_create(&o, &pool), WEIR_ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(weir_error_text(), "options.memory"));
    }
    assert_int_equal(pool.user, 7);
}

static void a_tag_may_fill_its_place_but_for_the_zero(void **state)
{
    (void)state;
    weir_mempool_options o = options_on(0);
    memset(o.tag, 'x', sizeof o.tag - 1);
    assert_string_equal(pool_info(make_pool(o)).tag, o.tag);
}

static void a_route_is_a_reference(void **state)
{
    (void)state;
    weir_mempool pool = plain();
    assert_int_equal(pool_info(pool).references, 1);
    assert_ok(weir_mempool_enter(pool));
    assert_int_equal(pool_info(pool).references, 2);
    assert_ok(weir_mempool_leave(pool));
    assert_int_equal(pool_info(pool).references, 1);
}

static void a_user_cannot_give_back_the_reference_of_a_route(void **state)
{
    (void)state;
    weir_mempool pool = plain();
    assert_ok(weir_mempool_enter(pool));
    assert_ok(weir_mempool_unref(pool));
    assert_status(weir_mempool_unref(pool), WEIR_ERR_POOL_MISMATCH);
    assert_pool(alloc(MIB), pool);
    assert_ok(weir_mempool_leave(pool));
}

static void a_pool_without_memory_is_gone_with_its_last_reference(void **state)
{
    (void)state;
    weir_mempool pool = plain();
    assert_ok(weir_free(alloc_in(pool, MIB)));
    assert_int_equal(segments_of(pool), 1);
    assert_ok(weir_mempool_unref(pool));
    assert_gone(pool);
    assert_int_equal(reserved_on(0), 0);
    assert_status(weir_mempool_enter(pool), WEIR_ERR_POOL_MISMATCH);
    assert_status(weir_mempool_unref(pool), WEIR_ERR_POOL_MISMATCH);
}

static void pools_that_are_gone_leave_no_records(void **state)
{
    (void)state;
    enum { POOLS = 200 };
    assert_ok(weir_mempool_unref(plain()));
    const uint64_t live = wr_meta_live();
    for (int i = 0; i < POOLS; i++) assert_ok(weir_mempool_unref(plain()));
    assert_in_range(wr_meta_live(), live, live + 1); /* one for their ids */
}

/* A thread that had found the pool before it went may come late. */
static void the_name_of_a_pool_that_is_gone_is_not_its_successors(void **state)
{
    (void)state;
    wr_mempool *record = NULL, *next = NULL;
    wr_mempool_name name = 0, next_name = 0;
    weir_mempool_info info = { .size = sizeof info };
    weir_mempool gone = plain();
    assert_ok(wr_mempool_find(gone, &name, &record));
    assert_ok(weir_mempool_unref(gone));
    weir_mempool successor = plain();
    assert_ok(wr_mempool_find(successor, &next_name, &next));
    assert_ptr_equal(next, record);
    assert_status(wr_mempool_ref(record, name, WR_HELD_BY_USER), WEIR_ERR_POOL_MISMATCH);
    assert_status(wr_mempool_unref(record, name, WR_HELD_BY_USER), WEIR_ERR_POOL_MISMATCH);
    assert_status(wr_inspect_pool(record, name, &info), WEIR_ERR_POOL_MISMATCH);
    assert_int_equal(pool_info(successor).references, 1);
}

static void memory_in_use_outlives_its_pool(void **state)
{
    (void)state;
    weir_mempool pool = plain();
    void *block = alloc_in(pool, MIB);
    assert_ok(weir_mempool_unref(pool));
    assert_pool(block, pool);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(pool_info(pool).references, 0);
    assert_ok(weir_free(block));
    assert_ok(weir_empty_cache(0));
    assert_gone(pool);
    assert_int_equal(reserved_on(0), 0);
}

static void a_released_pool_with_live_memory_can_be_opened_again(void **state)
{
    (void)state;
    void *none = NULL;
    weir_mempool pool = plain();
    void *block = alloc_in(pool, MIB);
    assert_ok(weir_mempool_unref(pool));
    assert_status(weir_alloc_from(pool, MIB, WEIR_STREAM_CURRENT, &none), WEIR_ERR_POOL_MISMATCH);
    assert_non_null(strstr(weir_error_text(), "weir_mempool_ref"));
    assert_ok(weir_mempool_ref(pool));
    void *again = alloc_in(pool, MIB);
    assert_int_equal(segments_of(pool), 1);
    assert_ok(weir_free(block));
    assert_ok(weir_free(again));
    assert_ok(weir_mempool_unref(pool));
    assert_gone(pool);
}

static void release(weir_mempool pool)
{
    assert_ok(weir_mempool_unref(pool));
    assert_ok(weir_validate(0));
}

static void pools_go_in_any_order(void **state)
{
    (void)state;
    const weir_mempool first = plain(), second = plain(), third = plain(), last = plain();
    void *of_second = alloc_in(second, MIB), *of_last = alloc_in(last, MIB);
    release(second);
    release(first);
    release(last);
    assert_ok(weir_mempool_ref(second));
    assert_ok(weir_validate(0));
    assert_ok(weir_free(of_last));
    const weir_mempool later = plain();
    assert_gone(first);
    assert_gone(last);
    assert_ok(weir_free(of_second));
    release(later);
    release(second);
    release(third);
    assert_gone(third);
    assert_int_equal(reserved_on(0), 0);
}

static void a_reserved_id_is_no_pool_yet(void **state)
{
    (void)state;
    weir_mempool pool = { 0, 0 };
    assert_ok(weir_mempool_reserve(&pool));
    assert_status(weir_mempool_enter(pool), WEIR_ERR_POOL_MISMATCH);
    assert_non_null(strstr(weir_error_text(), "capture"));
}

static void a_reserved_id_without_a_pool_can_be_given_back(void **state)
{
    (void)state;
    weir_mempool id = { 0, 0 };
    assert_ok(weir_mempool_reserve(&id));
    assert_ok(weir_mempool_unref(id));
    assert_status(weir_mempool_unref(id), WEIR_ERR_POOL_MISMATCH);
    assert_gone(id);
}

static void ids_that_never_were_are_refused(void **state)
{
    (void)state;
    const weir_mempool strange[] = { { 1, 1 }, { 0, 1000000 }, { 0, UINT64_MAX }, { UINT64_MAX, 0 }, { 1u << 23, 0 } };
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++)
        assert_status(weir_mempool_ref(strange[i]), WEIR_ERR_POOL_MISMATCH);
}

static void pools_of_a_closed_library_are_refused_for_that(void **state)
{
    weir_mempool pool = plain();
    weir_mempool_info info = { .size = sizeof info };
    assert_ok(weir_close());
    assert_status(weir_mempool_info_get(pool, &info), WEIR_ERR_CLOSED);
    assert_status(weir_mempool_ref(pool), WEIR_ERR_CLOSED);
    assert_status(weir_mempool_unref(pool), WEIR_ERR_CLOSED);
    open_two_small_hosts(state);
}

static void closing_ends_pools_whatever_is_in_them(void **state)
{
    (void)state;
    weir_mempool pool = plain();
    (void)alloc_in(pool, MIB);
    assert_ok(weir_mempool_enter(pool));
    assert_ok(weir_close());
    open_two_small_hosts(NULL);
    assert_gone(pool);
    assert_pool(alloc(MIB), default_pool);
    assert_true(plain().user > pool.user);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void pools_share_no_segment(void **state)
{
    (void)state;
    weir_mempool pool = plain();
    void *ours = alloc_in(pool, 1024), *common = alloc(1024);
    assert_ptr_not_equal(info_of(ours).segment, info_of(common).segment);
    assert_ok(weir_free(common));
    assert_ptr_not_equal(alloc_in(pool, 1024), common);
}

static void emptying_the_devices_cache_leaves_a_pool_its_memory(void **state)
{
    (void)state;
    weir_mempool pool = plain();
    assert_ok(weir_mempool_enter(pool));
    assert_ok(weir_free(alloc(MIB)));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(segments_of(pool), 1);
    assert_ok(weir_mempool_leave(pool));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(segments_of(pool), 1);
    assert_ok(weir_mempool_empty_cache(pool));
    assert_int_equal(segments_of(pool), 0);
}

static void a_request_of_a_pool_gets_idle_memory_of_the_default_pool(void **state)
{
    (void)state;
    weir_mempool pool = plain();
    assert_ok(weir_free(alloc(48 * MIB)));
    void *block = alloc_in(pool, 40 * MIB);
    assert_pool(block, pool);
    assert_int_equal(stats_of(0).driver_frees, 0); /* mapped there, too */
    assert_true(pool_stats(pool).reserved_bytes[WEIR_STAT_ALL].current >= (int64_t)(40 * MIB));
}

static void a_request_of_a_pool_gets_its_own_idle_segments_of_other_streams(void **state)
{
    (void)state;
    void *block = NULL, *small = NULL;
    weir_mempool pool = plain();
    assert_ok(weir_alloc_from(pool, 24 * MIB, new_stream(0), &block));
    assert_ok(weir_free(block));
    assert_ok(weir_alloc_from(pool, 24 * MIB, new_stream(0), &small));
    assert_ok(weir_free(small));
    assert_pool(alloc_in(pool, 56 * MIB), pool);
}

static void a_pool_in_use_is_not_emptied_for_others(void **state)
{
    (void)state;
    void *none = NULL;
    weir_mempool pool = plain();
    assert_ok(weir_free(alloc_in(pool, 48 * MIB)));
    assert_status(weir_alloc(40 * MIB, &none), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(pool_stats(pool).reserved_bytes[WEIR_STAT_ALL].current, 48 * MIB);
    assert_ok(weir_mempool_unref(pool));
    assert_pool(alloc(40 * MIB), default_pool);
}

static void idle_memory_of_a_released_pool_serves_every_pool(void **state)
{
    (void)state;
    weir_mempool pool = plain();
    void *live = alloc_in(pool, 1024);
    void *big = alloc_in(pool, 48 * MIB);
    assert_ok(weir_mempool_unref(pool));
    assert_ok(weir_free(big));
    assert_pool(alloc(40 * MIB), default_pool);
    assert_ok(weir_free(live));
}

static void a_pool_has_no_more_than_its_cap(void **state)
{
    (void)state;
    void *none = NULL;
    weir_mempool_options o = options_on(0);
    o.cap = 24 * MIB;
    weir_mempool pool = make_pool(o);
    void *first = alloc_in(pool, 20 * MIB);
    assert_status(weir_alloc_from(pool, 20 * MIB, WEIR_STREAM_CURRENT, &none), WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(weir_error_text(), "The last refusal: memory pool"));
    assert_non_null(strstr(weir_error_text(), "20.00 MiB held, 20.00 MiB more requested, cap 24.00 MiB"));
    assert_non_null(strstr(weir_error_text(), "The device has room"));
    assert_ok(weir_free(first));
    assert_pool(alloc_in(pool, 24 * MIB), pool);
}

static void an_aligned_pool_aligns_every_block(void **state)
{
    (void)state;
    for (size_t alignment = 512; alignment <= 2 * MIB; alignment *= 4) {
        weir_mempool_options o = options_on(0);
        o.alignment = alignment;
        weir_mempool pool = make_pool(o);
        for (size_t bytes = 1; bytes <= 3 * MIB; bytes = bytes * 3 + 1)
            assert_int_equal((uintptr_t)alloc_in(pool, bytes) % alignment, 0);
        assert_ok(weir_validate(0));
        assert_ok(weir_mempool_unref(pool));
        assert_ok(weir_close());
        open_two_small_hosts(NULL);
    }
}

static void without_splitting_a_segment_is_one_block(void **state)
{
    (void)state;
    weir_mempool_options o = options_on(0);
    o.no_split = true;
    weir_mempool pool = make_pool(o);
    void *first = alloc_in(pool, 1024), *second = alloc_in(pool, 1024);
    assert_int_equal(segments_of(pool), 2);
    assert_ptr_equal(info_of(first).segment, first);
    assert_int_equal(info_of(first).bytes, info_of(first).segment_bytes);
    assert_ok(weir_free(second));
    assert_ptr_equal(alloc_in(pool, 2048), second);
    assert_int_equal(segments_of(pool), 2);
}

static void without_splitting_a_large_segment_serves_no_small_request(void **state)
{
    (void)state;
    weir_mempool_options o = options_on(0);
    o.no_split = true;
    weir_mempool pool = make_pool(o);
    assert_ok(weir_free(alloc_in(pool, 40 * MIB)));
    void *block = alloc_in(pool, 10 * MIB);
    assert_true(info_of(block).segment_bytes < 40 * MIB);
}

static void the_statistics_of_a_pool_are_its_own(void **state)
{
    (void)state;
    void *common = alloc(3 * MIB);
    weir_mempool pool = plain();
    void *ours = alloc_in(pool, 1000);
    const weir_memory_stats own = pool_stats(pool), rest = pool_stats(default_pool), all = stats_of(0);
    assert_int_equal(own.allocation[WEIR_STAT_ALL].current, 1);
    assert_int_equal(own.requested_bytes[WEIR_STAT_SMALL].current, 1000);
    assert_int_equal(own.reserved_bytes[WEIR_STAT_ALL].current, 2 * MIB);
    assert_int_equal(own.inactive_split[WEIR_STAT_ALL].current, 0); /* it is of chunks */
    assert_int_equal(rest.allocation[WEIR_STAT_ALL].current, 1);
    assert_int_equal(rest.requested_bytes[WEIR_STAT_ALL].current, 3 * MIB);
    assert_int_equal(all.reserved_bytes[WEIR_STAT_ALL].current,
                     own.reserved_bytes[WEIR_STAT_ALL].current + rest.reserved_bytes[WEIR_STAT_ALL].current);
    assert_ok(weir_free(ours));
    assert_ok(weir_free(common));
    assert_int_equal(pool_stats(pool).allocation[WEIR_STAT_ALL].current, 0);
    assert_int_equal(pool_stats(pool).hits, 0);
    (void)alloc_in(pool, 1000);
    assert_int_equal(pool_stats(pool).hits, 1);
}

static void the_blocks_of_a_pool_can_be_listed(void **state)
{
    (void)state;
    size_t count = 0;
    weir_block_info blocks[3];
    weir_mempool pool = plain();
    void *first = alloc_in(pool, 1000), *second = alloc_in(pool, 600);
    assert_ok(weir_free(first));
    assert_ok(weir_mempool_blocks(pool, NULL, 0, &count));
    assert_int_equal(count, 3);
    assert_ok(weir_mempool_blocks(pool, blocks, 3, &count));
    assert_ptr_equal(blocks[0].base, first);
    assert_int_equal(blocks[0].state, WEIR_BLOCK_FREE);
    assert_int_equal(blocks[0].requested, 0);
    assert_ptr_equal(blocks[1].base, second);
    assert_int_equal(blocks[1].state, WEIR_BLOCK_LIVE);
    assert_int_equal(blocks[1].requested, 600);
    assert_int_equal(blocks[0].bytes + blocks[1].bytes + blocks[2].bytes, blocks[2].segment_bytes);
    memset(blocks, 0, sizeof blocks);
    assert_ok(weir_mempool_blocks(pool, blocks, 1, &count));
    assert_int_equal(count, 3);
    assert_null(blocks[1].base);
}

/* Whatever the order in which the streams came to use it. */
static void the_blocks_of_a_pool_are_listed_by_stream(void **state)
{
    (void)state;
    enum { STREAMS = 5 };
    static const int order[STREAMS] = { 3, 0, 4, 1, 2 };
    size_t count = 0;
    weir_stream streams[STREAMS];
    weir_block_info blocks[4 * STREAMS];
    weir_mempool pool = plain();
    for (int i = 0; i < STREAMS; i++) streams[i] = new_stream(0);
    for (int i = 0; i < STREAMS; i++)
        for (int large = 0; large < 2; large++) {
            void *block = NULL;
            assert_ok(weir_alloc_from(pool, large ? 3 * MIB : 1000, streams[order[i]], &block));
        }
    assert_ok(weir_mempool_blocks(pool, blocks, 4 * STREAMS, &count));
    int live = 0;
    for (size_t i = 0; i < count; i++)
        if (blocks[i].state == WEIR_BLOCK_LIVE) assert_int_equal(blocks[i].stream.id, streams[live++ / 2].id);
    assert_int_equal(live, 2 * STREAMS);
}

static void the_default_pool_is_left_on_whichever_device_it_was_entered(void **state)
{
    (void)state;
    const weir_mempool all = { 0 };
    assert_ok(weir_mempool_enter(all));
    assert_ok(weir_device_set_current(1));
    assert_ok(weir_mempool_leave(all));
    assert_ok(weir_device_set_current(0));
}

static void routing_defers_no_free(void **state)
{
    (void)state;
    weir_mempool pool = plain();
    assert_ok(weir_mempool_enter(pool));
    void *ours = alloc(MIB);
    assert_ok(weir_free(ours));
    assert_ptr_equal(alloc(MIB), ours);
    assert_int_equal(stats_of(0).pending_frees, 0);
    assert_ok(weir_mempool_leave(pool));
}

/* ---- lending ----------------------------------------------------------------------------------------------------- */

static weir_mempool lender(void)
{
    weir_mempool_options o = options_on(0);
    o.use_on_oom = true;
    return make_pool(o);
}

static void a_pool_that_lends_serves_what_would_fail_and_keeps_the_block(void **state)
{
    (void)state;
    weir_mempool pool = lender();
    void *cached = alloc_in(pool, 48 * MIB);
    assert_ok(weir_free(cached));
    void *block = alloc(40 * MIB);
    assert_ptr_equal(block, cached);
    assert_pool(block, pool);
    assert_int_equal(pool_info(pool).lent, 1);
    assert_int_equal(stats_of(0).lent, 1);
    assert_ok(weir_free(block));
    assert_ptr_equal(alloc_in(pool, 48 * MIB), cached);
}

static void a_pool_with_a_checkpoint_does_not_borrow(void **state)
{
    (void)state;
    weir_mempool pool = lender(), own = plain();
    weir_checkpoint *then = NULL;
    void *block = NULL;
    assert_ok(weir_free(alloc_in(pool, 48 * MIB)));
    assert_ok(weir_mempool_checkpoint(own, &then));
    assert_status(weir_alloc_from(own, 40 * MIB, WEIR_STREAM_CURRENT, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(pool_info(pool).lent, 0);
    weir_checkpoint_destroy(then);
    assert_pool(alloc(40 * MIB), pool); /* others do */
}

static void a_lent_block_counts_as_a_hit(void **state)
{
    (void)state;
    weir_mempool pool = lender();
    assert_ok(weir_free(alloc_in(pool, 48 * MIB)));
    const weir_memory_stats before = stats_of(0), own_before = pool_stats(pool);
    alloc(40 * MIB);
    const weir_memory_stats after = stats_of(0), own_after = pool_stats(pool);
    assert_int_equal(after.lent - before.lent, 1);
    assert_int_equal(after.driver_allocs, before.driver_allocs);
    assert_int_equal(after.hits - before.hits, 1);
    assert_int_equal(own_after.hits - own_before.hits, 1);
}

static void a_pool_lends_nothing_while_the_device_has_memory(void **state)
{
    (void)state;
    weir_mempool pool = lender();
    assert_ok(weir_free(alloc_in(pool, 16 * MIB)));
    assert_pool(alloc(16 * MIB), default_pool);
    assert_int_equal(pool_info(pool).lent, 0);
}

static bool take_any_range(void *user, weir_range_change change, void *base, size_t bytes, int device)
{
    (void)user, (void)change, (void)base, (void)bytes, (void)device;
    return true;
}

static void a_pool_with_rules_of_its_own_borrows_nothing(void **state)
{
    (void)state;
    void *none = NULL;
    weir_mempool_options aligned = options_on(0), whole = options_on(0), mapped = options_on(0);
    aligned.alignment = 2 * MIB;
    whole.no_split = true;
    mapped.memory = WEIR_MEMORY_MAPPED;
    weir_mempool_options told = options_on(0), capped = options_on(0), exact = options_on(0);
    told.range_changed = take_any_range;
    capped.cap = 60 * MIB;
    exact.deterministic = true;
    const weir_mempool pools[] = { make_pool(aligned), make_pool(whole),  make_pool(mapped),
                                   make_pool(told),    make_pool(capped), make_pool(exact) };
    assert_ok(weir_free(alloc_in(lender(), 48 * MIB)));
    for (size_t i = 0; i < sizeof pools / sizeof pools[0]; i++)
        assert_status(weir_alloc_from(pools[i], 40 * MIB, WEIR_STREAM_CURRENT, &none), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(stats_of(0).lent, 0);
}

static void the_oldest_pool_lends_first(void **state)
{
    (void)state;
    weir_mempool first = lender(), second = lender();
    void *newer = alloc_in(second, 24 * MIB), *older = alloc_in(first, 24 * MIB);
    assert_ok(weir_free(newer));
    assert_ok(weir_free(older));
    assert_pool(alloc(20 * MIB), first);
    assert_pool(alloc(20 * MIB), second);
}

static void a_released_pool_lends_nothing(void **state)
{
    (void)state;
    weir_mempool pool = lender();
    void *live = alloc_in(pool, 1024), *big = alloc_in(pool, 48 * MIB);
    assert_ok(weir_mempool_unref(pool));
    assert_ok(weir_free(big));
    assert_pool(alloc(40 * MIB), default_pool);
    assert_int_equal(pool_info(pool).lent, 0);
    assert_ok(weir_free(live));
}

/* ---- sources ----------------------------------------------------------------------------------------------------- */

typedef struct counting_source {
    int allocs, frees, releases;
    size_t bytes;
    int device;
    void *stream;
} counting_source;

static weir_status take_from_heap(void *user, size_t bytes, int device, void *native_stream, void **base)
{
    counting_source *c = user;
    c->allocs++;
    c->bytes = bytes;
    c->device = device;
    c->stream = native_stream;
    *base = aligned_alloc(2 * MIB, bytes);
    return *base ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

static weir_status give_to_heap(void *user, void *base, size_t bytes, int device, void *native_stream)
{
    counting_source *c = user;
    (void)device, (void)native_stream, (void)bytes;
    c->frees++;
    free(base);
    return WEIR_OK;
}

static void release_source(void *user)
{
    ((counting_source *)user)->releases++;
}

static weir_mempool pool_with(counting_source *counts, int device)
{
    const weir_segment_source source = { take_from_heap, give_to_heap, release_source, counts };
    weir_mempool_options o = options_on(device);
    o.source = &source;
    return make_pool(o);
}

/* A source that is slow to take memory back and, if told so, to give it. */
typedef struct slow_source {
    counting_source counts;
    atomic_size_t out;
    atomic_size_t most; /* was out at once */
    atomic_bool giving;
    bool takes_slowly;
} slow_source;

static void take_time(void)
{
    const struct timespec tenth = { 0, 100000000 };
    nanosleep(&tenth, NULL);
}

static weir_status take_counted(void *user, size_t bytes, int device, void *native_stream, void **base)
{
    slow_source *slow = user;
    const size_t out = atomic_fetch_add(&slow->out, bytes) + bytes;
    if (out > atomic_load(&slow->most)) atomic_store(&slow->most, out);
    if (slow->takes_slowly) take_time();
    return take_from_heap(user, bytes, device, native_stream, base);
}

static weir_status give_slowly(void *user, void *base, size_t bytes, int device, void *native_stream)
{
    slow_source *slow = user;
    atomic_store(&slow->giving, true);
    take_time();
    atomic_fetch_sub(&slow->out, bytes);
    return give_to_heap(user, base, bytes, device, native_stream);
}

static void *empty_pool(void *pool)
{
    assert_ok(weir_mempool_empty_cache(*(weir_mempool *)pool));
    return NULL;
}

static weir_mempool pool_of_slow(slow_source *slow, uint64_t cap)
{
    const weir_segment_source source = { take_counted, give_slowly, NULL, slow };
    weir_mempool_options o = options_on(0);
    o.source = &source;
    o.cap = cap;
    return make_pool(o);
}

static void no_more_than_20_mib_are_out_at_once(uint64_t cap)
{
    slow_source slow = { .most = 0 };
    pthread_t thread;
    weir_mempool pool = pool_of_slow(&slow, cap);
    assert_ok(weir_free(alloc_in(pool, 20 * MIB)));
    assert_int_equal(pthread_create(&thread, NULL, empty_pool, &pool), 0);
    while (!atomic_load(&slow.giving)) continue;
    assert_ok(weir_free(alloc_in(pool, 20 * MIB)));
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&slow.most), 20 * MIB);
    assert_ok(weir_mempool_unref(pool));
}

static void memory_on_its_way_back_counts_for_the_cap(void **state)
{
    (void)state;
    no_more_than_20_mib_are_out_at_once(20 * MIB);
}

static void memory_on_its_way_back_counts_for_the_limit(void **state)
{
    (void)state;
    assert_ok(weir_memory_limit_set(0, 20 * MIB));
    no_more_than_20_mib_are_out_at_once(0);
}

typedef struct taking {
    weir_mempool pool;
    weir_status status;
} taking;

static void *take_20_mib(void *argument)
{
    taking *t = argument;
    void *block = NULL;
    t->status = weir_alloc_from(t->pool, 20 * MIB, WEIR_STREAM_CURRENT, &block);
    return NULL;
}

static void threads_that_grow_at_once_stay_within_the_cap(void **state)
{
    static slow_source slow = { .takes_slowly = true }; /* until the library is closed */
    (void)state;
    pthread_t threads[2];
    weir_mempool pool = pool_of_slow(&slow, 20 * MIB);
    taking each[2] = { { .pool = pool }, { .pool = pool } };
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, take_20_mib, &each[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_int_equal((each[0].status == WEIR_OK) + (each[1].status == WEIR_OK), 1);
    assert_int_equal(atomic_load(&slow.most), 20 * MIB);
}

static void a_source_is_asked_once_per_segment(void **state)
{
    (void)state;
    counting_source counts = { 0 };
    weir_mempool pool = pool_with(&counts, 1);
    weir_stream stream = new_stream(1);
    void *blocks[3];
    for (int i = 0; i < 3; i++) {
        assert_ok(weir_alloc_from(pool, MIB, stream, &blocks[i]));
        assert_int_equal(counts.allocs, i / 2 + 1);
    }
    assert_int_equal(counts.bytes, 2 * MIB);
    assert_int_equal(counts.device, 1);
    assert_ptr_equal(counts.stream, native_of(stream));
    assert_int_equal(pool_stats(pool).segment[WEIR_STAT_ALL].current, 2);
    for (int i = 0; i < 3; i++) assert_ok(weir_free(blocks[i]));
    assert_int_equal(counts.frees, 0);
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(counts.frees, 2);
    assert_int_equal(counts.releases, 1);
}

static void pools_of_other_memory_may_exceed_the_device(void **state)
{
    (void)state;
    void *managed = NULL;
    counting_source counts = { 0 };
    weir_mempool_options pinned = options_on(0), moving = options_on(0);
    pinned.memory = WEIR_MEMORY_PINNED;
    moving.memory = WEIR_MEMORY_MANAGED;
    const weir_mempool with_source = pool_with(&counts, 0);
    assert_ok(weir_free(alloc_in(with_source, 80 * MIB)));
    assert_int_equal(counts.allocs, 1);
    assert_ok(weir_mempool_unref(with_source));
    assert_ok(weir_free(alloc_in(make_pool(pinned), 80 * MIB)));
    /* Only the driver knows how much managed memory there is; this one takes it from the device. */
    assert_status(weir_alloc_from(make_pool(moving), 80 * MIB, WEIR_STREAM_CURRENT, &managed), WEIR_ERR_OUT_OF_MEMORY);
    assert_true(calls_of(WEIR_BACKEND_managed_alloc) > 0);
    assert_non_null(strstr(weir_error_text(), "The last refusal: host: 80.00 MiB requested"));
    assert_non_null(strstr(weir_error_text(), "\nThe last refusal says what is missing."));
}

static void a_source_is_kept_until_its_last_block_is_gone(void **state)
{
    (void)state;
    counting_source counts = { 0 };
    weir_mempool pool = pool_with(&counts, 0);
    void *block = alloc_in(pool, MIB);
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(counts.releases, 0);
    memset(block, 1, MIB);
    assert_ok(weir_free(block));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(counts.frees, counts.allocs);
    assert_int_equal(counts.releases, 1);
}

static void a_pool_whose_last_block_went_late_goes_with_the_next_one_made(void **state)
{
    (void)state;
    counting_source counts = { 0 };
    weir_mempool pool = pool_with(&counts, 0);
    void *block = alloc_in(pool, MIB);
    assert_ok(weir_mempool_unref(pool));
    assert_ok(weir_free(block));
    pool = plain();
    assert_int_equal(counts.frees, counts.allocs);
    assert_int_equal(counts.releases, 1);
    assert_ok(weir_mempool_unref(pool));
}

/* Fails as while the stream of the memory captures. */
static void a_pool_that_could_not_go_goes_with_the_one_after(void **state)
{
    (void)state;
    counting_source counts = { 0 };
    weir_mempool pool = pool_with(&counts, 0);
    void *block = alloc_in(pool, MIB);
    assert_ok(weir_mempool_unref(pool));
    assert_ok(weir_free(block));
    assert_ok(weir_host_fail(WEIR_BACKEND_stream_query, 1, WEIR_ERR_OUT_OF_MEMORY));
    pool = plain();
    assert_int_equal(counts.frees, 0);
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(counts.frees, counts.allocs);
    assert_int_equal(counts.releases, 1);
}

static void a_pool_whose_stream_has_work_goes_with_one_made_later(void **state)
{
    (void)state;
    counting_source counts = { 0 };
    weir_stream stream = new_stream(0);
    weir_mempool pool = pool_with(&counts, 0);
    void *block = NULL;
    assert_ok(weir_alloc_from(pool, MIB, stream, &block));
    assert_ok(weir_mempool_unref(pool));
    make_busy(stream);
    assert_ok(weir_free(block));
    (void)plain();
    assert_int_equal(counts.frees, 0);
    let_run(stream);
    (void)plain();
    assert_int_equal(counts.frees, counts.allocs);
    assert_int_equal(counts.releases, 1);
}

static void making_a_pool_does_not_wait_for_work_on_memory_of_a_released_one(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    const weir_mempool pool = plain();
    void *block = alloc_from(pool, MIB, stream);
    assert_ok(weir_mempool_unref(pool));
    make_busy(stream);
    assert_ok(weir_free(block));
    const uint64_t before = calls_of(WEIR_BACKEND_event_synchronize);
    (void)plain();
    assert_int_equal(calls_of(WEIR_BACKEND_event_synchronize), before);
    let_run(stream);
}

static void closing_gives_a_source_its_memory_and_releases_it(void **state)
{
    (void)state;
    counting_source counts = { 0 };
    (void)alloc_in(pool_with(&counts, 0), MIB);
    assert_ok(weir_close());
    assert_int_equal(counts.frees, 1);
    assert_int_equal(counts.releases, 1);
    open_two_small_hosts(NULL);
}

static void a_block_freed_after_others_were_made_takes_its_pool_along(void **state)
{
    (void)state;
    weir_mempool_info info = { .size = sizeof info };
    weir_mempool pool = plain();
    void *block = alloc_in(pool, 12 * MIB);
    assert_ok(weir_mempool_unref(pool));
    (void)plain(); /* looks in vain */
    assert_ok(weir_free(block));
    (void)plain();
    assert_status(weir_mempool_info_get(pool, &info), WEIR_ERR_POOL_MISMATCH);
    assert_int_equal(reserved_on(0), 0);
}

static void *use_and_end(void *argument)
{
    const weir_mempool *pool = argument;
    assert_ok(weir_mempool_enter(*pool));
    assert_ok(weir_mempool_unref(*pool));
    assert_ok(weir_free(alloc(12 * MIB)));
    (void)stats_of(0); /* nothing stays parked */
    return NULL;
}

static void blocks_that_a_thread_left_in_a_released_pool_go_with_the_next_pool_made(void **state)
{
    (void)state;
    weir_mempool_info info = { .size = sizeof info };
    weir_mempool pool = plain();
    (void)in_a_thread(use_and_end, &pool);
    assert_int_equal(reserved_on(0), 12 * MIB);
    (void)plain();
    assert_int_equal(reserved_on(0), 0);
    assert_status(weir_mempool_info_get(pool, &info), WEIR_ERR_POOL_MISMATCH);
}

static void a_pool_that_the_limit_is_not_for_may_go(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MANAGED, ""));
    assert_ok(weir_free(alloc_from(pool, MIB, WEIR_STREAM_CURRENT)));
    assert_ok(weir_mempool_unref(pool));
    assert_ok(weir_memory_limit_set(0, 40 * MIB));
    assert_ok(weir_free(alloc(20 * MIB))); /* counts the pools that the limit is not for */
}

static void resetting_a_devices_statistics_resets_its_pools(void **state)
{
    weir_memory_stats stats = { .size = sizeof stats };
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    assert_ok(weir_free(alloc_from(pool, MIB, WEIR_STREAM_CURRENT)));
    assert_ok(weir_mempool_stats_get(pool, &stats));
    assert_int_equal(stats.allocated_bytes[WEIR_STAT_ALL].peak, MIB);
    assert_ok(weir_stats_reset(0));
    assert_ok(weir_mempool_stats_get(pool, &stats));
    assert_int_equal(stats.allocated_bytes[WEIR_STAT_ALL].peak, 0);
    assert_int_equal(stats.allocated_bytes[WEIR_STAT_ALL].added, 0);
    assert_ok(weir_mempool_unref(pool));
}

#define test(name) cmocka_unit_test_setup_teardown(name, open_two_small_hosts, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_pool_that_the_limit_is_not_for_may_go),
        test(resetting_a_devices_statistics_resets_its_pools),
        test(ids_of_users_have_no_capture_part_and_count_up),
        test(pools_made_by_many_threads_have_different_ids),
        test(a_pool_belongs_to_the_device_that_was_named),
        test(an_id_that_can_be_no_pools_is_refused),
        test(creating_refuses_invalid_options),
        test(a_pool_with_a_source_takes_no_kind_of_memory_from_the_driver),
        test(a_tag_may_fill_its_place_but_for_the_zero),
        test(a_route_is_a_reference),
        test(a_user_cannot_give_back_the_reference_of_a_route),
        test(a_pool_without_memory_is_gone_with_its_last_reference),
        test(pools_that_are_gone_leave_no_records),
        test(the_name_of_a_pool_that_is_gone_is_not_its_successors),
        test(memory_in_use_outlives_its_pool),
        test(a_released_pool_with_live_memory_can_be_opened_again),
        test(pools_go_in_any_order),
        test(a_reserved_id_is_no_pool_yet),
        test(a_reserved_id_without_a_pool_can_be_given_back),
        test(ids_that_never_were_are_refused),
        test(pools_of_a_closed_library_are_refused_for_that),
        test(closing_ends_pools_whatever_is_in_them),
        test(pools_share_no_segment),
        test(emptying_the_devices_cache_leaves_a_pool_its_memory),
        test(a_request_of_a_pool_gets_idle_memory_of_the_default_pool),
        test(a_request_of_a_pool_gets_its_own_idle_segments_of_other_streams),
        test(a_pool_in_use_is_not_emptied_for_others),
        test(idle_memory_of_a_released_pool_serves_every_pool),
        test(a_pool_has_no_more_than_its_cap),
        test(an_aligned_pool_aligns_every_block),
        test(without_splitting_a_segment_is_one_block),
        test(without_splitting_a_large_segment_serves_no_small_request),
        test(the_statistics_of_a_pool_are_its_own),
        test(the_blocks_of_a_pool_can_be_listed),
        test(the_blocks_of_a_pool_are_listed_by_stream),
        test(the_default_pool_is_left_on_whichever_device_it_was_entered),
        test(routing_defers_no_free),
        test(a_pool_that_lends_serves_what_would_fail_and_keeps_the_block),
        test(a_pool_with_a_checkpoint_does_not_borrow),
        test(a_lent_block_counts_as_a_hit),
        test(a_pool_lends_nothing_while_the_device_has_memory),
        test(a_pool_with_rules_of_its_own_borrows_nothing),
        test(the_oldest_pool_lends_first),
        test(a_released_pool_lends_nothing),
        test(memory_on_its_way_back_counts_for_the_cap),
        test(memory_on_its_way_back_counts_for_the_limit),
        test(threads_that_grow_at_once_stay_within_the_cap),
        test(a_source_is_asked_once_per_segment),
        test(pools_of_other_memory_may_exceed_the_device),
        test(a_source_is_kept_until_its_last_block_is_gone),
        test(a_pool_whose_last_block_went_late_goes_with_the_next_one_made),
        test(a_pool_that_could_not_go_goes_with_the_one_after),
        test(a_block_freed_after_others_were_made_takes_its_pool_along),
        test(blocks_that_a_thread_left_in_a_released_pool_go_with_the_next_pool_made),
        test(a_pool_whose_stream_has_work_goes_with_one_made_later),
        test(making_a_pool_does_not_wait_for_work_on_memory_of_a_released_one),
        test(closing_gives_a_source_its_memory_and_releases_it),
    };
    return cmocka_run_group_tests_name("mempool", tests, NULL, NULL);
}
