/*
 * Chunks of several streams, and the addresses that all of them have.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "detach_support.h"
#include "graph_support.h"
#include "pool/chunk/chunk.h"
#include "stitch_support.h"

static weir_status reserve_little(int device, uint64_t bytes, uintptr_t wish, void **base)
{
    return bytes > 64 * MIB ? WEIR_ERR_OUT_OF_MEMORY : wr_backend_host.vm_reserve(device, bytes, wish, base);
}

static void without_addresses_to_grow_into_a_request_gets_what_it_needs(void **state)
{
    (void)state;
    wr_cache *cache = front_of(alloc(512))->cache;
    const weir_backend *real = cache->backend;
    weir_backend few = *real;
    void *block = NULL;
    few.vm_reserve = reserve_little;
    cache->backend = &few;
    const weir_status status = weir_alloc_on(20 * MIB, new_stream(0), &block);
    cache->backend = real;
    assert_ok(status);
    assert_ok(weir_free(block));
    assert_ok(weir_validate(0));
}

static void free_memory_of_an_idle_stream_is_used(void **state)
{
    (void)state;
    weir_stream other = new_stream(0);
    assert_ok(weir_free(alloc_on(64 * MIB, other)));
    assert_int_equal(reserved_on(0), 64 * MIB); /* reading statistics frees parked blocks */
    const uint64_t waits = calls_of(WEIR_BACKEND_stream_wait);
    (void)alloc(64 * MIB);
    assert_int_equal(reserved_on(0), 64 * MIB);
    assert_int_equal(calls_of(WEIR_BACKEND_stream_wait), waits);
}

static void free_memory_of_a_busy_stream_is_left_while_there_is_room(void **state)
{
    (void)state;
    weir_stream other = new_stream(0);
    void *block = alloc_on(64 * MIB, other);
    make_busy(other);
    assert_ok(weir_free(block));
    (void)alloc(64 * MIB);
    assert_int_equal(reserved_on(0), 128 * MIB);
    assert_int_equal(queued_on(other), 1);
    let_run(other);
}

static void free_memory_of_an_idle_stream_is_used_though_others_are_busy(void **state)
{
    (void)state;
    enum { BUSY = 3 };
    weir_stream busy[BUSY], idle = new_stream(0);
    void *theirs[BUSY];
    for (int i = 0; i < BUSY; i++) {
        busy[i] = new_stream(0);
        theirs[i] = alloc_on(64 * MIB, busy[i]);
    }
    assert_ok(weir_free(alloc_on(64 * MIB, idle)));
    for (int i = 0; i < BUSY; i++) {
        make_busy(busy[i]);
        assert_ok(weir_free(theirs[i]));
    }
    assert_int_equal(reserved_on(0), (BUSY + 1) * 64 * MIB);
    (void)alloc(64 * MIB);
    assert_int_equal(reserved_on(0), (BUSY + 1) * 64 * MIB);
    for (int i = 0; i < BUSY; i++) {
        assert_int_equal(queued_on(busy[i]), 1);
        let_run(busy[i]);
    }
}

static void out_of_memory_a_stream_waits_for_the_busy_one_whose_memory_it_gets(void **state)
{
    (void)state;
    weir_stream other = new_stream(0), mine = new_stream(0);
    void *block = alloc_on(400 * MIB, other);
    make_busy(other);
    assert_ok(weir_free(block));
    (void)alloc_on(400 * MIB, mine);
    assert_int_equal(reserved_on(0), 400 * MIB);
    assert_true(queued_on(other) > 0); /* nobody waited on the host */
    assert_status(weir_stream_query(mine), WEIR_ERR_NOT_READY);
    let_run(other);
    assert_ok(weir_stream_synchronize(mine));
}

/* It may use the memory at each launch, and cannot be waited for. */
static void out_of_memory_a_stream_gets_no_memory_of_one_that_captures(void **state)
{
    (void)state;
    char *blocks[CHUNKS];
    void *block = NULL;
    const weir_stream stream = new_stream(0);
    (void)alloc(512 * MIB - CHUNKS * CHUNK);
    take_chunks(blocks, stream);
    for (int i = 0; i < CHUNKS; i++) assert_ok(weir_free(blocks[i]));
    const weir_graph graph = begin_on(stream);
    assert_status(weir_alloc(CHUNKS * CHUNK, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_alloc(CHUNKS * CHUNK, &block));
}

static void memory_of_an_ended_stream_goes_to_the_default_stream(void **state)
{
    (void)state;
    weir_stream other = new_stream(0);
    char *blocks[CHUNKS];
    take_chunks(blocks, other);
    free_every_other(blocks);
    assert_ok(weir_stream_destroy(other));
    const uint64_t created = calls_of(WEIR_BACKEND_vm_create);
    (void)alloc(4 * CHUNK);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_create), created);
    for (unsigned i = 1; i < CHUNKS; i += 2) assert_true(has_pattern(blocks[i], CHUNK, i));
}

enum { STREAMS = 200 };

/* The first stream's first region has addresses for all of the device. */
static void many_streams_get_addresses(void **state)
{
    (void)state;
    for (int i = 0; i < STREAMS; i++) (void)alloc_on(4 * MIB, new_stream(0));
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, STREAMS);
    assert_ok(weir_validate(0));
}

static int open_huge(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = UINT64_C(512) << 30 });
    return 0;
}

/* 32 times its memory are more addresses than the back end has. */
static void many_streams_of_a_huge_device_get_addresses(void **state)
{
    (void)state;
    enum { MANY = 400 };
    for (int i = 0; i < MANY; i++) {
        const weir_stream stream = new_stream(0);
        (void)alloc_on(1000, stream);
        (void)alloc_on(3 * MIB, stream);
    }
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 2 * MANY);
}

/* More than the addresses suffice for if each has a gibibyte to grow into. */
static void streams_get_addresses_as_long_as_there_is_memory(void **state)
{
    (void)state;
    enum { MANY = 1200 };
    for (int i = 0; i < MANY; i++) (void)alloc_on(1000, new_stream(0));
    const wr_chunks *chunks = &front_of(alloc(1000))->cache->chunks;
    assert_in_range(chunks->addresses, 1, WR_REGIONS_TIMES * (chunks->region_bytes + WR_REGION_MORE) + MANY * 4 * MIB);
    assert_ok(weir_validate(0));
}

static void streams_that_come_and_go_leave_few_addresses(void **state)
{
    (void)state;
    const wr_cache *cache = front_of(alloc(4096))->cache;
    for (int i = 0; i < STREAMS; i++) {
        const weir_stream stream = new_stream(0);
        assert_ok(weir_free(alloc_on(4 * MIB, stream)));
        assert_ok(weir_stream_destroy(stream));
        assert_in_range(cache->chunks.addresses, 1, WR_REGIONS_TIMES * cache->chunks.region_bytes);
    }
    assert_ok(weir_validate(0));
}

/* A chunk of the default stream and one of an ended stream are mapped side by side, with work queued on both. The count
 * of addresses says that other streams have so many that unused ones are searched for. */
typedef struct scarce {
    wr_chunks *chunks;
    const wr_bin *bin; /* of the default stream */
    uint64_t others;
} scarce;

static scarce make_addresses_scarce(void)
{
    const weir_stream ended = new_stream(0);
    char *own = alloc(CHUNK);
    assert_ok(weir_free(alloc_on(CHUNK, ended)));
    assert_ok(weir_stream_destroy(ended));
    char *theirs = alloc(CHUNK);
    const wr_segment *region = wr_address_find(own);
    wr_chunks *chunks = &front_of(own)->cache->chunks;
    const uint64_t others = 2 * WR_REGIONS_TIMES * (chunks->region_bytes + WR_REGION_MORE);
    chunks->addresses += others;
    make_busy(default_stream(0));
    assert_ok(weir_free(theirs));
    assert_ok(weir_free(own));
    (void)alloc(2 * CHUNK);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_map), 3); /* side by side */
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), 0);
    return (scarce){ chunks, region->bin, others };
}

/* Makes a request, with more addresses in use elsewhere than before. */
static void look_for_addresses(scarce *s)
{
    s->chunks->addresses += WR_REGION_MORE;
    s->others += WR_REGION_MORE;
    (void)alloc(2 * CHUNK);
}

static void end_scarcity(const scarce *s)
{
    s->chunks->addresses -= s->others;
    assert_ok(weir_validate(0));
}

static void addresses_that_queued_work_may_use_stay(void **state)
{
    (void)state;
    scarce s = make_addresses_scarce();
    let_run(default_stream(0));
    look_for_addresses(&s);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), 1);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_release), 1);
    end_scarcity(&s);
}

/* The addresses were left after the event was recorded, and before it was looked at. */
static void addresses_left_after_the_event_was_recorded_stay_mapped(void **state)
{
    (void)state;
    scarce s = make_addresses_scarce();
    assert_non_null(s.bin->fence);
    for (const wr_segment *r = s.bin->segments; r; r = r->next)
        if (!TAILQ_EMPTY(&r->region->stale)) TAILQ_FIRST(&r->region->stale)->stale_since = ++s.chunks->moments;
    let_run(default_stream(0));
    look_for_addresses(&s);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), 0);
    look_for_addresses(&s);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), 1);
    end_scarcity(&s);
}

/* The driver has refused to unmap something there. */
static void addresses_where_something_stays_mapped_are_kept_though_scarce(void **state)
{
    (void)state;
    scarce s = make_addresses_scarce();
    for (const wr_segment *r = s.bin->segments; r; r = r->next) r->region->closed = !TAILQ_EMPTY(&r->region->stale);
    let_run(default_stream(0));
    look_for_addresses(&s);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), 0);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_release), 0);
    for (const wr_segment *r = s.bin->segments; r; r = r->next) r->region->closed = false;
    end_scarcity(&s);
}

/* A launch writes there. */
static void addresses_that_graphs_use_are_kept_though_scarce(void **state)
{
    (void)state;
    scarce s = make_addresses_scarce();
    s.bin->pool->graphed = true;
    let_run(default_stream(0));
    look_for_addresses(&s);
    s.bin->pool->graphed = false;
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), 0);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_release), 0);
    end_scarcity(&s);
}

static void a_stream_gets_what_it_needs_when_addresses_run_out(void **state)
{
    (void)state;
    const weir_stream other = new_stream(0);
    (void)alloc(CHUNK);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_reserve, 1, WEIR_ERR_OUT_OF_MEMORY));
    char *block = alloc_on(CHUNK, other), *next = alloc_on(CHUNK, other);
    assert_int_equal(reserved_on(0), 3 * CHUNK);
    assert_true(info_of(block).segment_bytes <= 2 * CHUNK);
    assert_ok(weir_validate(0));
    assert_ok(weir_free(block));
    assert_ok(weir_free(next));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), CHUNK);
}

/* The free chunk that serves the request is larger than what a region gets that has nothing to grow into. */
static void a_region_without_addresses_to_grow_into_holds_the_chunk_that_it_gets(void **state)
{
    (void)state;
    char *own = alloc(CHUNK);
    wr_chunks *chunks = &front_of(own)->cache->chunks;
    const uint64_t others = 2 * WR_REGIONS_TIMES * (chunks->region_bytes + WR_REGION_MORE);
    assert_ok(weir_free(own));
    chunks->addresses += others;
    assert_ok(weir_memory_limit_set(0, CHUNK));
    const wr_segment *region = wr_address_find(alloc_on(100, new_stream(0)));
    assert_int_equal(region->region->end, CHUNK);
    assert_true(region->bytes > CHUNK);
    assert_int_equal(reserved_on(0), CHUNK);
    assert_ok(weir_validate(0));
    chunks->addresses -= others;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STITCH_TEST(without_addresses_to_grow_into_a_request_gets_what_it_needs),
        STITCH_TEST(free_memory_of_an_idle_stream_is_used),
        STITCH_TEST(free_memory_of_a_busy_stream_is_left_while_there_is_room),
        STITCH_TEST(free_memory_of_an_idle_stream_is_used_though_others_are_busy),
        STITCH_TEST(out_of_memory_a_stream_waits_for_the_busy_one_whose_memory_it_gets),
        STITCH_TEST(out_of_memory_a_stream_gets_no_memory_of_one_that_captures),
        STITCH_TEST(memory_of_an_ended_stream_goes_to_the_default_stream),
        STITCH_TEST(addresses_that_queued_work_may_use_stay),
        cmocka_unit_test_setup_teardown(many_streams_get_addresses, open_large, close_host),
        cmocka_unit_test_setup_teardown(many_streams_of_a_huge_device_get_addresses, open_huge, close_host),
        cmocka_unit_test_setup_teardown(streams_get_addresses_as_long_as_there_is_memory, open_large, close_host),
        cmocka_unit_test_setup_teardown(streams_that_come_and_go_leave_few_addresses, open_large, close_host),
        STITCH_TEST(addresses_left_after_the_event_was_recorded_stay_mapped),
        STITCH_TEST(addresses_where_something_stays_mapped_are_kept_though_scarce),
        STITCH_TEST(addresses_that_graphs_use_are_kept_though_scarce),
        STITCH_TEST(a_stream_gets_what_it_needs_when_addresses_run_out),
        STITCH_TEST(a_region_without_addresses_to_grow_into_holds_the_chunk_that_it_gets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
