/*
 * Allocating and freeing as users do it, and calls that are refused with nothing changed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host_support.h"
#include "thread_support.h"

#include <string.h>

static int open_policy(void **state)
{
    open_host((weir_settings){ .policy = *state, .host_devices = 2, .host_memory = 256 * MIB });
    return 0;
}

/* The call is refused and nothing but the error text has changed. */
#define assert_refused(call, status)                                                                                   \
    do {                                                                                                               \
        weir_memory_stats before_ = stats_of(0);                                                                       \
        assert_status(call, status);                                                                                   \
        weir_memory_stats after_ = stats_of(0);                                                                        \
        assert_memory_equal(&before_, &after_, sizeof before_);                                                        \
        assert_ok(weir_validate(0));                                                                                   \
    } while (0)

/* ---- allocating -------------------------------------------------------------------------------------------------- */

static void zero_bytes_give_null(void **state)
{
    (void)state;
    void *block = &block;
    assert_ok(weir_alloc(0, &block));
    assert_null(block);
    block = &block;
    assert_ok(weir_alloc_on(0, new_stream(1), &block));
    assert_null(block);
    block = &block;
    assert_ok(weir_alloc_from((weir_mempool){ 0, 0 }, 0, default_stream(0), &block));
    assert_null(block);
    assert_int_equal(reserved_on(0) + reserved_on(1), 0);
}

/* The stream has parked blocks, so each of these requests is first looked for among them. */
static void requests_of_no_bytes_and_of_too_many_match_no_parked_block(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    void *block = NULL;
    for (int i = 0; i < 100; i++) assert_ok(weir_free(alloc_on(i % 2 ? 100 : 3 * MIB, stream)));
    assert_ok(weir_alloc_on(0, stream, &block));
    assert_null(block);
    assert_status(weir_alloc_on(SIZE_MAX, stream, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_status(weir_alloc_on(SIZE_MAX - 510, stream, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_null(block);
    assert_ok(weir_free(alloc_on(100, stream)));
    assert_ok(weir_validate(0));
}

static void null_may_be_freed(void **state)
{
    (void)state;
    assert_ok(weir_free(NULL));
}

static void memory_is_512_byte_aligned(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes < 30 * MIB; bytes = bytes * 2 + 1) assert_int_equal((uintptr_t)alloc(bytes) % 512, 0);
}

static void all_of_a_block_can_be_written(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1, 511, 513, MIB + 1, 3 * MIB };
    unsigned char *blocks[5];
    for (size_t i = 0; i < 5; i++) {
        blocks[i] = alloc(sizes[i]);
        memset(blocks[i], (int)i + 1, sizes[i]);
    }
    for (size_t i = 0; i < 5; i++)
        for (size_t at = 0; at < sizes[i]; at++)
            if (blocks[i][at] != i + 1) fail_msg("block %zu was overwritten at %zu", i, at);
}

static void memory_comes_from_the_current_device_and_stream(void **state)
{
    (void)state;
    weir_stream stream = new_stream(1);
    assert_ok(weir_device_set_current(1));
    assert_ok(weir_stream_set_current(stream));
    weir_pointer_info info = info_of(alloc(1000));
    assert_int_equal(info.device, 1);
    assert_int_equal(info.stream.id, stream.id);
    assert_int_equal(reserved_on(0), 0);
}

static void a_named_stream_brings_its_device(void **state)
{
    (void)state;
    weir_stream stream = new_stream(1);
    void *block = alloc_on(1000, stream);
    assert_int_equal(info_of(block).device, 1);
    assert_int_equal(reserved_on(0), 0);
    int device = -1;
    assert_ok(weir_device_get_current(&device));
    assert_int_equal(device, 0);
    assert_ok(weir_free(block)); /* from a thread whose device is another */
    assert_int_equal(stats_of(1).allocation[WEIR_STAT_ALL].current, 0);
}

static void a_missing_out_parameter_is_refused(void **state)
{
    (void)state;
    assert_refused(weir_alloc(512, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "weir_alloc"));
    assert_refused(weir_alloc_on(512, WEIR_STREAM_CURRENT, NULL), WEIR_ERR_INVALID_ARGUMENT);
}

static void an_unknown_stream_is_refused(void **state)
{
    (void)state;
    void *block = &block;
    weir_stream stream = new_stream(0), unknown = { stream.id + 1 };
    assert_refused(weir_alloc_on(512, unknown, &block), WEIR_ERR_INVALID_STREAM);
    assert_ok(weir_stream_destroy(stream));
    assert_refused(weir_alloc_on(512, stream, &block), WEIR_ERR_INVALID_STREAM);
    assert_refused(weir_alloc_on(0, stream, &block), WEIR_ERR_INVALID_STREAM);
    assert_ptr_equal(block, &block);
}

/* ---- freeing what cannot be freed -------------------------------------------------------------------------------- */

static void unknown_pointers_cannot_be_freed(void **state)
{
    (void)state;
    int local = 0;
    alloc(512);
    assert_refused(weir_free(&local), WEIR_ERR_UNKNOWN_POINTER);
    assert_refused(weir_free((void *)(uintptr_t)1), WEIR_ERR_UNKNOWN_POINTER);
    assert_refused(weir_free((void *)UINTPTR_MAX), WEIR_ERR_UNKNOWN_POINTER);
    assert_non_null(strstr(weir_error_text(), "was not allocated by weir"));
}

static void a_block_cannot_be_freed_twice(void **state)
{
    (void)state;
    void *block = alloc(4096), *neighbour = alloc(4096);
    assert_ok(weir_free(block));
    assert_refused(weir_free(block), WEIR_ERR_DOUBLE_FREE);
    assert_non_null(strstr(weir_error_text(), "already freed"));
    assert_ok(weir_free(neighbour));
}

static void a_block_that_was_merged_away_cannot_be_freed_again(void **state)
{
    (void)state;
    void *left = alloc(4096), *middle = alloc(4096), *right = alloc(4096);
    assert_ok(weir_free(left));
    assert_ok(weir_free(right));
    assert_ok(weir_free(middle)); /* all of the segment is one block now */
    assert_refused(weir_free(middle), WEIR_ERR_DOUBLE_FREE);
    assert_refused(weir_free(right), WEIR_ERR_DOUBLE_FREE);
    assert_refused(weir_free(left), WEIR_ERR_DOUBLE_FREE);
}

static void a_pending_block_cannot_be_freed_again(void **state)
{
    (void)state;
    weir_stream other = new_stream(0);
    void *block = alloc(4096);
    hold(other);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    assert_refused(weir_free(block), WEIR_ERR_DOUBLE_FREE);
    assert_non_null(strstr(weir_error_text(), "waiting for the streams"));
    let_run(other);
}

static void a_block_whose_segment_was_given_back_is_unknown(void **state)
{
    (void)state;
    void *block = alloc(12 * MIB);
    assert_ok(weir_free(block));
    assert_ok(weir_empty_cache(0));
    assert_refused(weir_free(block), WEIR_ERR_UNKNOWN_POINTER);
}

static void a_pointer_into_a_block_cannot_be_freed(void **state)
{
    (void)state;
    char *block = alloc(4096);
    assert_refused(weir_free(block + 512), WEIR_ERR_INVALID_ARGUMENT);
    assert_refused(weir_free(block + 1), WEIR_ERR_INVALID_ARGUMENT);
    assert_refused(weir_free(block + 4095), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "points 4095 bytes into a block"));
    assert_ok(weir_free(block));
}

static void *free_inside(void *block)
{
    assert_refused(weir_free((char *)block + 512), WEIR_ERR_INVALID_ARGUMENT);
    return NULL;
}

static void nor_by_a_thread_that_does_not_know_the_memory(void **state)
{
    (void)state;
    void *block = alloc(4096);
    (void)in_a_thread(free_inside, block);
    assert_ok(weir_free(block));
}

/* Which function refused, and that it says so once. */
static void assert_refused_by(const char *function)
{
    const char *text = weir_error_text(), *named = strstr(text, function);
    assert_ptr_equal(named, text);
    assert_memory_equal(text + strlen(function), ": ", 2);
    assert_null(strstr(text + 1, function));
}

static void what_refuses_a_pointer_names_itself(void **state)
{
    (void)state;
    int local = 0;
    weir_pointer_info info = { .size = sizeof info };
    char *block = alloc(4096);
    assert_refused(weir_free(&local), WEIR_ERR_UNKNOWN_POINTER);
    assert_refused_by("weir_free");
    assert_refused(weir_free(block + 1), WEIR_ERR_INVALID_ARGUMENT);
    assert_refused_by("weir_free");
    assert_ok(weir_free(block));
    assert_refused(weir_free(block), WEIR_ERR_DOUBLE_FREE);
    assert_refused_by("weir_free");
    assert_refused(weir_record_stream(block, WEIR_STREAM_CURRENT), WEIR_ERR_DOUBLE_FREE);
    assert_refused_by("weir_record_stream");
    assert_refused(weir_pointer_info_get(block, &info), WEIR_ERR_DOUBLE_FREE);
    assert_refused_by("weir_pointer_info_get");
}

static void the_free_rest_of_a_segment_cannot_be_freed(void **state)
{
    (void)state;
    char *block = alloc(4096);
    assert_refused(weir_free(block + 4096), WEIR_ERR_DOUBLE_FREE);
    assert_refused(weir_free(block + MIB), WEIR_ERR_DOUBLE_FREE);
    assert_ok(weir_free(block));
}

/* ---- recording --------------------------------------------------------------------------------------------------- */

static void an_unknown_stream_cannot_be_recorded(void **state)
{
    (void)state;
    void *block = alloc(4096);
    weir_stream stream = new_stream(0);
    assert_ok(weir_stream_destroy(stream));
    assert_refused(weir_record_stream(block, stream), WEIR_ERR_INVALID_STREAM);
    assert_ok(weir_free(block));
    assert_int_equal(stats_of(0).pending_frees, 0);
}

/* ---- emptying ---------------------------------------------------------------------------------------------------- */

static void empty_cache_is_of_one_device(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc(12 * MIB)));
    assert_ok(weir_free(alloc_on(12 * MIB, new_stream(1))));
    assert_ok(weir_empty_cache(1));
    assert_int_equal(reserved_on(0), 12 * MIB);
    assert_int_equal(reserved_on(1), 0);
    assert_ok(weir_empty_cache(WEIR_DEVICE_CURRENT));
    assert_int_equal(reserved_on(0), 0);
    assert_status(weir_empty_cache(2), WEIR_ERR_NO_DEVICE);
    assert_status(weir_empty_cache(-2), WEIR_ERR_NO_DEVICE);
}

static void the_driver_sees_memory_come_and_go(void **state)
{
    (void)state;
    weir_device_info info = { .size = sizeof info };
    void *block = alloc(12 * MIB);
    assert_ok(weir_device_info_get(0, &info));
    assert_int_equal(info.free_memory, 244 * MIB);
    assert_ok(weir_free(block));
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_device_info_get(0, &info));
    assert_int_equal(info.free_memory, 256 * MIB);
}

#define BOTH(test)                                                                                                     \
    { #test " (weir)", test, open_policy, close_host, (void *)(uintptr_t)"weir" },                                     \
        { #test " (torch)", test, open_policy, close_host, (void *)(uintptr_t)"torch" }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(zero_bytes_give_null),
        BOTH(requests_of_no_bytes_and_of_too_many_match_no_parked_block),
        BOTH(null_may_be_freed),
        BOTH(memory_is_512_byte_aligned),
        BOTH(all_of_a_block_can_be_written),
        BOTH(memory_comes_from_the_current_device_and_stream),
        BOTH(a_named_stream_brings_its_device),
        BOTH(a_missing_out_parameter_is_refused),
        BOTH(an_unknown_stream_is_refused),
        BOTH(unknown_pointers_cannot_be_freed),
        BOTH(a_block_cannot_be_freed_twice),
        BOTH(a_block_that_was_merged_away_cannot_be_freed_again),
        BOTH(a_pending_block_cannot_be_freed_again),
        BOTH(a_block_whose_segment_was_given_back_is_unknown),
        BOTH(a_pointer_into_a_block_cannot_be_freed),
        BOTH(nor_by_a_thread_that_does_not_know_the_memory),
        BOTH(what_refuses_a_pointer_names_itself),
        BOTH(the_free_rest_of_a_segment_cannot_be_freed),
        BOTH(an_unknown_stream_cannot_be_recorded),
        BOTH(empty_cache_is_of_one_device),
        BOTH(the_driver_sees_memory_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
