/*
 * Streams that several threads allocate on at the same time (pool/front/side.h): each thread that stays gets a side of
 * its own, and needs nothing that they share for its hits; what lies there goes back when others need it, or the thread
 * ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool/front/not_live.h"
#include "side_support.h"
#include "thread/thread.h"
#include "weir/observe.h"

static void threads_that_share_a_stream_hit_while_all_shared_locks_are_held(void **state)
{
    (void)state;
    share();
    hit_while_all_shared_locks_are_held();
}

/* One thread asks `times` as often as the other. */
static void take_unequal_turns(unsigned times)
{
    find_main_front();
    workers[0].count = times;
    for (int i = 0; i < 100; i++) {
        tell(&workers[0], take_and_give_many);
        tell(&workers[1], take_and_give);
    }
}

static void a_front_is_shared_where_one_request_in_twenty_is_another_threads(void **state)
{
    (void)state;
    if (!wr_bias_prepare_thread()) skip();
    take_unequal_turns(20);
    assert_true(wr_front_is_shared(main_front));
}

static void a_front_that_one_thread_has_nearly_for_itself_is_not_shared(void **state)
{
    (void)state;
    take_unequal_turns(80);
    assert_false(wr_front_is_shared(main_front));
}

/* The hit path parks without a claim. */
static void nothing_is_parked_without_a_claim_once_a_front_is_shared(void **state)
{
    (void)state;
    if (!wr_bias_prepare_thread()) skip();
    find_main_front();
    assert_true(main_front->plain);
    atomic_store(&main_front->turns, 1 << 20); /* as after many requests of several threads */
    assert_true(wr_side_is_wanted(main_front));
    assert_false(main_front->plain);
}

static void share_in(weir_mempool pool)
{
    for (int i = 0; i < THREADS; i++) workers[i].pool = pool;
    share();
}

/* The next pool's fronts may be the same records. */
static void sides_follow_their_front_to_another_pool(void **state)
{
    (void)state;
    wr_front *first = NULL;
    for (int i = 0; i < 2; i++) {
        const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, "shared"));
        share_in(pool);
        if (first) assert_ptr_equal(main_front, first);
        first = main_front;
        hit_while_all_shared_locks_are_held();
        assert_int_equal(pool_stats(pool).allocation[WEIR_STAT_ALL].current, 0);
        assert_ok(weir_mempool_unref(pool));
        assert_false(wr_front_is_shared(main_front));
        assert_int_equal(sides(true), 0);
        tell(&workers[0], take);
        assert_int_not_equal(workers[0].status, WEIR_OK);
    }
    assert_ok(weir_validate(0));
}

static void enter(worker *w)
{
    w->status = weir_mempool_enter(w->pool);
    w->pool = (weir_mempool){ 0, 0 };
}

static void leave(worker *w)
{
    w->status = weir_mempool_leave(w->pool);
    w->pool = (weir_mempool){ 0, 0 };
}

static void threads_in_a_pool_share_its_front(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, "entered"));
    for (int i = 0; i < THREADS; i++) {
        workers[i].pool = pool;
        tell(&workers[i], enter);
        assert_int_equal(workers[i].status, WEIR_OK);
    }
    assert_ok(weir_mempool_enter(pool));
    share();
    assert_false(wr_front_is_of(main_front, 0));
    hit_while_all_shared_locks_are_held();
    assert_ok(weir_mempool_leave(pool));
    for (int i = 0; i < THREADS; i++) {
        workers[i].pool = pool;
        tell(&workers[i], leave);
    }
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(sides(true), 0);
    share(); /* of the default pool */
    hit_while_all_shared_locks_are_held();
}

static void a_block_in_a_side_is_freed_once(void **state)
{
    (void)state;
    share();
    tell(&workers[0], take);
    workers[1].block = workers[0].block;
    tell(&workers[0], give);
    assert_int_equal(workers[0].status, WEIR_OK);
    tell(&workers[1], give);
    assert_int_equal(workers[1].status, WEIR_ERR_DOUBLE_FREE);
    assert_int_equal(weir_free(workers[0].block), WEIR_ERR_DOUBLE_FREE);
    assert_int_equal(weir_record_stream(workers[0].block, default_stream(0)), WEIR_ERR_DOUBLE_FREE);
    assert_ok(weir_validate(0));
}

static void a_block_passes_from_one_side_to_the_other(void **state)
{
    (void)state;
    share();
    tell(&workers[0], take);
    void *const block = workers[1].block = workers[0].block;
    tell(&workers[1], give);
    assert_int_equal(workers[1].status, WEIR_OK);
    tell(&workers[1], take);
    assert_ptr_equal(workers[1].block, block);
    tell(&workers[1], give);
}

static void a_thread_that_comes_to_own_the_main_fronts_lock_goes_on_with_its_side(void **state)
{
    (void)state;
    share();
    for (int i = 0; i < 100; i++) { /* misses: a main front's lock is its after 64 in a row */
        workers[0].bytes = 512;
        tell(&workers[0], take);
    }
    workers[0].bytes = 65536;
    tell(&workers[0], take);
    tell(&workers[0], give);
    assert_int_equal(workers[0].status, WEIR_OK);
    assert_int_equal(parked_of(main_front, 65536), 0);
    for (int i = 0; i < THREADS; i++) tell(&workers[i], take_and_give); /* finds how much is spare */
    hit_while_all_shared_locks_are_held();
}

static uint32_t parked_in_sides_of(size_t bytes)
{
    uint32_t parked = 0;
    for (wr_front *f = wr_front_beside(main_front); f; f = wr_front_beside(f)) parked += parked_of(f, bytes);
    return parked;
}

/* The thread would not ask for it again, and the one that does would not find it. */
static void a_block_of_a_size_that_its_freer_never_asked_for_goes_to_the_main_front(void **state)
{
    (void)state;
    share();
    wr_front *main = main_front;
    workers[0].bytes = size_beside(65536);
    tell(&workers[0], take);
    workers[1].block = workers[0].block;
    tell(&workers[1], give);
    assert_int_equal(workers[1].status, WEIR_OK);
    assert_int_equal(parked_of(main, workers[0].bytes) + atomic_load(&main->posts.count), 1);
}

static void so_it_does_though_the_freers_side_has_room(void **state)
{
    (void)state;
    share();
    workers[0].bytes = 4096;
    tell(&workers[0], take);
    workers[1].block = workers[0].block;
    tell(&workers[1], give);
    assert_int_equal(workers[1].status, WEIR_OK);
    assert_int_equal(parked_in_sides_of(4096), 0);
    assert_int_equal(parked_of(main_front, 4096) + atomic_load(&main_front->posts.count), 1);
}

static void what_sides_hold_is_free_to_everybody_when_memory_is_short(void **state)
{
    (void)state;
    void *all = NULL;
    for (int i = 0; i < THREADS; i++) workers[i].bytes = 30 * MIB;
    share();
    assert_true(wr_fronts_parked_locked(cache(), NULL, WR_FLOW_BYTES) >= (int64_t)THREADS * (int64_t)(30 * MIB));
    assert_ok(weir_alloc_on(500 * MIB, default_stream(0), &all));
    assert_ok(weir_free(all));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
}

/* 32 MiB of a size, of a few sizes, and again, so that the side is of use. */
static void take_and_give_many_at_once(worker *w)
{
    void *blocks[32];
    w->status = WEIR_OK;
    for (int round = 0; round < 4 * 3 && w->status == WEIR_OK; round++) {
        w->bytes = MIB - (size_t)512 * (size_t)(round / 3);
        for (int i = 0; i < 32; i++) {
            take(w);
            blocks[i] = w->block;
        }
        for (int i = 0; i < 32; i++) w->status = weir_free(blocks[i]);
    }
}

static void sides_that_have_much_are_emptied_before_memory_is_added(void **state)
{
    (void)state;
    share();
    for (int i = 0; i < THREADS; i++) {
        tell(&workers[i], take_and_give_many_at_once);
        assert_int_equal(workers[i].status, WEIR_OK);
    }
    const size_t free = free_memory(0), held = 512 * MIB - free, kept = 64 * MIB;
    assert_true(held > kept);
    worker w = { .stream = stream, .bytes = MIB };
    for (size_t taken = 0; taken < held - kept; taken += MIB) take(&w);
    assert_int_equal(w.status, WEIR_OK);
    assert_int_equal(free_memory(0), free);
}

static int64_t parked_in_sides(void)
{
    int64_t parked = 0;
    for (const wr_front *f = wr_front_beside(main_front); f; f = wr_front_beside(f))
        parked += wr_front_parked_in_all(f, WR_FLOW_BYTES);
    return parked;
}

static void statistics_count_what_sides_hold_as_free(void **state)
{
    (void)state;
    share();
    const weir_memory_stats stats = stats_of(0);
    assert_int_equal(stats.allocation[WEIR_STAT_ALL].current, 0);
    assert_int_equal(stats.allocation[WEIR_STAT_ALL].added, ROUNDS * THREADS + 1);
    assert_int_equal(stats.allocation[WEIR_STAT_ALL].peak, 1);
}

/* A thread that alone goes to the main front comes to own its lock, and needs no side. */
static void use_main_front_in_turn(worker *w)
{
    for (int i = 0; i < ROUNDS; i++) {
        tell(w, take_and_give);
        wr_front_lock(main_front->cache, main_front);
        wr_front_unlock(main_front->cache, main_front);
    }
}

static void a_thread_that_ends_leaves_its_side_empty_to_the_next(void **state)
{
    (void)state;
    share();
    end(&workers[0]);
    assert_int_equal(sides(true), THREADS - 1);
    assert_int_equal(sides(false), 1);
    for (const wr_front *f = main_front->idle; f; f = f->idle)
        assert_int_equal(wr_front_parked_in_all(f, WR_FLOW_BLOCKS), 0);
    begin(&workers[0]);
    use_main_front_in_turn(&workers[0]);
    assert_int_equal(sides(true), THREADS);
    assert_int_equal(sides(false), 0);
}

/* More than a thread finds without looking through all of its sides. */
static void a_thread_has_a_side_on_each_stream_that_it_shares(void **state)
{
    (void)state;
    enum { STREAMS = WR_THREAD_SIDES + 1 };
    weir_stream streams[STREAMS];
    wr_front *mains[STREAMS];
    for (int s = 0; s < STREAMS; s++) {
        streams[s] = stream = new_stream(0);
        for (int i = 0; i < THREADS; i++) workers[i].stream = stream;
        share();
        mains[s] = main_front;
    }
    for (int s = 0; s < STREAMS; s++) {
        workers[0].stream = streams[s];
        tell(&workers[0], take);
        assert_int_equal(workers[0].status, WEIR_OK);
        assert_int_equal(info_of(workers[0].block).stream.id, streams[s].id);
        tell(&workers[0], give);
    }
    for (int i = 0; i < THREADS; i++) end(&workers[i]);
    for (int s = 0; s < STREAMS; s++) {
        main_front = mains[s];
        assert_int_equal(sides(true), 0);
    }
    for (int i = 0; i < THREADS; i++) begin(&workers[i]);
}

static unsigned fronts_of_stream(void)
{
    unsigned count = 0;
    for (const wr_front *f = wr_front_youngest(main_front->stream); f; f = wr_front_after(f)) count++;
    return count;
}

/* Each request that reaches the cache looks at all of them. */
static void sides_that_no_thread_has_any_more_are_not_among_the_streams_fronts(void **state)
{
    (void)state;
    share();
    assert_int_equal(fronts_of_stream(), 1 + THREADS);
    end(&workers[0]);
    assert_int_equal(fronts_of_stream(), THREADS);
    end(&workers[1]);
    assert_int_equal(fronts_of_stream(), 1);
    begin(&workers[0]);
    begin(&workers[1]);
    share();
    assert_int_equal(fronts_of_stream(), 1 + THREADS);
    assert_int_equal(sides(false), 0);
}

static void a_front_is_shared_until_the_last_of_its_threads_ends(void **state)
{
    (void)state;
    share();
    for (int i = 0; i < THREADS; i++) {
        assert_true(wr_front_is_shared(main_front));
        end(&workers[i]);
    }
    assert_false(wr_front_is_shared(main_front));
    for (int i = 0; i < THREADS; i++) begin(&workers[i]);
    take_turns();
    assert_int_equal(sides(true), THREADS);
}

static void a_front_that_was_shared_is_so_again_only_where_threads_take_turns(void **state)
{
    (void)state;
    share();
    for (int i = 0; i < THREADS; i++) end(&workers[i]);
    assert_true(main_front->plain);
    for (int i = 0; i < THREADS; i++) begin(&workers[i]);
    for (int i = 0; i < 5 * THREADS; i++) tell(&workers[i % THREADS], take_and_give);
    assert_false(wr_front_is_shared(main_front));
}

/* To take a side and leave it costs more than it saves them. */
static void threads_that_live_shortly_get_no_side(void **state)
{
    (void)state;
    share();
    end(&workers[0]);
    begin(&workers[0]);
    workers[0].count = 10;
    tell(&workers[0], take_and_give_many);
    assert_int_equal(sides(true), THREADS - 1);
}

static void a_side_gives_up_a_size_for_another_that_is_asked_for_in_its_stead(void **state)
{
    (void)state;
    enum { REFUSED_MOST = 16 }; /* front.c */
    const size_t other = size_beside(65536);
    share();
    const uint32_t before = parked_in_sides_of(65536);
    workers[0].bytes = other;
    for (int i = 0; i < REFUSED_MOST - 1; i++) tell(&workers[0], take);
    assert_int_equal(parked_in_sides_of(65536), before);
    tell(&workers[0], take_and_give);
    assert_true(parked_in_sides_of(65536) < before);
    assert_int_equal(parked_in_sides_of(other), 1);
    assert_ok(weir_validate(0));
}

static void take_and_give_sizes(worker *w)
{
    for (unsigned i = 0; i < w->count; i++) {
        w->bytes = (size_t)512 * (1 + i % w->sizes);
        take_and_give(w);
    }
}

static void a_side_of_little_use_is_not_used_for_a_while(void **state)
{
    (void)state;
    share();
    workers[0].count = 200;
    workers[0].sizes = 500;
    tell(&workers[0], take_and_give_sizes);
    assert_int_equal(sides(true), THREADS - 1);
    workers[0].bytes = 65536;
    use_main_front_in_turn(&workers[0]);
    assert_int_equal(sides(true), THREADS - 1);
    for (int i = 0; i < 4096 / ROUNDS; i++) use_main_front_in_turn(&workers[0]);
    assert_int_equal(sides(true), THREADS);
    assert_ok(weir_validate(0));
}

/* NULL: none is at rest. */
static wr_front *resting_side(void)
{
    wr_front *side = wr_front_beside(main_front);
    while (side && side->rest == 0) side = wr_front_beside(side);
    return side;
}

/* A thread that has come to own the main front's lock meanwhile would not look for its side. */
static void end_rest(wr_front *side)
{
    side->rest = 1;
    side->doubts = 0; /* it is not to become graded */
    wr_front_lock(main_front->cache, main_front);
    wr_front_unlock(main_front->cache, main_front);
}

/* `side`: one that is at rest, which ends; NULL: none is. */
static wr_front *use_side_little(wr_front *side)
{
    if (side) end_rest(side);
    workers[0].count = 200;
    workers[0].sizes = 500;
    tell(&workers[0], take_and_give_sizes);
    return resting_side();
}

/* With misses enough to say something. */
static void use_side_well(wr_front *side)
{
    end_rest(side);
    workers[0].count = 500;
    workers[0].sizes = 8;
    for (int step = 0; step < 50; step++) {
        tell(&workers[0], take_and_give_sizes);
        (void)stats_of(0);
    }
}

static void a_side_of_little_use_rests_longer_each_time_until_it_was_of_use(void **state)
{
    (void)state;
    share();
    wr_front *side = use_side_little(NULL);
    assert_non_null(side);
    const uint32_t rest = side->rest;
    assert_ptr_equal(use_side_little(side), side);
    assert_in_range(side->rest, 2 * rest - 200, 2 * rest + 200); /* some of the requests are after it */
    assert_ptr_equal(use_side_little(side), side);
    assert_in_range(side->rest, 4 * rest - 200, 4 * rest + 400);
    use_side_well(side);
    assert_null(resting_side());
    assert_ptr_equal(use_side_little(NULL), side);
    assert_in_range(side->rest, rest - 200, rest + 200);
}

static void a_side_rests_no_longer_than_a_million_requests(void **state)
{
    (void)state;
    share();
    wr_front *side = use_side_little(NULL);
    assert_non_null(side);
    side->rest_next = 1 << 20; /* as after eight more such periods */
    for (int i = 0; i < 2; i++) assert_ptr_equal(use_side_little(side), side);
    assert_in_range(side->rest, (1 << 20) - 200, 1 << 20);
}

/* Meanwhile others may have it. */
static void what_a_resting_side_had_spare_is_not_spare_any_more(void **state)
{
    (void)state;
    share();
    const wr_front *side = use_side_little(NULL);
    assert_true(side && !wr_front_is_settled(side) && !side->listed);
}

static void a_thread_that_gets_a_side_which_rested_uses_it_at_once(void **state)
{
    (void)state;
    share();
    const wr_front *side = use_side_little(NULL);
    end(&workers[0]);
    begin(&workers[0]);
    use_main_front_in_turn(&workers[0]);
    assert_ptr_equal(wr_front_beside(main_front), side);
    assert_null(resting_side());
    for (int i = 0; i < THREADS; i++) tell(&workers[i], take_and_give); /* finds how much is spare */
    hit_while_all_shared_locks_are_held();
}

static void a_large_request_has_what_the_side_has_parked_in_other_sizes(void **state)
{
    (void)state;
    share();
    workers[0].bytes = 16 * MIB;
    workers[0].count = 3;
    tell(&workers[0], take_and_give_many);
    assert_true(parked_in_sides() >= (int64_t)(16 * MIB));
    const size_t held = cache()->chunks.bytes;
    atomic_store(&main_front->emptied_at, held); /* so that sides are not emptied before memory is added */
    workers[0].bytes = 15 * MIB;
    tell(&workers[0], take);
    assert_int_equal(workers[0].status, WEIR_OK);
    assert_int_equal(cache()->chunks.bytes, held);
    tell(&workers[0], give);
}

static void a_side_that_is_emptied_in_each_step_stays_in_use(void **state)
{
    (void)state;
    share();
    for (int step = 0; step < 50; step++) {
        workers[0].count = 500;
        workers[0].sizes = 8;
        tell(&workers[0], take_and_give_sizes);
        (void)stats_of(0);
    }
    assert_int_equal(sides(true), THREADS);
}

static void a_side_stays_in_use_though_call_stacks_are_recorded_for_a_while(void **state)
{
    (void)state;
    share();
    assert_ok(weir_history_start(1000, 4));
    workers[0].count = 1000;
    tell(&workers[0], take_and_give_many);
    assert_ok(weir_history_stop());
    assert_int_equal(sides(true), THREADS);
    for (int i = 0; i < 3 * THREADS; i++) tell(&workers[i % THREADS], take_and_give); /* opens them */
    hit_while_all_shared_locks_are_held();
}

/* The thread could not get them back meanwhile. */
static void sides_do_not_fill_while_the_device_has_a_route(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, "route"));
    share();
    (void)stats_of(0);
    assert_ok(weir_mempool_route_stream(pool, new_stream(0)));
    workers[0].count = 500;
    tell(&workers[0], take_and_give_many);
    assert_int_equal(parked_in_sides(), 0);
}

enum { OF_A_SIZE = 40, SIZES_AT_ONCE = 10, AT_ONCE = OF_A_SIZE * SIZES_AT_ONCE };

static void *at_once[THREADS][AT_ONCE];

static void take_some(worker *w, int from, int to)
{
    for (int i = from; i < to; i++) {
        w->bytes = (size_t)4096 * (1 + (size_t)(i / OF_A_SIZE));
        take(w);
        at_once[w - workers][i] = w->block;
    }
}

static void give_some(worker *w, int from, int to)
{
    for (int i = from; i < to; i++) w->status = weir_free(at_once[w - workers][i]);
}

/* With many hits in between, so that the side is of use. */
static void fill_side(worker *w)
{
    for (int i = 0; i < AT_ONCE; i += OF_A_SIZE) {
        take_some(w, i, i + OF_A_SIZE);
        give_some(w, i, i + OF_A_SIZE);
        w->count = 200;
        take_and_give_many(w);
    }
}

static void take_all(worker *w)
{
    take_some(w, 0, AT_ONCE);
}

static void give_all(worker *w)
{
    give_some(w, 0, AT_ONCE);
}

/* Three sizes of about 1 MiB, a side's 32 MiB of each. */
enum { NEARLY_MIB = 32, NEARLY_MIBS = 3 * NEARLY_MIB };

static void take_mibs(worker *w)
{
    for (int i = 0; i < NEARLY_MIBS; i++) {
        w->bytes = MIB - (size_t)512 * (size_t)(i / NEARLY_MIB);
        take(w);
        at_once[w - workers][i] = w->block;
    }
}

static void give_mibs(worker *w)
{
    give_some(w, 0, NEARLY_MIBS);
}

/* They would lack it at once, and take it from each other in turn. */
static void sides_keep_what_they_have_from_small_requests_until_more_is_held(void **state)
{
    (void)state;
    share();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < THREADS; i++) tell(&workers[i], take_mibs);
        for (int i = 0; i < THREADS; i++) tell(&workers[i], give_mibs);
    }
    wr_chunks *chunks = &cache()->chunks;
    const size_t held = chunks->bytes;
    chunks->gathered_at = held; /* as if a request had just had all of it */
    atomic_store(&main_front->emptied_at, held);
    const int64_t parked = parked_in_sides();
    assert_true(parked >= (int64_t)(128 * MIB)); /* worth taking */
    worker w = { .stream = stream, .bytes = 300000 };
    while (chunks->bytes == held && parked_in_sides() == parked) take(&w);
    assert_int_equal(parked_in_sides(), parked);
    while (parked_in_sides() == parked) take(&w);
    assert_true(chunks->bytes >= held + held / 8);
}

enum { ELSEWHERE = 96 };

/* Else streams that are used in turn, each shared by threads, would each hold what it needs for itself. */
static void what_other_streams_have_parked_serves_a_shared_stream_before_more_is_held(void **state)
{
    (void)state;
    void *blocks[ELSEWHERE];
    share();
    const weir_stream other = new_stream(0);
    for (int i = 0; i < ELSEWHERE; i++) blocks[i] = alloc_on(4 * MIB - (size_t)512 * (size_t)(i / 32), other);
    const wr_front *front = front_of(blocks[0]);
    for (int i = 0; i < ELSEWHERE; i++) assert_ok(weir_free(blocks[i]));
    assert_true(wr_front_parked_in_all(front, WR_FLOW_BYTES) >= (int64_t)(256 * MIB));
    wr_chunks *chunks = &cache()->chunks;
    const size_t held = chunks->gathered_at = chunks->bytes; /* as if a request had just had all of it */
    worker w = { .stream = stream, .bytes = 300000 };
    while (wr_front_parked_in_all(front, WR_FLOW_BYTES) != 0) take(&w);
    assert_int_equal(w.status, WEIR_OK);
    assert_true(chunks->bytes < held + held / 8);
}

enum { LARGER = 256 << 10, LARGER_BLOCKS = 20 };

static void take_larger(worker *w)
{
    for (unsigned i = 0; i < w->count; i++) {
        w->bytes = LARGER;
        take(w);
        at_once[w - workers][i] = w->block;
    }
}

static void give_larger(worker *w)
{
    give_some(w, 0, (int)w->count);
}

/* With 1 MiB in any case it would ask for every fourth of these while what is live is near its peak. */
static void a_side_asks_no_more_often_for_larger_blocks(void **state)
{
    (void)state;
    workers[0].count = 4 * LARGER_BLOCKS; /* memory enough, so that none has to be added */
    take_larger(&workers[0]);
    give_larger(&workers[0]);
    assert_ok(weir_stats_reset(0));
    share();
    workers[0].count = LARGER_BLOCKS;
    for (int i = 0; i < 3; i++) {
        tell(&workers[0], take_larger);
        tell(&workers[0], give_larger);
    }
    worker w = { .stream = stream, .bytes = LARGER };
    for (int i = 0; i < 2 * LARGER_BLOCKS; i++) take(&w); /* a peak: nothing is spare */
    assert_true(parked_in_sides() >= LARGER_BLOCKS * LARGER);
    workers[0].count = 1;
    tell(&workers[0], take_larger); /* asks */
    wr_front *main = main_front;
    wr_front_lock(main->cache, main);
    workers[0].count = LARGER_BLOCKS - 1;
    start(&workers[0], take_larger);
    const bool finished = finishes(&workers[0]);
    wr_front_unlock(main->cache, main);
    assert_true(finished);
}

/* Each front may hand out 64 blocks beyond a peak before it asks. */
static void what_is_live_from_all_sides_at_once_is_a_peak(void **state)
{
    (void)state;
    /* Memory enough, so that none has to be added. */
    for (int i = 0; i < THREADS; i++) take_all(&workers[i]);
    for (int i = 0; i < THREADS; i++) give_all(&workers[i]);
    assert_ok(weir_stats_reset(0));
    share();
    for (int i = 0; i < THREADS; i++) {
        tell(&workers[i], fill_side);
        tell(&workers[i], take_all); /* one of them alone */
        tell(&workers[i], give_all);
    }
    for (int i = 0; i < THREADS; i++) tell(&workers[i], take_all);
    for (int i = 0; i < THREADS; i++) tell(&workers[i], give_all);
    assert_int_equal(sides(true), THREADS);
    const int64_t peak = stats_of(0).allocation[WEIR_STAT_ALL].peak;
    assert_in_range(peak, THREADS * (AT_ONCE - 64), THREADS * (AT_ONCE + 64));
    weir_stream_stats own = { .size = sizeof own };
    assert_ok(weir_stream_stats_get(stream, &own));
    assert_in_range(own.live_peak, THREADS * (AT_ONCE - 64), THREADS * (AT_ONCE + 64));
}

/* So that the next block that this thread takes of free memory is below the peak of the main front. */
static void settle_all(void)
{
    for (wr_front *f = wr_front_beside(main_front); f; f = wr_front_beside(f)) settle(f);
    settle(main_front);
    assert_true(wr_front_is_settled(main_front));
}

/* A stream with much less in use than it had. */
static void share_below_the_peak(void)
{
    workers[0].count = 200;
    take_larger(&workers[0]);
    give_larger(&workers[0]);
    share();
}

static unsigned settled_sides(void)
{
    unsigned count = 0;
    for (wr_front *f = wr_front_beside(main_front); f; f = wr_front_beside(f)) count += wr_front_is_settled(f);
    return count;
}

/* What it has spare is its own, and what sides have is theirs. */
static void sides_need_not_ask_again_after_a_request_within_the_main_fronts_share(void **state)
{
    (void)state;
    share_below_the_peak();
    settle_all();
    worker w = { .stream = stream, .bytes = 4096 };
    take(&w);
    assert_int_equal(settled_sides(), THREADS);
}

static void sides_ask_again_after_a_request_of_a_main_front_that_did_not_know_its_share(void **state)
{
    (void)state;
    share_below_the_peak();
    settle_all();
    wr_front_unsettle(main_front);
    worker w = { .stream = stream, .bytes = 4096 };
    take(&w);
    assert_int_equal(settled_sides(), 0);
}

/* They have no part in what is divided among sides. */
static void fronts_of_other_pools_ask_again_after_a_request_of_a_shared_one(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, "other"));
    share_below_the_peak();
    void *block = alloc_from(pool, 4096, stream);
    wr_front *front = front_of(block);
    settle_all();
    settle(front);
    worker w = { .stream = stream, .bytes = 4096 };
    take(&w);
    assert_false(wr_front_is_settled(front));
    assert_int_equal(settled_sides(), THREADS);
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(pool));
}

static void a_stream_that_ends_is_shared_no_more(void **state)
{
    (void)state;
    share();
    wr_front *const main = main_front;
    assert_true(wr_front_is_shared(main));
    assert_ok(weir_stream_destroy(stream));
    assert_false(wr_front_is_shared(main));
    assert_int_equal(sides(true), 0);
    stream = new_stream(0);
    for (int i = 0; i < THREADS; i++) workers[i].stream = stream;
    find_main_front();
    assert_ptr_equal(main_front, main);
    assert_false(wr_front_is_shared(main));
    take_turns();
    assert_int_equal(sides(true), THREADS);
    assert_ok(weir_validate(0));
}

static void events_of_blocks_in_sides_are_recorded(void **state)
{
    (void)state;
    weir_event events[64];
    size_t count = 0;
    uint64_t dropped = 0;
    share();
    assert_ok(weir_history_start(1000, 0));
    for (int i = 0; i < 3; i++) tell(&workers[0], take_and_give); /* opens its side, and finds how much is spare */
    assert_ok(weir_history_clear(0));
    wr_front *main = main_front;
    assert_ok(weir_history_clear(0));
    wr_front_lock(main->cache, main);
    workers[0].count = 3;
    start(&workers[0], take_and_give_many);
    const bool finished = finishes(&workers[0]);
    wr_front_unlock(main->cache, main);
    assert_true(finished);
    assert_ok(weir_history_read(0, events, 64, &count, &dropped));
    assert_int_equal(count, 9); /* a free is requested and completed */
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(events[i].size, 65536);
        assert_int_equal(events[i].kind, i % 3 == 0   ? WEIR_EVENT_ALLOC
                                         : i % 3 == 1 ? WEIR_EVENT_FREE_REQUESTED
                                                      : WEIR_EVENT_FREE_COMPLETED);
    }
    assert_ok(weir_history_stop());
}

static void take_from_a_pool(worker *w)
{
    void *block = NULL;
    w->status = weir_alloc_from((weir_mempool){ 0, 0 }, w->bytes, w->stream, &block);
    if (w->status == WEIR_OK) w->status = weir_free(block);
}

static void the_default_pool_by_name_is_the_same_pool(void **state)
{
    (void)state;
    share();
    tell(&workers[0], take_from_a_pool);
    assert_int_equal(workers[0].status, WEIR_OK);
    assert_ok(weir_validate(0));
}

static void threads_that_go_on_after_the_library_was_closed_have_no_sides(void **state)
{
    (void)state;
    share();
    assert_ok(weir_close());
    open_host((weir_settings){ .host_memory = 512 * MIB });
    stream = new_stream(0);
    for (int i = 0; i < THREADS; i++) workers[i].stream = stream;
    tell(&workers[0], take);
    workers[1].block = workers[0].block;
    tell(&workers[1], give);
    assert_int_equal(workers[1].status, WEIR_OK);
    find_main_front();
    assert_int_equal(sides(true), 0);
    take_turns();
    assert_int_equal(sides(true), THREADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHARED(threads_that_share_a_stream_hit_while_all_shared_locks_are_held),
        SHARED(a_front_is_shared_where_one_request_in_twenty_is_another_threads),
        SHARED(a_front_that_one_thread_has_nearly_for_itself_is_not_shared),
        SHARED(nothing_is_parked_without_a_claim_once_a_front_is_shared),
        SHARED(sides_follow_their_front_to_another_pool),
        SHARED(threads_in_a_pool_share_its_front),
        SHARED(a_block_in_a_side_is_freed_once),
        SHARED(a_block_passes_from_one_side_to_the_other),
        SHARED(a_thread_that_comes_to_own_the_main_fronts_lock_goes_on_with_its_side),
        SHARED(a_block_of_a_size_that_its_freer_never_asked_for_goes_to_the_main_front),
        SHARED(so_it_does_though_the_freers_side_has_room),
        SHARED(what_sides_hold_is_free_to_everybody_when_memory_is_short),
        cmocka_unit_test_setup_teardown(sides_that_have_much_are_emptied_before_memory_is_added, open_segments,
                                        close_shared),
        SHARED(statistics_count_what_sides_hold_as_free),
        SHARED(a_thread_that_ends_leaves_its_side_empty_to_the_next),
        SHARED(a_thread_has_a_side_on_each_stream_that_it_shares),
        SHARED(sides_that_no_thread_has_any_more_are_not_among_the_streams_fronts),
        SHARED(threads_that_live_shortly_get_no_side),
        SHARED(a_side_gives_up_a_size_for_another_that_is_asked_for_in_its_stead),
        SHARED(a_side_of_little_use_is_not_used_for_a_while),
        SHARED(a_side_of_little_use_rests_longer_each_time_until_it_was_of_use),
        SHARED(a_side_rests_no_longer_than_a_million_requests),
        SHARED(what_a_resting_side_had_spare_is_not_spare_any_more),
        SHARED(a_thread_that_gets_a_side_which_rested_uses_it_at_once),
        SHARED(a_large_request_has_what_the_side_has_parked_in_other_sizes),
        SHARED(a_front_is_shared_until_the_last_of_its_threads_ends),
        SHARED(a_front_that_was_shared_is_so_again_only_where_threads_take_turns),
        SHARED(a_side_that_is_emptied_in_each_step_stays_in_use),
        SHARED(a_side_stays_in_use_though_call_stacks_are_recorded_for_a_while),
        SHARED(sides_do_not_fill_while_the_device_has_a_route),
        SHARED(sides_keep_what_they_have_from_small_requests_until_more_is_held),
        SHARED(what_other_streams_have_parked_serves_a_shared_stream_before_more_is_held),
        SHARED(a_side_asks_no_more_often_for_larger_blocks),
        SHARED(what_is_live_from_all_sides_at_once_is_a_peak),
        SHARED(sides_need_not_ask_again_after_a_request_within_the_main_fronts_share),
        SHARED(sides_ask_again_after_a_request_of_a_main_front_that_did_not_know_its_share),
        SHARED(fronts_of_other_pools_ask_again_after_a_request_of_a_shared_one),
        SHARED(a_stream_that_ends_is_shared_no_more),
        SHARED(events_of_blocks_in_sides_are_recorded),
        SHARED(the_default_pool_by_name_is_the_same_pool),
        SHARED(threads_that_go_on_after_the_library_was_closed_have_no_sides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
