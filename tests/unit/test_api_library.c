/*
 * Opening, closing and asking about the library.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "host_support.h"
#include "weir/observe.h"
#include "weir/plan.h"
#include "weir/trace.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int close_it(void **state)
{
    (void)state;
    assert_ok(weir_close());
    return 0;
}

static void open_small(void)
{
    open_host((weir_settings){ .host_devices = 2, .host_memory = 64 * MIB });
}

/* Runs first: needs a process that has never opened the library. */
static void the_first_call_opens_the_library_with_the_environments_options(void **state)
{
    (void)state;
    const char *name = NULL;
    int count = 0;
    assert_ok(weir_close()); /* there is nothing to close, which is not the same as closed */
    setenv("WEIR_BACKEND", "host", 1);
    setenv("WEIR_HOST_DEVICES", "3", 1);
    assert_ok(weir_device_count(&count));
    unsetenv("WEIR_BACKEND");
    unsetenv("WEIR_HOST_DEVICES");
    assert_int_equal(count, 3);
    assert_ok(weir_backend_name(&name));
    assert_string_equal(name, "host");
    assert_status(weir_backend_name(NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_open(NULL), WEIR_ERR_BUSY); /* too late */
}

static bool frees_nothing(void *user, int device, size_t needed)
{
    (void)user, (void)device, (void)needed;
    return false;
}

static void closing_forgets_the_programs_callbacks(void **state)
{
    (void)state;
    const uint64_t live = wr_meta_live();
    open_small();
    assert_ok(weir_reclaim_add(frees_nothing, NULL));
    assert_ok(weir_close());
    assert_int_equal(wr_meta_live(), live);
    open_small();
    assert_status(weir_reclaim_remove(frees_nothing, NULL), WEIR_ERR_INVALID_ARGUMENT);
}

static void opening_twice_is_refused_and_harmless(void **state)
{
    (void)state;
    open_small();
    void *block = alloc(512);
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "host";
    assert_status(weir_open(&settings), WEIR_ERR_BUSY);
    assert_non_null(strstr(weir_error_text(), "weir_close"));
    assert_ok(weir_free(block));
}

static void a_closed_library_refuses_every_call(void **state)
{
    (void)state;
    open_small();
    void *block = alloc(512);
    weir_stream stream = new_stream(0);
    assert_ok(weir_close());

    const char *name = NULL;
    void *pointer = NULL;
    int number = 7;
    uint64_t count = 7;
    weir_stream_guard guard = { .thread = 1, .previous = stream };
    weir_memory_stats stats = { .size = sizeof stats };
    weir_device_info device = { .size = sizeof device };
    weir_option_info option = { .size = sizeof option };
    weir_pointer_info info = { .size = sizeof info };
    assert_status(weir_mempool_leave((weir_mempool){ 0, 0 }), WEIR_ERR_CLOSED);
    assert_status(weir_backend_name(&name), WEIR_ERR_CLOSED);
    assert_status(weir_option_get(0, &option), WEIR_ERR_CLOSED);
    assert_status(weir_device_count(&number), WEIR_ERR_CLOSED);
    assert_status(weir_device_info_get(0, &device), WEIR_ERR_CLOSED);
    assert_status(weir_device_get_current(&number), WEIR_ERR_CLOSED);
    assert_status(weir_device_set_current(0), WEIR_ERR_CLOSED);
    assert_status(weir_device_synchronize(0), WEIR_ERR_CLOSED);
    assert_status(weir_stream_default(0, &stream), WEIR_ERR_CLOSED);
    assert_status(weir_stream_from_pool(0, 0, &stream), WEIR_ERR_CLOSED);
    assert_status(weir_stream_create(0, 0, &stream), WEIR_ERR_CLOSED);
    assert_status(weir_stream_destroy(stream), WEIR_ERR_CLOSED);
    assert_status(weir_stream_set_current(stream), WEIR_ERR_CLOSED);
    assert_status(weir_stream_leave(&guard), WEIR_ERR_CLOSED);
    assert_status(weir_stream_query(stream), WEIR_ERR_CLOSED);
    assert_status(weir_alloc(512, &pointer), WEIR_ERR_CLOSED);
    assert_status(weir_alloc_on(512, stream, &pointer), WEIR_ERR_CLOSED);
    assert_status(weir_free(block), WEIR_ERR_CLOSED);
    assert_status(weir_record_stream(block, stream), WEIR_ERR_CLOSED);
    assert_status(weir_pointer_info_get(block, &info), WEIR_ERR_CLOSED);
    assert_status(weir_empty_cache(0), WEIR_ERR_CLOSED);
    assert_status(weir_memory_limit_set(0, 1), WEIR_ERR_CLOSED);
    assert_status(weir_memory_limit_get(0, &count), WEIR_ERR_CLOSED);
    assert_status(weir_stats_get(0, &stats), WEIR_ERR_CLOSED);
    assert_status(weir_stats_reset(0), WEIR_ERR_CLOSED);
    assert_status(weir_driver_calls(&count), WEIR_ERR_CLOSED);
    assert_status(weir_validate(0), WEIR_ERR_CLOSED);
    assert_non_null(strstr(weir_error_text(), "weir_open"));
    assert_int_equal(number, 7);
    assert_int_equal(count, 7);
    assert_null(name);
    assert_null(pointer);
}

static size_t take_nothing(void *user, const void **frames, size_t capacity)
{
    (void)user;
    (void)frames;
    (void)capacity;
    return 0;
}

static bool describe_nothing(void *user, const void *frame, weir_frame *out)
{
    (void)user;
    (void)frame;
    (void)out;
    return false;
}

static void a_closed_library_answers_what_needs_no_device(void **state)
{
    (void)state;
    static const weir_stack_source source = { sizeof source, take_nothing, describe_nothing, NULL };
    char text[256];
    uint8_t bytes[256];
    size_t length = 0;
    uint64_t nanoseconds = 0;
    weir_plan *plan = NULL;
    const weir_plan empty = { 0 };
    weir_handle_kind_info kind = { .size = sizeof kind };
    open_small();
    assert_ok(weir_close());
    assert_ok(weir_free(NULL));
    assert_ok(weir_pinned_free(NULL));
    assert_ok(weir_error_json(text, sizeof text, &length));
    assert_status(weir_handle_kind_info_get(WEIR_HANDLE_KIND_MAX, &kind), WEIR_ERR_INVALID_ARGUMENT);
    assert_ok(weir_history_label_push("closed"));
    assert_ok(weir_history_label_pop());
    assert_ok(weir_history_stacks_from(&source));
    assert_ok(weir_plan_encode(&empty, bytes, sizeof bytes, &length));
    assert_ok(weir_plan_decode(bytes, length, &plan));
    weir_plan_destroy(plan);
    assert_ok(weir_host_cost(WEIR_BACKEND_segment_alloc, 4096, &nanoseconds));
    assert_status(weir_host_fail_clear(), WEIR_ERR_NOT_SUPPORTED);
    assert_status(weir_host_stream_hold(0, NULL), WEIR_ERR_NOT_SUPPORTED);
    assert_status(weir_alloc(1, NULL), WEIR_ERR_INVALID_ARGUMENT);
}

static void closing_twice_is_fine(void **state)
{
    (void)state;
    open_small();
    assert_ok(weir_close());
    assert_ok(weir_close());
}

static void the_library_can_be_opened_again_and_again(void **state)
{
    (void)state;
    open_small();
    assert_ok(weir_close());
    uint64_t before = wr_meta_live();
    for (int i = 0; i < 20; i++) {
        open_host((weir_settings){ .policy = i % 2 ? "torch" : "weir", .host_memory = 64 * MIB });
        weir_stream stream = new_stream(0);
        void *block = alloc_on(12 * MIB, stream);
        assert_ok(weir_record_stream(block, default_stream(0)));
        assert_ok(weir_free(block));
        assert_ok(weir_close());
        assert_int_equal(wr_meta_live(), before);
    }
}

static void closing_gives_memory_in_use_back(void **state)
{
    (void)state;
    open_small();
    assert_ok(weir_close());
    uint64_t before = wr_meta_live();
    open_small();
    weir_stream stream = new_stream(1);
    for (int i = 0; i < 100; i++) {
        alloc(10000);
        void *block = alloc_on(10000, stream);
        assert_ok(weir_record_stream(block, default_stream(0)));
        if (i % 2) assert_ok(weir_free(block));
    }
    weir_stream shared = { 0 };
    assert_ok(weir_stream_from_pool(0, 0, &shared));
    assert_ok(weir_close());
    assert_int_equal(wr_meta_live(), before);
}

static void closing_lets_running_work_finish(void **state)
{
    (void)state;
    static slow_work work;
    work = (slow_work){ .milliseconds = 30 };
    open_small();
    start_slow_work(new_stream(1), &work);
    assert_ok(weir_close());
    assert_true(atomic_load(&work.done));
}

static void a_failing_driver_does_not_stop_the_closing(void **state)
{
    (void)state;
    open_small();
    assert_ok(weir_close());
    uint64_t before = wr_meta_live();
    open_small();
    alloc(512);
    new_stream(0);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(WEIR_BACKEND_stream_destroy, 1, WEIR_ERR_DEVICE_LOST));
    assert_status(weir_close(), WEIR_ERR_DRIVER); /* the first one */
    assert_int_equal(wr_meta_live(), before);
    open_small();
    assert_ok(weir_free(alloc(512)));
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static weir_option_info option(const char *name)
{
    weir_option_info info = { .size = sizeof info };
    unsigned index = 0;
    while (weir_option_get(index++, &info) == WEIR_OK)
        if (strcmp(info.name, name) == 0) return info;
    fail_msg("there is no option %s", name);
    return info;
}

static void options_are_reported_with_their_source(void **state)
{
    (void)state;
    setenv("WEIR_LARGE_SEGMENT", "32MiB", 1);
    open_host((weir_settings){ .host_memory = 64 * MIB, .large_segment = 4 * MIB });
    unsetenv("WEIR_LARGE_SEGMENT");
    assert_string_equal(option("host_memory").source, "settings");
    assert_string_equal(option("host_memory").value, "64MiB");
    assert_string_equal(option("large_segment").source, "environment");
    assert_string_equal(option("large_segment").value, "32MiB");
    assert_string_equal(option("large_segment").environment, "WEIR_LARGE_SEGMENT");
    assert_string_equal(option("policy").source, "default");
    assert_string_equal(option("policy").value, "weir");
    assert_true(strlen(option("policy").help) > 0);
}

static void options_after_the_last_are_refused(void **state)
{
    (void)state;
    open_small();
    weir_option_info info = { .size = sizeof info };
    unsigned count = 0;
    while (weir_option_get(count, &info) == WEIR_OK) count++;
    assert_true(count >= 11);
    assert_status(weir_option_get(count, &info), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_option_get(UINT32_MAX, &info), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_option_get(0, NULL), WEIR_ERR_INVALID_ARGUMENT);
    info.size = 4;
    assert_status(weir_option_get(0, &info), WEIR_ERR_INVALID_ARGUMENT);
}

static void a_bad_option_leaves_the_library_closed(void **state)
{
    (void)state;
    weir_settings settings = WEIR_SETTINGS_INIT;
    int count = 0;
    settings.backend = "host";
    settings.policy = "best";
    assert_status(weir_open(&settings), WEIR_ERR_OPTION);
    assert_non_null(strstr(weir_error_text(), "policy"));
    assert_status(weir_device_count(&count), WEIR_ERR_CLOSED);
    settings.policy = NULL;
    assert_ok(weir_open(&settings));
}

static void a_split_size_that_is_refused_names_the_option_and_no_variable(void **state)
{
    (void)state;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "host";
    settings.max_split_size = MIB;
    assert_status(weir_open(&settings), WEIR_ERR_OPTION);
    assert_non_null(strstr(weir_error_text(), "max_split_size"));
    assert_null(strstr(weir_error_text(), "WEIR_"));
}

static void a_driver_that_does_not_open_leaves_the_library_closed(void **state)
{
    (void)state;
    weir_settings settings = WEIR_SETTINGS_INIT;
    uint64_t before = wr_meta_live();
    int count = 0;
    settings.backend = "host";
    settings.host_memory = MIB; /* below the minimum */
    assert_status(weir_open(&settings), WEIR_ERR_OPTION);
    assert_status(weir_device_count(&count), WEIR_ERR_CLOSED);
    assert_int_equal(wr_meta_live(), before);
    open_small();
}

static void the_version_is_that_of_the_header(void **state)
{
    (void)state;
    int major = -1, minor = -1, patch = -1;
    assert_int_equal(sscanf(weir_version(), "%d.%d.%d", &major, &minor, &patch), 3);
    assert_true(major == WEIR_VERSION_MAJOR && minor == WEIR_VERSION_MINOR && patch == WEIR_VERSION_PATCH);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void *open_device_1(void *status)
{
    weir_stream stream = { 0 };
    *(weir_status *)status = weir_stream_default(1, &stream);
    return NULL;
}

static void threads_that_open_a_device_at_once_open_it_once(void **state)
{
    (void)state;
    pthread_t threads[8];
    weir_status statuses[8];
    open_small();
    assert_ok(weir_host_latency(WEIR_BACKEND_device_open, 20000000));
    for (int i = 0; i < 8; i++) assert_int_equal(pthread_create(&threads[i], NULL, open_device_1, &statuses[i]), 0);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 8; i++) assert_int_equal(statuses[i], WEIR_OK);
    assert_int_equal(calls_of(WEIR_BACKEND_device_open), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_first_call_opens_the_library_with_the_environments_options, close_it),
        cmocka_unit_test_teardown(opening_twice_is_refused_and_harmless, close_it),
        cmocka_unit_test_teardown(closing_forgets_the_programs_callbacks, close_host),
        cmocka_unit_test(a_closed_library_refuses_every_call),
        cmocka_unit_test(a_closed_library_answers_what_needs_no_device),
        cmocka_unit_test(closing_twice_is_fine),
        cmocka_unit_test(the_library_can_be_opened_again_and_again),
        cmocka_unit_test(closing_gives_memory_in_use_back),
        cmocka_unit_test(closing_lets_running_work_finish),
        cmocka_unit_test_teardown(a_failing_driver_does_not_stop_the_closing, close_it),
        cmocka_unit_test_teardown(options_are_reported_with_their_source, close_it),
        cmocka_unit_test_teardown(options_after_the_last_are_refused, close_it),
        cmocka_unit_test_teardown(a_bad_option_leaves_the_library_closed, close_it),
        cmocka_unit_test_teardown(a_split_size_that_is_refused_names_the_option_and_no_variable, close_it),
        cmocka_unit_test_teardown(a_driver_that_does_not_open_leaves_the_library_closed, close_it),
        cmocka_unit_test(the_version_is_that_of_the_header),
        cmocka_unit_test_teardown(threads_that_open_a_device_at_once_open_it_once, close_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
