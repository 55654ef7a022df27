/*
 * Streams that split and coalesce blocks under a lock of their own (pool/front/detach.h): what they do alone, what
 * others see of it, and when fronts are detached and attached again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "detach_support.h"
#include "pool/count.h"
#include "pool/front/post.h"
#include "pool/starts.h"
#include "pool_support.h"
#include "thread_support.h"
#include "weir/observe.h"

#include <pthread.h>
#include <time.h>

enum { LIVE = 48, OPERATIONS = 4000 };

/* From now on the stream splits and coalesces its free blocks without the cache's lock, as long as there is no new
 * peak. */
static void detach(wr_front *front)
{
    assert_ok(try_detach(front));
    settle(front);
    assert_true(wr_front_is_detached(front));
}

/* Blocks of a stream that come and go, hardly two of the same size. */
typedef struct load {
    weir_stream stream;
    void *live[LIVE];
    uint32_t random;
} load;

static uint32_t next_random(load *l)
{
    l->random = l->random * 1664525u + 1013904223u;
    return l->random >> 8;
}

static load new_load(void)
{
    load l = { .stream = new_stream(0), .random = 1 };
    for (int i = 0; i < LIVE; i++) l.live[i] = alloc_on(700 * 1000, l.stream); /* more than is live later */
    return l;
}

static void replace(load *l)
{
    void **slot = &l->live[next_random(l) % LIVE];
    if (*slot) assert_ok(weir_free(*slot));
    *slot = alloc_on(1 + next_random(l) % (640 * 1000), l->stream);
}

/* A load on a detached front that has worked for a while. */
static load new_detached_load(int turns)
{
    load l = new_load();
    detach(front_of(l.live[0]));
    for (int i = 0; i < turns; i++) replace(&l);
    return l;
}

static void end(load *l)
{
    for (int i = 0; i < LIVE; i++) assert_ok(weir_free(l->live[i]));
    assert_ok(weir_validate(0));
}

/* ---- alone ------------------------------------------------------------------------------------------------------- */

static void *replace_many(void *argument)
{
    for (int i = 0; i < OPERATIONS; i++) replace(argument);
    return NULL;
}

/* Runs `work` in a thread while this one has the lock of the detached front's cache. */
static void run_without_the_lock_of(const wr_front *front, void *(*work)(void *), void *argument)
{
    pthread_t thread;
    struct timespec limit;
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &limit), 0);
    limit.tv_sec += 60;
    wr_bias_acquire(&front->cache->lock, WR_BIAS_INNER);
    assert_int_equal(pthread_create(&thread, NULL, work, argument), 0);
    const int error = pthread_timedjoin_np(thread, NULL, &limit);
    wr_bias_release(&front->cache->lock, WR_BIAS_INNER);
    assert_int_equal(error, 0);
    assert_true(wr_front_is_detached(front));
}

static void a_detached_stream_splits_and_coalesces_without_the_caches_lock(void **state)
{
    (void)state;
    load l = new_load();
    wr_front *front = front_of(l.live[0]);
    for (int i = 0; i < OPERATIONS; i++) replace(&l);
    detach(front);
    run_without_the_lock_of(front, replace_many, &l);
    end(&l);
}

static void a_detached_stream_grows(void **state)
{
    (void)state;
    load l = new_load();
    wr_front *front = front_of(l.live[0]);
    detach(front);
    const int64_t held = (int64_t)front->cache->chunks.count;
    void *blocks[64];
    for (int i = 0; i < 64; i++) blocks[i] = alloc_on(1536 * 1024, l.stream);
    assert_true((int64_t)front->cache->chunks.count > held);
    assert_true(wr_front_is_detached(front));
    for (int i = 0; i < 64; i++) assert_ok(weir_free(blocks[i]));
    end(&l);
}

/* They too are changed without the cache's lock. */
static void blocks_of_a_class_that_is_new_to_a_detached_stream_are_its_own(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    wr_front *front = front_of(alloc_on(512, stream));
    assert_null(front->bins[WR_LARGE]);
    detach(front);
    assert_ptr_equal(front_of(alloc_on(4 * MIB, stream)), front);
    assert_true(wr_front_is_detached(front));
    assert_non_null(front->bins[WR_LARGE]);
    assert_ptr_equal(front->bins[WR_LARGE]->ledger, &front->ledger);
}

/* A detached front begins with 64 records, and each split takes one. */
static void a_detached_stream_gets_more_records(void **state)
{
    enum { BLOCKS = 2000 };
    (void)state;
    void *blocks[BLOCKS];
    load l = new_load();
    for (int i = 0; i < LIVE; i++) assert_ok(weir_free(l.live[i]));
    for (int turn = 0; turn < 2; turn++) { /* as many as the second ever had before */
        for (int i = 0; i < BLOCKS; i++) blocks[i] = alloc_on(512 * (size_t)(1 + (i + turn) % 32), l.stream);
        wr_front *front = front_of(blocks[0]);
        assert_int_equal(wr_front_is_detached(front), turn == 1);
        for (int i = 0; i < BLOCKS; i++) assert_ok(weir_free(blocks[i]));
        (void)stats_of(0); /* parked blocks have gone to the bins */
        detach(front);
    }
    assert_ok(weir_validate(0));
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 0);
}

static void what_a_stream_that_is_detached_again_did_is_counted_once(void **state)
{
    (void)state;
    enum { TURNS = 3, EACH = 100 };
    load l = new_load();
    const int64_t before = stats_of(0).allocation[WEIR_STAT_ALL].added;
    for (int turn = 0; turn < TURNS; turn++) {
        detach(front_of(l.live[0]));
        for (int i = 0; i < EACH; i++) replace(&l);
        (void)stats_of(0); /* attaches it */
    }
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].added - before, TURNS * EACH);
    end(&l);
}

static void a_front_that_did_nothing_while_it_was_detached_tells_nothing(void **state)
{
    (void)state;
    load l = new_detached_load(300);
    const weir_memory_stats before = stats_of(0);
    assert_true(before.hits > 0);
    detach(front_of(l.live[0]));
    const weir_memory_stats after = stats_of(0);
    assert_int_equal(after.hits, before.hits);
    assert_int_equal(after.allocation[WEIR_STAT_ALL].added, before.allocation[WEIR_STAT_ALL].added);
    end(&l);
}

static uint64_t changes_seen(wr_front *front, bool attach)
{
    wr_front_lock(front->cache, front);
    if (attach) wr_fronts_attach_locked(front->cache);
    const uint64_t changes = wr_cache_changes_locked(front->cache);
    wr_front_unlock(front->cache, front);
    return changes;
}

/* A request that was refused meanwhile has a reason to look again. */
static void what_a_detached_stream_frees_is_a_change(void **state)
{
    (void)state;
    load l = new_detached_load(0);
    wr_front *front = front_of(l.live[0]);
    const uint64_t before = changes_seen(front, false);
    for (int i = 0; i < 100; i++) replace(&l);
    assert_true(wr_front_is_detached(front));
    const uint64_t after = changes_seen(front, false);
    assert_true(after > before);
    assert_int_equal(changes_seen(front, true), after);
    detach(front);
    assert_int_equal(changes_seen(front, true), after);
    end(&l);
}

static void contend(wr_front *front)
{
    wr_front_lock(front->cache, front);
    wr_front_contend_locked(front, true);
    wr_front_unlock(front->cache, front);
}

/* Others may need them. */
static void a_detached_front_keeps_few_records_of_what_has_coalesced(void **state)
{
    enum { BLOCKS = 2000, KEPT = 512 };
    (void)state;
    void *blocks[BLOCKS];
    const weir_stream stream = new_stream(0);
    for (int i = 0; i < BLOCKS; i++) blocks[i] = alloc_on(512 * (size_t)(1 + i % 32), stream);
    wr_front *front = front_of(blocks[0]);
    detach(front);
    for (int i = 0; i < BLOCKS; i++) assert_ok(weir_free(blocks[i]));
    wr_bias_acquire(&front->lock, WR_BIAS_OUTER);
    assert_true(wr_front_lock_cutting(front));
    wr_front_empty_detached(front, WR_CLASSES);
    wr_front_unlock_cutting(front, true);
    wr_bias_release(&front->lock, WR_BIAS_OUTER);
    assert_true(front->ledger.unused_block_count > KEPT);
    contend(front);
    assert_int_equal(front->ledger.unused_block_count, KEPT);
    (void)stats_of(0);
    assert_false(wr_front_is_detached(front));
    assert_int_equal(front->ledger.unused_block_count, 0);
}

/* Small and large blocks share the bytes that are spare, so freeing one kind makes room for the other. */
static void a_detached_stream_exchanges_small_blocks_for_large_ones(void **state)
{
    enum { PAIRS = 200 };
    (void)state;
    const weir_stream stream = new_stream(0);
    void *small = alloc_on(900 * 1000, stream), *large = alloc_on(2 * MIB, stream), *kept = alloc_on(3 * MIB, stream);
    assert_ok(weir_free(small));
    wr_front *front = front_of(large);
    (void)stats_of(0); /* nothing is parked */
    detach(front);
    const uint64_t hits = front->ledger.hits;
    for (size_t i = 1; i <= PAIRS; i++) {
        assert_ok(weir_free(large));
        small = alloc_on(800 * 1000 - 512 * i, stream);
        assert_ok(weir_free(small));
        large = alloc_on(2 * MIB - 512 * i, stream);
    }
    assert_int_equal(front->ledger.hits - hits, 2 * PAIRS);
    assert_ok(weir_free(large));
    assert_ok(weir_free(kept));
}

/* Requests are not rounded to the next multiple of 512 there, so no hit is inlined. */
static void a_detached_stream_serves_sizes_that_are_rounded_up(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 512 * MIB, .roundup_power2_divisions = "4" });
    load l = new_load();
    for (int i = 0; i < 1000; i++) replace(&l);
    wr_front *front = front_of(l.live[0]);
    (void)stats_of(0);
    detach(front);
    for (int i = 0; i < 100; i++) replace(&l);
    assert_true(front->ledger.hits > 10); /* the others hit a parked block */
    end(&l);
}

static void of_two_frees_of_a_detached_block_one_is_refused(void **state)
{
    (void)state;
    load l = new_detached_load(100);
    void *gone = l.live[0];
    for (int i = 0; i < LIVE; i++) assert_ok(weir_free(l.live[i]));
    assert_status(weir_free(gone), WEIR_ERR_DOUBLE_FREE);
    assert_status(weir_free((char *)gone + 512), WEIR_ERR_DOUBLE_FREE);
    assert_ok(weir_validate(0));
}

static void a_recorded_block_of_a_detached_stream_waits(void **state)
{
    (void)state;
    load l = new_load();
    const weir_stream other = new_stream(0);
    detach(front_of(l.live[0]));
    for (int i = 0; i < 100; i++) replace(&l);
    make_busy(other);
    assert_ok(weir_record_stream(l.live[0], other));
    void *recorded = l.live[0];
    assert_ok(weir_free(recorded));
    assert_int_equal(stats_of(0).pending_frees, 1);
    l.live[0] = alloc_on(512, l.stream);
    let_run(other);
    end(&l);
}

/* ---- what others see --------------------------------------------------------------------------------------------- */

static void assert_same_stat(const weir_stat *a, const weir_stat *b)
{
    for (int kind = 0; kind < WEIR_STAT_KINDS; kind++) {
        assert_int_equal(a[kind].current, b[kind].current);
        assert_int_equal(a[kind].peak, b[kind].peak);
        assert_int_equal(a[kind].added, b[kind].added);
        assert_int_equal(a[kind].removed, b[kind].removed);
    }
}

static weir_memory_stats stats_after(bool detached)
{
    open_host((weir_settings){ .host_memory = 512 * MIB });
    load l = new_load();
    if (detached) detach(front_of(l.live[0]));
    for (int i = 0; i < OPERATIONS; i++) replace(&l);
    const weir_memory_stats stats = stats_of(0);
    end(&l);
    assert_ok(weir_close());
    return stats;
}

/* Statistics of a single stream agree, except the peaks of inactive splits, which are not tracked while it is
 * detached. */
static void the_numbers_are_those_of_a_stream_that_was_attached(void **state)
{
    (void)state;
    const weir_memory_stats attached = stats_after(false), detached = stats_after(true);
    assert_same_stat(detached.allocation, attached.allocation);
    assert_same_stat(detached.allocated_bytes, attached.allocated_bytes);
    assert_same_stat(detached.active_bytes, attached.active_bytes);
    assert_same_stat(detached.requested_bytes, attached.requested_bytes);
    assert_same_stat(detached.reserved_bytes, attached.reserved_bytes);
    for (int kind = 0; kind < WEIR_STAT_KINDS; kind++) {
        assert_int_equal(detached.inactive_split[kind].current, attached.inactive_split[kind].current);
        assert_int_equal(detached.inactive_split_bytes[kind].current, attached.inactive_split_bytes[kind].current);
    }
    assert_int_equal(detached.hits, attached.hits);
}

static void a_peak_of_a_detached_stream_is_noticed(void **state)
{
    (void)state;
    load l = new_load();
    const weir_memory_stats before = stats_of(0);
    detach(front_of(l.live[0]));
    for (int i = 0; i < 200; i++) replace(&l);
    for (int i = 0; i < LIVE; i++) assert_ok(weir_free(l.live[i]));
    for (int i = 0; i < LIVE; i++) l.live[i] = alloc_on(700 * 1000, l.stream);
    void *more = alloc_on(123 * 512, l.stream);
    assert_ok(weir_free(more));
    for (int i = 0; i < 200; i++) replace(&l);
    const weir_memory_stats after = stats_of(0);
    assert_int_equal(after.allocated_bytes[WEIR_STAT_ALL].peak, before.allocated_bytes[WEIR_STAT_ALL].peak + 123 * 512);
    assert_int_equal(after.allocation[WEIR_STAT_ALL].peak, LIVE + 1);
    end(&l);
}

static void take_many(void *blocks[], int count, weir_stream stream)
{
    for (int i = 0; i < count; i++) blocks[i] = alloc_on(1000 * 1000 - 512 * (size_t)(i % 40), stream);
}

static void give_many(void *blocks[], int count)
{
    for (int i = 0; i < count; i++) assert_ok(weir_free(blocks[i]));
}

/* Each stream alone has had as much live before, and does not know of the others. */
static void a_peak_of_several_detached_streams_is_noticed_but_for_a_little(void **state)
{
    enum { STREAMS = 3, BLOCKS = 64, TOGETHER = 30 };
    (void)state;
    void *blocks[STREAMS][BLOCKS];
    weir_stream streams[STREAMS];
    wr_front *fronts[STREAMS];
    for (int s = 0; s < STREAMS; s++) {
        streams[s] = new_stream(0);
        take_many(blocks[s], BLOCKS, streams[s]);
        fronts[s] = front_of(blocks[s][0]);
        give_many(blocks[s], BLOCKS);
    }
    for (int s = 0; s < STREAMS; s++) detach(fronts[s]);
    for (int s = 0; s < STREAMS; s++) take_many(blocks[s], TOGETHER, streams[s]);
    for (int s = 0; s < STREAMS; s++) give_many(blocks[s], TOGETHER);
    const int64_t peak = stats_of(0).allocated_bytes[WEIR_STAT_ALL].peak;
    const int64_t most = STREAMS * TOGETHER * INT64_C(1000000), little = STREAMS * 9 * (int64_t)MIB;
    assert_in_range(peak, most - little, most);
}

enum { BY_TURNS = 32 };

static void take_large(void *blocks[], int count, weir_stream stream)
{
    for (int i = 0; i < count; i++) blocks[i] = alloc_on(3 * MIB - 512 * (size_t)i, stream);
}

/* Two streams. Parked blocks go back for one of yet another size. */
static void *have_most_by_turns(void *argument)
{
    const weir_stream *streams = argument;
    void *blocks[BY_TURNS];
    for (int turn = 0; turn < 6; turn++) {
        const weir_stream stream = streams[turn % 2];
        take_large(blocks, BY_TURNS - 5, stream);
        give_many(blocks, BY_TURNS - 5);
        assert_ok(weir_free(alloc_on(3 * MIB + 512, stream)));
    }
    return NULL;
}

/* Both have memory for all that is live at most, and have had it by turns. */
static void share_below_the_peak(void)
{
    void *blocks[2][BY_TURNS];
    wr_front *fronts[2];
    weir_stream streams[2];
    for (int s = 0; s < 2; s++) {
        streams[s] = new_stream(0);
        take_large(blocks[s], BY_TURNS, streams[s]);
        fronts[s] = front_of(blocks[s][0]);
    }
    for (int s = 0; s < 2; s++) give_many(blocks[s], BY_TURNS);
    assert_ok(weir_stats_reset_peaks(0));
    for (int s = 0; s < 2; s++) {
        take_large(blocks[s], BY_TURNS, streams[s]);
        give_many(blocks[s], BY_TURNS);
    }
    const int64_t peak = stats_of(0).allocated_bytes[WEIR_STAT_ALL].peak; /* nothing is parked, either */
    for (int s = 0; s < 2; s++) detach(fronts[s]);
    settle(fronts[0]); /* the other one has come */
    run_without_the_lock_of(fronts[0], have_most_by_turns, streams);
    assert_true(wr_front_is_detached(fronts[1]));
    assert_int_equal(stats_of(0).allocated_bytes[WEIR_STAT_ALL].peak, peak);
    assert_ok(weir_validate(0));
}

static void what_one_detached_stream_does_not_need_below_the_peak_another_has(void **state)
{
    (void)state;
    share_below_the_peak();
}

static void *hit_many(void *argument)
{
    void *blocks[BY_TURNS];
    take_large(blocks, BY_TURNS - 5, *(weir_stream *)argument);
    give_many(blocks, BY_TURNS - 5);
    return NULL;
}

/* More than a usual share. */
static void hits_below_the_peak_need_no_lock_either(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *blocks[BY_TURNS];
    take_large(blocks, BY_TURNS, stream);
    wr_front *front = front_of(blocks[0]), *other = front_of(alloc_on(512, new_stream(0)));
    give_many(blocks, BY_TURNS);
    assert_true(wr_front_parked_in_all(front, WR_FLOW_BYTES) > 32 * (int64_t)MIB);
    const int64_t peak = (int64_t)BY_TURNS * 3 * MIB;
    detach(front);
    detach(other);
    wr_front_unsettle(front);
    settle(front); /* there are others now */
    assert_true(wr_front_parked_in_all(front, WR_FLOW_BYTES) > 32 * (int64_t)MIB);
    run_without_the_lock_of(front, hit_many, &stream);
    assert_true(stats_of(0).allocated_bytes[WEIR_STAT_ALL].peak <= peak + 512);
    assert_ok(weir_validate(0));
}

/* The device is far below its peak, and so much is unshared. */
static void a_hit_of_a_detached_stream_at_its_own_peak_is_noticed(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 512 * MIB, .policy = "segments" });
    const weir_stream stream = new_stream(0), other = new_stream(0);
    weir_stream_stats own = { .size = sizeof own };
    void *blocks[4096];
    for (int i = 0; i < 4096; i++) blocks[i] = alloc_on(512, other);
    assert_ok(weir_free(alloc_on(300 * MIB, other)));
    give_many(blocks, 4096);
    for (int i = 0; i < 3; i++) assert_ok(weir_free(alloc_on(900 * KIB, stream)));
    for (int i = 0; i < 3; i++) assert_ok(weir_free(alloc_on(10 * MIB, stream))); /* the small one stays parked */
    void *large = alloc_on(10 * MIB, stream);
    wr_front *front = front_of(large);
    assert_ok(weir_free(large));
    detach(front);
    detach(front_of(alloc_on(512, other)));
    wr_front_unsettle(front);
    settle(front);
    void *small = alloc_on(900 * KIB, stream);
    large = alloc_on(10 * MIB, stream);
    assert_ok(weir_free(small));
    assert_ok(weir_free(large));
    assert_true(wr_front_is_detached(front));
    assert_ok(weir_stream_stats_get(stream, &own));
    assert_int_equal(own.live_bytes_peak, 10 * MIB + 900 * KIB);
    assert_int_equal(own.live_peak, 2);
}

/* From the first private pool on, the default one has peaks of its own. */
static void so_it_does_below_the_peak_of_its_pool(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, "private"));
    share_below_the_peak();
    assert_ok(weir_mempool_unref(pool));
}

/* What settled detached fronts have spare, and what nobody has, is below the peak, but for a little each, and for one
 * that has just asked. */
static void assert_shares_fit(wr_cache *cache, const wr_mempool *pool, const wr_unshared *unshared)
{
    const int64_t little[WR_FLOW_LIVE] = { 1024, 8 * MIB, 8 * MIB };
    const wr_flow *flow = pool ? &pool->flow : &cache->ledger.flow;
    wr_not_live all, own;
    bool fit = true;
    wr_cache_lock(cache);
    wr_fronts_sum_locked(cache->pools, &all, &own);
    for (int i = 0; i < WR_FLOW_LIVE; i++) {
        int64_t shares = atomic_load(&unshared->rest[i]);
        int64_t most = wr_not_live_below_peak(pool ? &own : &all, flow, i) + little[i];
        for (const wr_front *f = cache->detached; f; f = f->next_detached) {
            if (wr_front_is_in(f, pool) && wr_front_is_settled(f))
                shares += wr_front_spare_in_all(f, (wr_flow_number)i);
            most += little[i];
        }
        fit &= shares <= most;
    }
    wr_cache_unlock(cache);
    assert_true(fit);
}

static void the_shares_of_detached_fronts_are_below_the_peaks_of_device_and_pool(void **state)
{
    enum { STREAMS = 3, BLOCKS = 24, TURNS = 6000 };
    (void)state;
    void *blocks[STREAMS][BLOCKS] = { { NULL } };
    load dice = { .random = 1 };
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, "private")); /* so the default one counts */
    wr_front *fronts[STREAMS];
    weir_stream streams[STREAMS];
    for (int s = 0; s < STREAMS; s++) {
        streams[s] = new_stream(0);
        fronts[s] = front_of(blocks[s][0] = alloc_on(MIB, streams[s]));
    }
    wr_cache *cache = fronts[0]->cache;
    for (int turn = 0; turn < TURNS; turn++) {
        const uint32_t r = next_random(&dice);
        void **block = &blocks[r % STREAMS][r / 4 % BLOCKS];
        if (turn % 500 == 0) assert_ok(weir_stats_reset_peaks(0));
        for (int s = 0; s < STREAMS; s++)
            if (!wr_front_is_detached(fronts[s])) detach(fronts[s]); /* attached ones tell nobody of hits */
        if (*block) assert_ok(weir_free(*block));
        *block = next_random(&dice) % 3 ? alloc_on(1 + next_random(&dice) % (4 * MIB), streams[r % STREAMS]) : NULL;
        assert_shares_fit(cache, NULL, &cache->unshared);
        assert_shares_fit(cache, cache->pools, &cache->pools->unshared);
    }
    for (int s = 0; s < STREAMS; s++)
        for (int i = 0; i < BLOCKS; i++)
            if (blocks[s][i]) assert_ok(weir_free(blocks[s][i]));
    assert_ok(weir_mempool_unref(pool));
}

enum { ALL = 60, OTHERS = 40 };

static void *free_all(void *argument)
{
    void **blocks = argument;
    for (int i = 0; i < ALL; i++) assert_ok(weir_free(blocks[i]));
    return NULL;
}

/* What other threads have freed for a front becomes spare there when it collects, and is for no other front. */
static void what_is_posted_to_a_detached_front_counts_once(void **state)
{
    (void)state;
    void *blocks[ALL], *others[ALL];
    const weir_stream stream = new_stream(0), other = new_stream(0);
    for (int i = 0; i < ALL; i++) blocks[i] = alloc_on(MIB, stream);
    for (int i = 0; i < ALL; i++) others[i] = alloc_on(MIB, other);
    wr_front *front = front_of(blocks[0]), *beside = front_of(others[0]);
    give_many(others, ALL);
    assert_ok(weir_stats_reset_peaks(0));
    for (int i = 0; i < ALL; i++) others[i] = alloc_on(MIB, other); /* once as much as now on the first stream */
    give_many(others, ALL);
    give_many(blocks, ALL);
    assert_ok(weir_stats_reset_peaks(0));
    for (int i = 0; i < ALL; i++) others[i] = alloc_on(MIB, other);
    give_many(others, ALL);
    (void)stats_of(0); /* nothing is parked */
    for (int i = 0; i < ALL; i++) blocks[i] = alloc_on(MIB, stream);
    for (int i = 0; i < 1000; i++) assert_ok(weir_free(alloc_on(512, stream))); /* this thread has the front */
    assert_ok(try_detach(front));
    assert_ok(try_detach(beside));
    settle(front);
    for (int i = 0; i < 1000; i++) assert_ok(weir_free(alloc_on(512, stream)));
    (void)in_a_thread(free_all, blocks);
    assert_int_equal(wr_front_posts(front), ALL);
    settle(beside);
    for (int i = 0; i < ALL; i++) blocks[i] = alloc_on(MIB, stream);
    for (int i = 0; i < OTHERS; i++) others[i] = alloc_on(MIB - 512, other);
    give_many(others, OTHERS);
    give_many(blocks, ALL);
    const int64_t most = (ALL + OTHERS) * (int64_t)MIB, little = 2 * 9 * (int64_t)MIB;
    assert_in_range(stats_of(0).allocated_bytes[WEIR_STAT_ALL].peak, most - little, most);
}

/* What was spare while it was attached may be others' by now. */
static void a_front_that_is_detached_measures_anew_what_is_spare(void **state)
{
    enum { BLOCKS = 40, TAKEN = 30 };
    (void)state;
    void *blocks[BLOCKS], *others[BLOCKS];
    const weir_stream stream = new_stream(0), other = new_stream(0);
    take_large(blocks, BLOCKS, stream);
    take_large(others, BLOCKS, other);
    wr_front *front = front_of(blocks[0]), *third = front_of(alloc_on(512, new_stream(0)));
    give_many(others, BLOCKS);
    assert_ok(weir_stats_reset_peaks(0));
    give_many(blocks, BLOCKS);
    take_large(blocks, BLOCKS / 2, stream); /* hits among them: it knows that all is spare */
    give_many(blocks, BLOCKS / 2);
    take_large(others, TAKEN, other);
    assert_ok(try_detach(third));
    assert_true(wr_front_is_settled(front));
    assert_ok(try_detach(front));
    assert_false(wr_front_is_settled(front));
    take_large(blocks, TAKEN, stream);
    give_many(others, TAKEN);
    give_many(blocks, TAKEN);
    const int64_t most = 2 * TAKEN * 3 * (int64_t)MIB, little = 2 * 9 * (int64_t)MIB;
    assert_in_range(stats_of(0).allocated_bytes[WEIR_STAT_ALL].peak, most - little, most);
}

static void beside_others_a_detached_front_may_hand_out_a_little_even_at_the_peak(void **state)
{
    (void)state;
    void *blocks[64];
    const weir_stream stream = new_stream(0);
    take_many(blocks, 64, stream);
    wr_front *front = front_of(blocks[0]);
    give_many(blocks, 64);
    detach(front);
    detach(front_of(alloc_on(512, new_stream(0))));
    (void)alloc_on(64 * MIB, new_stream(0)); /* the device is at its peak, and the first stream far below its own */
    settle(front);
    assert_int_equal(wr_front_spare_in_all(front, WR_FLOW_BYTES), 8 * MIB);
    assert_in_range(wr_front_spare_in_all(front, WR_FLOW_BLOCKS), 1, 1024);
}

enum { FRONTS = 3 };

/* Fronts of as many streams, which are detached. */
static void detach_some(wr_front *fronts[FRONTS])
{
    for (int i = 0; i < FRONTS; i++) {
        fronts[i] = front_of(alloc_on(512, new_stream(0)));
        detach(fronts[i]);
    }
}

/* Gives the front so many bytes of large blocks to hand out, whatever its peaks are. */
static void set_spare(wr_front *front, int64_t bytes)
{
    for (int class = WR_SMALL; class <= WR_LARGE; class ++) {
        wr_front_part *part = &front->parts[class];
        const int64_t more = (class == WR_LARGE ? bytes : 0) - wr_front_spare(part, WR_FLOW_BYTES);
        wr_front_keep(part, WR_FLOW_BYTES, -more);
        wr_front_count(part, WR_FLOW_BYTES, more);
    }
}

static int64_t share_of(const wr_front *front, const wr_mempool *pool, int64_t spare)
{
    return wr_detached_share(front, pool, WR_FLOW_BYTES, spare);
}

/* The rest is for those whose blocks become more. */
static void a_detached_front_gets_a_usual_share_of_what_others_do_not_have(void **state)
{
    (void)state;
    wr_front *fronts[FRONTS];
    detach_some(fronts);
    for (int i = 1; i < FRONTS; i++) wr_front_unsettle(fronts[i]); /* they have none */
    assert_int_equal(share_of(fronts[0], NULL, 16 * FRONTS * 100 * MIB), 100 * MIB);
    assert_int_equal(share_of(fronts[0], NULL, 100 * MIB), 8 * MIB);
    assert_int_equal(share_of(fronts[0], NULL, 0), 8 * MIB);
}

static void a_detached_front_gets_an_equal_part_of_what_is_less_than_a_usual_share(void **state)
{
    (void)state;
    wr_front *fronts[FRONTS];
    detach_some(fronts);
    for (int i = 1; i < FRONTS; i++) set_spare(fronts[i], 1000 * MIB);
    assert_int_equal(share_of(fronts[0], NULL, 2030 * MIB), 10 * MIB);
    assert_int_equal(share_of(fronts[0], NULL, 2003 * MIB), 8 * MIB);
}

/* It cannot take more later. */
static void a_shared_front_that_is_detached_gets_an_equal_part(void **state)
{
    (void)state;
    wr_front *fronts[FRONTS];
    detach_some(fronts);
    for (int i = 1; i < FRONTS; i++) wr_front_unsettle(fronts[i]);
    atomic_store(&fronts[0]->shared, true);
    assert_int_equal(share_of(fronts[0], NULL, 3000 * MIB), 1000 * MIB);
    atomic_store(&fronts[0]->shared, false);
}

static void detached_fronts_of_other_pools_get_nothing_below_a_pools_peak(void **state)
{
    (void)state;
    wr_front *fronts[FRONTS];
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, "private"));
    detach_some(fronts);
    wr_front *own = front_of(alloc_from(pool, 512, new_stream(0)));
    detach(own);
    for (int i = 0; i < FRONTS; i++) set_spare(fronts[i], 500 * MIB);
    assert_int_equal(share_of(own, own->pool, 1000 * MIB), 1000 * MIB);
    assert_int_equal(share_of(own, NULL, 1000 * MIB), 8 * MIB);
    assert_ok(weir_mempool_unref(pool));
}

static void set_unshared(wr_front *front, int64_t of_all, int64_t of_pool)
{
    atomic_store(&front->cache->unshared.rest[WR_FLOW_BYTES], of_all);
    atomic_store(&front->pool->unshared.rest[WR_FLOW_BYTES], of_pool);
}

static void assert_unshared(wr_front *front, int64_t of_all, int64_t of_pool)
{
    assert_int_equal(atomic_load(&front->cache->unshared.rest[WR_FLOW_BYTES]), of_all);
    assert_int_equal(atomic_load(&front->pool->unshared.rest[WR_FLOW_BYTES]), of_pool);
}

static void what_is_unshared_is_taken_below_the_peaks_of_device_and_pool(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, "private"));
    wr_front *front = front_of(alloc_from(pool, 512, new_stream(0)));
    set_unshared(front, 100, 30);
    assert_int_equal(wr_front_take_unshared(front, WR_FLOW_BYTES, 10, 50), 30);
    assert_unshared(front, 70, 0);
    assert_int_equal(wr_front_take_unshared(front, WR_FLOW_BYTES, 10, 50), 0);
    assert_unshared(front, 70, 0);
    wr_front_put_unshared(front, WR_FLOW_BYTES, 40);
    assert_unshared(front, 110, 40);
    assert_int_equal(wr_front_take_unshared(front, WR_FLOW_BYTES, 10, 20), 20);
    assert_unshared(front, 90, 20);
    assert_int_equal(wr_front_take_unshared(front, WR_FLOW_BYTES, 91, 100), 0);
    assert_unshared(front, 90, 20);
    assert_ok(weir_mempool_unref(pool));
}

static void a_detached_front_that_is_to_ask_returns_nothing(void **state)
{
    (void)state;
    wr_front *fronts[FRONTS];
    detach_some(fronts);
    settle(fronts[1]);
    wr_front_unsettle(fronts[0]);
    for (int i = 0; i < 2; i++) {
        wr_unshared *unshared = &fronts[i]->cache->unshared;
        const int64_t before = atomic_load(&unshared->rest[WR_FLOW_BYTES]);
        set_spare(fronts[i], 400 * MIB);
        wr_front_return_more(fronts[i], 2 * MIB);
        const int64_t after = atomic_load(&unshared->rest[WR_FLOW_BYTES]);
        assert_int_equal(after - before, 400 * MIB - wr_front_spare(&fronts[i]->parts[WR_LARGE], WR_FLOW_BYTES));
        assert_int_equal(after != before, i == 1);
    }
}

/* Until there is a private one, the default pool's peak is the device's. */
static void what_is_unshared_is_taken_once_where_the_pool_has_no_numbers_of_its_own(void **state)
{
    (void)state;
    wr_front *front = front_of(alloc_on(512, new_stream(0)));
    front->cache->unshared.share[WR_FLOW_BYTES] = 7;
    set_unshared(front, 100, 0);
    assert_int_equal(wr_front_take_unshared(front, WR_FLOW_BYTES, 10, 50), 50);
    wr_front_put_unshared(front, WR_FLOW_BYTES, 20);
    assert_unshared(front, 70, 0);
    assert_int_equal(wr_front_usual_share(front, WR_FLOW_BYTES), 7);
}

static void the_usual_share_is_the_less_of_the_devices_and_the_pools(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, "private"));
    wr_front *front = front_of(alloc_from(pool, 512, new_stream(0)));
    int64_t *of_all = &front->cache->unshared.share[WR_FLOW_BYTES];
    int64_t *of_pool = &front->pool->unshared.share[WR_FLOW_BYTES];
    *of_all = 20;
    *of_pool = 10;
    assert_int_equal(wr_front_usual_share(front, WR_FLOW_BYTES), 10);
    *of_pool = 30;
    assert_int_equal(wr_front_usual_share(front, WR_FLOW_BYTES), 20);
    assert_ok(weir_mempool_unref(pool));
}

/* Only what there is too little for is divided anew. */
static void a_detached_front_need_not_ask_again_while_its_share_fits(void **state)
{
    (void)state;
    void *blocks[64];
    const weir_stream stream = new_stream(0), other = new_stream(0);
    take_many(blocks, 64, stream);
    wr_front *front = front_of(blocks[0]);
    give_many(blocks, 64);
    (void)alloc_on(512, other);
    detach(front);
    assert_true(wr_front_is_settled(front));
    (void)alloc_on(512, other);
    assert_true(wr_front_is_settled(front));
    (void)alloc_on(60 * MIB, other);
    assert_false(wr_front_is_settled(front));
}

/* The device is far below its own peak. */
static void a_detached_front_asks_again_once_its_share_does_not_fit_below_the_peak_of_its_pool(void **state)
{
    (void)state;
    void *blocks[64];
    const weir_stream stream = new_stream(0), other = new_stream(0);
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, "private"));
    assert_ok(weir_free(alloc_on(300 * MIB, other)));
    assert_ok(weir_empty_cache(0));
    for (int i = 0; i < 64; i++) blocks[i] = alloc_from(pool, MIB, stream);
    wr_front *front = front_of(blocks[0]);
    give_many(blocks, 64);
    void *little = alloc_from(pool, 512, other);
    detach(front);
    assert_in_range(atomic_load(&front->pool->unshared.rest[WR_FLOW_BYTES]), 0, 64 * MIB);
    void *more = alloc_from(pool, 512, other);
    assert_true(wr_front_is_settled(front));
    void *much = alloc_from(pool, 60 * MIB, other);
    assert_false(wr_front_is_settled(front));
    assert_ok(weir_free(little));
    assert_ok(weir_free(more));
    assert_ok(weir_free(much));
    assert_ok(weir_mempool_unref(pool));
}

static void what_a_detached_front_has_freed_is_free_in_its_own_pool_only(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, "private"));
    const weir_stream stream = new_stream(0);
    void *block = alloc_on(2 * MIB, stream), *other = alloc_from(pool, 512, new_stream(0));
    wr_front *front = front_of(block);
    detach(front);
    wr_bias_acquire(&front->lock, WR_BIAS_OUTER);
    assert_true(wr_front_give_detached(front, wr_starts_find(wr_address_find(block), block), block));
    wr_bias_release(&front->lock, WR_BIAS_OUTER);
    const wr_mempool *pools[] = { NULL, front->pool, front_of(other)->pool };
    const int64_t untold[] = { 2 * MIB, 2 * MIB, 0 };
    wr_cache_lock(front->cache);
    for (int i = 0; i < 3; i++)
        assert_int_equal(wr_detached_untold(front->cache, pools[i], WR_LARGE, WR_FLOW_BYTES), untold[i]);
    wr_cache_unlock(front->cache);
    assert_ok(weir_free(other));
    assert_ok(weir_mempool_unref(pool));
}

/* The other stream is not detached, and takes memory that was free below the peak. */
static void a_peak_beside_a_detached_stream_is_noticed(void **state)
{
    enum { BLOCKS = 64, OTHERS = 30, TOGETHER = 56 };
    (void)state;
    void *blocks[BLOCKS], *others[BLOCKS];
    const weir_stream stream = new_stream(0), other = new_stream(0);
    take_many(others, BLOCKS, other);
    give_many(others, BLOCKS);
    take_many(blocks, BLOCKS, stream);
    wr_front *front = front_of(blocks[0]);
    give_many(blocks, BLOCKS);
    (void)stats_of(0); /* nothing is parked */
    detach(front);
    take_many(blocks, OTHERS, stream);
    take_many(others, OTHERS, other);
    take_many(&blocks[OTHERS], TOGETHER - OTHERS, stream);
    give_many(blocks, TOGETHER);
    give_many(others, OTHERS);
    const int64_t most = (TOGETHER + OTHERS) * INT64_C(1000000), little = 9 * (int64_t)MIB;
    assert_in_range(stats_of(0).allocated_bytes[WEIR_STAT_ALL].peak, most - little, most);
}

/* So many fronts report their parked bytes only now and then. Blocks parked in a detached front are free, and count
 * once. */
static void a_peak_beside_one_detached_stream_of_many_is_noticed(void **state)
{
    enum { STREAMS = WR_FRONTS_SUMMED + 2, BLOCKS = 40 };
    (void)state;
    void *blocks[BLOCKS], *others[BLOCKS];
    weir_stream streams[STREAMS];
    for (int s = 0; s < STREAMS; s++) {
        streams[s] = new_stream(0);
        assert_ok(weir_free(alloc_on(512, streams[s])));
    }
    take_many(blocks, BLOCKS, streams[0]);
    take_many(others, BLOCKS, streams[1]);
    give_many(others, BLOCKS);
    give_many(blocks, BLOCKS);
    assert_ok(weir_stats_reset_peaks(0));
    take_many(blocks, BLOCKS, streams[0]);
    wr_front *front = front_of(blocks[0]);
    give_many(blocks, BLOCKS);
    detach(front);
    assert_ok(weir_free(alloc_on(1000 * 1000 + 512, streams[0]))); /* for which parked blocks go back */
    assert_true(wr_front_is_detached(front));
    take_many(others, BLOCKS, streams[1]);
    void *more = alloc_on(30 * MIB, streams[1]);
    assert_ok(weir_free(more));
    give_many(others, BLOCKS);
    assert_in_range(stats_of(0).allocated_bytes[WEIR_STAT_ALL].peak, BLOCKS * 980000 + 30 * MIB,
                    BLOCKS * 1000000 + 30 * MIB);
}

/* From then on the default pool has statistics of its own. */
static void a_private_pool_finds_the_default_ones_numbers_right(void **state)
{
    (void)state;
    load l = new_detached_load(300);
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, "private"));
    void *block = alloc_from(pool, MIB, l.stream);
    detach(front_of(l.live[0]));
    for (int i = 0; i < 300; i++) replace(&l);
    const weir_memory_stats of_default = pool_stats((weir_mempool){ 0, 0 });
    assert_int_equal(of_default.allocation[WEIR_STAT_ALL].current, LIVE);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, LIVE + 1);
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(pool));
    end(&l);
}

/* All free memory goes back: parked blocks, and those whose free is not yet reported to the cache. */
static void memory_of_a_detached_stream_goes_back_to_the_driver(void **state)
{
    (void)state;
    load l = new_detached_load(300);
    end(&l);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
}

static void a_detached_stream_ends(void **state)
{
    (void)state;
    load l = new_detached_load(300);
    assert_ok(weir_stream_destroy(l.stream));
    end(&l);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 0);
}

/* ---- coming and going -------------------------------------------------------------------------------------------- */

/* Acts as if every n-th request had found the lock taken. */
static bool detaches(wr_front *front, int every)
{
    for (int i = 0; i < 1000 && !wr_front_is_detached(front); i++) {
        wr_front_lock(front->cache, front);
        wr_front_contend_locked(front, i % every == 0);
        wr_front_unlock(front->cache, front);
    }
    return wr_front_is_detached(front);
}

static void a_front_is_detached_where_requests_wait(void **state)
{
    (void)state;
    assert_false(detaches(front_of(alloc_on(512, new_stream(0))), 16));
    assert_true(detaches(front_of(alloc_on(512, new_stream(0))), 4));
}

/* Their frees need the cache's lock in any case. */
static void a_front_whose_blocks_other_streams_use_is_not_detached(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0), other = new_stream(0);
    wr_front *front = front_of(alloc_on(512, stream));
    for (int i = 0; i < 200; i++) {
        void *block = alloc_on(512, stream);
        contend(front);
        assert_ok(weir_record_stream(block, other));
        assert_ok(weir_free(block));
    }
    assert_false(wr_front_is_detached(front));
    assert_true(detaches(front, 4));
}

/* They share the stream's own numbers. */
static void a_stream_has_one_detached_front(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, "private"));
    wr_front *first = front_of(alloc_on(512, stream)), *second = front_of(alloc_from(pool, 512, stream));
    assert_ptr_not_equal(first, second);
    detach(first);
    assert_ok(try_detach(second));
    assert_false(wr_front_is_detached(second));
    (void)stats_of(0);
    detach(second);
    assert_ok(try_detach(first));
    assert_false(wr_front_is_detached(first));
    assert_ok(weir_mempool_unref(pool));
}

static void a_front_that_was_attached_is_detached_after_waiting_as_often_again(void **state)
{
    (void)state;
    wr_front *front = front_of(alloc_on(512, new_stream(0)));
    int first = 0, second = 0;
    for (; !wr_front_is_detached(front); first++) contend(front);
    (void)stats_of(0);
    for (; !wr_front_is_detached(front); second++) contend(front);
    assert_int_equal(second, first);
}

static void beside_a_detached_front_another_that_asks_often_is_detached_too(void **state)
{
    (void)state;
    detach(front_of(alloc_on(512, new_stream(0))));
    wr_front *front = front_of(alloc_on(512, new_stream(0)));
    for (int i = 0; i < 100; i++) {
        wr_front_lock(front->cache, front);
        wr_front_contend_locked(front, false);
        wr_front_unlock(front->cache, front);
    }
    assert_true(wr_front_is_detached(front));
}

static void reading_statistics_attaches_a_front(void **state)
{
    (void)state;
    wr_front *front = front_of(alloc_on(512, new_stream(0)));
    detach(front);
    (void)stats_of(0);
    assert_false(wr_front_is_detached(front));
    assert_null(front->cache->detached);
    detach(front);
}

static void an_idle_detached_front_is_attached_after_many_visits(void **state)
{
    (void)state;
    load l = new_load();
    wr_front *front = front_of(l.live[0]), *idle = front_of(alloc_on(512, new_stream(0)));
    detach(front);
    detach(idle);
    for (int i = 0; i < 1000; i++) {
        replace(&l);
        wr_cache_lock(front->cache);
        wr_cache_unlock(front->cache);
    }
    assert_true(wr_front_is_detached(front));
    assert_false(wr_front_is_detached(idle));
    end(&l);
}

/* The front's thread frees and allocates so often that the cutting lock is enough, in a row. */
static void cut_often(wr_front *front, int times)
{
    wr_bias_acquire(&front->lock, WR_BIAS_OUTER);
    for (int i = 0; i < times && wr_front_lock_cutting(front); i++) wr_front_unlock_cutting(front, true);
    wr_bias_release(&front->lock, WR_BIAS_OUTER);
}

enum { OFTEN = 200 * 1000 }; /* less than is needed, twice is more */

static void a_detached_front_that_meets_no_other_thread_is_attached_in_time(void **state)
{
    (void)state;
    load l = new_detached_load(0);
    wr_front *front = front_of(l.live[0]);
    cut_often(front, OFTEN);
    for (int i = 0; i < 100; i++) replace(&l);
    assert_true(wr_front_is_detached(front));
    cut_often(front, OFTEN);
    for (int i = 0; i < 100; i++) replace(&l);
    assert_false(wr_front_is_detached(front));
    end(&l);
}

/* Takes all locks once, and keeps them for a moment after the other thread knows. */
typedef struct holder {
    wr_cache *cache;
    pthread_barrier_t held;
} holder;

static void *hold_all(void *argument)
{
    holder *h = argument;
    wr_cache_lock(h->cache);
    pthread_barrier_wait(&h->held);
    nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    wr_cache_unlock(h->cache);
    return NULL;
}

static void cut_while_held(wr_front *front)
{
    holder h = { .cache = front->cache };
    assert_int_equal(pthread_barrier_init(&h.held, NULL, 2), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, hold_all, &h), 0);
    pthread_barrier_wait(&h.held);
    cut_often(front, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_barrier_destroy(&h.held), 0);
}

static void a_detached_front_that_meets_another_thread_stays_detached(void **state)
{
    (void)state;
    load l = new_detached_load(0);
    wr_front *front = front_of(l.live[0]);
    cut_often(front, OFTEN);
    do cut_while_held(front); /* where this thread is late, it finds the lock free */
    while (front->alone >= OFTEN);
    cut_often(front, OFTEN);
    for (int i = 0; i < 100; i++) replace(&l);
    assert_true(wr_front_is_detached(front));
    end(&l);
}

static void so_does_one_whose_request_finds_the_caches_lock_taken(void **state)
{
    (void)state;
    load l = new_detached_load(0);
    wr_front *front = front_of(l.live[0]);
    cut_often(front, OFTEN);
    contend(front);
    cut_often(front, OFTEN);
    for (int i = 0; i < 100; i++) replace(&l);
    assert_true(wr_front_is_detached(front));
    end(&l);
}

static void closed_fronts_are_not_detached(void **state)
{
    (void)state;
    wr_front *front = front_of(alloc_on(512, new_stream(0)));
    wr_fronts_close(front->cache);
    assert_false(detaches(front, 1));
    wr_fronts_open(front->cache);
    assert_true(detaches(front, 1));
}

#define DETACH_TEST(test) cmocka_unit_test_setup_teardown(test, open_medium_host, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DETACH_TEST(a_detached_stream_splits_and_coalesces_without_the_caches_lock),
        DETACH_TEST(a_detached_stream_grows),
        DETACH_TEST(blocks_of_a_class_that_is_new_to_a_detached_stream_are_its_own),
        DETACH_TEST(a_detached_stream_gets_more_records),
        DETACH_TEST(what_a_stream_that_is_detached_again_did_is_counted_once),
        DETACH_TEST(a_front_that_did_nothing_while_it_was_detached_tells_nothing),
        DETACH_TEST(what_a_detached_stream_frees_is_a_change),
        DETACH_TEST(a_detached_front_keeps_few_records_of_what_has_coalesced),
        DETACH_TEST(a_detached_stream_exchanges_small_blocks_for_large_ones),
        cmocka_unit_test_teardown(a_detached_stream_serves_sizes_that_are_rounded_up, close_host),
        DETACH_TEST(of_two_frees_of_a_detached_block_one_is_refused),
        DETACH_TEST(a_recorded_block_of_a_detached_stream_waits),
        cmocka_unit_test(the_numbers_are_those_of_a_stream_that_was_attached),
        DETACH_TEST(a_peak_of_a_detached_stream_is_noticed),
        DETACH_TEST(a_peak_of_several_detached_streams_is_noticed_but_for_a_little),
        DETACH_TEST(what_one_detached_stream_does_not_need_below_the_peak_another_has),
        DETACH_TEST(so_it_does_below_the_peak_of_its_pool),
        DETACH_TEST(hits_below_the_peak_need_no_lock_either),
        cmocka_unit_test_teardown(a_hit_of_a_detached_stream_at_its_own_peak_is_noticed, close_host),
        DETACH_TEST(the_shares_of_detached_fronts_are_below_the_peaks_of_device_and_pool),
        cmocka_unit_test_setup_teardown(what_is_posted_to_a_detached_front_counts_once, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(a_front_that_is_detached_measures_anew_what_is_spare, open_large_host,
                                        close_host),
        DETACH_TEST(beside_others_a_detached_front_may_hand_out_a_little_even_at_the_peak),
        DETACH_TEST(a_detached_front_gets_a_usual_share_of_what_others_do_not_have),
        DETACH_TEST(a_detached_front_gets_an_equal_part_of_what_is_less_than_a_usual_share),
        DETACH_TEST(a_shared_front_that_is_detached_gets_an_equal_part),
        DETACH_TEST(detached_fronts_of_other_pools_get_nothing_below_a_pools_peak),
        DETACH_TEST(what_is_unshared_is_taken_below_the_peaks_of_device_and_pool),
        DETACH_TEST(a_detached_front_that_is_to_ask_returns_nothing),
        DETACH_TEST(what_is_unshared_is_taken_once_where_the_pool_has_no_numbers_of_its_own),
        DETACH_TEST(the_usual_share_is_the_less_of_the_devices_and_the_pools),
        DETACH_TEST(a_detached_front_need_not_ask_again_while_its_share_fits),
        DETACH_TEST(a_detached_front_asks_again_once_its_share_does_not_fit_below_the_peak_of_its_pool),
        DETACH_TEST(what_a_detached_front_has_freed_is_free_in_its_own_pool_only),
        DETACH_TEST(a_peak_beside_a_detached_stream_is_noticed),
        DETACH_TEST(a_peak_beside_one_detached_stream_of_many_is_noticed),
        DETACH_TEST(a_private_pool_finds_the_default_ones_numbers_right),
        DETACH_TEST(memory_of_a_detached_stream_goes_back_to_the_driver),
        DETACH_TEST(a_detached_stream_ends),
        DETACH_TEST(a_front_is_detached_where_requests_wait),
        DETACH_TEST(a_front_whose_blocks_other_streams_use_is_not_detached),
        DETACH_TEST(a_stream_has_one_detached_front),
        DETACH_TEST(a_front_that_was_attached_is_detached_after_waiting_as_often_again),
        DETACH_TEST(beside_a_detached_front_another_that_asks_often_is_detached_too),
        DETACH_TEST(reading_statistics_attaches_a_front),
        DETACH_TEST(an_idle_detached_front_is_attached_after_many_visits),
        DETACH_TEST(a_detached_front_that_meets_no_other_thread_is_attached_in_time),
        DETACH_TEST(a_detached_front_that_meets_another_thread_stays_detached),
        DETACH_TEST(so_does_one_whose_request_finds_the_caches_lock_taken),
        DETACH_TEST(closed_fronts_are_not_detached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
