/*
 * Captures with allocations inside them on a real GPU: what replays compute, order proven by the driver's own graph,
 * captures on several threads at once, and a library handle got inside a capture.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu_support.h"
#include "vendor.h"
#include "weir/plan.h"

#include <stdatomic.h>

static weir_stream origin, side;

static int open_streams(void **state)
{
    open_weir(state);
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &origin));
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &side));
    return 0;
}

static void expect_nothing_left(void)
{
    weir_memory_stats stats = { .size = sizeof stats };
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_stats_get(0, &stats));
    assert_int_equal(stats.reserved_bytes[WEIR_STAT_ALL].current, 0);
    assert_int_equal(stats.pending_frees, 0);
}

static weir_graph begin(weir_capture_mode mode)
{
    weir_graph graph = { 0 };
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    options.mode = mode;
    assert_ok(weir_graph_begin(origin, &options, &graph));
    return graph;
}

static unsigned char last_byte(const void *block, size_t bytes)
{
    unsigned char byte = 0;
    assert_ok(weir_copy(&byte, (const char *)block + bytes - 1, 1, origin));
    assert_ok(weir_stream_synchronize(origin));
    return byte;
}

static void every_launch_reads_the_current_contents(void **state)
{
    (void)state;
    void *in = alloc_on(8 * MIB, origin), *out = alloc_on(8 * MIB, origin);
    for (weir_capture_mode mode = WEIR_CAPTURE_GLOBAL; mode <= WEIR_CAPTURE_RELAXED; mode++) {
        weir_graph g = begin(mode);
        void *scratch = alloc_on(30 * MIB, origin); /* takes a new segment during the capture */
        assert_ok(weir_copy(scratch, in, 8 * MIB, origin));
        assert_ok(weir_copy(out, scratch, 8 * MIB, origin));
        assert_ok(weir_free(scratch));
        assert_ok(weir_graph_end(g));
        for (int i = 1; i < 4; i++) {
            assert_ok(weir_fill(in, (unsigned char)(16 * (int)mode + i), 8 * MIB, origin));
            assert_ok(weir_graph_launch(g, origin));
            assert_int_equal(last_byte(out, 8 * MIB), 16 * (int)mode + i);
        }
        assert_ok(weir_graph_destroy(g));
    }
    assert_ok(weir_free(in));
    assert_ok(weir_free(out));
    expect_nothing_left();
}

static void a_join_in_the_graph_frees_what_another_stream_used(void **state)
{
    (void)state;
    void *result = alloc_on(MIB, origin);
    weir_graph g = begin(WEIR_CAPTURE_GLOBAL);
    void *block = alloc_on(16 * MIB, origin);
    assert_ok(weir_fill(block, 1, 16 * MIB, origin));
    assert_ok(weir_stream_wait(side, origin));
    assert_ok(weir_record_stream(block, side));
    assert_ok(weir_copy(result, block, MIB, side));
    assert_ok(weir_free(block));
    void *unproven = alloc_on(16 * MIB, origin);
    assert_ptr_not_equal(unproven, block);
    assert_ok(weir_stream_wait(origin, side));
    void *proven = alloc_on(16 * MIB, origin);
    assert_ptr_equal(proven, block);
    assert_ok(weir_fill(proven, 2, 16 * MIB, origin));
    assert_ok(weir_free(proven));
    assert_ok(weir_free(unproven));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_launch(g, origin));
    assert_int_equal(last_byte(result, MIB), 1);
    assert_int_equal(last_byte(proven, 16 * MIB), 2);
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_free(result));
    expect_nothing_left();
}

/* The segment is taken during the capture. The third block lies where the first was. */
static void a_capture_from_planned_places_computes(void **state)
{
    (void)state;
    static const weir_plan_entry entries[] = { { 0, 16 * MIB, 1, 0 },
                                               { 16 * MIB, 8 * MIB, WEIR_PLAN_FOREVER, 0 },
                                               { 8 * MIB, 8 * MIB, WEIR_PLAN_FOREVER, 0 } };
    static const weir_plan_arena arena = { .pool = 1, .streams = 1, .bytes = 24 * MIB, .entries = 3 };
    const weir_plan plan = { .arena_count = 1, .entry_count = 3, .arenas = &arena, .entries = entries };
    assert_ok(weir_plan_serve(0, &plan));
    weir_graph g = begin(WEIR_CAPTURE_GLOBAL);
    char *first = alloc_on(16 * MIB, origin), *second = alloc_on(8 * MIB, origin);
    assert_ok(weir_fill(first, 5, 16 * MIB, origin));
    assert_ok(weir_copy(second, first, 8 * MIB, origin));
    assert_ok(weir_free(first));
    char *third = alloc_on(8 * MIB, origin);
    assert_ok(weir_fill(third, 6, 8 * MIB, origin));
    assert_true(second == first + 16 * MIB && third == first + 8 * MIB);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_plan_serve(0, NULL));
    for (int i = 0; i < 3; i++) {
        assert_ok(weir_graph_launch(g, origin));
        assert_int_equal(last_byte(second, 8 * MIB), 5);
        assert_int_equal(last_byte(third, 8 * MIB), 6);
    }
    assert_ok(weir_free(second));
    assert_ok(weir_free(third));
    assert_ok(weir_graph_destroy(g));
    expect_nothing_left();
}

static void an_invalidated_and_an_abandoned_capture_leave_nothing(void **state)
{
    (void)state;
    weir_graph g = begin(WEIR_CAPTURE_GLOBAL);
    void *block = alloc_on(MIB, origin);
    assert_ok(weir_stream_wait(side, origin));
    assert_ok(weir_fill(block, 1, MIB, side)); /* never joined */
    assert_int_equal(weir_graph_end(g), WEIR_ERR_CAPTURE);
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_free(block));
    g = begin(WEIR_CAPTURE_THREAD_LOCAL);
    block = alloc_on(MIB, origin);
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_free(block));
    assert_ok(weir_stream_synchronize(origin));
    expect_nothing_left();
}

/* ---- several threads --------------------------------------------------------------------------------------------- */

enum { CAPTURERS = 4, ROUNDS = 25, STEPS = 8 };

static atomic_bool stop;

typedef struct capturer {
    pthread_t thread;
    int number;
    weir_stream origin, side;
    void *result;
    weir_status status;
    char text[256];
} capturer;

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        weir_status status_ = (call);                                                                                  \
        if (status_ != WEIR_OK) return status_;                                                                        \
    } while (0)

static weir_status capture_step(const capturer *c, unsigned char value)
{
    void *scratch = NULL;
    TRY(weir_alloc_on((1 + value % 4) * MIB, c->origin, &scratch));
    TRY(weir_fill(scratch, value, 512, c->origin));
    TRY(weir_stream_wait(c->side, c->origin));
    TRY(weir_record_stream(scratch, c->side));
    TRY(weir_copy(c->result, scratch, 512, c->side));
    TRY(weir_free(scratch));
    return weir_stream_wait(c->origin, c->side);
}

static weir_status capture_and_replay(const capturer *c, unsigned char value)
{
    weir_graph graph;
    unsigned char found = 0;
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    options.mode = c->number % 2 ? WEIR_CAPTURE_THREAD_LOCAL : WEIR_CAPTURE_GLOBAL;
    TRY(weir_graph_begin(c->origin, &options, &graph));
    for (int i = 0; i < STEPS; i++) TRY(capture_step(c, (unsigned char)(value + i)));
    TRY(weir_graph_end(graph));
    TRY(weir_graph_launch(graph, c->origin));
    TRY(weir_copy(&found, (char *)c->result + 511, 1, c->origin));
    TRY(weir_stream_synchronize(c->origin));
    TRY(weir_graph_destroy(graph));
    return found == (unsigned char)(value + STEPS - 1) ? WEIR_OK : WEIR_ERR_INTERNAL;
}

static void *capture_often(void *argument)
{
    capturer *c = argument;
    for (int i = 0; i < ROUNDS && c->status == WEIR_OK; i++)
        c->status = capture_and_replay(c, (unsigned char)(i * 3 + c->number));
    if (c->status != WEIR_OK) snprintf(c->text, sizeof c->text, "%s", weir_error_text());
    return NULL;
}

static weir_status disturb_once(weir_stream stream)
{
    void *block = NULL;
    TRY(weir_alloc(4096, &block));
    TRY(weir_record_stream(block, stream));
    TRY(weir_free(block));
    return weir_empty_cache(0);
}

/* Frees blocks that were recorded on streams which begin and end captures meanwhile. */
static void *disturb(void *argument)
{
    capturer *all = argument;
    static weir_status status;
    status = WEIR_OK;
    for (unsigned i = 0; !atomic_load(&stop) && status == WEIR_OK; i++)
        status = disturb_once(all[i % CAPTURERS].origin);
    return &status;
}

static void captures_of_several_threads_at_once(void **state)
{
    (void)state;
    static capturer all[CAPTURERS];
    pthread_t disturber;
    void *disturbed = NULL;
    for (int i = 0; i < CAPTURERS; i++) {
        all[i] = (capturer){ .number = i, .result = alloc_on(512, origin) };
        assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &all[i].origin));
        assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &all[i].side));
    }
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&disturber, NULL, disturb, all), 0);
    for (int i = 0; i < CAPTURERS; i++)
        assert_int_equal(pthread_create(&all[i].thread, NULL, capture_often, &all[i]), 0);
    for (int i = 0; i < CAPTURERS; i++) pthread_join(all[i].thread, NULL);
    atomic_store(&stop, true);
    pthread_join(disturber, &disturbed);
    for (int i = 0; i < CAPTURERS; i++)
        if (all[i].status != WEIR_OK) fail_msg("thread %d: %s: %s", i, weir_status_name(all[i].status), all[i].text);
    assert_int_equal(*(weir_status *)disturbed, WEIR_OK);
    for (int i = 0; i < CAPTURERS; i++) assert_ok(weir_free(all[i].result));
    expect_nothing_left();
}

/* ---- handles ----------------------------------------------------------------------------------------------------- */

enum { SIDE = 64 };
#define ELEMENTS ((size_t)SIDE * SIDE)

static void multiply(cublasHandle_t handle, const float *a, const float *b, float *c)
{
    const float one = 1, zero = 0;
    assert_int_equal(vendor.cublasSgemm_v2(handle, 0, 0, SIDE, SIDE, SIDE, &one, a, SIDE, b, SIDE, &zero, c, SIDE), 0);
}

static void a_handle_got_inside_a_capture_computes_at_each_launch(void **state)
{
    (void)state;
    static float ones[SIDE * SIDE], twos[SIDE * SIDE], found[SIDE * SIDE];
    void *handle = NULL;
    weir_device_info info = { .size = sizeof info };
    assert_ok(weir_device_info_get(0, &info));
    if (strstr(info.name, "no GPU")) skip(); /* NVIDIA's libraries refuse the stand-in */
    const char *missing = vendor_find();
    if (missing != NULL) fail_msg("%s is not in the library that weir loaded", missing);
    if (!vendor_has[WEIR_CUBLAS]) skip();
    for (size_t i = 0; i < ELEMENTS; i++) ones[i] = 1, twos[i] = 2;
    float *a = alloc_on(sizeof ones, origin), *b = alloc_on(sizeof ones, origin), *c = alloc_on(sizeof ones, origin);
    assert_ok(weir_copy(b, ones, sizeof ones, origin));
    assert_ok(weir_copy(a, ones, sizeof ones, origin));
    assert_ok(
        weir_handle_get_on(WEIR_CUBLAS, origin, &handle)); /* the first product loads code, which cannot be captured */
    multiply(handle, a, b, c);
    weir_graph g = begin(WEIR_CAPTURE_RELAXED);
    assert_ok(weir_handle_get_on(WEIR_CUBLAS, origin, &handle));
    multiply(handle, a, b, c);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_handle_release(WEIR_CUBLAS, 0));
    uint64_t destroyed = 0;
    assert_ok(weir_handles_trim(WEIR_CUBLAS, 0, &destroyed));
    assert_int_equal(destroyed, 0); /* the graph needs it */
    assert_ok(weir_copy(a, twos, sizeof twos, origin));
    assert_ok(weir_graph_launch(g, origin));
    assert_ok(weir_copy(found, c, sizeof found, origin));
    assert_ok(weir_stream_synchronize(origin));
    for (size_t i = 0; i < ELEMENTS; i++) assert_true(found[i] == 2 * SIDE);
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_handles_trim(WEIR_CUBLAS, 0, &destroyed));
    assert_int_equal(destroyed, 1);
    assert_ok(weir_free(a));
    assert_ok(weir_free(b));
    assert_ok(weir_free(c));
}

/* ---- the default stream beside a capture of a stream that synchronises with it ----------------------------------- */

static void begin_blocking(CUstream *native, weir_graph *graph)
{
    weir_stream blocking;
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    assert_ok(weir_device_set_current(0)); /* and its context */
    driver_ok(wr_cu.cuStreamCreateWithPriority(native, 0, 0));
    assert_ok(weir_stream_from_native(0, *native, &blocking));
    assert_ok(weir_graph_begin(blocking, &options, graph));
}

/* The driver's own rule that the next test relies on. */
static void an_event_on_the_default_stream_ends_the_capture(void **state)
{
    (void)state;
    CUstream native;
    CUevent event;
    weir_graph g;
    CUstreamCaptureMode relaxed = WR_CU_STREAM_CAPTURE_MODE_RELAXED;
    begin_blocking(&native, &g);
    driver_ok(wr_cu.cuThreadExchangeStreamCaptureMode(&relaxed));
    driver_ok(wr_cu.cuEventCreate(&event, WR_CU_EVENT_DISABLE_TIMING));
    const CUresult recorded = wr_cu.cuEventRecord(event, NULL);
    driver_ok(wr_cu.cuThreadExchangeStreamCaptureMode(&relaxed));
    print_message("recording an event on the default stream: %d\n", recorded);
    assert_int_equal(recorded, WR_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_int_equal(weir_graph_end(g), WEIR_ERR_CAPTURE);
    driver_ok(wr_cu.cuEventDestroy(event));
    driver_ok(wr_cu.cuStreamDestroy(native));
}

static void a_block_used_on_the_default_stream_is_freed_after_the_capture(void **state)
{
    (void)state;
    CUstream native;
    weir_graph g;
    weir_stream standard;
    weir_memory_stats stats = { .size = sizeof stats };
    assert_ok(weir_stream_default(0, &standard));
    void *used = alloc_on(MIB, side), *other = NULL;
    assert_ok(weir_fill(used, 1, MIB, standard));
    assert_ok(weir_record_stream(used, standard));
    begin_blocking(&native, &g);
    assert_ok(weir_free(used));
    assert_ok(weir_alloc_on(MIB, standard, &other));
    assert_ok(weir_free(other));
    assert_ok(weir_alloc_on(MIB, side, &other));
    assert_ptr_not_equal(other, used);
    assert_ok(weir_free(other));
    assert_ok(weir_stats_get(0, &stats));
    assert_int_equal(stats.pending_frees, 1);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_stats_get(0, &stats));
    assert_int_equal(stats.pending_frees, 0);
    driver_ok(wr_cu.cuStreamDestroy(native));
}

static void a_handle_stays_on_the_default_stream_beside_the_capture(void **state)
{
    (void)state;
    CUstream native;
    weir_graph g;
    weir_stream standard;
    weir_device_info info = { .size = sizeof info };
    void *handle = NULL;
    assert_ok(weir_device_info_get(0, &info));
    if (strstr(info.name, "no GPU") || vendor_find() != NULL || !vendor_has[WEIR_CUBLAS]) skip();
    assert_ok(weir_stream_default(0, &standard));
    assert_ok(weir_handle_get_on(WEIR_CUBLAS, standard, &handle));
    begin_blocking(&native, &g);
    assert_int_equal(weir_handle_get_on(WEIR_CUBLAS, side, &handle), WEIR_ERR_CAPTURE);
    assert_ok(weir_handle_get_on(WEIR_CUBLAS, standard, &handle));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_handle_get_on(WEIR_CUBLAS, side, &handle));
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_handle_release(WEIR_CUBLAS, 0));
    driver_ok(wr_cu.cuStreamDestroy(native));
}

#define graph_test(test) cmocka_unit_test_setup_teardown(test, open_streams, close_valid)

int main(void)
{
    const struct CMUnitTest tests[] = {
        graph_test(every_launch_reads_the_current_contents),
        graph_test(a_join_in_the_graph_frees_what_another_stream_used),
        graph_test(a_capture_from_planned_places_computes),
        graph_test(an_invalidated_and_an_abandoned_capture_leave_nothing),
        graph_test(captures_of_several_threads_at_once),
        graph_test(a_handle_got_inside_a_capture_computes_at_each_launch),
        graph_test(an_event_on_the_default_stream_ends_the_capture),
        graph_test(a_block_used_on_the_default_stream_is_freed_after_the_capture),
        graph_test(a_handle_stays_on_the_default_stream_beside_the_capture),
    };
    const int missing = no_gpu();
    if (missing != 0) return missing;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
