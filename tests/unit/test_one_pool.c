/*
 * What is about one pool alone leaves others alone: their idle memory stays, and nobody waits for their work. Nor does
 * what the driver lacks memory for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ladder_support.h"
#include "mempool_support.h"
#include "thread_support.h"
#include "weir/observe.h"

static weir_mempool pool_of(weir_memory_kind memory, uint64_t cap)
{
    weir_mempool_options options = options_on(0);
    options.memory = memory;
    options.cap = cap;
    return make_pool(options);
}

static void refuse_from(weir_mempool pool, size_t bytes)
{
    void *none = NULL;
    assert_status(weir_alloc_from(pool, bytes, WEIR_STREAM_CURRENT, &none), WEIR_ERR_OUT_OF_MEMORY);
}

static int64_t reserved_in(weir_mempool pool)
{
    return pool_stats(pool).reserved_bytes[WEIR_STAT_ALL].current;
}

/* Work of `one` that a freed block of the default pool waits for. */
static void free_while_at_work(atomic_bool *ends)
{
    void *block = alloc(1000);
    atomic_store(ends, false);
    assert_ok(weir_stream_callback(one, last_until, ends));
    assert_ok(weir_record_stream(block, one));
    assert_ok(weir_free(block));
}

static void end_work(atomic_bool *ends)
{
    atomic_store(ends, true);
    assert_ok(weir_stream_synchronize(one));
}

/* ---- caps -------------------------------------------------------------------------------------------------------- */

static void what_a_cap_refuses_leaves_other_idle_memory_where_it_is(void **state)
{
    (void)state;
    static const weir_memory_kind kinds[] = { WEIR_MEMORY_DEVICE, WEIR_MEMORY_MAPPED, WEIR_MEMORY_MANAGED,
                                              WEIR_MEMORY_PINNED };
    assert_ok(weir_free(alloc(20 * MIB)));
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        weir_mempool pool = pool_of(kinds[i], 24 * MIB);
        void *held = alloc_in(pool, 20 * MIB);
        const int64_t before = reserved_in(default_pool);
        refuse_from(pool, 20 * MIB);
        assert_int_equal(reserved_in(default_pool), before);
        assert_ok(weir_free(held));
        assert_ok(weir_mempool_unref(pool));
    }
}

static void where_the_cap_has_room_for_it_other_idle_memory_serves(void **state)
{
    (void)state;
    weir_mempool pool = pool_of(WEIR_MEMORY_DEVICE, 44 * MIB);
    assert_ok(weir_free(alloc(40 * MIB)));
    assert_ok(weir_free(alloc_in(pool, 40 * MIB)));
    assert_int_equal(reserved_in(pool), 40 * MIB);
}

static void a_pools_own_idle_memory_makes_room_below_its_cap(void **state)
{
    (void)state;
    weir_mempool pool = pool_of(WEIR_MEMORY_DEVICE, 24 * MIB);
    void *first = alloc_in(pool, 12 * MIB), *second = alloc_in(pool, 12 * MIB);
    assert_ok(weir_free(first));
    assert_ok(weir_free(second));
    assert_ok(weir_free(alloc_in(pool, 22 * MIB)));
}

static void what_a_cap_refuses_waits_for_no_other_pool(void **state)
{
    (void)state;
    static atomic_bool ends;
    weir_mempool pool = pool_of(WEIR_MEMORY_DEVICE, 24 * MIB);
    void *held = alloc_in(pool, 20 * MIB);
    free_while_at_work(&ends);
    refuse_from(pool, 20 * MIB);
    assert_int_equal(stats_of(0).pending_frees, 1);
    end_work(&ends);
    assert_ok(weir_free(held));
}

static void below_a_cap_the_pools_own_frees_are_waited_for(void **state)
{
    (void)state;
    static atomic_bool ends;
    weir_mempool pool = pool_of(WEIR_MEMORY_DEVICE, 24 * MIB);
    void *held = alloc_in(pool, 20 * MIB);
    make_busy(two);
    assert_ok(weir_record_stream(held, two));
    assert_ok(weir_free(held));
    free_while_at_work(&ends);
    assert_ok(weir_free(alloc_in(pool, 20 * MIB)));
    end_work(&ends);
}

/* ---- pinned memory ----------------------------------------------------------------------------------------------- */

static void the_devices_memory_does_not_go_for_a_pool_of_pinned_memory(void **state)
{
    (void)state;
    weir_mempool pool = pool_of(WEIR_MEMORY_PINNED, 0), released = pool_of(WEIR_MEMORY_PINNED, 0);
    assert_ok(weir_free(alloc(20 * MIB)));
    void *live = alloc_in(released, 1000), *idle = alloc_in(released, 20 * MIB);
    assert_ok(weir_mempool_unref(released));
    assert_ok(weir_free(idle));
    const int64_t before = reserved_in(default_pool), held = reserved_in(released);
    for (uint64_t i = 1; i < 100; i++)
        assert_ok(weir_host_fail(WEIR_BACKEND_host_register, i, WEIR_ERR_OUT_OF_HOST_MEMORY));
    void *none = NULL;
    assert_int_not_equal(weir_alloc_from(pool, 20 * MIB, WEIR_STREAM_CURRENT, &none), WEIR_OK);
    assert_int_equal(reserved_in(default_pool), before);
    assert_true(reserved_in(released) < held);
    assert_ok(weir_free(live));
}

/* ---- waits ------------------------------------------------------------------------------------------------------- */

static void empty(weir_mempool pool)
{
    assert_ok(weir_mempool_empty_cache(pool));
}

static void note(weir_mempool pool)
{
    weir_checkpoint *checkpoint = NULL;
    assert_ok(weir_mempool_checkpoint(pool, &checkpoint));
    weir_checkpoint_destroy(checkpoint);
}

/* With a free of the pool's own before or behind the other pool's. */
static void assert_waits_for_its_own_only(void (*call)(weir_mempool pool))
{
    static atomic_bool ends;
    for (int own_first = 0; own_first < 2; own_first++) {
        weir_mempool pool = plain();
        void *held = alloc_in(pool, 1000), *freed = alloc_in(pool, 1000);
        if (!own_first) free_while_at_work(&ends);
        make_busy(two);
        assert_ok(weir_record_stream(freed, two));
        assert_ok(weir_free(freed));
        if (own_first) free_while_at_work(&ends);
        call(pool);
        assert_int_equal(stats_of(0).pending_frees, 1);
        end_work(&ends);
        assert_ok(weir_free(held));
        assert_ok(weir_mempool_unref(pool));
    }
}

static void emptying_a_pool_waits_for_its_own_frees_only(void **state)
{
    (void)state;
    assert_waits_for_its_own_only(empty);
}

static void a_checkpoint_waits_for_the_pools_own_frees_only(void **state)
{
    (void)state;
    assert_waits_for_its_own_only(note);
}

static void restoring_waits_for_the_pools_own_frees_only(void **state)
{
    (void)state;
    static atomic_bool ends;
    weir_checkpoint *checkpoint = NULL;
    weir_mempool pool = plain();
    void *held = alloc_in(pool, 1000);
    assert_ok(weir_mempool_checkpoint(pool, &checkpoint));
    free_while_at_work(&ends);
    assert_ok(weir_mempool_restore(pool, checkpoint, NULL, NULL, NULL));
    assert_int_equal(stats_of(0).pending_frees, 1);
    end_work(&ends);
    weir_checkpoint_destroy(checkpoint);
    assert_ok(weir_free(held));
}

/* Which may wait for this thread. The work would be waited for without end. */
static void room_for_a_stream_or_a_launch_is_made_without_waiting_for_work(void **state)
{
    (void)state;
    static atomic_bool ends;
    const weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    weir_graph graph;
    weir_stream made;
    assert_ok(weir_graph_begin(two, &options, &graph));
    assert_ok(weir_graph_end(graph));
    free_while_at_work(&ends);
    for (int launch = 0; launch < 2; launch++) {
        assert_ok(weir_free(alloc_on(20 * MIB, three)));
        const int64_t before = reserved_in(default_pool);
        const enum weir_backend_entry call = launch ? WEIR_BACKEND_graph_instantiate : WEIR_BACKEND_stream_create;
        assert_ok(weir_host_fail(call, 1, WEIR_ERR_OUT_OF_MEMORY));
        assert_ok(launch ? weir_graph_launch(graph, two) : weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &made));
        assert_true(reserved_in(default_pool) <= before - 20 * (int64_t)MIB);
        assert_int_equal(stats_of(0).pending_frees, 1);
    }
    end_work(&ends);
    assert_ok(weir_graph_destroy(graph));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALL(what_a_cap_refuses_leaves_other_idle_memory_where_it_is),
        ALL(where_the_cap_has_room_for_it_other_idle_memory_serves),
        ALL(a_pools_own_idle_memory_makes_room_below_its_cap),
        ALL(what_a_cap_refuses_waits_for_no_other_pool),
        ALL(below_a_cap_the_pools_own_frees_are_waited_for),
        ALL(the_devices_memory_does_not_go_for_a_pool_of_pinned_memory),
        ALL(emptying_a_pool_waits_for_its_own_frees_only),
        ALL(a_checkpoint_waits_for_the_pools_own_frees_only),
        ALL(restoring_waits_for_the_pools_own_frees_only),
        ALL(room_for_a_stream_or_a_launch_is_made_without_waiting_for_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
