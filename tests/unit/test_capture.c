/*
 * What an allocation and a free do while a capture is underway.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph_support.h"
#include "meanwhile_support.h"
#include "weir/backend.h"

#include "backend/backend.h"
#include "device/device.h"
#include "device/runtime.h"
#include "pool/graph_order.h"

#include <pthread.h>
#include <string.h>

static weir_stream origin, side;

static int open_device(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB });
    origin = new_stream(0);
    side = new_stream(0);
    return 0;
}

/* ---- where memory comes from ------------------------------------------------------------------------------------- */

static void memory_of_a_capture_belongs_to_the_graph_alone(void **state)
{
    (void)state;
    void *before = alloc_on(MIB, origin);
    assert_ok(weir_free(before));
    weir_graph g = begin_on(origin);
    void *inside = alloc_on(MIB, origin);
    void *elsewhere = alloc_on(MIB, side);
    assert_ptr_not_equal(inside, before);
    assert_true(SAME_POOL(info_of(inside).pool, pool_of(g)));
    assert_int_equal(info_of(elsewhere).pool.capture, 0);
    assert_ok(weir_free(inside));
    assert_ok(weir_graph_end(g));
    void *after = alloc_on(MIB, origin);
    assert_ptr_equal(after, before);
    assert_ok(weir_free(after));
    assert_ok(weir_free(elsewhere));
    assert_ok(weir_graph_destroy(g));
}

static int open_two_devices(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB, .host_devices = 2 });
    origin = new_stream(0);
    side = new_stream(1);
    return 0;
}

static void memory_of_a_stream_that_joined_another_devices_capture_comes_from_elsewhere(void **state)
{
    (void)state;
    weir_stream third = new_stream(1);
    weir_graph g = begin_on(origin);
    assert_ok(weir_stream_wait(side, origin));
    void *alone = alloc_on(MIB, side);
    weir_graph unrelated = begin_on(third);
    void *beside = alloc_on(MIB, side);
    assert_int_equal(info_of(beside).pool.capture, info_of(alone).pool.capture);
    assert_ok(weir_stream_wait(origin, side));
    assert_ok(weir_graph_end(unrelated));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_free(alone));
    assert_ok(weir_free(beside));
    assert_ok(weir_graph_destroy(unrelated));
    assert_ok(weir_graph_destroy(g));
}

/* Two threads begin on one stream: the driver refuses the second, which weir knows of already. */
static void memory_of_a_capture_belongs_to_its_graph_beside_another_beginning_there(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    wr_device *device = atomic_load(&wr_runtime_global.devices[0]);
    wr_capture *refused = NULL;
    wr_keeps kept = { 0 };
    assert_ok(wr_capture_register(device, native_of(origin), device->cache.pools, 0, &refused));
    void *inside = alloc_on(MIB, origin);
    assert_true(SAME_POOL(info_of(inside).pool, pool_of(g)));
    wr_capture_unregister(refused, &kept);
    wr_keeps_release(&kept);
    assert_ok(weir_free(inside));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

static void every_stream_that_joins_allocates_from_the_graphs_pool(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    assert_ok(weir_stream_wait(side, origin));
    void *joined = alloc_on(MIB, side);
    assert_true(SAME_POOL(info_of(joined).pool, pool_of(g)));
    assert_ok(weir_fill(joined, 1, MIB, side));
    assert_ok(weir_stream_wait(origin, side));
    assert_ok(weir_graph_end(g));
    void *later = alloc_on(MIB, side);
    assert_int_equal(info_of(later).pool.capture, 0);
    assert_ok(weir_free(later));
    assert_ok(weir_free(joined));
    assert_ok(weir_graph_destroy(g));
}

static void *allocate_on_origin(void *out)
{
    *(void **)out = alloc_on(MIB, origin);
    return NULL;
}

static void another_thread_allocates_for_the_capture_too(void **state)
{
    (void)state;
    void *block = NULL;
    weir_graph g = begin_on(origin);
    (void)in_a_thread(allocate_on_origin, &block);
    assert_true(SAME_POOL(info_of(block).pool, pool_of(g)));
    assert_ok(weir_free(block));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

static void the_route_opened_last_wins(void **state)
{
    (void)state;
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    weir_mempool outer, inner, now;
    options.device = 0;
    assert_ok(weir_mempool_create(&options, &outer));
    assert_ok(weir_mempool_create(&options, &inner));
    assert_ok(weir_mempool_enter(outer));
    weir_graph g = begin_on(origin);
    assert_ok(weir_mempool_current(origin, &now));
    assert_true(SAME_POOL(now, pool_of(g)));
    assert_ok(weir_mempool_current(side, &now));
    assert_true(SAME_POOL(now, outer));
    assert_ok(weir_mempool_enter(inner));
    void *routed = alloc_on(MIB, origin);
    assert_true(SAME_POOL(info_of(routed).pool, inner));
    assert_ok(weir_mempool_leave(inner));
    assert_ok(weir_mempool_leave(outer));
    assert_ok(weir_graph_end(g));
    assert_int_equal(pool_info(outer).graphs, 0);
    assert_int_equal(pool_info(inner).graphs, 1); /* the graph has an address in it */
    assert_ok(weir_free(routed));
    assert_ok(weir_graph_destroy(g));
    assert_int_equal(pool_info(inner).graphs, 0);
    assert_ok(weir_mempool_unref(outer));
    assert_ok(weir_mempool_unref(inner));
}

static void a_pool_named_inside_a_capture_is_kept_by_the_graph(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    weir_graph g = begin_on(origin);
    void *block = alloc_from(pool, MIB, origin);
    assert_ok(weir_fill(block, 7, MIB, origin));
    assert_ok(weir_free(block));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_mempool_unref(pool));
    assert_ok(weir_empty_cache(0));
    launch_and_wait(g, origin); /* writes to memory that must still be mapped */
    assert_int_equal(((unsigned char *)block)[MIB - 1], 7);
    assert_ok(weir_graph_destroy(g));
    assert_status(weir_mempool_ref(pool), WEIR_ERR_POOL_MISMATCH);
}

static void a_capture_that_weir_was_not_told_of_is_refused_memory_while_another_is_known(void **state)
{
    (void)state;
    void *block = NULL;
    const weir_backend *b = &wr_backend_host;
    assert_ok(b->capture_begin(0, native_of(side), WEIR_CAPTURE_RELAXED));
    void *alone = alloc_on(MIB, side); /* nothing is queried while weir knows of no capture */
    weir_graph g = begin_on(origin);
    assert_status(weir_alloc_on(MIB, side, &block), WEIR_ERR_CAPTURE);
    assert_non_null(strstr(weir_error_text(), "weir_graph_adopt"));
    assert_ok(weir_graph_end(g));
    end_natively(native_of(side));
    assert_ok(weir_free(alone));
    assert_ok(weir_graph_destroy(g));
}

static void an_invalidated_capture_is_refused_memory(void **state)
{
    (void)state;
    void *block = NULL;
    weir_graph g = begin_on(origin);
    assert_status(wr_backend_host.stream_query(0, native_of(origin)), WEIR_ERR_CAPTURE);
    assert_status(weir_alloc_on(MIB, origin, &block), WEIR_ERR_CAPTURE);
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_free(alloc_on(MIB, origin)));
}

static void a_hit_asks_the_driver_nothing_while_no_capture_is_underway(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_free(alloc_on(MIB, origin)));
    const uint64_t before = calls_of(WEIR_BACKEND_capture_status);
    assert_ok(weir_free(alloc_on(MIB, origin)));
    assert_int_equal(calls_of(WEIR_BACKEND_capture_status), before);
    assert_ok(weir_graph_destroy(g));
}

static void a_miss_asks_the_driver_for_no_capture_while_none_is_underway(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    assert_ok(weir_graph_end(g));
    const uint64_t before = calls_of(WEIR_BACKEND_capture_status);
    assert_ok(weir_free(alloc_on(MIB, origin)));
    assert_ok(weir_free(alloc_on(20 * MIB, side)));
    assert_int_equal(calls_of(WEIR_BACKEND_capture_status), before);
    assert_ok(weir_graph_destroy(g));
}

static void a_launch_asks_the_driver_for_no_capture_while_none_is_underway(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    assert_ok(weir_graph_end(g));
    launch_and_wait(g, origin);
    const uint64_t before = calls_of(WEIR_BACKEND_capture_status);
    assert_ok(weir_graph_launch(g, origin));
    assert_int_equal(calls_of(WEIR_BACKEND_capture_status), before);
    assert_ok(weir_stream_synchronize(origin));
    assert_ok(weir_graph_destroy(g));
}

/* As long as a route is counted, no stream is served by its front alone. */
static void no_capture_is_counted_as_a_route_once_it_is_over(void **state)
{
    (void)state;
    const wr_device *device = wr_runtime_opened(0);
    weir_graph g = begin_on(origin);
    assert_int_equal(atomic_load(&device->routes.any), 1);
    assert_ok(weir_graph_end(g));
    assert_int_equal(atomic_load(&device->routes.any), 0);
    assert_ok(weir_graph_destroy(g));
}

/* Its graph would not keep the memory. */
static void no_memory_is_given_inside_when_its_capture_cannot_be_found(void **state)
{
    (void)state;
    void *block = NULL;
    weir_graph g = begin_on(origin);
    assert_ok(weir_host_fail(WEIR_BACKEND_capture_status, 2, WEIR_ERR_DRIVER)); /* the first chooses the pool */
    assert_status(weir_alloc_on(MIB, origin, &block), WEIR_ERR_DRIVER);
    assert_null(block);
    assert_ok(weir_host_fail_clear());
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

static void out_of_memory_inside_a_capture_leaves_it_usable(void **state)
{
    (void)state;
    void *block = NULL;
    weir_graph g = begin_on(origin);
    void *fits = alloc_on(MIB, origin);
    assert_status(weir_alloc_on(1024 * MIB, origin, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_ok(weir_fill(fits, 5, MIB, origin));
    assert_ok(weir_graph_end(g));
    launch_and_wait(g, origin);
    assert_int_equal(*(unsigned char *)fits, 5);
    assert_ok(weir_free(fits));
    assert_ok(weir_graph_destroy(g));
}

static void a_capture_gets_idle_memory_of_others_when_memory_is_short(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc_on(150 * MIB, side)));
    weir_graph g = begin_on(origin);
    void *block = alloc_on(180 * MIB, origin);
    assert_ok(weir_fill(block, 1, 100, origin));
    assert_ok(weir_graph_end(g));
    launch_and_wait(g, origin);
    assert_ok(weir_free(block));
    assert_ok(weir_graph_destroy(g));
}

/* Nobody can ask whether its earlier work is over, or wait for it. */
static void free_memory_of_a_capturing_stream_is_not_taken(void **state)
{
    (void)state;
    void *block = NULL, *before = alloc_on(150 * MIB, side);
    hold(side);
    assert_ok(weir_fill(before, 1, 100, side));
    assert_ok(weir_free(before));
    weir_graph g = begin_on(side);
    assert_status(weir_alloc_on(180 * MIB, origin, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_ok(weir_graph_end(g));
    let_run(side);
    assert_ok(weir_alloc_on(180 * MIB, origin, &block));
    assert_ok(weir_free(block));
    assert_ok(weir_graph_destroy(g));
}

static bool routes_all(void *user, weir_stream stream, size_t bytes)
{
    (void)user, (void)stream, (void)bytes;
    return true;
}

static void a_capture_borrows_from_no_pool_that_lends(void **state)
{
    (void)state;
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    weir_mempool lender;
    void *block = NULL;
    options.device = 0;
    options.use_on_oom = true;
    assert_ok(weir_mempool_create(&options, &lender));
    assert_ok(weir_mempool_route_filter(lender, routes_all, NULL));
    assert_ok(weir_free(alloc_on(200 * MIB, origin)));
    weir_graph g = begin_on(origin);
    assert_status(weir_alloc_on(150 * MIB, origin, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_mempool_unroute_filter(lender, routes_all, NULL));
    assert_ok(weir_alloc_on(150 * MIB, origin, &block)); /* outside it does */
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(lender));
}

/* ---- streams that are captured ----------------------------------------------------------------------------------- */

static void assert_refused_for(weir_status status, const char *call)
{
    assert_status(status, WEIR_ERR_CAPTURE);
    assert_ptr_equal(strstr(weir_error_text(), call), weir_error_text());
    assert_non_null(strstr(weir_error_text(), "would invalidate the capture"));
}

static void a_captured_stream_is_not_waited_for(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    assert_refused_for(weir_stream_synchronize(origin), "weir_stream_synchronize: ");
    end_unharmed(g, origin);
}

static void a_captured_stream_is_not_asked_for_its_work(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    const uint64_t before = calls_of(WEIR_BACKEND_stream_query);
    assert_refused_for(weir_stream_query(origin), "weir_stream_query: ");
    assert_int_equal(calls_of(WEIR_BACKEND_stream_query), before);
    end_unharmed(g, origin);
}

static void a_captured_stream_is_not_destroyed(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    assert_refused_for(weir_stream_destroy(origin), "weir_stream_destroy: ");
    end_unharmed(g, origin);
    assert_ok(weir_stream_destroy(origin));
}

/* ---- captures that are about to begin ---------------------------------------------------------------------------- */

/* As while another thread is in weir_graph_begin(), before the driver has begun the capture. */
static wr_capture *about_to_begin(weir_stream stream, wr_mempool *pool)
{
    wr_capture *capture = NULL;
    assert_ok(wr_capture_register(wr_runtime_opened(0), native_of(stream), pool, 0, &capture));
    return capture;
}

static void let_go_of_capture(wr_capture *capture)
{
    wr_keeps kept = { 0 };
    wr_capture_unregister(capture, &kept);
    wr_keeps_release(&kept);
}

static wr_mempool *record_of(weir_mempool id)
{
    wr_mempool *pool = NULL;
    wr_mempool_name name = 0;
    assert_ok(wr_mempool_find(id, &name, &pool));
    return pool;
}

static void a_request_before_the_capture_begins_is_none_of_it(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    wr_capture *capture = about_to_begin(origin, record_of(pool));
    void *block = alloc_on(MIB, origin);
    assert_false(SAME_POOL(info_of(block).pool, pool));
    let_go_of_capture(capture);
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(pool));
}

static void a_request_before_the_captures_id_is_known_belongs_to_it(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    wr_capture *capture = about_to_begin(origin, record_of(pool));
    assert_ok(wr_backend_host.capture_begin(0, native_of(origin), WEIR_CAPTURE_RELAXED));
    void *block = alloc_on(MIB, origin);
    assert_true(SAME_POOL(info_of(block).pool, pool));
    end_natively(native_of(origin));
    let_go_of_capture(capture);
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(pool));
}

static void a_capture_about_to_begin_is_not_taken_for_another_streams(void **state)
{
    (void)state;
    void *block = NULL;
    wr_capture *capture = about_to_begin(origin, wr_runtime_opened(0)->cache.pools);
    assert_ok(wr_backend_host.capture_begin(0, native_of(side), WEIR_CAPTURE_RELAXED));
    assert_status(weir_alloc_on(MIB, side, &block), WEIR_ERR_CAPTURE);
    end_natively(native_of(side));
    let_go_of_capture(capture);
}

static void captures_may_be_about_to_begin_on_several_streams(void **state)
{
    (void)state;
    wr_mempool *pool = wr_runtime_opened(0)->cache.pools;
    wr_capture *one = about_to_begin(origin, pool), *two = about_to_begin(side, pool);
    let_go_of_capture(one);
    let_go_of_capture(two);
}

/* ---- freeing inside ---------------------------------------------------------------------------------------------- */

static void memory_freed_inside_is_reused_at_once_on_its_stream(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    void *first = alloc_on(MIB, origin);
    assert_ok(weir_free(first));
    assert_ptr_equal(alloc_on(MIB, origin), first);
    assert_ok(weir_free(first));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

/* A block of the origin stream that the side stream works on. */
static void *block_used_on_side(void)
{
    void *block = alloc_on(16 * MIB, origin);
    assert_ok(weir_fill(block, 1, 100, origin));
    assert_ok(weir_stream_wait(side, origin));
    assert_ok(weir_record_stream(block, side));
    assert_ok(weir_fill(block, 2, 100, side));
    return block;
}

static void a_join_in_the_graph_frees_what_another_stream_used(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    void *block = block_used_on_side();
    assert_ok(weir_free(block));
    void *unproven = alloc_on(16 * MIB, origin);
    assert_ptr_not_equal(unproven, block);
    assert_ok(weir_stream_wait(origin, side));
    assert_ptr_equal(alloc_on(16 * MIB, origin), block);
    assert_ok(weir_free(block));
    assert_ok(weir_free(unproven));
    assert_ok(weir_validate(0));
    assert_ok(weir_graph_end(g));
    assert_int_equal(stats_of(0).pending_frees, 0);
    assert_ok(weir_graph_destroy(g));
}

static void work_after_the_join_is_not_proven_by_it(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    void *block = block_used_on_side();
    assert_ok(weir_stream_wait(origin, side));
    assert_ok(weir_fill(block, 3, 100, side)); /* not waited for yet */
    assert_ok(weir_free(block));
    void *other = alloc_on(16 * MIB, origin);
    assert_ptr_not_equal(other, block);
    assert_ok(weir_stream_wait(origin, side));
    assert_ptr_equal(alloc_on(16 * MIB, origin), block);
    assert_ok(weir_free(block));
    assert_ok(weir_free(other));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

static void work_of_another_stream_is_unproven_on_one_that_has_none(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    void *block = alloc_on(16 * MIB, origin);
    assert_ok(weir_stream_wait(side, origin));
    assert_ok(weir_record_stream(block, side));
    assert_ok(weir_fill(block, 2, 100, side));
    assert_ok(weir_free(block));
    assert_ptr_not_equal(alloc_on(16 * MIB, origin), block);
    assert_ok(weir_stream_wait(origin, side));
    assert_ptr_equal(alloc_on(16 * MIB, origin), block);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

/* What comes before the one stream's next work need not come before the other's. */
static void a_join_is_no_proof_for_blocks_of_another_stream(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    assert_ok(weir_stream_wait(side, origin));
    void *block = alloc_on(16 * MIB, side);
    assert_ok(weir_fill(block, 1, 100, side));
    assert_ok(weir_stream_wait(origin, side));
    assert_ok(weir_record_stream(block, origin));
    assert_ok(weir_fill(block, 2, 100, origin)); /* for which the block's own stream does not wait */
    assert_ok(weir_free(block));
    void *own = alloc_on(16 * MIB, origin);
    assert_ok(weir_record_stream(own, side));
    assert_ok(weir_free(own));
    (void)alloc_on(16 * MIB, origin);
    assert_ptr_not_equal(alloc_on(16 * MIB, side), block);
    assert_ok(weir_stream_wait(side, origin));
    assert_ptr_equal(alloc_on(16 * MIB, side), block);
    assert_ok(weir_stream_wait(origin, side));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

static void a_join_through_a_third_stream_is_proof(void **state)
{
    (void)state;
    weir_stream third = new_stream(0);
    weir_graph g = begin_on(origin);
    void *block = block_used_on_side();
    assert_ok(weir_free(block));
    assert_ok(weir_stream_wait(third, side));
    void *scratch = alloc_on(512, third);
    assert_ok(weir_fill(scratch, 3, 100, third));
    assert_ok(weir_stream_wait(origin, third));
    assert_ptr_equal(alloc_on(16 * MIB, origin), block);
    assert_ok(weir_free(block));
    assert_ok(weir_free(scratch));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_stream_destroy(third));
}

/* The walk back to the free keeps what it has found, whatever lies before. */
static void a_join_is_proof_whatever_came_before(void **state)
{
    (void)state;
    enum { NODES = 200 };
    weir_graph g = begin_on(origin);
    void *scratch = alloc_on(512, origin);
    for (int i = 0; i < NODES; i++) assert_ok(weir_fill(scratch, 1, 100, origin));
    void *block = block_used_on_side();
    assert_ok(weir_free(block));
    assert_ok(weir_stream_wait(origin, side));
    assert_ptr_equal(alloc_on(16 * MIB, origin), block);
    assert_ok(weir_free(block));
    assert_ok(weir_free(scratch));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

static void a_join_of_many_streams_is_proof_once_the_last_has_come_back(void **state)
{
    (void)state;
    enum { STREAMS = 40 };
    weir_stream streams[STREAMS];
    weir_graph g = begin_on(origin);
    void *block = alloc_on(16 * MIB, origin), *scratch = alloc_on(512, origin);
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = new_stream(0);
        assert_ok(weir_stream_wait(streams[i], origin));
        assert_ok(weir_record_stream(block, streams[i]));
        assert_ok(weir_fill(scratch, 1, 100, streams[i]));
    }
    assert_ok(weir_free(block));
    for (int i = 1; i < STREAMS; i++) assert_ok(weir_stream_wait(origin, streams[i]));
    assert_ptr_not_equal(alloc_on(16 * MIB, origin), block);
    assert_ok(weir_stream_wait(origin, streams[0]));
    assert_ptr_equal(alloc_on(16 * MIB, origin), block);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

/* What is found by the hash of its address is compared, too. */
static void unjoined_work_is_no_proof_however_much_is_known(void **state)
{
    (void)state;
    enum { NODES = 200, ROUNDS = 20 };
    weir_graph g = begin_on(origin);
    void *scratch = alloc_on(512, origin);
    for (int i = 0; i < NODES; i++) assert_ok(weir_fill(scratch, 1, 100, origin));
    for (int i = 0; i < ROUNDS; i++) {
        void *block = block_used_on_side();
        assert_ok(weir_free(block));
        void *other = alloc_on(16 * MIB, origin);
        assert_ptr_not_equal(other, block);
        assert_ok(weir_stream_wait(origin, side));
        assert_ptr_equal(alloc_on(16 * MIB, origin), block);
        assert_ok(weir_free(block));
        assert_ok(weir_free(other));
        assert_ok(weir_stream_wait(side, origin));
    }
    assert_ok(weir_stream_wait(origin, side));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

/* What was found until the driver failed stands for nothing before it. */
static void a_join_is_found_after_a_walk_that_failed(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        weir_graph g = begin_on(origin);
        void *scratch = alloc_on(512, origin), *block = block_used_on_side();
        assert_ok(weir_free(block));
        assert_ok(weir_stream_wait(origin, side));
        assert_ok(weir_fill(scratch, 3, 100, origin)); /* the join is behind it */
        assert_ok(weir_host_fail(WEIR_BACKEND_node_dependencies, nth, WEIR_ERR_DRIVER));
        void *other = alloc_on(16 * MIB, origin);
        assert_ptr_not_equal(other, block);
        assert_ok(weir_host_fail_clear());
        assert_ptr_equal(alloc_on(16 * MIB, origin), block);
        assert_ok(weir_free(block));
        assert_ok(weir_free(other));
        assert_ok(weir_free(scratch));
        assert_ok(weir_graph_end(g));
        assert_ok(weir_graph_destroy(g));
    }
}

/* A block that a stream outside got from such a pool is no part of the graph, so no join in the graph proves anything
 * about it. */
static void a_block_of_another_pool_waits_for_the_end_of_the_capture(void **state)
{
    (void)state;
    const weir_mempool other = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    weir_graph g = begin_on(origin);
    void *block = alloc_from(other, 16 * MIB, origin);
    assert_ok(weir_stream_wait(side, origin));
    assert_ok(weir_record_stream(block, side));
    assert_ok(weir_fill(block, 2, 100, side));
    assert_ok(weir_free(block));
    assert_ok(weir_stream_wait(origin, side));
    assert_ptr_not_equal(alloc_from(other, 16 * MIB, origin), block);
    assert_int_equal(pool_stats(other).pending_frees, 1);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
    assert_ptr_equal(alloc_from(other, 16 * MIB, origin), block);
}

/* The block is of the graph's pool but went to a stream outside, so another stream that has joined the capture by the
 * time of the free may still use it. */
static void a_block_handed_out_outside_waits_for_the_end_of_the_capture(void **state)
{
    (void)state;
    weir_stream third = new_stream(0);
    weir_graph g = begin_on(origin);
    unsigned char *block = alloc_from(pool_of(g), 16 * MIB, side);
    hold(third);
    assert_ok(weir_fill(block, 1, 16 * MIB, third));
    assert_ok(weir_record_stream(block, third));
    assert_ok(weir_stream_wait(side, origin));
    assert_ok(weir_stream_wait(third, origin));
    assert_ok(weir_free(block));
    assert_ok(weir_stream_wait(side, third));
    assert_ptr_not_equal(alloc_on(16 * MIB, side), block);
    assert_ok(weir_stream_wait(origin, side));
    assert_ok(weir_graph_end(g));
    let_run(third);
    assert_ok(weir_graph_destroy(g));
}

static void a_block_handed_out_in_another_capture_waits_for_the_end_of_this_one(void **state)
{
    (void)state;
    weir_stream third = new_stream(0);
    weir_graph one = begin_on(origin), two = begin_in(side, pool_of(one));
    unsigned char *block = alloc_on(16 * MIB, origin);
    assert_ok(weir_fill(block, 3, 16 * MIB, origin));
    assert_ok(weir_graph_end(one));
    launch_and_wait(one, origin);
    hold(third);
    assert_ok(weir_fill(block, 1, 16 * MIB, third)); /* works with the result */
    assert_ok(weir_record_stream(block, third));
    assert_ok(weir_stream_wait(origin, side));
    assert_ok(weir_stream_wait(third, side));
    assert_ok(weir_free(block));
    assert_ok(weir_stream_wait(origin, third));
    assert_ptr_not_equal(alloc_on(16 * MIB, origin), block);
    assert_ok(weir_stream_wait(side, origin));
    assert_ok(weir_graph_end(two));
    let_run(third);
    assert_ok(weir_graph_destroy(one));
    assert_ok(weir_graph_destroy(two));
}

/* The block was freed before the capture, is parked whole on its stream, and belongs to the capture once that gets
 * it. */
static void a_block_parked_before_the_capture_belongs_to_it_once_handed_out_inside(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    void *block = alloc_from(pool, 4096, origin);
    assert_ok(weir_free(block));
    weir_graph g = begin_in(origin, pool);
    assert_ptr_equal(alloc_on(4096, origin), block);
    assert_ok(weir_stream_wait(side, origin));
    assert_ok(weir_record_stream(block, side));
    assert_ok(weir_fill(block, 2, 100, side));
    assert_ok(weir_free(block));
    assert_ok(weir_stream_wait(origin, side));
    (void)alloc_on(16 * MIB, origin); /* reclaims finished frees */
    assert_ptr_equal(alloc_on(4096, origin), block);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

static void many_blocks_are_reclaimed_over_a_long_capture(void **state)
{
    (void)state;
    enum { ROUNDS = 200 };
    weir_graph g = begin_on(origin);
    for (int i = 0; i < ROUNDS; i++) {
        void *block = block_used_on_side();
        assert_ok(weir_free(block));
        assert_ok(weir_stream_wait(origin, side));
    }
    assert_ok(weir_graph_end(g));
    /* One block served all rounds, and a second one those that came before the join was noticed. */
    assert_in_range(reserved_on(0), 1, 40 * MIB);
    assert_ok(weir_graph_destroy(g));
}

static void a_block_recorded_on_a_stream_outside_waits_for_that_streams_work(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    void *block = alloc_on(16 * MIB, origin);
    hold(side);
    assert_ok(weir_fill(block, 2, 100, side));
    assert_ok(weir_record_stream(block, side));
    assert_ok(weir_free(block));
    void *other = alloc_on(16 * MIB, origin);
    assert_ptr_not_equal(other, block);
    assert_ok(weir_free(other));
    assert_ok(weir_graph_end(g));
    let_run(side);
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
}

static void a_block_never_proven_unused_is_free_after_the_capture(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    void *block = block_used_on_side();
    assert_ok(weir_free(block));
    assert_int_equal(stats_of(0).pending_frees, 1);
    assert_ok(weir_stream_wait(origin, side));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(stats_of(0).pending_frees, 0);
    assert_int_equal(reserved_on(0), 0);
}

static void memory_left_over_by_the_capture_goes_with_its_graph(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    assert_ok(weir_free(block_used_on_side()));
    assert_ok(weir_stream_wait(origin, side));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
    assert_int_equal(reserved_on(0), 0);
}

static void a_stream_that_a_free_inside_asked_about_can_be_destroyed(void **state)
{
    (void)state;
    weir_stream third = new_stream(0);
    weir_graph g = begin_on(origin);
    void *block = alloc_on(16 * MIB, origin);
    assert_ok(weir_stream_wait(third, origin));
    assert_ok(weir_record_stream(block, third));
    assert_ok(weir_free(block));
    assert_ok(weir_stream_wait(origin, third));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_stream_destroy(third)); /* while the block still waits for it */
    assert_ok(weir_graph_destroy(g));
}

static void the_own_stream_of_a_block_freed_inside_can_be_destroyed(void **state)
{
    (void)state;
    weir_stream third = new_stream(0);
    weir_graph g = begin_on(origin);
    assert_ok(weir_stream_wait(third, origin));
    void *block = alloc_on(16 * MIB, third);
    assert_ok(weir_record_stream(block, origin));
    assert_ok(weir_free(block));
    assert_ok(weir_stream_wait(origin, third));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_stream_destroy(third));
    assert_ok(weir_graph_destroy(g));
}

static void a_block_recorded_on_a_stream_that_has_ended_is_free_at_once_inside(void **state)
{
    (void)state;
    weir_stream third = new_stream(0);
    weir_graph g = begin_on(origin);
    void *block = alloc_on(16 * MIB, origin);
    assert_ok(weir_record_stream(block, third));
    assert_ok(weir_stream_destroy(third));
    assert_ok(weir_free(block));
    assert_ptr_equal(alloc_on(16 * MIB, origin), block);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

static void where_the_driver_tells_no_nodes_a_block_waits_for_the_end_of_the_capture(void **state)
{
    (void)state;
    weir_backend driver = wr_backend_host;
    wr_device *device = wr_runtime_opened(0);
    driver.capture_tips = NULL;
    driver.node_dependencies = NULL;
    weir_graph g = begin_on(origin);
    device->cache.backend = &driver;
    void *block = block_used_on_side();
    assert_ok(weir_free(block));
    assert_ok(weir_stream_wait(origin, side));
    assert_ptr_not_equal(alloc_on(16 * MIB, origin), block);
    assert_int_equal(stats_of(0).pending_frees, 1);
    assert_ok(weir_graph_end(g));
    device->cache.backend = &wr_backend_host;
    assert_ok(weir_graph_destroy(g));
    assert_int_equal(stats_of(0).pending_frees, 0);
}

static void frees_of_other_pools_touch_no_capturing_stream(void **state)
{
    (void)state;
    void *block = alloc_on(MIB, side);
    assert_ok(weir_record_stream(block, origin));
    weir_graph g = begin_on(origin);
    const uint64_t records = calls_of(WEIR_BACKEND_event_record);
    assert_ok(weir_free(block));
    assert_int_equal(calls_of(WEIR_BACKEND_event_record), records);
    void *next = alloc_on(MIB, side);
    assert_ptr_not_equal(next, block);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_free(next));
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(stats_of(0).pending_frees, 0);
}

/* ---- against other threads --------------------------------------------------------------------------------------- */

static atomic_bool stop;

/* Frees blocks recorded on the capturing stream, and polls for them, while captures come and go. */
static void *free_recorded_blocks(void *unused)
{
    (void)unused;
    while (!atomic_load(&stop)) {
        void *block = alloc_on(4096, side);
        assert_ok(weir_record_stream(block, origin));
        assert_ok(weir_free(block));
        assert_ok(weir_free(alloc_on(3 * MIB, side)));
        assert_ok(weir_empty_cache(0));
    }
    return NULL;
}

static void frees_of_another_thread_never_spoil_a_capture(void **state)
{
    (void)state;
    pthread_t thread;
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, free_recorded_blocks, NULL), 0);
    for (int i = 0; i < 300; i++) {
        weir_graph g = begin_on(origin);
        void *block = alloc_on(MIB, origin);
        assert_ok(weir_fill(block, (unsigned char)i, 100, origin));
        assert_ok(weir_graph_end(g));
        launch_and_wait(g, origin);
        assert_int_equal(*(unsigned char *)block, (unsigned char)i);
        assert_ok(weir_free(block));
        assert_ok(weir_graph_destroy(g));
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
}

static void *allocate_or_not(void *stream)
{
    void *block = NULL;
    const weir_status status = weir_alloc_on(4096, *(weir_stream *)stream, &block);
    assert_true(status == WEIR_OK || status == WEIR_ERR_INVALID_STREAM);
    return NULL;
}

/* Sanitizers see it if the driver is asked about a stream that is gone. */
static void a_stream_can_be_destroyed_while_an_allocation_asks_about_it(void **state)
{
    (void)state;
    pthread_t thread;
    weir_graph g = begin_on(origin);
    start_slowly(&thread, allocate_or_not, &side, WEIR_BACKEND_capture_status);
    assert_ok(weir_stream_destroy(side));
    pthread_join(thread, NULL);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

/* Another thread, which once had memory there, may free it before the allocation has marked it. */
static void a_block_that_is_freed_in_error_before_it_is_marked_stays_free(void **state)
{
    (void)state;
    enum { BLOCKS = 4, CAPTURE = 7 };
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = alloc_on(4096, origin);
    for (int i = 0; i < BLOCKS; i += 2) assert_ok(weir_free(blocks[i]));
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, BLOCKS / 2); /* they have gone to their bin */
    for (int i = 0; i < BLOCKS; i += 2) wr_graph_order_mark(blocks[i], CAPTURE);
    for (int i = 0; i < BLOCKS; i += 2) blocks[i] = alloc_on(4096, origin);
    assert_ok(weir_validate(0));
    for (int i = 0; i < BLOCKS; i++) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_empty_cache(0));
    wr_graph_order_mark(blocks[0], CAPTURE);
}

#define on_device(test) cmocka_unit_test_setup_teardown(test, open_device, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_device(memory_of_a_capture_belongs_to_the_graph_alone),
        on_device(memory_of_a_capture_belongs_to_its_graph_beside_another_beginning_there),
        on_device(every_stream_that_joins_allocates_from_the_graphs_pool),
        on_device(another_thread_allocates_for_the_capture_too),
        on_device(the_route_opened_last_wins),
        on_device(a_pool_named_inside_a_capture_is_kept_by_the_graph),
        on_device(a_capture_that_weir_was_not_told_of_is_refused_memory_while_another_is_known),
        on_device(an_invalidated_capture_is_refused_memory),
        on_device(a_hit_asks_the_driver_nothing_while_no_capture_is_underway),
        on_device(a_miss_asks_the_driver_for_no_capture_while_none_is_underway),
        on_device(a_launch_asks_the_driver_for_no_capture_while_none_is_underway),
        on_device(no_capture_is_counted_as_a_route_once_it_is_over),
        on_device(no_memory_is_given_inside_when_its_capture_cannot_be_found),
        on_device(out_of_memory_inside_a_capture_leaves_it_usable),
        on_device(a_capture_gets_idle_memory_of_others_when_memory_is_short),
        on_device(free_memory_of_a_capturing_stream_is_not_taken),
        on_device(a_capture_borrows_from_no_pool_that_lends),
        on_device(a_captured_stream_is_not_waited_for),
        cmocka_unit_test_setup_teardown(memory_of_a_stream_that_joined_another_devices_capture_comes_from_elsewhere,
                                        open_two_devices, close_host),
        on_device(a_captured_stream_is_not_asked_for_its_work),
        on_device(a_captured_stream_is_not_destroyed),
        on_device(a_request_before_the_capture_begins_is_none_of_it),
        on_device(a_request_before_the_captures_id_is_known_belongs_to_it),
        on_device(a_capture_about_to_begin_is_not_taken_for_another_streams),
        on_device(captures_may_be_about_to_begin_on_several_streams),
        on_device(memory_freed_inside_is_reused_at_once_on_its_stream),
        on_device(a_join_in_the_graph_frees_what_another_stream_used),
        on_device(work_after_the_join_is_not_proven_by_it),
        on_device(work_of_another_stream_is_unproven_on_one_that_has_none),
        on_device(a_join_is_no_proof_for_blocks_of_another_stream),
        on_device(a_join_through_a_third_stream_is_proof),
        on_device(a_join_of_many_streams_is_proof_once_the_last_has_come_back),
        on_device(unjoined_work_is_no_proof_however_much_is_known),
        on_device(a_join_is_found_after_a_walk_that_failed),
        on_device(a_join_is_proof_whatever_came_before),
        on_device(a_block_of_another_pool_waits_for_the_end_of_the_capture),
        on_device(a_block_handed_out_outside_waits_for_the_end_of_the_capture),
        on_device(a_block_handed_out_in_another_capture_waits_for_the_end_of_this_one),
        on_device(a_block_parked_before_the_capture_belongs_to_it_once_handed_out_inside),
        on_device(many_blocks_are_reclaimed_over_a_long_capture),
        on_device(a_block_recorded_on_a_stream_outside_waits_for_that_streams_work),
        on_device(a_block_never_proven_unused_is_free_after_the_capture),
        on_device(memory_left_over_by_the_capture_goes_with_its_graph),
        on_device(a_stream_that_a_free_inside_asked_about_can_be_destroyed),
        on_device(the_own_stream_of_a_block_freed_inside_can_be_destroyed),
        on_device(a_block_recorded_on_a_stream_that_has_ended_is_free_at_once_inside),
        on_device(where_the_driver_tells_no_nodes_a_block_waits_for_the_end_of_the_capture),
        on_device(frees_of_other_pools_touch_no_capturing_stream),
        on_device(frees_of_another_thread_never_spoil_a_capture),
        on_device(a_stream_can_be_destroyed_while_an_allocation_asks_about_it),
        on_device(a_block_that_is_freed_in_error_before_it_is_marked_stays_free),
    };
    return cmocka_run_group_tests_name("capture", tests, NULL, NULL);
}
