/*
 * A thread's own handles: when they are made, which one a get returns, and what a get costs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "handle_support.h"
#include "weir/observe.h"

#include <stdio.h>

static library plain = { .name = "plain" }, other = { .name = "other" }, alone = { .name = "alone" },
               always = { .name = "always" };
static library *const libraries[] = { &plain, &other, &alone, &always };
#define LIBRARIES (sizeof libraries / sizeof libraries[0])

static weir_handle_kind streamless; /* of `plain`, without bind and reset */

static int register_all(void **state)
{
    (void)state;
    library_register(&plain, 0);
    library_register(&other, 0);
    library_register(&alone, WEIR_HANDLE_FIRST_ALONE);
    library_register(&always, WEIR_HANDLE_BIND_ALWAYS);
    const weir_handle_ops ops = { WEIR_HANDLE_OPS_INIT, .name = "streamless", .create = library_create,
                                  .destroy = library_destroy, .user = &plain };
    assert_ok(weir_handle_kind_register(&ops, &streamless));
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

/* ---- one per kind, device and thread ----------------------------------------------------------------------------- */

static void nothing_is_created_before_the_first_get(void **state)
{
    (void)state;
    weir_handle_stats stats = numbers_of(&plain, 0);
    assert_int_equal(stats.created, 0);
    assert_int_equal(trim(&plain, 0), 0);
    assert_int_equal(atomic_load(&plain.creates), 0);
    (void)get(&plain);
    assert_int_equal(atomic_load(&plain.creates), 1);
    assert_int_equal(atomic_load(&other.creates), 0);
}

static void every_get_gives_the_threads_same_handle(void **state)
{
    (void)state;
    const thing *first = get(&plain);
    for (int i = 0; i < 10; i++) assert_ptr_equal(get(&plain), first);
    assert_ptr_equal(get_on(&plain, new_stream(0)), first);
    assert_int_equal(atomic_load(&plain.creates), 1);
}

static void each_thread_has_its_own(void **state)
{
    (void)state;
    holder theirs;
    const thing *mine = get(&plain);
    holder_start(&theirs, &plain, WEIR_STREAM_CURRENT);
    assert_non_null(holder_handle(&theirs));
    assert_ptr_not_equal(holder_handle(&theirs), mine);
    assert_int_equal(numbers_of(&plain, 0).live, 2);
    holder_end(&theirs);
}

static void each_device_and_each_kind_has_its_own(void **state)
{
    (void)state;
    const thing *here = get(&plain), *there = get_on(&plain, default_stream(1));
    assert_ptr_not_equal(here, there);
    assert_int_equal(here->device, 0);
    assert_int_equal(there->device, 1);
    assert_ptr_not_equal(get(&other), here);
    assert_ok(weir_device_set_current(1));
    assert_ptr_equal(get(&plain), there);
}

static void a_thread_that_ends_gives_its_handles_back_without_any_call(void **state)
{
    (void)state;
    holder h;
    holder_start(&h, &plain, WEIR_STREAM_CURRENT);
    const thing *theirs = holder_handle(&h);
    const uint64_t before = driver_calls();
    const int binds = atomic_load(&plain.binds);
    holder_end(&h);
    assert_int_equal(driver_calls(), before);
    assert_int_equal(atomic_load(&plain.binds), binds);
    assert_int_equal(atomic_load(&plain.resets), 0);
    assert_int_equal(atomic_load(&plain.destroys), 0);
    assert_int_equal(numbers_of(&plain, 0).idle, 1);
    assert_ptr_equal(get(&plain), theirs);
    assert_int_equal(numbers_of(&plain, 0).idle, 0);
}

static void a_thread_that_had_handles_leaves_no_memory(void **state)
{
    (void)state;
    uint64_t live = 0;
    for (int i = 0; i < 3; i++) {
        holder h;
        holder_start(&h, &plain, WEIR_STREAM_CURRENT);
        holder_end(&h);
        if (i == 0) live = wr_meta_live();
    }
    assert_int_equal(wr_meta_live(), live);
}

static void what_a_thread_had_before_a_close_is_freed_once_it_has_a_handle_again(void **state)
{
    uint64_t live = 0;
    for (int i = 0; i < 3; i++) {
        (void)get(&plain);
        end(state);
        if (i == 0) live = wr_meta_live();
        assert_int_equal(wr_meta_live(), live);
        start(state);
    }
}

static void the_handle_given_back_last_is_taken_first(void **state)
{
    (void)state;
    holder h[3];
    const thing *handles[3];
    for (int i = 0; i < 3; i++) {
        holder_start(&h[i], &plain, WEIR_STREAM_CURRENT);
        handles[i] = holder_handle(&h[i]);
    }
    holder_end(&h[1]);
    holder_end(&h[0]);
    holder_end(&h[2]);
    const int order[] = { 2, 0, 1 };
    for (int i = 0; i < 3; i++) {
        holder_start(&h[i], &plain, WEIR_STREAM_CURRENT);
        assert_ptr_equal(holder_handle(&h[i]), handles[order[i]]);
    }
    for (int i = 0; i < 3; i++) holder_end(&h[i]);
    assert_int_equal(atomic_load(&plain.creates), 3);
}

static void a_released_handle_serves_another_thread(void **state)
{
    (void)state;
    holder h;
    const thing *mine = get(&plain);
    assert_ok(weir_handle_release(plain.kind, 0));
    assert_int_equal(numbers_of(&plain, 0).idle, 1);
    holder_start(&h, &plain, WEIR_STREAM_CURRENT);
    assert_ptr_equal(holder_handle(&h), mine);
    assert_ptr_not_equal(get(&plain), mine);
    holder_end(&h);
}

static void releasing_what_one_does_not_have_is_fine(void **state)
{
    (void)state;
    assert_ok(weir_handle_release(plain.kind, 0));
    holder h;
    holder_start(&h, &plain, WEIR_STREAM_CURRENT);
    assert_non_null(holder_handle(&h));
    assert_ok(weir_handle_release(plain.kind, WEIR_DEVICE_CURRENT)); /* the other threads' handles are not touched */
    assert_int_equal(numbers_of(&plain, 0).idle, 0);
    holder_end(&h);
}

/* ---- binding ----------------------------------------------------------------------------------------------------- */

static void a_get_binds_to_the_current_stream(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    assert_ok(weir_stream_set_current(a));
    assert_ptr_equal(get(&plain)->stream, native_of(a));
    assert_ok(weir_stream_set_current(b));
    assert_ptr_equal(get(&plain)->stream, native_of(b));
    assert_ptr_equal(get_on(&plain, a)->stream, native_of(a));
    assert_ok(weir_stream_set_current(default_stream(0)));
    assert_null(get(&plain)->stream);
}

static void an_unchanged_stream_is_not_set_again(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    for (int i = 0; i < 5; i++) (void)get_on(&plain, a);
    assert_int_equal(atomic_load(&plain.binds), 1);
    for (int i = 0; i < 5; i++) (void)get_on(&plain, b);
    assert_int_equal(atomic_load(&plain.binds), 2);
    assert_int_equal(numbers_of(&plain, 0).rebinds, 2);
}

static void bind_always_sets_the_stream_at_every_get(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) (void)get(&always);
    for (int i = 0; i < 5; i++) (void)get_on(&always, default_stream(0));
    for (int i = 0; i < 5; i++) (void)get_on(&always, WEIR_STREAM_CURRENT);
    assert_int_equal(atomic_load(&always.binds), 15);
    assert_int_equal(numbers_of(&always, 0).rebinds, 15);
    assert_int_equal(numbers_of(&always, 0).hits, 0);
}

static void a_kind_without_streams_is_never_bound(void **state)
{
    (void)state;
    void *a = NULL, *b = NULL;
    weir_handle_stats stats = { .size = sizeof stats };
    weir_stream stream = new_stream(0);
    assert_ok(weir_handle_get_on(streamless, default_stream(0), &a));
    uint64_t before = driver_calls();
    assert_ok(weir_handle_get_on(streamless, stream, &b));
    assert_int_equal(driver_calls(), before);
    assert_ptr_equal(a, b);
    assert_int_equal(atomic_load(&plain.binds), 0);
    assert_ok(weir_handle_stats_get(streamless, 0, &stats));
    assert_int_equal(stats.hits, 1);
    assert_int_equal(stats.rebinds, 0);
}

static void a_failed_bind_is_reported_and_done_again_at_the_next_get(void **state)
{
    (void)state;
    weir_stream a = new_stream(0);
    void *handle = &handle;
    const thing *mine = get(&plain);
    atomic_store(&plain.fail_binds, 1);
    assert_status(weir_handle_get_on(plain.kind, a, &handle), WEIR_ERR_LIBRARY);
    assert_ptr_equal(handle, &handle);
    assert_non_null(strstr(weir_error_text(), "7 broken"));
    assert_ptr_equal(get_on(&plain, default_stream(0)), mine); /* its former stream cannot be trusted */
    assert_int_equal(atomic_load(&plain.binds), 3);
    assert_ptr_equal(get_on(&plain, a)->stream, native_of(a));
}

static void a_stream_destroyed_while_bound_gives_way_to_the_current_one(void **state)
{
    (void)state;
    weir_stream a = new_stream(0);
    void *handle = NULL;
    const thing *mine = get_on(&plain, a);
    assert_ok(weir_stream_destroy(a));
    assert_status(weir_handle_get_on(plain.kind, a, &handle), WEIR_ERR_INVALID_STREAM);
    assert_ptr_equal(get(&plain), mine);
    assert_null(mine->stream);
    weir_stream b = new_stream(0); /* takes the record of `a` */
    assert_ptr_equal(get_on(&plain, b)->stream, native_of(b));
}

/* ---- what a hit costs -------------------------------------------------------------------------------------------- */

static void a_hit_calls_neither_driver_nor_library(void **state)
{
    (void)state;
    weir_stream a = new_stream(0);
    assert_ok(weir_stream_set_current(a));
    (void)get(&plain);
    uint64_t before = driver_calls();
    for (int i = 0; i < 100; i++) {
        (void)get(&plain);
        (void)get_on(&plain, a);
    }
    assert_int_equal(driver_calls(), before);
    assert_int_equal(atomic_load(&plain.binds), 1);
    assert_int_equal(numbers_of(&plain, 0).hits, 200);
}

typedef struct hitter {
    sem_t ready, go;
    weir_status status;
} hitter;

static void *hit(void *argument)
{
    hitter *h = argument;
    void *handle = NULL;
    h->status = weir_handle_get(plain.kind, &handle);
    sem_post(&h->ready);
    wait_for(&h->go);
    for (int i = 0; i < 10 && h->status == WEIR_OK; i++) h->status = weir_handle_get(plain.kind, &handle);
    return NULL;
}

static void a_hit_takes_no_lock(void **state)
{
    (void)state;
    hitter h = { .status = WEIR_OK };
    pthread_t thread;
    wr_handle_pool *pool = NULL;
    wr_device *d = open_device(0);
    sem_init(&h.ready, 0, 0);
    sem_init(&h.go, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, hit, &h), 0);
    wait_for(&h.ready);
    assert_ok(wr_device_handles(d, plain.kind, &pool));

    wr_lock *const locks[] = { &wr_runtime_global.lock,
                               &wr_runtime_global.exit_lock,
                               &d->cache.poll_lock,
                               &d->streams.lock,
                               &pool->lock,
                               &wr_runtime_global.reclaim_lock };
    const size_t count = sizeof locks / sizeof locks[0];
    for (size_t i = 0; i < count; i++) wr_lock_acquire(locks[i]);
    wr_bias_acquire(&d->cache.lock, WR_BIAS_INNER);
    wr_lock_acquire(&d->events.lock);
    sem_post(&h.go);
    /* Ending takes locks, so the thread's count is watched instead of joining it. */
    uint64_t hits = 0;
    for (int i = 0; i < 2000 && hits < 10; i++) {
        struct timespec tick = { 0, 1000000 };
        nanosleep(&tick, NULL);
        hits = atomic_load(&pool->all->hits);
    }
    wr_lock_release(&d->events.lock);
    wr_bias_release(&d->cache.lock, WR_BIAS_INNER);
    for (size_t i = count; i-- > 0;) wr_lock_release(locks[i]);
    pthread_join(thread, NULL);
    assert_int_equal(h.status, WEIR_OK);
    assert_int_equal(hits, 10);
    sem_destroy(&h.ready);
    sem_destroy(&h.go);
}

/* ---- creating ---------------------------------------------------------------------------------------------------- */

static void a_slow_create_delays_no_other_thread(void **state)
{
    (void)state;
    holder slow, fast, elsewhere;
    (void)get(&plain);
    atomic_store(&plain.slow_creates, 1);
    holder_start(&slow, &plain, WEIR_STREAM_CURRENT);
    wait_for(&plain.arrived);
    assert_non_null(get(&plain));                   /* a hit */
    assert_non_null(get_on(&plain, new_stream(0))); /* a rebind */
    assert_non_null(get(&other));                   /* another kind's create */
    holder_start(&fast, &plain, WEIR_STREAM_CURRENT);
    assert_non_null(holder_handle(&fast)); /* the same kind's create */
    holder_start(&elsewhere, &plain, default_stream(1));
    assert_non_null(holder_handle(&elsewhere)); /* another device's */
    assert_int_equal(atomic_load(&plain.creating), 1);
    sem_post(&plain.gate);
    assert_non_null(holder_handle(&slow));
    holder_end(&slow);
    holder_end(&fast);
    holder_end(&elsewhere);
}

static void a_first_alone_kind_serialises_its_first_create_only(void **state)
{
    (void)state;
    holder first, second, third, elsewhere;
    atomic_store(&alone.slow_creates, 1);
    holder_start(&first, &alone, WEIR_STREAM_CURRENT);
    wait_for(&alone.arrived);
    holder_start(&second, &alone, WEIR_STREAM_CURRENT);
    assert_true(holder_waits(&second));
    holder_start(&elsewhere, &alone, default_stream(1)); /* another device's first */
    assert_non_null(holder_handle(&elsewhere));
    assert_non_null(get(&plain));
    sem_post(&alone.gate);
    assert_non_null(holder_handle(&first));
    assert_non_null(holder_handle(&second));

    atomic_store(&alone.slow_creates, 1);
    holder_start(&third, &alone, WEIR_STREAM_CURRENT);
    wait_for(&alone.arrived);
    assert_non_null(get(&alone)); /* created while the third is being created */
    sem_post(&alone.gate);
    assert_non_null(holder_handle(&third));
    assert_int_equal(atomic_load(&alone.creates), 5);
    holder *const all[] = { &first, &second, &third, &elsewhere };
    for (int i = 0; i < 4; i++) holder_end(all[i]);
}

static void after_a_failed_first_create_the_next_runs_alone_too(void **state)
{
    (void)state;
    holder first, second;
    atomic_store(&alone.slow_creates, 1);
    atomic_store(&alone.fail_creates, 1);
    holder_start(&first, &alone, WEIR_STREAM_CURRENT);
    wait_for(&alone.arrived);
    holder_start(&second, &alone, WEIR_STREAM_CURRENT);
    assert_true(holder_waits(&second));
    sem_post(&alone.gate);
    assert_null(holder_handle(&first));
    assert_non_null(holder_handle(&second));
    assert_int_equal(atomic_load(&alone.most_creating), 1);
    holder_end(&first);
    holder_end(&second);
}

static void until_a_create_has_succeeded_each_runs_alone(void **state)
{
    (void)state;
    holder second, third;
    void *handle = NULL;
    atomic_store(&alone.fail_creates, 1);
    assert_status(weir_handle_get(alone.kind, &handle), WEIR_ERR_LIBRARY);
    atomic_store(&alone.slow_creates, 1);
    holder_start(&second, &alone, WEIR_STREAM_CURRENT);
    wait_for(&alone.arrived);
    holder_start(&third, &alone, WEIR_STREAM_CURRENT);
    const bool waits = holder_waits(&third);
    sem_post(&alone.gate);
    assert_non_null(holder_handle(&second));
    assert_non_null(holder_handle(&third));
    holder_end(&second);
    holder_end(&third);
    assert_true(waits);
}

static void a_failed_create_is_classified_and_the_next_get_works(void **state)
{
    (void)state;
    void *handle = &handle;
    weir_error error = { .size = sizeof error };
    atomic_store(&plain.fail_creates, 1);
    assert_status(weir_handle_get(plain.kind, &handle), WEIR_ERR_LIBRARY);
    assert_ptr_equal(handle, &handle);
    assert_ok(weir_last_error(&error));
    assert_int_equal(error.native_code, LIBRARY_BROKEN);
    assert_string_equal(error.library, "plain");
    assert_non_null(strstr(error.text, "plain: create failed with 7 broken"));
    assert_null(strstr(error.text, "GPU")); /* it needs none */
    weir_handle_stats stats = numbers_of(&plain, 0);
    assert_int_equal(stats.failed_creates, 1);
    assert_int_equal(stats.created, 0);
    assert_int_equal(stats.live, 0);
    assert_non_null(get(&plain));
}

static void codes_without_a_text_are_shown_as_numbers(void **state)
{
    (void)state;
    void *handle = NULL;
    atomic_store(&plain.bytes, 128 * MIB); /* more than the device has */
    assert_status(weir_handle_get(plain.kind, &handle), WEIR_ERR_LIBRARY);
    assert_non_null(strstr(weir_error_text(), "code 2"));
}

static int creates_nothing(void *user, int device, void **handle)
{
    (void)user, (void)device, (void)handle;
    return 3;
}

static void a_kind_may_have_no_texts(void **state)
{
    (void)state;
    const weir_handle_ops ops = { WEIR_HANDLE_OPS_INIT, .name = "silent", .create = creates_nothing,
                                  .destroy = library_destroy };
    weir_handle_kind kind = 0;
    void *handle = NULL;
    assert_ok(weir_handle_kind_register(&ops, &kind));
    assert_status(weir_handle_get(kind, &handle), WEIR_ERR_LIBRARY);
    assert_non_null(strstr(weir_error_text(), "silent: create failed with code 3"));
}

static void success_without_a_handle_is_a_failure(void **state)
{
    (void)state;
    void *handle = NULL;
    atomic_store(&plain.gives_nothing, true);
    assert_status(weir_handle_get(plain.kind, &handle), WEIR_ERR_LIBRARY);
    assert_non_null(strstr(weir_error_text(), "gave no handle"));
    assert_int_equal(numbers_of(&plain, 0).failed_creates, 1);
}

static void the_device_memory_a_create_takes_is_measured(void **state)
{
    (void)state;
    atomic_store(&plain.bytes, 6 * MIB);
    (void)get(&plain);
    assert_int_equal(numbers_of(&plain, 0).bytes, 6 * MIB);
    assert_ok(weir_handle_release(plain.kind, 0));
    assert_int_equal(trim(&plain, 0), 1);
    assert_int_equal(numbers_of(&plain, 0).bytes, 0);
}

static void *others;

static void free_of_others(void)
{
    assert_ok(wr_runtime_global.backend->segment_free(0, others, 8 * MIB));
}

static void a_create_beside_which_others_give_memory_back_takes_nothing(void **state)
{
    (void)state;
    (void)open_device(0);
    assert_ok(wr_runtime_global.backend->segment_alloc(0, 8 * MIB, &others));
    atomic_store(&plain.bytes, 6 * MIB);
    plain.on_create = free_of_others;
    (void)get(&plain);
    assert_int_equal(numbers_of(&plain, 0).bytes, 0);
}

static void *get_in_thread(void *which)
{
    (void)get(which);
    return NULL;
}

/* Two overlapping creates see each other's memory go, so the figure of a create that ran alone stands for both. */
static void creates_that_overlap_are_not_counted_twice(void **state)
{
    (void)state;
    pthread_t threads[2];
    atomic_store(&plain.bytes, 6 * MIB);
    (void)get(&plain);
    atomic_store(&plain.slow_creates, 2);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, get_in_thread, &plain), 0);
    for (int i = 0; i < 2; i++) wait_for(&plain.arrived);
    for (int i = 0; i < 2; i++) sem_post(&plain.gate);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_int_equal(numbers_of(&plain, 0).live, 3);
    assert_int_equal(numbers_of(&plain, 0).bytes, 18 * MIB);
}

/* ---- changing hands ---------------------------------------------------------------------------------------------- */

static void a_handle_is_reset_when_its_owner_changes_only(void **state)
{
    (void)state;
    holder h;
    for (int i = 0; i < 3; i++) (void)get_on(&plain, new_stream(0));
    assert_int_equal(atomic_load(&plain.resets), 0);
    assert_ok(weir_handle_release(plain.kind, 0));
    assert_int_equal(atomic_load(&plain.resets), 0);
    holder_start(&h, &plain, WEIR_STREAM_CURRENT);
    assert_non_null(holder_handle(&h));
    holder_end(&h);
    assert_int_equal(atomic_load(&plain.resets), 1);
    (void)get(&plain);
    assert_int_equal(atomic_load(&plain.resets), 2);
}

static void a_failed_reset_is_reported_and_the_handle_stays_in_the_pool(void **state)
{
    (void)state;
    void *handle = NULL;
    const thing *mine = get(&plain);
    assert_ok(weir_handle_release(plain.kind, 0));
    atomic_store(&plain.fail_resets, 1);
    assert_status(weir_handle_get(plain.kind, &handle), WEIR_ERR_LIBRARY);
    assert_non_null(strstr(weir_error_text(), "resetting"));
    assert_int_equal(numbers_of(&plain, 0).idle, 1);
    assert_int_equal(numbers_of(&plain, 0).reuses, 0);
    assert_ptr_equal(get(&plain), mine);
    assert_int_equal(numbers_of(&plain, 0).reuses, 1);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static void every_counter_counts_what_it_says(void **state)
{
    (void)state;
    void *handle = NULL;
    weir_stream a = new_stream(0);
    atomic_store(&plain.bytes, 2 * MIB);
    atomic_store(&plain.fail_creates, 1);
    assert_status(weir_handle_get(plain.kind, &handle), WEIR_ERR_LIBRARY);
    (void)get_on(&plain, a);              /* created, bound */
    (void)get_on(&plain, a);              /* hit */
    (void)get(&plain);                    /* bound */
    weir_lease lease = borrow(&plain, a); /* created, bound */
    assert_ok(weir_handle_budget_set(plain.kind, 0, 2, 0));
    weir_lease late = { 0 };
    assert_status(weir_handle_borrow(plain.kind, a, 1000, &late), WEIR_ERR_TIMEOUT);
    assert_ok(weir_handle_return(lease));
    lease = borrow(&plain, a); /* reused, bound */
    weir_handle_stats s = numbers_of(&plain, 0);
    const weir_handle_stats during = { .size = sizeof s,
                                       .live = 2,
                                       .borrowed = 1,
                                       .peak = 2,
                                       .created = 2,
                                       .failed_creates = 1,
                                       .hits = 1,
                                       .reuses = 1,
                                       .rebinds = 4,
                                       .waits = 1,
                                       .timeouts = 1,
                                       .bytes = 4 * MIB };
    assert_memory_equal(&s, &during, sizeof s);
    assert_ok(weir_handle_return(lease));
    assert_ok(weir_handle_release(plain.kind, 0));
    assert_int_equal(numbers_of(&plain, 0).idle, 2);
    assert_int_equal(trim(&plain, 0), 2);
    s = numbers_of(&plain, 0);
    const weir_handle_stats after = { .size = sizeof s,
                                      .peak = 2,
                                      .created = 2,
                                      .destroyed = 2,
                                      .failed_creates = 1,
                                      .hits = 1,
                                      .reuses = 1,
                                      .rebinds = 4,
                                      .waits = 1,
                                      .timeouts = 1 };
    assert_memory_equal(&s, &after, sizeof s);
}

static void a_reset_keeps_current_values(void **state)
{
    (void)state;
    weir_stream a = new_stream(0);
    atomic_store(&plain.bytes, 2 * MIB);
    (void)get_on(&plain, a);
    (void)get_on(&plain, a); /* hit */
    assert_ok(weir_handle_return(borrow(&plain, a)));
    assert_int_equal(trim(&plain, 0), 1);
    assert_ok(weir_handle_stats_reset(plain.kind, 0));
    weir_handle_stats s = numbers_of(&plain, 0);
    const weir_handle_stats kept = { .size = sizeof s, .live = 1, .peak = 1, .bytes = 2 * MIB };
    assert_memory_equal(&s, &kept, sizeof s);
}

static void peaks_and_counters_are_reset_each_alone(void **state)
{
    (void)state;
    assert_ok(weir_handle_return(borrow(&plain, default_stream(0))));
    assert_int_equal(trim(&plain, 0), 1);
    assert_ok(weir_handle_stats_reset_totals(plain.kind, 0));
    assert_int_equal(numbers_of(&plain, 0).created, 0);
    assert_int_equal(numbers_of(&plain, 0).peak, 1);
    (void)get(&plain);
    assert_int_equal(trim(&plain, 0), 0);
    assert_ok(weir_handle_release(plain.kind, 0));
    assert_int_equal(trim(&plain, 0), 1);
    assert_ok(weir_handle_stats_reset_peaks(plain.kind, 0));
    assert_int_equal(numbers_of(&plain, 0).created, 1);
    assert_int_equal(numbers_of(&plain, 0).peak, 0);
}

static void a_peak_outlasts_the_handles(void **state)
{
    (void)state;
    weir_lease leases[2];
    for (int i = 0; i < 2; i++) leases[i] = borrow(&plain, WEIR_STREAM_CURRENT);
    for (int i = 0; i < 2; i++) assert_ok(weir_handle_return(leases[i]));
    assert_int_equal(trim(&plain, 0), 2);
    (void)get(&plain);
    assert_int_equal(numbers_of(&plain, 0).peak, 2);
}

/* A handle counts its own hits, and keeps the count at a reset until it is destroyed. */
static void hits_after_a_reset_outlive_the_handle(void **state)
{
    (void)state;
    weir_stream a = new_stream(0);
    for (int i = 0; i < 4; i++) (void)get_on(&plain, a);
    assert_ok(weir_handle_stats_reset(plain.kind, 0));
    assert_int_equal(numbers_of(&plain, 0).hits, 0);
    for (int i = 0; i < 2; i++) (void)get_on(&plain, a);
    assert_int_equal(numbers_of(&plain, 0).hits, 2);
    assert_ok(weir_handle_release(plain.kind, 0));
    assert_int_equal(trim(&plain, 0), 1);
    assert_int_equal(numbers_of(&plain, 0).hits, 2);
}

static void a_reset_is_of_one_kind_and_device_or_of_all_kinds(void **state)
{
    (void)state;
    (void)get_on(&plain, default_stream(0));
    (void)get_on(&plain, default_stream(1));
    (void)get_on(&other, default_stream(0));
    assert_ok(weir_handle_stats_reset(plain.kind, 0));
    assert_int_equal(numbers_of(&plain, 0).created, 0);
    assert_int_equal(numbers_of(&plain, 1).created, 1);
    assert_int_equal(numbers_of(&other, 0).created, 1);
    assert_ok(weir_handle_stats_reset_totals(0, 0));
    assert_int_equal(numbers_of(&other, 0).created, 0);
    assert_int_equal(numbers_of(&plain, 1).created, 1);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void unknown_kinds_are_refused(void **state)
{
    (void)state;
    const weir_handle_kind none[] = { 0, -1, 10, 31, 63, 64, 1000, INT32_MIN, INT32_MAX };
    weir_handle_stats stats = { .size = sizeof stats };
    weir_handle_kind_info info = { .size = sizeof info };
    weir_lease lease = { 0 };
    void *handle = NULL;
    uint64_t destroyed = 77;
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        assert_status(weir_handle_get(none[i], &handle), WEIR_ERR_INVALID_ARGUMENT);
        assert_status(weir_handle_borrow(none[i], WEIR_STREAM_CURRENT, 0, &lease), WEIR_ERR_INVALID_ARGUMENT);
        assert_status(weir_handle_release(none[i], 0), WEIR_ERR_INVALID_ARGUMENT);
        assert_status(weir_handle_stats_get(none[i], 0, &stats), WEIR_ERR_INVALID_ARGUMENT);
        assert_status(weir_handle_kind_info_get(none[i], &info), WEIR_ERR_INVALID_ARGUMENT);
        assert_status(weir_handle_budget_set(none[i], 0, 1, 0), WEIR_ERR_INVALID_ARGUMENT);
        if (none[i] == 0) continue; /* all kinds */
        assert_status(weir_handles_trim(none[i], 0, &destroyed), WEIR_ERR_INVALID_ARGUMENT);
        assert_status(weir_handle_stats_reset(none[i], 0), WEIR_ERR_INVALID_ARGUMENT);
    }
    assert_status(weir_handle_get(plain.kind, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_handle_get_on(plain.kind, default_stream(0), NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_handle_get_on(plain.kind, (weir_stream){ 12345 }, &handle), WEIR_ERR_INVALID_STREAM);
    assert_status(weir_handle_borrow(plain.kind, WEIR_STREAM_CURRENT, 0, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_handle_release(plain.kind, 2), WEIR_ERR_NO_DEVICE);
    assert_status(weir_handles_trim(plain.kind, 2, &destroyed), WEIR_ERR_NO_DEVICE);
    assert_int_equal(destroyed, 77);
    assert_status(weir_handle_stats_reset(plain.kind, 2), WEIR_ERR_NO_DEVICE);
    stats.size = 8;
    assert_status(weir_handle_stats_get(plain.kind, 0, &stats), WEIR_ERR_INVALID_ARGUMENT);
    info.size = 8;
    assert_status(weir_handle_kind_info_get(plain.kind, &info), WEIR_ERR_INVALID_ARGUMENT);
}

static void a_registered_kind_is_described(void **state)
{
    (void)state;
    weir_handle_kind_info info = { .size = sizeof info, .library = "?", .version = "?" };
    assert_ok(weir_handle_kind_info_get(plain.kind, &info));
    assert_string_equal(info.name, "plain");
    assert_string_equal(info.library, "");
    assert_string_equal(info.version, "");
    assert_int_equal(info.size, sizeof info);
}

static void incomplete_kinds_are_refused(void **state)
{
    (void)state;
    const weir_handle_ops good = { WEIR_HANDLE_OPS_INIT, .name = "good", .create = library_create,
                                   .destroy = library_destroy };
    weir_handle_kind kind = -5;
    struct {
        weir_handle_ops ops;
        const char *says;
    } bad[] = { { good, "size" },   { good, "name" },     { good, "name" },    { good, "name" },
                { good, "create" }, { good, "destroy" },  { good, "already" }, { good, "already" },
                { good, "flags" },  { good, "reserved" }, { good, "UTF-8" },   { good, "already" } };
    bad[0].ops.size = 0;
    bad[1].ops.name = NULL;
    bad[2].ops.name = "";
    bad[3].ops.name = "a name of thirty-two characters.";
    bad[4].ops.create = NULL;
    bad[5].ops.destroy = NULL;
    bad[6].ops.name = "plain";
    bad[7].ops.name = "cusparse";
    bad[8].ops.flags = 64;
    bad[9].ops.reserved = 1;
    bad[10].ops.name = "caf\xe9"; /* in statistics as any other name with one such byte there */
    bad[11].ops.name = "miopen";
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_status(weir_handle_kind_register(&bad[i].ops, &kind), WEIR_ERR_INVALID_ARGUMENT);
        if (!strstr(weir_error_text(), bad[i].says)) fail_msg("%zu: %s", i, weir_error_text());
    }
    assert_status(weir_handle_kind_register(NULL, &kind), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_handle_kind_register(&good, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(kind, -5);
}

static void the_bytes_of_a_device_are_those_of_all_kinds(void **state)
{
    (void)state;
    weir_device_memory memory = { .size = sizeof memory };
    atomic_store(&plain.bytes, MIB);
    atomic_store(&other.bytes, 2 * MIB);
    (void)get(&plain);
    (void)get(&other);
    assert_ok(weir_device_memory_get(0, &memory));
    assert_int_equal(numbers_of(&plain, 0).bytes, MIB);
    assert_int_equal(numbers_of(&other, 0).bytes, 2 * MIB);
    assert_int_equal(memory.handles_bytes, 3 * MIB);
}

/* This and the next run last, because a kind cannot be unregistered. */
static void one_kind_too_many_is_refused(void **state)
{
    (void)state;
    weir_status status = WEIR_OK;
    weir_handle_kind kind = 0, last = always.kind + 2;
    while (status == WEIR_OK) {
        char name[32];
        const weir_handle_ops ops = { WEIR_HANDLE_OPS_INIT, .name = name, .create = library_create,
                                      .destroy = library_destroy, .user = &plain };
        snprintf(name, sizeof name, "filler %024d", last + 1); /* as long as a name may be */
        status = weir_handle_kind_register(&ops, &kind);
        if (status != WEIR_OK) break;
        assert_int_equal(kind, last + 1);
        last = kind;
    }
    assert_int_equal(status, WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_int_equal(last, WEIR_HANDLE_KIND_MAX - 1);
    void *handle = NULL;
    assert_ok(weir_handle_get(last, &handle));
}

static void the_name_of_the_last_kind_is_taken_too(void **state)
{
    (void)state;
    char name[32];
    weir_handle_kind kind = 0;
    const weir_handle_ops ops = { WEIR_HANDLE_OPS_INIT, .name = name, .create = library_create,
                                  .destroy = library_destroy };
    snprintf(name, sizeof name, "filler %024d", WEIR_HANDLE_KIND_MAX - 1);
    assert_status(weir_handle_kind_register(&ops, &kind), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "already"));
}

#define HANDLE_TEST(test) cmocka_unit_test_setup_teardown(test, start, end)

/* The first reading, or the second. */
static void a_create_whose_memory_cannot_be_read_takes_nothing(void **state)
{
    (void)state;
    uint64_t destroyed = 0;
    atomic_store(&plain.bytes, MIB);
    for (uint64_t reading = 1; reading <= 2; reading++) {
        assert_ok(weir_host_fail(WEIR_BACKEND_device_memory, reading, WEIR_ERR_DRIVER));
        assert_non_null(get(&plain));
        assert_int_equal(numbers_of(&plain, 0).bytes, 0);
        assert_ok(weir_handle_release(plain.kind, 0));
        assert_ok(weir_handles_trim(plain.kind, 0, &destroyed));
        assert_int_equal(destroyed, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HANDLE_TEST(a_create_whose_memory_cannot_be_read_takes_nothing),
        HANDLE_TEST(nothing_is_created_before_the_first_get),
        HANDLE_TEST(every_get_gives_the_threads_same_handle),
        HANDLE_TEST(each_thread_has_its_own),
        HANDLE_TEST(each_device_and_each_kind_has_its_own),
        HANDLE_TEST(a_thread_that_ends_gives_its_handles_back_without_any_call),
        HANDLE_TEST(a_thread_that_had_handles_leaves_no_memory),
        HANDLE_TEST(what_a_thread_had_before_a_close_is_freed_once_it_has_a_handle_again),
        HANDLE_TEST(the_handle_given_back_last_is_taken_first),
        HANDLE_TEST(a_released_handle_serves_another_thread),
        HANDLE_TEST(releasing_what_one_does_not_have_is_fine),
        HANDLE_TEST(a_get_binds_to_the_current_stream),
        HANDLE_TEST(an_unchanged_stream_is_not_set_again),
        HANDLE_TEST(bind_always_sets_the_stream_at_every_get),
        HANDLE_TEST(a_kind_without_streams_is_never_bound),
        HANDLE_TEST(a_failed_bind_is_reported_and_done_again_at_the_next_get),
        HANDLE_TEST(a_stream_destroyed_while_bound_gives_way_to_the_current_one),
        HANDLE_TEST(a_hit_calls_neither_driver_nor_library),
        HANDLE_TEST(a_hit_takes_no_lock),
        HANDLE_TEST(a_slow_create_delays_no_other_thread),
        HANDLE_TEST(a_first_alone_kind_serialises_its_first_create_only),
        HANDLE_TEST(after_a_failed_first_create_the_next_runs_alone_too),
        HANDLE_TEST(until_a_create_has_succeeded_each_runs_alone),
        HANDLE_TEST(a_failed_create_is_classified_and_the_next_get_works),
        HANDLE_TEST(codes_without_a_text_are_shown_as_numbers),
        HANDLE_TEST(a_kind_may_have_no_texts),
        HANDLE_TEST(success_without_a_handle_is_a_failure),
        HANDLE_TEST(the_device_memory_a_create_takes_is_measured),
        HANDLE_TEST(a_create_beside_which_others_give_memory_back_takes_nothing),
        HANDLE_TEST(creates_that_overlap_are_not_counted_twice),
        HANDLE_TEST(a_handle_is_reset_when_its_owner_changes_only),
        HANDLE_TEST(a_failed_reset_is_reported_and_the_handle_stays_in_the_pool),
        HANDLE_TEST(every_counter_counts_what_it_says),
        HANDLE_TEST(a_reset_keeps_current_values),
        HANDLE_TEST(peaks_and_counters_are_reset_each_alone),
        HANDLE_TEST(a_peak_outlasts_the_handles),
        HANDLE_TEST(hits_after_a_reset_outlive_the_handle),
        HANDLE_TEST(a_reset_is_of_one_kind_and_device_or_of_all_kinds),
        HANDLE_TEST(unknown_kinds_are_refused),
        HANDLE_TEST(a_registered_kind_is_described),
        HANDLE_TEST(incomplete_kinds_are_refused),
        HANDLE_TEST(the_bytes_of_a_device_are_those_of_all_kinds),
        HANDLE_TEST(one_kind_too_many_is_refused),
        HANDLE_TEST(the_name_of_the_last_kind_is_taken_too),
    };
    return cmocka_run_group_tests(tests, register_all, NULL);
}
