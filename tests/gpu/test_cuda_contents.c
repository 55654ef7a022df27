/*
 * What is in memory, on a real GPU with its work far behind: threads allocate, free and hand blocks to each other,
 * while memory is mapped elsewhere, given back, captured in graphs and short. Every word of a block is written on its
 * stream and looked at there, and on other streams, before the block is freed; nobody waits for that. Memory that is at
 * two live addresses, or used again too early, or mapped away from under queued work, loses its contents.
 * CONTENTS_STEPS=N: steps of each thread instead of those below, for long runs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu_support.h"
#include "sanitized.h"

#include "contents.h"

enum { WORKERS = 8, SHARED_STREAMS = 3, BLOCKS = 12, MARKET = 16, LARGEST_SENT = 256 << 10 };

static weir_stream shared[SHARED_STREAMS];
static weir_mempool private_pool;
static atomic_uint last_mark;
static unsigned steps;

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Words; mostly of large blocks that seldom come again, so that memory is mapped elsewhere, and some that do. */
static size_t random_words(uint32_t *random)
{
    const uint32_t kind = next_random(random) % 16;
    const size_t fine = next_random(random);
    if (kind < 4) return 1 + fine % (16 << 10);
    if (kind < 6) return (size_t)64 << (fine % 14);
    if (kind < 9) return 1 + fine % MIB;
    if (kind < 14) return MIB / 2 + (fine * 128) % (8 * MIB);
    if (kind < 15) return 5 * MIB + (fine * 128) % (20 * MIB);
    return (5 + fine % 4) * 4 * MIB;
}

/* Of 32 bits, far from those of other blocks. */
static uint32_t new_mark(void)
{
    return (atomic_fetch_add(&last_mark, 1) + 1) * 2654435761U;
}

static void take_from(const weir_mempool *pool, block *b, weir_stream stream, uint32_t *random)
{
    const size_t words = random_words(random), bytes = words * sizeof *b->base;
    void *base = NULL;
    const weir_status status =
        pool != NULL ? weir_alloc_from(*pool, bytes, stream, &base) : weir_alloc_on(bytes, stream, &base);
    must(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
    if (status != WEIR_OK) return;
    *b = (block){ base, words, new_mark(), stream, false };
    if (next_random(random) % 16 == 0) queue_delay(stream, random);
    queue_fill(b, stream);
}

static void take(block *b, weir_stream stream, uint32_t *random)
{
    int device = 0;
    must(weir_stream_device(stream, &device) == WEIR_OK);
    take_from(device == 0 && next_random(random) % 8 == 0 ? &private_pool : NULL, b, stream, random);
}

/* Another stream, which is recorded, looks at the block once its own stream has come so far. */
static void lend(block *b, weir_stream other, uint32_t *random)
{
    must(weir_stream_wait(other, b->stream) == WEIR_OK);
    if (next_random(random) % 4 == 0) queue_delay(other, random);
    queue_find(b, other);
    must(weir_record_stream(b->base, other) == WEIR_OK);
    b->lent = true;
}

static void give(block *b)
{
    queue_find(b, b->stream);
    must(weir_free(b->base) == WEIR_OK);
    b->base = NULL;
}

static void give_all(block *blocks, int count)
{
    for (int i = 0; i < count; i++)
        if (blocks[i].base != NULL) give(&blocks[i]);
}

/* New contents from pinned memory, which is freed while the copy is queued. */
static void send(block *b)
{
    const size_t bytes = b->words * sizeof *b->base;
    void *pinned = NULL;
    if (bytes > LARGEST_SENT || b->lent) return;
    must(weir_pinned_alloc(bytes, WEIR_NUMA_ANY, &pinned) == WEIR_OK);
    b->mark = new_mark();
    for (size_t i = 0; i < b->words; i++) ((uint32_t *)pinned)[i] = b->mark + (uint32_t)i;
    must(weir_copy(b->base, pinned, bytes, b->stream) == WEIR_OK);
    must(weir_pinned_record(pinned, b->stream) == WEIR_OK);
    must(weir_pinned_free(pinned) == WEIR_OK);
}

/* Blocks that threads leave to each other. */
static struct {
    pthread_mutex_t lock;
    block blocks[MARKET];
} market = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void exchange(block *b, uint32_t *random)
{
    pthread_mutex_lock(&market.lock);
    block *other = &market.blocks[next_random(random) % MARKET];
    const block mine = *b;
    *b = *other;
    *other = mine;
    pthread_mutex_unlock(&market.lock);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* A stream that ends before its work has. */
static void use_a_short_stream(int device, uint32_t *random)
{
    weir_stream stream = { 0 };
    block b = { 0 };
    must(weir_stream_create(device, WEIR_PRIORITY_DEFAULT, &stream) == WEIR_OK);
    queue_delay(stream, random);
    take(&b, stream, random);
    if (b.base != NULL) give(&b);
    must(weir_stream_destroy(stream) == WEIR_OK);
}

static void step(block *b, weir_stream own, uint32_t *random)
{
    if (b->base == NULL) {
        take(b, random_stream(shared, SHARED_STREAMS, own, random), random);
        return;
    }
    switch (next_random(random) % 16) {
    case 0:
    case 1:
    case 2: lend(b, random_stream(shared, SHARED_STREAMS, own, random), random); break;
    case 3: send(b); break;
    case 4:
    case 5:
    case 6: exchange(b, random); break;
    default: give(b);
    }
}

static void *mix(void *argument)
{
    uint32_t random = (uint32_t)(uintptr_t)argument * 977 + 1;
    const int device = (int)((uintptr_t)argument % (unsigned)contents.gpus);
    block blocks[BLOCKS] = { 0 };
    weir_stream own = { 0 };
    must(weir_stream_create(device, WEIR_PRIORITY_DEFAULT, &own) == WEIR_OK);
    for (unsigned i = 0; i < steps; i++) {
        step(&blocks[next_random(&random) % BLOCKS], own, &random);
        if (next_random(&random) % 64 == 0) use_a_short_stream(device, &random);
        if (next_random(&random) % 256 == 0) must(weir_empty_cache(device) == WEIR_OK);
        if (next_random(&random) % 256 == 0) must(weir_pinned_trim(0) == WEIR_OK);
        if (next_random(&random) % 64 == 0) must(weir_stream_synchronize(own) == WEIR_OK);
    }
    give_all(blocks, BLOCKS);
    return NULL;
}

/* Blocks that are used again within the capture, on both of its streams, all from the graph's own pool; and `kept`,
 * which has its contents from before. */
static void capture_work(const block *kept, weir_stream main, weir_stream side, uint32_t *random)
{
    for (int i = 0; i < 4; i++) {
        block b = { 0 }, beside = { 0 };
        take_from(NULL, &b, main, random);
        must(weir_stream_wait(side, main) == WEIR_OK);
        take_from(NULL, &beside, side, random);
        if (b.base != NULL) lend(&b, side, random);
        if (beside.base != NULL) give(&beside);
        if (b.base != NULL) give(&b);
        queue_find(kept, side);
        must(weir_stream_wait(main, side) == WEIR_OK);
    }
}

static void *capture(void *argument)
{
    uint32_t random = (uint32_t)(uintptr_t)argument * 31 + 7;
    weir_stream main = { 0 }, side = { 0 };
    must(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &main) == WEIR_OK);
    must(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &side) == WEIR_OK);
    for (unsigned i = 0; i < steps / 32; i++) {
        weir_graph graph = { 0 };
        weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
        block kept = { 0 };
        options.mode = WEIR_CAPTURE_THREAD_LOCAL;
        while (kept.base == NULL) take(&kept, main, &random);
        must(weir_graph_begin(main, &options, &graph) == WEIR_OK);
        capture_work(&kept, main, side, &random);
        must(weir_graph_end(graph) == WEIR_OK);
        for (int launches = 0; launches < 3; launches++) must(weir_graph_launch(graph, main) == WEIR_OK);
        must(weir_stream_synchronize(main) == WEIR_OK);
        must(weir_graph_destroy(graph) == WEIR_OK);
        give(&kept);
    }
    return NULL;
}

static weir_memory_stats stats_of(int device)
{
    weir_memory_stats stats = { .size = sizeof stats };
    must(weir_stats_get(device, &stats) == WEIR_OK);
    return stats;
}

/* Plans come when weir's own thread has looked at the history, and may be of no use by then: rounds go on for longer
 * until one was. */
static bool goes_on(unsigned round)
{
    enum { STEPS_IN_ROUND = 4, PATIENCE = 20 };
    const unsigned rounds = steps / STEPS_IN_ROUND;
    if (round < rounds || on_standin() || sanitized()) return round < rounds;
    return round < PATIENCE * rounds && stats_of(0).plan_served == 0;
}

/* The same requests in every round, so that there is a plan; now and then something else. */
static void *repeat(void *argument)
{
    enum { ROUND = 40 };
    uint32_t random = (uint32_t)(uintptr_t)argument * 523 + 3;
    weir_stream own = { 0 };
    must(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &own) == WEIR_OK);
    for (unsigned i = 0; goes_on(i); i++) {
        uint32_t same = (uint32_t)(uintptr_t)argument * 41 + 11;
        block blocks[BLOCKS] = { 0 };
        for (int request = 0; request < ROUND; request++) {
            block *b = &blocks[next_random(&same) % BLOCKS];
            if (b->base != NULL)
                give(b);
            else
                take(b, own, next_random(&random) % 1024 == 0 ? &random : &same);
            if (b->base != NULL && next_random(&random) % 16 == 0) lend(b, shared[0], &random);
        }
        give_all(blocks, BLOCKS);
    }
    return NULL;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void begin(weir_settings settings, int gpus)
{
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    settings.size = sizeof settings;
    settings.backend = "cuda";
    assert_ok(weir_open(&settings));
    contents_begin(gpus);
    options.device = 0;
    assert_ok(weir_mempool_create(&options, &private_pool));
    for (int i = 0; i < SHARED_STREAMS; i++)
        assert_ok(i == 0 ? weir_stream_default(0, &shared[i])
                         : weir_stream_create(i % gpus, WEIR_PRIORITY_DEFAULT, &shared[i]));
    for (int i = 0; i < gpus && gpus > 1; i++) assert_ok(weir_device_enable_peer(i, gpus - 1 - i));
}

/* How many words were lost. */
static unsigned end(void)
{
    give_all(market.blocks, MARKET);
    const unsigned lost = contents_end();
    assert_ok(weir_mempool_unref(private_pool));
    for (int i = 0; i < contents.gpus; i++) {
        assert_ok(weir_validate(i));
        assert_ok(weir_empty_cache(i));
        assert_int_equal(stats_of(i).reserved_bytes[WEIR_STAT_ALL].current, 0);
    }
    assert_ok(weir_close());
    return lost;
}

/* Half of the threads do the one, half the other. */
static void run_threads(void *(*some)(void *), void *(*others)(void *))
{
    pthread_t threads[WORKERS];
    for (uintptr_t i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < WORKERS / 2 ? some : others, (void *)i), 0);
    for (int i = 0; i < WORKERS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void run_mix(weir_settings settings, int gpus)
{
    begin(settings, gpus);
    run_threads(mix, mix);
    assert_int_equal(end(), 0);
}

static void a_use_that_was_not_recorded_is_found(void **state)
{
    (void)state;
    begin((weir_settings){ 0 }, 1);
    block b = { alloc_on(4 * MIB, shared[1]), MIB, new_mark(), shared[1], false };
    queue_fill(&b, b.stream);
    assert_ok(weir_stream_wait(shared[2], b.stream));
    queue_wait(50000000, shared[2]);
    queue_find(&b, shared[2]);
    assert_ok(weir_free(b.base));
    block next = { alloc_on(4 * MIB, shared[1]), MIB, new_mark(), shared[1], false };
    assert_ptr_equal(next.base, b.base);
    queue_fill(&next, next.stream);
    assert_ok(weir_free(next.base));
    assert_true(end() > 0);
}

static void contents_stay_in_chunks(void **state)
{
    (void)state;
    run_mix((weir_settings){ .policy = "weir" }, 1);
}

static void contents_stay_in_chunks_where_memory_is_short(void **state)
{
    (void)state;
    run_mix((weir_settings){ .policy = "weir", .memory_limit = 900 * MIB }, 1);
}

static void contents_stay_in_segments_where_memory_is_short(void **state)
{
    (void)state;
    run_mix((weir_settings){ .policy = "segments", .memory_limit = 900 * MIB }, 1);
}

static void contents_stay_under_pytorchs_rules_where_memory_is_short(void **state)
{
    (void)state;
    run_mix((weir_settings){ .policy = "torch", .memory_limit = 900 * MIB, .max_split_size = 32 * MIB }, 1);
}

static void contents_stay_in_graphs_and_beside_them(void **state)
{
    (void)state;
    begin((weir_settings){ 0 }, 1);
    run_threads(mix, capture);
    assert_int_equal(end(), 0);
}

static void contents_stay_where_plans_are_learned(void **state)
{
    (void)state;
    begin((weir_settings){ .history = 100000, .plan = "auto", .plan_share = 1 }, 1);
    run_threads(repeat, repeat);
    const weir_memory_stats stats = stats_of(0);
    assert_int_equal(end(), 0);
    print_message("allocations that a plan had: %llu in their place, %llu late, %llu missed\n",
                  (unsigned long long)stats.plan_served, (unsigned long long)stats.plan_late,
                  (unsigned long long)stats.plan_missed);
    if (!on_standin() && !sanitized()) assert_true(stats.plan_served > 0);
}

static void contents_stay_where_two_gpus_look_at_each_others(void **state)
{
    int devices = 0;
    open_weir(state);
    assert_ok(weir_device_count(&devices));
    const bool can = devices >= MOST_GPUS && weir_device_enable_peer(0, 1) == WEIR_OK;
    close_weir(state);
    if (!can) skip();
    run_mix((weir_settings){ .memory_limit = 900 * MIB }, MOST_GPUS);
}

static unsigned default_steps(void)
{
    if (on_standin()) return SANITIZED ? 8 : 20;
    return sanitized() ? 200 : 2000;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_use_that_was_not_recorded_is_found),
        cmocka_unit_test(contents_stay_in_chunks),
        cmocka_unit_test(contents_stay_in_chunks_where_memory_is_short),
        cmocka_unit_test(contents_stay_in_segments_where_memory_is_short),
        cmocka_unit_test(contents_stay_under_pytorchs_rules_where_memory_is_short),
        cmocka_unit_test(contents_stay_in_graphs_and_beside_them),
        cmocka_unit_test(contents_stay_where_plans_are_learned),
        cmocka_unit_test(contents_stay_where_two_gpus_look_at_each_others),
    };
    const char *chosen = getenv("CONTENTS_STEPS");
    const int missing = no_gpu();
    if (missing != 0) return missing;
    steps = chosen != NULL ? (unsigned)strtoul(chosen, NULL, 10) : default_steps();
    return cmocka_run_group_tests_name("gpu_contents", tests, NULL, NULL);
}
