#include "pool/address.h"

#include "base/meta.h"
#include "base/size.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

/* Addresses are only keys here: nothing is touched. */
static char *at(uintptr_t address)
{
    return (char *)address;
}

static const uintptr_t START = (uintptr_t)0x7f1200000000;

static int release(void **state)
{
    (void)state;
    wr_address_release();
    assert_int_equal(wr_meta_live(), 0);
    return 0;
}

static void unknown_addresses_have_no_owner(void **state)
{
    (void)state;
    assert_null(wr_address_find(NULL));
    assert_null(wr_address_find(at(START)));
    assert_null(wr_address_find(at(UINTPTR_MAX)));
    assert_null(wr_address_find(at((uintptr_t)1 << 48)));
}

static void every_byte_of_a_range_leads_to_its_owner(void **state)
{
    (void)state;
    int owner;
    assert_int_equal(wr_address_insert(at(START), 6 * WR_MIB, &owner), WEIR_OK);
    assert_ptr_equal(wr_address_find(at(START)), &owner);
    assert_ptr_equal(wr_address_find(at(START + 3 * WR_MIB)), &owner);
    assert_ptr_equal(wr_address_find(at(START + 6 * WR_MIB - 1)), &owner);
    assert_null(wr_address_find(at(START - 1)));
    assert_null(wr_address_find(at(START + 6 * WR_MIB)));
}

static void neighbours_are_kept_apart(void **state)
{
    (void)state;
    int low, high;
    assert_int_equal(wr_address_insert(at(START), 2 * WR_MIB, &low), WEIR_OK);
    assert_int_equal(wr_address_insert(at(START + 2 * WR_MIB), 2 * WR_MIB, &high), WEIR_OK);
    assert_ptr_equal(wr_address_find(at(START + 2 * WR_MIB - 1)), &low);
    assert_ptr_equal(wr_address_find(at(START + 2 * WR_MIB)), &high);
    wr_address_remove(at(START), 2 * WR_MIB);
    assert_null(wr_address_find(at(START)));
    assert_ptr_equal(wr_address_find(at(START + 2 * WR_MIB)), &high);
}

static void a_range_across_table_borders_is_whole(void **state)
{
    (void)state;
    int owner;
    uintptr_t start = (uintptr_t)0x7f0400000000 - 4 * WR_MIB; /* a leaf covers 16 GiB */
    assert_int_equal(wr_address_insert(at(start), 40 * WR_GIB, &owner), WEIR_OK);
    for (uint64_t offset = 0; offset < 40 * WR_GIB; offset += 2 * WR_MIB)
        assert_ptr_equal(wr_address_find(at(start + offset)), &owner);
    wr_address_remove(at(start), 40 * WR_GIB);
    assert_null(wr_address_find(at(start)));
    assert_null(wr_address_find(at(start + 40 * WR_GIB - 1)));
}

static void the_ends_of_the_address_space_work(void **state)
{
    (void)state;
    int first, last;
    uintptr_t end = ((uintptr_t)1 << 48) - 2 * WR_MIB;
    assert_int_equal(wr_address_insert(at(2 * WR_MIB), 2 * WR_MIB, &first), WEIR_OK);
    assert_int_equal(wr_address_insert(at(end), 2 * WR_MIB, &last), WEIR_ERR_DRIVER); /* ends beyond 48 bits */
    assert_int_equal(wr_address_insert(at(end - 2 * WR_MIB), 2 * WR_MIB, &last), WEIR_OK);
    assert_ptr_equal(wr_address_find(at(2 * WR_MIB)), &first);
    assert_ptr_equal(wr_address_find(at(end - 1)), &last);
}

static void sizes_that_are_not_whole_pages_are_refused(void **state)
{
    (void)state;
    int owner;
    assert_int_equal(wr_address_insert(at(START), 2 * WR_MIB + 512, &owner), WEIR_ERR_DRIVER);
    assert_int_equal(wr_address_insert(at(START), 0, &owner), WEIR_ERR_DRIVER);
    assert_int_equal(wr_address_insert(at(UINTPTR_MAX - WR_MIB), 2 * WR_MIB, &owner), WEIR_ERR_DRIVER);
    assert_null(wr_address_find(at(START)));
}

/* ---- ranges that begin and end inside pages ---------------------------------------------------------------------- */

static void a_range_may_begin_anywhere(void **state)
{
    (void)state;
    int owner;
    for (uintptr_t from = START + 512; from < START + 2 * WR_MIB; from += 300 * 512) {
        assert_int_equal(wr_address_insert(at(from), 6 * WR_MIB, &owner), WEIR_OK);
        assert_null(wr_address_find(at(START)));
        assert_null(wr_address_find(at(from - 1)));
        assert_ptr_equal(wr_address_find(at(from)), &owner);
        assert_ptr_equal(wr_address_find(at(from + 3 * WR_MIB)), &owner);
        assert_ptr_equal(wr_address_find(at(from + 6 * WR_MIB - 1)), &owner);
        assert_null(wr_address_find(at(from + 6 * WR_MIB)));
        wr_address_remove(at(from), 6 * WR_MIB);
        assert_null(wr_address_find(at(from)));
        assert_null(wr_address_find(at(from + 6 * WR_MIB - 1)));
    }
}

static void two_ranges_share_the_page_between_them(void **state)
{
    (void)state;
    int low, high;
    const uintptr_t border = START + 2 * WR_MIB + 4096;
    assert_int_equal(wr_address_insert(at(border - 2 * WR_MIB), 2 * WR_MIB, &low), WEIR_OK);
    assert_int_equal(wr_address_insert(at(border + 512), 2 * WR_MIB, &high), WEIR_OK);
    assert_ptr_equal(wr_address_find(at(border - 1)), &low);
    assert_null(wr_address_find(at(border)));
    assert_null(wr_address_find(at(border + 511)));
    assert_ptr_equal(wr_address_find(at(border + 512)), &high);
    wr_address_remove(at(border - 2 * WR_MIB), 2 * WR_MIB);
    assert_null(wr_address_find(at(border - 1)));
    assert_ptr_equal(wr_address_find(at(border + 512)), &high);
    assert_int_equal(wr_address_insert(at(border - 2 * WR_MIB + 512), 2 * WR_MIB, &low), WEIR_OK); /* up to the other */
    assert_ptr_equal(wr_address_find(at(border + 511)), &low);
    wr_address_remove(at(border + 512), 2 * WR_MIB);
    assert_ptr_equal(wr_address_find(at(border + 511)), &low);
    assert_null(wr_address_find(at(border + 512)));
}

static void a_page_that_was_shared_can_be_whole_again(void **state)
{
    (void)state;
    int parts, whole;
    assert_int_equal(wr_address_insert(at(START + 512), 2 * WR_MIB, &parts), WEIR_OK);
    wr_address_remove(at(START + 512), 2 * WR_MIB);
    assert_int_equal(wr_address_insert(at(START), 2 * WR_MIB, &whole), WEIR_OK);
    assert_ptr_equal(wr_address_find(at(START + 512)), &whole);
    wr_address_remove(at(START), 2 * WR_MIB);
    assert_int_equal(wr_address_insert(at(START + 1024), 2 * WR_MIB, &parts), WEIR_OK);
    assert_null(wr_address_find(at(START + 512)));
    assert_ptr_equal(wr_address_find(at(START + 1024)), &parts);
}

static void parts_at_a_table_border_are_found(void **state)
{
    (void)state;
    int owner;
    uintptr_t start = (uintptr_t)0x7f0400000000 - WR_MIB; /* a leaf covers 16 GiB */
    assert_int_equal(wr_address_insert(at(start), 2 * WR_MIB, &owner), WEIR_OK);
    assert_ptr_equal(wr_address_find(at(start)), &owner);
    assert_ptr_equal(wr_address_find(at(start + 2 * WR_MIB - 1)), &owner);
    assert_null(wr_address_find(at(start - 1)));
    assert_null(wr_address_find(at(start + 2 * WR_MIB)));
}

/* Memory that a source gives twice would put one block inside another. */
static void memory_that_is_owned_already_is_refused(void **state)
{
    (void)state;
    int owner, other;
    const uintptr_t start = START + 4096;
    assert_int_equal(wr_address_insert(at(start), 4 * WR_MIB, &owner), WEIR_OK);
    const uintptr_t overlapping[] = { start,
                                      start + 512,
                                      start - 512,
                                      start + 2 * WR_MIB,
                                      START + 2 * WR_MIB,
                                      START + 4 * WR_MIB,
                                      START,
                                      start + 4 * WR_MIB - 512,
                                      start - 2 * WR_MIB + 512 };
    for (size_t i = 0; i < sizeof overlapping / sizeof overlapping[0]; i++)
        assert_int_equal(wr_address_insert(at(overlapping[i]), 2 * WR_MIB, &other), WEIR_ERR_DRIVER);
    assert_int_equal(wr_address_insert(at(start - 2 * WR_MIB), 2 * WR_MIB, &other), WEIR_OK);
    assert_int_equal(wr_address_insert(at(start + 4 * WR_MIB), 2 * WR_MIB, &other), WEIR_OK);
    assert_ptr_equal(wr_address_find(at(start)), &owner);
    assert_ptr_equal(wr_address_find(at(start + 4 * WR_MIB - 1)), &owner);
}

static void without_memory_for_shared_pages_nothing_is_mapped(void **state)
{
    (void)state;
    int owner;
    wr_meta_fail_nth(2);
    assert_int_equal(wr_address_insert(at(START + 512), 2 * WR_MIB, &owner), WEIR_ERR_OUT_OF_HOST_MEMORY);
    wr_meta_fail_nth(0);
    assert_null(wr_address_find(at(START + 512)));
    assert_null(wr_address_find(at(START + 2 * WR_MIB)));
}

static void a_range_that_moves_needs_no_new_table(void **state)
{
    (void)state;
    int owner;
    assert_int_equal(wr_address_insert(at(START + 512), 2 * WR_MIB, &owner), WEIR_OK);
    const uint64_t records = wr_meta_live();
    for (uintptr_t i = 1; i < 3000; i++) {
        wr_address_remove(at(START + 512 * i), 2 * WR_MIB);
        wr_meta_fail_nth(1);
        assert_int_equal(wr_address_insert(at(START + 512 * (i + 1)), 2 * WR_MIB, &owner), WEIR_OK);
        wr_meta_fail_nth(0);
    }
    assert_int_equal(wr_meta_live(), records);
}

static void without_memory_for_tables_nothing_is_mapped(void **state)
{
    (void)state;
    int owner;
    uintptr_t start = (uintptr_t)0x7f0400000000 - 2 * WR_MIB;
    wr_meta_fail_nth(2);
    assert_int_equal(wr_address_insert(at(start), 4 * WR_MIB, &owner), WEIR_ERR_OUT_OF_HOST_MEMORY);
    wr_meta_fail_nth(0);
    assert_null(wr_address_find(at(start)));
    assert_null(wr_address_find(at(start + 2 * WR_MIB)));
}

#define WRITERS 4
#define ROUNDS 2000

static void *insert_and_remove(void *argument)
{
    uintptr_t number = (uintptr_t)argument;
    uintptr_t start = START + number * 4 * WR_GIB;
    for (int i = 0; i < ROUNDS; i++) {
        if (wr_address_insert(at(start), 4 * WR_MIB, argument) != WEIR_OK) return argument;
        if (wr_address_find(at(start + 3 * WR_MIB)) != argument) return argument;
        wr_address_remove(at(start), 4 * WR_MIB);
        if (wr_address_find(at(start)) != NULL) return argument;
    }
    return NULL;
}

static void threads_do_not_disturb_each_other(void **state)
{
    (void)state;
    pthread_t threads[WRITERS];
    for (uintptr_t i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, insert_and_remove, (void *)(i + 1)), 0);
    for (int i = 0; i < WRITERS; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}

/* Neighbours in a row: each shares the pages at its ends with the next ones, which come and go all the time. */
static void *insert_and_remove_in_a_row(void *argument)
{
    uintptr_t number = (uintptr_t)argument;
    uintptr_t start = START + 4096 + number * 2 * WR_MIB;
    for (int i = 0; i < ROUNDS; i++) {
        if (wr_address_insert(at(start), 2 * WR_MIB, argument) != WEIR_OK) return argument;
        for (uintptr_t offset = 0; offset < 2 * WR_MIB; offset += 2 * WR_MIB - 512)
            if (wr_address_find(at(start + offset)) != argument) return argument;
        (void)wr_address_find(at(start - 1)); /* the neighbour's, or free by now */
        (void)wr_address_find(at(start + 2 * WR_MIB));
        wr_address_remove(at(start), 2 * WR_MIB);
        if (wr_address_find(at(start)) != NULL || wr_address_find(at(start + 2 * WR_MIB - 1)) != NULL) return argument;
    }
    return NULL;
}

static void neighbours_do_not_disturb_each_other(void **state)
{
    (void)state;
    pthread_t threads[WRITERS];
    for (uintptr_t i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, insert_and_remove_in_a_row, (void *)(i + 1)), 0);
    for (int i = 0; i < WRITERS; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(unknown_addresses_have_no_owner, release),
        cmocka_unit_test_teardown(every_byte_of_a_range_leads_to_its_owner, release),
        cmocka_unit_test_teardown(neighbours_are_kept_apart, release),
        cmocka_unit_test_teardown(a_range_across_table_borders_is_whole, release),
        cmocka_unit_test_teardown(the_ends_of_the_address_space_work, release),
        cmocka_unit_test_teardown(sizes_that_are_not_whole_pages_are_refused, release),
        cmocka_unit_test_teardown(without_memory_for_tables_nothing_is_mapped, release),
        cmocka_unit_test_teardown(a_range_may_begin_anywhere, release),
        cmocka_unit_test_teardown(two_ranges_share_the_page_between_them, release),
        cmocka_unit_test_teardown(a_page_that_was_shared_can_be_whole_again, release),
        cmocka_unit_test_teardown(parts_at_a_table_border_are_found, release),
        cmocka_unit_test_teardown(memory_that_is_owned_already_is_refused, release),
        cmocka_unit_test_teardown(without_memory_for_shared_pages_nothing_is_mapped, release),
        cmocka_unit_test_teardown(a_range_that_moves_needs_no_new_table, release),
        cmocka_unit_test_teardown(neighbours_do_not_disturb_each_other, release),
        cmocka_unit_test_teardown(threads_do_not_disturb_each_other, release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
