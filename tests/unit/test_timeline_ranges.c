#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "random_support.h"
#include "ranges.h"

enum { UNITS = 64, NOBODY = 0 };

/* The range that holds each unit on device 1; 0: none. */
static void expect(const ranges *r, const uint32_t owner[UNITS])
{
    size_t met = 0;
    uint64_t end = 0;
    for (range *at = ranges_find(r, 1, 0); at && at->device == 1; at = ranges_next(at)) {
        assert_true(at->address >= end && at->bytes > 0);
        end = at->address + at->bytes;
        for (uint64_t unit = at->address; unit < end; unit++, met++) assert_int_equal(owner[unit], at->number);
    }
    for (size_t unit = 0; unit < UNITS; unit++) {
        const range *at = ranges_at(r, 1, unit);
        assert_int_equal(at ? at->number : NOBODY, owner[unit]);
        met -= owner[unit] != NOBODY;
    }
    assert_int_equal(met, 0);
}

static void ranges_are_those_added_and_not_cut(void **state)
{
    (void)state;
    uint32_t random = 5, owner[UNITS] = { NOBODY };
    ranges r = { 0 };
    ranges_add(&r, (range){ .address = 3, .bytes = 9, .number = 7, .device = 0 });
    ranges_add(&r, (range){ .address = 3, .bytes = 9, .number = 8, .device = 2 });
    for (uint32_t round = 1; round < 4000; round++) {
        const uint64_t first = next_random(&random) % UNITS, bytes = next_random(&random) % (UNITS - first + 1) / 4;
        uint64_t taken = 0;
        for (uint64_t unit = first; unit < first + bytes; unit++) {
            taken += owner[unit] != NOBODY;
            owner[unit] = round % 3 ? round : NOBODY;
        }
        assert_int_equal(ranges_cut(&r, 1, first, bytes, NULL, NULL), taken);
        if (round % 3) ranges_add(&r, (range){ .address = first, .bytes = bytes, .number = round, .device = 1 });
        expect(&r, owner);
    }
    assert_int_equal(ranges_first(&r)->number, 7);
    assert_int_equal(ranges_find(&r, 1, UNITS)->number, 8);
    assert_null(ranges_find(&r, 2, 12));
    ranges_release(&r);
    assert_int_equal(r.count, 0);
}

static void keep_right(void *user, const range *old, range *left, range *right)
{
    (void)user;
    assert_int_equal(old->number, 1);
    assert_int_equal(left->bytes, 10);
    left->bytes = 0;
    right->number = 2;
}

static void the_caller_of_a_cut_chooses_what_remains(void **state)
{
    (void)state;
    ranges r = { 0 };
    ranges_add(&r, (range){ .address = 100, .bytes = 30, .number = 1 });
    assert_int_equal(ranges_cut(&r, 0, 110, 10, keep_right, NULL), 10);
    assert_int_equal(r.count, 1);
    assert_int_equal(ranges_first(&r)->address, 120);
    assert_int_equal(ranges_first(&r)->number, 2);
    ranges_release(&r);
}

static void bytes_past_the_last_address_are_dropped(void **state)
{
    (void)state;
    ranges r = { 0 };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ranges_cut(&r, 0, UINT64_MAX, 4096, NULL, NULL), 0);
        ranges_add(&r, (range){ .address = UINT64_MAX, .bytes = 4096 });
        ranges_add(&r, (range){ .address = 4096, .bytes = 0 });
    }
    assert_null(ranges_first(&r));
    ranges_add(&r, (range){ .address = UINT64_MAX - 1, .bytes = 4096 });
    assert_non_null(ranges_at(&r, 0, UINT64_MAX - 1));
    ranges_release(&r);
}

/* In a sorted array each would move all earlier ones, beyond the test's time limit. */
static void a_million_ranges_at_falling_addresses_take_no_quadratic_time(void **state)
{
    (void)state;
    ranges r = { 0 };
    for (uint64_t i = 1000000; i > 0; i--) ranges_add(&r, (range){ .address = i * 4096, .bytes = 4096 });
    for (uint64_t i = 1; i <= 1000000; i++) assert_int_equal(ranges_cut(&r, 0, i * 4096, 4096, NULL, NULL), 4096);
    assert_int_equal(r.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_those_added_and_not_cut),
        cmocka_unit_test(the_caller_of_a_cut_chooses_what_remains),
        cmocka_unit_test(bytes_past_the_last_address_are_dropped),
        cmocka_unit_test(a_million_ranges_at_falling_addresses_take_no_quadratic_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
