/*
 * weir's hooks for PyTorch's CUDAPluggableAllocator, called as it calls them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cuda_driver.h"
#include "graph_support.h"
#include "pluggable.h"
#include "weir/trace.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static weir_stream first, second;

static int open_scene(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB, .host_devices = 2 });
    first = new_stream(0);
    second = new_stream(0);
    return 0;
}

/* When a test ends, no memory is left with anyone. */
static int close_scene(void **state)
{
    pluggable_become_current(PLUGGABLE_NONE);
    pluggable_set_current(0, NULL);
    assert_ok(weir_device_set_current(0));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(pluggable_errors_alive(), 0);
    return close_host(state);
}

#define assert_good(call) assert_string_equal(call, "")

static void *take(size_t bytes, weir_stream stream)
{
    void *pointer = NULL;
    assert_good(pluggable_alloc(bytes, device_of(stream), native_of(stream), &pointer));
    assert_non_null(pointer);
    return pointer;
}

static void give(void *pointer, weir_stream stream)
{
    pluggable_free(pointer, 0, device_of(stream), native_of(stream));
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void memory_belongs_to_the_stream_it_was_asked_for(void **state)
{
    (void)state;
    void *on_first = take(MIB, first), *on_default = take(MIB, default_stream(0));
    assert_int_equal(info_of(on_first).stream.id, first.id);
    assert_int_equal(info_of(on_default).stream.id, default_stream(0).id);
    give(on_first, first);
    void *on_second = take(MIB, second), *again = take(MIB, first);
    assert_ptr_not_equal(on_second, on_first);
    assert_ptr_equal(again, on_first);
    give(again, first);
    give(on_second, second);
    give(on_default, default_stream(0));
}

static void zero_bytes_give_null(void **state)
{
    (void)state;
    void *pointer = &first;
    assert_good(pluggable_alloc(0, 0, NULL, &pointer));
    assert_null(pointer);
    pluggable_free(NULL, 0, 0, NULL);
}

/* Programs look for the first sentences, and for the numbers in them. `free_mib`: of the 256 that device 0 has. */
static void assert_ran_out(const char *text, int free_mib)
{
    char expected[256];
    const int length = snprintf(expected, sizeof expected,
                                "OutOfMemoryError: CUDA out of memory. Tried to allocate 300.00 MiB. GPU 0 has a total "
                                "capacity of 256.00 MiB of which %d.00 MiB is free. weir: out of memory on device 0",
                                free_mib);
    assert_memory_equal(text, expected, (size_t)length);
}

static void running_out_is_torchs_error_with_weirs_text(void **state)
{
    (void)state;
    void *pointer = NULL;
    void *kept = take(100 * MIB, first);
    assert_ran_out(pluggable_alloc(300 * MIB, 0, native_of(first), &pointer), 156);
    assert_null(pointer);
    give(kept, first);
    give(take(200 * MIB, first), first);
}

static void more_than_an_exbibyte_is_running_out_in_torchs_words(void **state)
{
    (void)state;
    static const char *const words =
        "OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory. weir: ";
    static const ssize_t sizes[] = { (ssize_t)1 << 60, INT64_MAX, -1 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *pointer = NULL;
        assert_memory_equal(pluggable_alloc(sizes[i], 0, native_of(first), &pointer), words, strlen(words));
        assert_null(pointer);
    }
    void *pointer = NULL;
    assert_non_null(
        strstr(pluggable_alloc(((ssize_t)1 << 60) - 512, 0, native_of(first), &pointer), "1073741824.00 GiB. GPU"));
}

static void a_pool_of_torchs_own_gets_null_instead(void **state)
{
    (void)state;
    assert_null(pluggable_alloc_segment(300 * MIB, 0, native_of(first)));
    void *pointer = pluggable_alloc_segment(20 * MIB, 0, native_of(first));
    assert_non_null(pointer);
    pluggable_free_segment(pointer, 0, 0, NULL);
}

static void other_failures_are_exceptions_with_weirs_text(void **state)
{
    (void)state;
    void *pointer = NULL;
    assert_memory_equal(pluggable_alloc(1, 5, NULL, &pointer), "exception: weir: device 5", 25);
    assert_memory_equal(pluggable_alloc(1, 0, (void *)2, &pointer), "exception: weir: ", 17);
}

static void a_stream_is_not_recorded_for_memory_of_others(void **state)
{
    (void)state;
    char theirs[64];
    assert_good(pluggable_record_stream(theirs, native_of(second)));
}

static void a_fraction_sets_the_limit_and_1_removes_it(void **state)
{
    (void)state;
    void *pointer = NULL;
    uint64_t limit = 0;
    assert_good(pluggable_memory_fraction(0.25, 0));
    assert_ok(weir_memory_limit_get(0, &limit));
    assert_int_equal(limit, 64 * MIB);
    assert_memory_equal(pluggable_alloc(100 * MIB, 0, native_of(first), &pointer), "OutOfMemoryError", 16);
    assert_good(pluggable_memory_fraction(0, 0));
    assert_memory_equal(pluggable_alloc(512, 0, native_of(first), &pointer), "OutOfMemoryError", 16);
    assert_non_null(strstr(pluggable_alloc(1024, 0, native_of(first), &pointer), "Tried to allocate 1024 bytes. "));
    assert_non_null(strstr(pluggable_alloc(MIB, 0, native_of(first), &pointer), "Tried to allocate 1024.00 KiB. "));
    assert_good(pluggable_memory_fraction(1, 0));
    assert_ok(weir_memory_limit_get(0, &limit));
    assert_int_equal(limit, 0);
}

static void a_fraction_does_not_lift_the_limit_that_was_there(void **state)
{
    (void)state;
    uint64_t limit = 0;
    assert_ok(weir_memory_limit_set(1, 32 * MIB));
    static const double fractions[] = { 1, 0.9, 0.25 };
    for (size_t i = 0; i < sizeof fractions / sizeof fractions[0]; i++) {
        assert_good(pluggable_memory_fraction(fractions[i], 1));
        assert_ok(weir_memory_limit_get(1, &limit));
        assert_int_equal(limit, 32 * MIB);
    }
    assert_good(pluggable_memory_fraction(0.0625, 1));
    assert_ok(weir_memory_limit_get(1, &limit));
    assert_int_equal(limit, 16 * MIB);
}

static uint64_t limit_after_fraction(double fraction)
{
    uint64_t limit = 0;
    assert_good(pluggable_memory_fraction(fraction, 0));
    assert_ok(weir_memory_limit_get(0, &limit));
    return limit;
}

static void a_limit_that_was_lifted_or_changed_meanwhile_holds_fractions_no_more(void **state)
{
    (void)state;
    assert_ok(weir_memory_limit_set(0, 32 * MIB));
    assert_int_equal(limit_after_fraction(0.5), 32 * MIB);
    assert_ok(weir_memory_limit_set(0, 0));
    assert_int_equal(limit_after_fraction(0.5), 128 * MIB);
    assert_ok(weir_memory_limit_set(0, 64 * MIB));
    assert_int_equal(limit_after_fraction(0.5), 64 * MIB);
    assert_int_equal(limit_after_fraction(0.125), 32 * MIB);
    assert_int_equal(limit_after_fraction(1), 64 * MIB);
}

static void a_fraction_that_is_none_is_refused(void **state)
{
    (void)state;
    static const double wrong[] = { -0.1, 1.1, NAN, INFINITY };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_non_null(strstr(pluggable_memory_fraction(wrong[i], 0), "invalid fraction"));
}

/* ---- what there is no hook for ----------------------------------------------------------------------------------- */

static bool on_driver(void)
{
    return strcmp(test_backend(), "cuda") == 0;
}

/* PyTorch's version of CUDA: since 12 the driver knows the current device. */
static bool answer(void)
{
    return pluggable_answer(on_driver() ? 13 : 11);
}

static void install(void)
{
    pluggable_become_current(PLUGGABLE_PLAIN);
    assert_true(answer());
}

/* For whom weir is to ask; the other one knows another device. */
static void make_current(int device, weir_stream stream)
{
    pluggable_set_current(on_driver() ? !device : device, native_of(stream));
    assert_ok(weir_device_set_current(on_driver() ? device : !device));
}

static void the_largest_block_is_what_is_left_and_what_is_free(void **state)
{
    (void)state;
    size_t largest = 0;
    pluggable_become_current(PLUGGABLE_PLAIN);
    assert_non_null(strstr(pluggable_cache_info(0, &largest), "does not yet support cacheInfo"));
    assert_true(answer());
    void *p = take(100 * MIB, first);
    assert_good(pluggable_cache_info(0, &largest));
    assert_int_equal(largest, 156 * MIB);
    give(p, first);
    assert_good(pluggable_cache_info(0, &largest));
    assert_int_equal(largest, 256 * MIB);
}

/* The runtime's copy of mapped memory fails between devices that cannot reach each other, unless it is told of both. */
static void copies_between_devices_out_of_reach_are_between_peers(void **state)
{
    (void)state;
    pluggable_become_current(PLUGGABLE_PLAIN);
    assert_int_equal(pluggable_copy(1, 0, false), 103); /* as PyTorch does */
    assert_true(answer());
    assert_int_equal(pluggable_copy(1, 0, false), 210);
    assert_int_equal(pluggable_copy(1, 0, true), 103);
    assert_int_equal(pluggable_copy(1, 1, false), 103);
}

static void the_largest_block_is_within_the_limit(void **state)
{
    (void)state;
    size_t largest = 0;
    install();
    assert_good(pluggable_memory_fraction(0.5, 0));
    void *p = take(100 * MIB, first);
    assert_good(pluggable_cache_info(0, &largest));
    assert_int_equal(largest, 28 * MIB);
    give(p, first);
    assert_ok(weir_memory_limit_set(0, 1024 * MIB)); /* more than there is */
    largest = 0;
    assert_good(pluggable_cache_info(0, &largest));
    assert_int_equal(largest, 256 * MIB);
}

/* PyTorch's meaning: the caller knows of one that large. */
static void a_larger_block_that_the_caller_knows_is_kept(void **state)
{
    (void)state;
    size_t largest = 1024 * MIB;
    install();
    assert_good(pluggable_cache_info(0, &largest));
    assert_int_equal(largest, 1024 * MIB);
}

static void the_fraction_is_told(void **state)
{
    (void)state;
    double fraction = 0;
    install();
    assert_good(pluggable_get_memory_fraction(0, &fraction));
    assert_true(fraction == 1);
    assert_good(pluggable_memory_fraction(0.25, 0));
    assert_good(pluggable_get_memory_fraction(0, &fraction));
    assert_true(fraction == 0.25);
    assert_ok(weir_memory_limit_set(0, 1024 * MIB)); /* more than there is */
    assert_good(pluggable_get_memory_fraction(0, &fraction));
    assert_true(fraction == 1);
    assert_non_null(strstr(pluggable_get_memory_fraction(7, &fraction), "exception: weir: "));
}

static void what_the_allocator_object_is_asked_for_comes_from_weir(void **state)
{
    (void)state;
    void *pointer = NULL;
    install();
    make_current(0, second);
    assert_good(pluggable_allocate(MIB, 0, &pointer));
    assert_int_equal(info_of(pointer).stream.id, second.id);
    pluggable_drop(pointer);
    assert_good(pluggable_raw_alloc(MIB, &pointer));
    assert_int_equal(info_of(pointer).stream.id, second.id);
    assert_good(pluggable_delete(pointer));
    assert_good(pluggable_raw_alloc_with_stream(MIB, native_of(first), &pointer));
    assert_int_equal(info_of(pointer).stream.id, first.id);
    assert_good(pluggable_delete(pointer));
    assert_good(pluggable_allocate(0, 0, &pointer));
    assert_null(pointer);
}

static void the_current_device_is_torchs(void **state)
{
    (void)state;
    void *pointer = NULL;
    const weir_stream far = new_stream(1);
    install();
    make_current(1, far);
    assert_good(pluggable_allocate(MIB, 1, &pointer));
    assert_int_equal(info_of(pointer).device, 1);
    assert_int_equal(info_of(pointer).stream.id, far.id);
    pluggable_drop(pointer);
}

static void set_device(int device)
{
    assert_ok(weir_device_set_current(device));
}

static void a_device_that_torch_has_put_off_to_set_is_current(void **state)
{
    (void)state;
    void *pointer = NULL;
    const weir_stream far = new_stream(1);
    install();
    make_current(0, far);
    pluggable_put_off(set_device, 1);
    assert_good(pluggable_allocate(MIB, 1, &pointer));
    assert_int_equal(info_of(pointer).device, 1);
    pluggable_drop(pointer);
}

static void running_out_is_torchs_error_without_the_hook_too(void **state)
{
    (void)state;
    void *pointer = NULL;
    install();
    make_current(0, first);
    assert_ran_out(pluggable_allocate(300 * MIB, 0, &pointer), 256);
    assert_ran_out(pluggable_raw_alloc(300 * MIB, &pointer), 256);
    assert_null(pointer);
}

static void freeing_what_is_not_weirs_is_an_exception_where_one_may_be_thrown(void **state)
{
    (void)state;
    char theirs[64];
    install();
    assert_memory_equal(pluggable_delete(theirs), "exception: weir: ", 17);
    pluggable_drop(theirs); /* as from a destructor */
}

static void the_profiler_is_told_of_each_block(void **state)
{
    (void)state;
    install();
    void *kept = take(MIB, first);
    (void)pluggable_listen(true);
    void *p = take(3 * MIB, first);
    const pluggable_told made = pluggable_listen(true);
    give(p, first);
    const pluggable_told gone = pluggable_listen(false);
    give(kept, first);
    assert_int_equal(made.times, 1);
    assert_ptr_equal(made.memory, p);
    assert_int_equal(made.bytes, 3 * MIB);
    assert_int_equal(made.allocated, 4 * MIB);
    assert_true(made.reserved >= 4 * MIB);
    assert_int_equal(made.device, 0);
    assert_int_equal(gone.times, 1);
    assert_ptr_equal(gone.memory, p);
    assert_int_equal(gone.bytes, -3 * MIB);
    assert_int_equal(gone.allocated, MIB);
    assert_int_equal(pluggable_listen(false).times, 0);
}

/* PyTorch's own allocator tells it what it makes of them. */
static void the_profiler_is_not_told_of_segments_for_torchs_own_pools(void **state)
{
    (void)state;
    (void)pluggable_listen(true);
    pluggable_free_segment(pluggable_alloc_segment(20 * MIB, 0, native_of(first)), 0, 0, NULL);
    assert_int_equal(pluggable_listen(false).times, 0);
}

static void the_profiler_is_told_of_what_the_object_is_asked_for(void **state)
{
    (void)state;
    void *pointers[3] = { NULL };
    install();
    make_current(1, default_stream(1));
    (void)pluggable_listen(true);
    assert_good(pluggable_allocate(MIB, 1, &pointers[0]));
    assert_good(pluggable_raw_alloc(MIB, &pointers[1]));
    assert_good(pluggable_raw_alloc_with_stream(MIB, native_of(default_stream(1)), &pointers[2]));
    assert_int_equal(pluggable_listen(true).times, 3);
    pluggable_drop(pointers[0]);
    assert_good(pluggable_delete(pointers[1]));
    assert_good(pluggable_delete(pointers[2]));
    const pluggable_told gone = pluggable_listen(false);
    assert_int_equal(gone.times, 3);
    assert_int_equal(gone.allocated, 0);
    assert_int_equal(gone.device, 1);
}

static void the_profiler_is_told_that_memory_has_run_out(void **state)
{
    (void)state;
    void *pointer = NULL;
    void *kept = take(MIB, first);
    (void)pluggable_listen(true);
    assert_memory_equal(pluggable_alloc(300 * MIB, 0, native_of(first), &pointer), "OutOfMemoryError", 16);
    const pluggable_told told = pluggable_listen(false);
    give(kept, first);
    assert_int_equal(told.times, 1);
    assert_null(told.memory);
    assert_int_equal(told.bytes, 300 * MIB);
    assert_int_equal(told.allocated, MIB);
}

static struct observed {
    int times, device;
    size_t bytes, total, free;
} observed;

/* Fails in weir itself, and allocates. */
static void observe(void *argument, int device, size_t bytes, size_t total, size_t free)
{
    struct observed *o = argument;
    *o = (struct observed){ o->times + 1, device, bytes, total, free };
    assert_int_not_equal(weir_free(&observed), WEIR_OK);
    give(take(MIB, first), first);
}

static void observers_are_told_that_memory_has_run_out(void **state)
{
    (void)state;
    void *pointer = NULL;
    install();
    assert_good(pluggable_attach_observer(observe, &observed));
    void *kept = take(MIB, first);
    assert_int_equal(observed.times, 0);
    assert_ran_out(pluggable_alloc(300 * MIB, 0, native_of(first), &pointer), 254);
    assert_int_equal(observed.times, 1);
    assert_int_equal(observed.device, 0);
    assert_int_equal(observed.bytes, 300 * MIB);
    assert_int_equal(observed.total, 256 * MIB);
    assert_true(observed.free < 256 * MIB);
    assert_good(pluggable_memory_fraction(0.25, 0));
    assert_memory_equal(pluggable_alloc(65 * MIB, 0, native_of(first), &pointer), "OutOfMemoryError", 16);
    assert_int_equal(observed.times, 2);
    assert_int_equal(observed.total, 64 * MIB);
    give(kept, first);
}

static void history_is_recorded_as_pytorch_asks(void **state)
{
    (void)state;
    size_t count = 0;
    uint64_t dropped = 0;
    weir_event events[8];
    install();
    give(take(MIB, first), first);
    assert_good(pluggable_record_history(true, SIZE_MAX, false, false));
    void *kept = take(MIB, first);
    assert_int_equal(weir_history_read(0, events, 8, &count, &dropped), WEIR_OK);
    assert_int_equal(count, 1);
    assert_int_equal(events[0].address, (uintptr_t)kept);
    assert_true(dropped > 0);
    assert_good(pluggable_record_history(true, 5000, true, true));
    assert_int_equal(weir_history_read(0, events, 8, &count, &dropped), WEIR_OK);
    assert_int_equal(count + dropped, 0);
    give(kept, first);
    assert_int_equal(weir_history_read(0, events, 8, &count, &dropped), WEIR_OK);
    assert_int_equal(count, 2);
    assert_good(pluggable_record_history(false, 1, false, false));
    assert_int_equal(weir_history_read(0, events, 8, &count, &dropped), WEIR_ERR_NOT_SUPPORTED);
}

/* Without memory; and in whatever form this version of PyTorch has it. */
static void a_snapshot_is_that_of_torchs_own_allocator(void **state)
{
    (void)state;
    install();
    assert_string_equal(pluggable_snapshot(7, true), "PyTorch's own, of 7 with events");
    assert_string_equal(pluggable_snapshot(0, false), "PyTorch's own, of 0");
}

static void functions_for_any_accelerator_ask_the_object(void **state)
{
    (void)state;
    pluggable_become_current(PLUGGABLE_PLAIN);
    assert_false(pluggable_is_registered());
    assert_true(answer());
    assert_true(pluggable_is_registered());
}

static void other_functions_stay_the_allocators(void **state)
{
    (void)state;
    install();
    assert_true(answer());
    assert_true(pluggable_is_enabled());
}

static void another_allocator_is_left_alone(void **state)
{
    (void)state;
    size_t largest = 0;
    pluggable_become_current(PLUGGABLE_DERIVED);
    assert_false(answer());
    assert_non_null(strstr(pluggable_cache_info(0, &largest), "does not yet support"));
    pluggable_become_current(PLUGGABLE_NONE);
    assert_false(answer());
}

static void the_segment_around_a_block_is_reported(void **state)
{
    (void)state;
    unsigned char *one = take(512, first), *two = take(512, first);
    void *base = NULL;
    size_t size = 0;
    assert_good(pluggable_base_alloc(two, &base, &size));
    assert_ptr_equal(base, info_of(one).segment);
    assert_int_equal(size, 2 * MIB);
    assert_true((unsigned char *)base <= one && two < (unsigned char *)base + size);
    give(one, first);
    give(two, first);
}

static void memory_waits_for_a_recorded_stream(void **state)
{
    (void)state;
    void *pointer = take(MIB, first);
    hold(second);
    slow_work work = { false, 1 };
    start_slow_work(second, &work);
    assert_good(pluggable_record_stream(pointer, native_of(second)));
    give(pointer, first);
    void *other = take(MIB, first);
    assert_ptr_not_equal(other, pointer);
    give(other, first);
    let_run(second);
}

/* The host back end accepts any stream for any device. CUDA says which device a stream belongs to. */
static void a_stream_of_another_device_can_be_recorded(void **state)
{
    (void)state;
    weir_stream far = new_stream(1);
    void *pointer = take(MIB, first);
    assert_good(pluggable_record_stream(pointer, native_of(far)));
    give(pointer, first);
    assert_ok(weir_device_synchronize(1));
}

/* A function of the stand-in driver's. */
static void *standin_function(const char *name)
{
    void *library = dlopen(getenv("WEIR_LIB_CUDA"), RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    void *found = dlsym(library, name);
    assert_non_null(found);
    return found;
}

static unsigned long contexts_asked_for(void)
{
    unsigned long (*calls)(const char *name) = NULL;
    *(void **)&calls = standin_function("standin_cuda_calls");
    return calls("cuDevicePrimaryCtxRetain");
}

static void refuse_the_next_context(void)
{
    void (*script)(const char *name, unsigned long nth, int code) = NULL;
    *(void **)&script = standin_function("standin_cuda_fail");
    script("cuDevicePrimaryCtxRetain", 1, WR_CUDA_ERROR_OUT_OF_MEMORY);
}

static void looking_for_the_device_of_a_stream_opens_none_where_one_in_use_has_it(void **state)
{
    (void)state;
    weir_stream far = new_stream(3);
    void *pointer = take(MIB, first), *beside = take(MIB, far);
    const unsigned long made = contexts_asked_for();
    assert_good(pluggable_record_stream(pointer, native_of(far)));
    assert_int_equal(contexts_asked_for(), made);
    give(pointer, first);
    give(beside, far);
}

static void a_device_that_cannot_be_opened_does_not_keep_a_stream_from_being_recorded(void **state)
{
    (void)state;
    weir_stream far = new_stream(3);
    void *pointer = take(MIB, first);
    refuse_the_next_context();
    assert_good(pluggable_record_stream(pointer, native_of(far)));
    give(pointer, first);
}

/* A stream of a context that is no device's primary one. */
static void a_failure_to_look_up_a_streams_device_is_reported(void **state)
{
    (void)state;
    CUcontext context = NULL;
    CUstream nobodys = NULL;
    CUresult (*make_context)(CUcontext *context, unsigned int flags, CUdevice device) = NULL;
    CUresult (*end_context)(CUcontext context) = NULL;
    *(void **)&make_context = standin_function("cuCtxCreate_v2");
    *(void **)&end_context = standin_function("cuCtxDestroy_v2");
    void *pointer = take(MIB, first);
    driver_ok(make_context(&context, 0, 0));
    driver_ok(wr_cu.cuStreamCreateWithPriority(&nobodys, WR_CU_STREAM_NON_BLOCKING, 0));
    refuse_the_next_context();
    assert_memory_equal(pluggable_record_stream(pointer, nobodys), "OutOfMemoryError: CUDA out of memory. weir: ", 44);
    assert_non_null(strstr(pluggable_record_stream(pointer, nobodys), "primary context"));
    driver_ok(wr_cu.cuStreamDestroy(nobodys));
    driver_ok(end_context(context));
    give(pointer, first);
}

static void emptying_leaves_unused_devices_alone(void **state)
{
    (void)state;
    give(take(30 * MIB, first), first);
    assert_true(reserved_on(0) > 0);
    assert_good(pluggable_reset());
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(calls_of(WEIR_BACKEND_device_open), 1);
}

static void devices_in_use_reach_each_others_memory(void **state)
{
    (void)state;
    const weir_stream far = new_stream(1);
    give(take(MIB, first), first);
    assert_int_equal(calls_of(WEIR_BACKEND_peer_enable), 0);
    give(take(MIB, far), far);
    give(take(MIB, far), far);
    assert_int_equal(calls_of(WEIR_BACKEND_peer_enable), 2);
}

static void devices_used_before_a_close_are_forgotten(void **state)
{
    weir_stream far = new_stream(1);
    give(take(MIB, first), first);
    give(take(MIB, far), far);
    assert_ok(weir_close());
    open_scene(state);
    give(take(MIB, first), first);
    assert_int_equal(calls_of(WEIR_BACKEND_peer_enable), 0);
    assert_good(pluggable_reset());
    assert_int_equal(calls_of(WEIR_BACKEND_device_open), 1);
    far = new_stream(1);
    give(take(MIB, far), far);
    assert_int_equal(calls_of(WEIR_BACKEND_peer_enable), 2);
}

static void a_host_without_devices_is_refused_at_init(void **state)
{
    (void)state;
    assert_non_null(strstr(pluggable_init(1), "PyTorch sees devices that weir does not"));
    assert_good(pluggable_init(0));
}

static void a_stream_may_come_again_at_the_address_of_one_that_ended(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0), named = { 0 };
    void *native = native_of(stream);
    give(take(MIB, stream), stream);
    assert_ok(weir_stream_destroy(stream));
    weir_stream next = new_stream(0);
    if (native_of(next) != native) print_message("another address this time\n");
    void *pointer = take(MIB, next);
    assert_ok(weir_stream_from_native(0, native_of(next), &named));
    assert_int_equal(info_of(pointer).stream.id, named.id);
    give(pointer, next);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

enum { THREADS = 8, ROUNDS = 2000, HELD = 16 };

static void *allocate_and_free(void *argument)
{
    const weir_stream own = new_stream((int)(intptr_t)argument % 2);
    void *held[HELD] = { 0 };
    unsigned seed = (unsigned)(intptr_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        seed = seed * 1103515245u + 12345u;
        void **place = &held[i % HELD];
        pluggable_free(*place, 0, device_of(own), native_of(own));
        *place = NULL;
        const char *text = pluggable_alloc((size_t)1 << (9 + (seed >> 16) % 9), device_of(own), native_of(own), place);
        if (*text) fail_msg("%s", text);
        if (i % 7 == 0) assert_good(pluggable_record_stream(*place, native_of(device_of(own) ? own : first)));
        if (i % 500 == 499) assert_good(pluggable_reset());
    }
    for (int i = 0; i < HELD; i++) pluggable_free(held[i], 0, device_of(own), native_of(own));
    return NULL;
}

static void threads_allocate_on_their_streams_at_once(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int device = 0; device < 2; device++) {
        assert_ok(weir_validate(device));
        assert_int_equal(stats_of(device).allocation[WEIR_STAT_ALL].current, 0);
    }
}

/* With tensors: one block of each round is freed by the thread that comes next. */
static void *allocate_and_drop(void *left)
{
    const weir_stream own = new_stream(0);
    void *held[HELD];
    make_current(0, own);
    for (int i = 0; i < ROUNDS / HELD; i++) {
        for (int k = 0; k < HELD; k++) assert_good(pluggable_allocate((size_t)(k + 1) << 10, 0, &held[k]));
        if (info_of(held[i % HELD]).stream.id != own.id) fail_msg("memory of another thread's stream");
        pluggable_drop(atomic_exchange((_Atomic(void *) *)left, held[0]));
        for (int k = 1; k < HELD; k++) pluggable_drop(held[k]);
    }
    return NULL;
}

static void threads_have_tensors_on_their_streams_at_once(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    _Atomic(void *) left = NULL;
    install();
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_drop, &left), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    pluggable_drop(left);
    assert_ok(weir_validate(0));
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 0);
}

#define test(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(memory_belongs_to_the_stream_it_was_asked_for),
        test(zero_bytes_give_null),
        test(running_out_is_torchs_error_with_weirs_text),
        test(more_than_an_exbibyte_is_running_out_in_torchs_words),
        test(a_pool_of_torchs_own_gets_null_instead),
        test(other_failures_are_exceptions_with_weirs_text),
        test(a_fraction_sets_the_limit_and_1_removes_it),
        test(a_fraction_that_is_none_is_refused),
        test(a_fraction_does_not_lift_the_limit_that_was_there),
        test(a_limit_that_was_lifted_or_changed_meanwhile_holds_fractions_no_more),
        test(the_largest_block_is_what_is_left_and_what_is_free),
        test(the_largest_block_is_within_the_limit),
        test(copies_between_devices_out_of_reach_are_between_peers),
        test(a_larger_block_that_the_caller_knows_is_kept),
        test(the_fraction_is_told),
        test(what_the_allocator_object_is_asked_for_comes_from_weir),
        test(the_current_device_is_torchs),
        test(running_out_is_torchs_error_without_the_hook_too),
        test(freeing_what_is_not_weirs_is_an_exception_where_one_may_be_thrown),
        test(the_profiler_is_told_of_each_block),
        test(the_profiler_is_not_told_of_segments_for_torchs_own_pools),
        test(the_profiler_is_told_of_what_the_object_is_asked_for),
        test(the_profiler_is_told_that_memory_has_run_out),
        test(observers_are_told_that_memory_has_run_out),
        test(history_is_recorded_as_pytorch_asks),
        test(a_snapshot_is_that_of_torchs_own_allocator),
        test(functions_for_any_accelerator_ask_the_object),
        test(other_functions_stay_the_allocators),
        test(another_allocator_is_left_alone),
        test(the_segment_around_a_block_is_reported),
        test(memory_waits_for_a_recorded_stream),
        test(a_stream_is_not_recorded_for_memory_of_others),
        test(emptying_leaves_unused_devices_alone),
        test(devices_in_use_reach_each_others_memory),
        test(devices_used_before_a_close_are_forgotten),
        test(a_host_without_devices_is_refused_at_init),
        test(a_stream_may_come_again_at_the_address_of_one_that_ended),
        test(threads_allocate_on_their_streams_at_once),
        test(threads_have_tensors_on_their_streams_at_once),
    };
    const struct CMUnitTest tests_of_cuda[] = {
        test(a_stream_of_another_device_can_be_recorded),
        test(looking_for_the_device_of_a_stream_opens_none_where_one_in_use_has_it),
        test(a_device_that_cannot_be_opened_does_not_keep_a_stream_from_being_recorded),
        test(a_failure_to_look_up_a_streams_device_is_reported),
        test(what_the_allocator_object_is_asked_for_comes_from_weir),
        test(the_current_device_is_torchs),
        test(a_device_that_torch_has_put_off_to_set_is_current),
        test(threads_have_tensors_on_their_streams_at_once),
    };
    if (on_driver()) return cmocka_run_group_tests(tests_of_cuda, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
