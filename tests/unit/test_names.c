/*
 * The ids of private pools: never given twice, recognised when they are stale, and as many as a process may ever want.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "host_support.h"
#include "pool/mempool.h"
#include "sanitized.h"

#include <stdbool.h>
#include <string.h>

/* Of one kind that can be in use at once, and of one group of them. */
#define MOST ((uint64_t)1 << 24)
#define GROUP ((uint64_t)1 << 10)

static int release_names(void **state)
{
    (void)state;
    wr_mempool_names_release();
    return wr_meta_live() != 0;
}

static wr_mempool_name new_name(void)
{
    wr_mempool_name name = 0;
    assert_ok(wr_mempool_name_new(true, &name));
    return name;
}

static weir_status find(wr_mempool_name name, wr_mempool **out)
{
    wr_mempool_name found = 0;
    const weir_status status = wr_mempool_find(wr_mempool_id_of(name), &found, out);
    if (status == WEIR_OK) assert_int_equal(found, name);
    return status;
}

static void a_new_id_has_no_pool_yet(void **state)
{
    (void)state;
    wr_mempool pool, *found = &pool;
    const wr_mempool_name name = new_name();
    assert_ok(find(name, &found));
    assert_null(found);
    assert_int_equal(find(name + 2, &found), WEIR_ERR_POOL_MISMATCH);
    wr_mempool_name_end(name);
}

static void an_id_stands_for_the_pool_that_claims_it_first(void **state)
{
    (void)state;
    wr_mempool first, second, *found = NULL;
    const wr_mempool_name name = new_name();
    assert_ok(wr_mempool_name_claim(name, &first));
    assert_int_equal(wr_mempool_name_claim(name, &second), WEIR_ERR_BUSY);
    assert_ok(find(name, &found));
    assert_ptr_equal(found, &first);
    wr_mempool_name_end(name);
}

static void an_id_may_have_another_pool_once_its_own_was_made_in_vain(void **state)
{
    (void)state;
    wr_mempool first, second, *found = &first;
    const wr_mempool_name name = new_name();
    assert_ok(wr_mempool_name_claim(name, &first));
    wr_mempool_name_disclaim(name);
    assert_ok(find(name, &found));
    assert_null(found);
    assert_ok(wr_mempool_name_claim(name, &second));
    wr_mempool_name_end(name);
}

static void an_id_that_has_ended_stands_for_nothing(void **state)
{
    (void)state;
    wr_mempool pool, *found = NULL;
    const wr_mempool_name name = new_name();
    wr_mempool_name_end(name);
    assert_int_equal(find(name, &found), WEIR_ERR_POOL_MISMATCH);
    assert_int_equal(wr_mempool_name_claim(name, &pool), WEIR_ERR_BUSY);
}

static void an_id_that_is_ended_again_ends_no_other(void **state)
{
    (void)state;
    wr_mempool *found = NULL;
    wr_mempool_names_release();
    const wr_mempool_name one = new_name(), other = new_name();
    for (uint64_t i = 0; i < GROUP; i++) wr_mempool_name_end(one);
    assert_ok(find(other, &found));
    wr_mempool_name_end(other);
}

static void the_ids_of_users_and_of_captures_are_apart(void **state)
{
    (void)state;
    wr_mempool_name of_capture = 0;
    wr_mempool users, captures, *found = NULL;
    const wr_mempool_name of_user = new_name();
    assert_ok(wr_mempool_name_new(false, &of_capture));
    assert_ok(wr_mempool_name_claim(of_user, &users));
    assert_ok(wr_mempool_name_claim(of_capture, &captures));
    assert_ok(find(of_capture, &found));
    assert_ptr_equal(found, &captures);
    wr_mempool_name_end(of_user);
    assert_ok(find(of_capture, &found));
    wr_mempool_name_end(of_capture);
}

/* More than can be in use, so that some come to where another was, and to where one still is. */
static void ids_do_not_run_out_and_are_never_given_again(void **state)
{
    (void)state;
    if (SANITIZED) skip(); /* minutes */
    wr_mempool kept, *found = NULL;
    const wr_mempool_name old = new_name();
    assert_ok(wr_mempool_name_claim(old, &kept));
    const uint64_t before = wr_meta_live();
    wr_mempool_name last = old;
    for (uint64_t i = 0; i < MOST + 4 * GROUP; i++) {
        const wr_mempool_name name = new_name();
        if (name <= last) fail_msg("%llu after %llu", (unsigned long long)name, (unsigned long long)last);
        last = name;
        wr_mempool_name_end(name);
    }
    assert_true(wr_meta_live() <= before + 2);
    assert_ok(find(old, &found));
    assert_ptr_equal(found, &kept);
    assert_int_equal(find(old + 2 * MOST, &found), WEIR_ERR_POOL_MISMATCH);
    wr_mempool_name_end(old);
}

static void one_id_too_many_is_refused_until_another_has_ended(void **state)
{
    (void)state;
    if (SANITIZED) skip();                /* minutes */
    static wr_mempool_name kept[1 << 14]; /* one in each group */
    size_t count = 0;
    wr_mempool_name name = 0;
    wr_mempool_names_release();
    for (;;) {
        const weir_status status = wr_mempool_name_new(true, &name);
        if (status == WEIR_ERR_OUT_OF_HOST_MEMORY) break;
        assert_ok(status);
        const bool first_of_group = count == 0 || name / 2 / GROUP != kept[count - 1] / 2 / GROUP;
        if (!first_of_group)
            wr_mempool_name_end(name);
        else if (count < sizeof kept / sizeof kept[0])
            kept[count++] = name;
        else
            fail_msg("more than %zu groups", count);
    }
    assert_int_equal(count, sizeof kept / sizeof kept[0]);
    assert_non_null(strstr(weir_error_text(), "too many memory pools"));
    assert_int_equal(wr_mempool_name_new(true, &name), WEIR_ERR_OUT_OF_HOST_MEMORY);
    wr_mempool_name_end(kept[count / 2]);
    assert_ok(wr_mempool_name_new(true, &name));
    assert_true(name > kept[count - 1]);
}

static void an_id_that_cannot_be_made_changes_nothing(void **state)
{
    (void)state;
    wr_mempool_names_release();
    wr_mempool_name name = 7;
    wr_meta_fail_nth(1);
    assert_int_equal(wr_mempool_name_new(true, &name), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_int_equal(name, 7);
    const wr_mempool_name one = new_name();
    assert_int_equal(new_name(), one + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_id_has_no_pool_yet),
        cmocka_unit_test(an_id_stands_for_the_pool_that_claims_it_first),
        cmocka_unit_test(an_id_may_have_another_pool_once_its_own_was_made_in_vain),
        cmocka_unit_test(an_id_that_has_ended_stands_for_nothing),
        cmocka_unit_test(an_id_that_is_ended_again_ends_no_other),
        cmocka_unit_test(the_ids_of_users_and_of_captures_are_apart),
        cmocka_unit_test(ids_do_not_run_out_and_are_never_given_again),
        cmocka_unit_test(one_id_too_many_is_refused_until_another_has_ended),
        cmocka_unit_test(an_id_that_cannot_be_made_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, release_names);
}
