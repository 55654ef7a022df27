#include "base/exit_key.h"

#include "base/meta.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host_support.h"

#include <limits.h>
#include <string.h>

static pthread_key_t others[PTHREAD_KEYS_MAX];
static size_t other_count;

static void take_all_keys(void)
{
    other_count = 0;
    while (other_count < PTHREAD_KEYS_MAX && pthread_key_create(&others[other_count], NULL) == 0) other_count++;
}

static void leave_keys(void)
{
    while (other_count > 0) pthread_key_delete(others[--other_count]);
}

/* First, as long as this process has made no key of weir's. */
static void calls_that_found_no_key_left_succeed_once_there_is_one(void **state)
{
    (void)state;
    weir_stream stream = { 0 };
    assert_ok(weir_stream_default(0, &stream));
    const uint64_t before = wr_meta_live();
    take_all_keys();
    const weir_status refused = weir_stream_set_current(stream);
    leave_keys();
    assert_int_equal(refused, WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_int_equal(wr_meta_live(), before);
    assert_ok(weir_stream_set_current(stream));
}

static void error_texts_are_whole_again_once_there_is_a_key(void **state)
{
    (void)state;
    assert_int_not_equal(weir_device_synchronize(77), WEIR_OK);
    assert_non_null(strstr(weir_error_text(), "77"));
}

static int ended;

static void count(void *value)
{
    ended += *(int *)value;
}

static wr_exit_key key = { .at_exit = count };

static void *set_and_end(void *value)
{
    return wr_exit_key_set(&key, value) ? value : NULL;
}

static void the_end_of_a_thread_calls_with_what_it_has_set(void **state)
{
    (void)state;
    int seven = 7;
    void *value;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, set_and_end, &seven), 0);
    assert_int_equal(pthread_join(thread, &value), 0);
    assert_ptr_equal(value, &seven);
    assert_int_equal(ended, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_that_found_no_key_left_succeed_once_there_is_one, open_small_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(error_texts_are_whole_again_once_there_is_a_key, open_small_host, close_host),
        cmocka_unit_test(the_end_of_a_thread_calls_with_what_it_has_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
