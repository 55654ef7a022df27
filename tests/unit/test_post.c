/*
 * Blocks that are freed by another thread than the one that uses their stream (pool/front/post.h): they are free at
 * once to whoever asks, serve the stream's next requests, and leave the front's lock to its owner.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "detach_support.h"
#include "device/runtime.h"
#include "pool/front/post.h"
#include "pool/starts.h"
#include "pool_support.h"
#include "slot_support.h"
#include "thread_support.h"
#include "weir/observe.h"

enum { MANY = WR_POSTS_MOST * 3 / 2, WORTH_IT = 70 }; /* so many are collected by the next request */

typedef struct batch {
    void *blocks[MANY];
    size_t count;
    weir_status status; /* the first failure */
} batch;

static void *free_all(void *argument)
{
    batch *b = argument;
    for (size_t i = 0; i < b->count; i++) {
        const weir_status status = weir_free(b->blocks[i]);
        if (b->status == WEIR_OK) b->status = status;
    }
    return NULL;
}

static weir_status free_by_another_thread(void *block)
{
    batch b = { .blocks = { block }, .count = 1 };
    (void)in_a_thread(free_all, &b);
    return b.status;
}

static uint32_t posted_beside(const void *live)
{
    return atomic_load(&front_of(live)->posts.count);
}

/* A stream whose front's lock this thread owns, where the system supports that (base/bias.h). */
static weir_stream own_stream(void)
{
    const weir_stream stream = new_stream(0);
    for (int i = 0; i < 1000; i++) assert_ok(weir_free(alloc_on(512, stream)));
    return stream;
}

static void take_many(batch *b, size_t count, size_t bytes, weir_stream stream)
{
    *b = (batch){ .count = count };
    for (size_t i = 0; i < count; i++) b->blocks[i] = alloc_on(bytes, stream);
}

/* A stream that has much less in use now than it had, and next to nothing parked. It is settled. */
static weir_stream stream_below_its_peak(size_t bytes)
{
    const weir_stream stream = own_stream();
    batch b;
    take_many(&b, 200, bytes, stream);
    (void)free_all(&b);
    assert_int_equal(b.status, WEIR_OK);
    (void)stats_of(0); /* parked blocks have gone to the bins */
    for (int i = 0; i < 2; i++) assert_ok(weir_free(alloc_on(512, stream)));
    return stream;
}

static void post_some(batch *b, size_t count, size_t bytes, weir_stream stream)
{
    take_many(b, count, bytes, stream);
    (void)in_a_thread(free_all, b);
    assert_int_equal(b->status, WEIR_OK);
}

static bool is_of(const batch *b, const void *block)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->blocks[i] == block) return true;
    return false;
}

static void a_few_posts_are_left_while_free_memory_serves(void **state)
{
    (void)state;
    batch b;
    const weir_stream stream = stream_below_its_peak(4096);
    post_some(&b, 3, 4096, stream);
    void *block = alloc_on(4096, stream);
    assert_false(is_of(&b, block));
    assert_int_equal(posted_beside(block), 3);
}

static void many_posts_are_parked_by_the_next_request(void **state)
{
    (void)state;
    batch b;
    const weir_stream stream = stream_below_its_peak(4096);
    post_some(&b, WORTH_IT, 4096, stream);
    const uint64_t calls = driver_calls();
    void *block = alloc_on(4096, stream);
    assert_int_equal(driver_calls(), calls);
    assert_true(is_of(&b, block));
    assert_int_equal(posted_beside(block), 0);
    for (int i = 0; i < WORTH_IT - 1; i++) assert_true(is_of(&b, alloc_on(4096, stream)));
    post_some(&b, 3, 4096, stream);
    assert_false(is_of(&b, alloc_on(4096, stream)));
    assert_int_equal(posted_beside(block), 3);
}

static void what_is_posted_serves_where_it_is_unknown_whether_there_is_a_peak(void **state)
{
    (void)state;
    batch b;
    const weir_stream stream = stream_below_its_peak(4096);
    post_some(&b, 3, 4096, stream);
    void *live = alloc_on(512, stream);
    wr_front_unsettle(front_of(live));
    assert_true(is_of(&b, alloc_on(4096, stream)));
    assert_int_equal(posted_beside(live), 0);
}

static void meet(wr_front *front)
{
    wr_front_lock(front->cache, front);
    wr_front_unlock(front->cache, front);
}

/* Where fronts are many, sums say what is parked. */
static void what_was_posted_is_in_no_sum_after_its_front_has_closed(void **state)
{
    (void)state;
    batch b;
    for (int i = 0; i < WR_FRONTS_SUMMED; i++) (void)alloc_on(512, new_stream(0));
    const weir_stream stream = own_stream();
    wr_front *front = front_of(alloc_on(512, stream));
    post_some(&b, 3, 4096, stream);
    meet(front);
    assert_int_equal(front->parts[WR_SMALL].added_up[WR_FLOW_BLOCKS], wr_front_posts(front));
    atomic_fetch_add(&front->cache->fronts_closed, 1);
    meet(front);
    assert_int_equal(front->parts[WR_SMALL].added_up[WR_FLOW_BLOCKS], 0);
    wr_fronts_open(front->cache);
}

static size_t size_in_slot_of(const void *live, size_t bytes)
{
    wr_front *front = front_of(live);
    return wr_front_slot_of(wr_front_part_for(front, bytes), bytes)->bytes;
}

static void posted_blocks_take_the_slot_from_a_size_that_is_not_asked_for(void **state)
{
    (void)state;
    batch b;
    const size_t old = 4096, new = size_beside(old);
    const weir_stream stream = stream_below_its_peak(new);
    void *live = alloc_on(512, stream);
    assert_ok(weir_free(alloc_on(old, stream)));
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(size_in_slot_of(live, new), old);
        post_some(&b, WORTH_IT, new, stream);
        (void)alloc_on(new, stream);
    }
    post_some(&b, WORTH_IT, new, stream);
    assert_true(is_of(&b, alloc_on(new, stream)));
    assert_int_equal(size_in_slot_of(live, new), new);
}

static void much_posted_memory_is_parked_by_the_next_request(void **state)
{
    (void)state;
    batch b;
    const weir_stream stream = stream_below_its_peak(600 * KIB);
    post_some(&b, 2, 600 * KIB, stream);
    void *block = alloc_on(600 * KIB, stream);
    assert_true(is_of(&b, block));
    assert_int_equal(posted_beside(block), 0);
}

static void posts_that_stay_few_go_back_in_the_end(void **state)
{
    (void)state;
    batch b;
    const weir_stream stream = stream_below_its_peak(4096);
    post_some(&b, 3, 4096, stream);
    void *block = NULL;
    for (int i = 0; i < 20; i++) block = alloc_on(4096, stream);
    assert_int_equal(posted_beside(block), 0);
    post_some(&b, 3, 4096, stream);
    (void)alloc_on(8192, stream);
    assert_int_equal(posted_beside(block), 3); /* as many as then, but new ones */
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 21);
    assert_ok(weir_validate(0));
}

/* It would find a free block of exactly its size without them. */
static void a_large_request_does_not_leave_posts(void **state)
{
    (void)state;
    batch b;
    const weir_stream stream = stream_below_its_peak(64 * KIB);
    void *below = alloc_on(2 * MIB, stream), *large = alloc_on(4 * MIB, stream), *above = alloc_on(2 * MIB, stream);
    assert_true(below && above);
    assert_ok(weir_free(large));
    (void)stats_of(0); /* it is in the bins, and cannot be coalesced */
    for (int i = 0; i < 3; i++) assert_ok(weir_free(alloc_on(512, stream)));
    post_some(&b, 3, 4096, stream);
    assert_ptr_equal(alloc_on(4 * MIB, stream), large);
    assert_int_equal(posted_beside(above), 0);
}

static void parked_blocks_stay_while_other_threads_free(void **state)
{
    (void)state;
    enum { PARKED = 30 };
    void *parked[PARKED];
    batch b;
    const weir_stream stream = stream_below_its_peak(600 * KIB); /* holds so much that small requests are sparing */
    void *live = alloc_on(512, stream);
    for (int i = 0; i < PARKED; i++) parked[i] = alloc_on(100 * KIB, stream);
    post_some(&b, 3, 4096, stream);
    for (int i = 0; i < PARKED; i++) assert_ok(weir_free(parked[i])); /* enough for that */
    (void)alloc_on(9000, stream);
    assert_int_equal(parked_of(front_of(live), 100 * KIB), PARKED);
    assert_int_equal(posted_beside(live), 3);
    for (int i = 0; i < 20; i++) (void)alloc_on(10000, stream);
    assert_int_equal(posted_beside(live), 0);
    assert_int_equal(parked_of(front_of(live), 100 * KIB), 0);
}

static int open_segments(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 512 * MIB, .policy = "segments" });
    return 0;
}

/* Blocks until no more fit into what the device holds. */
static size_t fill(void **blocks, size_t most, size_t bytes, weir_stream stream)
{
    size_t count = 0;
    const int64_t held = reserved_on(0);
    for (; count < most; count++) {
        blocks[count] = alloc_on(bytes, stream);
        if (reserved_on(0) == held) continue;
        assert_ok(weir_free(blocks[count]));
        break;
    }
    return count;
}

/* Nothing is parked, so nothing goes back to the cache first. */
static void what_fits_nowhere_else_gets_posted_memory(void **state)
{
    (void)state;
    void *blocks[200] = { NULL };
    const size_t bytes = 500 * KIB;
    const weir_stream stream = stream_below_its_peak(bytes);
    assert_non_null(alloc_on(512, stream)); /* keeps a segment */
    assert_ok(weir_empty_cache(0));
    assert_in_range(fill(blocks, 200, bytes, stream), 1, 199);
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_free(alloc_on(40 * MIB, stream)));
    (void)stats_of(0);
    for (int i = 0; i < 3; i++) assert_ok(weir_free(alloc_on(4 * MIB, stream)));
    assert_non_null(alloc_on(6 * MIB, stream));
    assert_false(wr_front_any(front_of(blocks[1])));
    assert_ok(free_by_another_thread(blocks[0]));
    assert_int_equal(posted_beside(blocks[1]), 1);
    assert_ptr_equal(alloc_on(bytes, stream), blocks[0]);
    assert_int_equal(posted_beside(blocks[1]), 0);
}

static void the_owner_keeps_the_fronts_lock(void **state)
{
    (void)state;
    const weir_stream stream = own_stream();
    void *block = alloc_on(4096, stream);
    wr_front *front = front_of(block);
    wr_bias_thread *self = wr_bias_acquire_owned(&front->lock);
    if (!self) skip();
    wr_bias_release_owned(self);
    for (int i = 0; i < 50; i++) {
        assert_ok(free_by_another_thread(block));
        block = alloc_on(4096, stream);
        assert_ptr_equal(wr_bias_acquire_owned(&front->lock), self);
        wr_bias_release_owned(self);
    }
}

static void a_thread_that_uses_the_stream_itself_posts_nothing(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    void *block = alloc_on(4096, stream);
    assert_ok(weir_free(block));
    assert_int_equal(posted_beside(block), 0);
}

static void statistics_count_posted_blocks_as_freed(void **state)
{
    (void)state;
    const weir_stream stream = own_stream();
    batch b;
    take_many(&b, 20, 3000, stream);
    void *live = alloc_on(512, stream);
    (void)in_a_thread(free_all, &b);
    assert_int_equal(b.status, WEIR_OK);
    assert_int_equal(posted_beside(live), 20);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 1);
    assert_int_equal(stats_of(0).requested_bytes[WEIR_STAT_ALL].current, 512);
    assert_int_equal(posted_beside(live), 0);
    assert_ok(weir_validate(0));
}

static void peaks_do_not_count_posted_blocks(void **state)
{
    (void)state;
    const weir_stream stream = own_stream();
    batch b;
    take_many(&b, 1000, 40000, stream);
    void *large = alloc_on(40 * MIB, stream);
    (void)alloc_on(512 * KIB, stream); /* keeps the free block apart */
    assert_ok(weir_free(large));
    assert_ok(weir_stats_reset_peaks(0));
    for (int i = 0; i < 3000; i++) assert_ok(weir_free(alloc_on(512, stream)));
    (void)in_a_thread(free_all, &b);
    assert_int_equal(b.status, WEIR_OK);
    assert_ptr_equal(alloc_on(40 * MIB, stream), large);
    assert_in_range(stats_of(0).allocated_bytes[WEIR_STAT_ALL].peak, 40 * MIB, 41 * MIB);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 2);
}

static void what_is_posted_on_other_streams_is_in_no_peak_and_leaves_no_room_for_more(void **state)
{
    (void)state;
    assert_ok(weir_host_clock_hold(true)); /* mapping takes no time, whatever the machine does */
    for (int i = 0; i < 6; i++) {
        batch b;
        post_some(&b, 20, 2 * MIB, own_stream());
    }
    const weir_memory_stats stats = stats_of(0);
    assert_int_equal(stats.allocated_bytes[WEIR_STAT_ALL].peak, 40 * MIB);
    assert_int_equal(stats.allocation[WEIR_STAT_ALL].peak, 20);
    assert_true(stats.reserved_bytes[WEIR_STAT_ALL].peak < (int64_t)(100 * MIB));
}

/* Looks at what a front has that is not live, again and again. */
typedef struct watch {
    const wr_front *front;
    atomic_uint round; /* odd: it must not become less than `least` */
    atomic_bool over;
    int64_t least;
    atomic_uint looks, less;
} watch;

static void *look(void *argument)
{
    watch *w = argument;
    while (!atomic_load(&w->over)) {
        const unsigned round = atomic_load(&w->round);
        const int64_t now = wr_front_not_live_in_all(w->front, WR_FLOW_BLOCKS);
        if (round % 2 == 0 || atomic_load(&w->round) != round) continue;
        atomic_fetch_add(&w->looks, 1);
        if (now < w->least) atomic_fetch_add(&w->less, 1);
    }
    return NULL;
}

static void what_is_being_collected_is_never_live(void **state)
{
    (void)state;
    enum { BLOCKS = 800, ROUNDS = 300 };
    batch b;
    pthread_t thread;
    const weir_stream stream = stream_below_its_peak(4096);
    wr_front *front = front_of(alloc_on(512, stream));
    watch w = { .front = front, .least = BLOCKS };
    assert_int_equal(pthread_create(&thread, NULL, look, &w), 0);
    for (int i = 0; i < ROUNDS || (atomic_load(&w.looks) == 0 && i < 100 * ROUNDS); i++) {
        post_some(&b, BLOCKS, 4096, stream);
        wr_bias_acquire(&front->lock, WR_BIAS_OUTER);
        atomic_fetch_add(&w.round, 1);
        wr_front_collect_all(front);
        atomic_fetch_add(&w.round, 1);
        wr_bias_release(&front->lock, WR_BIAS_OUTER);
    }
    atomic_store(&w.over, true);
    pthread_join(thread, NULL);
    assert_int_not_equal(atomic_load(&w.looks), 0);
    assert_int_equal(atomic_load(&w.less), 0);
}

static void a_posted_block_cannot_be_freed_again_nor_used(void **state)
{
    (void)state;
    weir_pointer_info info = { .size = sizeof info };
    const weir_stream stream = own_stream(), other = new_stream(0);
    void *block = alloc_on(4096, stream);
    assert_ok(free_by_another_thread(block));
    assert_int_equal(posted_beside(block), 1);
    assert_status(weir_free(block), WEIR_ERR_DOUBLE_FREE);
    assert_ok(free_by_another_thread(alloc_on(512, stream))); /* the first of these collects, so there is one again */
    block = alloc_on(4096, stream);
    assert_ok(free_by_another_thread(block));
    assert_status(weir_record_stream(block, other), WEIR_ERR_DOUBLE_FREE);
    assert_int_equal(free_by_another_thread(block), WEIR_ERR_DOUBLE_FREE);
    assert_status(weir_pointer_info_get(block, &info), WEIR_ERR_DOUBLE_FREE);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 0);
    assert_ok(weir_validate(0));
}

typedef struct collecting {
    wr_block *block;
    atomic_bool over;
} collecting;

/* All that becomes of the mark while a block is posted and collected, again and again. */
static void *change_mark(void *argument)
{
    collecting *c = argument;
    while (!atomic_load(&c->over)) {
        wr_block_mark_as(c->block, WR_MARK_PARKED);
        wr_block_mark_as(c->block, WR_MARK_POSTED);
    }
    return NULL;
}

static void what_is_being_collected_is_told_as_freed(void **state)
{
    (void)state;
    pthread_t thread;
    unsigned told = 0;
    weir_pointer_info info = { .size = sizeof info };
    void *at = alloc_on(4096, own_stream());
    collecting c = { .block = wr_starts_find(wr_address_find(at), at) };
    assert_ok(free_by_another_thread(at));
    assert_int_equal(posted_beside(at), 1);
    assert_int_equal(pthread_create(&thread, NULL, change_mark, &c), 0);
    for (int i = 0; i < 100000; i++) told += weir_pointer_info_get(at, &info) == WEIR_OK;
    atomic_store(&c.over, true);
    pthread_join(thread, NULL);
    assert_int_equal(told, 0);
}

/* Frees by the owner and by another thread at once: the other's comes between the two halves of the owner's. */
static void a_block_that_two_threads_free_at_once_is_freed_once(void **state)
{
    (void)state;
    const weir_stream stream = own_stream();
    assert_ok(weir_free(alloc_on(4096, stream))); /* its slot is of that size from now on */
    void *at = alloc_on(4096, stream);
    wr_front *front = front_of(at);
    wr_block *block = wr_starts_find(wr_address_find(at), at);
    wr_bias_acquire(&front->lock, WR_BIAS_OUTER);
    assert_true(wr_front_good(front, block, at));
    assert_ok(free_by_another_thread(at));
    assert_int_equal(posted_beside(at), 1);
    wr_front_push(wr_front_part_for(front, block->bytes), wr_front_index(block->bytes), block);
    wr_bias_release(&front->lock, WR_BIAS_OUTER);
    assert_ptr_equal(alloc_on(4096, stream), at);
    assert_ok(free_by_another_thread(at));
    assert_int_equal(posted_beside(at), 2); /* it is posted twice now */
    wr_front_unsettle(front);               /* so that they are collected */
    assert_ptr_equal(alloc_on(4096, stream), at);
    assert_ptr_not_equal(alloc_on(4096, stream), at);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 2);
    assert_ok(weir_validate(0));
}

/* Another thread records a stream between the two halves of the owner's free: the block comes back with that use. */
static void *block_with_a_use_left(size_t bytes, weir_stream stream)
{
    const weir_stream other = new_stream(0);
    assert_ok(weir_free(alloc_on(bytes, stream))); /* its slot is of that size from now on */
    void *at = alloc_on(bytes, stream);
    wr_front *front = front_of(at);
    wr_block *block = wr_starts_find(wr_address_find(at), at);
    wr_bias_acquire(&front->lock, WR_BIAS_OUTER);
    assert_true(wr_front_good(front, block, at));
    assert_ok(weir_record_stream(at, other));
    wr_front_push(wr_front_part_for(front, block->bytes), wr_front_index(block->bytes), block);
    wr_bias_release(&front->lock, WR_BIAS_OUTER);
    assert_ptr_equal(alloc_on(bytes, stream), at);
    assert_non_null(block->uses);
    return at;
}

static void a_posted_block_does_not_wait_for_a_use_left(void **state)
{
    (void)state;
    assert_ok(free_by_another_thread(block_with_a_use_left(4096, own_stream())));
    assert_int_equal(stats_of(0).active[WEIR_STAT_ALL].current, 0);
    assert_int_equal(stats_of(0).pending_frees, 0);
    assert_ok(weir_validate(0));
}

static void refuse_a_block_with_a_use_left(bool detached)
{
    const weir_stream stream = own_stream();
    void *live = alloc_on(512, stream), *block = block_with_a_use_left(4096, stream);
    wr_front *front = front_of(live);
    assert_ok(weir_free(alloc_on(size_beside(4096), stream))); /* takes the slot */
    if (detached) assert_ok(try_detach(front));
    assert_ok(free_by_another_thread(block));
    assert_int_equal(posted_beside(live), 1);
    wr_front_unsettle(front); /* so that it is collected */
    void *more = alloc_on(1024, stream);
    assert_int_equal(posted_beside(live), 0);
    assert_int_equal(stats_of(0).active[WEIR_STAT_ALL].current, 2);
    assert_int_equal(stats_of(0).pending_frees, 0);
    assert_ok(weir_validate(0));
    assert_ok(weir_free(more));
    assert_ok(weir_free(live));
}

static void a_refused_block_does_not_wait_for_a_use_left(void **state)
{
    (void)state;
    refuse_a_block_with_a_use_left(false);
    refuse_a_block_with_a_use_left(true);
}

static void as_many_as_there_are_can_be_freed(void **state)
{
    (void)state;
    static const size_t sizes[] = { 512, 70000, 150 * KIB };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const weir_stream stream = own_stream();
        batch b;
        post_some(&b, MANY, sizes[i], stream);
        assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 0);
        assert_ok(weir_validate(0));
    }
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
}

static void a_detached_front_frees_what_does_not_fit_into_its_slots(void **state)
{
    (void)state;
    const weir_stream stream = own_stream();
    batch b;
    take_many(&b, WR_FRONT_DEPTH_SMALL, 3000, stream); /* fills the slot */
    (void)free_all(&b);
    take_many(&b, WR_FRONT_DEPTH_SMALL, 3000, stream);
    batch more;
    take_many(&more, WORTH_IT, 3000, stream);
    (void)free_all(&b); /* its slot is full now */
    void *live = alloc_on(512, stream);
    assert_ok(try_detach(front_of(live)));
    settle(front_of(live));
    (void)in_a_thread(free_all, &more);
    assert_int_equal(more.status, WEIR_OK);
    assert_int_equal(posted_beside(live), WORTH_IT);
    (void)alloc_on(1024, stream);
    assert_int_equal(posted_beside(live), 0);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 2);
    assert_ok(weir_validate(0));
}

static void much_memory_does_not_wait_to_be_collected(void **state)
{
    (void)state;
    const weir_stream stream = own_stream();
    void *live = alloc_on(512, stream);
    assert_ok(free_by_another_thread(alloc_on(100 * MIB, stream)));
    assert_int_equal(posted_beside(live), 0);
    batch b;
    post_some(&b, 3, 30 * MIB, stream);
    assert_true(posted_beside(live) <= 2);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 1);
}

static void another_stream_gets_posted_memory_when_it_is_short(void **state)
{
    (void)state;
    const weir_stream stream = own_stream();
    void *live = alloc_on(512, stream), *block = alloc_on(60 * MIB, stream);
    void *rest = alloc_on(free_memory(0), stream);
    assert_ok(free_by_another_thread(block));
    assert_int_equal(posted_beside(live), 1);
    assert_ok(weir_free(alloc_on(50 * MIB, new_stream(0))));
    assert_ok(weir_free(rest));
    assert_ok(weir_validate(0));
}

static void another_stream_gets_posted_memory_before_new_memory(void **state)
{
    (void)state;
    batch of[5];
    for (int i = 0; i < 5; i++) take_many(&of[i], 20, 2 * MIB, own_stream());
    for (int i = 0; i < 5; i++) (void)in_a_thread(free_all, &of[i]);
    for (int i = 0; i < 5; i++) assert_int_equal(of[i].status, WEIR_OK);
    assert_ok(weir_free(alloc_on(64 * MIB, new_stream(0))));
    const weir_memory_stats stats = stats_of(0);
    assert_int_equal(stats.requested_bytes[WEIR_STAT_ALL].peak, 200 * MIB);
    assert_true(stats.reserved_bytes[WEIR_STAT_ALL].current < (int64_t)(240 * MIB));
}

static void a_stream_that_ends_leaves_what_was_posted(void **state)
{
    (void)state;
    const weir_stream stream = own_stream();
    void *live = alloc_on(512, stream), *block = alloc_on(4096, stream);
    assert_ok(free_by_another_thread(block));
    assert_ok(weir_stream_destroy(stream));
    assert_status(weir_free(block), WEIR_ERR_DOUBLE_FREE);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 1);
    assert_ok(free_by_another_thread(live));
    assert_ok(weir_validate(0));
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 0);
}

static void what_was_posted_is_no_part_of_a_paused_pool(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, "model"));
    const weir_stream stream = new_stream(0);
    for (int i = 0; i < 1000; i++) assert_ok(weir_free(alloc_from(pool, 512, stream)));
    void *live = alloc_from(pool, 4096, stream), *block = alloc_from(pool, 4096, stream);
    write_pattern(live, 4096, 1);
    assert_ok(free_by_another_thread(block));
    assert_int_equal(posted_beside(live), 1);
    assert_ok(weir_pause(0, "model", WEIR_PAUSE_KEEP));
    assert_int_equal(posted_beside(live), 0);
    assert_status(weir_free(block), WEIR_ERR_DOUBLE_FREE);
    assert_ok(weir_resume(0, "model"));
    assert_true(has_pattern(live, 4096, 1));
    assert_ok(free_by_another_thread(live));
    assert_ok(weir_mempool_unref(pool));
    assert_ok(weir_validate(0));
    assert_int_equal(reserved_on(0), 0);
}

static int open_recording(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 512 * MIB, .history = 10000 });
    return 0;
}

static void nothing_is_posted_while_events_are_recorded(void **state)
{
    (void)state;
    const weir_stream stream = own_stream();
    void *block = alloc_on(4096, stream);
    assert_ok(free_by_another_thread(block));
    assert_int_equal(posted_beside(block), 0);
}

#define POST(test) cmocka_unit_test_setup_teardown(test, open_medium_host, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        POST(a_few_posts_are_left_while_free_memory_serves),
        POST(many_posts_are_parked_by_the_next_request),
        POST(what_is_posted_serves_where_it_is_unknown_whether_there_is_a_peak),
        POST(what_was_posted_is_in_no_sum_after_its_front_has_closed),
        POST(posted_blocks_take_the_slot_from_a_size_that_is_not_asked_for),
        POST(much_posted_memory_is_parked_by_the_next_request),
        POST(posts_that_stay_few_go_back_in_the_end),
        POST(a_large_request_does_not_leave_posts),
        POST(parked_blocks_stay_while_other_threads_free),
        cmocka_unit_test_setup_teardown(what_fits_nowhere_else_gets_posted_memory, open_segments, close_host),
        POST(the_owner_keeps_the_fronts_lock),
        POST(a_thread_that_uses_the_stream_itself_posts_nothing),
        POST(statistics_count_posted_blocks_as_freed),
        POST(peaks_do_not_count_posted_blocks),
        POST(what_is_posted_on_other_streams_is_in_no_peak_and_leaves_no_room_for_more),
        POST(what_is_being_collected_is_never_live),
        POST(a_posted_block_cannot_be_freed_again_nor_used),
        POST(what_is_being_collected_is_told_as_freed),
        POST(a_block_that_two_threads_free_at_once_is_freed_once),
        POST(a_posted_block_does_not_wait_for_a_use_left),
        POST(a_refused_block_does_not_wait_for_a_use_left),
        POST(as_many_as_there_are_can_be_freed),
        POST(a_detached_front_frees_what_does_not_fit_into_its_slots),
        POST(much_memory_does_not_wait_to_be_collected),
        POST(another_stream_gets_posted_memory_when_it_is_short),
        POST(another_stream_gets_posted_memory_before_new_memory),
        POST(a_stream_that_ends_leaves_what_was_posted),
        POST(what_was_posted_is_no_part_of_a_paused_pool),
        cmocka_unit_test_setup_teardown(nothing_is_posted_while_events_are_recorded, open_recording, close_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
