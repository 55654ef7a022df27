/*
 * What a miss finds out about chunks, against a look at all of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "detach_support.h"
#include "host_support.h"
#include "pool/bin.h"
#include "pool/starts.h"
#include "pool/stitch_run.h"
#include "random_support.h"

enum { STREAMS = 2, LIVE = 120, STEPS = 6000, PHASE = 240, LOOK_EVERY = 3 };

static int open_limited_host(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 16384 * MIB, .memory_limit = 1536 * MIB });
    return 0;
}

/* ---- the model ---------------------------------------------------------------------------------------------------- */

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

/* Pieces one behind the other, and which chunks are among them. */
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

/* `chunk`: of which it is all; NULL: a piece of one. */
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
    return is_wholly_free(chunk) && bin->stream == p->bin->stream && wr_stitch_may_take(p, bin);
}

/* Of all runs of the bin's regions that are long enough; 0: there are none. */
static size_t shortest_run(const wr_stitch_plan *p)
{
    const size_t need = p->request->fit.block_bytes;
    static chain now;
    size_t shortest = 0;
    now = (chain){ 0 };
    for (const wr_segment *segment = p->bin->segments; segment; segment = segment->next)
        for (uint32_t i = 0; segment->region && i < segment->region->count; i++) {
            const wr_slot *s = segment->region->slots[i];
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

/* ---- a program ---------------------------------------------------------------------------------------------------- */

/* Some of each class, of which few are large: as programs have them. */
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

/* Where memory is short some of it is refused. */
static void change_one(void *live[LIVE], const weir_stream streams[STREAMS], uint32_t *random)
{
    const uint32_t i = next_random(random) % LIVE;
    if (live[i]) assert_ok(weir_free(live[i]));
    live[i] = NULL;
    const weir_status status = weir_alloc_on(random_bytes(random), streams[next_random(random) % STREAMS], &live[i]);
    assert_true(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
}

/* So that much is free, in pieces that were mapped for one thing and another. */
static void free_most(void *live[LIVE], uint32_t *random)
{
    for (int i = 0; i < LIVE; i++) {
        if (!live[i] || next_random(random) % 4 == 0) continue;
        assert_ok(weir_free(live[i]));
        live[i] = NULL;
    }
}

typedef void looking(wr_cache *cache, wr_stream *stream, uint32_t *random);

static void run_program(looking *look)
{
    static void *live[LIVE];
    const weir_stream streams[STREAMS] = { default_stream(0), new_stream(0) };
    uint32_t random = 1;
    for (int i = 0; i < LIVE; i++) live[i] = NULL;
    for (int step = 0; step < STEPS; step++) {
        if (step % PHASE == PHASE - 1) free_most(live, &random);
        change_one(live, streams, &random);
        if (step % LOOK_EVERY) continue;
        void *one = alloc_on(512, streams[step % STREAMS]);
        wr_front *front = front_of(one);
        wr_lock_acquire(&front->cache->move_lock);
        const wr_front_hold h = wr_front_lock(front->cache, front);
        wr_front_empty_locked(front);
        look(front->cache, front->stream, &random);
        wr_front_unlock(front->cache, &h);
        wr_lock_release(&front->cache->move_lock);
        assert_ok(weir_free(one));
    }
    assert_ok(weir_validate(0));
}

static void look_at_chunks(wr_cache *cache, wr_stream *stream, uint32_t *random)
{
    size_t free = 0;
    (void)stream;
    (void)random;
    assert_ok(wr_chunks_survey_locked(cache));
    for (const wr_chunk *k = cache->chunks.first; k; k = k->next) {
        assert_int_equal(wr_chunk_is_free(cache, k), is_wholly_free(k));
        free += is_wholly_free(k);
    }
    assert_int_equal(cache->chunks.whole_count, free);
}

static void a_survey_finds_the_chunks_that_are_wholly_free(void **state)
{
    (void)state;
    run_program(look_at_chunks);
}

static unsigned runs;

/* More than any free block has, since those are looked for before. */
static void look_for_run(wr_cache *cache, wr_stream *stream, uint32_t *random)
{
    wr_bin *bin = wr_mempool_bin(cache->pools, stream, WR_LARGE);
    const wr_block *largest = bin ? wr_bin_largest(bin) : NULL;
    if (!bin) return;
    const size_t bytes = (largest ? largest->bytes : 0) + 512 + next_random(random) % 16 * MIB;
    const wr_request request = wr_cache_request(cache->pools, 0, stream, bytes < 2 * MIB ? 2 * MIB : bytes);
    const wr_stitch_plan plan = { .cache = cache, .request = &request, .bin = bin };
    assert_ok(wr_chunks_survey_locked(cache));
    const wr_stitch_run found = wr_stitch_run_find(&plan);
    assert_int_equal(found.to - found.from, shortest_run(&plan));
    runs += found.region != NULL;
}

static void the_shortest_run_of_free_addresses_is_found(void **state)
{
    (void)state;
    runs = 0;
    run_program(look_for_run);
    assert_true(runs > STEPS / LOOK_EVERY / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_survey_finds_the_chunks_that_are_wholly_free, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(a_survey_finds_the_chunks_that_are_wholly_free, open_limited_host, close_host),
        cmocka_unit_test_setup_teardown(the_shortest_run_of_free_addresses_is_found, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(the_shortest_run_of_free_addresses_is_found, open_limited_host, close_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
