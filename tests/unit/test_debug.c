/*
 * The option `debug`: what each check finds, and that it reports nothing about a correct program.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/meta.h"
#include "device/debug_internal.h"
#include "device_support.h"
#include "graph_support.h"
#include "log_support.h"
#include "meanwhile_support.h"
#include "pool/address.h"
#include "pool_support.h"
#include "weir/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void open_with(const char *debug)
{
    open_host((weir_settings){ .host_memory = 256 * MIB, .debug = debug });
}

static void write_at(void *pointer, size_t offset, size_t bytes)
{
    assert_ok(weir_fill((char *)pointer + offset, 7, bytes, default_stream(0)));
}

static unsigned char byte_at(const void *pointer)
{
    unsigned char byte = 0;
    assert_ok(weir_copy(&byte, pointer, 1, default_stream(0)));
    assert_ok(weir_stream_synchronize(default_stream(0)));
    return byte;
}

/* ---- red zones --------------------------------------------------------------------------------------------------- */

static void a_write_past_the_end_is_found_when_it_is_freed(void **state)
{
    (void)state;
    open_with("redzone,stacks");
    void *good = alloc(1000), *bad = alloc(1000);
    write_at(good, 0, 1000);
    write_at(bad, 999, 2);
    assert_ok(weir_free(good));
    begin_log();
    assert_status(weir_free(bad), WEIR_ERR_CORRUPT);
    const char *log = end_log();
    assert_non_null(strstr(weir_error_text(), "has written past the end of the block"));
    assert_non_null(strstr(weir_error_text(), "allocated by thread"));
    assert_non_null(strstr(log, "(1000 bytes)"));
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 0); /* freed all the same */
}

static void a_size_that_a_red_zone_would_exceed_is_refused(void **state)
{
    (void)state;
    void *block = NULL;
    open_with("redzone");
    assert_status(weir_alloc(SIZE_MAX, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_null(block);
}

static void blocks_are_checked_after_call_stacks_were_recorded(void **state)
{
    (void)state;
    open_with("redzone");
    assert_ok(weir_free(alloc(1)));
    assert_ok(weir_history_start(100, 8));
    weir_history_stop();
    void *block = alloc(1000);
    write_at(block, 1000, 1);
    assert_status(weir_free(block), WEIR_ERR_CORRUPT);
}

static void blocks_of_streams_that_ended_are_not_checked(void **state)
{
    (void)state;
    open_with("redzone,poison");
    weir_stream stream = new_stream(0);
    void *block = alloc_on(1000, stream);
    assert_ok(weir_stream_destroy(stream));
    write_at(block, 1000, 1);
    assert_ok(weir_free(block));
}

static void contents_dropped_by_a_pause_are_not_reported_as_writes(void **state)
{
    (void)state;
    open_with("redzone");
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, ""));
    void *before = alloc_from(pool, 1000, default_stream(0));
    assert_ok(weir_pause(0, NULL, WEIR_PAUSE_DROP));
    assert_ok(weir_resume(0, NULL));
    void *after = alloc_from(pool, 1000, default_stream(0));
    assert_ok(weir_free(before));
    write_at(after, 999, 2);
    assert_status(weir_free(after), WEIR_ERR_CORRUPT);
}

static void a_log_that_says_more_goes_on_saying_it(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB, .debug = "redzone", .log = "info" });
    assert_int_equal(atomic_load(&wr_log_threshold), WR_LOG_INFO);
    assert_ok(weir_close());
    open_host((weir_settings){ .host_memory = 256 * MIB, .debug = "streams", .log = "error" });
    assert_int_equal(atomic_load(&wr_log_threshold), WR_LOG_WARN);
}

static void *to_free;
static weir_stream freed_on;

/* The free comes between the copying of the contents and the end of the mapping. */
static bool free_when_leaving(void *user, weir_range_change change, void *base, size_t bytes, int device)
{
    (void)user;
    (void)base;
    (void)bytes;
    (void)device;
    if (change != WEIR_RANGE_LEAVING || !to_free) return true;
    make_busy(freed_on);
    assert_ok(weir_free(to_free));
    to_free = NULL;
    return true;
}

static void memory_that_is_about_to_be_paused_is_left_alone(void **state)
{
    (void)state;
    open_with("poison");
    weir_mempool_options options = pool_options(WEIR_MEMORY_MAPPED, "");
    options.range_changed = free_when_leaving;
    freed_on = new_stream(0);
    to_free = alloc_from(make_pool(options), 1000, freed_on);
    assert_ok(weir_pause(0, NULL, WEIR_PAUSE_KEEP));
    assert_null(to_free);
    let_run(freed_on); /* a fill queued by the free would write to unmapped memory */
    assert_ok(weir_resume(0, NULL));
}

/* The work that the wait asked for completes later. */
static void a_wait_that_fails_while_a_block_is_checked_harms_nothing(void **state)
{
    (void)state;
    open_with("redzone");
    weir_stream stream = new_stream(0);
    void *block = alloc_on(1000, stream);
    make_busy(stream);
    const uint64_t before = calls_of(WEIR_BACKEND_event_synchronize);
    assert_ok(weir_host_fail(WEIR_BACKEND_event_synchronize, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_free(block));
    assert_int_equal(calls_of(WEIR_BACKEND_event_synchronize), before + 1);
    let_run(stream);
}

static void what_failing_waits_leave_behind_goes_when_the_library_is_closed(void **state)
{
    (void)state;
    const uint64_t before = wr_meta_live();
    open_with("redzone");
    const weir_stream stream = new_stream(0);
    for (int i = 0; i < 2; i++) {
        void *block = alloc_on(1000, stream);
        assert_ok(weir_host_fail(WEIR_BACKEND_event_synchronize, 1, WEIR_ERR_DRIVER));
        assert_ok(weir_free(block));
        assert_non_null(device_0()->cache.debug->awaited);
    }
    assert_ok(weir_close());
    assert_int_equal(wr_meta_live(), before);
    open_with("");
}

static void a_red_zone_that_may_not_be_looked_at_leaves_no_memory_behind(void **state)
{
    (void)state;
    open_with("redzone");
    weir_graph graph;
    void *block = alloc(1000);
    assert_ok(try_begin(new_stream(0), (weir_mempool){ 0, 0 }, &graph));
    assert_ok(weir_free(block));
    assert_null(device_0()->cache.debug->awaited);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_graph_destroy(graph));
}

static void a_red_zone_for_which_there_is_no_event_leaves_no_memory_behind(void **state)
{
    (void)state;
    open_with("redzone");
    void *block = alloc(1000);
    const uint64_t before = calls_of(WEIR_BACKEND_event_create);
    assert_ok(weir_host_fail(WEIR_BACKEND_event_create, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_free(block));
    assert_int_equal(calls_of(WEIR_BACKEND_event_create), before + 1);
    assert_null(device_0()->cache.debug->awaited);
}

static void a_stream_that_has_ended_counts_as_capturing(void **state)
{
    (void)state;
    open_with("redzone");
    const wr_stream gone = { 0 };
    assert_true(wr_debug_captures(device_0(), &gone));
}

static void a_red_zone_is_read_once(void **state)
{
    (void)state;
    open_with("redzone");
    void *block = alloc(1000);
    const uint64_t before = calls_of(WEIR_BACKEND_copy);
    assert_ok(weir_free(block));
    assert_int_equal(calls_of(WEIR_BACKEND_copy), before + 1);
}

static void looking_at_red_zones_uses_events_again(void **state)
{
    (void)state;
    open_with("redzone");
    assert_ok(weir_free(alloc(1000)));
    const uint64_t before = calls_of(WEIR_BACKEND_event_create);
    for (int i = 0; i < 100; i++) assert_ok(weir_free(alloc(1000)));
    assert_int_equal(calls_of(WEIR_BACKEND_event_create), before);
}

static void writing_a_red_zone_counts_as_work_that_weir_queued(void **state)
{
    (void)state;
    uint64_t before = 0, after = 0;
    open_with("redzone");
    const weir_stream stream = new_stream(0);
    assert_ok(weir_stream_queued(stream, &before));
    void *block = alloc_on(1000, stream);
    assert_ok(weir_stream_queued(stream, &after));
    assert_int_equal(after, before + 1);
    assert_ok(weir_free(block));
}

/* ---- poison ------------------------------------------------------------------------------------------------------ */

static void freed_memory_is_overwritten(void **state)
{
    (void)state;
    open_with("poison");
    unsigned char *block = alloc(4096), *other = alloc(4096);
    write_at(block, 0, 4096);
    assert_ok(weir_free(block));
    assert_int_equal(byte_at(block), 0xDB); /* a use after the free */
    assert_int_equal(byte_at(block + 4095), 0xDB);
    assert_ok(weir_free(other));
}

static void memory_that_other_streams_may_still_use_is_not_overwritten(void **state)
{
    (void)state;
    open_with("poison");
    weir_stream other = new_stream(0);
    unsigned char *block = alloc(4096);
    write_at(block, 0, 4096);
    assert_ok(weir_record_stream(block + 100, other));
    assert_ok(weir_free(block));
    assert_int_equal(byte_at(block), 7);
}

/* Another thread that destroys the stream may have waited for its work already (wr_cache_forget_stream). */
static void overwriting_a_block_counts_as_work_that_its_streams_heir_waits_for(void **state)
{
    (void)state;
    open_with("poison");
    const weir_stream stream = new_stream(0);
    const wr_stream *record = wr_stream_find(&device_0()->streams, stream.id);
    void *block = alloc_on(4096, stream);
    const uint64_t before = record->queued;
    assert_ok(weir_free(block));
    assert_int_equal(record->queued, before + 1);
}

static void freed_memory_is_not_overwritten_by_a_graph_that_the_program_captures_itself(void **state)
{
    (void)state;
    open_with("poison");
    const weir_backend *backend = wr_runtime_global.backend;
    const weir_stream stream = new_stream(0);
    void *graph = NULL, *executable = NULL, *block = alloc_on(4096, stream);
    assert_ok(weir_fill(block, 7, 4096, stream));
    assert_ok(backend->capture_begin(0, native_of(stream), WEIR_CAPTURE_RELAXED));
    assert_ok(weir_free(block));
    assert_ok(backend->capture_end(0, native_of(stream), &graph));
    assert_ok(backend->graph_instantiate(0, graph, &executable));
    assert_ok(backend->graph_launch(0, executable, native_of(stream)));
    assert_ok(weir_stream_synchronize(stream));
    assert_int_equal(byte_at(block), 7);
    assert_ok(backend->graph_exec_destroy(0, executable));
    assert_ok(backend->graph_destroy(0, graph));
}

/* A graph uses all memory of its pool, and may be running. */
static void freed_memory_that_a_graph_may_use_is_not_overwritten(void **state)
{
    (void)state;
    open_with("poison");
    weir_stream stream = new_stream(0);
    weir_graph graph;
    assert_ok(try_begin(stream, (weir_mempool){ 0, 0 }, &graph));
    void *block = alloc_on(4096, stream);
    assert_ok(weir_fill(block, 7, 4096, stream));
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_graph_launch(graph, stream));
    assert_ok(weir_free(block));
    assert_ok(weir_stream_synchronize(stream));
    assert_int_equal(byte_at(block), 7);
    assert_ok(weir_graph_destroy(graph));
}

static void what_a_graph_writes_behind_a_block_breaks_no_red_zone(void **state)
{
    (void)state;
    open_with("redzone");
    weir_stream stream = new_stream(0);
    weir_graph graph;
    weir_mempool pool = { 0 };
    assert_ok(try_begin(stream, (weir_mempool){ 0, 0 }, &graph));
    void *inside = alloc_on(100000, stream);
    assert_ok(weir_fill(inside, 7, 100000, stream));
    assert_ok(weir_free(inside));
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_graph_pool(graph, &pool));
    void *block = alloc_from(pool, 50000, stream);
    assert_ptr_equal(block, inside);
    assert_ok(weir_graph_launch(graph, stream));
    assert_ok(weir_free(block));
    assert_ok(weir_graph_destroy(graph));
}

/* ---- stacks and leaks -------------------------------------------------------------------------------------------- */

/* What a restored checkpoint changes is not followed: what was known of those addresses was of other blocks. */
static void a_restored_block_is_not_taken_for_the_one_that_was_there(void **state)
{
    (void)state;
    weir_mempool pool;
    weir_checkpoint *then = NULL;
    void *small = NULL, *large = NULL, *behind = NULL;
    open_with("all");
    weir_mempool_options o = WEIR_MEMPOOL_OPTIONS_INIT;
    o.device = 0;
    assert_ok(weir_mempool_create(&o, &pool));
    assert_ok(weir_alloc_from(pool, 1000, default_stream(0), &small));
    assert_ok(weir_mempool_checkpoint(pool, &then));
    assert_ok(weir_free(small));
    assert_ok(weir_alloc_from(pool, 100000, default_stream(0), &large));
    assert_ptr_equal(large, small);
    assert_ok(weir_mempool_restore(pool, then, NULL, NULL, NULL));
    assert_ok(weir_alloc_from(pool, 1000, default_stream(0), &behind));
    write_at(behind, 0, 1000);
    assert_ok(weir_free(small));
    assert_int_equal(byte_at(behind), 7);
    assert_ok(weir_free(behind));
    weir_checkpoint_destroy(then);
    assert_ok(weir_mempool_unref(pool));
    begin_log();
    assert_ok(weir_close());
    assert_string_equal(end_log(), "");
    open_with("");
}

static void blocks_that_a_restore_frees_are_no_leaks(void **state)
{
    (void)state;
    weir_mempool pool;
    weir_checkpoint *then = NULL;
    void *block = NULL;
    open_with("leaks");
    weir_mempool_options o = WEIR_MEMPOOL_OPTIONS_INIT;
    o.device = 0;
    assert_ok(weir_mempool_create(&o, &pool));
    assert_ok(weir_mempool_checkpoint(pool, &then));
    assert_ok(weir_alloc_from(pool, 1000, default_stream(0), &block));
    assert_ok(weir_mempool_restore(pool, then, NULL, NULL, NULL));
    weir_checkpoint_destroy(then);
    begin_log();
    assert_ok(weir_close());
    assert_string_equal(end_log(), "");
    open_with("");
}

static void a_second_free_reports_the_first(void **state)
{
    (void)state;
    open_with("stacks");
    void *block = alloc(1000);
    assert_ok(weir_free(block));
    assert_status(weir_free(block), WEIR_ERR_DOUBLE_FREE);
    assert_non_null(strstr(weir_error_text(), "\n1000 bytes allocated by thread"));
    assert_non_null(strstr(weir_error_text(), "\nfreed by thread"));
    assert_non_null(strstr(weir_error_text(), "unit_debug"));
}

static void a_stack_names_files_without_their_folders(void **state)
{
    (void)state;
    open_with("stacks");
    void *block = alloc(1000);
    assert_ok(weir_free(block));
    assert_status(weir_free(block), WEIR_ERR_DOUBLE_FREE);
    assert_null(strchr(weir_error_text(), '/'));
}

static void a_second_free_of_memory_that_the_driver_has_again_is_told_as_one(void **state)
{
    (void)state;
    open_with("stacks");
    void *block = alloc(1000);
    assert_ok(weir_free(block));
    assert_ok(weir_empty_cache(0));
    assert_status(weir_free(block), WEIR_ERR_DOUBLE_FREE);
    assert_ptr_equal(strstr(weir_error_text(), "weir_free: "), weir_error_text());
    assert_non_null(strstr(weir_error_text(), "was already freed, and its memory has gone back to the driver"));
    assert_non_null(strstr(weir_error_text(), "\n1000 bytes allocated by thread"));
    assert_non_null(strstr(weir_error_text(), "\nfreed by thread"));
    assert_status(weir_record_stream(block, new_stream(0)), WEIR_ERR_DOUBLE_FREE);
    assert_status(weir_free(state), WEIR_ERR_UNKNOWN_POINTER);
}

static void blocks_left_at_close_are_logged(void **state)
{
    (void)state;
    open_with("leaks,stacks");
    assert_ok(weir_free(alloc(100)));
    for (int i = 0; i < 30; i++) alloc(1000);
    begin_log();
    assert_ok(weir_close());
    const char *log = end_log();
    int lines = 0;
    for (const char *at = log; (at = strstr(at, "still allocated: 1000 bytes at")); at++) lines++;
    assert_int_equal(lines, 20);
    assert_non_null(strstr(log, "30 blocks, 29.30 KiB in all, are still allocated"));
    open_with("");
}

static void a_program_without_leaks_logs_nothing(void **state)
{
    (void)state;
    open_with("all");
    weir_stream other = new_stream(0);
    for (int i = 0; i < 200; i++) {
        void *block = alloc((size_t)i * 333 + 1);
        if (i % 3 == 0) assert_ok(weir_record_stream(block, other));
        write_at(block, 0, (size_t)i * 333 + 1);
        assert_ok(weir_free(block));
    }
    begin_log();
    assert_ok(weir_close());
    assert_string_equal(end_log(), "");
    open_with("");
}

typedef struct freeing {
    void *block;
    weir_status status;
} freeing;

static void *free_it(void *argument)
{
    freeing *f = argument;
    f->status = weir_free(f->block);
    return NULL;
}

static void *alloc_there(void *stream)
{
    return alloc_on(MIB, *(weir_stream *)stream);
}

/* Sanitizers see it if the driver is given a stream that is gone. */
static void a_stream_can_be_destroyed_while_a_red_zone_is_written(void **state)
{
    (void)state;
    open_with("redzone");
    pthread_t thread;
    void *block = NULL;
    weir_stream stream = new_stream(0);
    start_slowly(&thread, alloc_there, &stream, WEIR_BACKEND_fill);
    assert_ok(weir_stream_destroy(stream));
    pthread_join(thread, &block);
    assert_ok(weir_free(block));
}

/* The new block is not known before its red zone is written. */
static void a_second_free_does_not_free_the_block_that_is_just_handed_out_there(void **state)
{
    (void)state;
    open_with("redzone,leaks");
    pthread_t thread;
    void *again = NULL;
    weir_stream stream = new_stream(0);
    void *block = alloc_on(MIB, stream);
    assert_ok(weir_free(block));
    start_slowly(&thread, alloc_there, &stream, WEIR_BACKEND_fill);
    assert_status(weir_free(block), WEIR_ERR_DOUBLE_FREE);
    assert_non_null(strstr(weir_error_text(), "was freed before; another block is there now"));
    pthread_join(thread, &again);
    assert_ptr_equal(again, block);
    assert_ok(weir_free(again));
    begin_log();
    assert_ok(weir_close());
    assert_string_equal(end_log(), "");
    open_with("");
}

/* Nobody gives its memory back while the first looks at it. */
static void a_block_that_two_threads_free_is_refused_to_the_second_and_no_leak(void **state)
{
    (void)state;
    open_with("redzone,leaks");
    pthread_t thread;
    freeing f = { .block = alloc(MIB) };
    start_slowly(&thread, free_it, &f, WEIR_BACKEND_copy);
    assert_status(weir_free(f.block), WEIR_ERR_DOUBLE_FREE);
    assert_non_null(strstr(weir_error_text(), "is just being freed by another thread"));
    assert_ok(weir_empty_cache(0));
    pthread_join(thread, NULL);
    assert_int_equal(f.status, WEIR_OK);
    begin_log();
    assert_ok(weir_close());
    assert_string_equal(end_log(), "");
    open_with("");
}

static weir_status give_place(void *user, size_t bytes, int device, void *native_stream, void **base)
{
    (void)device;
    (void)native_stream;
    assert_int_equal(bytes, 2 * MIB);
    *base = user;
    return WEIR_OK;
}

static weir_status take_place_back(void *user, void *base, size_t bytes, int device, void *native_stream)
{
    (void)bytes;
    (void)device;
    (void)native_stream;
    assert_ptr_equal(base, user);
    return WEIR_OK;
}

/* A thread that frees a block twice is held up after it found the segment, until the memory has gone and come back. */
static void a_second_free_that_comes_late_leaves_no_block_that_cannot_be_freed(void **state)
{
    (void)state;
    open_with("leaks");
    void *place = aligned_alloc(2 * MIB, 2 * MIB);
    const weir_segment_source source = { give_place, take_place_back, NULL, place };
    const weir_mempool pool = make_pool_from(&source);
    void *block = alloc_from(pool, 1000, default_stream(0));
    const wr_segment *found = wr_address_find(block);
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_empty_cache(pool));
    void *other = alloc(1000); /* its segment has the record of the one that is gone */
    assert_ptr_equal(alloc_from(pool, 1000, default_stream(0)), block);
    assert_ptr_not_equal(wr_address_find(block), found);
    assert_ok(wr_debug_free(found, block, (wr_site){ 0 }));
    assert_status(weir_free(block), WEIR_ERR_DOUBLE_FREE);
    assert_ok(weir_free(other));
    begin_log();
    assert_ok(weir_close());
    assert_string_equal(end_log(), "");
    free(place);
    open_with("");
}

/* More blocks than are remembered. */
static void old_frees_are_forgotten(void **state)
{
    (void)state;
    open_with("stacks");
    const uint64_t before = wr_meta_live();
    static void *blocks[20000];
    for (int i = 0; i < 20000; i++) blocks[i] = alloc(512);
    for (int i = 0; i < 20000; i++) assert_ok(weir_free(blocks[i]));
    assert_in_range(wr_meta_live() - before, 16384, 18000);
    assert_status(weir_free(blocks[0]), WEIR_ERR_DOUBLE_FREE);
    assert_null(strstr(weir_error_text(), "freed by thread"));
    assert_status(weir_free(blocks[19999]), WEIR_ERR_DOUBLE_FREE);
    assert_non_null(strstr(weir_error_text(), "freed by thread"));
}

/* More than are remembered. */
static void a_block_that_was_freed_often_is_remembered(void **state)
{
    (void)state;
    open_with("stacks");
    for (int i = 0; i < 20000; i++) assert_ok(weir_free(alloc(1000)));
    void *block = alloc(1000);
    assert_ok(weir_free(block));
    assert_status(weir_free(block), WEIR_ERR_DOUBLE_FREE);
    assert_non_null(strstr(weir_error_text(), "freed by thread"));
}

/* ---- straight from the driver ------------------------------------------------------------------------------------ */

static void each_block_can_come_straight_from_the_driver(void **state)
{
    (void)state;
    open_with("nosub,stacks");
    const uint64_t before = calls_of(WEIR_BACKEND_segment_alloc);
    void *one = alloc(1000), *two = alloc(1000);
    assert_int_equal(calls_of(WEIR_BACKEND_segment_alloc) - before, 2);
    write_at(one, 0, 1000);
    assert_ok(weir_record_stream(one, new_stream(0)));
    assert_ok(weir_free(one));
    assert_int_equal(calls_of(WEIR_BACKEND_segment_free), 1);
    assert_status(weir_free(one), WEIR_ERR_DOUBLE_FREE);
    assert_non_null(strstr(weir_error_text(), "freed by thread"));
    assert_status(weir_free((char *)two + 1), WEIR_ERR_UNKNOWN_POINTER);
    assert_int_equal(stats_of(0).reserved_bytes[WEIR_STAT_ALL].current, 0);
    assert_ok(weir_close()); /* `two` goes with it */
    open_with("");
}

static void a_freed_driver_block_cannot_be_recorded(void **state)
{
    (void)state;
    open_with("nosub,stacks");
    weir_stream stream = new_stream(0);
    char *block = alloc(1000);
    assert_ok(weir_record_stream(block, stream));
    assert_status(weir_record_stream(block + 8, stream), WEIR_ERR_UNKNOWN_POINTER);
    assert_ok(weir_free(block));
    assert_status(weir_record_stream(block, stream), WEIR_ERR_DOUBLE_FREE);
    assert_non_null(strstr(weir_error_text(), "freed by thread"));
}

static void inside_a_capture_blocks_come_from_the_graphs_pool(void **state)
{
    (void)state;
    open_with("all,nosub");
    weir_stream stream = new_stream(0);
    weir_graph graph;
    assert_ok(try_begin(stream, (weir_mempool){ 0, 0 }, &graph));
    void *block = alloc_on(1000, stream);
    assert_ok(weir_fill(block, 1, 1000, stream));
    assert_ok(weir_free(block));
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_graph_launch(graph, stream));
    assert_ok(weir_stream_synchronize(stream));
    assert_ok(weir_graph_destroy(graph));
}

static void inside_a_capture_of_the_programs_own_no_block_comes_from_the_driver(void **state)
{
    (void)state;
    open_with("nosub");
    const weir_backend *backend = wr_runtime_global.backend;
    weir_stream stream = new_stream(0);
    assert_ok(backend->capture_begin(0, native_of(stream), WEIR_CAPTURE_RELAXED));
    void *block = alloc_on(1000, stream);
    end_natively(native_of(stream));
    assert_int_equal(info_of(block).requested, 1000); /* which is not known of the driver's */
    assert_ok(weir_free(block));
}

static void a_driver_block_is_not_freed_beside_a_capture(void **state)
{
    (void)state;
    open_with("nosub");
    weir_stream stream = new_stream(0);
    weir_graph graph;
    void *block = alloc(1000);
    assert_ok(try_begin(stream, (weir_mempool){ 0, 0 }, &graph));
    assert_status(weir_free(block), WEIR_ERR_CAPTURE);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_free(block));
    assert_ok(weir_graph_destroy(graph));
}

static void a_driver_block_that_is_freed_leaves_no_error(void **state)
{
    (void)state;
    open_with("nosub");
    char before[1024];
    void *block = alloc(1000);
    assert_status(weir_free(&block), WEIR_ERR_UNKNOWN_POINTER);
    snprintf(before, sizeof before, "%s", weir_error_text());
    assert_ok(weir_record_stream(block, new_stream(0)));
    assert_ok(weir_free(block));
    assert_string_equal(weir_error_text(), before);
}

/* As when its free is the oldest that is remembered, and another thread's free comes in between. */
static void a_driver_block_that_is_forgotten_meanwhile_is_refused(void **state)
{
    open_with("nosub");
    const uint64_t before = calls_of(WEIR_BACKEND_segment_free);
    assert_status(wr_debug_free_direct(device_0(), state, NULL), WEIR_ERR_DOUBLE_FREE);
    assert_int_equal(calls_of(WEIR_BACKEND_segment_free), before);
}

static void a_driver_block_is_freed_once_a_recorded_stream_of_another_device_is_done(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB, .host_devices = 2, .debug = "nosub" });
    const weir_stream far = new_stream(1);
    releaser releaser;
    void *block = alloc(1000);
    start_releaser(&releaser, far);
    assert_ok(weir_record_stream(block, far));
    assert_ok(weir_free(block));
    assert_ok(weir_stream_query(far));
    pthread_join(releaser.thread, NULL);
}

static void a_driver_block_is_freed_without_a_wait_for_devices_that_have_not_used_it(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB, .host_devices = 2, .debug = "nosub" });
    (void)new_stream(1);
    void *block = alloc(1000);
    const uint64_t before = calls_of(WEIR_BACKEND_device_synchronize);
    assert_ok(weir_free(block));
    assert_int_equal(calls_of(WEIR_BACKEND_device_synchronize), before + 1);
}

static void a_driver_block_that_cannot_be_recorded_in_the_table_goes_back(void **state)
{
    (void)state;
    open_with("nosub");
    void *block = NULL;
    (void)alloc(1000);
    const uint64_t before = free_memory(0), given_back = calls_of(WEIR_BACKEND_segment_free);
    for (uint64_t nth = 1; calls_of(WEIR_BACKEND_segment_free) == given_back; nth++) { /* the driver's come first */
        wr_meta_fail_nth(nth);
        assert_status(weir_alloc(MIB, &block), WEIR_ERR_OUT_OF_HOST_MEMORY);
    }
    wr_meta_fail_nth(0);
    assert_int_equal(free_memory(0), before);
}

static void *spare;

static bool free_the_spare(void *user, int device, size_t needed)
{
    (void)user;
    (void)device;
    (void)needed;
    if (!spare) return false;
    assert_ok(weir_free(spare));
    spare = NULL;
    return true;
}

static void for_a_driver_block_the_program_is_asked_where_memory_is_short(void **state)
{
    (void)state;
    open_with("nosub");
    void *block = NULL;
    assert_ok(weir_reclaim_add(free_the_spare, NULL));
    spare = alloc(200 * MIB);
    assert_ok(weir_alloc(200 * MIB, &block));
    assert_null(spare);
    void *more = NULL;
    assert_status(weir_alloc(200 * MIB, &more), WEIR_ERR_OUT_OF_MEMORY);
    assert_null(more);
    assert_ok(weir_free(block));
    assert_ok(weir_reclaim_remove(free_the_spare, NULL));
}

static void for_a_driver_block_idle_memory_of_weirs_goes_back_where_memory_is_short(void **state)
{
    (void)state;
    open_with("nosub");
    const weir_backend *backend = wr_runtime_global.backend;
    weir_stream stream = new_stream(0);
    void *block = NULL;
    assert_ok(backend->capture_begin(0, native_of(stream), WEIR_CAPTURE_RELAXED));
    void *inside = alloc_on(100 * MIB, stream);
    end_natively(native_of(stream));
    assert_ok(weir_free(inside));
    assert_ok(weir_alloc(200 * MIB, &block));
    assert_ok(weir_free(block));
}

static void *free_in_vain(void *block)
{
    return (void *)(intptr_t)weir_free(block);
}

/* Its last free is the oldest that is remembered, and is forgotten in the middle. */
static void a_driver_block_whose_free_is_refused_stays(void **state)
{
    (void)state;
    open_with("nosub");
    pthread_t thread;
    void *status = NULL, *again = NULL;
    void *block = alloc(MIB);
    assert_ok(weir_free(block));
    again = alloc(MIB);
    assert_ptr_equal(again, block);
    void *other = alloc(MIB);
    for (int i = 1; i < WR_DEBUG_FREED_KEPT; i++) {
        assert_ok(weir_free(other));
        other = alloc(MIB);
    }
    assert_ok(weir_host_fail(WEIR_BACKEND_device_synchronize, 1, WEIR_ERR_DRIVER));
    start_slowly(&thread, free_in_vain, again, WEIR_BACKEND_device_synchronize);
    assert_status(weir_free(again), WEIR_ERR_DOUBLE_FREE);
    assert_ok(weir_free(other));
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, WEIR_ERR_DRIVER);
    assert_ok(weir_free(again));
}

static void a_pool_that_promises_other_memory_serves_its_requests_itself(void **state)
{
    (void)state;
    open_with("nosub");
    weir_mempool_options aligned = pool_options(WEIR_MEMORY_DEVICE, "");
    aligned.alignment = 2 * MIB;
    const weir_mempool pinned = make_pool(pool_options(WEIR_MEMORY_PINNED, ""));
    const weir_mempool mapped = make_pool(pool_options(WEIR_MEMORY_MAPPED, "mapped")), even = make_pool(aligned);
    const uint64_t before = calls_of(WEIR_BACKEND_segment_alloc);
    assert_int_equal(info_of(alloc_from(pinned, MIB, WEIR_STREAM_CURRENT)).bytes, MIB);
    assert_int_equal(calls_of(WEIR_BACKEND_segment_alloc), before);
    for (int i = 0; i < 3; i++) assert_int_equal((uintptr_t)alloc_from(even, 4096, WEIR_STREAM_CURRENT) % (2 * MIB), 0);
    void *block = NULL;
    (void)alloc_from(mapped, MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_pause(0, "mapped", WEIR_PAUSE_DROP));
    assert_status(weir_alloc_from(mapped, MIB, WEIR_STREAM_CURRENT, &block), WEIR_ERR_BUSY);
    assert_ok(weir_resume(0, "mapped"));
}

static bool is_asked;

static bool notes_that_it_is_asked(void *user, int device, size_t needed)
{
    (void)user, (void)device, (void)needed;
    is_asked = true;
    return false;
}

static void more_than_1_eib_is_refused_at_once(void **state)
{
    (void)state;
    open_with("nosub");
    void *block = NULL;
    is_asked = false;
    assert_ok(weir_reclaim_add(notes_that_it_is_asked, NULL));
    assert_status(weir_alloc(SIZE_MAX, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(weir_error_text(), "is the size negative?"));
    assert_false(is_asked);
    assert_ok(weir_reclaim_remove(notes_that_it_is_asked, NULL));
}

/* ---- the option -------------------------------------------------------------------------------------------------- */

static void unknown_words_are_refused(void **state)
{
    (void)state;
    weir_settings s = WEIR_SETTINGS_INIT;
    s.backend = "host";
    s.debug = "redzone,nothing";
    assert_status(weir_open(&s), WEIR_ERR_OPTION);
    assert_non_null(strstr(weir_error_text(), "\"nothing\" from weir_settings"));
    s.debug = "redzones";
    assert_status(weir_open(&s), WEIR_ERR_OPTION);
    setenv("WEIR_DEBUG", "pink", 1);
    assert_status(weir_open(&s), WEIR_ERR_OPTION);
    assert_non_null(strstr(weir_error_text(), "\"pink\" from WEIR_DEBUG"));
    unsetenv("WEIR_DEBUG");
}

/* Each allocation of weir's own and each driver call fails in turn. */
static void failures_leave_nothing_behind(void **state)
{
    (void)state;
    static const char *const words[] = { "all", "nosub,leaks" };
    for (size_t w = 0; w < 2; w++)
        for (int kind = 0; kind < 2; kind++)
            for (uint64_t nth = 1; nth < 25; nth++) {
                open_with(words[w]);
                alloc(1);
                begin_log();
                void *block = NULL;
                if (kind)
                    wr_meta_fail_nth(nth);
                else
                    assert_ok(weir_host_fail_any(nth, WEIR_ERR_DRIVER));
                weir_status status = weir_alloc_on(3 * MIB, default_stream(0), &block);
                if (status == WEIR_OK) (void)!weir_free(block);
                wr_meta_fail_nth(0);
                assert_ok(weir_host_fail_clear());
                assert_ok(weir_validate(0));
                assert_ok(weir_close());
                assert_non_null(strstr(end_log(), "still allocated: 1 bytes"));
            }
    open_with("");
}

#define DEBUG(test) cmocka_unit_test_teardown(test, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_log_that_says_more_goes_on_saying_it, close_host),
        DEBUG(a_write_past_the_end_is_found_when_it_is_freed),
        DEBUG(a_size_that_a_red_zone_would_exceed_is_refused),
        DEBUG(blocks_are_checked_after_call_stacks_were_recorded),
        DEBUG(blocks_of_streams_that_ended_are_not_checked),
        DEBUG(contents_dropped_by_a_pause_are_not_reported_as_writes),
        DEBUG(memory_that_is_about_to_be_paused_is_left_alone),
        DEBUG(a_wait_that_fails_while_a_block_is_checked_harms_nothing),
        DEBUG(what_failing_waits_leave_behind_goes_when_the_library_is_closed),
        DEBUG(a_red_zone_that_may_not_be_looked_at_leaves_no_memory_behind),
        DEBUG(a_red_zone_for_which_there_is_no_event_leaves_no_memory_behind),
        DEBUG(a_stream_that_has_ended_counts_as_capturing),
        DEBUG(a_red_zone_is_read_once),
        DEBUG(looking_at_red_zones_uses_events_again),
        DEBUG(writing_a_red_zone_counts_as_work_that_weir_queued),
        DEBUG(freed_memory_is_overwritten),
        DEBUG(memory_that_other_streams_may_still_use_is_not_overwritten),
        DEBUG(overwriting_a_block_counts_as_work_that_its_streams_heir_waits_for),
        DEBUG(freed_memory_is_not_overwritten_by_a_graph_that_the_program_captures_itself),
        DEBUG(freed_memory_that_a_graph_may_use_is_not_overwritten),
        DEBUG(what_a_graph_writes_behind_a_block_breaks_no_red_zone),
        DEBUG(a_restored_block_is_not_taken_for_the_one_that_was_there),
        DEBUG(blocks_that_a_restore_frees_are_no_leaks),
        DEBUG(a_second_free_reports_the_first),
        DEBUG(a_stack_names_files_without_their_folders),
        DEBUG(a_second_free_of_memory_that_the_driver_has_again_is_told_as_one),
        DEBUG(blocks_left_at_close_are_logged),
        DEBUG(a_program_without_leaks_logs_nothing),
        DEBUG(a_stream_can_be_destroyed_while_a_red_zone_is_written),
        DEBUG(a_second_free_does_not_free_the_block_that_is_just_handed_out_there),
        DEBUG(a_block_that_two_threads_free_is_refused_to_the_second_and_no_leak),
        DEBUG(a_second_free_that_comes_late_leaves_no_block_that_cannot_be_freed),
        DEBUG(old_frees_are_forgotten),
        DEBUG(a_block_that_was_freed_often_is_remembered),
        DEBUG(each_block_can_come_straight_from_the_driver),
        DEBUG(a_freed_driver_block_cannot_be_recorded),
        DEBUG(inside_a_capture_blocks_come_from_the_graphs_pool),
        DEBUG(inside_a_capture_of_the_programs_own_no_block_comes_from_the_driver),
        DEBUG(a_driver_block_is_not_freed_beside_a_capture),
        DEBUG(a_driver_block_that_is_freed_leaves_no_error),
        DEBUG(a_driver_block_that_is_forgotten_meanwhile_is_refused),
        DEBUG(a_driver_block_is_freed_once_a_recorded_stream_of_another_device_is_done),
        DEBUG(a_driver_block_is_freed_without_a_wait_for_devices_that_have_not_used_it),
        DEBUG(a_driver_block_that_cannot_be_recorded_in_the_table_goes_back),
        DEBUG(for_a_driver_block_the_program_is_asked_where_memory_is_short),
        DEBUG(for_a_driver_block_idle_memory_of_weirs_goes_back_where_memory_is_short),
        DEBUG(a_driver_block_whose_free_is_refused_stays),
        DEBUG(a_pool_that_promises_other_memory_serves_its_requests_itself),
        DEBUG(more_than_1_eib_is_refused_at_once),
        DEBUG(failures_leave_nothing_behind),
        cmocka_unit_test(unknown_words_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
