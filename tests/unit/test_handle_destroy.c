/*
 * The end of handles: trimming, running out of memory, captures, and closing the library.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "handle_support.h"
#include "pool_support.h"

#include "base/meta.h"

/* `syncs` must not be destroyed during a capture, `fills` not be created; `hungry` has a code for "no memory";
 * `roomy` works in a workspace of weir's. */
static library plain = { .name = "plain" }, other = { .name = "other" }, syncs = { .name = "syncs" },
               hungry = { .name = "hungry" }, roomy = { .name = "roomy" }, fills = { .name = "fills" };
static library *const libraries[] = { &plain, &other, &syncs, &hungry, &roomy, &fills };
#define LIBRARIES (sizeof libraries / sizeof libraries[0])

static int register_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < LIBRARIES; i++)
        library_register(libraries[i], libraries[i] == &syncs   ? WEIR_HANDLE_DESTROY_SYNCS
                                       : libraries[i] == &fills ? WEIR_HANDLE_CREATE_SYNCS
                                                                : 0);
    kind_of(&hungry)->is_out_of_memory = library_is_out_of_memory;
    library_works_in_memory_of_weirs(&roomy);
    return 0;
}

static int start(void **state)
{
    (void)state;
    for (size_t i = 0; i < LIBRARIES; i++) library_start(libraries[i]);
    open_host((weir_settings){ .host_devices = 2, .host_memory = 64 * MIB });
    return 0;
}

static int end(void **state)
{
    close_host(state);
    for (size_t i = 0; i < LIBRARIES; i++) library_end(libraries[i]);
    return 0;
}

static void make_idle(const library *l, int device, int count)
{
    weir_lease leases[8];
    for (int i = 0; i < count; i++) leases[i] = borrow(l, default_stream(device));
    for (int i = 0; i < count; i++) assert_ok(weir_handle_return(leases[i]));
}

/* ---- trimming ---------------------------------------------------------------------------------------------------- */

static void trim_destroys_idle_handles_only(void **state)
{
    (void)state;
    const thing *mine = get(&plain);
    weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT), idle = borrow(&plain, WEIR_STREAM_CURRENT);
    assert_ok(weir_handle_return(idle));
    assert_int_equal(trim(&plain, 0), 1);
    weir_handle_stats stats = numbers_of(&plain, 0);
    assert_int_equal(stats.live, 2);
    assert_int_equal(stats.idle, 0);
    assert_int_equal(stats.destroyed, 1);
    assert_ptr_equal(get(&plain), mine);
    assert_non_null(weir_lease_handle(lease));
    assert_int_equal(trim(&plain, 0), 0);
    assert_ok(weir_handle_return(lease));
}

static void trim_is_per_kind_and_device(void **state)
{
    (void)state;
    make_idle(&plain, 0, 2);
    make_idle(&plain, 1, 2);
    make_idle(&other, 0, 3);
    assert_int_equal(trim(&plain, 0), 2);
    assert_int_equal(numbers_of(&plain, 1).idle, 2);
    assert_int_equal(numbers_of(&other, 0).idle, 3);
}

static void trimming_kind_0_means_all_kinds(void **state)
{
    (void)state;
    uint64_t destroyed = 0;
    make_idle(&plain, 0, 2);
    make_idle(&plain, 1, 1);
    make_idle(&other, 0, 3);
    assert_ok(weir_handles_trim(0, 0, &destroyed));
    assert_int_equal(destroyed, 5);
    assert_int_equal(numbers_of(&plain, 1).idle, 1);
    assert_ok(weir_handles_trim(0, 1, NULL));
    assert_int_equal(numbers_of(&plain, 1).idle, 0);
}

static void a_destroy_is_not_done_twice_also_when_it_fails(void **state)
{
    (void)state;
    uint64_t destroyed = 77;
    make_idle(&plain, 0, 3);
    atomic_store(&plain.fail_destroys, 1);
    assert_status(weir_handles_trim(plain.kind, 0, &destroyed), WEIR_ERR_LIBRARY);
    assert_non_null(strstr(weir_error_text(), "plain: destroy failed with 7 broken"));
    assert_int_equal(destroyed, 3); /* the others all the same */
    assert_int_equal(atomic_load(&plain.destroys), 3);
    assert_int_equal(numbers_of(&plain, 0).live, 0);
    assert_int_equal(trim(&plain, 0), 0);
}

static void make_another_idle(void)
{
    if (atomic_load(&plain.destroys) < 9) make_idle(&plain, 0, 1); /* a trim that goes on has an end all the same */
}

static void a_trim_leaves_what_becomes_idle_meanwhile(void **state)
{
    (void)state;
    make_idle(&plain, 0, 1);
    plain.on_destroy = make_another_idle;
    assert_int_equal(trim(&plain, 0), 1);
    plain.on_destroy = NULL;
}

/* ---- captures ---------------------------------------------------------------------------------------------------- */

static void begin_capture(weir_stream stream)
{
    assert_ok(wr_runtime_global.backend->capture_begin(0, native_of(stream), WEIR_CAPTURE_GLOBAL));
}

static void a_destroy_that_synchronises_waits_until_no_capture_is_underway(void **state)
{
    (void)state;
    weir_stream a = new_stream(0);
    make_idle(&syncs, 0, 2);
    make_idle(&plain, 0, 1);
    begin_capture(a);
    assert_int_equal(trim(&syncs, 0), 0);
    assert_int_equal(atomic_load(&syncs.destroys), 0);
    weir_handle_stats stats = numbers_of(&syncs, 0);
    assert_int_equal(stats.doomed, 2);
    assert_int_equal(stats.idle, 0);
    assert_int_equal(stats.live, 2);
    assert_int_equal(trim(&plain, 0), 1); /* harmless */
    assert_int_equal(trim(&syncs, 0), 0);
    end_natively(native_of(a));
    assert_int_equal(trim(&syncs, 0), 2);
    stats = numbers_of(&syncs, 0);
    assert_int_equal(stats.doomed, 0);
    assert_int_equal(stats.live, 0);
}

static void a_capture_on_another_device_is_no_reason_to_wait(void **state)
{
    (void)state;
    weir_stream a = new_stream(0);
    make_idle(&syncs, 1, 1);
    begin_capture(a);
    assert_int_equal(trim(&syncs, 1), 1);
    end_natively(native_of(a));
}

static void a_doomed_handle_is_taken_over_when_it_is_needed(void **state)
{
    (void)state;
    weir_stream a = new_stream(0);
    make_idle(&syncs, 0, 1);
    assert_ok(weir_handle_budget_set(syncs.kind, 0, 1, 0));
    begin_capture(a);
    assert_int_equal(trim(&syncs, 0), 0);
    assert_non_null(get(&syncs)); /* there is room for no other */
    weir_handle_stats stats = numbers_of(&syncs, 0);
    assert_int_equal(stats.doomed, 0);
    assert_int_equal(stats.reuses, 1);
    end_natively(native_of(a));
    assert_int_equal(trim(&syncs, 0), 0); /* it is in use */
    assert_int_equal(atomic_load(&syncs.creates), 1);
}

static void creating_during_a_capture_leaves_it_alone(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    begin_capture(a);
    (void)get_on(&plain, b);
    (void)get_on(&other, a);
    end_natively(native_of(a));
}

static void a_create_that_synchronises_is_refused_during_a_capture_of_the_device(void **state)
{
    (void)state;
    void *handle = NULL;
    weir_stream a = new_stream(0), b = new_stream(0);
    begin_capture(a);
    assert_status(weir_handle_get_on(fills.kind, b, &handle), WEIR_ERR_CAPTURE);
    assert_non_null(strstr(weir_error_text(), "fills: no handle is idle"));
    assert_status(weir_handle_get_on(fills.kind, a, &handle), WEIR_ERR_CAPTURE);
    assert_int_equal(atomic_load(&fills.creates), 0);
    assert_int_equal(numbers_of(&fills, 0).failed_creates, 2);
    (void)get_on(&fills, new_stream(1));
    end_natively(native_of(a));
    (void)get_on(&fills, b);
    begin_capture(a);
    (void)get_on(&fills, a); /* the thread has one */
    end_natively(native_of(a));
}

/* A thread that begins a capture. */
typedef struct beginner {
    pthread_t thread;
    weir_stream stream;
    sem_t begins;
    atomic_bool begun;
    weir_graph graph;
} beginner;

static void *begin_elsewhere(void *argument)
{
    beginner *b = argument;
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    options.mode = WEIR_CAPTURE_RELAXED;
    sem_post(&b->begins);
    if (weir_graph_begin(b->stream, &options, &b->graph) == WEIR_OK) atomic_store(&b->begun, true);
    return NULL;
}

static void *trim_elsewhere(void *destroyed)
{
    (void)weir_handles_trim(syncs.kind, 0, destroyed);
    return NULL;
}

/* The thread waits by then, unless it has not run for a while. */
static void start_beginning(beginner *b, weir_stream stream)
{
    const struct timespec while_ = { 0, 50000000 };
    *b = (beginner){ .stream = stream };
    assert_int_equal(sem_init(&b->begins, 0, 0), 0);
    assert_int_equal(pthread_create(&b->thread, NULL, begin_elsewhere, b), 0);
    wait_for(&b->begins);
    nanosleep(&while_, NULL);
}

static void end_beginning(beginner *b)
{
    pthread_join(b->thread, NULL);
    sem_destroy(&b->begins);
    assert_true(atomic_load(&b->begun));
}

static void a_capture_begins_between_two_destroys_and_delays_the_second(void **state)
{
    (void)state;
    beginner b;
    pthread_t trimmer;
    uint64_t destroyed = 0;
    weir_stream a = new_stream(0);
    make_idle(&syncs, 0, 3);
    atomic_store(&syncs.slow_destroys, 1);
    assert_int_equal(pthread_create(&trimmer, NULL, trim_elsewhere, &destroyed), 0);
    wait_for(&syncs.arrived);
    start_beginning(&b, a);
    assert_false(atomic_load(&b.begun)); /* the destroy would end the capture */
    sem_post(&syncs.gate);
    pthread_join(trimmer, NULL);
    end_beginning(&b);
    assert_int_equal(destroyed, 1);
    assert_int_equal(numbers_of(&syncs, 0).doomed, 2);
    assert_ok(weir_graph_end(b.graph));
    assert_ok(weir_graph_destroy(b.graph));
    assert_int_equal(trim(&syncs, 0), 2);
}

/* What a destroy may do although a thread waits to begin a capture. */
static weir_stream used_by_destroys;
static beginner beside_destroys;

static void use_weir(void)
{
    syncs.on_destroy = NULL;
    start_beginning(&beside_destroys, new_stream(0));
    assert_false(atomic_load(&beside_destroys.begun));
    void *block = alloc(4 * MIB);
    assert_ok(weir_record_stream(block, used_by_destroys));
    assert_ok(weir_free(block)); /* an event on the stream */
    assert_ok(weir_device_synchronize(0));
    assert_int_equal(trim(&syncs, 0), 1);
    assert_false(atomic_load(&beside_destroys.begun));
}

static void a_destroy_may_call_weir_while_a_capture_waits_to_begin(void **state)
{
    (void)state;
    used_by_destroys = new_stream(0);
    make_idle(&syncs, 0, 2);
    syncs.on_destroy = use_weir;
    assert_int_equal(trim(&syncs, 0), 1);
    end_beginning(&beside_destroys);
    assert_int_equal(numbers_of(&syncs, 0).live, 0);
    assert_ok(weir_graph_destroy(beside_destroys.graph));
}

static void wait_at_gate(void *unused)
{
    (void)unused;
    wait_for(&syncs.gate);
}

static void captures_begin_while_a_destroy_has_work_to_wait_for(void **state)
{
    (void)state;
    beginner b;
    pthread_t trimmer;
    uint64_t destroyed = 0;
    weir_stream busy = new_stream(0), a = new_stream(0);
    make_idle(&syncs, 0, 1);
    assert_ok(weir_stream_callback(busy, wait_at_gate, NULL));
    const uint64_t waits = calls_of(WEIR_BACKEND_event_synchronize);
    assert_int_equal(pthread_create(&trimmer, NULL, trim_elsewhere, &destroyed), 0);
    await_call_of(WEIR_BACKEND_event_synchronize, waits);
    start_beginning(&b, a);
    end_beginning(&b);
    assert_ok(weir_graph_end(b.graph));
    sem_post(&syncs.gate);
    pthread_join(trimmer, NULL);
    assert_int_equal(destroyed, 1);
    assert_ok(weir_graph_destroy(b.graph));
}

/* ---- out of memory ----------------------------------------------------------------------------------------------- */

static int asked;

static bool count_asking(void *user, int device, size_t needed)
{
    (void)user, (void)device, (void)needed;
    asked++;
    return false;
}

static void idle_handles_are_dropped_before_the_program_is_asked(void **state)
{
    (void)state;
    atomic_store(&plain.bytes, 16 * MIB);
    make_idle(&plain, 0, 2);
    (void)get(&other);
    assert_ok(weir_reclaim_add(count_asking, NULL));
    asked = 0;
    assert_int_equal(numbers_of(&plain, 0).bytes, 32 * MIB);
    void *block = alloc(60 * MIB);
    assert_int_equal(asked, 0);
    assert_int_equal(numbers_of(&plain, 0).destroyed, 2);
    assert_int_equal(numbers_of(&plain, 0).bytes, 0);
    assert_int_equal(numbers_of(&other, 0).live, 1);
    assert_ok(weir_free(block));
    assert_ok(weir_reclaim_remove(count_asking, NULL));
}

static void for_a_block_of_the_drivers_own_idle_handles_are_dropped_before_the_program_is_asked(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 64 * MIB, .debug = "nosub" });
    atomic_store(&plain.bytes, 16 * MIB);
    make_idle(&plain, 0, 2);
    assert_ok(weir_reclaim_add(count_asking, NULL));
    asked = 0;
    void *block = alloc(60 * MIB);
    assert_int_equal(asked, 0);
    assert_int_equal(numbers_of(&plain, 0).destroyed, 2);
    assert_ok(weir_free(block));
    assert_ok(weir_reclaim_remove(count_asking, NULL));
    assert_ok(weir_close());
}

static void handles_in_use_are_not_dropped(void **state)
{
    (void)state;
    void *block = NULL;
    atomic_store(&plain.bytes, 16 * MIB);
    const thing *mine = get(&plain);
    weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT);
    assert_status(weir_alloc(60 * MIB, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_ptr_equal(get(&plain), mine);
    assert_non_null(weir_lease_handle(lease));
    assert_int_equal(atomic_load(&plain.destroys), 0);
    assert_ok(weir_handle_return(lease));
}

static void a_failing_destroy_does_not_fail_the_allocation(void **state)
{
    (void)state;
    atomic_store(&plain.bytes, 32 * MIB);
    make_idle(&plain, 0, 1);
    atomic_store(&plain.fail_destroys, 1);
    assert_ok(weir_free(alloc(60 * MIB)));
}

static void a_failing_destroy_does_not_fail_a_resume(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, "model"));
    void *block = alloc_from(pool, 40 * MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_pause(0, "model", WEIR_PAUSE_DROP));
    atomic_store(&plain.bytes, 16 * MIB);
    make_idle(&plain, 0, 3);
    atomic_store(&plain.fail_destroys, 1);
    assert_ok(weir_resume(0, "model"));
    assert_int_equal(atomic_load(&plain.destroys), 3);
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(pool));
}

static void idle_handles_stay_while_there_is_room_to_resume(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, "model"));
    void *block = alloc_from(pool, 20 * MIB, WEIR_STREAM_CURRENT);
    make_idle(&plain, 0, 2);
    assert_ok(weir_pause(0, "model", WEIR_PAUSE_DROP));
    assert_ok(weir_resume(0, "model"));
    assert_int_equal(numbers_of(&plain, 0).idle, 2);
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(pool));
}

static void a_create_without_memory_is_tried_again_after_caches_were_emptied(void **state)
{
    (void)state;
    atomic_store(&plain.bytes, 10 * MIB);
    make_idle(&plain, 0, 1);
    assert_ok(weir_free(alloc(40 * MIB))); /* cached */
    assert_int_equal(reserved_on(0), 40 * MIB);
    atomic_store(&hungry.bytes, 60 * MIB);
    assert_non_null(get(&hungry));
    weir_handle_stats stats = numbers_of(&hungry, 0);
    assert_int_equal(stats.created, 1);
    assert_int_equal(stats.failed_creates, 0);
    assert_int_equal(stats.bytes, 60 * MIB); /* the memory of the create, not that of emptying the caches */
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(numbers_of(&plain, 0).live, 0);
}

/* The workspaces of idle handles are in the caches only when those are destroyed. */
static void a_create_without_memory_gets_that_of_idle_workspaces(void **state)
{
    (void)state;
    (void)get(&roomy);
    assert_ok(weir_handle_release(roomy.kind, 0));
    const int64_t reserved = reserved_on(0);
    assert_true(reserved > 0);
    atomic_store(&hungry.bytes, 64 * MIB - (size_t)reserved / 2);
    assert_non_null(get(&hungry));
    assert_int_equal(reserved_on(0), 0);
}

static void a_refused_unmap_does_not_keep_idle_handles_from_a_create_without_memory(void **state)
{
    (void)state;
    atomic_store(&plain.bytes, 40 * MIB);
    make_idle(&plain, 0, 1);
    assert_ok(weir_free(alloc(4 * MIB)));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, 1, WEIR_ERR_DRIVER));
    atomic_store(&hungry.bytes, 32 * MIB);
    assert_non_null(get(&hungry));
    assert_ok(weir_host_fail_clear());
}

static void a_create_that_fails_for_another_reason_is_not_tried_again(void **state)
{
    (void)state;
    void *handle = NULL;
    assert_ok(weir_free(alloc(40 * MIB)));
    atomic_store(&hungry.fail_creates, 1);
    assert_status(weir_handle_get(hungry.kind, &handle), WEIR_ERR_LIBRARY);
    assert_int_equal(reserved_on(0), 40 * MIB);
    assert_int_equal(numbers_of(&hungry, 0).failed_creates, 1);
}

static void a_create_that_finds_no_memory_twice_fails(void **state)
{
    (void)state;
    void *handle = NULL;
    atomic_store(&hungry.bytes, 65 * MIB);
    assert_status(weir_handle_get(hungry.kind, &handle), WEIR_ERR_LIBRARY);
    assert_int_equal(numbers_of(&hungry, 0).failed_creates, 1);
    atomic_store(&hungry.bytes, MIB);
    assert_non_null(get(&hungry));
}

/* ---- closing ----------------------------------------------------------------------------------------------------- */

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

static void open_small(void)
{
    open_host((weir_settings){ .host_devices = 2, .host_memory = 64 * MIB });
}

static void closing_destroys_all_handles_whoever_has_them(void **state)
{
    (void)state;
    holder h;
    open_small();
    weir_stream a = new_stream(0);
    (void)get(&plain);
    (void)get_on(&plain, default_stream(1));
    weir_lease lease = borrow(&plain, a);
    make_idle(&other, 0, 2);
    make_idle(&syncs, 0, 1);
    begin_capture(a);
    assert_int_equal(trim(&syncs, 0), 0);
    end_natively(native_of(a));
    holder_start(&h, &plain, WEIR_STREAM_CURRENT);
    assert_non_null(holder_handle(&h));
    assert_ok(weir_close());
    assert_int_equal(atomic_load(&plain.destroys), 4);
    assert_int_equal(atomic_load(&other.destroys), 2);
    assert_int_equal(atomic_load(&syncs.destroys), 1);

    void *handle = NULL;
    weir_handle_stats stats = { .size = sizeof stats };
    assert_status(weir_handle_get(plain.kind, &handle), WEIR_ERR_CLOSED);
    assert_status(weir_handle_get_on(plain.kind, a, &handle), WEIR_ERR_CLOSED);
    assert_status(weir_handle_release(plain.kind, 0), WEIR_ERR_CLOSED);
    assert_status(weir_handle_borrow(plain.kind, a, 0, &lease), WEIR_ERR_CLOSED);
    assert_status(weir_handle_return(lease), WEIR_ERR_CLOSED);
    assert_null(weir_lease_handle(lease));
    assert_status(weir_handle_budget_set(plain.kind, 0, 1, 0), WEIR_ERR_CLOSED);
    assert_status(weir_handles_trim(plain.kind, 0, NULL), WEIR_ERR_CLOSED);
    assert_status(weir_handle_stats_get(plain.kind, 0, &stats), WEIR_ERR_CLOSED);
    holder_end(&h); /* a thread that ends now has nothing to give back */
    assert_int_equal(atomic_load(&plain.destroys), 4);
}

static void after_a_close_handles_are_made_afresh(void **state)
{
    (void)state;
    open_small();
    (void)get(&plain);
    assert_ok(weir_handle_budget_set(plain.kind, 0, 1, 0));
    assert_ok(weir_close());
    open_small();
    assert_int_equal(numbers_of(&plain, 0).created, 0);
    (void)get(&plain);
    (void)borrow(&plain, WEIR_STREAM_CURRENT); /* the budget went with the pool */
    assert_int_equal(numbers_of(&plain, 0).live, 2);
    assert_ok(weir_close());
}

static void a_thread_may_end_after_a_close_and_another_open(void **state)
{
    (void)state;
    holder h;
    open_small();
    holder_start(&h, &plain, WEIR_STREAM_CURRENT);
    assert_non_null(holder_handle(&h));
    assert_ok(weir_close());
    open_small();
    (void)get(&plain);
    holder_end(&h);
    assert_int_equal(numbers_of(&plain, 0).idle, 0);
    assert_int_equal(numbers_of(&plain, 0).live, 1);
    assert_ok(weir_close());
}

static void closing_reports_a_failed_destroy_and_destroys_the_others(void **state)
{
    (void)state;
    const uint64_t before = wr_meta_live();
    open_small();
    make_idle(&plain, 0, 3);
    atomic_store(&plain.fail_destroys, 1);
    assert_status(weir_close(), WEIR_ERR_LIBRARY);
    assert_int_equal(atomic_load(&plain.destroys), 3);
    assert_int_equal(wr_meta_live(), before);
}

#define HANDLE_TEST(test) cmocka_unit_test_setup_teardown(test, start, end)
#define CLOSED_TEST(test) cmocka_unit_test_setup_teardown(test, start_closed, end_closed)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HANDLE_TEST(trim_destroys_idle_handles_only),
        HANDLE_TEST(trim_is_per_kind_and_device),
        HANDLE_TEST(trimming_kind_0_means_all_kinds),
        HANDLE_TEST(a_destroy_is_not_done_twice_also_when_it_fails),
        HANDLE_TEST(a_trim_leaves_what_becomes_idle_meanwhile),
        HANDLE_TEST(a_destroy_that_synchronises_waits_until_no_capture_is_underway),
        HANDLE_TEST(a_capture_on_another_device_is_no_reason_to_wait),
        HANDLE_TEST(a_capture_begins_between_two_destroys_and_delays_the_second),
        HANDLE_TEST(a_destroy_may_call_weir_while_a_capture_waits_to_begin),
        HANDLE_TEST(captures_begin_while_a_destroy_has_work_to_wait_for),
        HANDLE_TEST(a_doomed_handle_is_taken_over_when_it_is_needed),
        HANDLE_TEST(creating_during_a_capture_leaves_it_alone),
        HANDLE_TEST(a_create_that_synchronises_is_refused_during_a_capture_of_the_device),
        HANDLE_TEST(idle_handles_are_dropped_before_the_program_is_asked),
        CLOSED_TEST(for_a_block_of_the_drivers_own_idle_handles_are_dropped_before_the_program_is_asked),
        HANDLE_TEST(handles_in_use_are_not_dropped),
        HANDLE_TEST(a_failing_destroy_does_not_fail_the_allocation),
        HANDLE_TEST(a_failing_destroy_does_not_fail_a_resume),
        HANDLE_TEST(idle_handles_stay_while_there_is_room_to_resume),
        HANDLE_TEST(a_create_without_memory_is_tried_again_after_caches_were_emptied),
        HANDLE_TEST(a_create_without_memory_gets_that_of_idle_workspaces),
        HANDLE_TEST(a_refused_unmap_does_not_keep_idle_handles_from_a_create_without_memory),
        HANDLE_TEST(a_create_that_fails_for_another_reason_is_not_tried_again),
        HANDLE_TEST(a_create_that_finds_no_memory_twice_fails),
        CLOSED_TEST(closing_destroys_all_handles_whoever_has_them),
        CLOSED_TEST(after_a_close_handles_are_made_afresh),
        CLOSED_TEST(a_thread_may_end_after_a_close_and_another_open),
        CLOSED_TEST(closing_reports_a_failed_destroy_and_destroys_the_others),
    };
    return cmocka_run_group_tests(tests, register_all, NULL);
}
