/*
 * Captures survive weir. While a capture with work in it is underway, in every mode, on the same thread and on another,
 * the first handle of a kind is made, bound, given back and trimmed, and memory is freed, polled for and exhausted. The
 * capture must end well and its graph replay correctly.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/library.h"
#include "gpu_support.h"
#include "vendor_work.h"

static const char *const mode_names[] = { "GLOBAL", "THREAD_LOCAL", "RELAXED" };
enum { MODES = 3, LARGE = 96 };

/* One thread's part in it. */
typedef struct disturbance {
    worker worker;
    const weir_handle_kind *kinds;
    size_t count;
    weir_stream captured, other;
    size_t found;                                    /* kinds whose library is here */
    uint64_t destroyed[WEIR_HANDLE_KIND_FIRST_USER]; /* while the capture was underway */
} disturbance;

static const wr_library_row *row_of(weir_handle_kind kind)
{
    for (size_t i = 0; i < wr_cuda_kind_count; i++)
        if (wr_cuda_kinds[i].kind == kind) return &wr_cuda_kinds[i];
    fail_msg("there is no row of kind %d", kind);
    return NULL;
}

static weir_handle_stats stats_of(weir_handle_kind kind)
{
    weir_handle_stats stats = { .size = sizeof stats };
    assert_ok(weir_handle_stats_get(kind, 0, &stats));
    return stats;
}

/* ---- what is done meanwhile -------------------------------------------------------------------------------------- */

static bool get_and_bind(worker *w, disturbance *d, weir_handle_kind kind)
{
    void *first = NULL, *again = NULL;
    weir_status status = weir_handle_get_on(kind, d->other, &first);
    if (status == WEIR_ERR_NO_LIBRARY) return true;
    ENSURE(status == WEIR_OK, "kind %d: %s", kind, weir_error_text());
    d->found++;
    ENSURE_WEIR(weir_handle_get_on(kind, d->captured, &again));
    ENSURE(again == first, "kind %d: the captured stream got another handle", kind);
    ENSURE_WEIR(weir_handle_get_on(kind, d->other, &again));
    ENSURE(again == first, "kind %d: the other stream got another handle", kind);
    return true;
}

/* The block is freed while two streams use it, one of them captured, which must not be queried. */
static bool free_and_poll(worker *w, const disturbance *d)
{
    void *block;
    weir_status status;
    ENSURE_WEIR(weir_alloc_on(3 * MIB, d->captured, &block));
    ENSURE_WEIR(weir_record_stream(block, d->other));
    ENSURE_WEIR(weir_free(block));
    ENSURE_WEIR(weir_alloc_on(3 * MIB, d->other, &block));
    ENSURE_WEIR(weir_fill(block, 1, 3 * MIB, d->other));
    ENSURE_WEIR(weir_record_stream(block, d->captured));
    ENSURE_WEIR(weir_free(block));
    while ((status = weir_stream_query(d->other)) == WEIR_ERR_NOT_READY) continue;
    ENSURE(status == WEIR_OK, "query: %s", weir_error_text());
    ENSURE(weir_stream_query(d->captured) == WEIR_ERR_CAPTURE, "the captured stream is not refused");
    return true;
}

static bool release_and_trim(worker *w, disturbance *d)
{
    for (size_t i = 0; i < d->count; i++) {
        ENSURE_WEIR(weir_handle_release(d->kinds[i], 0));
        ENSURE_WEIR(weir_handles_trim(d->kinds[i], 0, &d->destroyed[d->kinds[i]]));
    }
    return true;
}

static bool run_out_of_memory(worker *w, const disturbance *d)
{
    weir_device_info info = { .size = sizeof info };
    void *block;
    ENSURE_WEIR(weir_memory_limit_set(0, 1));
    ENSURE(weir_alloc_on(LARGE * MIB, d->other, &block) == WEIR_ERR_OUT_OF_MEMORY, "the limit is no limit");
    ENSURE_WEIR(weir_memory_limit_set(0, 0));
    ENSURE_WEIR(weir_device_info_get(0, &info));
    ENSURE(weir_alloc_on(info.total_memory, d->other, &block) == WEIR_ERR_OUT_OF_MEMORY, "all of the device was got");
    ENSURE_WEIR(weir_alloc_on(LARGE * MIB, d->other, &block));
    ENSURE_WEIR(weir_free(block));
    return true;
}

static bool disturb(disturbance *d)
{
    worker *w = &d->worker;
    ENSURE_WEIR(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &d->other));
    for (size_t i = 0; i < d->count; i++) STEP(get_and_bind(w, d, d->kinds[i]));
    STEP(free_and_poll(w, d) && release_and_trim(w, d) && run_out_of_memory(w, d));
    ENSURE_WEIR(weir_empty_cache(0));
    ENSURE_WEIR(weir_stream_destroy(d->other));
    return true;
}

static void *disturb_main(void *argument)
{
    disturbance *d = argument;
    if (!disturb(d) && d->worker.failure[0] == '\0') failed(&d->worker, "failed without a text");
    return NULL;
}

/* ---- what must be true afterwards -------------------------------------------------------------------------------- */

/* Handles whose destroy would have ended the capture were kept; the others were destroyed. */
static void assert_kept_or_destroyed(const disturbance *d, weir_handle_kind kind)
{
    const bool waits = row_of(kind)->flags & WEIR_HANDLE_DESTROY_SYNCS;
    const weir_handle_stats stats = stats_of(kind);
    if (stats.created == 0) return;
    assert_int_equal(stats.created, 1);
    assert_int_equal(d->destroyed[kind], !waits);
    assert_int_equal(stats.doomed, waits);
}

/* The handles still work. The stand-ins have nothing to compute with. */
static void assert_computes(const disturbance *d)
{
    static worker w;
    if (on_standin()) return;
    w = (worker){ .seed = 1 };
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &w.stream));
    assert_ok(weir_stream_native(w.stream, &w.native));
    weir_stream_guard guard;
    assert_ok(weir_stream_enter(w.stream, &guard));
    for (size_t i = 0; i < WORKS; i++)
        for (size_t k = 0; k < d->count; k++)
            if (works[i].kind == d->kinds[k] && vendor_has[works[i].kind] && !run_work(&w, i))
                fail_msg("%s", w.failure);
    assert_ok(weir_stream_leave(&guard));
    assert_ok(weir_stream_destroy(w.stream));
}

static void assert_nothing_pends(void)
{
    weir_memory_stats stats = { .size = sizeof stats };
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_stats_get(0, &stats));
    assert_int_equal(stats.pending_frees, 0);
    assert_ok(weir_validate(0));
}

/* Opens weir. Returns whether a library of any of the kinds is present. */
static bool one_capture(const weir_handle_kind *kinds, size_t count, CUstreamCaptureMode mode, bool other_thread)
{
    static disturbance d;
    recording r;
    void *native;
    d = (disturbance){ .kinds = kinds, .count = count };
    assert_ok(weir_device_set_current(0));
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &d.captured));
    assert_ok(weir_stream_native(d.captured, &native));
    recording_begin(&r, native, mode);
    run_on(other_thread, disturb_main, &d);
    const CUresult end = recording_end(&r);
    if (d.worker.failure[0] != '\0')
        fail_msg("%s, other thread %d: %s", mode_names[mode], other_thread, d.worker.failure);
    if (end != WR_CUDA_SUCCESS)
        fail_msg("%s, other thread %d: the capture ended with %d", mode_names[mode], other_thread, end);
    for (size_t i = 0; i < count; i++) assert_kept_or_destroyed(&d, kinds[i]);
    assert_computes(&d);
    assert_ok(weir_handles_trim(0, 0, NULL));
    for (size_t i = 0; i < count; i++) assert_int_equal(stats_of(kinds[i]).doomed, 0);
    assert_nothing_pends();
    assert_ok(weir_stream_destroy(d.captured));
    wr_cu.cuCtxSetCurrent(NULL);
    return d.found > 0;
}

/* Each run makes a new context, so the handle is the first in it. */
static void every_way(const char *name, const weir_handle_kind *kinds, size_t count)
{
    int captures = 0;
    bool found = true;
    for (int mode = 0; mode < MODES && found; mode++)
        for (int other_thread = 0; other_thread < 2 && found; other_thread++) {
            open_weir(NULL);
            found = one_capture(kinds, count, mode, other_thread);
            close_weir(NULL);
            captures += found;
        }
    if (found)
        print_message("%s: %d of %d captures survived and replayed right\n", name, captures, MODES * 2);
    else
        print_message("skipped: %s: its library is not here\n", name);
    if (!found) skip();
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

static weir_handle_kind all_kinds[WORKS];

/* This test runs first, so that it meets libraries that the process has never used. */
static void capture_survives_the_first_handles_of_all_kinds(void **state)
{
    (void)state;
    every_way("all kinds", all_kinds, WORKS);
}

static void capture_survives(void **state)
{
    const weir_handle_kind *kind = *state;
    every_way(row_of(*kind)->name, kind, 1);
}

static void find_vendors(void)
{
    for (size_t i = 0; i < WORKS; i++) all_kinds[i] = works[i].kind;
    if (on_standin()) return;
    const char *missing = vendor_find();
    if (missing == NULL) return;
    print_error("%s is not in the library that weir loaded\n", missing);
    exit(1);
}

int main(int argc, char **argv)
{
    static char names[WORKS][48];
    struct CMUnitTest tests[WORKS + 1] = { cmocka_unit_test(capture_survives_the_first_handles_of_all_kinds) };
    const int missing = no_gpu();
    if (missing != 0) return missing;
    find_vendors();
    for (size_t i = 0; i < WORKS; i++) {
        snprintf(names[i], sizeof names[i], "capture_survives_%s", row_of(all_kinds[i])->name);
        tests[i + 1] = (struct CMUnitTest){ names[i], capture_survives, NULL, NULL, &all_kinds[i] };
    }
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
