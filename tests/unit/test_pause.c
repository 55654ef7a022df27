#include "pool/pause.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "device/device.h"
#include "meanwhile_support.h"
#include "pool_support.h"
#include "sanitized.h"

#include <sched.h>

static wr_device *device;
static const weir_backend *real;

static int open_device(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB, .host_devices = 2 });
    assert_int_equal(wr_runtime_device(0, &device), WEIR_OK);
    real = device->cache.backend;
    return 0;
}

static int close_device(void **state)
{
    device->cache.backend = real;
    return close_host(state);
}

static weir_mempool mapped(const char *tag)
{
    return make_pool(pool_options(WEIR_MEMORY_MAPPED, tag));
}

/* A pool with blocks of many sizes, full of something. */
#define PIECES 24
typedef struct filled {
    weir_mempool pool;
    void *block[PIECES];
    size_t bytes[PIECES];
} filled;

static filled fill_pool(weir_mempool pool, weir_stream stream)
{
    filled f = { .pool = pool };
    for (unsigned i = 0; i < PIECES; i++) {
        f.bytes[i] = i % 5 == 4 ? 1500000 + 1000 * i : 300 + 4000 * i;
        f.block[i] = alloc_from(pool, f.bytes[i], i % 2 ? stream : WEIR_STREAM_CURRENT);
        write_pattern(f.block[i], f.bytes[i], i);
    }
    return f;
}

static void give(filled *f, unsigned i)
{
    assert_ok(weir_free(f->block[i]));
    f->block[i] = NULL;
}

static void check(const filled *f)
{
    for (unsigned i = 0; i < PIECES; i++)
        if (f->block[i] && !has_pattern(f->block[i], f->bytes[i], i)) fail_msg("block %u is not what it was", i);
    assert_ok(weir_validate(0));
}

static void give_all(filled *f)
{
    for (unsigned i = 0; i < PIECES; i++)
        if (f->block[i]) give(f, i);
}

/* ---- what it is for ---------------------------------------------------------------------------------------------- */

static void contents_are_back_after_resuming(void **state)
{
    (void)state;
    filled f = fill_pool(mapped("a"), new_stream(0));
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_true(pool_info(f.pool).paused);
    assert_ok(weir_resume(0, "a"));
    assert_false(pool_info(f.pool).paused);
    check(&f);
    give_all(&f);
}

static void memory_left_mapped_by_a_failed_resume_can_be_resumed(void **state)
{
    (void)state;
    filled f = fill_pool(mapped("a"), new_stream(0));
    const int64_t reserved = reserved_on(0);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_access, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, 1, WEIR_ERR_TIMEOUT));
    assert_status(weir_resume(0, "a"), WEIR_ERR_DRIVER);
    assert_true(reserved_on(0) > 0); /* what is mapped */
    assert_ok(weir_validate(0));
    assert_ok(weir_resume(0, "a"));
    assert_int_equal(reserved_on(0), reserved);
    check(&f);
    give_all(&f);
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_mempool_empty_cache(f.pool));
    assert_int_equal(reserved_on(0), 0);
}

static void dropped_memory_is_usable_after_resuming(void **state)
{
    (void)state;
    filled f = fill_pool(mapped("a"), new_stream(0));
    const uint64_t pinned = calls_of(WEIR_BACKEND_pinned_alloc);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_DROP));
    assert_ok(weir_resume(0, "a"));
    assert_int_equal(calls_of(WEIR_BACKEND_pinned_alloc), pinned);
    for (unsigned i = 0; i < PIECES; i++) write_pattern(f.block[i], f.bytes[i], i);
    check(&f);
    give_all(&f);
}

static void the_driver_has_the_memory_meanwhile(void **state)
{
    (void)state;
    filled f = fill_pool(mapped("a"), new_stream(0));
    const uint64_t left = free_memory(0);
    const int64_t reserved = reserved_on(0), own = pool_stats(f.pool).reserved_bytes[WEIR_STAT_ALL].current;
    const weir_memory_stats before = stats_of(0);
    assert_true(own > 0);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_int_equal(free_memory(0), left + (uint64_t)own);
    assert_int_equal(reserved_on(0), reserved - own);
    assert_int_equal(stats_of(0).paused_bytes, own);
    assert_int_equal(pool_stats(f.pool).reserved_bytes[WEIR_STAT_ALL].current, 0);
    assert_int_equal(pool_stats(f.pool).paused_bytes, own);
    assert_int_equal(stats_of(0).segment[WEIR_STAT_ALL].current, before.segment[WEIR_STAT_ALL].current);
    assert_int_equal(stats_of(0).allocated_bytes[WEIR_STAT_ALL].current, before.allocated_bytes[WEIR_STAT_ALL].current);
    assert_ok(weir_validate(0));
    assert_ok(weir_resume(0, "a"));
    assert_int_equal(free_memory(0), left);
    assert_int_equal(reserved_on(0), reserved);
    assert_int_equal(stats_of(0).paused_bytes, 0);
    assert_int_equal(stats_of(0).reserved_bytes[WEIR_STAT_SMALL].current,
                     before.reserved_bytes[WEIR_STAT_SMALL].current);
    check(&f);
}

static void free_memory_goes_without_a_copy(void **state)
{
    (void)state;
    weir_mempool pool = mapped("a");
    void *large = alloc_from(pool, 40 * MIB, WEIR_STREAM_CURRENT), *small = alloc_from(pool, 700, WEIR_STREAM_CURRENT);
    assert_ok(weir_free(large));
    write_pattern(small, 700, 3);
    const uint64_t pinned = calls_of(WEIR_BACKEND_pinned_alloc), copies = calls_of(WEIR_BACKEND_copy);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_int_equal(calls_of(WEIR_BACKEND_pinned_alloc), pinned + 1);
    assert_int_equal(calls_of(WEIR_BACKEND_copy), copies + 1);
    assert_int_equal(reserved_on(0), 0);
    assert_ok(weir_resume(0, "a"));
    assert_true(has_pattern(small, 700, 3));
    assert_ptr_equal(alloc_from(pool, 40 * MIB, WEIR_STREAM_CURRENT), large);
}

static void pools_of_one_tag_go_together_and_others_stay(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    filled one = fill_pool(mapped("a"), stream), two = fill_pool(mapped("a"), stream);
    filled other = fill_pool(make_pool(pool_options(WEIR_MEMORY_EXPORTABLE, "b")), stream);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_true(pool_info(one.pool).paused && pool_info(two.pool).paused);
    assert_false(pool_info(other.pool).paused);
    check(&other);
    assert_ok(weir_pause(0, NULL, WEIR_PAUSE_KEEP)); /* what is left */
    assert_true(pool_info(other.pool).paused);
    assert_ok(weir_resume(0, "b"));
    check(&other);
    assert_true(pool_info(one.pool).paused);
    assert_ok(weir_resume(0, NULL));
    check(&one);
    check(&two);
}

static void pausing_waits_for_the_work(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *block = alloc_from(mapped("a"), 3 * MIB, stream);
    slow_work work = { .milliseconds = 30 };
    start_slow_work(stream, &work);
    assert_ok(weir_fill(block, 0x5a, 3 * MIB, stream));
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_true(atomic_load(&work.done));
    assert_ok(weir_resume(0, "a"));
    assert_int_equal(((unsigned char *)block)[3 * MIB - 1], 0x5a);
}

static void a_thousand_cycles_leave_nothing_behind(void **state)
{
    (void)state;
    filled f = fill_pool(mapped("a"), new_stream(0));
    for (unsigned i = 5; i < PIECES; i++) give(&f, i); /* copying is not suspected of leaving something behind */
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));    /* what is made once is made now */
    assert_ok(weir_resume(0, "a"));
    const uint64_t left = free_memory(0), records = wr_meta_live();
    const uint64_t kept = calls_of(WEIR_BACKEND_pinned_alloc) - calls_of(WEIR_BACKEND_pinned_free);
    const uint64_t streams = calls_of(WEIR_BACKEND_stream_create) - calls_of(WEIR_BACKEND_stream_destroy);
    for (int i = 0; i < (SANITIZED ? 40 : 1000); i++) {
        assert_ok(weir_pause(0, i % 3 ? "a" : NULL, WEIR_PAUSE_KEEP));
        assert_ok(weir_resume(0, "a"));
    }
    check(&f);
    assert_int_equal(free_memory(0), left);
    assert_int_equal(wr_meta_live(), records);
    assert_int_equal(calls_of(WEIR_BACKEND_pinned_alloc) - calls_of(WEIR_BACKEND_pinned_free), kept);
    assert_int_equal(calls_of(WEIR_BACKEND_stream_create) - calls_of(WEIR_BACKEND_stream_destroy), streams);
    assert_int_equal(reserved_on(0), pool_stats(f.pool).reserved_bytes[WEIR_STAT_ALL].current);
}

/* ---- while paused ------------------------------------------------------------------------------------------------ */

static void allocating_is_refused_while_paused(void **state)
{
    (void)state;
    void *block = NULL;
    weir_mempool pool = mapped("a");
    assert_ok(weir_free(alloc_from(pool, MIB, WEIR_STREAM_CURRENT)));
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_status(weir_alloc_from(pool, MIB, WEIR_STREAM_CURRENT, &block), WEIR_ERR_BUSY);
    assert_null(block);
    assert_non_null(strstr(weir_error_text(), "weir_resume"));
    assert_ok(weir_free(alloc(MIB)));
    assert_ok(weir_resume(0, "a"));
    alloc_from(pool, MIB, WEIR_STREAM_CURRENT);
}

static void blocks_freed_while_paused_are_free_and_the_rest_stays(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    filled f = fill_pool(mapped("a"), stream);
    give(&f, 3);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    void *gone = f.block[7];
    for (unsigned i = 4; i < 20; i += 3) give(&f, i); /* 7 among them */
    give(&f, 8);                                      /* merges */
    assert_status(weir_free(gone), WEIR_ERR_DOUBLE_FREE);
    assert_ok(weir_validate(0));
    const uint64_t copies = calls_of(WEIR_BACKEND_copy);
    assert_ok(weir_resume(0, "a"));
    assert_true(calls_of(WEIR_BACKEND_copy) > copies);
    check(&f);
    give_all(&f);
    assert_ok(weir_mempool_empty_cache(f.pool)); /* the whole pool is one free piece again */
    assert_int_equal(pool_stats(f.pool).reserved_bytes[WEIR_STAT_ALL].current, 0);
}

static void a_segment_freed_whole_while_paused_is_not_copied_back(void **state)
{
    (void)state;
    weir_mempool pool = mapped("a");
    void *block = alloc_from(pool, 30 * MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_ok(weir_free(block));
    const uint64_t copies = calls_of(WEIR_BACKEND_copy);
    assert_ok(weir_resume(0, "a"));
    assert_int_equal(calls_of(WEIR_BACKEND_copy), copies);
    assert_int_equal(calls_of(WEIR_BACKEND_pinned_alloc), calls_of(WEIR_BACKEND_pinned_free));
    assert_ptr_equal(alloc_from(pool, 30 * MIB, WEIR_STREAM_CURRENT), block);
}

static void pending_blocks_keep_their_contents(void **state)
{
    (void)state;
    weir_stream elsewhere = new_stream(1);
    void *graph = NULL;
    weir_mempool pool = mapped("a");
    void *block = alloc_from(pool, 2 * MIB, WEIR_STREAM_CURRENT);
    write_pattern(block, 2 * MIB, 9);
    assert_ok(real->capture_begin(1, native_of(elsewhere), WEIR_CAPTURE_RELAXED));
    assert_ok(weir_record_stream(block, elsewhere));
    assert_ok(weir_free(block));
    assert_int_equal(stats_of(0).pending_frees, 1);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_ok(weir_resume(0, "a"));
    assert_int_equal(stats_of(0).pending_frees, 1);
    assert_true(has_pattern(block, 2 * MIB, 9));
    assert_ok(real->capture_end(1, native_of(elsewhere), &graph));
    assert_ok(real->graph_destroy(1, graph));
    assert_ok(weir_mempool_empty_cache(pool));
    assert_int_equal(stats_of(0).pending_frees, 0);
}

static void pending_blocks_of_a_paused_pool_hold_no_memory(void **state)
{
    (void)state;
    weir_stream elsewhere = new_stream(1);
    void *graph = NULL, *none = NULL;
    weir_mempool pool = mapped("a");
    void *block = alloc_from(pool, 2 * MIB, WEIR_STREAM_CURRENT);
    assert_ok(real->capture_begin(1, native_of(elsewhere), WEIR_CAPTURE_RELAXED));
    assert_ok(weir_record_stream(block, elsewhere));
    assert_ok(weir_free(block));
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_DROP));
    assert_status(weir_alloc(300 * MIB, &none), WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(weir_error_text(), ", 0 bytes freed but awaiting other streams"));
    assert_ok(real->capture_end(1, native_of(elsewhere), &graph));
    assert_ok(real->graph_destroy(1, graph));
}

static void blocks_tell_whether_they_are_paused(void **state)
{
    (void)state;
    size_t count = 0;
    weir_block_info block = { 0 };
    weir_mempool pool = mapped("a");
    alloc_from(pool, 2 * MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_mempool_blocks(pool, &block, 1, &count));
    assert_false(block.paused);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_DROP));
    assert_ok(weir_mempool_blocks(pool, &block, 1, &count));
    assert_true(block.paused);
    assert_ok(weir_resume(0, "a"));
    assert_ok(weir_mempool_blocks(pool, &block, 1, &count));
    assert_false(block.paused);
}

static void paused_memory_is_given_back_by_no_one_else(void **state)
{
    (void)state;
    weir_mempool pool = mapped("a");
    void *block = alloc_from(pool, 30 * MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_free(block));
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    const uint64_t released = calls_of(WEIR_BACKEND_vm_release);
    assert_ok(weir_empty_cache(0));
    assert_status(weir_mempool_empty_cache(pool), WEIR_ERR_BUSY);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_release), released);
    assert_int_equal(stats_of(0).paused_bytes, 30 * MIB);
    assert_ok(weir_resume(0, "a"));
    assert_ptr_equal(alloc_from(pool, 30 * MIB, WEIR_STREAM_CURRENT), block);
}

static void a_pool_that_lends_cannot_be_paused(void **state)
{
    (void)state;
    weir_mempool pool;
    weir_mempool_options options = pool_options(WEIR_MEMORY_MAPPED, "a");
    options.use_on_oom = true;
    assert_ok(weir_mempool_create(&options, &pool));
    assert_status(weir_pause(0, "a", WEIR_PAUSE_KEEP), WEIR_ERR_NOT_SUPPORTED);
    assert_ok(weir_pause(0, NULL, WEIR_PAUSE_KEEP)); /* all that can be */
    weir_mempool_info info = { .size = sizeof info };
    assert_ok(weir_mempool_info_get(pool, &info));
    assert_false(info.paused);
}

static void the_stream_of_a_paused_block_may_end(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *block = alloc_from(mapped("a"), MIB, stream);
    write_pattern(block, MIB, 1);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_ok(weir_stream_destroy(stream));
    assert_ok(weir_resume(0, "a"));
    assert_true(has_pattern(block, MIB, 1));
    assert_ok(weir_free(block));
}

static void a_pool_may_die_while_paused(void **state)
{
    (void)state;
    const uint64_t left = free_memory(0);
    weir_mempool pool = mapped("a");
    void *block = alloc_from(pool, 30 * MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_ok(weir_mempool_unref(pool));
    assert_ok(weir_validate(0));
    assert_ok(weir_free(block));
    assert_ok(weir_empty_cache(0));
    assert_status(weir_mempool_ref(pool), WEIR_ERR_POOL_MISMATCH);
    assert_int_equal(stats_of(0).paused_bytes, 0);
    assert_int_equal(stats_of(0).segment[WEIR_STAT_ALL].current, 0);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_release), calls_of(WEIR_BACKEND_vm_reserve));
    assert_int_equal(calls_of(WEIR_BACKEND_pinned_free), calls_of(WEIR_BACKEND_pinned_alloc));
    assert_int_equal(free_memory(0), left);
    assert_status(weir_resume(0, "a"), WEIR_ERR_INVALID_ARGUMENT);
}

static void an_idle_pool_dies_with_its_last_reference_while_paused(void **state)
{
    (void)state;
    weir_mempool pool = mapped("a");
    assert_ok(weir_free(alloc_from(pool, 30 * MIB, WEIR_STREAM_CURRENT)));
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_ok(weir_mempool_unref(pool));
    assert_status(weir_mempool_ref(pool), WEIR_ERR_POOL_MISMATCH);
    assert_int_equal(stats_of(0).paused_bytes, 0);
}

static void the_library_closes_while_pools_are_paused(void **state)
{
    (void)state;
    assert_ok(weir_close());
    const uint64_t records = wr_meta_live();
    assert_int_equal(open_device(NULL), 0);
    (void)fill_pool(mapped("a"), new_stream(0));
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_ok(weir_close());
    assert_int_equal(wr_meta_live(), records);
    assert_int_equal(open_device(NULL), 0);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void tags_and_modes_are_checked(void **state)
{
    (void)state;
    mapped("a");
    assert_status(weir_pause(0, "b", WEIR_PAUSE_KEEP), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_resume(0, "b"), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_pause(0, "", WEIR_PAUSE_KEEP), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_resume(0, ""), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_pause(0, "a", (weir_pause_mode)2), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_pause(7, "a", WEIR_PAUSE_KEEP), WEIR_ERR_NO_DEVICE);
    assert_status(weir_pause(1, "a", WEIR_PAUSE_KEEP), WEIR_ERR_INVALID_ARGUMENT);
    assert_ok(weir_pause(1, NULL, WEIR_PAUSE_KEEP)); /* all of none */
    assert_ok(weir_resume(1, NULL));
}

static void memory_that_is_not_mapped_is_refused_and_nothing_happens(void **state)
{
    (void)state;
    weir_mempool good = mapped("a"), bad = make_pool(pool_options(WEIR_MEMORY_DEVICE, "a"));
    assert_status(weir_pause(0, "a", WEIR_PAUSE_KEEP), WEIR_ERR_NOT_SUPPORTED);
    assert_false(pool_info(good).paused);
    assert_ok(weir_pause(0, NULL, WEIR_PAUSE_KEEP));
    assert_true(pool_info(good).paused);
    assert_false(pool_info(bad).paused);
}

static void resuming_leaves_pools_alone_that_cannot_be_paused(void **state)
{
    (void)state;
    filled f = fill_pool(mapped("a"), new_stream(0));
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    (void)make_pool(pool_options(WEIR_MEMORY_DEVICE, "a"));
    assert_ok(weir_resume(0, "a"));
    check(&f);
}

static void pausing_twice_is_pausing_once(void **state)
{
    (void)state;
    filled f = fill_pool(mapped("a"), new_stream(0));
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_DROP));
    assert_ok(weir_resume(0, "a"));
    check(&f);
    assert_ok(weir_resume(0, "a"));
    check(&f);
}

static void pausing_leaves_a_capture_alone(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    filled f = fill_pool(mapped("a"), new_stream(0));
    assert_ok(real->capture_begin(0, native_of(stream), WEIR_CAPTURE_GLOBAL));
    assert_status(weir_pause(0, "a", WEIR_PAUSE_KEEP), WEIR_ERR_CAPTURE);
    assert_false(pool_info(f.pool).paused);
    end_natively(native_of(stream));
    check(&f);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
}

/* ---- too little memory ------------------------------------------------------------------------------------------- */

static void without_room_everything_stays_paused_and_is_kept(void **state)
{
    (void)state;
    filled f = fill_pool(mapped("a"), new_stream(0)), g = fill_pool(mapped("a"), WEIR_STREAM_CURRENT);
    const uint64_t paused = (uint64_t)reserved_on(0);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    const size_t all_but_one_segment = free_memory(0) - 4 * MIB;
    void *hog = alloc(all_but_one_segment);
    assert_status(weir_resume(0, "a"), WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(weir_error_text(), "stay paused"));
    assert_null(strstr(weir_error_text(), "raise the limit"));
    assert_true(pool_info(f.pool).paused && pool_info(g.pool).paused);
    assert_int_equal(stats_of(0).paused_bytes, paused);
    assert_int_equal(free_memory(0), 4 * MIB);
    assert_ok(weir_validate(0));
    assert_ok(weir_free(hog)); /* idle now, and given back to make room */
    assert_ok(weir_resume(0, "a"));
    check(&f);
    check(&g);
}

static void a_failed_resume_says_what_private_pools_keep_idle(void **state)
{
    (void)state;
    const weir_mempool pool = mapped("a"), idle = mapped("b");
    (void)alloc_from(pool, 100 * MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_DROP));
    assert_ok(weir_free(alloc_from(idle, 40 * MIB, WEIR_STREAM_CURRENT)));
    void *hog = alloc(150 * MIB);
    assert_status(weir_resume(0, "a"), WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(weir_error_text(), "40.00 MiB of that idle in private pools"));
    assert_ok(weir_mempool_empty_cache(idle));
    assert_ok(weir_resume(0, "a"));
    assert_ok(weir_free(hog));
}

/* One of two pools was released, and the last of its blocks was freed while it was paused. */
static void a_pool_that_went_while_paused_needs_no_room(void **state)
{
    (void)state;
    const weir_mempool gone = mapped("a"), kept = mapped("a");
    void *block = alloc_from(gone, 128 * MIB, WEIR_STREAM_CURRENT);
    write_pattern(alloc_from(kept, 96 * MIB, WEIR_STREAM_CURRENT), MIB, 1);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_ok(weir_mempool_unref(gone));
    assert_ok(weir_free(block));
    void *other = alloc(120 * MIB);
    assert_ok(weir_resume(0, "a"));
    assert_false(pool_info(kept).paused);
    assert_ok(weir_free(other));
}

static void the_limit_holds_for_resuming(void **state)
{
    (void)state;
    filled f = fill_pool(mapped("a"), new_stream(0));
    const uint64_t reserved = (uint64_t)reserved_on(0);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_ok(weir_memory_limit_set(0, 2 * MIB));
    assert_status(weir_resume(0, "a"), WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(weir_error_text(), "raise the limit"));
    assert_ok(weir_memory_limit_set(0, reserved));
    for (int i = 0; i < 3; i++) { /* just enough, each time */
        assert_ok(weir_resume(0, "a"));
        assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    }
    assert_ok(weir_resume(0, "a"));
    check(&f);
}

static void pending_frees_are_waited_for_to_make_room(void **state)
{
    (void)state;
    slow_work work = { .milliseconds = 50 };
    weir_stream stream = new_stream(0);
    filled f = fill_pool(mapped("a"), stream);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    void *hog = alloc(free_memory(0) - 2 * MIB);
    start_slow_work(stream, &work);
    assert_ok(weir_record_stream(hog, stream));
    assert_ok(weir_free(hog));
    assert_ok(weir_resume(0, "a"));
    assert_true(atomic_load(&work.done));
    check(&f);
}

static void resuming_without_new_memory_ignores_the_limit(void **state)
{
    (void)state;
    filled f = fill_pool(mapped("a"), new_stream(0));
    (void)make_pool(pool_options(WEIR_MEMORY_MAPPED, "empty"));
    assert_ok(weir_memory_limit_set(0, 2 * MIB)); /* less than is held */
    assert_ok(weir_resume(0, "a"));
    assert_ok(weir_pause(0, "empty", WEIR_PAUSE_KEEP));
    assert_ok(weir_resume(0, "empty"));
    check(&f);
}

static bool free_it(void *user, int ordinal, size_t needed)
{
    void **block = user;
    assert_int_equal(ordinal, 0);
    assert_true(needed > 0);
    if (!*block) return false;
    assert_ok(weir_free(*block));
    *block = NULL;
    return true;
}

static void the_program_is_asked_for_room(void **state)
{
    (void)state;
    filled f = fill_pool(mapped("a"), new_stream(0));
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    void *hog = alloc(free_memory(0) - 2 * MIB);
    assert_ok(weir_reclaim_add(free_it, &hog));
    assert_ok(weir_resume(0, "a"));
    assert_null(hog);
    check(&f);
}

static void without_pinned_memory_nothing_is_paused(void **state)
{
    (void)state;
    filled f = fill_pool(mapped("a"), new_stream(0));
    assert_ok(weir_host_fail(WEIR_BACKEND_pinned_alloc, 2, WEIR_ERR_OUT_OF_HOST_MEMORY));
    assert_status(weir_pause(0, "a", WEIR_PAUSE_KEEP), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_false(pool_info(f.pool).paused);
    assert_int_equal(calls_of(WEIR_BACKEND_pinned_free), 1);
    check(&f);
    assert_int_equal(stats_of(0).paused_bytes, 0);
}

/* ---- drivers that refuse ----------------------------------------------------------------------------------------- */

static void memory_that_the_driver_does_not_take_is_back_after_resuming(void **state)
{
    (void)state;
    filled f = fill_pool(mapped("a"), new_stream(0));
    const int64_t reserved = reserved_on(0);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_destroy, 2, WEIR_ERR_DRIVER));
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_true(reserved_on(0) > 0); /* it is still weir's, and counts as reserved */
    assert_int_equal(reserved_on(0) + (int64_t)stats_of(0).paused_bytes, reserved);
    assert_ok(weir_validate(0));
    assert_ok(weir_resume(0, "a"));
    assert_int_equal(reserved_on(0), reserved);
    check(&f);
    give_all(&f);
    assert_ok(weir_mempool_empty_cache(f.pool));
    assert_int_equal(calls_of(WEIR_BACKEND_vm_destroy), calls_of(WEIR_BACKEND_vm_create) + 1);
}

/* Resuming fails at the second segment, and the driver does not take back the memory that the first has by then. */
static void memory_left_by_a_failed_resume_counts_and_serves_the_next(enum weir_backend_entry refuses)
{
    filled f = fill_pool(mapped("a"), new_stream(0));
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    const uint64_t paused = stats_of(0).paused_bytes, left = free_memory(0);
    const int64_t reserved = reserved_on(0);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_create, 2, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(refuses, 1, WEIR_ERR_DRIVER));
    assert_status(weir_resume(0, "a"), WEIR_ERR_DRIVER);
    assert_non_null(strstr(weir_error_text(), "vm_create")); /* not what failed afterwards */
    assert_true(pool_info(f.pool).paused);
    assert_true(free_memory(0) < left);
    assert_int_equal(paused - stats_of(0).paused_bytes, left - free_memory(0));
    assert_int_equal(reserved_on(0) - reserved, left - free_memory(0));
    assert_ok(
        weir_memory_limit_set(0, (uint64_t)reserved_on(0) + stats_of(0).paused_bytes)); /* what is there counts once */
    assert_ok(weir_resume(0, "a"));
    assert_int_equal(left - free_memory(0), paused);
    check(&f);
}

static void memory_that_the_driver_refuses_after_a_failed_resume_is_taken_back_later(void **state)
{
    (void)state;
    const uint64_t before = free_memory(0);
    weir_mempool pool = mapped("a");
    void *block = alloc_from(pool, 4 * MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_DROP));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_access, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, 1, WEIR_ERR_DRIVER));
    assert_status(weir_resume(0, "a"), WEIR_ERR_DRIVER);
    assert_ok(weir_free(block));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_destroy, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_mempool_unref(pool));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(free_memory(0), before);
}

static void memory_left_mapped_after_a_failed_resume_serves_the_next(void **state)
{
    (void)state;
    memory_left_by_a_failed_resume_counts_and_serves_the_next(WEIR_BACKEND_vm_unmap);
}

static void memory_left_mapped_that_is_unmapped_by_another_failed_resume_is_mapped_again(void **state)
{
    (void)state;
    filled f = fill_pool(mapped("a"), new_stream(0));
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_access, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, 1, WEIR_ERR_DRIVER));
    assert_status(weir_resume(0, "a"), WEIR_ERR_DRIVER);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_access, 1, WEIR_ERR_DRIVER));
    assert_status(weir_resume(0, "a"), WEIR_ERR_DRIVER);
    assert_ok(weir_resume(0, "a"));
    check(&f);
}

static void memory_left_behind_by_a_failed_resume_serves_the_next(void **state)
{
    (void)state;
    memory_left_by_a_failed_resume_counts_and_serves_the_next(WEIR_BACKEND_vm_destroy);
}

static void resuming_may_fail_again_and_again(void **state)
{
    (void)state;
    filled f = fill_pool(mapped("a"), new_stream(0));
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    const uint64_t paused = stats_of(0).paused_bytes, left = free_memory(0);
    for (uint64_t segment = 2; segment > 0; segment--) { /* the first has memory for a while, then none */
        assert_ok(weir_host_fail(WEIR_BACKEND_vm_create, segment, WEIR_ERR_DRIVER));
        assert_status(weir_resume(0, "a"), WEIR_ERR_DRIVER);
        assert_int_equal(stats_of(0).paused_bytes, paused);
        assert_int_equal(free_memory(0), left);
    }
    assert_ok(weir_resume(0, "a"));
    check(&f);
}

static void a_copy_that_was_given_back_is_not_given_back_again(void **state)
{
    (void)state;
    weir_mempool pool = mapped("a");
    void *block = alloc_from(pool, 12 * MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_ok(weir_host_fail(WEIR_BACKEND_pinned_free, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_resume(0, "a")); /* the copy stays with the segment */
    assert_ok(weir_free(block));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_destroy, 1, WEIR_ERR_DRIVER));
    assert_status(weir_mempool_empty_cache(pool), WEIR_ERR_DRIVER); /* the copy goes, the segment stays */
    const uint64_t freed = calls_of(WEIR_BACKEND_pinned_free);
    assert_ok(weir_mempool_empty_cache(pool));
    assert_int_equal(calls_of(WEIR_BACKEND_pinned_free), freed);
}

static void unmapping_that_fails_is_undone(void **state)
{
    (void)state;
    filled f = fill_pool(mapped("a"), new_stream(0));
    const uint64_t left = free_memory(0);
    const weir_stat reserved = stats_of(0).reserved_bytes[WEIR_STAT_ALL];
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, 2, WEIR_ERR_DRIVER));
    assert_status(weir_pause(0, "a", WEIR_PAUSE_DROP), WEIR_ERR_DRIVER);
    assert_false(pool_info(f.pool).paused);
    assert_int_equal(free_memory(0), left);
    assert_memory_equal(&stats_of(0).reserved_bytes[WEIR_STAT_ALL], &reserved, sizeof reserved); /* the totals too */
    check(&f); /* although they were to be dropped */
}

static void pausing_that_cannot_be_undone_loses_nothing(void **state)
{
    (void)state;
    filled f = fill_pool(mapped("a"), new_stream(0));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, 2, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_map, 1, WEIR_ERR_DRIVER));
    assert_status(weir_pause(0, "a", WEIR_PAUSE_DROP), WEIR_ERR_DRIVER);
    assert_non_null(strstr(weir_error_text(), "undoing"));
    assert_true(pool_info(f.pool).paused);
    assert_int_equal(stats_of(0).paused_bytes, 0);
    assert_ok(weir_validate(0));
    assert_ok(weir_resume(0, "a"));
    check(&f);
}

static void a_copy_that_is_not_taken_back_is_not_mistaken_for_contents(void **state)
{
    (void)state;
    filled f = fill_pool(mapped("a"), new_stream(0));
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_ok(weir_host_fail(WEIR_BACKEND_pinned_free, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_resume(0, "a"));
    give(&f, 1);
    for (unsigned i = 0; i < PIECES; i++)
        if (f.block[i]) write_pattern(f.block[i], f.bytes[i], i);
    ((char *)f.block[2])[5] ^= 1;
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_ok(weir_resume(0, "a"));
    ((char *)f.block[2])[5] ^= 1;
    check(&f);
    assert_int_equal(calls_of(WEIR_BACKEND_pinned_free), calls_of(WEIR_BACKEND_pinned_alloc) + 1);
}

/* ---- others at work ---------------------------------------------------------------------------------------------- */

static weir_backend driver; /* the device's, with an entry replaced */

static weir_status access_and_pause(int ordinal, void *base, size_t bytes, int accessor)
{
    driver.vm_access = real->vm_access;
    weir_status status = real->vm_access(ordinal, base, bytes, accessor);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP)); /* what another thread may do at that moment */
    return status;
}

static int destroyed;

static weir_status count_destroyed(int ordinal, weir_chunk chunk, size_t bytes)
{
    destroyed++;
    return real->vm_destroy(ordinal, chunk, bytes);
}

/* In the end the driver is asked once more. */
static void a_copy_that_is_never_taken_back_keeps_no_memory(void **state)
{
    (void)state;
    (void)alloc_from(mapped("a"), 12 * MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_ok(weir_host_fail(WEIR_BACKEND_pinned_free, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_resume(0, "a")); /* the copy stays with the segment */
    assert_ok(weir_host_fail(WEIR_BACKEND_pinned_free, 1, WEIR_ERR_DRIVER));
    driver = *real;
    driver.vm_destroy = count_destroyed;
    device->cache.backend = &driver;
    destroyed = 0;
    assert_status(weir_close(), WEIR_ERR_DRIVER);
    assert_int_equal(destroyed, 1);
    assert_int_equal(open_device(NULL), 0);
}

static void memory_that_comes_while_the_pool_is_being_paused_goes_back(void **state)
{
    (void)state;
    void *block = NULL;
    weir_mempool pool = mapped("a");
    const uint64_t left = free_memory(0);
    driver = *real;
    driver.vm_access = access_and_pause;
    device->cache.backend = &driver;
    assert_status(weir_alloc_from(pool, MIB, WEIR_STREAM_CURRENT, &block), WEIR_ERR_BUSY);
    device->cache.backend = real;
    assert_int_equal(free_memory(0), left);
    assert_int_equal(stats_of(0).segment[WEIR_STAT_ALL].current, 0);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_release), calls_of(WEIR_BACKEND_vm_reserve));
    assert_ok(weir_resume(0, "a"));
    alloc_from(pool, MIB, WEIR_STREAM_CURRENT);
}

static wr_mempool *record_of(weir_mempool id)
{
    wr_mempool_name name = 0;
    wr_mempool *pool = NULL;
    assert_ok(wr_mempool_find(id, &name, &pool));
    return pool;
}

/* As while graphs of the other pool are launched one after another, by so many threads that one always is. */
static int came, left_again;

static bool count_changes(void *user, weir_range_change change, void *base, size_t bytes, int ordinal)
{
    (void)user, (void)base, (void)bytes, (void)ordinal;
    *(change == WEIR_RANGE_ADDED ? &came : &left_again) += 1;
    return true;
}

static void the_program_is_told_of_memory_that_goes_back_unused(void **state)
{
    (void)state;
    void *block = NULL;
    weir_mempool_options options = pool_options(WEIR_MEMORY_MAPPED, "a");
    options.range_changed = count_changes;
    weir_mempool pool = make_pool(options);
    came = left_again = 0;
    driver = *real;
    driver.vm_access = access_and_pause;
    device->cache.backend = &driver;
    assert_status(weir_alloc_from(pool, MIB, WEIR_STREAM_CURRENT, &block), WEIR_ERR_BUSY);
    device->cache.backend = real;
    assert_int_equal(came, 1);
    assert_int_equal(left_again, 1);
}

static void a_use_of_one_pool_does_not_hold_off_the_pause_of_another(void **state)
{
    (void)state;
    wr_mempool *used = record_of(mapped("used"));
    (void)alloc_from(mapped("paused"), MIB, WEIR_STREAM_CURRENT);
    assert_true(wr_pause_hold_off_pool(used));
    assert_ok(weir_pause(0, "paused", WEIR_PAUSE_DROP)); /* would not return */
    wr_pause_let_on(used);
    assert_ok(weir_pause(0, "used", WEIR_PAUSE_DROP));
    assert_false(wr_pause_hold_off_pool(used));
    assert_ok(weir_resume(0, NULL));
}

static void *pause_a(void *argument)
{
    (void)argument;
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    return NULL;
}

static void *resume_a(void *argument)
{
    (void)argument;
    assert_ok(weir_resume(0, "a"));
    return NULL;
}

/* A thread pauses the pools with the tag "a", and waits for a use of this one. */
static void start_pause_of(weir_mempool pool, pthread_t *thread)
{
    assert_true(wr_pause_hold_off_pool(record_of(pool)));
    start(thread, pause_a, NULL);
    while (!pool_info(pool).paused) sched_yield();
}

static int leaving;

static bool count_leaving(void *user, weir_range_change change, void *base, size_t bytes, int ordinal)
{
    (void)user, (void)base, (void)bytes, (void)ordinal;
    leaving += change == WEIR_RANGE_LEAVING;
    return true;
}

static void memory_that_goes_while_a_pause_waits_is_told_to_leave(void **state)
{
    (void)state;
    pthread_t pausing;
    weir_mempool_options options = pool_options(WEIR_MEMORY_MAPPED, "a");
    options.range_changed = count_leaving;
    const weir_mempool kept = mapped("a"), idle = make_pool(options);
    (void)alloc_from(kept, MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_free(alloc_from(idle, MIB, WEIR_STREAM_CURRENT)));
    leaving = 0;
    start_pause_of(kept, &pausing);
    assert_ok(weir_mempool_unref(idle));
    assert_int_equal(leaving, 1);
    wr_pause_let_on(record_of(kept));
    assert_int_equal(pthread_join(pausing, NULL), 0);
    assert_int_equal(leaving, 1);
}

/* The work that a pause waits for may wait for that. */
static void other_pools_are_paused_and_resumed_while_a_pause_waits(void **state)
{
    (void)state;
    pthread_t pausing, resuming;
    const weir_mempool pool = mapped("a"), other = mapped("b");
    (void)alloc_from(pool, MIB, WEIR_STREAM_CURRENT);
    (void)alloc_from(other, MIB, WEIR_STREAM_CURRENT);
    start_pause_of(pool, &pausing);
    assert_ok(weir_pause(0, "b", WEIR_PAUSE_KEEP)); /* would not return */
    assert_ok(weir_resume(0, "b"));
    start(&resuming, resume_a, NULL);
    wr_pause_let_on(record_of(pool));
    assert_int_equal(pthread_join(pausing, NULL), 0);
    assert_int_equal(pthread_join(resuming, NULL), 0);
    assert_false(pool_info(pool).paused); /* not resumed before it was paused */
}

#define PAUSE_TEST(test) cmocka_unit_test_setup_teardown(test, open_device, close_device)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PAUSE_TEST(contents_are_back_after_resuming),
        PAUSE_TEST(memory_left_mapped_by_a_failed_resume_can_be_resumed),
        PAUSE_TEST(dropped_memory_is_usable_after_resuming),
        PAUSE_TEST(the_driver_has_the_memory_meanwhile),
        PAUSE_TEST(free_memory_goes_without_a_copy),
        PAUSE_TEST(pools_of_one_tag_go_together_and_others_stay),
        PAUSE_TEST(pausing_waits_for_the_work),
        PAUSE_TEST(a_thousand_cycles_leave_nothing_behind),
        PAUSE_TEST(allocating_is_refused_while_paused),
        PAUSE_TEST(blocks_freed_while_paused_are_free_and_the_rest_stays),
        PAUSE_TEST(a_segment_freed_whole_while_paused_is_not_copied_back),
        PAUSE_TEST(pending_blocks_keep_their_contents),
        PAUSE_TEST(pending_blocks_of_a_paused_pool_hold_no_memory),
        PAUSE_TEST(blocks_tell_whether_they_are_paused),
        PAUSE_TEST(paused_memory_is_given_back_by_no_one_else),
        PAUSE_TEST(a_pool_that_lends_cannot_be_paused),
        PAUSE_TEST(the_stream_of_a_paused_block_may_end),
        PAUSE_TEST(a_pool_may_die_while_paused),
        PAUSE_TEST(an_idle_pool_dies_with_its_last_reference_while_paused),
        PAUSE_TEST(the_library_closes_while_pools_are_paused),
        PAUSE_TEST(tags_and_modes_are_checked),
        PAUSE_TEST(memory_that_is_not_mapped_is_refused_and_nothing_happens),
        PAUSE_TEST(resuming_leaves_pools_alone_that_cannot_be_paused),
        PAUSE_TEST(pausing_twice_is_pausing_once),
        PAUSE_TEST(pausing_leaves_a_capture_alone),
        PAUSE_TEST(without_room_everything_stays_paused_and_is_kept),
        PAUSE_TEST(a_failed_resume_says_what_private_pools_keep_idle),
        PAUSE_TEST(a_pool_that_went_while_paused_needs_no_room),
        PAUSE_TEST(the_limit_holds_for_resuming),
        PAUSE_TEST(pending_frees_are_waited_for_to_make_room),
        PAUSE_TEST(resuming_without_new_memory_ignores_the_limit),
        PAUSE_TEST(the_program_is_asked_for_room),
        PAUSE_TEST(without_pinned_memory_nothing_is_paused),
        PAUSE_TEST(memory_that_the_driver_does_not_take_is_back_after_resuming),
        PAUSE_TEST(memory_that_the_driver_refuses_after_a_failed_resume_is_taken_back_later),
        PAUSE_TEST(memory_left_mapped_after_a_failed_resume_serves_the_next),
        PAUSE_TEST(memory_left_mapped_that_is_unmapped_by_another_failed_resume_is_mapped_again),
        PAUSE_TEST(memory_left_behind_by_a_failed_resume_serves_the_next),
        PAUSE_TEST(resuming_may_fail_again_and_again),
        PAUSE_TEST(a_copy_that_was_given_back_is_not_given_back_again),
        PAUSE_TEST(a_copy_that_is_never_taken_back_keeps_no_memory),
        PAUSE_TEST(unmapping_that_fails_is_undone),
        PAUSE_TEST(pausing_that_cannot_be_undone_loses_nothing),
        PAUSE_TEST(a_copy_that_is_not_taken_back_is_not_mistaken_for_contents),
        PAUSE_TEST(memory_that_comes_while_the_pool_is_being_paused_goes_back),
        PAUSE_TEST(the_program_is_told_of_memory_that_goes_back_unused),
        PAUSE_TEST(a_use_of_one_pool_does_not_hold_off_the_pause_of_another),
        PAUSE_TEST(memory_that_goes_while_a_pause_waits_is_told_to_leave),
        PAUSE_TEST(other_pools_are_paused_and_resumed_while_a_pause_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
