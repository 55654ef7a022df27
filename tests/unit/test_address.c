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

static void unknown_addresses_are_nobodys(void **state)
{
    (void)state;
    assert_null(wr_address_find(NULL));
    assert_null(wr_address_find(at(START)));
    assert_null(wr_address_find(at(UINTPTR_MAX)));
    assert_null(wr_address_find(at((uintptr_t)1 << 48)));
}

static void every_byte_of_a_range_is_its_owners(void **state)
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

static void memory_that_is_not_page_aligned_is_refused(void **state)
{
    (void)state;
    int owner;
    assert_int_equal(wr_address_insert(at(START + 512), 2 * WR_MIB, &owner), WEIR_ERR_DRIVER);
    assert_int_equal(wr_address_insert(at(START), 2 * WR_MIB + 512, &owner), WEIR_ERR_DRIVER);
    assert_null(wr_address_find(at(START)));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(unknown_addresses_are_nobodys, release),
        cmocka_unit_test_teardown(every_byte_of_a_range_is_its_owners, release),
        cmocka_unit_test_teardown(neighbours_are_kept_apart, release),
        cmocka_unit_test_teardown(a_range_across_table_borders_is_whole, release),
        cmocka_unit_test_teardown(the_ends_of_the_address_space_work, release),
        cmocka_unit_test_teardown(memory_that_is_not_page_aligned_is_refused, release),
        cmocka_unit_test_teardown(without_memory_for_tables_nothing_is_mapped, release),
        cmocka_unit_test_teardown(threads_do_not_disturb_each_other, release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
