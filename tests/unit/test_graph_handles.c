/*
 * Library handles that captures use, and what their graphs keep of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "graph_support.h"
#include "handle_support.h"
#include "thread_support.h"

static weir_stream origin, side;
static library lib = { .name = "graphs" };

static int open_with_library(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB });
    origin = new_stream(0);
    side = new_stream(0);
    library_start(&lib);
    return 0;
}

static int close_with_library(void **state)
{
    close_host(state);
    library_end(&lib);
    return 0;
}

/* A thread gets a handle on the stream and ends. */
static void *get_and_end(void *stream)
{
    void *handle = NULL;
    return weir_handle_get_on(lib.kind, *(weir_stream *)stream, &handle) == WEIR_OK ? handle : NULL;
}

static void a_handle_got_inside_a_capture_lives_as_long_as_its_graph(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    in_a_thread(get_and_end, &origin);
    assert_ok(weir_graph_end(g));
    assert_int_equal(trim(&lib, 0), 0); /* idle, but held by the graph */
    assert_int_equal(numbers_of(&lib, 0).idle, 1);
    assert_ok(weir_graph_destroy(g));
    assert_int_equal(trim(&lib, 0), 1);
}

static void an_adopted_graph_keeps_handles_too(void **state)
{
    (void)state;
    weir_graph g;
    void *native = NULL;
    assert_ok(wr_backend_host.capture_begin(0, native_of(origin), WEIR_CAPTURE_RELAXED));
    assert_ok(try_adopt(origin, (weir_mempool){ 0, 0 }, &g));
    in_a_thread(get_and_end, &origin);
    assert_ok(wr_backend_host.capture_end(0, native_of(origin), &native));
    assert_ok(weir_graph_end(g));
    assert_int_equal(trim(&lib, 0), 0);
    assert_ok(weir_graph_destroy(g));
    assert_int_equal(trim(&lib, 0), 1);
    assert_ok(wr_backend_host.graph_destroy(0, native));
}

static void a_handle_that_was_bound_before_the_capture_is_kept_too(void **state)
{
    (void)state;
    void *handle = get_on(&lib, origin);
    weir_graph g = begin_on(origin);
    assert_ptr_equal(get_on(&lib, origin), handle);
    get_on(&lib, side); /* outside the capture */
    assert_ok(weir_graph_end(g));
    assert_ok(weir_handle_release(lib.kind, 0));
    assert_int_equal(trim(&lib, 0), 0);
    assert_ok(weir_graph_destroy(g));
    assert_int_equal(trim(&lib, 0), 1);
}

static void a_lease_taken_inside_a_capture_is_kept_too(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    assert_ok(weir_handle_return(borrow(&lib, origin)));
    assert_ok(weir_graph_end(g));
    assert_int_equal(trim(&lib, 0), 0);
    assert_ok(weir_graph_destroy(g));
    assert_int_equal(trim(&lib, 0), 1);
}

static void a_handle_on_a_stream_outside_the_capture_is_not_kept(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    get_on(&lib, side);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_handle_release(lib.kind, 0));
    assert_int_equal(trim(&lib, 0), 1);
    assert_ok(weir_graph_destroy(g));
}

static void a_handle_on_a_stream_that_joins_the_capture_later_is_kept(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    void *handle = get_on(&lib, side);
    assert_ok(weir_stream_wait(side, origin));
    assert_ptr_equal(get_on(&lib, side), handle);
    assert_ok(weir_stream_wait(origin, side));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_handle_release(lib.kind, 0));
    assert_int_equal(trim(&lib, 0), 0);
    assert_ok(weir_graph_destroy(g));
    assert_int_equal(trim(&lib, 0), 1);
}

static void a_held_handle_serves_others_and_is_held_by_each_graph(void **state)
{
    (void)state;
    weir_graph one = begin_on(origin);
    void *handle = get_on(&lib, origin);
    assert_ok(weir_graph_end(one));
    weir_graph two = begin_on(side);
    assert_ptr_equal(get_on(&lib, side), handle);
    assert_ok(weir_graph_end(two));
    assert_ok(weir_handle_release(lib.kind, 0));
    assert_ok(weir_graph_destroy(one));
    assert_int_equal(trim(&lib, 0), 0);
    assert_ptr_equal(get_on(&lib, side), handle);
    assert_ok(weir_handle_release(lib.kind, 0));
    assert_ok(weir_graph_destroy(two));
    assert_int_equal(trim(&lib, 0), 1);
}

static void a_handle_of_a_graph_launched_inside_a_capture_is_kept_by_the_outer_one(void **state)
{
    (void)state;
    weir_graph inner = begin_on(origin);
    get_on(&lib, origin);
    assert_ok(weir_graph_end(inner));
    assert_ok(weir_handle_release(lib.kind, 0));
    weir_graph outer = begin_on(side);
    assert_ok(weir_graph_launch(inner, side));
    assert_ok(weir_graph_end(outer));
    assert_ok(weir_graph_destroy(inner));
    assert_int_equal(trim(&lib, 0), 0);
    assert_ok(weir_graph_destroy(outer));
    assert_int_equal(trim(&lib, 0), 1);
}

static void a_held_handle_is_taken_only_when_there_is_no_other(void **state)
{
    (void)state;
    weir_lease spare = borrow(&lib, side);
    const void *unheld = weir_lease_handle(spare);
    weir_graph g = begin_on(origin);
    const void *held = get_on(&lib, origin);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_handle_return(spare));
    assert_ok(weir_handle_release(lib.kind, 0)); /* last in */
    const weir_stream third = new_stream(0);     /* on which neither was used */
    spare = borrow(&lib, third);
    assert_ptr_equal(weir_lease_handle(spare), unheld);
    assert_ptr_equal(get_on(&lib, third), held);
    assert_ok(weir_handle_return(spare));
    assert_ok(weir_graph_destroy(g));
}

static void nor_is_it_taken_on_its_own_stream_when_there_is_another(void **state)
{
    (void)state;
    weir_lease spare = borrow(&lib, side);
    const void *unheld = weir_lease_handle(spare);
    weir_graph g = begin_on(origin);
    assert_ptr_not_equal(get_on(&lib, origin), unheld);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_handle_return(spare));
    assert_ok(weir_handle_release(lib.kind, 0));
    spare = borrow(&lib, origin);
    assert_ptr_equal(weir_lease_handle(spare), unheld);
    assert_ok(weir_handle_return(spare));
    assert_ok(weir_graph_destroy(g));
}

static void trimming_leaves_a_held_handle_that_others_lie_behind(void **state)
{
    (void)state;
    const weir_lease other = borrow(&lib, side);
    const weir_graph g = begin_on(origin);
    const weir_lease held = borrow(&lib, origin);
    void *native = weir_lease_handle(held);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_handle_return(other));
    assert_ok(weir_handle_return(held)); /* last in, first out */
    assert_int_equal(trim(&lib, 0), 1);
    const weir_lease again = borrow(&lib, origin);
    assert_ptr_equal(weir_lease_handle(again), native);
    assert_ok(weir_handle_return(again));
    assert_ok(weir_graph_destroy(g));
    assert_int_equal(trim(&lib, 0), 1);
}

static void the_workspace_of_a_captured_stream_outlives_the_stream(void **state)
{
    (void)state;
    weir_stream other = new_stream(0);
    weir_graph g = begin_on(side);
    void *workspace = get_on(&lib, side)->workspace;
    assert_ok(weir_fill(workspace, 1, WORKSPACE_BYTES, side));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_stream_destroy(side));
    get_on(&lib, other); /* a new workspace: then those of ended streams are freed */
    assert_ptr_equal(info_of(workspace).base, workspace);
    assert_int_equal(info_of(workspace).pool.capture, 0);
    launch_and_wait(g, origin);
    assert_ok(weir_handle_release(lib.kind, 0));
    assert_ok(weir_graph_destroy(g));
    assert_int_equal(trim(&lib, 0), 1);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
}

static void the_workspace_of_an_invalidated_capture_goes_with_its_handle(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    assert_status(wr_backend_host.stream_query(0, native_of(origin)), WEIR_ERR_CAPTURE); /* ends it */
    assert_non_null(get_on(&lib, origin)->workspace);
    assert_status(weir_graph_end(g), WEIR_ERR_CAPTURE);
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_handle_release(lib.kind, 0));
    assert_int_equal(trim(&lib, 0), 1);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
}

static void library_memory_inside_a_capture_comes_from_the_graphs_pool(void **state)
{
    (void)state;
    thing *t = get_on(&lib, origin);
    weir_graph g = begin_on(origin);
    assert_int_equal(t->feeder->alloc(t->feeder->context, MIB, NULL, true, &t->fed), 0);
    assert_true(SAME_POOL(info_of(t->fed).pool, pool_of(g)));
    assert_int_equal(t->feeder->free(t->feeder->context, t->fed, NULL, true), 0);
    t->fed = NULL;
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

static void no_restore_takes_memory_from_a_library(void **state)
{
    (void)state;
    weir_checkpoint *before = NULL, *after = NULL;
    thing *t = get_on(&lib, origin);
    weir_graph g = begin_on(origin);
    const weir_mempool pool = pool_of(g);
    void *own = alloc_on(MIB, origin);
    assert_ok(weir_mempool_checkpoint(pool, &before));
    assert_int_equal(t->feeder->alloc(t->feeder->context, MIB, NULL, true, &t->fed), 0);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_mempool_checkpoint(pool, &after));
    assert_status(weir_mempool_restore(pool, before, NULL, NULL, NULL), WEIR_ERR_BUSY);
    assert_non_null(strstr(weir_error_text(), "library"));

    void *later = alloc_from(pool, MIB, origin);
    assert_ok(weir_mempool_restore(pool, after, NULL, NULL, NULL)); /* the library had it then */
    assert_ptr_equal(alloc_from(pool, MIB, origin), later);
    assert_int_equal(t->feeder->free(t->feeder->context, t->fed, NULL, true), 0);
    t->fed = NULL;
    assert_ok(weir_mempool_restore(pool, before, NULL, NULL, NULL));
    assert_ok(weir_free(own));
    weir_checkpoint_destroy(before);
    weir_checkpoint_destroy(after);
    assert_ok(weir_graph_destroy(g));
}

static void memory_that_a_library_had_once_hinders_no_restore(void **state)
{
    (void)state;
    weir_checkpoint *before = NULL;
    thing *t = get_on(&lib, origin);
    weir_graph g = begin_on(origin);
    const weir_mempool pool = pool_of(g);
    assert_ok(weir_free(alloc_on(MIB, origin)));
    assert_ok(weir_mempool_checkpoint(pool, &before));
    assert_int_equal(t->feeder->alloc(t->feeder->context, MIB, NULL, true, &t->fed), 0);
    void *memory = t->fed;
    assert_int_equal(t->feeder->free(t->feeder->context, t->fed, NULL, true), 0);
    t->fed = NULL;
    assert_ptr_equal(alloc_on(MIB, origin), memory);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_mempool_restore(pool, before, NULL, NULL, NULL));
    weir_checkpoint_destroy(before);
    assert_ok(weir_graph_destroy(g));
}

/* The program has freed the block since, and the library has its memory now. */
static void a_checkpointed_block_that_a_library_has_now_is_not_restored(void **state)
{
    (void)state;
    weir_checkpoint *then = NULL;
    thing *t = get_on(&lib, origin);
    weir_graph g = begin_on(origin);
    const weir_mempool pool = pool_of(g);
    void *own = alloc_on(MIB, origin);
    assert_ok(weir_mempool_checkpoint(pool, &then));
    assert_ok(weir_free(own));
    assert_int_equal(t->feeder->alloc(t->feeder->context, MIB, NULL, true, &t->fed), 0);
    assert_ptr_equal(t->fed, own);
    assert_ok(weir_graph_end(g));
    assert_status(weir_mempool_restore(pool, then, NULL, NULL, NULL), WEIR_ERR_BUSY);
    assert_int_equal(t->feeder->free(t->feeder->context, t->fed, NULL, true), 0);
    t->fed = NULL;
    assert_ok(weir_mempool_restore(pool, then, NULL, NULL, NULL));
    assert_ok(weir_free(own));
    weir_checkpoint_destroy(then);
    assert_ok(weir_graph_destroy(g));
}

static int register_library(void **state)
{
    (void)state;
    library_register(&lib, 0);
    library_works_in_memory_of_weirs(&lib);
    kind_of(&lib)->set_memory = library_set_memory;
    return 0;
}

#define with_library(test) cmocka_unit_test_setup_teardown(test, open_with_library, close_with_library)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_library(a_handle_got_inside_a_capture_lives_as_long_as_its_graph),
        with_library(an_adopted_graph_keeps_handles_too),
        with_library(a_handle_that_was_bound_before_the_capture_is_kept_too),
        with_library(a_lease_taken_inside_a_capture_is_kept_too),
        with_library(a_handle_on_a_stream_outside_the_capture_is_not_kept),
        with_library(a_handle_on_a_stream_that_joins_the_capture_later_is_kept),
        with_library(a_held_handle_serves_others_and_is_held_by_each_graph),
        with_library(a_handle_of_a_graph_launched_inside_a_capture_is_kept_by_the_outer_one),
        with_library(a_held_handle_is_taken_only_when_there_is_no_other),
        with_library(nor_is_it_taken_on_its_own_stream_when_there_is_another),
        with_library(trimming_leaves_a_held_handle_that_others_lie_behind),
        with_library(the_workspace_of_a_captured_stream_outlives_the_stream),
        with_library(the_workspace_of_an_invalidated_capture_goes_with_its_handle),
        with_library(library_memory_inside_a_capture_comes_from_the_graphs_pool),
        with_library(no_restore_takes_memory_from_a_library),
        with_library(memory_that_a_library_had_once_hinders_no_restore),
        with_library(a_checkpointed_block_that_a_library_has_now_is_not_restored),
    };
    return cmocka_run_group_tests_name("graph handles", tests, register_library, NULL);
}
