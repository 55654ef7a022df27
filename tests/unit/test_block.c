#include "pool/bin.h"
#include "pool/cut.h"
#include "pool/starts.h"

#include "base/hash.h"
#include "base/size.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

/* A segment of 2 MiB with 512-byte blocks at an address that is never touched. */
#define SEGMENT_BYTES (2 * WR_MIB)

typedef struct fixture {
    wr_cache cache;
    wr_mempool pool;
    wr_bin bin;
    wr_segment segment;
    wr_block whole;
} fixture;

static fixture f;

static int set_up(void **state)
{
    (void)state;
    memset(&f, 0, sizeof f);
    f.bin.pool = &f.pool;
    assert_int_equal(wr_starts_reserve(&f.cache, 16), WEIR_OK);
    f.segment = (wr_segment){ .cache = &f.cache,
                              .base = (char *)(uintptr_t)0x7f0000000000,
                              .bytes = SEGMENT_BYTES,
                              .order = 0x7f0000000000,
                              .bin = &f.bin,
                              .first = &f.whole,
                              .blocks = 1 };
    assert_int_equal(wr_record_pages(&f.cache, SEGMENT_BYTES, &f.segment.pages), WEIR_OK);
    f.whole = (wr_block){ .base = f.segment.base, .bytes = SEGMENT_BYTES, .segment = &f.segment };
    wr_starts_add(&f.whole);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    wr_records_release(&f.cache);
    return 0;
}

static wr_block block(size_t offset, size_t bytes)
{
    return (wr_block){ .base = f.segment.base + offset, .bytes = bytes, .segment = &f.segment };
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

static void best_fit_gives_the_lowest_of_equal_sizes_where_they_are_in_order(void **state)
{
    (void)state;
    wr_block low = block(4096, 1024), middle = block(8192, 1024), high = block(16384, 1024);
    f.bin.free.by_order = true;
    wr_bin_insert(&f.bin, &middle);
    wr_bin_insert(&f.bin, &high);
    wr_bin_insert(&f.bin, &low);
    assert_ptr_equal(wr_bin_best_fit(&f.bin, 1024), &low);
    wr_bin_remove(&f.bin, &low);
    assert_ptr_equal(wr_bin_best_fit(&f.bin, 1024), &middle);
    assert_ptr_equal(wr_bin_larger(&f.bin, &middle), &high);
}

static void best_fit_gives_the_last_freed_of_equal_sizes_elsewhere(void **state)
{
    (void)state;
    wr_block first = block(4096, 1024), second = block(16384, 1024), third = block(8192, 1024);
    wr_bin_insert(&f.bin, &first);
    wr_bin_insert(&f.bin, &second);
    wr_bin_insert(&f.bin, &third);
    assert_ptr_equal(wr_bin_best_fit(&f.bin, 1024), &third);
    assert_ptr_equal(wr_bin_best_fit(&f.bin, 512), &third);
    wr_bin_remove(&f.bin, &third);
    assert_ptr_equal(wr_bin_best_fit(&f.bin, 1024), &second);
}

/* The smallest block that fits, found by looking at each. */
static size_t smallest_of(const wr_block *blocks, const bool *in_bin, size_t count, size_t bytes)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < count; i++)
        if (in_bin[i] && blocks[i].bytes >= bytes && blocks[i].bytes < best) best = blocks[i].bytes;
    return best;
}

static size_t largest_of(const wr_block *blocks, const bool *in_bin, size_t count)
{
    size_t largest = 0;
    for (size_t i = 0; i < count; i++)
        if (in_bin[i] && blocks[i].bytes > largest) largest = blocks[i].bytes;
    return largest;
}

/* Few sizes, several in one range of the bin, so that blocks come and go beside each other, the range's first block
 * included. */
static void a_bin_keeps_its_blocks_whatever_else_is_removed(void **state)
{
    enum { BLOCKS = 60, STEPS = 20000 };
    static const size_t sizes[] = { 512, 1024, 65536, 65536 + 512, 65536 + 1024, 65536 + 1536, 300 * WR_KIB };
    static const size_t count_of_sizes = sizeof sizes / sizeof *sizes;
    static wr_block blocks[BLOCKS];
    bool in_bin[BLOCKS] = { false };
    uint64_t random = 1;
    size_t expected = 0;
    (void)state;
    for (size_t i = 0; i < BLOCKS; i++) blocks[i] = block(i * WR_MIB, sizes[i % count_of_sizes]);
    for (int step = 0; step < STEPS; step++) {
        random = wr_hash_add(random, 1);
        const size_t i = (size_t)(random >> 32) % BLOCKS;
        in_bin[i] ? wr_bin_remove(&f.bin, &blocks[i]) : wr_bin_insert(&f.bin, &blocks[i]);
        expected += in_bin[i] ? (size_t)-1 : 1;
        in_bin[i] = !in_bin[i];
        size_t seen = 0, before = 0;
        for (wr_block *b = wr_bin_smallest(&f.bin); b; b = wr_bin_larger(&f.bin, b), seen++) {
            assert_true(in_bin[b - blocks] && b->bytes >= before && seen < expected);
            before = b->bytes;
        }
        assert_int_equal(seen, expected);
        for (wr_block *b = wr_bin_largest(&f.bin); b; b = wr_bin_smaller(&f.bin, b), seen--) {
            assert_true(in_bin[b - blocks] && b->bytes <= before && seen > 0);
            before = b->bytes;
        }
        assert_int_equal(seen, 0);
        const size_t asked = sizes[(size_t)(random >> 16) % count_of_sizes];
        const wr_block *best = wr_bin_best_fit(&f.bin, asked), *largest = wr_bin_largest(&f.bin);
        assert_int_equal(best ? best->bytes : SIZE_MAX, smallest_of(blocks, in_bin, BLOCKS, asked));
        assert_int_equal(largest ? largest->bytes : 0, largest_of(blocks, in_bin, BLOCKS));
    }
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
    for (size_t at = 512; at < SEGMENT_BYTES; at += 512) assert_null(wr_starts_find(&f.segment, f.segment.base + at));
    assert_ptr_equal(wr_starts_find(&f.segment, f.segment.base), &f.whole);
}

static void every_address_finds_its_block(void **state)
{
    (void)state;
    wr_block middle, last;
    wr_block_split(&f.whole, 512, &middle);
    wr_block_split(&middle, 64 * WR_KIB, &last);
    for (size_t at = 0; at < SEGMENT_BYTES; at += 256) {
        const wr_block *expected = at < 512 ? &f.whole : at < 512 + 64 * WR_KIB ? &middle : &last;
        assert_ptr_equal(wr_starts_block_at(&f.segment, f.segment.base + at), expected);
    }
    assert_ptr_equal(wr_starts_block_at(&f.segment, f.segment.base + SEGMENT_BYTES - 1), &last);
}

/* A table with many starts: each is still found after others were removed. */
static void starts_are_found_whatever_was_removed(void **state)
{
    enum { BLOCKS = 4096 };
    static wr_block rest[BLOCKS];
    (void)state;
    assert_int_equal(wr_starts_reserve(&f.cache, BLOCKS), WEIR_OK);
    for (size_t i = BLOCKS; i-- > 1;) wr_block_split(&f.whole, i * 512, &rest[i]);
    for (size_t i = 2; i < BLOCKS; i += 2) wr_block_absorb_next(&rest[i - 1]);
    for (size_t i = 1; i < BLOCKS; i++) {
        wr_block *expected = i % 2 ? &rest[i] : NULL;
        assert_ptr_equal(wr_starts_find(&f.segment, f.segment.base + i * 512), expected);
        assert_ptr_equal(wr_starts_block_at(&f.segment, f.segment.base + i * 512), i % 2 ? &rest[i] : &rest[i - 1]);
    }
}

/* Of all records at one place of the table only the one with the right tag is read: here all the others claim to be
 * that start. */
static void records_of_other_starts_are_not_looked_at(void **state)
{
    enum { BLOCKS = 4096 };
    static wr_block rest[BLOCKS];
    char *bases[BLOCKS];
    (void)state;
    for (size_t i = BLOCKS; i-- > 1;) wr_block_split(&f.whole, i * 512, &rest[i]);
    for (size_t i = 1; i < BLOCKS; i++) bases[i] = rest[i].base;
    for (size_t sought = 1; sought < BLOCKS; sought += 97) {
        for (size_t i = 1; i < BLOCKS; i++) rest[i].base = bases[sought];
        assert_ptr_equal(wr_starts_find(&f.segment, bases[sought]), &rest[sought]);
    }
    for (size_t i = 1; i < BLOCKS; i++) rest[i].base = bases[i];
}

/* A segment of many pages, in most of which no block begins. */
static void an_address_far_behind_a_start_finds_its_block(void **state)
{
    enum { PAGES = 1000 };
    wr_block rest, last;
    (void)state;
    f.segment.bytes = f.whole.bytes = PAGES * SEGMENT_BYTES;
    wr_starts_remove(&f.whole);
    assert_int_equal(wr_record_pages(&f.cache, f.segment.bytes, &f.segment.pages), WEIR_OK);
    wr_starts_add(&f.whole);
    wr_block_split(&f.whole, 3 * SEGMENT_BYTES + 512, &rest);
    wr_block_split(&rest, 900 * SEGMENT_BYTES, &last);
    assert_ptr_equal(wr_starts_block_at(&f.segment, f.segment.base + 3 * SEGMENT_BYTES), &f.whole);
    assert_ptr_equal(wr_starts_block_at(&f.segment, rest.base + 899 * SEGMENT_BYTES), &rest);
    assert_ptr_equal(wr_starts_block_at(&f.segment, last.base - 1), &rest);
    assert_ptr_equal(wr_starts_block_at(&f.segment, f.segment.base + f.segment.bytes - 1), &last);
}

static void sizes_of_all_ranges_are_in_order(void **state)
{
    static wr_block blocks[600];
    size_t count = 0;
    (void)state;
    for (unsigned log2 = 9; log2 < 36; log2++)
        for (size_t step = 16; step < 32; step += 3, count++)
            blocks[count] = block(count * 512, ((size_t)1 << log2) / 16 * step + 512 * (log2 > 14));
    for (size_t i = count; i-- > 0;) wr_bin_insert(&f.bin, &blocks[i]);
    size_t seen = 0;
    const wr_block *before = NULL;
    for (wr_block *b = wr_bin_smallest(&f.bin); b; b = wr_bin_larger(&f.bin, b), seen++) {
        assert_true(!before || before->bytes <= b->bytes);
        assert_ptr_equal(wr_bin_best_fit(&f.bin, b->bytes), b);
        before = b;
    }
    assert_int_equal(seen, count);
    for (size_t i = 0; i < count; i++) wr_bin_remove(&f.bin, &blocks[i]);
    assert_null(wr_bin_smallest(&f.bin));
    assert_null(wr_bin_best_fit(&f.bin, 512));
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
        cmocka_unit_test_setup_teardown(best_fit_gives_the_smallest_that_is_large_enough, set_up, tear_down),
        cmocka_unit_test_setup_teardown(best_fit_gives_the_lowest_of_equal_sizes_where_they_are_in_order, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(best_fit_gives_the_last_freed_of_equal_sizes_elsewhere, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_bin_keeps_its_blocks_whatever_else_is_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_largest_of_a_bin_is_known, set_up, tear_down),
        cmocka_unit_test_setup_teardown(splitting_makes_neighbours_that_fill_the_block, set_up, tear_down),
        cmocka_unit_test_setup_teardown(splitting_in_the_middle_links_both_sides, set_up, tear_down),
        cmocka_unit_test_setup_teardown(absorbing_undoes_a_split, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_address_finds_its_block, set_up, tear_down),
        cmocka_unit_test_setup_teardown(starts_are_found_whatever_was_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(records_of_other_starts_are_not_looked_at, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_address_far_behind_a_start_finds_its_block, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sizes_of_all_ranges_are_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_segment_is_idle_when_it_is_one_free_block, set_up, tear_down),
        cmocka_unit_test_setup_teardown(segments_leave_a_bin_from_any_place, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
