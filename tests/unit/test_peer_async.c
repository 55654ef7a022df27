/* What an H200's driver did in a manual run, 2026-11-21 (driver 580.159, highest release threshold): the same calls
 * must give the same distances and the same reserved bytes. tests/cli/policies.sh compares with recorded peaks. */
#include "unit/peer_support.h"

static uint64_t base;

/* MiB from the first block. */
static double at(size_t slot, uint64_t mib, uint32_t stream)
{
    return (double)(peer_get(slot, mib * MIB, stream) - base) / (double)MIB;
}

static uint64_t reserved(void)
{
    return f.driver.used / MIB;
}

static void memory_comes_in_pages_of_32_mib(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes, reserved, then_512;
    } seen[] = { { 1, 32, 32 },        { 31 * MIB, 32, 32 }, { 32 * MIB, 32, 64 },    { 33 * MIB, 64, 64 },
                 { 64 * MIB, 64, 96 }, { 65 * MIB, 96, 96 }, { 100 * MIB, 128, 128 }, { 1000 * MIB, 1024, 1024 } };
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        peer_open("async", 80 * GIB);
        peer_get(0, seen[i].bytes, 0);
        assert_int_equal(reserved(), seen[i].reserved);
        peer_get(1, 512, 0);
        assert_int_equal(reserved(), seen[i].then_512);
        peer_close();
    }
}

static void pages_have_the_size_of_the_option(void **state)
{
    (void)state;
    peer_open("async:page=64MiB", 80 * GIB);
    peer_get(0, 1, 0);
    assert_int_equal(reserved(), 64);
    peer_close();
}

static void calls_take_as_long_as_warm_ones_did(void **state)
{
    (void)state;
    peer_open("async", 80 * GIB);
    peer_get(0, MIB, 0);
    const uint64_t calls = f.driver.calls, before = f.driver.nanoseconds;
    peer_get(1, MIB, 0); /* in the same page */
    assert_int_equal(f.driver.nanoseconds - before, 490);
    peer_give(1);
    assert_int_equal(f.driver.nanoseconds - before, 490 + 590);
    assert_int_equal(f.driver.calls - calls, 2);
    peer_close();
}

static void holes_are_filled_as_the_driver_fills_them(void **state)
{
    (void)state;
    static const uint64_t sizes[] = { 10, 5, 20, 5, 15, 5, 12, 5, 30, 5 };
    static const double places[] = { 1, 11, 16, 36, 41, 56, 61, 73, 78, 108 };
    peer_open("async", 80 * GIB);
    base = peer_get(99, MIB, 0);
    for (size_t i = 0; i < 10; i++) assert_float_equal(at(i, sizes[i], 0), places[i], 0);
    assert_int_equal(reserved(), 128);
    for (size_t i = 0; i < 10; i += 2) peer_give(i);
    assert_float_equal(at(20, 11, 0), 61, 0);
    assert_float_equal(at(21, 11, 0), 41, 0);
    assert_float_equal(at(22, 4, 0), 52, 0);
    assert_float_equal(at(23, 4, 1), 1, 0);
    assert_float_equal(at(24, 28, 1), 78, 0);
    for (size_t i = 0; i < 8; i++) assert_float_equal(at(30 + i, 32, 0), 113 + 32 * (double)i, 0);
    assert_int_equal(reserved(), 384);
    peer_give(31);
    peer_give(32);
    peer_give(34);
    peer_give(36);
    assert_float_equal(at(40, 48, 0), 145, 0);
    assert_float_equal(at(41, 20, 0), 241, 0); /* the recent hole of 32, not the old one of 20 */
    assert_int_equal(reserved(), 384);
    assert_float_equal(at(42, 100, 0), 369, 0);
    assert_int_equal(reserved(), 480);
    assert_float_equal(at(43, 33, 0), 469, 0);
    assert_int_equal(reserved(), 512);
    peer_check();
    peer_close();
}

static void pages_are_moved_from_under_holes_to_where_they_are_needed(void **state)
{
    (void)state;
    peer_open("async", 80 * GIB);
    base = peer_get(0, 64 * MIB, 0);
    for (size_t i = 1; i < 6; i++) peer_get(i, 64 * MIB, 0);
    for (size_t i = 0; i < 6; i += 2) peer_give(i);
    assert_float_equal(at(10, 128, 0), 384, 0);
    assert_int_equal(reserved(), 384);
    assert_float_equal(at(11, 64, 0), 0, 0); /* the hole that still has its memory */
    assert_int_equal(reserved(), 384);
    peer_give(10);
    assert_float_equal(at(12, 192, 0), 384, 0);
    assert_int_equal(reserved(), 448);
    assert_float_equal(at(13, 40, 1), 256, 0);
    assert_int_equal(reserved(), 512);
    peer_check();
    peer_close();
}

static void memory_beyond_the_threshold_is_given_back(void **state)
{
    (void)state;
    peer_open("async:threshold=64MiB", 80 * GIB);
    peer_get(0, 320 * MIB, 0);
    peer_give(0);
    assert_int_equal(reserved(), 64);
    peer_get(0, 320 * MIB, 0);
    assert_int_equal(reserved(), 320);
    peer_close();
}

static void no_more_than_the_threshold_is_kept(void **state)
{
    (void)state;
    peer_open("async:threshold=50MiB", 80 * GIB);
    peer_get(0, 320 * MIB, 0);
    peer_give(0);
    assert_int_equal(reserved(), 32); /* two pages would be 64 */
    peer_close();
}

static void a_hole_keeps_its_age_when_its_memory_is_moved(void **state)
{
    (void)state;
    peer_open("async", 80 * GIB);
    base = peer_get(0, 64 * MIB, 0);
    peer_get(1, 32 * MIB, 0);
    peer_get(2, 64 * MIB, 0);
    peer_get(3, 32 * MIB, 0);
    peer_get(4, 64 * MIB, 0);
    peer_give(0);
    peer_give(2);
    peer_give(4);
    /* The end of the range grows at the cost of the later hole, then of the other one, then of the later one again. */
    static const uint64_t sizes[] = { 65, 160, 192 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_float_equal(at(4, sizes[i], 0), 192, 0);
        assert_int_equal(reserved(), 256);
        if (i < 2) peer_give(4);
    }
    assert_float_equal(at(5, 64, 0), 96, 0); /* of two old holes the later one still serves first */
    peer_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_comes_in_pages_of_32_mib),
        cmocka_unit_test(pages_have_the_size_of_the_option),
        cmocka_unit_test(calls_take_as_long_as_warm_ones_did),
        cmocka_unit_test(holes_are_filled_as_the_driver_fills_them),
        cmocka_unit_test(pages_are_moved_from_under_holes_to_where_they_are_needed),
        cmocka_unit_test(memory_beyond_the_threshold_is_given_back),
        cmocka_unit_test(no_more_than_the_threshold_is_kept),
        cmocka_unit_test(a_hole_keeps_its_age_when_its_memory_is_moved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
