/*
 * What the option `debug` finds with the word `streams` on streams of a real driver.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu_support.h"
#include "weir/trace.h"

#include <stdatomic.h>
#include <time.h>

static weir_stream home, other;

static int open_debugged(void **state)
{
    (void)state;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "cuda";
    settings.debug = "poison,redzone,streams";
    settings.history = 1000;
    settings.history_stacks = 8;
    assert_ok(weir_open(&settings));
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &home));
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &other));
    return 0;
}

static uint64_t misuses(void)
{
    weir_memory_stats stats = { .size = sizeof stats };
    assert_ok(weir_stats_get(0, &stats));
    return stats.stream_misuses;
}

static void *alloc_on_home(size_t bytes)
{
    void *block = NULL;
    assert_ok(weir_alloc_on(bytes, home, &block));
    return block;
}

static atomic_bool rested;

static void nap(void *unused)
{
    (void)unused;
    nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    atomic_store(&rested, true);
}

static void correct_uses_are_not_reported(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        unsigned char byte = 0;
        void *block = alloc_on_home(1 << 20);
        assert_ok(weir_fill(block, (unsigned char)i, 1 << 20, home));
        assert_ok(weir_stream_wait(other, home));
        assert_ok(weir_copy(&byte, block, 1, other));
        if (i % 2)
            assert_ok(weir_record_stream(block, other));
        else
            assert_ok(weir_stream_wait(home, other));
        assert_ok(weir_free(block));
        assert_ok(weir_stream_synchronize(other));
        assert_int_equal(byte, i);
    }
    assert_int_equal(misuses(), 0);
}

static void an_unrecorded_use_is_reported(void **state)
{
    (void)state;
    void *block = alloc_on_home(1 << 20);
    assert_ok(weir_stream_wait(other, home));
    assert_ok(weir_fill(block, 1, 1 << 20, other));
    assert_ok(weir_free(block));
    assert_int_equal(misuses(), 1);
    assert_ok(weir_device_synchronize(0));
}

/* The other stream is delayed, so that it writes after the free. */
static void a_write_after_the_free_is_reported(void **state)
{
    (void)state;
    void *block = alloc_on_home(1 << 20);
    assert_ok(weir_stream_wait(other, home));
    assert_ok(weir_stream_callback(other, nap, NULL));
    assert_ok(weir_fill(block, 1, 1 << 20, other));
    assert_ok(weir_free(block));
    const bool written_before = atomic_load(&rested); /* compute-sanitizer waits for each kernel */
    assert_int_equal(misuses(), 1);
    assert_ok(weir_stream_synchronize(other));
    if (written_before) skip();
    void *next = alloc_on_home(1 << 20);
    assert_ptr_equal(next, block);
    assert_int_equal(misuses(), 2);
    assert_ok(weir_free(next));
}

static void events_have_stacks(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc_on_home(1000)));
    assert_ok(weir_history_save("stacks.weirtrace"));
    FILE *file = fopen("stacks.weirtrace", "rb");
    weir_trace_header header = { .events = 0 };
    assert_non_null(file);
    assert_int_equal(fread(&header, sizeof header, 1, file), 1);
    fclose(file);
    assert_true(header.stacks >= 2 && header.frames >= header.stacks);
}

#define DEBUG(test) cmocka_unit_test_setup_teardown(test, open_debugged, close_valid)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DEBUG(correct_uses_are_not_reported),
        DEBUG(an_unrecorded_use_is_reported),
        DEBUG(a_write_after_the_free_is_reported),
        DEBUG(events_have_stacks),
    };
    const int skipped = no_gpu();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
