/*
 * weir and a program's own use of the CUDA runtime in one process: memory, streams and the current device of one are
 * those of the other.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "interop.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

static void *new_stream(void)
{
    void *stream = NULL;
    cuda_ok(cudaStreamCreate(&stream));
    return stream;
}

/* ---- streams that wait ------------------------------------------------------------------------------------------- */

static sem_t gate;

/* The wait is bounded, because a test that fails must end. */
static void wait_at_gate(void *unused)
{
    struct timespec until;
    (void)unused;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    while (sem_timedwait(&gate, &until) != 0 && errno == EINTR) continue;
}

static void hold(void *stream)
{
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    cuda_ok(cudaLaunchHostFunc(stream, wait_at_gate, NULL));
}

static void let_go(void)
{
    assert_int_equal(sem_post(&gate), 0);
}

/* ---- memory and streams ------------------------------------------------------------------------------------------ */

static void memory_of_both_is_used_on_a_stream_of_the_runtimes(void **state)
{
    (void)state;
    enum { BYTES = 3 << 20 };
    unsigned char *sent = malloc(BYTES), *received = calloc(1, BYTES);
    void *native = new_stream(), *theirs = NULL;
    for (size_t i = 0; i < BYTES; i++) sent[i] = (unsigned char)(i * 7 + i / 251);
    const weir_stream stream = adopt(0, native);
    cuda_ok(cudaMalloc(&theirs, BYTES));
    void *ours = alloc_on(BYTES, stream), *again = alloc_on(BYTES, stream);

    cuda_ok(cudaMemcpyAsync(theirs, sent, BYTES, COPY_FROM_HOST, native));
    assert_ok(weir_copy(ours, theirs, BYTES, stream));
    assert_ok(weir_copy(again, ours, BYTES, stream));
    cuda_ok(cudaMemcpyAsync(received, again, BYTES, COPY_TO_HOST, native));
    cuda_ok(cudaStreamSynchronize(native));
    assert_memory_equal(sent, received, BYTES);

    assert_int_equal(weir_free(theirs), WEIR_ERR_UNKNOWN_POINTER);
    assert_ok(weir_free(ours));
    assert_ok(weir_free(again));
    assert_ok(weir_validate(0));
    assert_ok(weir_stream_destroy(stream));
    cuda_ok(cudaFree(theirs));
    cuda_ok(cudaStreamDestroy(native));
    free(sent);
    free(received);
}

/* 110: CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
 * 15: CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE */
static void network_cards_reach_memory_of_weirs_as_the_runtimes(void **state)
{
    (void)state;
    int (*device_attribute)(int *value, int which, int device) = NULL;
    int (*pointer_attribute)(void *value, int which, uint64_t pointer) = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *theirs = NULL;
    assert_non_null(driver);
    *(void **)&device_attribute = dlsym(driver, "cuDeviceGetAttribute");
    *(void **)&pointer_attribute = dlsym(driver, "cuPointerGetAttribute");
    int mapped = 0;
    unsigned reach_ours = 0, reach_theirs = 0;
    void *ours = alloc_on(MIB, adopt(0, NULL));
    cuda_ok(cudaMalloc(&theirs, MIB));
    assert_int_equal(device_attribute(&mapped, 110, 0), 0);
    assert_int_equal(pointer_attribute(&reach_ours, 15, (uintptr_t)ours), 0);
    assert_int_equal(pointer_attribute(&reach_theirs, 15, (uintptr_t)theirs), 0);
    print_message("mapped memory for network cards: %d; they reach memory of weir's: %u, of the runtime's: %u\n",
                  mapped, reach_ours, reach_theirs);
    if (mapped) assert_int_equal(reach_ours, reach_theirs);
    cuda_ok(cudaFree(theirs));
    assert_ok(weir_free(ours));
}

static void special_streams_have_their_names(void **state)
{
    (void)state;
    weir_stream usual = { 0 }, stream = { 0 };
    assert_ok(weir_stream_default(0, &usual));
    assert_int_equal(adopt(0, NULL).id, usual.id);
    assert_int_equal(adopt(0, (void *)0x1).id, usual.id);
    assert_int_equal(weir_stream_from_native(0, (void *)0x2, &stream), WEIR_ERR_INVALID_ARGUMENT);
}

/* Memory of device 0. `native` may be a stream of another device, which then does not use the memory. */
static void check_that_recorded_memory_waits(void *native, int device)
{
    const weir_stream foreign = adopt(device, native);
    weir_stream own = { 0 };
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &own));
    void *block = alloc_on(64 * MIB, own);
    hold(native);
    if (device == 0) assert_ok(weir_fill(block, 1, 64 * MIB, foreign));
    assert_ok(weir_record_stream(block, foreign));
    assert_ok(weir_free(block));

    void *other = alloc_on(64 * MIB, own);
    assert_ptr_not_equal(other, block);
    let_go();
    cuda_ok(cudaStreamSynchronize(native));
    void *again = alloc_on(64 * MIB, own);
    assert_ptr_equal(again, block);
    assert_ok(weir_free(other));
    assert_ok(weir_free(again));
    assert_ok(weir_stream_destroy(foreign));
    assert_ok(weir_stream_destroy(own));
    cuda_ok(cudaStreamDestroy(native));
}

static void memory_recorded_on_a_foreign_stream_waits_for_it(void **state)
{
    (void)state;
    check_that_recorded_memory_waits(new_stream(), 0);
}

static void the_owner_may_destroy_a_stream_that_weir_has_let_go_of(void **state)
{
    (void)state;
    weir_stream own = { 0 };
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &own));
    for (int i = 0; i < 50; i++) {
        void *native = new_stream();
        const weir_stream foreign = adopt(0, native);
        void *kept = alloc_on(MIB, foreign), *recorded = alloc_on(MIB, own);
        assert_ok(weir_fill(kept, 1, MIB, foreign));
        assert_ok(weir_record_stream(recorded, foreign));
        assert_ok(weir_free(recorded));
        assert_ok(weir_stream_destroy(foreign));
        cuda_ok(cudaStreamDestroy(native));
        assert_int_equal(weir_stream_query(foreign), WEIR_ERR_INVALID_STREAM);
        assert_ok(weir_fill(kept, 2, MIB, own)); /* what was allocated on it stays valid */
        assert_ok(weir_free(kept));
    }
    assert_ok(weir_stream_synchronize(own));
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_validate(0));
    assert_ok(weir_stream_destroy(own));
    weir_memory_stats stats = { .size = sizeof stats };
    assert_ok(weir_stats_get(0, &stats));
    assert_int_equal(stats.reserved_bytes[WEIR_STAT_ALL].current, 0);
}

/* ---- the current device ------------------------------------------------------------------------------------------ */

static int runtimes_device(void)
{
    int device = -1;
    cuda_ok(cudaGetDevice(&device));
    return device;
}

static int weirs_device(void)
{
    int device = -1;
    assert_ok(weir_device_get_current(&device));
    return device;
}

static void weir_leaves_the_current_device_as_it_is(void **state)
{
    (void)state;
    const int other = device_count - 1; /* the same where there is one */
    void *pointer = NULL;
    weir_stream stream = { 0 };
    cuda_ok(cudaSetDevice(0));
    assert_ok(weir_stream_create(other, WEIR_PRIORITY_DEFAULT, &stream));
    pointer = alloc_on(MIB, stream);
    assert_ok(weir_fill(pointer, 1, MIB, stream));
    assert_ok(weir_stream_synchronize(stream));
    assert_ok(weir_free(pointer));
    assert_ok(weir_stream_destroy(stream));
    assert_int_equal(runtimes_device(), 0);
    assert_int_equal(weirs_device(), 0);
}

static void a_device_set_by_others_is_noticed(void **state)
{
    (void)state;
    if (device_count < 2) {
        print_message("skipped: there is one device, so nobody can set another\n");
        skip();
    }
    for (int i = 0; i < 6; i++) {
        const int device = (i + 1) % 2;
        void *pointer = NULL;
        cuda_ok(cudaSetDevice(device));
        assert_int_equal(weirs_device(), device);
        assert_ok(weir_alloc(MIB, &pointer));
        assert_int_equal(device_of(pointer), device);
        assert_ok(weir_free(pointer));
        assert_int_equal(runtimes_device(), device);
    }
    assert_ok(weir_device_set_current(1));
    assert_int_equal(runtimes_device(), 1);
    cuda_ok(cudaSetDevice(0));
}

static void memory_is_recorded_on_a_foreign_stream_of_another_device(void **state)
{
    (void)state;
    if (device_count < 2) {
        print_message("skipped: there is one device\n");
        skip();
    }
    cuda_ok(cudaSetDevice(1));
    void *native = new_stream();
    cuda_ok(cudaSetDevice(0));
    check_that_recorded_memory_waits(native, 1);
}

/* The wrong order. The driver crashes when it is asked about a destroyed stream, so weir must not ask just to support
 * what weir.h allows after that. */
static void memory_of_a_stream_that_its_owner_destroyed_first_can_be_freed(void **state)
{
    (void)state;
    unsigned char sent[256], received[256] = { 0 };
    weir_stream own = { 0 };
    void *native = new_stream();
    const weir_stream foreign = adopt(0, native);
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &own));
    void *small = alloc_on(4096, foreign), *large = alloc_on(64 * MIB, foreign);
    assert_ok(weir_fill(large, 1, 64 * MIB, foreign));
    cuda_ok(cudaStreamDestroy(native));

    assert_ok(weir_fill(large, 2, 64 * MIB, own));
    assert_int_equal(device_of(large), 0);
    assert_ok(weir_free(large));
    assert_ok(weir_free(small));
    assert_int_equal(weir_free(small), WEIR_ERR_DOUBLE_FREE);
    for (size_t i = 0; i < sizeof sent; i++) sent[i] = (unsigned char)(3 * i);
    void *block = alloc_on(MIB, own);
    assert_ok(weir_copy(block, sent, sizeof sent, own));
    assert_ok(weir_copy(received, block, sizeof received, own));
    assert_ok(weir_stream_synchronize(own));
    assert_memory_equal(sent, received, sizeof sent);
    assert_ok(weir_free(block));
    assert_ok(weir_stream_destroy(own));
    assert_ok(weir_validate(0)); /* and weir_close, in the teardown */
}

#define interop_test(test) cmocka_unit_test_setup_teardown(test, open_both, close_weir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        interop_test(memory_of_both_is_used_on_a_stream_of_the_runtimes),
        interop_test(network_cards_reach_memory_of_weirs_as_the_runtimes),
        interop_test(special_streams_have_their_names),
        interop_test(memory_recorded_on_a_foreign_stream_waits_for_it),
        interop_test(the_owner_may_destroy_a_stream_that_weir_has_let_go_of),
        interop_test(weir_leaves_the_current_device_as_it_is),
        interop_test(a_device_set_by_others_is_noticed),
        interop_test(memory_is_recorded_on_a_foreign_stream_of_another_device),
        interop_test(memory_of_a_stream_that_its_owner_destroyed_first_can_be_freed),
    };
    const int missing = not_both();
    if (missing != 0) return missing;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
