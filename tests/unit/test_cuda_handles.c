/*
 * Handles of libraries that take memory from weir, over a stand-in for the driver: whose memory it is, and which
 * stream's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "capture_support.h"
#include "standin/standin.h"
#include "unit/cuda_support.h"

#include <pthread.h>

enum { MEMORY = 1 << 20 };

static standin cudss;

static int find_cudss(void **state)
{
    (void)state;
    assert_int_equal(setenv("WEIR_LIB_CUDSS", WEIR_TEST_STANDINS "/libcudss.so", 1), 0);
    assert_int_equal(setenv("WEIR_LIB_CUBLAS", WEIR_TEST_STANDINS "/libcublas.so", 1), 0);
    return standin_open(&cudss, WEIR_TEST_STANDINS "/libcudss.so");
}

static int open_with_cudss(void **state)
{
    (void)state;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "cuda";
    use_standin(CUDA_STANDIN);
    cudss.reset();
    assert_ok(weir_open(&settings));
    assert_ok(weir_device_set_current(0));
    return 0;
}

static int close_with_cudss(void **state)
{
    (void)state;
    assert_ok(weir_close());
    return cudss.live();
}

static weir_stream stream_of_0(void)
{
    weir_stream stream;
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &stream));
    return stream;
}

static uint64_t trimmed(weir_handle_kind kind)
{
    uint64_t destroyed = 0;
    assert_ok(weir_handles_trim(kind, 0, &destroyed));
    return destroyed;
}

/* ---- a stream that ends ------------------------------------------------------------------------------------------ */

/* A handle with memory, given back, whose stream has ended. */
static void leave_handle_of_ended_stream(weir_stream stream)
{
    void *handle = NULL;
    assert_ok(weir_handle_get_on(WEIR_CUDSS, stream, &handle));
    assert_non_null(cudss.use_memory(handle, MEMORY));
    assert_ok(weir_stream_destroy(stream));
    assert_ok(weir_handle_release(WEIR_CUDSS, 0));
}

static void the_driver_is_not_asked_about_a_stream_that_ended_before_memory_on_it(void **state)
{
    (void)state;
    leave_handle_of_ended_stream(stream_of_0());
    const unsigned long asked = standin_calls("cuStreamGetCtx_v2");
    assert_int_equal(trimmed(WEIR_CUDSS), 1);
    assert_int_equal(standin_calls("cuStreamGetCtx_v2"), asked);
    assert_ok(weir_validate(0));
}

/* Streams of the program's own, until one has the address. */
static int make_streams_until(const void *native, CUstream *streams, int most)
{
    int count = 0;
    while (count < most && (count == 0 || streams[count - 1] != native))
        driver_ok(wr_cu.cuStreamCreateWithPriority(&streams[count++], WR_CU_STREAM_NON_BLOCKING, 0));
    return count;
}

static void a_stream_of_the_programs_with_the_address_of_an_ended_one_stays_unknown(void **state)
{
    (void)state;
    enum { MANY = 16, MOST = 64 };
    weir_stream filling[MANY]; /* of the C library's cache, so that the address comes again */
    CUstream own[MOST];
    void *native = NULL, *handle = NULL;
    for (int i = 0; i < MANY; i++) filling[i] = stream_of_0();
    weir_stream stream = stream_of_0();
    (void)stream_of_0();
    for (int i = 0; i < MANY; i++) assert_ok(weir_stream_destroy(filling[i]));
    assert_ok(weir_stream_native(stream, &native));
    leave_handle_of_ended_stream(stream);
    int count = make_streams_until(native, own, MOST);
    assert_int_equal(trimmed(WEIR_CUDSS), 1);
    while (count > 0) driver_ok(wr_cu.cuStreamDestroy(own[--count]));
    assert_ok(weir_handle_get(WEIR_CUBLAS, &handle));
    assert_ok(weir_handle_release(WEIR_CUBLAS, 0));
    assert_int_equal(trimmed(WEIR_CUBLAS), 1);
    assert_ok(weir_device_synchronize(0));
}

/* ---- owners ------------------------------------------------------------------------------------------------------ */

static int own_allocations;

static int own_alloc(void *context, void **out, size_t bytes, void *stream)
{
    (void)context, (void)out, (void)bytes, (void)stream;
    own_allocations++;
    return 1;
}

static int own_free(void *context, void *pointer, size_t bytes, void *stream)
{
    (void)context, (void)pointer, (void)bytes, (void)stream;
    return 1;
}

static void *set_own_handler(void *nothing)
{
    const standin_memory_handler handler = { NULL, own_alloc, own_free, "the program's" };
    void *handle = NULL;
    int (*set)(void *handle, const void *handler);
    (void)nothing;
    *(void **)&set = dlsym(cudss.library, "cudssSetDeviceMemHandler");
    assert_ok(weir_handle_get(WEIR_CUDSS, &handle));
    assert_int_equal(set(handle, &handler), 0);
    return handle;
}

static void the_next_owner_has_memory_of_weirs(void **state)
{
    (void)state;
    pthread_t first;
    void *handle = NULL, *again = NULL;
    assert_int_equal(pthread_create(&first, NULL, set_own_handler, NULL), 0);
    assert_int_equal(pthread_join(first, &handle), 0);
    assert_ok(weir_handle_get(WEIR_CUDSS, &again));
    assert_ptr_equal(again, handle);
    assert_non_null(cudss.use_memory(handle, MEMORY));
    assert_int_equal(own_allocations, 0);
    cudss.release_memory(handle);
}

/* ---- a create that fails ----------------------------------------------------------------------------------------- */

enum { OUT_OF_MEMORY = 2 };

static void what_a_failed_create_left_is_destroyed(void **state)
{
    (void)state;
    void *handle = NULL;
    cudss.refuse("cudssCreate", 1, OUT_OF_MEMORY);
    assert_ok(weir_handle_get(WEIR_CUDSS, &handle)); /* the second time */
    assert_int_equal(cudss.count("cudssDestroy"), 1);
    assert_int_equal(cudss.live(), 1);
}

/* A destroy would end the capture; what is left is little, of the host's memory. */
static void what_a_failed_create_left_stays_during_a_capture(void **state)
{
    (void)state;
    void *handle = NULL;
    const weir_stream stream = stream_of_0();
    weir_graph graph = begin_on(stream);
    cudss.refuse("cudssCreate", 1, OUT_OF_MEMORY);
    assert_ok(weir_handle_get_on(WEIR_CUDSS, stream, &handle));
    assert_int_equal(cudss.count("cudssDestroy"), 0);
    end_unharmed(graph, stream);
    assert_int_equal(cudss.live(), 2);
}

static int close_with_one_left(void **state)
{
    (void)state;
    assert_ok(weir_close());
    return cudss.live() != 1;
}

#define cudss_test(test) cmocka_unit_test_setup_teardown(test, open_with_cudss, close_with_cudss)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cudss_test(the_driver_is_not_asked_about_a_stream_that_ended_before_memory_on_it),
        cudss_test(a_stream_of_the_programs_with_the_address_of_an_ended_one_stays_unknown),
        cudss_test(the_next_owner_has_memory_of_weirs),
        cudss_test(what_a_failed_create_left_is_destroyed),
        cmocka_unit_test_setup_teardown(what_a_failed_create_left_stays_during_a_capture, open_with_cudss,
                                        close_with_one_left),
    };
    return cmocka_run_group_tests(tests, find_cudss, NULL);
}
