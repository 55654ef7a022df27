/*
 * What a miss learns about chunks, compared with an inspection of all of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "detach_support.h"
#include "host_support.h"
#include "pool/bin.h"
#include "pool/chunk/stitch_end.h"
#include "pool/chunk/stitch_run.h"
#include "pool/starts.h"
#include "pool_support.h"
#include "random_support.h"

enum { STREAMS = 2, LIVE = 120, STEPS = 6000, PHASE = 240, UPSET = 170, LOOK_EVERY = 3 };

static int open_limited_host(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 16384 * MIB, .memory_limit = 1536 * MIB });
    return 0;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

static size_t offset_of(const wr_block *block)
{
    return (size_t)(block->base - block->segment->base);
}

static const wr_block *first_of_part(const wr_slot *slot)
{
    return wr_starts_block_at(slot->region, slot->region->base + slot->at + slot->from);
}

static bool is_wholly_free(const wr_chunk *chunk)
{
    for (const wr_slot *s = chunk->slots; s; s = s->next_of_chunk) {
        if (wr_slot_is_stale(s)) continue;
        for (const wr_block *b = first_of_part(s); b && offset_of(b) < s->at + s->to; b = b->next)
            if (b->state != WR_BLOCK_FREE) return false;
    }
    return true;
}

/* Pieces side by side, and which of them are chunks. */
typedef struct chain {
    const wr_segment *region;
    size_t from, to;
    const wr_chunk *chunks[1024];
    size_t count;
} chain;

static void end_chain(const chain *now, size_t need, size_t *shortest)
{
    const size_t bytes = now->to - now->from;
    if (bytes >= need && (*shortest == 0 || bytes < *shortest)) *shortest = bytes;
}

static bool is_in(const chain *now, const wr_chunk *chunk)
{
    size_t i = 0;
    while (i < now->count && now->chunks[i] != chunk) i++;
    return i < now->count;
}

/* `chunk`: the piece is all of this chunk; NULL: it is part of one. */
static void add_to_chain(chain *now, const wr_segment *region, size_t from, size_t to, const wr_chunk *chunk,
                         size_t need, size_t *shortest)
{
    if (now->region != region || now->to != from || (chunk && is_in(now, chunk))) {
        end_chain(now, need, shortest);
        now->region = region;
        now->from = from;
        now->count = 0;
    }
    now->to = to;
    if (!chunk) return;
    assert_true(now->count < sizeof now->chunks / sizeof *now->chunks);
    now->chunks[now->count++] = chunk;
}

static bool serves(const wr_stitch_plan *p, const wr_chunk *chunk)
{
    const wr_bin *bin = wr_chunk_bin(chunk);
    return is_wholly_free(chunk) && bin->stream == p->bin->stream && bin->pool == p->bin->pool &&
           wr_stitch_may_take(p, bin);
}

/* The shortest of all runs in a bin's regions that are long enough; 0: there are none. */
static size_t shortest_run_in(const wr_stitch_plan *p, const wr_bin *bin)
{
    const size_t need = p->request->fit.block_bytes;
    static chain now;
    size_t shortest = 0;
    now = (chain){ 0 };
    for (const wr_segment *segment = bin->segments; segment; segment = segment->next)
        for (uint32_t i = 0; segment->region && i < segment->region->count; i++) {
            const wr_slot *s = segment->region->slots[i].slot;
            const size_t from = s->at + s->from, to = s->at + s->to;
            const bool whole = serves(p, s->chunk);
            if (whole) add_to_chain(&now, segment, s->at, s->at + s->chunk->bytes, s->chunk, need, &shortest);
            for (const wr_block *b = whole || from == to ? NULL : first_of_part(s); b && offset_of(b) < to;
                 b = b->next) {
                const size_t end = offset_of(b) + b->bytes, begin = offset_of(b);
                if (b->state == WR_BLOCK_FREE && b->bytes >= WR_CHUNK_PART_LEAST)
                    add_to_chain(&now, segment, begin > from ? begin : from, end < to ? end : to, NULL, need,
                                 &shortest);
            }
        }
    end_chain(&now, need, &shortest);
    return shortest;
}

static wr_bin *other_bin(const wr_stitch_plan *p)
{
    return wr_mempool_bin(p->request->pool, p->request->stream, p->bin->class == WR_SMALL ? WR_LARGE : WR_SMALL);
}

/* Includes the other class when nothing else serves: there a free block may be all that is needed. */
static size_t shortest_run(const wr_stitch_plan *p)
{
    const size_t own = shortest_run_in(p, p->bin);
    wr_bin *other = p->forced ? other_bin(p) : NULL;
    if (own || !other) return own;
    const wr_block *block = wr_bin_best_fit(other, p->request->fit.block_bytes);
    const size_t run = shortest_run_in(p, other);
    return block && (!run || block->bytes < run) ? block->bytes : run;
}

/* How much of the chunk's end a free block in the slot's part offers; 0: it does not reach the end. */
static size_t end_of(const wr_slot *s, const wr_block *b, bool suffix)
{
    const size_t part = s->at + s->from, behind = s->at + s->to, end = offset_of(b) + b->bytes;
    const size_t from = offset_of(b) > part ? offset_of(b) : part, to = end < behind ? end : behind;
    const size_t left = suffix ? from - part : behind - to;
    const size_t kept = left && left < WR_CHUNK_PART_LEAST ? WR_CHUNK_PART_LEAST - left : 0;
    const bool reaches = suffix ? to == s->at + s->chunk->bytes : from == s->at;
    return b->state == WR_BLOCK_FREE && reaches && to - from > kept ? to - from - kept : 0;
}

static size_t largest_end_in(const wr_bin *bin, bool suffix)
{
    size_t largest = 0;
    for (const wr_segment *segment = bin->segments; segment; segment = segment->next)
        for (uint32_t i = 0; segment->region && i < segment->region->count; i++) {
            const wr_slot *s = segment->region->slots[i].slot;
            if (wr_slot_is_stale(s) || is_wholly_free(s->chunk)) continue;
            for (const wr_block *b = first_of_part(s); b && offset_of(b) < s->at + s->to; b = b->next)
                if (end_of(s, b, suffix) > largest) largest = end_of(s, b, suffix);
        }
    return largest;
}

/* The largest of the ends that are worth it; 0: there are none. */
static size_t largest_end(const wr_stitch_plan *p, bool suffix)
{
    const wr_bin *other = p->forced ? other_bin(p) : NULL;
    const size_t own = largest_end_in(p->bin, suffix), more = other ? largest_end_in(other, suffix) : 0;
    const size_t largest = own > more ? own : more;
    return largest >= (p->forced ? WR_CHUNK_LEAST : 16 * MIB) ? largest : 0;
}

/* ---- a program --------------------------------------------------------------------------------------------------- */

/* Sizes of both classes, few of them large, as programs have them. */
static size_t random_bytes(uint32_t *random)
{
    switch (next_random(random) % 8) {
    case 0: return MIB + (next_random(random) % 200) * MIB;
    case 1:
    case 2: return MIB + (next_random(random) % 30) * MIB;
    case 3:
    case 4: return 512 * (1 + next_random(random) % 20000);
    default: return 512 * (1 + next_random(random) % 2000);
    }
}

typedef struct program {
    void *live[LIVE];
    weir_stream streams[STREAMS]; /* the first is the device's default stream */
    weir_mempool pool;            /* which passes chunks on when it is released, and gets those of the default pool */
    uint32_t random;
} program;

/* Where memory is short some requests are refused. */
static void change_one(program *p)
{
    void **live = &p->live[next_random(&p->random) % LIVE];
    if (*live) assert_ok(weir_free(*live));
    *live = NULL;
    const size_t bytes = random_bytes(&p->random);
    const weir_stream stream = p->streams[next_random(&p->random) % STREAMS];
    const weir_status status = next_random(&p->random) % 4 ? weir_alloc_on(bytes, stream, live)
                                                           : weir_alloc_from(p->pool, bytes, stream, live);
    assert_true(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
}

/* Leaves much free, in pieces that were mapped for various requests. */
static void free_most(program *p)
{
    for (int i = 0; i < LIVE; i++) {
        if (!p->live[i] || next_random(&p->random) % 4 == 0) continue;
        assert_ok(weir_free(p->live[i]));
        p->live[i] = NULL;
    }
}

static weir_mempool new_pool(void)
{
    return make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
}

/* What is live meanwhile stays so. */
static void upset(program *p)
{
    switch (next_random(&p->random) % 8) {
    case 0: assert_ok(weir_empty_cache(0)); break;
    case 1: assert_ok(weir_mempool_empty_cache(p->pool)); break;
    case 2:
    case 3:
        assert_ok(weir_mempool_unref(p->pool));
        p->pool = new_pool();
        break;
    default: assert_ok(weir_stream_destroy(p->streams[1])); p->streams[1] = new_stream(0);
    }
}

typedef void looking(wr_cache *cache, wr_stream *stream, uint32_t *random);

static void look_now(program *p, weir_stream at, looking *look)
{
    void *one = NULL;
    if (weir_alloc_on(512, at, &one) != WEIR_OK) return; /* other pools have the rest of the limit */
    wr_front *front = front_of(one);
    wr_lock_acquire(&front->cache->move_lock);
    wr_front_lock(front->cache, front);
    wr_front_empty_locked(front);
    look(front->cache, front->stream, &p->random);
    wr_front_unlock(front->cache, front);
    wr_lock_release(&front->cache->move_lock);
    assert_ok(weir_free(one));
}

static void run_program(looking *look)
{
    static program p;
    p = (program){ .streams = { default_stream(0), new_stream(0) }, .pool = new_pool(), .random = 1 };
    for (int step = 0; step < STEPS; step++) {
        if (step % PHASE == PHASE - 1) free_most(&p);
        if (step % UPSET == UPSET - 1) upset(&p);
        change_one(&p);
        if (step % LOOK_EVERY == 0) look_now(&p, p.streams[step % STREAMS], look);
    }
    assert_ok(weir_validate(0));
}

static void look_at_chunks(wr_cache *cache, wr_stream *stream, uint32_t *random)
{
    size_t free = 0;
    (void)stream;
    (void)random;
    assert_ok(wr_chunks_survey_begin_locked(cache));
    for (wr_mempool *pool = cache->pools; pool; pool = pool->next) wr_chunks_survey_locked(pool);
    for (const wr_chunk *k = cache->chunks.first; k; k = k->next) {
        assert_int_equal(wr_chunk_is_free(cache, k), is_wholly_free(k));
        assert_ptr_equal(k->pool, wr_chunk_bin(k)->pool);
        if (!is_wholly_free(k)) continue;
        assert_ptr_equal(k->bin, wr_chunk_bin(k));
        free++;
    }
    assert_int_equal(cache->chunks.whole_count, free);
}

static void a_survey_finds_the_chunks_that_are_wholly_free(void **state)
{
    (void)state;
    run_program(look_at_chunks);
}

static unsigned found_some;

static wr_mempool *random_pool(const wr_cache *cache, uint32_t *random)
{
    wr_mempool *pool = cache->pools;
    while (pool->next && next_random(random) % 3 == 0) pool = pool->next;
    return pool;
}

/* A plan for a request of either class that no free block serves, because free blocks are tried before; false: there is
 * no plan. */
static bool plan_one(wr_cache *cache, wr_stream *stream, uint32_t *random, wr_request *request, wr_stitch_plan *plan)
{
    const wr_class class = next_random(random) % 4 ? WR_LARGE : WR_SMALL;
    wr_mempool *pool = random_pool(cache, random);
    wr_bin *bin = wr_mempool_bin(pool, stream, class);
    const wr_block *largest = bin ? wr_bin_largest(bin) : NULL;
    const size_t more = class == WR_LARGE ? 512 + next_random(random) % 16 * MIB : 512;
    const size_t bytes = (largest ? largest->bytes : 0) + more;
    if (!bin || (class == WR_SMALL && bytes > MIB)) return false;
    *request = wr_cache_request(pool, wr_mempool_name_of(pool), stream,
                                class == WR_LARGE && bytes < 2 * MIB ? 2 * MIB : bytes);
    *plan = (wr_stitch_plan){ .cache = cache, .request = request, .bin = bin, .forced = next_random(random) % 2 };
    plan->pressed = plan->forced || next_random(random) % 2;
    assert_ok(wr_chunks_survey_begin_locked(cache));
    wr_chunks_survey_locked(pool);
    if (pool != cache->pools) wr_chunks_survey_locked(cache->pools);
    return true;
}

static void look_for_run(wr_cache *cache, wr_stream *stream, uint32_t *random)
{
    wr_request request;
    wr_stitch_plan plan;
    if (!plan_one(cache, stream, random, &request, &plan)) return;
    const wr_stitch_run found = wr_stitch_run_find(&plan);
    assert_int_equal(found.to - found.from, shortest_run(&plan));
    found_some += found.region != NULL;
}

static void the_shortest_run_of_free_addresses_is_found(void **state)
{
    (void)state;
    found_some = 0;
    run_program(look_for_run);
    assert_true(found_some > STEPS / LOOK_EVERY / 100);
}

static void look_for_ends(wr_cache *cache, wr_stream *stream, uint32_t *random)
{
    wr_request request;
    wr_stitch_plan plan;
    if (!plan_one(cache, stream, random, &request, &plan)) return;
    for (int suffix = 0; suffix < 2; suffix++) {
        const wr_piece end = wr_stitch_end_best(&plan, suffix, NULL);
        assert_int_equal(wr_piece_bytes(&end), largest_end(&plan, suffix));
        found_some += end.slot != NULL;
        if (!end.slot) continue;
        const wr_piece next = wr_stitch_end_best(&plan, suffix, end.slot->chunk);
        assert_true(!next.slot || next.slot->chunk != end.slot->chunk);
    }
}

static void the_largest_free_end_of_a_chunk_in_use_is_found(void **state)
{
    (void)state;
    found_some = 0;
    run_program(look_for_ends);
    assert_true(found_some > STEPS / LOOK_EVERY / 100);
}

/* ---- many streams ------------------------------------------------------------------------------------------------ */

enum { MANY = 300 };

static void alloc_on_each(weir_stream streams[MANY], void *blocks[MANY], size_t bytes)
{
    for (int i = 0; i < MANY; i++) {
        assert_ok(weir_stream_create(0, 0, &streams[i]));
        blocks[i] = alloc_on(bytes, streams[i]);
    }
}

static wr_cache *cache_of(const void *block)
{
    const wr_segment *segment = wr_address_find(block);
    return segment->cache;
}

static int bins_looked_at(const wr_mempool *pool)
{
    const wr_bin *bin;
    int count = 0;
    LIST_FOREACH(bin, &pool->stirred, in_stirred) count++;
    return count;
}

/* No stream has a wholly free part of a chunk: a new stream's request does not look at them all. */
static void streams_without_wholly_free_parts_are_not_looked_at(void **state)
{
    (void)state;
    weir_stream streams[MANY];
    void *blocks[MANY];
    alloc_on_each(streams, blocks, 3 * MIB / 2);
    wr_mempool *pool = cache_of(blocks[0])->pools;
    assert_true(bins_looked_at(pool) <= 2);
    for (int i = 0; i < MANY; i++) assert_ok(weir_free(blocks[i]));
    const int64_t held = stats_of(0).reserved_bytes[WEIR_STAT_ALL].current; /* nothing is parked any more */
    assert_int_equal(bins_looked_at(pool), MANY);
    assert_non_null(alloc_on(MANY * MIB, streams[0]));
    assert_int_equal(stats_of(0).reserved_bytes[WEIR_STAT_ALL].current, held);
    assert_ok(weir_validate(0));
}

/* Each stream has a chunk, and most are wholly free. Only streams whose memory was used since the last request that
 * looked are looked at again. */
static void streams_where_nothing_changed_are_not_looked_at_again(void **state)
{
    (void)state;
    weir_stream streams[MANY];
    void *blocks[MANY];
    alloc_on_each(streams, blocks, 3 * MIB / 2);
    wr_mempool *pool = cache_of(blocks[0])->pools;
    for (int i = 0; i < MANY; i++) assert_ok(weir_free(blocks[i]));
    const int64_t held = stats_of(0).reserved_bytes[WEIR_STAT_ALL].current;
    for (int i = 0; i < 10; i++) assert_non_null(alloc_on(10 * MIB, streams[i]));
    assert_int_equal(stats_of(0).reserved_bytes[WEIR_STAT_ALL].current, held);
    assert_true(bins_looked_at(pool) <= 10);
    assert_ok(weir_validate(0));
}

/* With something live on each, so much that it might be parked, the fronts are asked again once more is held. */
static void many_fronts_are_asked_once_for_each_share_more(void **state)
{
    (void)state;
    weir_stream streams[MANY];
    int asked = 0;
    size_t last = 0;
    for (int i = 0; i < MANY; i++) {
        assert_ok(weir_stream_create(0, 0, &streams[i]));
        const wr_cache *cache = cache_of(alloc_on(3 * MIB / 2, streams[i]));
        asked += cache->chunks.asked_at != last;
        last = cache->chunks.asked_at;
    }
    assert_in_range(asked, 1, MANY / 2);
}

/* Of what all streams have parked a large request is served before new memory is made, however many they are. */
static void a_large_request_gets_what_many_fronts_have_parked(void **state)
{
    (void)state;
    weir_stream streams[MANY];
    void *blocks[MANY];
    alloc_on_each(streams, blocks, 3 * MIB / 2);
    wr_chunks *chunks = &cache_of(blocks[0])->chunks;
    const size_t held = chunks->bytes;
    for (int i = 0; i < MANY; i++) assert_ok(weir_free(blocks[i]));
    chunks->asked_at = held; /* just before */
    assert_non_null(alloc_on(MANY * MIB, streams[0]));
    assert_int_equal(chunks->bytes, held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_survey_finds_the_chunks_that_are_wholly_free, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(a_survey_finds_the_chunks_that_are_wholly_free, open_limited_host, close_host),
        cmocka_unit_test_setup_teardown(the_shortest_run_of_free_addresses_is_found, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(the_shortest_run_of_free_addresses_is_found, open_limited_host, close_host),
        cmocka_unit_test_setup_teardown(the_largest_free_end_of_a_chunk_in_use_is_found, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(the_largest_free_end_of_a_chunk_in_use_is_found, open_limited_host, close_host),
        cmocka_unit_test_setup_teardown(streams_without_wholly_free_parts_are_not_looked_at, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(streams_where_nothing_changed_are_not_looked_at_again, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(many_fronts_are_asked_once_for_each_share_more, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(a_large_request_gets_what_many_fronts_have_parked, open_large_host, close_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
