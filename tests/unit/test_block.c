#include "pool/block.h"

#include "base/size.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

/* A segment of 2 MiB with 512-byte blocks at an address that is never touched. */
#define SEGMENT_BYTES (2 * WR_MIB)
#define LOG2_STARTS 12

typedef struct fixture {
    wr_bin bin;
    wr_segment segment;
    wr_block whole;
    uint32_t in_page[1];
    _Alignas(wr_starts) char starts[sizeof(wr_starts) + ((size_t)8 << LOG2_STARTS)];
} fixture;

static fixture f;

static int set_up(void **state)
{
    (void)state;
    memset(&f, 0, sizeof f);
    f.segment = (wr_segment){ .base = (char *)(uintptr_t)0x7f0000000000,
                              .bytes = SEGMENT_BYTES,
                              .bin = &f.bin,
                              .first = &f.whole,
                              .starts = (wr_starts *)f.starts,
                              .start_shift = 9,
                              .blocks = 1 };
    f.whole = (wr_block){
        .base = f.segment.base, .bytes = SEGMENT_BYTES, .order = (uintptr_t)f.segment.base, .segment = &f.segment
    };
    f.segment.starts->log2 = LOG2_STARTS;
    f.segment.starts->in_page = f.in_page;
    wr_segment_set_start(&f.segment, &f.whole, &f.whole);
    return 0;
}

static wr_block block(size_t offset, size_t bytes)
{
    return (wr_block){ .base = f.segment.base + offset,
                       .bytes = bytes,
                       .order = (uintptr_t)f.segment.base + offset,
                       .segment = &f.segment };
}

static void best_fit_gives_the_smallest_that_is_large_enough(void **state)
{
    (void)state;
    wr_block small = block(0, 1024), middle = block(4096, 2048), large = block(8192, 4096);
    wr_bin_insert(&f.bin, &large);
    wr_bin_insert(&f.bin, &small);
    wr_bin_insert(&f.bin, &middle);
    assert_ptr_equal(wr_bin_best_fit(&f.bin, 512), &small);
    assert_ptr_equal(wr_bin_best_fit(&f.bin, 1024), &small);
    assert_ptr_equal(wr_bin_best_fit(&f.bin, 1025), &middle);
    assert_ptr_equal(wr_bin_best_fit(&f.bin, 4096), &large);
    assert_null(wr_bin_best_fit(&f.bin, 4097));
}

static void best_fit_gives_the_lowest_address_of_equal_sizes(void **state)
{
    (void)state;
    wr_block low = block(4096, 1024), middle = block(8192, 1024), high = block(16384, 1024);
    wr_bin_insert(&f.bin, &middle);
    wr_bin_insert(&f.bin, &high);
    wr_bin_insert(&f.bin, &low);
    assert_ptr_equal(wr_bin_best_fit(&f.bin, 1024), &low);
    wr_bin_remove(&f.bin, &low);
    assert_ptr_equal(wr_bin_best_fit(&f.bin, 1024), &middle);
}

static void the_largest_of_a_bin_is_known(void **state)
{
    (void)state;
    assert_null(wr_bin_largest(&f.bin));
    wr_block small = block(0, 1024), large = block(4096, 8192);
    wr_bin_insert(&f.bin, &large);
    wr_bin_insert(&f.bin, &small);
    assert_ptr_equal(wr_bin_largest(&f.bin), &large);
}

static void splitting_makes_neighbours_that_fill_the_block(void **state)
{
    (void)state;
    wr_block rest;
    wr_block_split(&f.whole, 1536, &rest);
    assert_int_equal(f.whole.bytes, 1536);
    assert_ptr_equal(rest.base, f.segment.base + 1536);
    assert_int_equal(rest.bytes, SEGMENT_BYTES - 1536);
    assert_int_equal(rest.state, WR_BLOCK_FREE);
    assert_ptr_equal(f.whole.next, &rest);
    assert_ptr_equal(rest.prev, &f.whole);
    assert_null(rest.next);
    assert_int_equal(f.segment.blocks, 2);
}

static void splitting_in_the_middle_links_both_sides(void **state)
{
    (void)state;
    wr_block middle, last;
    wr_block_split(&f.whole, 1024, &last);
    wr_block_split(&f.whole, 512, &middle);
    assert_ptr_equal(f.whole.next, &middle);
    assert_ptr_equal(middle.next, &last);
    assert_ptr_equal(last.prev, &middle);
    assert_int_equal(f.segment.blocks, 3);
}

static void absorbing_undoes_a_split(void **state)
{
    (void)state;
    wr_block middle, last;
    wr_block_split(&f.whole, 1024, &last);
    wr_block_split(&f.whole, 512, &middle);
    wr_block_absorb_next(&f.whole);
    assert_int_equal(f.whole.bytes, 1024);
    assert_ptr_equal(f.whole.next, &last);
    assert_ptr_equal(last.prev, &f.whole);
    wr_block_absorb_next(&f.whole);
    assert_int_equal(f.whole.bytes, SEGMENT_BYTES);
    assert_null(f.whole.next);
    assert_int_equal(f.segment.blocks, 1);
    for (size_t i = 1; i < SEGMENT_BYTES / 512; i++) assert_null(f.segment.starts->at[i]);
}

static void every_address_finds_its_block(void **state)
{
    (void)state;
    wr_block middle, last;
    wr_block_split(&f.whole, 512, &middle);
    wr_block_split(&middle, 64 * WR_KIB, &last);
    for (size_t at = 0; at < SEGMENT_BYTES; at += 256) {
        const wr_block *expected = at < 512 ? &f.whole : at < 512 + 64 * WR_KIB ? &middle : &last;
        assert_ptr_equal(wr_segment_block_at(&f.segment, f.segment.base + at), expected);
    }
    assert_ptr_equal(wr_segment_block_at(&f.segment, f.segment.base + SEGMENT_BYTES - 1), &last);
}

/* Large blocks need not begin at a multiple of the index's step. */
static void an_address_before_a_start_in_the_same_slot_finds_the_block_before(void **state)
{
    (void)state;
    wr_block rest;
    f.segment.start_shift = 16;
    wr_block_split(&f.whole, 3 * 64 * WR_KIB + 512, &rest);
    assert_ptr_equal(wr_segment_block_at(&f.segment, rest.base), &rest);
    assert_ptr_equal(wr_segment_block_at(&f.segment, rest.base - 1), &f.whole);
    assert_ptr_equal(wr_segment_block_at(&f.segment, f.segment.base + 3 * 64 * WR_KIB), &f.whole);
}

static void a_segment_is_idle_when_it_is_one_free_block(void **state)
{
    (void)state;
    assert_true(wr_segment_idle(&f.segment));
    f.whole.state = WR_BLOCK_LIVE;
    assert_false(wr_segment_idle(&f.segment));
    f.whole.state = WR_BLOCK_PENDING;
    assert_false(wr_segment_idle(&f.segment));
    f.whole.state = WR_BLOCK_FREE;
    wr_block rest;
    wr_block_split(&f.whole, 512, &rest);
    assert_false(wr_segment_idle(&f.segment));
}

static void segments_leave_a_bin_from_any_place(void **state)
{
    (void)state;
    wr_segment s[3] = { { 0 } };
    for (int i = 0; i < 3; i++) wr_bin_add_segment(&f.bin, &s[i]);
    assert_ptr_equal(f.bin.segments, &s[2]);
    wr_bin_drop_segment(&f.bin, &s[1]);
    assert_ptr_equal(s[2].next, &s[0]);
    assert_ptr_equal(s[0].prev, &s[2]);
    wr_bin_drop_segment(&f.bin, &s[2]);
    assert_ptr_equal(f.bin.segments, &s[0]);
    assert_null(s[0].prev);
    wr_bin_drop_segment(&f.bin, &s[0]);
    assert_null(f.bin.segments);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(best_fit_gives_the_smallest_that_is_large_enough, set_up),
        cmocka_unit_test_setup(best_fit_gives_the_lowest_address_of_equal_sizes, set_up),
        cmocka_unit_test_setup(the_largest_of_a_bin_is_known, set_up),
        cmocka_unit_test_setup(splitting_makes_neighbours_that_fill_the_block, set_up),
        cmocka_unit_test_setup(splitting_in_the_middle_links_both_sides, set_up),
        cmocka_unit_test_setup(absorbing_undoes_a_split, set_up),
        cmocka_unit_test_setup(every_address_finds_its_block, set_up),
        cmocka_unit_test_setup(an_address_before_a_start_in_the_same_slot_finds_the_block_before, set_up),
        cmocka_unit_test_setup(a_segment_is_idle_when_it_is_one_free_block, set_up),
        cmocka_unit_test_setup(segments_leave_a_bin_from_any_place, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
