/*
 * A handle and its stream: moving between streams, the memory it works in, and the device scope of every call of the
 * library.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "handle_support.h"

#include "base/meta.h"
#include "thread_support.h"

enum { WORKSPACE = WORKSPACE_BYTES, FED = 3 << 20 };

/* `roomy` works in a workspace of weir's, `fed` allocates from weir. */
static library plain = { .name = "plain" }, roomy = { .name = "roomy" }, fed = { .name = "fed" };
static library *const libraries[] = { &plain, &roomy, &fed };
#define LIBRARIES (sizeof libraries / sizeof libraries[0])

static int register_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < LIBRARIES; i++) library_register(libraries[i], 0);
    library_works_in_memory_of_weirs(&roomy);
    kind_of(&fed)->set_memory = library_set_memory;
    return 0;
}

static int start(void **state)
{
    (void)state;
    for (size_t i = 0; i < LIBRARIES; i++) library_start(libraries[i]);
    open_host((weir_settings){ .host_memory = 64 * MIB });
    return 0;
}

static int end(void **state)
{
    close_host(state);
    for (size_t i = 0; i < LIBRARIES; i++) library_end(libraries[i]);
    return 0;
}

static void nap(void)
{
    struct timespec time = { 0, 20000000 };
    nanosleep(&time, NULL);
}

static void mark(void *flag)
{
    atomic_store((atomic_bool *)flag, true);
}

/* ---- a handle waits for its last use ----------------------------------------------------------------------------- */

/* Work that the handle queued on `from` is held. Work queued on `to` after the handle moved there must not run. */
static void assert_ordered(weir_stream from, weir_stream to, void (*move)(weir_stream to))
{
    atomic_bool first = false, second = false;
    hold(from);
    assert_ok(weir_stream_callback(from, mark, &first));
    move(to);
    assert_ok(weir_stream_callback(to, mark, &second));
    nap();
    assert_false(atomic_load(&first));
    assert_false(atomic_load(&second));
    let_run(from);
    assert_ok(weir_stream_synchronize(to));
    assert_true(atomic_load(&first));
    assert_true(atomic_load(&second));
}

static void by_get(weir_stream to)
{
    (void)get_on(&plain, to);
}

static void a_handle_that_moves_waits_for_its_last_use(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    (void)get_on(&plain, a);
    assert_ordered(a, b, by_get);
    assert_ordered(b, a, by_get);
    (void)get(&plain);
    assert_ordered(default_stream(0), b, by_get);
}

static void by_hand_over(weir_stream to)
{
    holder h;
    assert_ok(weir_handle_release(plain.kind, 0));
    holder_start(&h, &plain, to);
    assert_non_null(holder_handle(&h));
    holder_end(&h);
}

static void the_next_owner_waits_for_the_last_ones_use(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    (void)get_on(&plain, a);
    assert_ordered(a, b, by_hand_over);
    assert_int_equal(atomic_load(&plain.creates), 1);
}

static weir_lease lease;

static void by_lease(weir_stream to)
{
    assert_ok(weir_handle_return(lease));
    lease = borrow(&plain, to);
}

static void the_next_borrower_waits_for_the_last_ones_use(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    lease = borrow(&plain, a);
    assert_ordered(a, b, by_lease);
    assert_ok(weir_handle_return(lease));
    assert_int_equal(atomic_load(&plain.creates), 1);
}

static void after_a_failed_bind(weir_stream to)
{
    void *handle = NULL;
    weir_stream between = new_stream(0);
    atomic_store(&plain.fail_binds, 1);
    assert_status(weir_handle_get_on(plain.kind, between, &handle), WEIR_ERR_LIBRARY);
    (void)get_on(&plain, to);
}

static void a_failed_bind_does_not_forget_the_last_use(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    (void)get_on(&plain, a);
    assert_ordered(a, b, after_a_failed_bind);
}

/* The program may have used it there since. */
static void after_a_failed_bind_the_last_stream_is_waited_for_again(void **state)
{
    (void)state;
    const weir_stream a = new_stream(0), b = new_stream(0);
    void *handle = NULL;
    (void)get_on(&plain, a);
    atomic_store(&plain.fail_binds, 1);
    assert_status(weir_handle_get_on(plain.kind, b, &handle), WEIR_ERR_LIBRARY);
    const uint64_t waits = calls_of(WEIR_BACKEND_stream_wait);
    (void)get_on(&plain, b);
    assert_int_equal(calls_of(WEIR_BACKEND_stream_wait), waits + 1);
}

static void staying_on_a_stream_costs_no_event(void **state)
{
    (void)state;
    weir_stream a = new_stream(0);
    assert_ok(weir_handle_return(borrow(&plain, a)));
    const uint64_t events = calls_of(WEIR_BACKEND_event_record), waits = calls_of(WEIR_BACKEND_stream_wait);
    assert_ok(weir_handle_return(borrow(&plain, a)));
    assert_int_equal(calls_of(WEIR_BACKEND_event_record), events);
    assert_int_equal(calls_of(WEIR_BACKEND_stream_wait), waits);
}

static void moving_back_and_forth_needs_one_event(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    (void)get_on(&plain, a);
    for (int i = 0; i < 10; i++) (void)get_on(&plain, i % 2 ? a : b);
    assert_int_equal(calls_of(WEIR_BACKEND_event_create), 1);
}

static void moving_out_of_or_into_a_capture_leaves_it_alone(void **state)
{
    (void)state;
    const weir_backend *backend = wr_runtime_global.backend;
    weir_stream a = new_stream(0), b = new_stream(0);
    (void)get_on(&plain, a);
    assert_ok(backend->capture_begin(0, native_of(a), WEIR_CAPTURE_GLOBAL));
    (void)get_on(&plain, b); /* out of */
    (void)get_on(&plain, a); /* into */
    (void)get_on(&plain, b);
    assert_ok(weir_stream_synchronize(b));
    end_natively(native_of(a));
}

static weir_stream captured;

static void *begin_capture(weir_stream stream)
{
    void *native = native_of(stream);
    assert_ok(wr_runtime_global.backend->capture_begin(0, native, WEIR_CAPTURE_RELAXED));
    return native;
}

static void an_invalidated_capture_holds_no_handle_up(void **state)
{
    (void)state;
    const weir_backend *backend = wr_runtime_global.backend;
    weir_stream a = new_stream(0), b = new_stream(0);
    void *graph = NULL;
    (void)get_on(&plain, a);
    void *native = begin_capture(a);
    assert_status(backend->stream_query(0, native), WEIR_ERR_CAPTURE); /* ends it */
    assert_ptr_equal(get_on(&plain, b)->stream, native_of(b));
    assert_ptr_equal(get_on(&plain, a)->stream, native);
    assert_status(backend->capture_end(0, native, &graph), WEIR_ERR_CAPTURE);
}

static void by_capture(weir_stream to)
{
    void *native = begin_capture(captured);
    (void)get_on(&plain, captured);
    end_natively(native);
    (void)get_on(&plain, to);
}

static void by_capture_and_lease(weir_stream to)
{
    void *native = begin_capture(captured);
    by_lease(captured);
    by_lease(captured);
    end_natively(native);
    by_lease(to);
}

static void during_a_capture(weir_stream to)
{
    void *native = begin_capture(captured);
    (void)get_on(&plain, captured);
    (void)get_on(&plain, to);
    end_natively(native);
}

static void by_capture_and_a_failed_bind(weir_stream to)
{
    void *handle = NULL, *native = begin_capture(captured);
    (void)get_on(&plain, captured);
    end_natively(native);
    atomic_store(&plain.fail_binds, 1);
    assert_status(weir_handle_get_on(plain.kind, new_stream(0), &handle), WEIR_ERR_LIBRARY);
    (void)get_on(&plain, to);
}

static void a_use_before_a_capture_is_waited_for_after_it(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), c = new_stream(0);
    captured = new_stream(0);
    (void)get_on(&plain, a);
    assert_ordered(a, c, by_capture);
    assert_ordered(c, captured, by_capture);
    (void)get_on(&plain, a);
    assert_ordered(a, c, during_a_capture);
    assert_ordered(c, a, by_capture_and_a_failed_bind);
    assert_ok(weir_handle_release(plain.kind, 0));
    lease = borrow(&plain, a);
    assert_ordered(a, c, by_capture_and_lease);
    assert_ok(weir_handle_return(lease));
    assert_int_equal(atomic_load(&plain.creates), 1);
}

static void by_capture_of_its_stream(weir_stream to)
{
    void *native = begin_capture(captured);
    (void)get_on(&plain, captured); /* a hit */
    (void)get_on(&plain, new_stream(0));
    end_natively(native);
    (void)get_on(&plain, to);
}

static void a_use_before_a_capture_of_its_own_stream_is_waited_for_after_it(void **state)
{
    (void)state;
    captured = new_stream(0);
    (void)get_on(&plain, captured);
    assert_ordered(captured, new_stream(0), by_capture_of_its_stream);
    assert_int_equal(atomic_load(&plain.creates), 1);
}

static void by_capture_of_its_stream_and_a_take_over(weir_stream to)
{
    void *native = begin_capture(captured);
    assert_ok(weir_handle_release(plain.kind, 0));
    (void)get_on(&plain, captured); /* is bound again, to the same stream */
    (void)get_on(&plain, new_stream(0));
    end_natively(native);
    (void)get_on(&plain, to);
}

static void a_use_before_such_a_capture_is_waited_for_though_the_handle_was_taken_over_in_it(void **state)
{
    (void)state;
    captured = new_stream(0);
    (void)get_on(&plain, captured);
    assert_ordered(captured, new_stream(0), by_capture_of_its_stream_and_a_take_over);
    assert_int_equal(atomic_load(&plain.creates), 1);
}

static void a_handle_that_is_back_on_the_stream_that_it_left_for_a_capture_owes_nothing(void **state)
{
    (void)state;
    const weir_stream a = new_stream(0);
    captured = new_stream(0);
    (void)get_on(&plain, a);
    by_capture(a);
    const uint64_t hits = numbers_of(&plain, 0).hits;
    (void)get_on(&plain, a);
    assert_int_equal(numbers_of(&plain, 0).hits, hits + 1);
}

static void a_handle_may_go_back_and_forth_between_streams_that_capture(void **state)
{
    (void)state;
    const weir_stream a = new_stream(0), b = new_stream(0);
    (void)get_on(&plain, b);
    (void)get_on(&plain, a);
    void *first = begin_capture(a), *second = begin_capture(b);
    for (int i = 0; i < 2 * WR_HANDLE_DEBTS; i++) (void)get_on(&plain, i % 2 ? a : b);
    end_natively(first);
    end_natively(second);
}

static void a_handle_whose_uses_are_all_in_a_graph_need_not_wait_for_them(void **state)
{
    (void)state;
    weir_stream side = new_stream(0);
    captured = new_stream(0);
    void *native = begin_capture(captured);
    (void)get_on(&plain, captured);
    (void)get_on(&plain, side);
    const uint64_t hits = numbers_of(&plain, 0).hits;
    (void)get_on(&plain, side);
    assert_int_equal(numbers_of(&plain, 0).hits, hits + 1);
    end_natively(native);
}

static void a_use_already_waited_for_after_a_capture_costs_nothing_more(void **state)
{
    (void)state;
    weir_stream a = new_stream(0);
    captured = new_stream(0);
    (void)get_on(&plain, a);
    by_capture(captured);
    const uint64_t events = calls_of(WEIR_BACKEND_event_record), hits = numbers_of(&plain, 0).hits;
    (void)get_on(&plain, captured);
    assert_int_equal(numbers_of(&plain, 0).hits, hits + 1);
    by_capture(a); /* a hit inside the capture, which has nothing to wait for */
    assert_int_equal(calls_of(WEIR_BACKEND_event_record), events + 1);
}

/* Streams that the handle left for a capture and that capture since then: it remembers a wait for each. */
static void more_waits_than_a_handle_remembers_are_refused_until_a_capture_has_ended(void **state)
{
    (void)state;
    void *natives[WR_HANDLE_DEBTS], *handle = NULL;
    captured = new_stream(0);
    void *native = begin_capture(captured);
    for (int i = 0; i < WR_HANDLE_DEBTS; i++) {
        weir_stream s = new_stream(0);
        (void)get_on(&plain, s);
        (void)get_on(&plain, captured);
        natives[i] = begin_capture(s);
        (void)get_on(&plain, s); /* inside a capture: the earlier wait is still to come */
    }
    weir_stream last = new_stream(0);
    (void)get_on(&plain, last);
    assert_status(weir_handle_get_on(plain.kind, captured, &handle), WEIR_ERR_CAPTURE);
    end_natively(natives[0]);
    (void)get_on(&plain, last);
    (void)get_on(&plain, captured);
    for (int i = 1; i < WR_HANDLE_DEBTS; i++) end_natively(natives[i]);
    end_natively(native);
}

/* ---- workspaces -------------------------------------------------------------------------------------------------- */

static int64_t blocks(void)
{
    return stats_of(0).allocation[WEIR_STAT_ALL].current;
}

static void a_workspace_is_attached_after_every_set_stream(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    const thing *t = get_on(&roomy, a);
    assert_non_null(t->workspace);
    assert_non_null(get_on(&roomy, b)->workspace);
    assert_non_null(get_on(&roomy, a)->workspace);
    assert_int_equal(t->workspaces, 3);
    (void)get_on(&roomy, a); /* a hit */
    assert_int_equal(t->workspaces, 3);
}

static void a_workspace_is_weirs_memory_on_the_handles_stream(void **state)
{
    (void)state;
    weir_stream a = new_stream(0);
    const thing *t = get_on(&roomy, a);
    weir_pointer_info info = info_of(t->workspace);
    assert_int_equal(info.stream.id, a.id);
    assert_int_equal(info.requested, WORKSPACE);
    assert_int_equal(numbers_of(&roomy, 0).workspace_bytes, WORKSPACE);
    assert_int_equal(numbers_of(&roomy, 0).bytes, 0); /* not the library's */
}

static void there_is_one_workspace_per_handle_and_stream(void **state)
{
    (void)state;
    holder h;
    weir_stream a = new_stream(0), b = new_stream(0);
    const thing *t = get_on(&roomy, a);
    const void *on_a = t->workspace, *on_b = get_on(&roomy, b)->workspace;
    assert_ptr_not_equal(on_a, on_b);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(get_on(&roomy, a)->workspace, on_a);
        assert_ptr_equal(get_on(&roomy, b)->workspace, on_b);
    }
    holder_start(&h, &roomy, a);
    assert_ptr_not_equal(holder_handle(&h)->workspace, on_a);
    holder_end(&h);
    assert_int_equal(blocks(), 3);
    assert_int_equal(numbers_of(&roomy, 0).workspace_bytes, 3 * WORKSPACE);
}

/* Else, as handles go around, each comes to have a workspace on each stream. */
static void of_idle_handles_the_one_last_used_on_the_stream_is_taken(void **state)
{
    (void)state;
    const weir_stream streams[] = { new_stream(0), new_stream(0), new_stream(0) };
    for (unsigned round = 0; round < 6; round++) {
        weir_lease leases[3];
        for (unsigned i = 0; i < 3; i++) leases[i] = borrow(&roomy, streams[(i + round) % 3]);
        for (unsigned i = 0; i < 3; i++) assert_ok(weir_handle_return(leases[i]));
    }
    assert_int_equal(numbers_of(&roomy, 0).workspace_bytes, 3 * WORKSPACE);
    assert_int_equal(calls_of(WEIR_BACKEND_event_record), 0);
}

static void workspaces_go_with_their_handle(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    (void)get_on(&roomy, a);
    (void)get_on(&roomy, b);
    assert_ok(weir_handle_release(roomy.kind, 0));
    assert_int_equal(blocks(), 2); /* the next owner may be on the same stream */
    assert_int_equal(trim(&roomy, 0), 1);
    assert_int_equal(blocks(), 0);
    assert_int_equal(numbers_of(&roomy, 0).workspace_bytes, 0);
}

static void the_workspace_of_an_ended_stream_is_freed(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    (void)get_on(&roomy, a);
    (void)get_on(&roomy, b);
    assert_int_equal(blocks(), 2);
    assert_ok(weir_stream_destroy(a));
    for (int i = 0; i < 20; i++) {
        weir_stream s = new_stream(0);
        (void)get_on(&roomy, s);
        assert_ok(weir_stream_destroy(s));
    }
    assert_true(blocks() <= 2);
    assert_int_equal(numbers_of(&roomy, 0).workspace_bytes, (uint64_t)blocks() * WORKSPACE);
}

/* A graph captured with the workspace writes to its address at each replay. */
static void the_workspace_of_an_ended_stream_is_freed_at_the_next_get_on_another(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0), c = new_stream(0);
    (void)get_on(&roomy, a);
    (void)get_on(&roomy, c);
    (void)get_on(&roomy, b);
    assert_ok(weir_stream_destroy(a));
    (void)get_on(&roomy, b);
    assert_int_equal(blocks(), 2);
    assert_ok(weir_stream_destroy(b));
    (void)get_on(&roomy, c);
    assert_int_equal(blocks(), 1);
}

static void the_workspace_that_a_graph_kept_of_an_ended_stream_is_freed_at_the_next_get_after_the_graph(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    weir_graph graph;
    const weir_graph_options o = WEIR_GRAPH_OPTIONS_INIT;
    assert_ok(weir_graph_begin(a, &o, &graph));
    (void)get_on(&roomy, a);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_stream_destroy(a));
    for (int i = 0; i < 2; i++) {
        (void)get_on(&roomy, b);
        assert_int_equal(numbers_of(&roomy, 0).workspace_bytes, 2 * WORKSPACE);
    }
    assert_ok(weir_graph_destroy(graph));
    (void)get_on(&roomy, b);
    assert_int_equal(numbers_of(&roomy, 0).workspace_bytes, WORKSPACE);
}

static void a_workspace_bound_in_a_capture_outlives_its_handle(void **state)
{
    (void)state;
    const weir_backend *backend = wr_runtime_global.backend;
    weir_stream a = new_stream(0);
    void *graph = NULL;
    assert_ok(backend->capture_begin(0, native_of(a), WEIR_CAPTURE_GLOBAL));
    const void *workspace = get_on(&roomy, a)->workspace;
    assert_ok(backend->capture_end(0, native_of(a), &graph));
    assert_ok(weir_handle_release(roomy.kind, 0));
    assert_int_equal(trim(&roomy, 0), 1);
    assert_ptr_equal(info_of(workspace).base, workspace);
    assert_int_equal(numbers_of(&roomy, 0).workspace_bytes, 0); /* no handle owns it */
    assert_ok(backend->graph_destroy(0, graph));
}

static void a_get_without_memory_for_its_workspace_fails_and_works_later(void **state)
{
    (void)state;
    void *handle = NULL;
    void *all = alloc(64 * MIB);
    assert_status(weir_handle_get(roomy.kind, &handle), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(numbers_of(&roomy, 0).workspace_bytes, 0);
    assert_ok(weir_free(all));
    assert_non_null(get(&roomy)->workspace);
    assert_int_equal(atomic_load(&roomy.creates), 1);
}

static int refuse_workspace(void *self, void *handle, void *workspace, size_t bytes)
{
    (void)self, (void)handle, (void)workspace, (void)bytes;
    return LIBRARY_BROKEN;
}

static void a_get_whose_workspace_is_refused_fails_and_works_later(void **state)
{
    (void)state;
    void *handle = NULL;
    weir_stream a = new_stream(0);
    kind_of(&roomy)->set_workspace = refuse_workspace;
    assert_status(weir_handle_get_on(roomy.kind, a, &handle), WEIR_ERR_LIBRARY);
    assert_non_null(strstr(weir_error_text(), "roomy: setting its workspace failed with 7 broken"));
    assert_null(handle);
    library_works_in_memory_of_weirs(&roomy);
    assert_int_equal(info_of(get_on(&roomy, a)->workspace).stream.id, a.id);
    assert_int_equal(numbers_of(&roomy, 0).workspace_bytes, WORKSPACE);
}

/* What a reclaim callback does while the thread's own handle is being bound. */
typedef struct asked {
    weir_stream from, to;
    void *spare; /* freed last, on `to` */
    weir_status get, release, borrow;
    uint64_t trimmed;
    bool same; /* what was borrowed is the handle that is being bound */
    const void *bound;
} asked;

static bool use_the_library(void *user, int device, size_t needed)
{
    asked *a = user;
    void *handle = NULL;
    weir_lease lease = { 0 };
    (void)needed;
    if (!a->spare) return false;
    a->get = weir_handle_get_on(roomy.kind, a->from, &handle);
    a->release = weir_handle_release(roomy.kind, device);
    (void)!weir_handles_trim(roomy.kind, device, &a->trimmed);
    (void)!weir_free(a->spare);
    a->spare = NULL;
    a->borrow = weir_handle_borrow(roomy.kind, a->to, 0, &lease);
    a->same = a->borrow == WEIR_OK && weir_lease_handle(lease) == a->bound;
    (void)!weir_handle_return(lease);
    return true;
}

static void a_callback_can_neither_use_nor_give_away_the_handle_that_is_being_bound(void **state)
{
    (void)state;
    asked a = { .from = new_stream(0), .to = new_stream(0) };
    const thing *bound = get_on(&roomy, a.from);
    a.bound = bound;
    a.spare = alloc_on(20 * MIB, a.to);
    while (weir_alloc_on(MIB, a.from, &(void *){ NULL }) == WEIR_OK) continue;
    assert_ok(weir_reclaim_add(use_the_library, &a));
    assert_ptr_equal(get_on(&roomy, a.to), bound);
    assert_ok(weir_reclaim_remove(use_the_library, &a));
    assert_status(a.get, WEIR_ERR_BUSY);
    assert_status(a.release, WEIR_ERR_BUSY);
    assert_int_equal(a.trimmed, 0);
    assert_ok(a.borrow);
    assert_false(a.same);
    assert_ptr_equal(bound->stream, native_of(a.to));
    assert_ptr_equal(get_on(&roomy, a.from), bound);
}

/* ---- memory for libraries that take it from weir ----------------------------------------------------------------- */

static void *take_on_bound(thing *t, size_t bytes)
{
    void *memory = NULL;
    assert_int_equal(t->feeder->alloc(t->feeder->context, bytes, NULL, true, &memory), 0);
    return memory;
}

static void a_library_takes_memory_of_weirs_on_its_stream(void **state)
{
    (void)state;
    weir_stream a = new_stream(0);
    thing *t = get_on(&fed, a);
    void *memory = take_on_bound(t, FED);
    assert_int_equal(info_of(memory).stream.id, a.id);
    assert_int_equal(info_of(memory).requested, FED);
    assert_int_equal(t->feeder->free(t->feeder->context, memory, NULL, true), 0);
    assert_int_equal(blocks(), 0);
}

static void a_library_may_name_the_stream(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    const thing *t = get_on(&fed, a);
    void *memory = NULL;
    assert_int_equal(t->feeder->alloc(t->feeder->context, FED, native_of(b), false, &memory), 0);
    assert_int_equal(info_of(memory).stream.id, b.id);
    assert_int_equal(t->feeder->free(t->feeder->context, memory, native_of(b), false), 0);
    assert_int_equal(t->feeder->alloc(t->feeder->context, FED, NULL, false, &memory), 0);
    assert_int_equal(info_of(memory).stream.id, default_stream(0).id);
    assert_int_equal(t->feeder->free(t->feeder->context, memory, NULL, false), 0);
    assert_ok(weir_stream_destroy(b)); /* nobody holds it */
}

static int take_at_once(void *self, void *handle, const wr_kind_memory *memory)
{
    thing *t = handle;
    (void)self;
    t->feeder = memory;
    return memory->alloc(memory->context, FED, NULL, true, &t->fed);
}

static void what_a_library_takes_before_its_handle_has_a_stream_is_the_default_streams(void **state)
{
    (void)state;
    kind_of(&fed)->set_memory = take_at_once;
    const thing *t = get_on(&fed, new_stream(0));
    kind_of(&fed)->set_memory = library_set_memory;
    assert_int_equal(info_of(t->fed).stream.id, default_stream(0).id);
}

/* Its library frees a block of `home` while the other stream has work that is held. */
static void expect_free_to_wait(const thing *t, void *memory, weir_stream home, weir_stream busy)
{
    assert_int_equal(t->feeder->free(t->feeder->context, memory, NULL, true), 0);
    assert_int_equal(stats_of(0).pending_frees, 1);
    assert_ptr_not_equal(alloc_on(FED, home), memory);
    let_run(busy);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(stats_of(0).pending_frees, 0);
}

static void a_block_that_a_library_freed_on_another_stream_waits_for_that_stream(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    atomic_bool ran = false;
    thing *t = get_on(&fed, a);
    void *memory = take_on_bound(t, FED);
    (void)get_on(&fed, b);
    hold(b);
    assert_ok(weir_stream_callback(b, mark, &ran)); /* uses the memory */
    expect_free_to_wait(t, memory, a, b);
}

/* Its library took *memory on stream a. The work on b, which uses that, was held when a capture began. */
static thing *get_that_left_for_a_capture(weir_stream a, weir_stream b, void **memory)
{
    captured = new_stream(0);
    thing *t = get_on(&fed, a);
    *memory = take_on_bound(t, FED);
    (void)get_on(&fed, b);
    hold(b);
    void *native = begin_capture(captured);
    (void)get_on(&fed, captured);
    end_natively(native);
    return t;
}

static void a_block_that_a_library_freed_waits_for_a_stream_that_its_handle_left_for_a_capture(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    void *memory = NULL;
    thing *t = get_that_left_for_a_capture(a, b, &memory);
    expect_free_to_wait(t, memory, a, b);
    assert_ok(weir_stream_destroy(b)); /* nobody holds it */
}

static void a_block_that_a_library_freed_waits_for_each_of_such_streams(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    void *memory = NULL;
    thing *t = get_that_left_for_a_capture(a, b, &memory);
    const weir_stream first = captured;
    hold(first);
    void *native = begin_capture(captured = new_stream(0));
    (void)get_on(&fed, captured);
    end_natively(native);
    let_run(b);
    assert_ok(weir_stream_callback(first, do_nothing, NULL));
    expect_free_to_wait(t, memory, a, first);
}

static void a_block_that_cannot_be_made_to_wait_for_such_a_stream_is_not_freed(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    void *memory = NULL;
    thing *t = get_that_left_for_a_capture(a, b, &memory);
    wr_meta_fail_nth(1);
    assert_int_not_equal(t->feeder->free(t->feeder->context, memory, NULL, true), 0);
    assert_int_equal(info_of(memory).requested, FED);
    expect_free_to_wait(t, memory, a, b);
}

static void a_library_is_told_when_there_is_no_memory(void **state)
{
    (void)state;
    const thing *t = get(&fed);
    void *memory = &memory;
    assert_int_not_equal(t->feeder->alloc(t->feeder->context, 128 * MIB, NULL, true, &memory), 0);
    assert_ptr_equal(memory, &memory);
    assert_int_not_equal(t->feeder->free(t->feeder->context, &memory, NULL, true), 0); /* not weir's */
}

static void memory_that_a_library_frees_when_it_is_destroyed_is_not_lost(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    thing *t = get_on(&fed, a);
    t->fed = take_on_bound(t, FED);
    (void)get_on(&fed, b);
    assert_ok(weir_handle_release(fed.kind, 0));
    assert_int_equal(trim(&fed, 0), 1);
    assert_ok(weir_stream_synchronize(b));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
}

static void *use_and_close(void *argument)
{
    thing *t = NULL;
    weir_stream a = { 0 }, b = { 0 };
    weir_status *status = argument;
    *status = weir_stream_create(0, 0, &a);
    if (*status == WEIR_OK) *status = weir_stream_create(0, 0, &b);
    if (*status == WEIR_OK) *status = weir_handle_get_on(fed.kind, a, (void **)&t);
    if (*status != WEIR_OK) return NULL;
    if (t->feeder->alloc(t->feeder->context, FED, NULL, true, &t->fed) != 0) *status = WEIR_ERR_OUT_OF_MEMORY;
    if (*status == WEIR_OK) *status = weir_handle_get_on(fed.kind, b, (void **)&t);
    if (*status == WEIR_OK) *status = weir_close();
    return NULL;
}

static void closing_frees_what_destroyed_libraries_freed(void **state)
{
    (void)state;
    weir_status status = WEIR_ERR_INTERNAL;
    const uint64_t before = wr_meta_live();
    open_host((weir_settings){ .host_memory = 64 * MIB });
    in_a_thread(use_and_close, &status);
    assert_int_equal(status, WEIR_OK);
    assert_int_equal(wr_meta_live(), before);
    assert_int_equal(atomic_load(&fed.destroys), 1);
}

/* ---- where the library is called --------------------------------------------------------------------------------- */

static weir_backend scoped; /* the host's, with scopes */
static int scope_depth, calls_outside, scopes;

static weir_status enter_scope(int device, weir_backend_scope *scope)
{
    scope->saved[0] = (uint64_t)device + 100;
    scope_depth++;
    scopes++;
    return WEIR_OK;
}

static void leave_scope(weir_backend_scope *scope)
{
    if (scope->saved[0] != 100) calls_outside++;
    scope_depth--;
}

static void look(void)
{
    if (scope_depth != 1) calls_outside++;
}

static int scoped_create(void *user, int device, void **handle)
{
    look();
    return library_create(user, device, handle);
}

static int scoped_destroy(void *user, void *handle)
{
    look();
    return library_destroy(user, handle);
}

static int scoped_bind(void *user, void *handle, void *native_stream)
{
    look();
    return library_bind(user, handle, native_stream);
}

static int scoped_reset(void *user, void *handle)
{
    look();
    return library_reset(user, handle);
}

static void every_call_of_the_library_is_in_a_scope_of_the_device(void **state)
{
    (void)state;
    const weir_handle_ops ops = { WEIR_HANDLE_OPS_INIT,    .name = "scoped",
                                  .create = scoped_create, .destroy = scoped_destroy,
                                  .bind = scoped_bind,     .reset = scoped_reset,
                                  .user = &plain };
    weir_handle_kind kind = 0;
    wr_handle_pool *pool = NULL;
    void *handle = NULL;
    uint64_t destroyed = 0;
    assert_ok(weir_handle_kind_register(&ops, &kind));
    assert_ok(wr_device_handles(open_device(0), kind, &pool));
    scoped = *wr_runtime_global.backend;
    scoped.scope_enter = enter_scope;
    scoped.scope_leave = leave_scope;
    pool->site.backend = &scoped;

    assert_ok(weir_handle_get(kind, &handle));
    assert_ok(weir_handle_get_on(kind, new_stream(0), &handle));
    assert_ok(weir_handle_release(kind, 0));
    assert_ok(weir_handle_get(kind, &handle));
    assert_ok(weir_handle_release(kind, 0));
    assert_ok(weir_handles_trim(kind, 0, &destroyed));
    assert_int_equal(destroyed, 1);
    assert_int_equal(scopes, 6); /* create, bind, bind, reset, bind, destroy */
    assert_int_equal(calls_outside, 0);
    assert_int_equal(scope_depth, 0);
}

static library picky = { .name = "picky" };

static int refuse_memory(void *self, void *handle, const wr_kind_memory *memory)
{
    (void)self, (void)handle, (void)memory;
    return LIBRARY_BROKEN;
}

static void a_handle_that_takes_no_memory_of_weirs_is_destroyed(void **state)
{
    (void)state;
    void *handle = NULL;
    library_register(&picky, 0);
    library_start(&picky);
    kind_of(&picky)->set_memory = refuse_memory;
    assert_status(weir_handle_get_on(picky.kind, default_stream(0), &handle), WEIR_ERR_LIBRARY);
    assert_int_equal(atomic_load(&picky.creates), 1);
    assert_int_equal(atomic_load(&picky.destroys), 1);
    library_end(&picky);
}

#define HANDLE_TEST(test) cmocka_unit_test_setup_teardown(test, start, end)

static int start_closed(void **state)
{
    (void)state;
    for (size_t i = 0; i < LIBRARIES; i++) library_start(libraries[i]);
    return 0;
}

static int end_closed(void **state)
{
    (void)state;
    for (size_t i = 0; i < LIBRARIES; i++) library_end(libraries[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HANDLE_TEST(a_handle_that_moves_waits_for_its_last_use),
        HANDLE_TEST(the_next_owner_waits_for_the_last_ones_use),
        HANDLE_TEST(the_next_borrower_waits_for_the_last_ones_use),
        HANDLE_TEST(a_failed_bind_does_not_forget_the_last_use),
        HANDLE_TEST(after_a_failed_bind_the_last_stream_is_waited_for_again),
        HANDLE_TEST(staying_on_a_stream_costs_no_event),
        HANDLE_TEST(moving_back_and_forth_needs_one_event),
        HANDLE_TEST(moving_out_of_or_into_a_capture_leaves_it_alone),
        HANDLE_TEST(an_invalidated_capture_holds_no_handle_up),
        HANDLE_TEST(a_use_before_a_capture_is_waited_for_after_it),
        HANDLE_TEST(a_use_before_a_capture_of_its_own_stream_is_waited_for_after_it),
        HANDLE_TEST(a_use_before_such_a_capture_is_waited_for_though_the_handle_was_taken_over_in_it),
        HANDLE_TEST(a_handle_that_is_back_on_the_stream_that_it_left_for_a_capture_owes_nothing),
        HANDLE_TEST(a_handle_may_go_back_and_forth_between_streams_that_capture),
        HANDLE_TEST(a_handle_whose_uses_are_all_in_a_graph_need_not_wait_for_them),
        HANDLE_TEST(a_use_already_waited_for_after_a_capture_costs_nothing_more),
        HANDLE_TEST(more_waits_than_a_handle_remembers_are_refused_until_a_capture_has_ended),
        HANDLE_TEST(a_workspace_is_attached_after_every_set_stream),
        HANDLE_TEST(a_workspace_is_weirs_memory_on_the_handles_stream),
        HANDLE_TEST(there_is_one_workspace_per_handle_and_stream),
        HANDLE_TEST(of_idle_handles_the_one_last_used_on_the_stream_is_taken),
        HANDLE_TEST(workspaces_go_with_their_handle),
        HANDLE_TEST(the_workspace_of_an_ended_stream_is_freed),
        HANDLE_TEST(the_workspace_of_an_ended_stream_is_freed_at_the_next_get_on_another),
        HANDLE_TEST(the_workspace_that_a_graph_kept_of_an_ended_stream_is_freed_at_the_next_get_after_the_graph),
        HANDLE_TEST(a_workspace_bound_in_a_capture_outlives_its_handle),
        HANDLE_TEST(a_get_without_memory_for_its_workspace_fails_and_works_later),
        HANDLE_TEST(a_get_whose_workspace_is_refused_fails_and_works_later),
        HANDLE_TEST(a_callback_can_neither_use_nor_give_away_the_handle_that_is_being_bound),
        HANDLE_TEST(a_library_takes_memory_of_weirs_on_its_stream),
        HANDLE_TEST(a_library_may_name_the_stream),
        HANDLE_TEST(what_a_library_takes_before_its_handle_has_a_stream_is_the_default_streams),
        HANDLE_TEST(a_block_that_a_library_freed_on_another_stream_waits_for_that_stream),
        HANDLE_TEST(a_block_that_a_library_freed_waits_for_a_stream_that_its_handle_left_for_a_capture),
        HANDLE_TEST(a_block_that_a_library_freed_waits_for_each_of_such_streams),
        HANDLE_TEST(a_block_that_cannot_be_made_to_wait_for_such_a_stream_is_not_freed),
        HANDLE_TEST(a_library_is_told_when_there_is_no_memory),
        HANDLE_TEST(memory_that_a_library_frees_when_it_is_destroyed_is_not_lost),
        HANDLE_TEST(every_call_of_the_library_is_in_a_scope_of_the_device),
        HANDLE_TEST(a_handle_that_takes_no_memory_of_weirs_is_destroyed),
        cmocka_unit_test_setup_teardown(closing_frees_what_destroyed_libraries_freed, start_closed, end_closed),
    };
    return cmocka_run_group_tests(tests, register_all, NULL);
}
