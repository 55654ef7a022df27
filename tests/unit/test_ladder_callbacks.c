/*
 * The program's reclaim callbacks, which an allocation calls before it fails, on a device of 64 MiB.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ladder_support.h"
#include "pool_support.h"

#include <pthread.h>

typedef struct helper {
    void *to_free;
    int asked, device, order;
    size_t needed;
    weir_status seen[5];
} helper;

static int turn;

static void note(helper *h, int device, size_t needed)
{
    h->asked++;
    h->device = device;
    h->needed = needed;
    h->order = ++turn;
}

static bool frees(void *user, int device, size_t needed)
{
    helper *h = user;
    note(h, device, needed);
    if (!h->to_free) return false;
    h->seen[0] = weir_free(h->to_free);
    h->to_free = NULL;
    return true;
}

/* These calls would deadlock or trip the lock checks if weir held any lock. */
static bool uses_the_library(void *user, int device, size_t needed)
{
    helper *h = user;
    weir_memory_stats stats = { .size = sizeof stats };
    void *small = NULL;
    note(h, device, needed);
    h->seen[0] = weir_free(h->to_free);
    h->seen[1] = weir_alloc(512, &small);
    h->seen[2] = weir_free(small);
    h->seen[3] = weir_stats_get(device, &stats);
    h->seen[4] = weir_validate(device);
    h->to_free = NULL;
    return true;
}

static void a_callback_that_frees_makes_the_allocation_succeed(void **state)
{
    (void)state;
    helper h = { .to_free = alloc_on(60 * MIB, one) };
    assert_ok(weir_reclaim_add(frees, &h));
    assert_non_null(alloc_on(60 * MIB, two));
    assert_int_equal(h.asked, 1);
    assert_int_equal(h.device, 0);
    assert_int_equal(h.needed, 60 * MIB);
    assert_int_equal(h.seen[0], WEIR_OK);
    assert_int_equal(stats_of(0).ooms, 0);
}

static void callbacks_run_without_locks(void **state)
{
    (void)state;
    helper h = { .to_free = alloc_on(60 * MIB, one) };
    assert_ok(weir_reclaim_add(uses_the_library, &h));
    assert_non_null(alloc_on(60 * MIB, one));
    for (int i = 0; i < 5; i++) assert_int_equal(h.seen[i], WEIR_OK);
}

static bool asks_for_as_much(void *user, int device, size_t needed)
{
    helper *h = user;
    void *block = NULL;
    note(h, device, needed);
    h->seen[0] = weir_alloc_on(needed, two, &block);
    return false;
}

static void a_callback_that_finds_no_memory_is_not_asked_to_help_itself(void **state)
{
    (void)state;
    helper h = { 0 };
    void *block = NULL;
    alloc_on(60 * MIB, one);
    assert_ok(weir_reclaim_add(asks_for_as_much, &h));
    assert_status(weir_alloc_on(60 * MIB, one, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(h.asked, 1);
    assert_int_equal(h.seen[0], WEIR_ERR_OUT_OF_MEMORY);
}

static void memory_that_a_callback_frees_is_waited_for(void **state)
{
    (void)state;
    slow_work work = { .milliseconds = 30 };
    helper h = { .to_free = alloc_on(60 * MIB, one) };
    start_slow_work(two, &work);
    assert_ok(weir_record_stream(h.to_free, two));
    assert_ok(weir_reclaim_add(frees, &h));
    assert_non_null(alloc_on(60 * MIB, one));
    assert_true(atomic_load(&work.done));
}

static void events_in_a_pool_are_counted_there_too(void **state)
{
    (void)state;
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    releaser work;
    weir_mempool pool;
    void *block = NULL, *too_much = NULL;
    options.device = 0;
    assert_ok(weir_mempool_create(&options, &pool));
    assert_ok(weir_alloc_from(pool, 4 * MIB, one, &block));
    free_while_used(block, &work);
    assert_int_equal(pool_stats(pool).pending_frees, 1);
    assert_ok(weir_validate(0));
    assert_int_equal(weir_alloc_from(pool, 512 * MIB, one, &too_much), WEIR_ERR_OUT_OF_MEMORY);
    const weir_memory_stats of_pool = pool_stats(pool), all = stats_of(0);
    assert_int_equal(of_pool.pending_frees, 0);
    assert_int_equal(of_pool.ooms, 1);
    assert_int_equal(of_pool.syncs, all.syncs);
    assert_int_equal(of_pool.alloc_retries, all.alloc_retries);
    assert_true(all.syncs > 0);
    pthread_join(work.thread, NULL);
    assert_ok(weir_mempool_unref(pool));
}

static bool removes_itself(void *user, int device, size_t needed)
{
    note(user, device, needed);
    (void)weir_reclaim_remove(removes_itself, user);
    return false;
}

static bool declines(void *user, int device, size_t needed)
{
    note(user, device, needed);
    return false;
}

static bool declines_too(void *user, int device, size_t needed)
{
    return declines(user, device, needed);
}

static void a_callback_is_removed_by_its_function_and_what_it_is_given(void **state)
{
    (void)state;
    void *none = NULL;
    helper first = { 0 }, second = { 0 };
    assert_ok(weir_reclaim_add(declines, &first));
    assert_ok(weir_reclaim_add(declines, &second));
    assert_ok(weir_reclaim_add(declines_too, &first));
    assert_ok(weir_reclaim_remove(declines_too, &first));
    assert_status(weir_reclaim_remove(declines_too, &first), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(weir_alloc_on(512 * MIB, one, &none), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(first.asked, 1);
    assert_int_equal(second.asked, 1);
    assert_ok(weir_reclaim_remove(declines, &second));
    assert_int_equal(weir_alloc_on(512 * MIB, one, &none), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(first.asked, 2);
    assert_int_equal(second.asked, 1);
    assert_ok(weir_reclaim_remove(declines, &first));
}

static void a_callback_that_removes_itself_leaves_the_next_its_turn(void **state)
{
    (void)state;
    helper once = { 0 }, helps = { .to_free = alloc_on(60 * MIB, one) };
    assert_ok(weir_reclaim_add(removes_itself, &once));
    assert_ok(weir_reclaim_add(frees, &helps));
    assert_non_null(alloc_on(60 * MIB, one));
    assert_int_equal(once.asked, 1);
    assert_int_equal(helps.asked, 1);
}

/* Another pool, made at once, may have the record of the one that is gone. */
static bool replaces_the_pool(void *user, int device, size_t needed)
{
    (void)needed;
    weir_mempool *pool = user;
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.device = device;
    assert_ok(weir_mempool_unref(*pool));
    assert_ok(weir_mempool_create(&options, pool));
    return false;
}

static void a_failure_in_a_pool_that_is_gone_by_then_does_not_count_in_another(void **state)
{
    (void)state;
    void *too_much = NULL;
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    weir_mempool pool;
    options.device = 0;
    assert_ok(weir_mempool_create(&options, &pool));
    assert_ok(weir_reclaim_add(replaces_the_pool, &pool));
    assert_int_equal(weir_alloc_from(pool, 512 * MIB, one, &too_much), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(pool_stats(pool).ooms, 0);
    assert_int_equal(stats_of(0).ooms, 1);
    assert_ok(weir_reclaim_remove(replaces_the_pool, &pool));
    assert_ok(weir_mempool_unref(pool));
}

/* So that it is not called while it works. */
static bool adds_itself_anew(void *user, int device, size_t needed)
{
    helper *h = user;
    note(user, device, needed);
    assert_ok(weir_reclaim_remove(adds_itself_anew, user));
    if (h->asked < 10) assert_ok(weir_reclaim_add(adds_itself_anew, user));
    return false;
}

static void a_callback_that_adds_itself_anew_is_asked_once_by_a_request(void **state)
{
    (void)state;
    void *none = NULL;
    helper h = { 0 };
    assert_ok(weir_reclaim_add(adds_itself_anew, &h));
    for (int request = 1; request <= 3; request++) {
        assert_status(weir_alloc_on(600 * MIB, one, &none), WEIR_ERR_OUT_OF_MEMORY);
        assert_int_equal(h.asked, request);
    }
}

static void callbacks_are_asked_in_order_until_one_helps(void **state)
{
    (void)state;
    helper none = { 0 }, helps = { .to_free = alloc_on(60 * MIB, one) }, never = { 0 };
    turn = 0;
    assert_ok(weir_reclaim_add(frees, &none));
    assert_ok(weir_reclaim_add(frees, &helps));
    assert_ok(weir_reclaim_add(frees, &never));
    assert_non_null(alloc_on(60 * MIB, one));
    assert_int_equal(none.order, 1);
    assert_int_equal(helps.order, 2);
    assert_int_equal(never.asked, 0);
}

static void callbacks_are_asked_on_when_the_first_does_not_free_enough(void **state)
{
    (void)state;
    void *large = alloc_on(60 * MIB, one);
    helper little = { .to_free = alloc_on(512, two) }, enough = { .to_free = large };
    assert_ok(weir_reclaim_add(frees, &little));
    assert_ok(weir_reclaim_add(frees, &enough));
    assert_ptr_equal(alloc_on(60 * MIB, one), large);
    assert_int_equal(little.asked, 1);
    assert_int_equal(enough.asked, 1);
    assert_int_equal(stats_of(0).ooms, 0);
}

static void callbacks_are_asked_last(void **state)
{
    (void)state;
    helper h = { 0 };
    assert_ok(weir_reclaim_add(frees, &h));
    leave_idle(40 * MIB, one);
    leave_idle(10 * MIB, two);
    assert_non_null(alloc_on(60 * MIB, three));
    assert_int_equal(h.asked, 0);
}

static void callbacks_that_cannot_help_leave_the_failure(void **state)
{
    (void)state;
    helper h = { 0 };
    assert_ok(weir_reclaim_add(frees, &h));
    alloc_on(60 * MIB, one);
    refuse(20 * MIB, one);
    assert_int_equal(h.asked, 1);
}

static void a_removed_callback_is_not_asked(void **state)
{
    (void)state;
    helper first = { 0 }, second = { 0 };
    assert_ok(weir_reclaim_add(frees, &first));
    assert_ok(weir_reclaim_add(frees, &second));
    assert_ok(weir_reclaim_remove(frees, &first));
    refuse(65 * MIB, one);
    assert_int_equal(first.asked, 0);
    assert_int_equal(second.asked, 1);
}

static void removing_a_callback_that_was_not_added_is_refused(void **state)
{
    (void)state;
    helper h = { 0 };
    assert_status(weir_reclaim_remove(frees, &h), WEIR_ERR_INVALID_ARGUMENT);
    assert_ok(weir_reclaim_add(frees, &h));
    assert_status(weir_reclaim_remove(uses_the_library, &h), WEIR_ERR_INVALID_ARGUMENT);
    assert_ok(weir_reclaim_remove(frees, &h));
    assert_status(weir_reclaim_remove(frees, &h), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_reclaim_add(NULL, &h), WEIR_ERR_INVALID_ARGUMENT);
}

static void callbacks_are_forgotten_by_close(void **state)
{
    helper h = { 0 };
    assert_ok(weir_reclaim_add(frees, &h));
    assert_ok(weir_close());
    open_recording(state);
    refuse(65 * MIB, one);
    assert_int_equal(h.asked, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALL(a_callback_that_frees_makes_the_allocation_succeed),
        ALL(callbacks_run_without_locks),
        ALL(a_callback_that_finds_no_memory_is_not_asked_to_help_itself),
        ALL(memory_that_a_callback_frees_is_waited_for),
        ALL(events_in_a_pool_are_counted_there_too),
        ALL(a_failure_in_a_pool_that_is_gone_by_then_does_not_count_in_another),
        ALL(a_callback_is_removed_by_its_function_and_what_it_is_given),
        ALL(a_callback_that_removes_itself_leaves_the_next_its_turn),
        ALL(a_callback_that_adds_itself_anew_is_asked_once_by_a_request),
        ALL(callbacks_are_asked_in_order_until_one_helps),
        ALL(callbacks_are_asked_on_when_the_first_does_not_free_enough),
        ALL(callbacks_are_asked_last),
        ALL(callbacks_that_cannot_help_leave_the_failure),
        ALL(a_removed_callback_is_not_asked),
        ALL(removing_a_callback_that_was_not_added_is_refused),
        ALL(callbacks_are_forgotten_by_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
