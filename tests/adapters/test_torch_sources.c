/*
 * torch.cuda.MemPool(allocator): pools of weir's whose segments come from another allocator of PyTorch's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "cuda_driver.h"
#include "host_support.h"
#include "pluggable.h"

#include <stdio.h>
#include <string.h>

#define assert_good(call) assert_string_equal(call, "")

enum { POOL = 7 };

/* What the allocator of the test has given, and not got back. */
static struct {
    void *base;
    size_t bytes;
    int device;
} given[8];
static size_t asked;
static bool throws, throws_bad_alloc, refuses;
static void *allocator;
static weir_stream stream;

static void *give_memory(size_t size, int device, void *native)
{
    assert_ptr_equal(native, native_of(stream));
    if (throws) return (void *)(uintptr_t)give_memory;
    if (throws_bad_alloc) return PLUGGABLE_BAD_ALLOC;
    void *made = refuses ? NULL : aligned_alloc(2 * MIB, size);
    if (made) given[asked % 8].base = made;
    given[asked % 8].bytes = size;
    given[asked++ % 8].device = device;
    return made;
}

static void take_back(void *pointer)
{
    size_t i = 0;
    while (i < 8 && given[i].base != pointer) i++;
    assert_true(i < 8);
    given[i].base = NULL;
    free(pointer);
}

static int open_scene(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB });
    stream = new_stream(0);
    asked = 0;
    throws = throws_bad_alloc = refuses = false;
    allocator = pluggable_make_allocator(false, give_memory, take_back);
    return 0;
}

static int close_scene(void **state)
{
    const int status = close_host(state);
    pluggable_become_current(PLUGGABLE_NONE);
    for (int i = 0; i < 8; i++) assert_null(given[i].base);
    pluggable_end_allocator(allocator);
    return status;
}

static bool all_streams(void *argument, void *native)
{
    (void)argument, (void)native;
    return true;
}

/* As in use_mem_pool(). */
static const char *take_in_pool(size_t bytes, void **out)
{
    int copies = 0;
    assert_good(pluggable_begin_allocate_to_pool(0, 0, POOL, all_streams, NULL, &copies));
    const char *text = pluggable_alloc(bytes, 0, native_of(stream), out);
    static char kept[1024];
    (void)snprintf(kept, sizeof kept, "%s", text);
    assert_good(pluggable_end_allocate_to_pool(0, 0, POOL));
    pluggable_release_pool(0, 0, POOL);
    return kept;
}

static bool lies_in(const void *pointer, size_t i)
{
    const uintptr_t at = (uintptr_t)pointer, base = (uintptr_t)given[i].base;
    return given[i].base && at >= base && at < base + given[i].bytes;
}

static void a_pools_segments_come_from_its_allocator_and_go_back(void **state)
{
    (void)state;
    void *small = NULL, *beside = NULL, *large = NULL, *outside = NULL;
    assert_int_equal(weir_torch_mempool_hold(0, 0, POOL, false, false, allocator), WEIR_OK);
    assert_good(take_in_pool(1000, &small));
    assert_good(take_in_pool(1000, &beside));
    assert_int_equal(asked, 1);
    assert_true(lies_in(small, 0) && lies_in(beside, 0));
    assert_int_equal(given[0].device, 0);
    assert_good(take_in_pool(30 * MIB, &large));
    assert_int_equal(asked, 2);
    assert_true(lies_in(large, 1) && given[1].bytes >= 30 * MIB);
    assert_good(pluggable_alloc(1000, 0, native_of(stream), &outside));
    assert_int_equal(asked, 2);
    pluggable_free(large, 0, 0, NULL);
    pluggable_free(small, 0, 0, NULL);
    pluggable_free(outside, 0, 0, NULL);
    assert_int_equal(weir_torch_mempool_release(0, 0, POOL), WEIR_OK);
    assert_ok(weir_empty_cache(0));
    assert_null(given[1].base);
    assert_true(lies_in(beside, 0)); /* a tensor outlives the pool */
    pluggable_free(beside, 0, 0, NULL);
    assert_ok(weir_empty_cache(0));
    assert_null(given[0].base);
}

static void an_allocator_that_gives_nothing_is_out_of_memory(void **state)
{
    (void)state;
    void *pointer = NULL;
    assert_int_equal(weir_torch_mempool_hold(0, 0, POOL, false, false, allocator), WEIR_OK);
    refuses = true;
    assert_memory_equal(take_in_pool(1000, &pointer), "OutOfMemoryError: CUDA out of memory. ", 38);
    assert_int_equal(weir_torch_mempool_release(0, 0, POOL), WEIR_OK);
}

static void an_allocator_that_throws_bad_alloc_is_out_of_memory(void **state)
{
    (void)state;
    void *pointer = NULL, *idle = NULL;
    assert_int_equal(weir_torch_mempool_hold(0, 0, POOL, false, false, allocator), WEIR_OK);
    assert_good(take_in_pool(30 * MIB, &idle));
    pluggable_free(idle, 0, 0, NULL);
    throws_bad_alloc = true;
    assert_memory_equal(take_in_pool(40 * MIB, &pointer), "OutOfMemoryError: CUDA out of memory. ", 38);
    assert_null(given[0].base); /* what was idle was given back first */
    assert_int_equal(weir_torch_mempool_release(0, 0, POOL), WEIR_OK);
}

static void an_allocator_that_throws_is_an_error_that_names_the_pool(void **state)
{
    (void)state;
    void *pointer = NULL;
    assert_int_equal(weir_torch_mempool_hold(0, 0, POOL, false, false, allocator), WEIR_OK);
    throws = true;
    const char *text = take_in_pool(1000, &pointer);
    assert_memory_equal(text, "exception: weir: ", 17);
    assert_non_null(strstr(text, "the segment source of memory pool"));
    throws = false;
    assert_good(take_in_pool(1000, &pointer));
    pluggable_free(pointer, 0, 0, NULL);
    assert_int_equal(weir_torch_mempool_release(0, 0, POOL), WEIR_OK);
}

static void only_allocators_of_the_class_itself_are_taken(void **state)
{
    (void)state;
    void *derived = pluggable_make_allocator(true, give_memory, take_back);
    const void *nothing = NULL;
    assert_true(weir_torch_is_source(allocator));
    assert_false(weir_torch_is_source(derived));
    assert_false(weir_torch_is_source(NULL));
    assert_false(weir_torch_is_source(&nothing));
    pluggable_end_allocator(derived);
}

static void a_pool_that_does_not_split_has_a_segment_for_each_block(void **state)
{
    (void)state;
    void *small = NULL, *beside = NULL;
    assert_int_equal(weir_torch_mempool_hold(0, 0, POOL, false, true, allocator), WEIR_OK);
    assert_good(take_in_pool(1000, &small));
    assert_good(take_in_pool(1000, &beside));
    assert_int_equal(asked, 2);
    pluggable_free(small, 0, 0, NULL);
    pluggable_free(beside, 0, 0, NULL);
    assert_int_equal(weir_torch_mempool_release(0, 0, POOL), WEIR_OK);
}

enum { SEGMENT_ALLOC = 3, SEGMENT_FREE = 4 }; /* of PyTorch's */

static struct {
    bool refuses;
    int times, action, device;
    uintptr_t address;
    size_t bytes;
    unsigned long long pool;
} tracked;

static bool track(void *argument, int action, int device, uintptr_t address, size_t bytes, unsigned long long pool)
{
    (void)argument;
    tracked.times++;
    tracked.action = action;
    tracked.device = device;
    tracked.address = address;
    tracked.bytes = bytes;
    tracked.pool = pool;
    return !tracked.refuses;
}

/* Told before the other one. */
static struct {
    int allocated, freed;
} told;

static bool hear(void *argument, int action, int device, uintptr_t address, size_t bytes, unsigned long long pool)
{
    (void)argument, (void)device, (void)address, (void)bytes, (void)pool;
    told.allocated += action == SEGMENT_ALLOC;
    told.freed += action == SEGMENT_FREE;
    return true;
}

/* Once for all tests: nothing takes a tracker back. */
static void attach(void)
{
    static bool attached;
    pluggable_become_current(PLUGGABLE_PLAIN);
    assert_true(pluggable_answer(11));
    if (!attached) assert_good(pluggable_attach_tracker(hear, NULL));
    if (!attached) assert_good(pluggable_attach_tracker(track, NULL));
    attached = true;
    memset(&tracked, 0, sizeof tracked);
    memset(&told, 0, sizeof told);
}

static void trackers_are_told_of_the_segments_of_such_a_pool(void **state)
{
    (void)state;
    void *pointer = NULL, *outside = NULL;
    attach();
    assert_int_equal(weir_torch_mempool_hold(0, 0, POOL, false, false, allocator), WEIR_OK);
    assert_good(take_in_pool(1000, &pointer));
    assert_int_equal(tracked.times, 1);
    assert_int_equal(tracked.action, SEGMENT_ALLOC);
    assert_int_equal(tracked.device, 0);
    assert_int_equal(tracked.address, (uintptr_t)given[0].base);
    assert_int_equal(tracked.bytes, given[0].bytes);
    assert_int_equal(tracked.pool, POOL);
    assert_good(pluggable_alloc(30 * MIB, 0, native_of(stream), &outside));
    pluggable_free(outside, 0, 0, NULL);
    assert_int_equal(tracked.times, 1);
    const uintptr_t segment = tracked.address;
    pluggable_free(pointer, 0, 0, NULL);
    assert_int_equal(weir_torch_mempool_release(0, 0, POOL), WEIR_OK);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(tracked.times, 2);
    assert_int_equal(tracked.action, SEGMENT_FREE);
    assert_int_equal(tracked.address, segment);
    assert_int_equal(tracked.pool, POOL);
}

static void a_tracker_that_throws_refuses_the_segment(void **state)
{
    (void)state;
    void *pointer = NULL;
    attach();
    assert_int_equal(weir_torch_mempool_hold(0, 0, POOL, false, false, allocator), WEIR_OK);
    tracked.refuses = true;
    assert_memory_equal(take_in_pool(1000, &pointer), "exception: weir: ", 17);
    assert_null(given[0].base);
    assert_int_not_equal(told.allocated, 0);
    assert_int_equal(told.freed, told.allocated); /* for the other one the segment is gone again */
    tracked.refuses = false;
    assert_good(take_in_pool(1000, &pointer));
    pluggable_free(pointer, 0, 0, NULL);
    assert_int_equal(weir_torch_mempool_release(0, 0, POOL), WEIR_OK);
}

/* A pool that lends has no checkpoints. */
static void a_pool_lends_when_it_is_told_to(void **state)
{
    (void)state;
    for (int lends = 0; lends < 2; lends++) {
        weir_mempool ours = { 0, 0 };
        weir_checkpoint *checkpoint = NULL;
        assert_int_equal(weir_torch_mempool_hold(0, 0, POOL, lends, false, NULL), WEIR_OK);
        assert_int_equal(weir_torch_mempool_references(0, 0, POOL, &ours), 1);
        assert_int_equal(weir_mempool_checkpoint(ours, &checkpoint), lends ? WEIR_ERR_INVALID_ARGUMENT : WEIR_OK);
        weir_checkpoint_destroy(checkpoint);
        assert_int_equal(weir_torch_mempool_release(0, 0, POOL), WEIR_OK);
    }
}

/* ---- on the driver ----------------------------------------------------------------------------------------------- */

static void *give_memory_of_the_driver(size_t size, int device, void *native)
{
    CUdeviceptr made = 0;
    (void)device, (void)native;
    asked++;
    return wr_cu.cuMemAlloc(&made, size) == 0 ? (void *)(uintptr_t)made : NULL;
}

static void take_back_memory_of_the_driver(void *pointer)
{
    driver_ok(wr_cu.cuMemFree((CUdeviceptr)(uintptr_t)pointer));
}

static bool is_captured(void *argument, void *native)
{
    weir_capture_state state = WEIR_CAPTURE_NONE;
    uint64_t id = 0;
    (void)argument;
    return wr_backend_cuda.capture_status(0, native, &state, &id) == WEIR_OK && state == WEIR_CAPTURE_ACTIVE;
}

static void an_allocator_may_call_the_driver_while_a_graph_is_captured(void **state)
{
    (void)state;
    const weir_backend *b = &wr_backend_cuda;
    void *own = pluggable_make_allocator(false, give_memory_of_the_driver, take_back_memory_of_the_driver);
    void *pointer = NULL, *graph = NULL;
    int copies = 0;
    assert_int_equal(weir_torch_mempool_hold(0, 0, POOL, false, false, own), WEIR_OK);
    assert_good(pluggable_begin_allocate_to_pool(0, 0, POOL, is_captured, NULL, &copies));
    assert_ok(b->capture_begin(0, native_of(stream), WEIR_CAPTURE_GLOBAL));
    driver_ok(wr_cu.cuCtxSetCurrent(NULL)); /* as in a thread that has not used the device */
    assert_good(pluggable_alloc(1000, 0, native_of(stream), &pointer));
    assert_int_equal(asked, 1);
    assert_ok(b->capture_end(0, native_of(stream), &graph));
    assert_good(pluggable_end_allocate_to_pool(0, 0, POOL));
    pluggable_free(pointer, 0, 0, NULL);
    pluggable_release_pool(0, 0, POOL);
    assert_ok(b->graph_destroy(0, graph));
    assert_int_equal(weir_torch_mempool_release(0, 0, POOL), WEIR_OK);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
    pluggable_end_allocator(own);
}

#define test(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_pools_segments_come_from_its_allocator_and_go_back),
        test(an_allocator_that_gives_nothing_is_out_of_memory),
        test(an_allocator_that_throws_bad_alloc_is_out_of_memory),
        test(an_allocator_that_throws_is_an_error_that_names_the_pool),
        test(only_allocators_of_the_class_itself_are_taken),
        test(a_pool_that_does_not_split_has_a_segment_for_each_block),
        test(trackers_are_told_of_the_segments_of_such_a_pool),
        test(a_tracker_that_throws_refuses_the_segment),
        test(a_pool_lends_when_it_is_told_to),
    };
    const struct CMUnitTest tests_of_cuda[] = {
        test(an_allocator_may_call_the_driver_while_a_graph_is_captured),
    };
    if (strcmp(test_backend(), "cuda") == 0) return cmocka_run_group_tests(tests_of_cuda, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
