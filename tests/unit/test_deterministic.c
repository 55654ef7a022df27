/*
 * Deterministic pools: the same calls give the same places, whatever the base addresses and however long work takes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device_support.h"
#include "pool/names.h"
#include "pool_support.h"

static int open_devices(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = (uint64_t)4 << 30, .host_devices = 2, .policy = *state });
    return 0;
}

static weir_mempool pool_on(int device, bool deterministic)
{
    weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "");
    options.device = device;
    options.deterministic = deterministic;
    return make_pool(options);
}

/* ---- the same sequence under different circumstances ------------------------------------------------------------- */

#define STEPS 4000
#define LIVE 60
#define STREAMS 3
#define SEGMENTS_MAX 512

typedef struct place {
    uint32_t segment; /* in order of appearance */
    uint64_t offset;
} place;

typedef struct run {
    int device;
    weir_mempool pool;
    weir_stream streams[STREAMS];
    void *live[LIVE];
    void *segments[SEGMENTS_MAX];
    uint32_t segment_count;
    place places[STEPS];
    size_t count;
} run;

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static place place_of(run *r, const void *pointer)
{
    const weir_pointer_info info = info_of(pointer);
    uint32_t i = 0;
    while (i < r->segment_count && r->segments[i] != info.segment) i++;
    if (i == r->segment_count) {
        assert_true(i < SEGMENTS_MAX);
        r->segments[r->segment_count++] = info.segment;
    }
    return (place){ i, (uint64_t)((const char *)pointer - (const char *)info.segment) };
}

static size_t random_size(uint64_t *random)
{
    const uint32_t n = next_random(random);
    switch (n % 4) {
    case 0: return 1 + n % 3000;
    case 1: return 512 * (1 + n % 4);
    case 2: return MIB + (n % 5) * 100000;
    default: return 3 * MIB;
    }
}

static void step(run *r, uint64_t *random)
{
    const uint32_t slot = next_random(random) % LIVE, what = next_random(random) % 4;
    const size_t bytes = random_size(random);
    const weir_stream stream = r->streams[next_random(random) % STREAMS];
    if (!r->live[slot]) {
        r->live[slot] = alloc_from(r->pool, bytes, stream);
        r->places[r->count++] = place_of(r, r->live[slot]);
    } else if (what == 0) {
        assert_ok(weir_record_stream(r->live[slot], stream));
    } else {
        assert_ok(weir_free(r->live[slot]));
        r->live[slot] = NULL;
    }
}

/* Segments without live blocks go, and later ones may lie there. */
static void empty(run *r)
{
    assert_ok(weir_mempool_empty_cache(r->pool));
    for (uint32_t i = 0; i < r->segment_count; i++) {
        bool lives = false;
        for (int j = 0; j < LIVE && !lives; j++) lives = r->live[j] && info_of(r->live[j]).segment == r->segments[i];
        if (!lives) r->segments[i] = NULL;
    }
}

/* Device memory with holes at low addresses, so that later segments do not lie behind earlier ones. */
static void scatter(int device)
{
    void *blocks[40];
    weir_stream stream = default_stream(device);
    for (size_t i = 0; i < 40; i++) blocks[i] = alloc_on((i % 7 + 1) * 22 * MIB, stream);
    for (size_t i = 0; i < 40; i += 3) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_empty_cache(device));
}

static void run_on(run *r, int device, bool deterministic, bool disturbed)
{
    uint64_t random = 42;
    *r = (run){ .device = device, .pool = pool_on(device, deterministic) };
    if (disturbed) scatter(device);
    for (int i = 0; i < STREAMS; i++) r->streams[i] = new_stream(device);
    for (int i = 0; i < STEPS; i++) {
        if (disturbed && i % 100 == 50) hold(r->streams[i / 100 % STREAMS]);
        step(r, &random);
        if (disturbed && i % 100 == 99) let_run(r->streams[i / 100 % STREAMS]);
        if (i % 500 == 499) empty(r);
    }
    for (int i = 0; i < LIVE; i++)
        if (r->live[i]) assert_ok(weir_free(r->live[i]));
    assert_ok(weir_validate(device));
}

static run calm, disturbed;

static bool runs_agree(bool deterministic)
{
    run_on(&calm, 0, deterministic, false);
    run_on(&disturbed, 1, deterministic, true);
    assert_true(calm.count > STEPS / 4 && calm.segment_count > 5);
    if (calm.count != disturbed.count) return false;
    for (size_t i = 0; i < calm.count; i++)
        if (calm.places[i].segment != disturbed.places[i].segment ||
            calm.places[i].offset != disturbed.places[i].offset)
            return false;
    return true;
}

static void equal_calls_give_equal_places(void **state)
{
    (void)state;
    assert_true(runs_agree(true));
}

/* Without this difference the test above would show nothing. */
static void other_pools_depend_on_addresses_and_timing(void **state)
{
    (void)state;
    assert_false(runs_agree(false));
}

/* ---- frees of blocks that other streams use ---------------------------------------------------------------------- */

static void a_freed_block_is_free_at_once_and_its_stream_waits(void **state)
{
    (void)state;
    weir_stream own = new_stream(0), other = new_stream(0);
    weir_mempool pool = pool_on(0, true);
    unsigned char *block = alloc_from(pool, MIB, own);
    hold(other);
    assert_ok(weir_fill(block, 1, MIB, other));
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    assert_int_equal(stats_of(0).pending_frees, 0);
    assert_ptr_equal(alloc_from(pool, MIB, own), block);
    assert_ok(weir_fill(block, 2, MIB, own));
    assert_status(weir_stream_query(own), WEIR_ERR_NOT_READY);
    let_run(other);
    assert_ok(weir_stream_synchronize(own));
    assert_int_equal(block[MIB - 1], 2);
}

static void a_block_used_on_another_device_is_waited_for_too(void **state)
{
    (void)state;
    weir_stream own = new_stream(0), theirs = new_stream(1);
    weir_mempool pool = pool_on(0, true);
    void *block = alloc_from(pool, MIB, own);
    hold(theirs);
    assert_ok(weir_fill(block, 1, MIB, theirs));
    assert_ok(weir_record_stream(block, theirs));
    assert_ok(weir_free(block));
    assert_int_equal(stats_of(0).pending_frees, 0);
    assert_status(weir_stream_query(own), WEIR_ERR_NOT_READY);
    let_run(theirs);
    assert_ok(weir_stream_synchronize(own));
}

static void a_stream_that_has_ended_is_not_waited_for(void **state)
{
    (void)state;
    weir_stream own = new_stream(0), other = new_stream(0);
    weir_mempool pool = pool_on(0, true);
    void *block = alloc_from(pool, MIB, own);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_stream_destroy(other));
    assert_ok(weir_free(block));
    assert_int_equal(stats_of(0).pending_frees, 0);
    assert_ptr_equal(alloc_from(pool, MIB, own), block);
}

static void streams_leave_nothing_behind_when_they_come_and_go(void **state)
{
    (void)state;
    weir_mempool pool = pool_on(0, true);
    for (int i = 0; i < 20; i++) {
        weir_stream other = new_stream(0);
        void *block = alloc_from(pool, MIB, WEIR_STREAM_CURRENT);
        assert_ok(weir_record_stream(block, other));
        assert_ok(weir_free(block));
        assert_ok(weir_stream_destroy(other));
    }
    assert_null(device_0()->cache.waits);
}

static void what_a_stream_leaves_is_used_again_though_it_waited_for_others(void **state)
{
    (void)state;
    const weir_mempool pool = pool_on(0, true);
    for (int i = 0; i < 20; i++) {
        const weir_stream own = new_stream(0);
        void *block = alloc_from(pool, MIB, own);
        assert_ok(weir_record_stream(block, default_stream(0)));
        assert_ok(weir_free(block));
        assert_ok(weir_stream_destroy(own));
    }
    assert_int_equal(stats_of(0).segment[WEIR_STAT_ALL].current, 1);
}

static void during_a_capture_a_block_waits_as_in_other_pools(void **state)
{
    (void)state;
    weir_stream own = new_stream(0), other = new_stream(0);
    weir_mempool pool = pool_on(0, true);
    const weir_backend *b = device_0()->backend;
    void *one = alloc_from(pool, MIB, own), *two = alloc_from(pool, MIB, other);
    assert_ok(weir_record_stream(one, other));
    assert_ok(weir_record_stream(two, own));
    assert_ok(b->capture_begin(0, native_of(other), WEIR_CAPTURE_RELAXED));
    assert_ok(weir_free(one)); /* the stream it was used on captures */
    assert_ok(weir_free(two)); /* its own does */
    assert_int_equal(stats_of(0).pending_frees, 2);
    end_natively(native_of(other));
    assert_ok(weir_mempool_empty_cache(pool));
    assert_int_equal(stats_of(0).pending_frees, 0);
}

static void when_the_driver_refuses_the_block_waits(void **state)
{
    (void)state;
    weir_stream own = new_stream(0), other = new_stream(0);
    weir_mempool pool = pool_on(0, true);
    void *block = alloc_from(pool, MIB, own);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_host_fail(WEIR_BACKEND_stream_wait, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_free(block));
    assert_int_equal(stats_of(0).pending_frees, 1);
    assert_ok(weir_mempool_empty_cache(pool));
    assert_int_equal(stats_of(0).pending_frees, 0);
}

static void the_oldest_segment_comes_first_however_many_there_were(void **state)
{
    (void)state;
    const weir_mempool id = pool_on(0, true);
    const weir_stream stream = new_stream(0);
    wr_mempool_name name = 0;
    wr_mempool *pool = NULL;
    assert_ok(wr_mempool_find(id, &name, &pool));
    void *blocks[3] = { alloc_from(id, 30 * MIB, stream) };
    for (int i = 1; i < 3; i++) {
        pool->serial = ((uint64_t)i << 24) - 1;
        blocks[i] = alloc_from(id, 30 * MIB, stream);
    }
    for (int i = 2; i >= 0; i--) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_validate(0));
    for (int i = 0; i < 3; i++) assert_ptr_equal(alloc_from(id, 30 * MIB, stream), blocks[i]);
}

/* Its addresses lie behind those of the younger one. */
static void the_oldest_segment_comes_first_wherever_it_lies(void **state)
{
    (void)state;
    const weir_mempool pool = pool_on(0, true);
    const weir_stream stream = new_stream(0);
    void *gone = alloc_from(pool, 30 * MIB, stream), *older = alloc_from(pool, 30 * MIB, stream);
    assert_ok(weir_free(gone));
    assert_ok(weir_mempool_empty_cache(pool));
    void *younger = alloc_from(pool, 30 * MIB, stream);
    assert_true((char *)younger < (char *)older);
    assert_ok(weir_free(older));
    assert_ok(weir_free(younger));
    assert_ptr_equal(alloc_from(pool, 30 * MIB, stream), older);
}

#define BOTH(test)                                                                                                     \
    { #test " (weir)", test, open_devices, close_host, (void *)(uintptr_t)"weir" },                                    \
        { #test " (torch)", test, open_devices, close_host, (void *)(uintptr_t)"torch" }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(equal_calls_give_equal_places),
        BOTH(other_pools_depend_on_addresses_and_timing),
        BOTH(a_freed_block_is_free_at_once_and_its_stream_waits),
        BOTH(a_block_used_on_another_device_is_waited_for_too),
        BOTH(a_stream_that_has_ended_is_not_waited_for),
        BOTH(streams_leave_nothing_behind_when_they_come_and_go),
        BOTH(what_a_stream_leaves_is_used_again_though_it_waited_for_others),
        BOTH(during_a_capture_a_block_waits_as_in_other_pools),
        BOTH(when_the_driver_refuses_the_block_waits),
        BOTH(the_oldest_segment_comes_first_however_many_there_were),
        BOTH(the_oldest_segment_comes_first_wherever_it_lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
