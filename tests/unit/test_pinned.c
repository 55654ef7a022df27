/*
 * The cache of pinned host memory, through the public functions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "base/meta.h"
#include "base/numa.h"
#include "device/runtime.h"
#include "meanwhile_support.h"
#include "pool/address.h"
#include "pool/page_locked.h"
#include "pool/pending.h"
#include "pool/starts.h"
#include "pool_support.h"
#include "weir/observe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* What the next requests to populate pages fail with, each once; 0: it is done. */
static atomic_int refusals[4];
static atomic_uint refused;
static atomic_size_t populated; /* bytes */

/* In place of libc's. */
int madvise(void *start, size_t bytes, int advice)
{
    if (advice != MADV_POPULATE_WRITE) return (int)syscall(SYS_madvise, start, bytes, advice);
    const unsigned index = atomic_fetch_add(&refused, 1);
    errno = index < sizeof refusals / sizeof refusals[0] ? atomic_load(&refusals[index]) : 0;
    if (errno != 0) return -1;
    atomic_fetch_add(&populated, bytes);
    return (int)syscall(SYS_madvise, start, bytes, advice);
}

/* From now on. */
static void refuse_to_populate(int first, int second)
{
    atomic_store(&refusals[0], first);
    atomic_store(&refusals[1], second);
    atomic_store(&populated, 0);
    atomic_store(&refused, 0);
}

static void *pinned_on(size_t bytes, int node)
{
    void *pointer = NULL;
    assert_ok(weir_pinned_alloc(bytes, node, &pointer));
    assert_non_null(pointer);
    return pointer;
}

static void *pinned(size_t bytes)
{
    return pinned_on(bytes, WEIR_NUMA_ANY);
}

static weir_memory_stats pinned_stats(void)
{
    weir_memory_stats stats = { .size = sizeof stats };
    assert_ok(weir_pinned_stats_get(&stats));
    return stats;
}

static uint64_t held(void)
{
    return (uint64_t)pinned_stats().reserved_bytes[WEIR_STAT_ALL].current;
}

static uint64_t segments(void)
{
    return (uint64_t)pinned_stats().segment[WEIR_STAT_ALL].current;
}

static int open_two_nodes(void **state)
{
    wr_numa_pretend("0-1", 0);
    return open_two_small_hosts(state);
}

static int open_one_node(void **state)
{
    wr_numa_pretend("0", 0);
    return open_two_small_hosts(state);
}

static int close_pretended(void **state)
{
    wr_numa_pretend(NULL, 0);
    return close_host(state);
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static void small_blocks_share_a_segment(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++) assert_int_equal((uintptr_t)pinned(2000) % 512, 0);
    assert_int_equal(segments(), 1);
    assert_int_equal(held(), 2 * MIB);
}

static void sizes_are_not_rounded_to_powers_of_two(void **state)
{
    (void)state;
    const size_t asked = 129 * MIB + 512 * KIB;
    void *block = pinned(asked);
    assert_int_equal(info_of(block).bytes, asked);
    assert_int_equal(held(), 130 * MIB);
    for (int i = 0; i < 10; i++) pinned(MIB + 512 * KIB);
    assert_int_equal(held(), 130 * MIB + 16 * MIB);
}

static void no_size_wastes_more_than_a_sixteenth(void **state)
{
    (void)state;
    for (size_t bytes = 700; bytes < 8 * MIB; bytes += bytes / 7) {
        void *block = pinned(bytes);
        assert_true(info_of(block).bytes - bytes <= (bytes <= MIB ? 511 : bytes / 16));
    }
}

static void pieces_of_a_segment_become_one_again(void **state)
{
    (void)state;
    void *first = pinned(6 * MIB), *second = pinned(3 * MIB), *third = pinned(7 * MIB);
    assert_int_equal(segments(), 1);
    assert_ok(weir_pinned_free(first));
    assert_ok(weir_pinned_free(third));
    assert_ok(weir_pinned_free(second));
    const uint64_t calls = driver_calls();
    assert_ptr_equal(pinned(16 * MIB), first);
    assert_int_equal(driver_calls(), calls);
}

static void zero_bytes_give_null(void **state)
{
    (void)state;
    void *block = &block;
    assert_ok(weir_pinned_alloc(0, WEIR_NUMA_ANY, &block));
    assert_null(block);
    assert_ok(weir_pinned_free(NULL));
    assert_int_equal(segments(), 0);
}

/* ---- reuse ------------------------------------------------------------------------------------------------------- */

static void an_unrecorded_block_is_reused_at_once(void **state)
{
    (void)state;
    void *block = pinned(3 * MIB);
    const uint64_t calls = driver_calls();
    for (int i = 0; i < 10; i++) {
        assert_ok(weir_pinned_free(block));
        assert_ptr_equal(pinned(3 * MIB), block);
    }
    assert_int_equal(driver_calls(), calls);
    assert_int_equal(pinned_stats().hits, 10);
}

static void a_hit_asks_the_driver_nothing(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *block = pinned(512), *other = pinned(512);
    make_busy(stream);
    assert_ok(weir_pinned_record(other, stream));
    assert_ok(weir_pinned_free(other));
    assert_ok(weir_pinned_free(block));
    const uint64_t calls = driver_calls();
    assert_ptr_equal(pinned(512), block);
    assert_int_equal(driver_calls(), calls);
    let_run(stream);
    assert_ok(weir_pinned_free(block));
}

static void a_recorded_block_waits_for_its_stream(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    char *block = pinned(9 * MIB);
    hold(stream);
    assert_ok(weir_fill(block, 1, 100, stream));
    assert_ok(weir_pinned_record(block + 5 * MIB, stream)); /* anywhere into it */
    assert_ok(weir_pinned_free(block));
    assert_int_equal(pinned_stats().pending_frees, 1);
    assert_ptr_not_equal(pinned(9 * MIB), block);
    let_run(stream);
    assert_ptr_equal(pinned(9 * MIB), block);
    assert_int_equal(pinned_stats().pending_frees, 0);
}

static void a_block_waits_for_every_stream_that_used_it(void **state)
{
    (void)state;
    weir_stream one = new_stream(0), other = new_stream(1);
    void *block = pinned(9 * MIB);
    hold(one);
    hold(other);
    for (int i = 0; i < 2; i++) {
        assert_ok(weir_fill(block, 1, 100, i ? other : one));
        assert_ok(weir_pinned_record(block, i ? other : one));
    }
    assert_ok(weir_pinned_free(block));
    let_run(one);
    assert_ptr_not_equal(pinned(9 * MIB), block);
    let_run(other);
    assert_ptr_equal(pinned(9 * MIB), block);
}

static void a_slow_stream_delays_only_its_own_blocks(void **state)
{
    (void)state;
    weir_stream slow = new_stream(0), quick = new_stream(1);
    void *of_slow[4], *of_quick[4];
    for (int i = 0; i < 4; i++) {
        of_slow[i] = pinned(9 * MIB);
        of_quick[i] = pinned(9 * MIB);
    }
    hold(slow);
    for (int i = 0; i < 4; i++) { /* the slow stream's blocks are always freed first */
        assert_ok(weir_fill(of_slow[i], 1, 100, slow));
        assert_ok(weir_pinned_record(of_slow[i], slow));
        assert_ok(weir_pinned_free(of_slow[i]));
        assert_ok(weir_fill(of_quick[i], 1, 100, quick));
        assert_ok(weir_pinned_record(of_quick[i], quick));
        assert_ok(weir_pinned_free(of_quick[i]));
    }
    assert_ok(weir_stream_synchronize(quick));
    const uint64_t before = segments();
    for (int i = 0; i < 4; i++) {
        void *again = pinned(9 * MIB);
        bool was_quick = false;
        for (int k = 0; k < 4; k++) was_quick |= of_quick[k] == again;
        assert_true(was_quick);
    }
    assert_int_equal(segments(), before);
    assert_int_equal(pinned_stats().pending_frees, 4);
    let_run(slow);
}

static void a_block_used_in_a_capture_waits_for_its_end(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *block = pinned(9 * MIB);
    assert_ok(wr_backend_host.capture_begin(0, native_of(stream), WEIR_CAPTURE_GLOBAL));
    assert_ok(weir_fill(block, 1, 100, stream));
    assert_ok(weir_pinned_record(block, stream));
    assert_ok(weir_pinned_free(block));
    assert_ptr_not_equal(pinned(9 * MIB), block);
    assert_ok(weir_pinned_trim(0));
    assert_int_equal(pinned_stats().pending_frees, 1);
    end_natively(native_of(stream)); /* which nothing has ended yet */
    assert_ok(weir_stream_synchronize(stream));
    assert_ptr_equal(pinned(9 * MIB), block);
}

static void a_stream_that_ends_is_no_longer_waited_for(void **state)
{
    (void)state;
    weir_stream stream = new_stream(1);
    void *block = pinned(9 * MIB);
    assert_ok(weir_fill(block, 1, 100, stream));
    assert_ok(weir_pinned_record(block, stream));
    assert_ok(weir_stream_destroy(stream));
    assert_ok(weir_pinned_free(block));
    assert_ptr_equal(pinned(9 * MIB), block);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static void a_node_is_honoured_on_reuse(void **state)
{
    (void)state;
    void *on_one = pinned_on(9 * MIB, 1);
    assert_ok(weir_pinned_free(on_one));
    void *on_zero = pinned_on(9 * MIB, 0);
    assert_ptr_not_equal(on_zero, on_one);
    assert_ptr_equal(pinned_on(9 * MIB, 1), on_one);
}

static void a_recorded_block_goes_back_to_its_node(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *on_one = pinned_on(9 * MIB, 1);
    hold(stream);
    assert_ok(weir_fill(on_one, 1, 100, stream));
    assert_ok(weir_pinned_record(on_one, stream));
    assert_ok(weir_pinned_free(on_one));
    let_run(stream);
    assert_ptr_not_equal(pinned_on(9 * MIB, 0), on_one);
    assert_ptr_equal(pinned_on(9 * MIB, 1), on_one);
}

static void cached_memory_of_any_node_serves_requests_that_name_none(void **state)
{
    (void)state;
    void *on_one = pinned_on(9 * MIB, 1);
    assert_ok(weir_pinned_free(on_one));
    const uint64_t calls = driver_calls();
    void *anywhere = pinned(9 * MIB);
    assert_ptr_equal(anywhere, on_one);
    assert_int_equal(driver_calls(), calls);
    assert_ok(weir_pinned_free(anywhere));
    assert_ptr_equal(pinned_on(9 * MIB, 1), on_one);
}

static void memory_of_no_named_node_serves_no_request_for_a_node(void **state)
{
    (void)state;
    void *anywhere = pinned(9 * MIB);
    assert_ok(weir_pinned_free(anywhere));
    assert_ptr_not_equal(pinned_on(9 * MIB, 0), anywhere);
}

static void a_node_that_is_not_there_is_refused(void **state)
{
    (void)state;
    void *block = NULL;
    const int wrong[] = { 2, -2, WR_NUMA_NODES, 1 << 30 };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_status(weir_pinned_alloc(100, wrong[i], &block), WEIR_ERR_INVALID_ARGUMENT);
        assert_status(weir_pinned_reserve(100, wrong[i]), WEIR_ERR_INVALID_ARGUMENT);
    }
    assert_non_null(strstr(weir_error_text(), "WEIR_NUMA_ANY"));
    assert_null(block);
}

static void a_node_that_may_not_be_chosen_is_refused(void **state)
{
    (void)state;
    static const int errors[] = { EPERM, EINVAL };
    void *block = NULL;
    for (int i = 0; i < 2; i++) {
        wr_numa_pretend("0-1", errors[i]);
        assert_status(weir_pinned_alloc(100, 1, &block), WEIR_ERR_NOT_SUPPORTED);
        assert_null(block);
        assert_int_equal(held(), 0);
    }
    pinned(100);
    wr_numa_pretend("0-1", 0);
    pinned_on(100, 1);
}

static void a_full_node_is_out_of_memory(void **state)
{
    (void)state;
    void *block = NULL;
    wr_numa_pretend("0-1", ENOMEM);
    assert_status(weir_pinned_alloc(100, 1, &block), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_non_null(strstr(weir_error_text(), "NUMA node 1"));
    wr_numa_pretend("0-1", 0);
}

static void with_one_node_every_request_means_any_node(void **state)
{
    (void)state;
    void *block = pinned(9 * MIB);
    assert_ok(weir_pinned_free(block));
    assert_ptr_equal(pinned_on(9 * MIB, 0), block);
    assert_ok(weir_pinned_free(block));
    assert_ptr_equal(pinned(9 * MIB), block);
}

static void lists_of_nodes_are_read(void **state)
{
    (void)state;
    wr_numa numa;
    wr_numa_pretend("0-1,5,250-9999", 0);
    wr_numa_read(&numa);
    assert_int_equal(numa.count, 9);
    assert_true(wr_numa_has(&numa, 5) && wr_numa_has(&numa, 255) && !wr_numa_has(&numa, 2));
    wr_numa_pretend("nonsense", 0);
    wr_numa_read(&numa);
    assert_true(numa.count == 1 && wr_numa_has(&numa, 0));
    wr_numa_pretend(NULL, 0);
    wr_numa_read(&numa);
    assert_true(numa.count >= 1);
    void *page = mmap(NULL, 4 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    int first = 0;
    while (!wr_numa_has(&numa, first)) first++;
    weir_status status = wr_numa_bind(page, 4 * KIB, first);
    assert_true(status == WEIR_OK || status == WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(munmap(page, 4 * KIB), 0);
}

/* ---- running out ------------------------------------------------------------------------------------------------- */

static void a_refusal_empties_the_cache_and_asks_again(void **state)
{
    (void)state;
    assert_ok(weir_pinned_free(pinned(9 * MIB)));
    assert_ok(weir_host_fail(WEIR_BACKEND_host_register, 1, WEIR_ERR_OUT_OF_HOST_MEMORY));
    pinned(20 * MIB);
    assert_int_equal(held(), 20 * MIB);
    assert_int_equal(pinned_stats().alloc_retries, 1);
}

static void near_the_limit_a_request_gets_a_segment_of_its_own_size(void **state)
{
    (void)state;
    assert_ok(weir_pinned_limit_set(10 * MIB));
    pinned(2 * MIB);
    pinned(8 * MIB);
    assert_int_equal(held(), 10 * MIB);
}

static void the_limit_is_kept_and_the_text_says_where_the_bytes_are(void **state)
{
    (void)state;
    void *block = &block;
    assert_ok(weir_pinned_limit_set(40 * MIB));
    void *first = pinned(20 * MIB);
    pinned(10 * MIB);
    assert_status(weir_pinned_alloc(20 * MIB, WEIR_NUMA_ANY, &block), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_ptr_equal(block, &block);
    assert_non_null(strstr(weir_error_text(), "the limit is 40.00 MiB"));
    assert_non_null(strstr(weir_error_text(), "holds 30.00 MiB: 30.00 MiB in use"));
    assert_non_null(strstr(weir_error_text(), "weir_pinned_limit_set"));
    assert_int_equal(pinned_stats().ooms, 1);
    assert_ok(weir_pinned_free(first));
    pinned(28 * MIB); /* the idle segment gives way */
    assert_int_equal(held(), 38 * MIB);
    assert_ok(weir_pinned_limit_set(0));
    pinned(30 * MIB);
}

static void more_than_any_machine_has_is_a_failure_that_counts(void **state)
{
    (void)state;
    void *block = &block;
    assert_status(weir_pinned_alloc(SIZE_MAX, WEIR_NUMA_ANY, &block), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_non_null(strstr(weir_error_text(), "is the size negative?"));
    assert_ptr_equal(block, &block);
    assert_int_equal(pinned_stats().ooms, 1);
}

static void pending_blocks_are_waited_for_before_giving_up(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    releaser work;
    void *block = pinned(20 * MIB);
    assert_ok(weir_pinned_limit_set(20 * MIB));
    start_releaser(&work, stream);
    assert_ok(weir_pinned_record(block, stream));
    assert_ok(weir_pinned_free(block));
    assert_ptr_equal(pinned(20 * MIB), block);
    pthread_join(work.thread, NULL);
    assert_int_equal(pinned_stats().syncs, 1);
}

static bool free_it(void *user, int device, size_t needed)
{
    void **block = user;
    assert_int_equal(device, -1);
    assert_int_equal(needed, 20 * MIB);
    assert_ok(weir_pinned_free(*block));
    return true;
}

static void the_program_is_asked_to_free(void **state)
{
    (void)state;
    void *block = pinned(20 * MIB);
    assert_ok(weir_pinned_limit_set(20 * MIB));
    assert_ok(weir_reclaim_add(free_it, &block));
    assert_ptr_equal(pinned(20 * MIB), block);
    assert_ok(weir_reclaim_remove(free_it, &block));
}

static bool free_that(void *user, int device, size_t needed)
{
    (void)device, (void)needed;
    assert_ok(weir_pinned_free(user));
    return true;
}

static void memory_that_the_program_frees_on_any_node_serves(void **state)
{
    (void)state;
    void *block = pinned_on(3 * MIB, 1), *none = NULL;
    pinned_on(13 * MIB, 1); /* the rest of its segment, which stays */
    assert_int_equal(segments(), 1);
    assert_ok(weir_pinned_limit_set(held()));
    assert_status(weir_pinned_alloc(3 * MIB, WEIR_NUMA_ANY, &none), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_ok(weir_reclaim_add(free_that, block));
    assert_ptr_equal(pinned(3 * MIB), block);
    assert_ok(weir_reclaim_remove(free_that, block));
}

static void where_the_device_registers_no_memory_the_driver_gives_it(void **state)
{
    (void)state;
    void *block = NULL;
    assert_ok(weir_host_fail(WEIR_BACKEND_host_register, 1, WEIR_ERR_NOT_SUPPORTED));
    const uint64_t before = calls_of(WEIR_BACKEND_pinned_alloc);
    memset(pinned(3 * MIB), 1, 3 * MIB);
    assert_int_equal(calls_of(WEIR_BACKEND_pinned_alloc) - before, 1);
    assert_int_equal(segments(), 1);
    memset(pinned_on(30 * MIB, 1), 1, 30 * MIB); /* one that is registered, beside it */
    assert_int_equal(segments(), 2);
    assert_ok(weir_host_fail(WEIR_BACKEND_host_register, 1, WEIR_ERR_NOT_SUPPORTED));
    assert_status(weir_pinned_alloc(40 * MIB, 1, &block), WEIR_ERR_NOT_SUPPORTED); /* the driver chooses no node */
    assert_int_equal(calls_of(WEIR_BACKEND_pinned_alloc) - before, 1);
}

static void a_failure_without_a_limit_says_so(void **state)
{
    (void)state;
    void *block = NULL;
    assert_status(weir_pinned_alloc((size_t)1 << 50, WEIR_NUMA_ANY, &block), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_non_null(strstr(weir_error_text(), " on any NUMA node; there is no limit.\n"));
    assert_non_null(strstr(weir_error_text(), "\nFree something, ask for less, or give the process more memory."));
}

/* Records for so many bytes would otherwise stay. */
static void a_request_beyond_the_machine_leaves_no_records(void **state)
{
    (void)state;
    void *block = NULL;
    (void)pinned(4096);
    const uint64_t records = wr_meta_live();
    for (int power = 47; power < 60; power++) {
        assert_status(weir_pinned_alloc((size_t)1 << power, WEIR_NUMA_ANY, &block), WEIR_ERR_OUT_OF_HOST_MEMORY);
        assert_non_null(strstr(weir_error_text(), "out of pinned host memory: asked for"));
        assert_non_null(strstr(weir_error_text(), "The last refusal: host memory: "));
        assert_status(weir_pinned_reserve((size_t)1 << power, WEIR_NUMA_ANY), WEIR_ERR_OUT_OF_HOST_MEMORY);
    }
    assert_int_equal(wr_meta_live(), records);
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    void *block = NULL;
    assert_status(weir_pinned_alloc((size_t)1 << 47, WEIR_NUMA_ANY, &block), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_status(weir_pinned_alloc(SIZE_MAX, WEIR_NUMA_ANY, &block), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_status(weir_pinned_reserve((size_t)1 << 47, WEIR_NUMA_ANY), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_status(weir_pinned_reserve(SIZE_MAX, WEIR_NUMA_ANY), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_null(block);
    pinned(100);
}

/* ---- trimming and reserving -------------------------------------------------------------------------------------- */

static void trimming_keeps_the_asked_bytes_and_memory_in_use(void **state)
{
    (void)state;
    void *idle[4];
    for (int i = 0; i < 4; i++) idle[i] = pinned(10 * MIB);
    void *used = pinned(10 * MIB);
    for (int i = 0; i < 4; i++) assert_ok(weir_pinned_free(idle[i]));
    assert_ok(weir_pinned_trim(60 * MIB));
    assert_int_equal(held(), 50 * MIB);
    assert_ok(weir_pinned_trim(30 * MIB));
    assert_int_equal(held(), 30 * MIB);
    assert_ok(weir_pinned_trim(0));
    assert_int_equal(held(), 10 * MIB);
    memset(used, 1, 10 * MIB);
}

static void trimming_gives_back_what_is_least_above_what_it_must(void **state)
{
    (void)state;
    assert_ok(weir_pinned_reserve(40 * MIB, WEIR_NUMA_ANY));
    void *little = pinned(1000);
    assert_ok(weir_pinned_free(little));
    assert_true(held() > 40 * MIB);
    assert_ok(weir_pinned_trim(40 * MIB));
    assert_int_equal(held(), 40 * MIB);
}

static void trimming_does_not_wait_for_a_stream(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *block = pinned(10 * MIB);
    hold(stream);
    assert_ok(weir_fill(block, 1, 100, stream));
    assert_ok(weir_pinned_record(block, stream));
    assert_ok(weir_pinned_free(block));
    assert_ok(weir_pinned_trim(0));
    assert_int_equal(held(), 10 * MIB);
    let_run(stream);
    assert_ok(weir_pinned_trim(0));
    assert_int_equal(held(), 0);
}

static size_t resident_pages(void *base, size_t bytes)
{
    size_t count = 0;
    unsigned char *pages = malloc(bytes / (4 * KIB));
    assert_int_equal(mincore(base, bytes, pages), 0);
    for (size_t i = 0; i < bytes / (4 * KIB); i++) count += pages[i] & 1;
    free(pages);
    return count;
}

static void reserved_memory_is_faulted_in_and_serves_without_the_driver(void **state)
{
    (void)state;
    const size_t bytes = 130 * MIB + 5; /* enough for more than one thread */
    assert_ok(weir_pinned_reserve(bytes, WEIR_NUMA_ANY));
    assert_ok(weir_pinned_reserve(1 * MIB, WEIR_NUMA_ANY));
    assert_int_equal(held(), 134 * MIB);
    assert_int_equal(pinned_stats().allocation[WEIR_STAT_ALL].added, 0);
    const uint64_t calls = driver_calls();
    void *large = pinned(bytes);
    pinned(1 * MIB);
    assert_int_equal(driver_calls(), calls);
    assert_int_equal(resident_pages(large, 130 * MIB), 130 * MIB / (4 * KIB));
    assert_int_equal(held(), 134 * MIB);
}

static void each_byte_of_a_large_segment_is_faulted_in_once(void **state)
{
    (void)state;
    refuse_to_populate(0, 0);
    assert_ok(weir_pinned_reserve(198 * MIB, WEIR_NUMA_ANY)); /* by as many threads as there are processors, up to 3 */
    assert_int_equal(atomic_load(&populated), 198 * MIB);
}

static void pages_that_cannot_be_had_are_out_of_memory(void **state)
{
    (void)state;
    void *block = NULL;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) atomic_store(&refusals[i], ENOMEM);
    atomic_store(&refused, 0);
    assert_status(weir_pinned_alloc(MIB, WEIR_NUMA_ANY, &block), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_null(block);
    assert_int_equal(held(), 0);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) atomic_store(&refusals[i], 0);
}

static void populating_is_asked_for_again_when_it_was_interrupted(void **state)
{
    (void)state;
    refuse_to_populate(EINTR, EAGAIN);
    assert_ok(weir_pinned_free(pinned(MIB)));
    assert_int_equal(atomic_load(&populated), held());
    refuse_to_populate(0, 0);
}

static void where_the_kernel_populates_nothing_pages_are_touched(void **state)
{
    (void)state;
    refuse_to_populate(EINVAL, 0);
    char *block = pinned(MIB);
    assert_int_equal(atomic_load(&populated), 0);
    assert_int_equal(resident_pages(block, MIB), MIB / (4 * KIB));
    refuse_to_populate(0, 0);
    assert_ok(weir_pinned_free(block));
}

static void reserving_respects_the_limit(void **state)
{
    (void)state;
    assert_ok(weir_pinned_limit_set(20 * MIB));
    assert_ok(weir_pinned_reserve(18 * MIB, WEIR_NUMA_ANY));
    assert_status(weir_pinned_reserve(4 * MIB, WEIR_NUMA_ANY), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_non_null(strstr(weir_error_text(), "18.00 MiB idle"));
    assert_int_equal(held(), 18 * MIB); /* the memory reserved before was not given back for it */
    assert_ok(weir_pinned_reserve(2 * MIB, WEIR_NUMA_ANY));
    assert_ok(weir_pinned_reserve(0, WEIR_NUMA_ANY));
}

/* ---- pointers and numbers ---------------------------------------------------------------------------------------- */

static void memory_that_a_graph_uses_is_not_reused_before_the_graph_ends(void **state)
{
    (void)state;
    weir_graph graph;
    weir_stream stream = new_stream(0);
    unsigned char *memory = alloc(512), *pinned = NULL, *other = NULL;
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    assert_ok(weir_graph_begin(stream, &options, &graph));
    assert_ok(weir_pinned_alloc(512, WEIR_NUMA_ANY, (void **)&pinned));
    assert_ok(weir_pinned_record(pinned, stream));
    assert_ok(weir_copy(memory, pinned, 512, stream));
    assert_ok(weir_graph_end(graph));
    pinned[0] = 5;
    assert_ok(weir_pinned_free(pinned));
    assert_ok(weir_graph_launch(graph, stream));
    assert_ok(weir_stream_synchronize(stream));
    assert_int_equal(memory[0], 5);
    assert_ok(weir_pinned_trim(0));
    assert_ok(weir_pinned_alloc(512, WEIR_NUMA_ANY, (void **)&other));
    assert_ptr_not_equal(other, pinned);
    assert_status(weir_pinned_free(pinned), WEIR_ERR_DOUBLE_FREE);
    assert_ok(weir_graph_destroy(graph));
    assert_ok(weir_pinned_free(other));
    assert_ok(weir_pinned_trim(UINT64_MAX)); /* reclaims finished frees, and gives nothing back */
    assert_ok(weir_pinned_alloc(512, WEIR_NUMA_ANY, (void **)&other));
    assert_ptr_equal(other, pinned);
    assert_ok(weir_pinned_free(other));
    assert_ok(weir_free(memory));
}

/* Captures a graph that copies from the block. */
static weir_graph capture_a_copy_of(void *block, void *memory, weir_stream stream)
{
    weir_graph graph;
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    assert_ok(weir_graph_begin(stream, &options, &graph));
    assert_ok(weir_pinned_record(block, stream));
    assert_ok(weir_copy(memory, block, 512, stream));
    assert_ok(weir_graph_end(graph));
    return graph;
}

/* The block has the lowest address of its segment. */
static bool is_free(void *block)
{
    assert_ok(weir_pinned_trim(UINT64_MAX)); /* reclaims finished frees, and gives nothing back */
    void *other = pinned(512);
    assert_ok(weir_pinned_free(other));
    return other == block;
}

static void a_graph_told_of_a_pointer_into_a_block_keeps_the_block(void **state)
{
    (void)state;
    weir_graph graph;
    weir_stream stream = new_stream(0);
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    assert_ok(weir_graph_begin(stream, &options, &graph));
    char *block = pinned(4096);
    assert_ok(weir_pinned_record(block + 100, stream));
    assert_ok(weir_pinned_free(block));
    assert_ok(weir_graph_end(graph));
    void *other = pinned(4096);
    assert_ptr_not_equal(other, block);
    assert_ok(weir_graph_destroy(graph));
    assert_ok(weir_pinned_free(other));
    assert_ok(weir_pinned_trim(0));
    assert_int_equal(held(), 0);
}

static void memory_that_two_graphs_use_waits_for_the_end_of_both(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *memory = alloc(512), *block = pinned(512);
    weir_graph one = capture_a_copy_of(block, memory, stream), two = capture_a_copy_of(block, memory, stream);
    assert_ok(weir_pinned_free(block));
    assert_ok(weir_graph_destroy(one));
    assert_false(is_free(block));
    assert_ok(weir_graph_destroy(two));
    assert_true(is_free(block));
    assert_ok(weir_free(memory));
}

static void a_block_that_was_not_freed_stays_live_when_its_graph_ends(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *memory = alloc(512), *block = pinned(512);
    assert_ok(weir_graph_destroy(capture_a_copy_of(block, memory, stream)));
    assert_false(is_free(block));
    assert_ok(weir_pinned_free(block));
    assert_true(is_free(block));
    assert_ok(weir_free(memory));
}

static void a_graph_keeps_no_block_that_was_freed_meanwhile(void **state)
{
    (void)state;
    void *block = pinned(512);
    const wr_segment *segment = wr_address_find(block);
    assert_ok(weir_pinned_free(block));
    assert_status(wr_pending_keep(segment, block), WEIR_ERR_DOUBLE_FREE);
    assert_true(is_free(block));
}

/* Another thread may have freed it in error, and got it again, after it was recorded. */
static void a_kept_block_that_no_stream_uses_is_free_once_let_go(void **state)
{
    (void)state;
    void *block = pinned(512);
    const wr_segment *segment = wr_address_find(block);
    assert_ok(wr_pending_keep(segment, block));
    assert_ok(weir_pinned_free(block));
    assert_false(is_free(block));
    assert_int_equal(pinned_stats().pending_frees, 1);
    wr_pending_let_go(segment, block);
    assert_int_equal(pinned_stats().pending_frees, 0);
    assert_true(is_free(block));
}

static void memory_of_a_launched_graph_waits_for_the_launch_too(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *memory = alloc(512), *block = pinned(512);
    weir_graph graph = capture_a_copy_of(block, memory, stream);
    make_busy(stream);
    assert_ok(weir_graph_launch(graph, stream));
    assert_ok(weir_pinned_free(block));
    assert_ok(weir_graph_destroy(graph));
    assert_false(is_free(block));
    let_run(stream);
    assert_true(is_free(block));
    assert_ok(weir_free(memory));
}

static void a_pointer_is_of_no_device_and_no_stream(void **state)
{
    (void)state;
    char *block = pinned(9 * MIB);
    weir_pointer_info info = info_of(block + 100);
    assert_ptr_equal(info.base, block);
    assert_int_equal(info.device, -1);
    assert_int_equal(info.stream.id, 0);
    assert_int_equal(info.requested, 9 * MIB);
    assert_int_equal(info.segment_bytes, 10 * MIB);
}

static void each_kind_of_memory_has_its_own_calls(void **state)
{
    (void)state;
    void *host = pinned(100), *block = alloc(100);
    assert_status(weir_free(host), WEIR_ERR_UNKNOWN_POINTER);
    assert_non_null(strstr(weir_error_text(), "weir_pinned_free"));
    assert_status(weir_record_stream(host, WEIR_STREAM_CURRENT), WEIR_ERR_UNKNOWN_POINTER);
    assert_non_null(strstr(weir_error_text(), "weir_pinned_record"));
    assert_status(weir_pinned_free(block), WEIR_ERR_UNKNOWN_POINTER);
    assert_non_null(strstr(weir_error_text(), "weir_free"));
    assert_status(weir_pinned_record(block, WEIR_STREAM_CURRENT), WEIR_ERR_UNKNOWN_POINTER);
    assert_status(weir_pinned_record(&host, WEIR_STREAM_CURRENT), WEIR_ERR_UNKNOWN_POINTER);
    assert_status(weir_pinned_free(&host), WEIR_ERR_UNKNOWN_POINTER);
    assert_status(weir_pinned_free((char *)host + 8), WEIR_ERR_INVALID_ARGUMENT);
    assert_ok(weir_pinned_free(host));
    assert_status(weir_pinned_free(host), WEIR_ERR_DOUBLE_FREE);
    assert_ptr_equal(strstr(weir_error_text(), "weir_pinned_free: "), weir_error_text());
    assert_status(weir_pinned_record(host, WEIR_STREAM_CURRENT), WEIR_ERR_DOUBLE_FREE);
    assert_ptr_equal(strstr(weir_error_text(), "weir_pinned_record: "), weir_error_text());
    assert_ok(weir_free(block));
}

static void copies_go_through_pinned_memory(void **state)
{
    (void)state;
    char *from = pinned(MIB), *to = pinned(MIB);
    void *block = alloc_on(MIB, default_stream(1));
    memset(from, 7, MIB);
    assert_ok(weir_copy(block, from, MIB, default_stream(1)));
    assert_ok(weir_copy(to, block, MIB, default_stream(1)));
    assert_ok(weir_stream_synchronize(default_stream(1)));
    assert_memory_equal(from, to, MIB);
    assert_ok(weir_free(block));
}

static void statistics_return_to_zero(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *blocks[20];
    for (size_t i = 0; i < 20; i++) {
        blocks[i] = pinned(1000 + i * i * 20000);
        if (i % 3 == 0) assert_ok(weir_pinned_record(blocks[i], stream));
    }
    for (int i = 0; i < 20; i++) assert_ok(weir_pinned_free(blocks[i]));
    assert_ok(weir_stream_synchronize(stream));
    assert_ok(weir_pinned_trim(0));
    weir_memory_stats s = pinned_stats();
    for (const weir_stat *stat = s.allocation; (const void *)stat < (const void *)&s.hits; stat++) {
        assert_int_equal(stat->current, 0);
        assert_int_equal(stat->added, stat->removed);
    }
    assert_int_equal(s.pending_frees, 0);
    assert_int_equal(s.driver_allocs, s.driver_frees);
    assert_int_equal(s.allocation[WEIR_STAT_ALL].peak, 20);
}

static void a_reset_keeps_current_values(void **state)
{
    (void)state;
    void *block = pinned(1000);
    assert_ok(weir_pinned_free(pinned(3 * MIB)));
    assert_ok(weir_pinned_stats_reset());
    weir_memory_stats s = pinned_stats();
    assert_int_equal(s.allocation[WEIR_STAT_ALL].current, 1);
    for (const weir_stat *stat = s.allocation; (const void *)stat < (const void *)&s.hits; stat++) {
        assert_int_equal(stat->peak, stat->current);
        assert_int_equal(stat->added + stat->removed, 0);
    }
    assert_int_equal(s.driver_allocs, 0);
    assert_ok(weir_pinned_free(block));
    assert_int_equal(pinned_stats().allocation[WEIR_STAT_ALL].removed, 1);
}

static void peaks_and_totals_are_reset_each_alone(void **state)
{
    (void)state;
    assert_ok(weir_pinned_free(pinned(1000)));
    assert_ok(weir_pinned_stats_reset_totals());
    assert_int_equal(pinned_stats().allocation[WEIR_STAT_ALL].peak, 1);
    assert_int_equal(pinned_stats().allocation[WEIR_STAT_ALL].added, 0);
    assert_ok(weir_pinned_free(pinned(1000)));
    assert_ok(weir_pinned_stats_reset_peaks());
    assert_int_equal(pinned_stats().allocation[WEIR_STAT_ALL].peak, 0);
    assert_int_equal(pinned_stats().allocation[WEIR_STAT_ALL].added, 1);
}

static void asking_for_statistics_opens_no_device(void **state)
{
    (void)state;
    const uint64_t opened = calls_of(WEIR_BACKEND_device_open);
    assert_int_equal(held(), 0);
    assert_ok(weir_pinned_stats_reset());
    assert_ok(weir_pinned_trim(0));
    assert_int_equal(calls_of(WEIR_BACKEND_device_open), opened);
}

static void memory_is_pinned_through_a_device_that_is_open(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc_on(100, default_stream(1))));
    const uint64_t opened = calls_of(WEIR_BACKEND_device_open);
    pinned(100);
    assert_int_equal(calls_of(WEIR_BACKEND_device_open), opened);
}

static void memory_is_pinned_through_no_device_that_is_lost(void **state)
{
    (void)state;
    void *block = alloc_on(1000, default_stream(0));
    (void)alloc_on(1000, default_stream(1));
    assert_ok(weir_host_lose_device(0));
    assert_status(weir_device_synchronize(0), WEIR_ERR_DEVICE_LOST);
    assert_ok(weir_pinned_alloc(1000, WEIR_NUMA_ANY, &block));
    assert_ok(weir_pinned_free(block));
    assert_status(weir_close(), WEIR_ERR_DEVICE_LOST);
}

static void a_lost_device_is_no_home_where_no_other_is_open_yet(void **state)
{
    (void)state;
    void *block = alloc_on(1000, default_stream(0));
    assert_ok(weir_host_lose_device(0));
    assert_status(weir_device_synchronize(0), WEIR_ERR_DEVICE_LOST);
    assert_status(weir_pinned_alloc(1000, WEIR_NUMA_ANY, &block), WEIR_ERR_DEVICE_LOST);
    (void)alloc_on(1000, default_stream(1));
    assert_ok(weir_pinned_alloc(1000, WEIR_NUMA_ANY, &block));
    assert_ok(weir_pinned_free(block));
    assert_status(weir_close(), WEIR_ERR_DEVICE_LOST);
}

static void closing_takes_everything_back(void **state)
{
    (void)state;
    const uint64_t before = wr_meta_live();
    open_host((weir_settings){ .host_memory = 64 * MIB });
    weir_stream stream = new_stream(0);
    void *pending = pinned(9 * MIB);
    unsigned char page;
    pinned(100);
    assert_ok(weir_pinned_record(pending, stream));
    assert_ok(weir_pinned_free(pending));
    assert_ok(weir_close());
    assert_int_equal(wr_meta_live(), before);
    assert_int_equal(mincore(pending, 4 * KIB, &page), -1); /* not mapped any more */
}

static void close_reports_pinned_memory_that_the_driver_does_not_take_back(void **state)
{
    pinned(100);
    assert_ok(weir_host_fail(WEIR_BACKEND_host_unregister, 1, WEIR_ERR_DRIVER));
    assert_status(weir_close(), WEIR_ERR_DRIVER);
    open_two_small_hosts(state);
}

static void memory_that_the_driver_does_not_take_back_as_weir_closes_is_mapped_no_more(void **state)
{
    unsigned char page;
    void *block = pinned(100);
    assert_ok(weir_host_fail(WEIR_BACKEND_host_unregister, 1, WEIR_ERR_DRIVER));
    assert_status(weir_close(), WEIR_ERR_DRIVER);
    assert_int_equal(mincore(block, 4 * KIB, &page), -1);
    open_two_small_hosts(state);
}

static void validating_looks_at_pinned_memory_too(void **state)
{
    (void)state;
    void *pointer = pinned(100);
    wr_block *block = wr_starts_find(wr_address_find(pointer), pointer);
    const size_t requested = block->requested;
    block->requested = block->bytes + 1;
    const weir_status found = weir_validate(0);
    block->requested = requested;
    assert_status(found, WEIR_ERR_INTERNAL);
    assert_ok(weir_validate(0));
    assert_ok(weir_pinned_free(pointer));
}

/* ---- private pools, other back ends ------------------------------------------------------------------------------ */

static void a_private_pool_can_be_of_pinned_memory(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_PINNED, ""));
    void *block = alloc_from(pool, 9 * MIB, WEIR_STREAM_CURRENT);
    memset(block, 3, 9 * MIB);
    assert_int_equal((uintptr_t)info_of(block).segment % (2 * MIB), 0);
    assert_int_equal(info_of(block).device, 0);
    assert_status(weir_pinned_free(block), WEIR_ERR_UNKNOWN_POINTER);
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(held(), 0);
}

static void a_back_end_that_cannot_register_gives_aligned_memory_too(void **state)
{
    (void)state;
    weir_backend plain = wr_backend_host;
    weir_backend_config config = { .size = sizeof config, .host_devices = 1, .host_memory = 64 * MIB };
    weir_device_caps caps;
    plain.host_register = NULL;
    plain.host_unregister = NULL;
    assert_ok(plain.open(&config));
    assert_ok(plain.device_open(0, &caps));
    for (int i = 0; i < 3; i++) {
        wr_range range = { .bytes = 4 * MIB };
        void *odd = NULL;
        assert_ok(plain.pinned_alloc(0, 4 * KIB, &odd)); /* so that the next block is not aligned by chance */
        assert_ok(wr_page_locked_take(&plain, 0, WR_PAGE_LOCKED_ANYWHERE, &range));
        assert_int_equal((uintptr_t)range.base % (2 * MIB), 0);
        memset(range.base, 1, range.bytes);
        assert_ok(wr_page_locked_give(&plain, 0, &range));
        assert_ok(plain.pinned_free(0, odd, 4 * KIB));
    }
    wr_range range = { .bytes = 4 * MIB };
    assert_status(wr_page_locked_take(&plain, 0, 0, &range), WEIR_ERR_NOT_SUPPORTED);
    assert_ok(plain.device_close(0));
    assert_ok(plain.close());
}

static size_t mapped_bytes(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%zu", &pages), 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void what_was_mapped_for_a_segment_goes_with_it(void **state)
{
    (void)state;
    const weir_backend *backend = wr_runtime_global.backend;
    (void)pinned(4096); /* opens the device */
    const size_t before = mapped_bytes();
    for (int i = 0; i < 32; i++) {
        wr_range range = { .bytes = 4 * MIB };
        if (i % 2) assert_ok(weir_host_fail(WEIR_BACKEND_host_register, 1, WEIR_ERR_OUT_OF_HOST_MEMORY));
        const weir_status status = wr_page_locked_take(backend, 0, WR_PAGE_LOCKED_ANYWHERE, &range);
        assert_int_equal(status, i % 2 ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        if (status == WEIR_OK) assert_ok(wr_page_locked_give(backend, 0, &range));
    }
    assert_true(mapped_bytes() < before + 16 * MIB);
}

/* The flags of the mapping that an address lies in, as the kernel lists them. */
static void find_mapping_flags(const void *address, char *flags, size_t size)
{
    char line[512];
    unsigned long from = 0, to = 0;
    bool here = false;
    FILE *file = fopen("/proc/self/smaps", "re");
    assert_non_null(file);
    flags[0] = '\0';
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) here = (uintptr_t)address >= from && (uintptr_t)address < to;
        if (here && strncmp(line, "VmFlags:", 8) == 0) snprintf(flags, size, "%s", line);
    }
    fclose(file);
}

/* Else a page that either process writes to would be copied, and the device would see the other copy. */
static void children_of_fork_do_not_get_pinned_memory(void **state)
{
    (void)state;
    char flags[512];
    find_mapping_flags(pinned(3 * MIB), flags, sizeof flags);
    assert_non_null(strstr(flags, " dc"));
}

#define on_devices(test) cmocka_unit_test_setup_teardown(test, open_two_small_hosts, close_host)
#define on_nodes(test) cmocka_unit_test_setup_teardown(test, open_two_nodes, close_pretended)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_devices(small_blocks_share_a_segment),
        on_devices(sizes_are_not_rounded_to_powers_of_two),
        on_devices(no_size_wastes_more_than_a_sixteenth),
        on_devices(pieces_of_a_segment_become_one_again),
        on_devices(zero_bytes_give_null),
        on_devices(an_unrecorded_block_is_reused_at_once),
        on_devices(a_hit_asks_the_driver_nothing),
        on_devices(a_recorded_block_waits_for_its_stream),
        on_devices(a_block_waits_for_every_stream_that_used_it),
        on_devices(a_slow_stream_delays_only_its_own_blocks),
        on_devices(a_block_used_in_a_capture_waits_for_its_end),
        on_devices(a_stream_that_ends_is_no_longer_waited_for),
        on_nodes(a_node_is_honoured_on_reuse),
        on_nodes(a_recorded_block_goes_back_to_its_node),
        on_nodes(cached_memory_of_any_node_serves_requests_that_name_none),
        on_nodes(memory_of_no_named_node_serves_no_request_for_a_node),
        on_devices(what_was_mapped_for_a_segment_goes_with_it),
        on_devices(children_of_fork_do_not_get_pinned_memory),
        on_nodes(a_node_that_is_not_there_is_refused),
        on_nodes(a_node_that_may_not_be_chosen_is_refused),
        on_nodes(a_full_node_is_out_of_memory),
        cmocka_unit_test(lists_of_nodes_are_read),
        cmocka_unit_test_setup_teardown(with_one_node_every_request_means_any_node, open_one_node, close_pretended),
        on_devices(a_refusal_empties_the_cache_and_asks_again),
        on_devices(near_the_limit_a_request_gets_a_segment_of_its_own_size),
        on_devices(the_limit_is_kept_and_the_text_says_where_the_bytes_are),
        on_devices(more_than_any_machine_has_is_a_failure_that_counts),
        on_devices(pending_blocks_are_waited_for_before_giving_up),
        on_devices(the_program_is_asked_to_free),
        on_nodes(memory_that_the_program_frees_on_any_node_serves),
        on_nodes(where_the_device_registers_no_memory_the_driver_gives_it),
        on_devices(a_failure_without_a_limit_says_so),
        on_devices(a_request_beyond_the_machine_leaves_no_records),
        on_devices(impossible_sizes_are_refused),
        on_devices(trimming_keeps_the_asked_bytes_and_memory_in_use),
        on_devices(trimming_gives_back_what_is_least_above_what_it_must),
        on_devices(trimming_does_not_wait_for_a_stream),
        on_devices(reserved_memory_is_faulted_in_and_serves_without_the_driver),
        on_devices(each_byte_of_a_large_segment_is_faulted_in_once),
        on_devices(pages_that_cannot_be_had_are_out_of_memory),
        on_devices(populating_is_asked_for_again_when_it_was_interrupted),
        on_devices(where_the_kernel_populates_nothing_pages_are_touched),
        on_devices(reserving_respects_the_limit),
        on_devices(memory_that_a_graph_uses_is_not_reused_before_the_graph_ends),
        on_devices(a_graph_told_of_a_pointer_into_a_block_keeps_the_block),
        on_devices(memory_that_two_graphs_use_waits_for_the_end_of_both),
        on_devices(a_block_that_was_not_freed_stays_live_when_its_graph_ends),
        on_devices(a_graph_keeps_no_block_that_was_freed_meanwhile),
        on_devices(a_kept_block_that_no_stream_uses_is_free_once_let_go),
        on_devices(memory_of_a_launched_graph_waits_for_the_launch_too),
        on_devices(a_pointer_is_of_no_device_and_no_stream),
        on_devices(each_kind_of_memory_has_its_own_calls),
        on_devices(copies_go_through_pinned_memory),
        on_devices(statistics_return_to_zero),
        on_devices(a_reset_keeps_current_values),
        on_devices(peaks_and_totals_are_reset_each_alone),
        on_devices(asking_for_statistics_opens_no_device),
        on_devices(memory_is_pinned_through_a_device_that_is_open),
        cmocka_unit_test_setup(memory_is_pinned_through_no_device_that_is_lost, open_two_small_hosts),
        cmocka_unit_test_setup(a_lost_device_is_no_home_where_no_other_is_open_yet, open_two_small_hosts),
        cmocka_unit_test(closing_takes_everything_back),
        on_devices(close_reports_pinned_memory_that_the_driver_does_not_take_back),
        on_devices(memory_that_the_driver_does_not_take_back_as_weir_closes_is_mapped_no_more),
        on_devices(validating_looks_at_pinned_memory_too),
        on_devices(a_private_pool_can_be_of_pinned_memory),
        cmocka_unit_test(a_back_end_that_cannot_register_gives_aligned_memory_too),
    };
    return cmocka_run_group_tests_name("pinned", tests, NULL, NULL);
}
