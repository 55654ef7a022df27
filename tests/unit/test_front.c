/*
 * Parked blocks (pool/front/front.h), while something else happens to a block or a stream. The other thread's part runs
 * between the two halves of a free.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "detach_support.h"
#include "device/device.h"
#include "device/runtime.h"
#include "pool/address.h"
#include "pool/count.h"
#include "pool/front/hit.h"
#include "pool/starts.h"
#include "pool_support.h"
#include "slot_support.h"
#include "thread_support.h"

#include <sched.h>
#include <time.h>

static wr_cache *the_cache(void)
{
    return &atomic_load(&wr_runtime_global.devices[0])->cache;
}

typedef struct use {
    void *pointer;
    weir_stream stream;
    weir_status status;
} use;

static void *record(void *argument)
{
    use *u = argument;
    u->status = weir_record_stream(u->pointer, u->stream);
    return NULL;
}

static weir_status record_by_another_thread(void *pointer, weir_stream stream)
{
    use u = { .pointer = pointer, .stream = stream };
    (void)in_a_thread(record, &u);
    return u.status;
}

static void push(wr_front *front, wr_block *block)
{
    wr_front_push(wr_front_part_for(front, block->bytes), wr_front_index(block->bytes), block);
}

/* A program that records memory while another of its threads frees it is wrong, but nothing more may break. */
static void a_block_recorded_while_it_is_parked_is_parked_once(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0), other = new_stream(0);
    void *left = alloc_on(8192, stream), *block_at = alloc_on(4096, stream), *right = alloc_on(8192, stream);
    assert_ok(weir_free(block_at)); /* its slot is of that size from now on */
    block_at = alloc_on(4096, stream);
    const wr_segment *segment = wr_address_find(block_at);
    wr_front *front = atomic_load(&segment->front);
    wr_block *block = wr_starts_find(segment, block_at);
    wr_bias_acquire(&front->lock, WR_BIAS_OUTER);
    assert_true(wr_front_good(front, block, block_at));
    assert_ok(record_by_another_thread(block_at, other));
    push(front, block);
    wr_bias_release(&front->lock, WR_BIAS_OUTER);

    assert_status(weir_free(block_at), WEIR_ERR_DOUBLE_FREE);
    assert_ok(weir_validate(0));
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 2);
    assert_ok(weir_free(left));
    assert_ok(weir_free(right));
    assert_ok(weir_validate(0));
    assert_int_equal(stats_of(0).pending_frees, 0);
}

static void recording_a_parked_block_is_refused(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0), other = new_stream(0);
    void *block = alloc_on(4096, stream);
    for (int i = 0; i < 100; i++) {
        assert_ok(weir_free(block));
        block = alloc_on(4096, stream);
    }
    assert_ok(weir_free(block));
    assert_status(weir_record_stream(block, other), WEIR_ERR_DOUBLE_FREE);
    assert_ok(weir_validate(0));
}

static int64_t live_to_the_cache(void)
{
    wr_cache *cache = the_cache();
    wr_cache_lock(cache);
    const int64_t live = wr_stats_locked(cache)->allocation[WEIR_STAT_ALL].current;
    wr_cache_unlock(cache);
    return live;
}

/* From then on the thread owns the front's lock, where the system supports it (base/bias.h). */
static weir_stream new_stream_of_this_thread(void)
{
    const weir_stream stream = new_stream(0);
    void *block = NULL;
    for (int i = 0; i < 1000; i++) {
        block = alloc_on(512, stream);
        assert_ok(weir_free(block));
    }
    const wr_segment *segment = wr_address_find(block);
    wr_front *front = atomic_load(&segment->front);
    wr_bias_thread *self = wr_bias_acquire_owned(&front->lock);
    if (!self) skip();
    wr_bias_release_owned(self);
    return stream;
}

static void a_block_whose_slot_is_full_is_free_at_once(void **state)
{
    enum { BLOCKS = WR_FRONT_DEPTH_SMALL + 8 };
    (void)state;
    const weir_stream stream = new_stream_of_this_thread();
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = alloc_on(4096, stream);
    for (int i = 0; i < BLOCKS; i++) assert_ok(weir_free(blocks[i]));
    assert_int_equal(live_to_the_cache(), WR_FRONT_DEPTH_SMALL); /* what is parked */
    for (int i = 0; i < BLOCKS; i++) assert_status(weir_free(blocks[i]), WEIR_ERR_DOUBLE_FREE);
    assert_ok(weir_validate(0));
}

static void a_block_whose_slot_has_another_size_is_free_at_once(void **state)
{
    (void)state;
    const weir_stream stream = new_stream_of_this_thread();
    const size_t index = wr_front_index(512);
    size_t other = 1024;
    while (wr_front_index(other) != index) other += 512;
    assert_true(wr_front_class(other) == WR_SMALL);
    void *one = alloc_on(512, stream), *two = alloc_on(other, stream);
    assert_ok(weir_free(one));
    assert_ok(weir_free(two));
    assert_int_equal(live_to_the_cache(), 1);
    assert_status(weir_free(two), WEIR_ERR_DOUBLE_FREE);
    assert_ok(weir_validate(0));
}

/* The region's free end is the first among blocks of equal size here. */
static void a_parked_block_stays_while_a_free_one_fits_exactly(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    char *left = alloc_on(2 * MIB, stream), *middle = alloc_on(4 * MIB, stream), *tail = alloc_on(2 * MIB, stream);
    assert_true(left < middle && middle < tail);
    assert_ok(weir_free(left));
    (void)stats_of(0);          /* parked blocks are freed and the front is closed: */
    assert_ok(weir_free(tail)); /* so this block is free at once, and the front opens again */
    assert_int_equal(live_to_the_cache(), 1);
    assert_ok(weir_free(middle));
    assert_int_equal(live_to_the_cache(), 1);
    assert_ptr_equal(alloc_on(2 * MIB, stream), left);
    assert_int_equal(live_to_the_cache(), 2);
}

/* Memory for small blocks, all of it free, and so many parked of a size; then a request of another size. Returns how
 * many are parked still. */
static unsigned parked_after_a_miss(unsigned count)
{
    enum { MIBS = 80, PARKED_MOST = 200 };
    const weir_stream stream = new_stream(0);
    void *blocks[PARKED_MOST], *mibs[MIBS];
    const size_t size = 16384;
    for (int i = 0; i < MIBS; i++) mibs[i] = alloc_on(MIB, stream);
    for (int i = 0; i < MIBS; i++) assert_ok(weir_free(mibs[i]));
    (void)stats_of(0); /* what is parked is freed, and the front is closed */
    for (unsigned i = 0; i < count; i++) blocks[i] = alloc_on(size, stream);
    wr_front *front = front_of(blocks[0]);
    assert_in_range(front->bins[WR_SMALL]->part_bytes, 64 * MIB, 128 * MIB);
    for (unsigned i = 0; i < count; i++) assert_ok(weir_free(blocks[i]));
    (void)alloc_on(3 * size, stream);
    return parked_of(front, size);
}

static void small_requests_leave_the_little_that_is_parked(void **state)
{
    (void)state;
    assert_int_equal(parked_after_a_miss(10), 10);
}

static void small_requests_take_what_is_parked_of_much_memory(void **state)
{
    (void)state;
    assert_int_equal(parked_after_a_miss(200), 0);
}

/* The memory of the ended stream goes to the default stream, which had no front before. */
static void a_stream_that_ends_leaves_other_streams_parked_blocks(void **state)
{
    (void)state;
    const weir_stream stays = new_stream(0), unused = new_stream(0), ends = new_stream(0);
    void *theirs = alloc_on(4096, stays), *standard = alloc(4096);
    const wr_front *front = front_of(theirs), *heir = front_of(standard);
    assert_ok(weir_free(theirs));
    assert_ok(weir_free(standard));
    assert_ok(weir_stream_destroy(unused));
    assert_int_equal(wr_front_parked_in_all(front, WR_FLOW_BLOCKS), 1);
    assert_int_equal(wr_front_parked_in_all(heir, WR_FLOW_BLOCKS), 1);
    assert_ok(weir_free(alloc_on(4096, ends)));
    assert_ok(weir_stream_destroy(ends));
    assert_int_equal(wr_front_parked_in_all(front, WR_FLOW_BLOCKS), 1);
    assert_int_equal(wr_front_parked_in_all(heir, WR_FLOW_BLOCKS), 0); /* it got segments */
    assert_ok(weir_validate(0));
}

static void small_and_large_blocks_of_a_stream_have_the_same_front(void **state)
{
    (void)state;
    for (int large_first = 0; large_first < 2; large_first++) {
        const weir_stream stream = new_stream(0);
        const wr_front *first = front_of(alloc_on(large_first ? 4 * MIB : 512, stream));
        assert_non_null(first);
        assert_ptr_equal(front_of(alloc_on(large_first ? 512 : 4 * MIB, stream)), first);
    }
}

static void a_front_made_while_fronts_are_closed_is_closed(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    void *block = alloc_on(4096, stream);
    wr_cache *cache = the_cache();
    wr_fronts_close(cache);
    assert_ok(weir_stream_destroy(stream));
    assert_ok(weir_free(block));
    assert_int_equal(live_to_the_cache(), 0);
    wr_fronts_open(cache);
}

typedef struct late_free {
    void *pointer;
    weir_status status;
    atomic_bool over;
} late_free;

static void *free_late(void *argument)
{
    late_free *f = argument;
    f->status = weir_free(f->pointer);
    atomic_store(&f->over, true);
    return NULL;
}

static void await_waiter(const wr_bias_lock *lock, late_free *f)
{
    while (atomic_load(&lock->waiting) == 0 && !atomic_load(&f->over)) sched_yield();
}

/* A thread that frees what was there before has claimed the block, sees what it is now, and lets go of it, once another
 * thread has come to the block with the cache's lock. */
static void claim_in_error(void *at, void *(*work)(void *), void *argument)
{
    pthread_t thread;
    wr_cache *cache = the_cache();
    wr_block *block = wr_starts_find(wr_address_find(at), at);
    assert_int_equal(wr_block_change_mark(block, WR_MARK_PARKABLE, WR_MARK_CLAIMED), WR_MARK_PARKABLE);
    assert_int_equal(pthread_create(&thread, NULL, work, argument), 0);
    for (int i = 0; i < 1000 && wr_cache_try_lock(cache); i++) {
        wr_cache_unlock(cache);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    assert_int_equal(wr_block_change_mark(block, WR_MARK_CLAIMED, WR_MARK_PARKABLE), WR_MARK_CLAIMED);
    pthread_join(thread, NULL);
}

static void a_block_that_was_claimed_in_error_can_be_freed(void **state)
{
    (void)state;
    late_free f = { .pointer = alloc_on(4096, new_stream(0)) };
    claim_in_error(f.pointer, free_late, &f);
    assert_int_equal(f.status, WEIR_OK);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 0);
    assert_ok(weir_validate(0));
}

static void a_block_that_was_claimed_in_error_can_be_recorded(void **state)
{
    (void)state;
    use u = { .pointer = alloc_on(4096, new_stream(0)), .stream = new_stream(0) };
    claim_in_error(u.pointer, record, &u);
    assert_int_equal(u.status, WEIR_OK);
    assert_ok(weir_free(u.pointer));
    assert_ok(weir_validate(0));
}

/* While a free waits for the cache's lock, the block's segment gets another front, as when its stream ends. Threads
 * that hold only that one's lock may park the block. */
static void a_block_is_freed_with_the_lock_of_the_front_that_it_has_by_then(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0), heir = new_stream(0);
    pthread_t thread;
    late_free f = { .pointer = alloc_on(4096, stream) };
    wr_segment *segment = wr_address_find(f.pointer);
    wr_front *front = front_of(f.pointer), *next = front_of(alloc_on(4096, heir));
    wr_cache *cache = the_cache();
    wr_fronts_close(cache);
    wr_front_lock(cache, next);
    assert_int_equal(pthread_create(&thread, NULL, free_late, &f), 0);
    await_waiter(&cache->lock, &f);
    atomic_store(&segment->front, next);
    wr_cache_unlock(cache);
    await_waiter(&next->lock, &f);
    const bool freed = atomic_load(&f.over);
    wr_cache_lock(cache);
    atomic_store(&segment->front, front);
    wr_front_unlock(cache, next);
    pthread_join(thread, NULL);
    wr_fronts_open(cache);
    assert_false(freed);
    assert_int_equal(f.status, WEIR_OK);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 1);
    assert_ok(weir_validate(0));
}

/* A visit would open it again. */
static void a_front_that_is_closed_and_unused_since_is_not_visited_to_be_emptied(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    const wr_front *front = front_of(alloc_on(4096, stream));
    (void)stats_of(0);
    assert_true(front->closed);
    wr_fronts_empty(the_cache());
    assert_true(front->closed);
    assert_ok(weir_validate(0));
}

static void a_front_that_was_used_again_is_emptied(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    void *first = alloc_on(4096, stream), *second = alloc_on(4096, stream);
    const wr_front *front = front_of(first);
    (void)stats_of(0);
    assert_ok(weir_free(first)); /* opens it */
    assert_ok(weir_free(second));
    assert_int_equal(wr_front_parked_in_all(front, WR_FLOW_BLOCKS), 1);
    wr_fronts_empty(the_cache());
    assert_int_equal(wr_front_parked_in_all(front, WR_FLOW_BLOCKS), 0);
    assert_ok(weir_validate(0));
}

static void free_new(size_t bytes, weir_stream stream)
{
    assert_ok(weir_free(alloc_on(bytes, stream)));
}

static void assert_slot_is_renewed(weir_stream stream, wr_front *front)
{
    const size_t old = 4096, new = size_beside(old);
    int refused = 0;
    for (int i = 0; i < 3; i++) free_new(old, stream); /* hits */
    for (; refused < 20 && parked_of(front, old) == 1; refused++) free_new(new, stream);
    assert_in_range(refused, 2, 19);
    free_new(new, stream);
    assert_int_equal(parked_of(front, new), 1);
}

static void a_size_that_is_not_asked_for_any_more_loses_its_slot(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    wr_front *front = front_of(alloc_on(512, stream));
    assert_slot_is_renewed(stream, front);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 1);
    for (int i = 0; i < 1000; i++) free_new(512, stream); /* from now on this thread owns the front's lock */
    assert_slot_is_renewed(stream, front);
    assert_ok(weir_validate(0));
}

static void a_detached_front_too_takes_the_slot_from_a_size_that_is_not_asked_for(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    void *more = alloc_on((size_t)512 * 1024, stream); /* more than is live later */
    wr_front *front = front_of(alloc_on(512, stream));
    free_new(1024, stream);
    assert_ok(weir_free(more));
    assert_ok(try_detach(front));
    settle(front);
    assert_slot_is_renewed(stream, front);
    assert_true(wr_front_is_detached(front));
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 1);
    assert_ok(weir_validate(0));
}

static void a_size_that_is_asked_for_keeps_its_slot(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    wr_front *front = front_of(alloc_on(512, stream));
    const size_t old = 4096, new = size_beside(old);
    free_new(old, stream);
    for (int i = 0; i < 100; i++) {
        free_new(new, stream);
        assert_int_equal(parked_of(front, old), 1);
        free_new(old, stream);
    }
    assert_ok(weir_validate(0));
}

/* With so many fronts the cache has a sum of what is parked. */
static void a_peak_does_not_leave_out_what_has_lost_its_slot(void **state)
{
    enum { PARKED = 100, REFUSED = 20 };
    (void)state;
    void *parked[PARKED], *refused[REFUSED];
    const size_t old = (size_t)64 * 1024, new = size_beside(old);
    for (int i = 0; i < WR_FRONTS_SUMMED + 2; i++) free_new(512, new_stream(0));
    const weir_stream stream = new_stream(0);
    wr_front *front = front_of(alloc_on(512, stream));
    for (int i = 0; i < PARKED; i++) parked[i] = alloc_on(old, stream);
    for (int i = 0; i < REFUSED; i++) refused[i] = alloc_on(new, stream);
    for (int i = 0; i < PARKED; i++) assert_ok(weir_free(parked[i]));
    assert_int_equal(parked_of(front, old), PARKED);
    for (int i = 0; i < REFUSED; i++) assert_ok(weir_free(refused[i]));
    assert_int_equal(parked_of(front, old), 0);
    free_new(200 * MIB, new_stream(0));
    assert_true(stats_of(0).allocated_bytes[WEIR_STAT_ALL].peak >= 200 * (int64_t)MIB);
}

/* A block that was parked while it was being recorded. */
static wr_front *park_a_used_block(size_t bytes, weir_stream stream)
{
    free_new(bytes, stream); /* its slot is of that size from now on */
    const weir_stream other = new_stream(0);
    void *block_at = alloc_on(bytes, stream);
    wr_front *front = front_of(block_at);
    wr_block *block = wr_starts_find(wr_address_find(block_at), block_at);
    wr_bias_acquire(&front->lock, WR_BIAS_OUTER);
    assert_ok(record_by_another_thread(block_at, other));
    push(front, block);
    wr_bias_release(&front->lock, WR_BIAS_OUTER);
    return front;
}

static void a_block_that_another_stream_uses_after_all_keeps_its_slot(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    const size_t old = 4096, new = size_beside(old);
    wr_front *front = park_a_used_block(old, stream);
    for (int i = 0; i < 100; i++) free_new(new, stream);
    assert_int_equal(parked_of(front, old), 1);
    assert_ok(weir_validate(0));
}

/* For its uses the cache's lock is needed. */
static void a_block_that_another_stream_uses_after_all_stays_in_a_detached_front(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    wr_front *front = park_a_used_block(4096, stream);
    free_new(512, stream);
    assert_ok(try_detach(front));
    wr_bias_acquire(&front->lock, WR_BIAS_OUTER);
    assert_true(wr_front_lock_cutting(front));
    wr_front_empty_detached(front, WR_CLASSES);
    wr_front_unlock_cutting(front, true);
    wr_bias_release(&front->lock, WR_BIAS_OUTER);
    assert_int_equal(parked_of(front, 4096), 1);
    assert_int_equal(parked_of(front, 512), 1);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 0);
    assert_ok(weir_validate(0));
}

#define FRONT_TEST(test) cmocka_unit_test_setup_teardown(test, open_medium_host, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRONT_TEST(a_block_recorded_while_it_is_parked_is_parked_once),
        FRONT_TEST(recording_a_parked_block_is_refused),
        FRONT_TEST(a_block_whose_slot_is_full_is_free_at_once),
        FRONT_TEST(a_block_whose_slot_has_another_size_is_free_at_once),
        FRONT_TEST(a_parked_block_stays_while_a_free_one_fits_exactly),
        FRONT_TEST(small_requests_leave_the_little_that_is_parked),
        FRONT_TEST(small_requests_take_what_is_parked_of_much_memory),
        FRONT_TEST(a_stream_that_ends_leaves_other_streams_parked_blocks),
        FRONT_TEST(small_and_large_blocks_of_a_stream_have_the_same_front),
        FRONT_TEST(a_front_made_while_fronts_are_closed_is_closed),
        FRONT_TEST(a_block_that_was_claimed_in_error_can_be_freed),
        FRONT_TEST(a_block_that_was_claimed_in_error_can_be_recorded),
        FRONT_TEST(a_block_is_freed_with_the_lock_of_the_front_that_it_has_by_then),
        FRONT_TEST(a_front_that_is_closed_and_unused_since_is_not_visited_to_be_emptied),
        FRONT_TEST(a_front_that_was_used_again_is_emptied),
        FRONT_TEST(a_size_that_is_not_asked_for_any_more_loses_its_slot),
        FRONT_TEST(a_detached_front_too_takes_the_slot_from_a_size_that_is_not_asked_for),
        FRONT_TEST(a_size_that_is_asked_for_keeps_its_slot),
        FRONT_TEST(a_peak_does_not_leave_out_what_has_lost_its_slot),
        FRONT_TEST(a_block_that_another_stream_uses_after_all_keeps_its_slot),
        FRONT_TEST(a_block_that_another_stream_uses_after_all_stays_in_a_detached_front),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
