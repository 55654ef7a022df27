/*
 * Handles of AMD's libraries while streams capture. Their creates and destroys call the runtime's stand-in, which
 * refuses during captures what the runtime refuses, and then they end the process, as the libraries do.
 */
#include "unit/library_support.h"

#include "capture_support.h"
#include "thread_support.h"
#include "unit/hip_support.h"

#include <sched.h>

/* Their create fills memory, which no mode of capture allows; but for the first it does so where they use the first.
 * From ROCBLAS on, they use it on some devices only. */
static const weir_handle_kind filling[] = { WEIR_HIPBLASLT, WEIR_MIOPEN, WEIR_ROCBLAS, WEIR_HIPBLAS, WEIR_HIPSOLVER };
enum { FILLING = sizeof filling / sizeof filling[0], ROCBLAS = 2 };

static standin commands[FILLING];

static int find_all(void **state)
{
    (void)state;
    for (int i = 0; i < FILLING; i++) (void)loaded(row_of(filling[i]), &commands[i]);
    return 0;
}

static void open_on(const char *architecture)
{
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "hip";
    use_standin(HIP_STANDIN_6);
    assert_int_equal(setenv("STANDIN_HIP_ARCH", architecture, 1), 0);
    for (int i = 0; i < FILLING; i++) commands[i].reset();
    assert_ok(weir_open(&settings));
    assert_ok(weir_device_set_current(0));
}

static int open_library(void **state)
{
    (void)state;
    open_on("gfx950");
    return 0;
}

static int open_on_mi300(void **state)
{
    (void)state;
    open_on("gfx942:sramecc+:xnack-");
    return 0;
}

static int close_library(void **state)
{
    (void)state;
    assert_ok(weir_close());
    assert_int_equal(unsetenv("STANDIN_HIP_ARCH") | unsetenv("ROCBLAS_USE_HIPBLASLT"), 0);
    for (int i = 0; i < FILLING; i++) assert_int_equal(commands[i].live(), 0);
    return 0;
}

static weir_stream stream_of(int device)
{
    weir_stream stream;
    assert_ok(weir_stream_create(device, WEIR_PRIORITY_DEFAULT, &stream));
    return stream;
}

static void no_handle_is_created_while_a_stream_of_any_device_captures(void **state)
{
    (void)state;
    void *handle = NULL;
    for (int i = 0; i < FILLING; i++)
        for (int device = 0; device < 2; device++) {
            const weir_stream captured = stream_of(device), other = stream_of(0);
            weir_graph graph = begin_on(captured);
            assert_int_equal(weir_handle_get_on(filling[i], other, &handle), WEIR_ERR_CAPTURE);
            assert_non_null(strstr(weir_error_text(), "get the handle before the capture begins"));
            assert_int_equal(weir_handle_get_on(filling[i], captured, &handle), WEIR_ERR_CAPTURE);
            end_unharmed(graph, captured);
        }
    for (int i = 0; i < FILLING; i++) {
        assert_int_equal(commands[i].count(row_of(filling[i])->create), 0);
        assert_ok(weir_handle_get_on(filling[i], stream_of(0), &handle));
        assert_int_equal(commands[i].live(), 1);
    }
}

static void rocblas_is_created_during_a_capture_where_it_does_not_use_hipblaslt(void **state)
{
    (void)state;
    for (int i = ROCBLAS; i < FILLING; i++) {
        void *handle = NULL;
        const weir_stream captured = stream_of(0), other = stream_of(0);
        weir_graph graph = begin_on(captured);
        assert_ok(weir_handle_get_on(filling[i], other, &handle));
        end_unharmed(graph, captured);
        assert_int_equal(commands[i].live(), 1);
    }
}

static void the_environment_says_whether_rocblas_uses_hipblaslt(void **state)
{
    (void)state;
    static const char *const said[] = { "1", "0" };
    for (int i = ROCBLAS; i < FILLING; i++)
        for (int off = 0; off < 2; off++) {
            void *handle = NULL;
            const weir_stream captured = stream_of(0), other = stream_of(0);
            assert_int_equal(setenv("ROCBLAS_USE_HIPBLASLT", said[off], 1), 0);
            weir_graph graph = begin_on(captured);
            const weir_status status = weir_handle_get_on(filling[i], other, &handle);
            assert_int_equal(status, off ? WEIR_OK : WEIR_ERR_CAPTURE);
            end_unharmed(graph, captured);
        }
}

static void an_idle_handle_is_given_out_during_a_capture(void **state)
{
    (void)state;
    for (int i = 0; i < FILLING; i++) {
        void *handle = NULL, *again = NULL;
        const weir_stream stream = stream_of(0);
        assert_ok(weir_handle_get_on(filling[i], stream, &handle));
        assert_ok(weir_handle_release(filling[i], 0));
        weir_graph graph = begin_on(stream);
        assert_ok(weir_handle_get_on(filling[i], stream, &again));
        assert_ptr_equal(again, handle);
        end_unharmed(graph, stream);
    }
}

static void *get_elsewhere(void *kind)
{
    void *handle = NULL;
    return (void *)(intptr_t)weir_handle_get_on(*(const weir_handle_kind *)kind, stream_of(1), &handle);
}

static void a_capture_waits_for_a_create(void **state)
{
    (void)state;
    for (int i = 0; i < FILLING; i++) {
        pthread_t creator;
        void *status = NULL;
        const weir_stream stream = stream_of(0);
        weir_handle_kind kind = filling[i];
        commands[i].create_delay_ms(50);
        assert_int_equal(pthread_create(&creator, NULL, get_elsewhere, &kind), 0);
        while (commands[i].count(row_of(kind)->create) == 0) sched_yield();
        weir_graph graph = begin_on(stream);
        assert_int_equal(commands[i].live(), 1);
        end_unharmed(graph, stream);
        assert_int_equal(pthread_join(creator, &status), 0);
        assert_null(status);
    }
}

static void release_it(void *gate)
{
    wait_for(gate);
}

/* The work may wait for what the program does with the handle. */
static void a_create_waits_for_no_stream(void **state)
{
    (void)state;
    sem_t gate;
    sem_init(&gate, 0, 0);
    for (int i = 0; i < FILLING; i++) {
        void *handle = NULL;
        const weir_stream busy = stream_of(0);
        assert_ok(weir_stream_callback(busy, release_it, &gate));
        assert_ok(weir_handle_get_on(filling[i], stream_of(0), &handle));
        sem_post(&gate);
        assert_ok(weir_stream_synchronize(busy));
    }
    sem_destroy(&gate);
}

/* hipFree waits for all streams of all devices, which are asked whether one captures. */
static void a_lost_device_keeps_no_other_from_its_handles(void **state)
{
    (void)state;
    void *handle = NULL, *block = NULL;
    uint64_t destroyed = 0;
    assert_ok(weir_handle_get_on(WEIR_ROCBLAS, stream_of(0), &handle));
    assert_ok(weir_handle_release(WEIR_ROCBLAS, 0));
    const weir_stream of_lost = stream_of(1);
    standin_fail("hipMalloc", 1, 214);
    assert_int_equal(weir_alloc_on((size_t)1 << 20, of_lost, &block), WEIR_ERR_DEVICE_LOST);
    assert_ok(weir_handles_trim(0, 0, &destroyed));
    assert_int_equal(destroyed, 1);
    assert_ok(weir_device_synchronize(0));
    assert_ok(weir_handle_get_on(WEIR_HIPBLASLT, stream_of(0), &handle));
}

static int close_with_one_lost(void **state)
{
    (void)state;
    assert_int_equal(weir_close(), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(unsetenv("STANDIN_HIP_ARCH"), 0);
    return 0;
}

#define library_test(test) cmocka_unit_test_setup_teardown(test, open_library, close_library)

int main(void)
{
    const struct CMUnitTest tests[] = {
        library_test(no_handle_is_created_while_a_stream_of_any_device_captures),
        cmocka_unit_test_setup_teardown(rocblas_is_created_during_a_capture_where_it_does_not_use_hipblaslt,
                                        open_on_mi300, close_library),
        library_test(the_environment_says_whether_rocblas_uses_hipblaslt),
        library_test(an_idle_handle_is_given_out_during_a_capture),
        library_test(a_capture_waits_for_a_create),
        library_test(a_create_waits_for_no_stream),
        cmocka_unit_test_setup_teardown(a_lost_device_keeps_no_other_from_its_handles, open_library,
                                        close_with_one_lost),
    };
    return cmocka_run_group_tests(tests, find_all, NULL);
}
