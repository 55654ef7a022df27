/*
 * Private pools made of chunks: what they take from the default pool, what is theirs alone, and what stays in place of
 * a graph's pool, or of a pool with a checkpoint.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device_support.h"
#include "graph_support.h"
#include "pool/chunk/chunk.h"
#include "pool/front/not_live.h"
#include "pool/mempool.h"
#include "random_support.h"
#include "thread_support.h"

#define CHUNK (8 * MIB)
#define CHUNKS 8 /* free, they are enough for other streams to get parked blocks */

static weir_stream origin;

static int open_default(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 512 * MIB });
    origin = new_stream(0);
    return 0;
}

static int open_large(void **state)
{
    const int result = open_large_host(state);
    origin = new_stream(0);
    return result;
}

static weir_mempool plain_pool(void)
{
    return make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
}

static int64_t reserved_by(weir_mempool pool)
{
    return pool_stats(pool).reserved_bytes[WEIR_STAT_ALL].current;
}

static uint64_t chunks_made(void)
{
    return calls_of(WEIR_BACKEND_vm_create);
}

/* Blocks of a chunk each. */
static void take_chunks(char *blocks[CHUNKS], weir_mempool pool)
{
    for (unsigned i = 0; i < CHUNKS; i++) {
        blocks[i] = alloc_from(pool, CHUNK, origin);
        write_pattern(blocks[i], CHUNK, i);
    }
}

static void free_every_other(char *blocks[CHUNKS])
{
    for (int i = 0; i < CHUNKS; i += 2) assert_ok(weir_free(blocks[i]));
}

static void assert_others_kept(char *blocks[CHUNKS])
{
    for (unsigned i = 1; i < CHUNKS; i += 2) assert_true(has_pattern(blocks[i], CHUNK, i));
}

/* Leaves chunks free, not parked: reading statistics frees parked blocks. */
static void leave_free_in_the_default_pool(void)
{
    char *blocks[CHUNKS];
    take_chunks(blocks, (weir_mempool){ 0, 0 });
    for (int i = 0; i < CHUNKS; i++) assert_ok(weir_free(blocks[i]));
    assert_int_equal(reserved_by((weir_mempool){ 0, 0 }), CHUNKS * CHUNK);
}

/* ---- which are --------------------------------------------------------------------------------------------------- */

static void a_pool_is_made_of_chunks(void **state)
{
    (void)state;
    (void)alloc_from(plain_pool(), 30 * MIB, origin);
    assert_int_not_equal(chunks_made(), 0);
    assert_int_equal(calls_of(WEIR_BACKEND_segment_alloc), 0);
}

static void pools_with_rules_about_segments_use_no_chunks(void **state)
{
    (void)state;
    weir_mempool_options whole = pool_options(WEIR_MEMORY_DEVICE, ""), certain = whole, aligned = whole;
    whole.no_split = true;
    certain.deterministic = true;
    aligned.alignment = 2 * MIB;
    (void)alloc_from(make_pool(whole), MIB, origin);
    (void)alloc_from(make_pool(certain), MIB, origin);
    (void)alloc_from(make_pool(aligned), MIB, origin);
    assert_int_equal(calls_of(WEIR_BACKEND_segment_alloc), 3);
    assert_int_equal(chunks_made(), 0);
}

/* ---- what is free ------------------------------------------------------------------------------------------------ */

static void memory_that_is_free_in_pieces_serves_a_larger_request(void **state)
{
    (void)state;
    char *blocks[CHUNKS];
    const weir_mempool pool = plain_pool();
    take_chunks(blocks, pool);
    free_every_other(blocks);
    const uint64_t made = chunks_made();
    char *large = alloc_from(pool, CHUNKS / 2 * CHUNK, origin);
    memset(large, 1, CHUNKS / 2 * CHUNK);
    assert_int_equal(chunks_made(), made);
    assert_int_equal(reserved_by(pool), CHUNKS * CHUNK);
    assert_others_kept(blocks);
}

static void blocks_stay_aligned_where_pieces_are_mapped_together(void **state)
{
    (void)state;
    enum { BLOCKS = 12 };
    weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "");
    options.alignment = MIB;
    const weir_mempool pool = make_pool(options);
    void *blocks[BLOCKS] = { NULL };
    uint32_t random = 1;
    for (int i = 0; i < 1000; i++) {
        void **block = &blocks[next_random(&random) % BLOCKS];
        assert_ok(weir_free(*block));
        *block = alloc_from(pool, 1 + next_random(&random) % (size_t)(40 * MIB), origin);
        assert_int_equal((uintptr_t)*block % MIB, 0);
    }
    assert_true(calls_of(WEIR_BACKEND_vm_map) > chunks_made());
    assert_ok(weir_validate(0));
}

static void free_memory_of_the_default_pool_goes_to_the_private_pool(void **state)
{
    (void)state;
    const weir_mempool pool = plain_pool(), default_pool = { 0, 0 };
    leave_free_in_the_default_pool();
    const uint64_t made = chunks_made();
    memset(alloc_from(pool, 5 * CHUNK, origin), 1, 5 * CHUNK);
    assert_int_equal(chunks_made(), made);
    assert_int_equal(reserved_by(pool), 5 * CHUNK);
    assert_int_equal(reserved_by(default_pool), (CHUNKS - 5) * CHUNK);
    assert_int_equal(reserved_on(0), CHUNKS * CHUNK);
}

static void a_pool_takes_its_own_free_chunks_before_larger_ones_of_the_default_pool(void **state)
{
    (void)state;
    const weir_mempool pool = plain_pool(), default_pool = { 0, 0 };
    char *blocks[CHUNKS];
    take_chunks(blocks, pool);
    assert_ok(weir_free(alloc_on(CHUNKS * CHUNK, origin)));
    assert_int_equal(reserved_by(default_pool), CHUNKS * CHUNK);
    free_every_other(blocks);
    memset(alloc_from(pool, CHUNKS / 2 * CHUNK, origin), 1, CHUNKS / 2 * CHUNK);
    assert_int_equal(reserved_by(pool), CHUNKS * CHUNK);
    assert_int_equal(reserved_by(default_pool), CHUNKS * CHUNK);
    assert_others_kept(blocks);
}

static void memory_of_a_private_pool_goes_back_to_the_driver(void **state)
{
    (void)state;
    const weir_mempool pool = plain_pool(), default_pool = { 0, 0 };
    leave_free_in_the_default_pool();
    assert_ok(weir_free(alloc_from(pool, 5 * CHUNK, origin)));
    assert_ok(weir_mempool_empty_cache(pool));
    assert_int_equal(reserved_by(pool), 0);
    assert_int_equal(reserved_by(default_pool), (CHUNKS - 5) * CHUNK);
    memset(alloc_on((CHUNKS - 5) * CHUNK, origin), 1, (CHUNKS - 5) * CHUNK);
}

static void free_memory_of_a_pool_in_use_serves_no_other_pool(void **state)
{
    (void)state;
    const weir_mempool one = plain_pool(), other = plain_pool();
    assert_ok(weir_free(alloc_from(one, 7 * CHUNK, origin)));
    (void)alloc_from(other, 4 * CHUNK, origin);
    (void)alloc_on(4 * CHUNK, origin);
    assert_int_equal(reserved_by(one), 7 * CHUNK);
    assert_int_equal(reserved_on(0), 15 * CHUNK);
}

/* Other streams get a stream's parked blocks from a 16th of the default pool's chunks on. */
static void memory_of_private_pools_keeps_nothing_parked(void **state)
{
    (void)state;
    const weir_mempool pool = plain_pool();
    char *blocks[CHUNKS];
    take_chunks(blocks, (weir_mempool){ 0, 0 });
    assert_ok(weir_free(alloc_from(pool, 160 * CHUNK, origin)));
    for (int i = 0; i < CHUNKS; i++) assert_ok(weir_free(blocks[i]));
    const uint64_t made = chunks_made();
    (void)alloc_on(CHUNKS * CHUNK, new_stream(0));
    assert_int_equal(chunks_made(), made);
}

static void memory_of_an_ended_stream_serves_the_next_one(void **state)
{
    (void)state;
    const weir_mempool pool = plain_pool();
    for (int i = 0; i < 20; i++) {
        const weir_stream stream = new_stream(0);
        assert_ok(weir_free(alloc_from(pool, 4 * CHUNK, stream)));
        assert_ok(weir_stream_destroy(stream));
    }
    assert_true(reserved_by(pool) <= (int64_t)(5 * CHUNK));
}

static void a_cap_can_be_used_up(void **state)
{
    (void)state;
    void *none = NULL;
    weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "");
    options.cap = 24 * MIB;
    leave_free_in_the_default_pool();
    const weir_mempool pool = make_pool(options);
    (void)alloc_from(pool, 17 * MIB, origin);
    void *small = alloc_from(pool, 100, origin);
    (void)alloc_from(pool, 4 * MIB, origin);
    assert_int_equal(reserved_by(pool), 24 * MIB);
    assert_status(weir_alloc_from(pool, 2 * MIB, origin, &none), WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(weir_error_text(), "cap 24.00 MiB"));
    assert_ok(weir_free(small)); /* its chunk goes to the driver, and another one may come */
    (void)alloc_from(pool, 2 * MIB, origin);
    assert_int_equal(reserved_by(pool), 24 * MIB);
}

static void a_pool_with_a_cap_takes_no_memory_of_the_default_pool(void **state)
{
    (void)state;
    weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "");
    const weir_mempool default_pool = { 0, 0 };
    options.cap = 64 * MIB;
    leave_free_in_the_default_pool();
    (void)alloc_from(make_pool(options), 4 * CHUNK, origin);
    assert_int_equal(reserved_by(default_pool), CHUNKS * CHUNK);
}

static void park_chunks(void)
{
    char *blocks[CHUNKS];
    take_chunks(blocks, (weir_mempool){ 0, 0 });
    for (int i = 0; i < CHUNKS; i++) assert_ok(weir_free(blocks[i]));
}

static int64_t parked(void)
{
    wr_cache *cache = &device_0()->cache;
    wr_cache_lock(cache);
    const int64_t bytes = wr_fronts_parked_locked(cache, NULL, WR_FLOW_BYTES);
    wr_cache_unlock(cache);
    return bytes;
}

static void a_pool_with_a_cap_leaves_blocks_parked_by_others_alone(void **state)
{
    (void)state;
    weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "");
    options.cap = 64 * MIB;
    park_chunks();
    assert_int_equal(parked(), CHUNKS * CHUNK);
    (void)alloc_from(make_pool(options), 4 * CHUNK, new_stream(0));
    assert_int_equal(parked(), CHUNKS * CHUNK);
}

static void a_small_share_of_all_memory_stays_parked(void **state)
{
    (void)state;
    void *most = alloc_on(160 * CHUNK, origin);
    park_chunks();
    (void)alloc_from(plain_pool(), 4 * CHUNK, new_stream(0));
    assert_int_equal(parked(), CHUNKS * CHUNK);
    assert_ok(weir_free(most));
}

static void a_pool_goes_with_its_addresses(void **state)
{
    (void)state;
    char *blocks[CHUNKS];
    weir_mempool_info info = { .size = sizeof info };
    const weir_mempool pool = plain_pool();
    take_chunks(blocks, pool);
    free_every_other(blocks);
    void *large = alloc_from(pool, CHUNKS / 2 * CHUNK, origin);
    assert_ok(weir_mempool_unref(pool));
    assert_ok(weir_mempool_info_get(pool, &info)); /* blocks of it are live */
    assert_ok(weir_free(large));
    for (int i = 1; i < CHUNKS; i += 2) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_empty_cache(0));
    assert_status(weir_mempool_info_get(pool, &info), WEIR_ERR_POOL_MISMATCH);
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_reserve), calls_of(WEIR_BACKEND_vm_release));
    assert_int_equal(calls_of(WEIR_BACKEND_vm_map), calls_of(WEIR_BACKEND_vm_unmap));
}

static void no_more_places_are_kept_than_may_be_mapped(void **state)
{
    (void)state;
    char *blocks[CHUNKS];
    wr_chunks *chunks = &device_0()->cache.chunks;
    const weir_mempool pool = plain_pool();
    take_chunks(blocks, pool);
    chunks->mappings_most = CHUNKS + CHUNKS / 2;
    for (int round = 1; round <= 20; round++) {
        for (int i = round % 2; i < CHUNKS; i += 2) assert_ok(weir_free(blocks[i]));
        void *large = alloc_from(pool, CHUNKS / 2 * CHUNK, origin);
        assert_in_range(chunks->mappings, CHUNKS, chunks->mappings_most + CHUNKS / 2);
        assert_ok(weir_free(large));
        for (int i = round % 2; i < CHUNKS; i += 2) blocks[i] = alloc_from(pool, CHUNK, origin);
    }
}

/* The event that says which of the pool's places are of no more use. */
static void a_pool_that_goes_leaves_no_event(void **state)
{
    (void)state;
    char *blocks[CHUNKS];
    const weir_mempool pool = plain_pool();
    wr_device *device = device_0();
    take_chunks(blocks, pool);
    free_every_other(blocks);
    make_busy(origin);
    device->cache.chunks.mapped_bytes += 1024 * CHUNKS * CHUNK;
    void *large = alloc_from(pool, CHUNKS / 2 * CHUNK, origin);
    device->cache.chunks.mapped_bytes -= 1024 * CHUNKS * CHUNK;
    assert_int_not_equal(device->events.made, device->events.idle_count);
    let_run(origin);
    assert_ok(weir_free(large));
    for (int i = 1; i < CHUNKS; i += 2) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(device->events.made, device->events.idle_count);
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

/* Fills chunks, frees every other one, maps those together and fills that block. */
static void fill_pieces(weir_stream stream, char *blocks[CHUNKS], char **large)
{
    for (int i = 0; i < CHUNKS; i++) {
        blocks[i] = alloc_on(CHUNK, stream);
        assert_ok(weir_fill(blocks[i], (unsigned char)(i + 1), CHUNK, stream));
    }
    free_every_other(blocks);
    *large = alloc_on(CHUNKS / 2 * CHUNK, stream);
    assert_ok(weir_fill(*large, 100, CHUNKS / 2 * CHUNK, stream));
}

static void free_pieces(char *blocks[CHUNKS], char *large)
{
    assert_ok(weir_free(large));
    for (int i = 1; i < CHUNKS; i += 2) assert_ok(weir_free(blocks[i]));
}

static weir_graph capture_pieces(char *blocks[CHUNKS], char **large)
{
    const weir_graph graph = begin_on(origin);
    fill_pieces(origin, blocks, large);
    assert_ok(weir_graph_end(graph));
    return graph;
}

static void assert_filled(const char *block, size_t bytes, char with)
{
    for (size_t i = 0; i < bytes; i += 4096) assert_int_equal(block[i], with);
    assert_int_equal(block[bytes - 1], with);
}

static void a_graph_writes_to_each_address_that_it_has(void **state)
{
    (void)state;
    char *blocks[CHUNKS], *large;
    const weir_graph graph = capture_pieces(blocks, &large);
    assert_int_equal(reserved_by(pool_of(graph)), CHUNKS * CHUNK);
    for (int launch = 0; launch < 2; launch++) {
        for (int i = 1; i < CHUNKS; i += 2) memset(blocks[i], 0, CHUNK);
        memset(large, 0, CHUNKS / 2 * CHUNK);
        launch_and_wait(graph, origin);
        for (int i = 1; i < CHUNKS; i += 2) assert_filled(blocks[i], CHUNK, (char)(i + 1));
        assert_filled(large, CHUNKS / 2 * CHUNK, 100);
    }
}

/* Other pools unmap places when far more is mapped than the device has. */
static void memory_of_a_graph_stays_mapped(void **state)
{
    (void)state;
    char *blocks[CHUNKS], *large;
    const weir_graph graph = capture_pieces(blocks, &large);
    wr_chunks *chunks = &device_0()->cache.chunks;
    chunks->mapped_bytes += 1024 * CHUNKS * CHUNK;
    assert_ok(weir_free(large));
    (void)alloc_from(pool_of(graph), (CHUNKS / 2 + 1) * CHUNK, origin);
    chunks->mapped_bytes -= 1024 * CHUNKS * CHUNK;
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), 0);
    launch_and_wait(graph, origin);
}

/* Work from before the capture may still run when the graph is launched elsewhere. */
static void a_capture_takes_no_memory_of_the_default_pool(void **state)
{
    (void)state;
    const weir_mempool default_pool = { 0, 0 };
    leave_free_in_the_default_pool();
    const weir_graph graph = begin_on(origin);
    (void)alloc_on(4 * CHUNK, origin);
    assert_int_equal(reserved_by(default_pool), CHUNKS * CHUNK);
    assert_ok(weir_graph_end(graph));
}

static void streams_of_a_graphs_pool_take_nothing_of_each_other(void **state)
{
    (void)state;
    const weir_mempool pool = plain_pool();
    const weir_graph graph = begin_in(origin, pool);
    assert_ok(weir_free(alloc_on(7 * CHUNK, origin)));
    assert_ok(weir_graph_end(graph));
    (void)alloc_from(pool, 4 * CHUNK, new_stream(0));
    assert_int_equal(reserved_by(pool), 11 * CHUNK);
}

static void a_graphs_memory_goes_with_it(void **state)
{
    (void)state;
    char *blocks[CHUNKS], *large;
    const weir_graph graph = capture_pieces(blocks, &large), other = begin_on(new_stream(0));
    free_pieces(blocks, large);
    assert_ok(weir_graph_destroy(graph));
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_map), calls_of(WEIR_BACKEND_vm_unmap));
    assert_ok(weir_graph_end(other));
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

static void chunks_noted_by_a_checkpoint_are_mapped_nowhere_else(void **state)
{
    (void)state;
    char *blocks[CHUNKS];
    weir_checkpoint *then = NULL;
    const weir_mempool pool = plain_pool();
    take_chunks(blocks, pool);
    assert_ok(weir_mempool_checkpoint(pool, &then));
    free_every_other(blocks);
    (void)alloc_from(pool, CHUNKS / 2 * CHUNK, origin);
    assert_int_equal(reserved_by(pool), (CHUNKS + CHUNKS / 2) * CHUNK);
    assert_ok(weir_mempool_restore(pool, then, NULL, NULL, NULL));
    for (unsigned i = 0; i < CHUNKS; i++) assert_true(has_pattern(blocks[i], CHUNK, i));
    weir_checkpoint_destroy(then);
}

static void free_ends_noted_by_a_checkpoint_are_mapped_nowhere_else(void **state)
{
    (void)state;
    weir_checkpoint *then = NULL;
    const weir_mempool pool = plain_pool();
    char *first = alloc_from(pool, 48 * MIB, origin), *second = alloc_from(pool, 48 * MIB, origin);
    assert_ok(weir_free(first));
    (void)alloc_from(pool, 20 * MIB, origin);
    char *end = alloc_from(pool, 28 * MIB, origin);
    assert_ok(weir_free(second));
    char *beginning = alloc_from(pool, 24 * MIB, origin);
    (void)alloc_from(pool, 24 * MIB, origin);
    write_pattern(end, 28 * MIB, 1);
    assert_ok(weir_mempool_checkpoint(pool, &then));
    assert_ok(weir_free(end));
    assert_ok(weir_free(beginning));
    (void)alloc_from(pool, 60 * MIB, origin);
    assert_ok(weir_mempool_restore(pool, then, NULL, NULL, NULL));
    assert_true(has_pattern(end, 28 * MIB, 1));
    weir_checkpoint_destroy(then);
}

static void small_requests_find_room_among_large_blocks_of_a_pool_with_a_checkpoint(void **state)
{
    (void)state;
    weir_checkpoint *then = NULL;
    const weir_mempool pool = plain_pool();
    char *gap = alloc_from(pool, 3 * MIB, origin);
    (void)alloc_from(pool, 3 * MIB, origin);
    assert_ok(weir_mempool_checkpoint(pool, &then));
    assert_ok(weir_free(gap));
    alloc_on(free_memory(0), origin);
    char *small = alloc_from(pool, 1000, origin);
    assert_true(small >= gap && small < gap + 3 * MIB);
    assert_ok(weir_mempool_restore(pool, then, NULL, NULL, NULL));
    weir_checkpoint_destroy(then);
}

static void memory_given_back_since_the_checkpoint_is_reported(void **state)
{
    (void)state;
    char *blocks[CHUNKS];
    weir_checkpoint *then = NULL;
    const weir_mempool pool = plain_pool();
    take_chunks(blocks, pool);
    assert_ok(weir_mempool_checkpoint(pool, &then));
    assert_ok(weir_free(blocks[3]));
    assert_ok(weir_mempool_empty_cache(pool));
    assert_status(weir_mempool_restore(pool, then, NULL, NULL, NULL), WEIR_ERR_POOL_MISMATCH);
    assert_non_null(strstr(weir_error_text(), "memory of the block of 8388608 bytes"));
    assert_int_equal(pool_stats(pool).allocation[WEIR_STAT_ALL].current, CHUNKS - 1);
    weir_checkpoint_destroy(then);
}

static void memory_without_live_blocks_at_the_checkpoint_is_not_missed(void **state)
{
    (void)state;
    weir_checkpoint *then = NULL;
    const weir_mempool pool = plain_pool();
    char *kept = alloc_from(pool, CHUNK, origin);
    assert_ok(weir_free(alloc_from(pool, CHUNK, new_stream(0))));
    assert_ok(weir_mempool_checkpoint(pool, &then));
    assert_ok(weir_mempool_empty_cache(pool));
    assert_int_equal(reserved_by(pool), CHUNK);
    assert_ok(weir_free(kept));
    assert_ok(weir_mempool_restore(pool, then, NULL, NULL, NULL));
    assert_ok(weir_free(kept));
    weir_checkpoint_destroy(then);
}

/* The chunk's end is the beginning of a block that goes on elsewhere; its stream captures when the chunk is to be given
 * back. */
static void memory_that_could_not_be_given_back_stays_where_it_was(void **state)
{
    (void)state;
    weir_checkpoint *then = NULL;
    const weir_mempool pool = plain_pool();
    char *first = alloc_from(pool, 20 * MIB, origin), *second = alloc_from(pool, 20 * MIB, origin);
    assert_ok(weir_free(first));
    char *small = alloc_from(pool, 2 * MIB, origin), *large = alloc_from(pool, 30 * MIB, origin);
    assert_int_equal(reserved_by(pool), 52 * MIB);
    assert_true(second < large);
    assert_ok(weir_mempool_checkpoint(pool, &then));
    assert_ok(weir_free(small));
    assert_ok(weir_free(large));
    const weir_graph graph = begin_on(origin);
    assert_ok(weir_mempool_empty_cache(pool));
    assert_ok(weir_graph_end(graph));
    assert_int_equal(reserved_by(pool), 52 * MIB);
    assert_ok(weir_mempool_restore(pool, then, NULL, NULL, NULL));
    write_pattern(small, 2 * MIB, 1);
    write_pattern(large, 30 * MIB, 2);
    assert_true(has_pattern(small, 2 * MIB, 1));
    weir_checkpoint_destroy(then);
}

/* A capture on a stream of its own, from the pool. */
static weir_graph capture_once(weir_mempool pool, weir_stream stream)
{
    const weir_graph graph = begin_in(stream, pool);
    assert_ok(weir_free(alloc_on(CHUNK, stream)));
    assert_ok(weir_graph_end(graph));
    launch_and_wait(graph, stream);
    return graph;
}

/* What a stream that ended has left is the default one's, which cannot be captured. */
static void a_pool_of_captures_on_streams_that_come_and_go_stays_small(void **state)
{
    (void)state;
    const weir_mempool pool = plain_pool();
    for (int stream_first = 0; stream_first < 2; stream_first++)
        for (int i = 0; i < 20; i++) {
            const weir_stream stream = new_stream(0);
            const weir_graph graph = capture_once(pool, stream);
            assert_int_equal(reserved_by(pool), CHUNK);
            if (stream_first) assert_ok(weir_stream_destroy(stream));
            assert_ok(weir_graph_destroy(graph));
            if (!stream_first) assert_ok(weir_stream_destroy(stream));
        }
}

static void what_a_graph_may_write_stays_as_a_capture_begins(void **state)
{
    (void)state;
    const weir_mempool pool = plain_pool();
    const weir_stream stream = new_stream(0);
    const weir_graph first = capture_once(pool, stream);
    assert_ok(weir_stream_destroy(stream));
    const weir_graph second = capture_once(pool, origin);
    assert_int_equal(reserved_by(pool), 2 * CHUNK);
    launch_and_wait(first, origin);
    assert_ok(weir_graph_destroy(first));
    assert_ok(weir_graph_destroy(second));
}

/* Work of the ended stream's may wait for the thread that begins. */
static void a_beginning_capture_waits_for_no_work_of_ended_streams(void **state)
{
    (void)state;
    static atomic_bool ends;
    const weir_mempool pool = plain_pool();
    const weir_stream stream = new_stream(0);
    atomic_store(&ends, false);
    assert_ok(weir_graph_destroy(capture_once(pool, stream)));
    assert_ok(weir_free(alloc_from(pool, CHUNK, stream)));
    assert_ok(weir_stream_callback(default_stream(0), last_until, &ends));
    assert_ok(weir_stream_destroy(stream));
    const weir_graph graph = capture_once(pool, origin);
    assert_int_equal(reserved_by(pool), 2 * CHUNK);
    atomic_store(&ends, true);
    assert_ok(weir_stream_synchronize(default_stream(0)));
    assert_ok(weir_graph_destroy(graph));
    assert_ok(weir_graph_destroy(capture_once(pool, origin)));
    assert_int_equal(reserved_by(pool), CHUNK);
}

/* Where a pool takes the default pool's free chunks although it has some, that one makes new ones, for ever. */
static void two_pools_used_on_streams_that_come_and_go_stay_small(void **state)
{
    (void)state;
    const weir_mempool pool = plain_pool();
    unsigned next = 1;
    for (int i = 0; i < 400; i++) {
        const weir_stream stream = new_stream(0);
        for (int n = (int)(next >> 16) % 4; n > 0; n--, next = next * 1103515245 + 12345)
            assert_ok(weir_free(n % 2 ? alloc_from(pool, 1000, stream) : alloc_on(1000, stream)));
        next = next * 1103515245 + 12345;
        assert_ok(weir_stream_destroy(stream));
    }
    assert_true(reserved_on(0) <= 68 * (int64_t)MIB);
}

static void a_pool_without_graphs_is_shared_by_its_streams_again(void **state)
{
    (void)state;
    enum { STREAMS = 8, BLOCKS = 8 };
    const weir_mempool pool = plain_pool();
    assert_ok(weir_graph_destroy(capture_once(pool, origin)));
    for (int i = 0; i < STREAMS; i++) {
        const weir_stream stream = new_stream(0);
        char *blocks[BLOCKS];
        for (int k = 0; k < BLOCKS; k++) blocks[k] = alloc_from(pool, 12 * MIB, stream);
        for (int k = 0; k < BLOCKS; k++) assert_ok(weir_free(blocks[k]));
        assert_ok(weir_stream_synchronize(stream));
    }
    assert_in_range(reserved_by(pool), 12 * BLOCKS * MIB, 12 * (BLOCKS + 1) * MIB);
}

#define PRIVATE(test) cmocka_unit_test_setup_teardown(test, open_default, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PRIVATE(a_pool_is_made_of_chunks),
        PRIVATE(pools_with_rules_about_segments_use_no_chunks),
        PRIVATE(memory_that_is_free_in_pieces_serves_a_larger_request),
        PRIVATE(blocks_stay_aligned_where_pieces_are_mapped_together),
        PRIVATE(free_memory_of_the_default_pool_goes_to_the_private_pool),
        PRIVATE(a_pool_takes_its_own_free_chunks_before_larger_ones_of_the_default_pool),
        PRIVATE(memory_of_a_private_pool_goes_back_to_the_driver),
        PRIVATE(free_memory_of_a_pool_in_use_serves_no_other_pool),
        { "memory_of_private_pools_keeps_nothing_parked", memory_of_private_pools_keeps_nothing_parked, open_large,
          close_host, NULL },
        PRIVATE(memory_of_an_ended_stream_serves_the_next_one),
        PRIVATE(a_cap_can_be_used_up),
        PRIVATE(a_pool_with_a_cap_takes_no_memory_of_the_default_pool),
        { "a_pool_with_a_cap_leaves_blocks_parked_by_others_alone",
          a_pool_with_a_cap_leaves_blocks_parked_by_others_alone, open_large, close_host, NULL },
        { "a_small_share_of_all_memory_stays_parked", a_small_share_of_all_memory_stays_parked, open_large, close_host,
          NULL },
        PRIVATE(a_pool_goes_with_its_addresses),
        PRIVATE(no_more_places_are_kept_than_may_be_mapped),
        PRIVATE(a_pool_that_goes_leaves_no_event),
        PRIVATE(a_graph_writes_to_each_address_that_it_has),
        PRIVATE(memory_of_a_graph_stays_mapped),
        PRIVATE(a_capture_takes_no_memory_of_the_default_pool),
        PRIVATE(streams_of_a_graphs_pool_take_nothing_of_each_other),
        PRIVATE(a_graphs_memory_goes_with_it),
        PRIVATE(a_pool_of_captures_on_streams_that_come_and_go_stays_small),
        PRIVATE(what_a_graph_may_write_stays_as_a_capture_begins),
        PRIVATE(a_beginning_capture_waits_for_no_work_of_ended_streams),
        { "two_pools_used_on_streams_that_come_and_go_stay_small",
          two_pools_used_on_streams_that_come_and_go_stay_small, open_large, close_host, NULL },
        { "a_pool_without_graphs_is_shared_by_its_streams_again", a_pool_without_graphs_is_shared_by_its_streams_again,
          open_large, close_host, NULL },
        PRIVATE(chunks_noted_by_a_checkpoint_are_mapped_nowhere_else),
        PRIVATE(free_ends_noted_by_a_checkpoint_are_mapped_nowhere_else),
        PRIVATE(small_requests_find_room_among_large_blocks_of_a_pool_with_a_checkpoint),
        PRIVATE(memory_given_back_since_the_checkpoint_is_reported),
        PRIVATE(memory_without_live_blocks_at_the_checkpoint_is_not_missed),
        PRIVATE(memory_that_could_not_be_given_back_stays_where_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
