/*
 * The word `streams` of the option `debug`: memory that a stream writes after the block was freed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/meta.h"
#include "debug_streams_support.h"
#include "device/debug_internal.h"
#include "device/runtime.h"
#include "graph_support.h"
#include "random_support.h"

static int open_poisoned(void **state)
{
    (void)state;
    open_streams("poison,streams");
    return 0;
}

static int open_recording(void **state)
{
    (void)state;
    history = 1000;
    open_streams("poison,streams");
    history = 0;
    return 0;
}

/* Work of another stream that is still queued when the block is freed. */
static void *freed_too_early(size_t bytes, size_t at)
{
    char *block = alloc_on(bytes, home);
    assert_ok(weir_stream_wait(other, home));
    hold(other);
    assert_ok(weir_fill(block + at, 7, 1, other));
    assert_ok(weir_free(block));
    assert_ok(weir_stream_synchronize(home));
    let_run(other);
    assert_non_null(strstr(said(), "by weir_fill; that use was not recorded"));
    assert_ok(weir_stats_reset(0));
    return block;
}

static void a_write_after_the_free_is_reported_at_the_next_use(void **state)
{
    (void)state;
    void *early = freed_too_early(10000, 9999), *block = alloc_on(10000, home);
    assert_ptr_equal(block, early);
    expect_said("10000 bytes, stream", "was written to after it was freed, 9999 bytes from its start",
                "freed by thread");
    assert_ok(weir_free(block));
}

static void a_write_far_into_a_large_block_is_reported_with_its_place(void **state)
{
    (void)state;
    void *early = freed_too_early(300000, 200000), *block = alloc_on(300000, home);
    assert_ptr_equal(block, early);
    expect_said("300000 bytes, stream", "was written to after it was freed, 200000 bytes from its start",
                "freed by thread");
    assert_ok(weir_free(block));
}

static WR_NOINLINE void write_when_freed(void)
{
    char *block = alloc_on(10000, home);
    hold(other);
    assert_ok(weir_fill(block, 7, 1, other));
    assert_ok(weir_free(block));
    assert_ok(weir_stream_synchronize(home));
    let_run(other);
    assert_ptr_equal(alloc_on(10000, home), block);
    assert_ok(weir_free(block));
    assert_ok(weir_stream_synchronize(home));
}

static void a_repeated_write_after_the_free_is_logged_once_and_counted(void **state)
{
    (void)state;
    for (volatile int i = 0; i < 2; i++) { /* not unrolled: one place */
        const uint64_t before = misuses();
        write_when_freed();
        const bool told = strstr(said(), "was written to after it was freed") != NULL;
        assert_int_equal(told, i == 0);
        assert_int_equal(misuses(), before + 2); /* with the use that was not recorded */
    }
}

static void only_the_first_mib_of_a_block_is_looked_at(void **state)
{
    (void)state;
    void *early = freed_too_early(3 * MIB, MIB), *block = alloc_on(3 * MIB, home);
    assert_ptr_equal(block, early);
    assert_int_equal(misuses(), 0);
    assert_ok(weir_free(block));
    early = freed_too_early(3 * MIB, MIB - 1);
    block = alloc_on(3 * MIB, home);
    assert_ptr_equal(block, early);
    expect_said("3145728 bytes, stream", "1048575 bytes from its start", "freed by thread");
    assert_ok(weir_free(block));
}

/* As when the second of two threads that free a block is refused, and its segment has gone in between. */
static void a_block_whose_segment_is_gone_has_no_poison(void **state)
{
    (void)state;
    void *block = alloc_on(10000, home);
    assert_ok(weir_free(block));
    assert_ok(weir_empty_cache(0));
    wr_debug_unpoison(atomic_load(&wr_runtime_global.devices[0]), NULL, block);
}

static int open_poisoned_torch(void **state)
{
    (void)state;
    policy = "torch"; /* freed blocks coalesce at once */
    open_streams("poison,streams");
    policy = NULL;
    return 0;
}

/* The rest of the freed block is checked when it is handed out. */
static void a_write_is_found_when_only_its_part_is_handed_out(void **state)
{
    (void)state;
    char *early = freed_too_early(5000, 4000), *small = alloc_on(1024, home);
    assert_ptr_equal(small, early);
    assert_int_equal(misuses(), 0);
    void *large = alloc_on(8000, home);
    assert_ptr_equal(large, early + 1024);
    expect_said("5000 bytes, stream", "was written to after it was freed, 4000 bytes", "allocated by thread");
    assert_ok(weir_free(large));
    assert_ok(weir_free(small));
    assert_ptr_equal(alloc_on(20000, home), early); /* written legitimately since then */
    assert_int_equal(misuses(), 1);
}

static void memory_that_went_to_another_stream_is_checked(void **state)
{
    (void)state;
    freed_too_early(3 * MIB, 0);
    assert_ok(weir_stream_destroy(third));
    assert_ok(weir_memory_limit_set(0, stats_of(0).reserved_bytes[WEIR_STAT_ALL].current));
    void *block = alloc_on(3 * MIB, other); /* there is no other memory */
    expect_said("3145728 bytes, stream", "was written to after it was freed, 0 bytes", "freed by thread");
    assert_ok(weir_free(block));
}

static void correct_programs_are_not_reported(void **state)
{
    (void)state;
    uint32_t random = 1;
    char *blocks[20] = { 0 };
    weir_stream streams[] = { home, other };
    for (int i = 0; i < 2000; i++) {
        const uint32_t r = next_random(&random);
        const unsigned at = r % 20, stream = at % 2;
        const size_t bytes = (r >> 4) % 100000 + 1;
        if (blocks[at]) {
            assert_ok(weir_free(blocks[at]));
            blocks[at] = NULL;
        } else {
            blocks[at] = alloc_on(bytes, streams[stream]);
            assert_ok(weir_fill(blocks[at], (unsigned char)i, bytes, streams[stream]));
        }
        if (i % 300 == 0) assert_ok(weir_empty_cache(0));
    }
    for (int i = 0; i < 20; i++) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_validate(0));
    expect_silence();
}

/* Fresh memory, at the addresses of old. */
static void memory_that_was_given_back_is_forgotten(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_ok(weir_free(alloc_on(30 * MIB, home)));
        assert_ok(weir_empty_cache(0));
    }
    expect_silence();
}

static void what_was_handed_out_again_counts_no_more_among_what_is_remembered(void **state)
{
    (void)state;
    const wr_debug *d = wr_runtime_opened(0)->cache.debug;
    void *block = alloc_on(1000, home);
    assert_ok(weir_free(block));
    assert_int_equal(d->poisoned_count, 1);
    assert_ptr_equal(alloc_on(1000, home), block);
    assert_int_equal(d->poisoned_count, 0);
    assert_ok(weir_free(block));
}

/* As many as are remembered. Nothing of them is handed out again, nor given back. */
static void what_need_not_be_checked_any_more_makes_room_for_what_is_freed_later(void **state)
{
    (void)state;
    enum { MANY = (1 << 16) + 1000, LIVE = 1024 };
    static void *blocks[MANY];
    for (int i = 0; i < MANY; i++) blocks[i] = alloc_on(512, home);
    for (int i = 0; i < MANY; i++)
        if (i % LIVE != 0) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_free(alloc_on(30 * MIB, third)));
    assert_ok(weir_empty_cache(0));
    void *early = freed_too_early(3 * MIB, 9999), *block = alloc_on(3 * MIB, home);
    assert_ptr_equal(block, early);
    expect_said("3145728 bytes, stream", "was written to after it was freed, 9999 bytes from its start",
                "freed by thread");
    assert_ok(weir_free(block));
    for (int i = 0; i < MANY; i += LIVE) assert_ok(weir_free(blocks[i]));
}

static void paused_memory_is_forgotten(void **state)
{
    (void)state;
    weir_mempool pool;
    weir_mempool_options o = WEIR_MEMPOOL_OPTIONS_INIT;
    void *kept = NULL, *block = NULL;
    o.device = 0;
    o.memory = WEIR_MEMORY_MAPPED;
    assert_ok(weir_mempool_create(&o, &pool));
    assert_ok(weir_alloc_from(pool, 1000, home, &kept));
    assert_ok(weir_alloc_from(pool, 1000, home, &block));
    assert_ok(weir_free(block));
    assert_ok(weir_pause(0, NULL, WEIR_PAUSE_KEEP));
    assert_ok(weir_resume(0, NULL));
    assert_ok(weir_alloc_from(pool, 1000, home, &block));
    expect_silence();
    assert_ok(weir_free(block));
    assert_ok(weir_free(kept));
    assert_ok(weir_mempool_unref(pool));
}

static void restored_blocks_are_not_checked_as_freed(void **state)
{
    (void)state;
    weir_mempool pool;
    weir_checkpoint *then = NULL;
    weir_mempool_options o = WEIR_MEMPOOL_OPTIONS_INIT;
    void *block = NULL, *again = NULL;
    o.device = 0;
    assert_ok(weir_mempool_create(&o, &pool));
    assert_ok(weir_alloc_from(pool, 1000, home, &block));
    assert_ok(weir_mempool_checkpoint(pool, &then));
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_restore(pool, then, NULL, NULL, NULL));
    assert_ok(weir_fill(block, 1, 1000, home));
    assert_ok(weir_free(block));
    assert_ok(weir_alloc_from(pool, 1000, home, &again));
    assert_ptr_equal(again, block);
    expect_silence();
    assert_ok(weir_free(again));
    weir_checkpoint_destroy(then);
    assert_ok(weir_mempool_unref(pool));
}

static void free_memory_of_a_graph_is_not_checked(void **state)
{
    (void)state;
    weir_graph graph;
    assert_ok(try_begin(home, (weir_mempool){ 0, 0 }, &graph));
    void *block = alloc_on(1000, home);
    assert_ok(weir_fill(block, 1, 1000, home));
    assert_ok(weir_free(block));
    assert_ok(weir_graph_end(graph));
    weir_mempool pool = { 0 };
    assert_ok(weir_graph_pool(graph, &pool));
    for (int i = 0; i < 3; i++) {
        void *mine = NULL;
        assert_ok(weir_alloc_from(pool, 1000, home, &mine));
        assert_ptr_equal(mine, block);
        assert_ok(weir_free(mine));
        assert_ok(weir_graph_launch(graph, home));
    }
    assert_ok(weir_stream_synchronize(home));
    expect_silence();
    assert_ok(weir_graph_destroy(graph));
}

/* Each allocation of weir's own and each driver call fails in turn. */
static void failures_leave_nothing_behind(void **state)
{
    (void)state;
    end_log();
    assert_ok(weir_close());
    const uint64_t live = wr_meta_live();
    for (int kind = 0; kind < 2; kind++)
        for (uint64_t nth = 1; nth < 25; nth++) {
            open_streams("poison,streams");
            void *blocks[3] = { alloc_on(1000, home), alloc_on(5000, home), NULL };
            if (kind)
                wr_meta_fail_nth(nth);
            else
                assert_ok(weir_host_fail_any(nth, WEIR_ERR_DRIVER));
            for (int i = 0; i < 2; i++) (void)!weir_free(blocks[i]);
            (void)!weir_alloc_on(3000, home, &blocks[2]);
            wr_meta_fail_nth(0);
            assert_ok(weir_host_fail_clear());
            assert_ok(weir_validate(0));
            assert_ok(weir_close());
            end_log();
        }
    assert_int_equal(wr_meta_live(), live);
    open_streams("");
}

static int open_direct(void **state)
{
    (void)state;
    open_streams("nosub,streams");
    return 0;
}

/* Freeing such a block waits for the device. */
static void memory_that_came_straight_from_the_driver_before_is_fresh(void **state)
{
    (void)state;
    weir_mempool pool;
    weir_mempool_options o = WEIR_MEMPOOL_OPTIONS_INIT;
    void *before = alloc_on(2 * MIB, home), *block = NULL;
    o.device = 0;
    o.alignment = 2 * MIB; /* with that it serves its requests itself */
    assert_ok(weir_mempool_create(&o, &pool));
    assert_ok(weir_free(before));
    assert_ok(weir_alloc_from(pool, 2 * MIB, home, &block));
    assert_ptr_equal(block, before);
    assert_ok(weir_fill(block, 1, 64, other));
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(pool));
    expect_silence();
}

/* Memory is made of chunks unless both words are given: freed chunks, which may be in use at a second address, are then
 * read again. */
static void only_both_words_together_need_memory_without_chunks(void **state)
{
    static const char *const alone[] = { "poison", "streams" };
    for (int i = 0; i < 2; i++) {
        open_streams(alone[i]);
        assert_true(wr_runtime_opened(0)->cache.chunks.region_bytes != 0);
        close_them(state);
    }
    open_streams("poison,streams");
    assert_int_equal(wr_runtime_opened(0)->cache.chunks.region_bytes, 0);
}

static void without_the_option_nothing_is_reported(void **state)
{
    (void)state;
    open_streams("all");
    void *block = alloc_on(1000, home);
    assert_ok(weir_fill(block, 1, 1000, home));
    use(block, other);
    assert_ok(weir_free(block));
    expect_silence();
}

static void a_write_after_the_free_is_an_event(void **state)
{
    (void)state;
    void *early = freed_too_early(10000, 9999);
    assert_ptr_equal(alloc_on(10000, home), early);
    expect_event(WEIR_EVENT_LATE_WRITE, early, 10000, home);
}

#define POISONED(test) cmocka_unit_test_setup_teardown(test, open_poisoned, close_them)

int main(void)
{
    const struct CMUnitTest tests[] = {
        POISONED(a_write_after_the_free_is_reported_at_the_next_use),
        POISONED(a_write_far_into_a_large_block_is_reported_with_its_place),
        POISONED(a_repeated_write_after_the_free_is_logged_once_and_counted),
        POISONED(only_the_first_mib_of_a_block_is_looked_at),
        POISONED(a_block_whose_segment_is_gone_has_no_poison),
        cmocka_unit_test_setup_teardown(a_write_is_found_when_only_its_part_is_handed_out, open_poisoned_torch,
                                        close_them),
        POISONED(memory_that_went_to_another_stream_is_checked),
        POISONED(correct_programs_are_not_reported),
        POISONED(memory_that_was_given_back_is_forgotten),
        POISONED(what_was_handed_out_again_counts_no_more_among_what_is_remembered),
        POISONED(what_need_not_be_checked_any_more_makes_room_for_what_is_freed_later),
        POISONED(paused_memory_is_forgotten),
        POISONED(restored_blocks_are_not_checked_as_freed),
        POISONED(free_memory_of_a_graph_is_not_checked),
        POISONED(failures_leave_nothing_behind),
        cmocka_unit_test_setup_teardown(memory_that_came_straight_from_the_driver_before_is_fresh, open_direct,
                                        close_them),
        cmocka_unit_test_teardown(only_both_words_together_need_memory_without_chunks, close_them),
        cmocka_unit_test_teardown(without_the_option_nothing_is_reported, close_them),
        cmocka_unit_test_setup_teardown(a_write_after_the_free_is_an_event, open_recording, close_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
