/*
 * Borrowed handles: budgets, the queue in front of them, and leases.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "handle_support.h"
#include "thread_support.h"

/* `alone` has its first create to itself. */
static library plain = { .name = "plain" }, other = { .name = "other" }, alone = { .name = "alone" };

static int register_all(void **state)
{
    (void)state;
    library_register(&plain, 0);
    library_register(&other, 0);
    library_register(&alone, WEIR_HANDLE_FIRST_ALONE);
    return 0;
}

static int start(void **state)
{
    (void)state;
    library_start(&plain);
    library_start(&other);
    library_start(&alone);
    open_host((weir_settings){ .host_devices = 2, .host_memory = 64 * MIB });
    return 0;
}

static int end(void **state)
{
    close_host(state);
    library_end(&plain);
    library_end(&other);
    library_end(&alone);
    return 0;
}

static void limit(uint64_t count, uint64_t bytes)
{
    assert_ok(weir_handle_budget_set(plain.kind, 0, count, bytes));
}

/* A thread that borrows and returns at once; `turns` records the order of the threads. */
typedef struct borrower {
    pthread_t thread;
    uint64_t timeout_ns;
    weir_status status;
    int turn;
    weir_lease lease;
    bool keep;
} borrower;

static atomic_int turns;

static void *borrow_and_return(void *argument)
{
    borrower *b = argument;
    b->status = weir_handle_borrow(plain.kind, WEIR_STREAM_CURRENT, b->timeout_ns, &b->lease);
    if (b->status != WEIR_OK) return NULL;
    b->turn = ++turns;
    if (!b->keep) b->status = weir_handle_return(b->lease);
    return NULL;
}

/* Returns when the thread is in the queue. */
static void queue(borrower *b, uint64_t timeout_ns, bool keep)
{
    const uint64_t waits = numbers_of(&plain, 0).waits;
    *b = (borrower){ .timeout_ns = timeout_ns, .keep = keep };
    assert_int_equal(pthread_create(&b->thread, NULL, borrow_and_return, b), 0);
    while (numbers_of(&plain, 0).waits == waits) sched_yield();
}

static void nap(void)
{
    struct timespec time = { 0, 20000000 };
    nanosleep(&time, NULL);
}

/* ---- leases ------------------------------------------------------------------------------------------------------ */

static void a_lease_has_a_handle_bound_to_its_stream(void **state)
{
    (void)state;
    weir_stream a = new_stream(0);
    const thing *mine = get(&plain);
    weir_lease lease = borrow(&plain, a);
    const thing *lent = weir_lease_handle(lease);
    assert_non_null(lent);
    assert_ptr_not_equal(lent, mine);
    assert_ptr_equal(lent->stream, native_of(a));
    assert_int_equal(numbers_of(&plain, 0).borrowed, 1);
    assert_ok(weir_handle_return(lease));
    assert_int_equal(numbers_of(&plain, 0).borrowed, 0);
    assert_int_equal(numbers_of(&plain, 0).idle, 1);
}

static void a_lease_on_another_device_needs_no_current_device(void **state)
{
    (void)state;
    weir_lease lease = borrow(&plain, default_stream(1));
    assert_int_equal(((thing *)weir_lease_handle(lease))->device, 1);
    assert_int_equal(numbers_of(&plain, 0).live, 0);
    assert_ok(weir_handle_return(lease));
    assert_int_equal(numbers_of(&plain, 1).idle, 1);
}

static void *give_back(void *lease)
{
    static weir_status status;
    status = weir_handle_return(*(weir_lease *)lease);
    return &status;
}

static void any_thread_may_return_a_lease(void **state)
{
    (void)state;
    weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT);
    const thing *lent = weir_lease_handle(lease);
    assert_int_equal(*(weir_status *)in_a_thread(give_back, &lease), WEIR_OK);
    assert_int_equal(numbers_of(&plain, 0).idle, 1);
    assert_ptr_equal(get(&plain), lent);
}

static void a_lease_outlives_the_thread_that_borrowed(void **state)
{
    (void)state;
    borrower b = { .keep = true };
    in_a_thread(borrow_and_return, &b);
    assert_int_equal(b.status, WEIR_OK);
    assert_int_equal(numbers_of(&plain, 0).borrowed, 1);
    assert_non_null(weir_lease_handle(b.lease));
    assert_ok(weir_handle_return(b.lease));
}

static void returned_handles_are_lent_last_in_first_out(void **state)
{
    (void)state;
    weir_lease a = borrow(&plain, WEIR_STREAM_CURRENT), b = borrow(&plain, WEIR_STREAM_CURRENT);
    const void *first = weir_lease_handle(a), *second = weir_lease_handle(b);
    assert_ok(weir_handle_return(b));
    assert_ok(weir_handle_return(a));
    assert_ptr_equal(weir_lease_handle(borrow(&plain, WEIR_STREAM_CURRENT)), first);
    assert_ptr_equal(weir_lease_handle(borrow(&plain, WEIR_STREAM_CURRENT)), second);
}

static void assert_no_lease(weir_lease lease)
{
    assert_status(weir_handle_return(lease), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "weir_handle_return: lease"));
    assert_null(weir_lease_handle(lease));
    assert_non_null(strstr(weir_error_text(), "weir_lease_handle: lease"));
}

static void a_lease_of_a_kind_that_cannot_be_is_refused(void **state)
{
    (void)state;
    const weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT);
    for (uint64_t kind = WEIR_HANDLE_KIND_MAX; kind <= 255; kind++)
        assert_no_lease((weir_lease){ (lease.id & ~UINT64_C(255)) | kind });
    assert_ok(weir_handle_return(lease));
}

static void a_lease_ends_once(void **state)
{
    (void)state;
    weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT);
    assert_ok(weir_handle_return(lease));
    assert_no_lease(lease);
    assert_int_equal(numbers_of(&plain, 0).idle, 1);
    weir_lease next = borrow(&plain, WEIR_STREAM_CURRENT); /* the same handle */
    assert_int_not_equal(next.id, lease.id);
    assert_no_lease(lease);
    assert_non_null(weir_lease_handle(next));
    assert_ok(weir_handle_return(next));
}

static void forged_leases_are_refused(void **state)
{
    (void)state;
    weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT);
    (void)get_on(&plain, default_stream(1)); /* the other device has a pool, too */
    (void)get(&other);
    const uint64_t forged[] = { 0,
                                1,
                                UINT64_MAX,
                                lease.id + 0x10000,
                                lease.id ^ 0x100,
                                lease.id + 1,
                                lease.id | 0xff,
                                lease.id | 0xff00,
                                plain.kind,
                                lease.id >> 1 };
    for (size_t i = 0; i < sizeof forged / sizeof forged[0]; i++) assert_no_lease((weir_lease){ forged[i] });
    assert_ok(weir_handle_return(lease));
}

/* What lies behind the table of devices exists. */
static void a_lease_of_a_device_beyond_all_is_refused(void **state)
{
    (void)state;
    enum { DEVICES = 64, DEVICE_AT = 8 };
    void *pinned = NULL;
    const weir_lease lease = borrow(&plain, default_stream(0));
    const weir_lease beyond = { lease.id | (uint64_t)DEVICES << DEVICE_AT };
    assert_ok(weir_pinned_alloc(4096, WEIR_NUMA_ANY, &pinned));
    assert_null(weir_lease_handle(beyond));
    assert_status(weir_handle_return(beyond), WEIR_ERR_INVALID_ARGUMENT);
    assert_ok(weir_handle_return(lease));
    assert_ok(weir_pinned_free(pinned));
}

static void a_lease_from_before_a_close_is_refused(void **state)
{
    weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT);
    assert_ok(weir_close());
    assert_status(weir_handle_return(lease), WEIR_ERR_CLOSED);
    assert_null(weir_lease_handle(lease));
    library_end(&plain);
    library_end(&other);
    start(state);
    assert_no_lease(lease);
    weir_lease next = borrow(&plain, WEIR_STREAM_CURRENT);
    assert_no_lease(lease);
    assert_ok(weir_handle_return(next));
}

typedef struct racer {
    pthread_barrier_t *line;
    weir_lease lease;
    atomic_int *won;
} racer;

static void *race_to_return(void *argument)
{
    racer *r = argument;
    pthread_barrier_wait(r->line);
    if (weir_handle_return(r->lease) == WEIR_OK) atomic_fetch_add(r->won, 1);
    return NULL;
}

static void of_two_threads_that_return_a_lease_one_succeeds(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++) {
        atomic_int won = 0;
        pthread_t threads[2];
        pthread_barrier_t line;
        pthread_barrier_init(&line, NULL, 2);
        racer r = { &line, borrow(&plain, WEIR_STREAM_CURRENT), &won };
        for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, race_to_return, &r), 0);
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&line);
        assert_int_equal(won, 1);
        assert_int_equal(numbers_of(&plain, 0).idle, 1);
    }
}

static void a_borrow_that_cannot_bind_gives_the_handle_back(void **state)
{
    (void)state;
    weir_lease lease = { 0 };
    atomic_store(&plain.fail_binds, 1);
    assert_status(weir_handle_borrow(plain.kind, WEIR_STREAM_CURRENT, 0, &lease), WEIR_ERR_LIBRARY);
    assert_int_equal(lease.id, 0);
    weir_handle_stats stats = numbers_of(&plain, 0);
    assert_int_equal(stats.idle, 1);
    assert_int_equal(stats.borrowed, 0);
    assert_ok(weir_handle_return(borrow(&plain, WEIR_STREAM_CURRENT)));
    assert_int_equal(atomic_load(&plain.creates), 1);
}

/* ---- creates that call the program ------------------------------------------------------------------------------- */

static library *making;
static weir_status got_within, borrowed_within;

/* As a create that finds no memory and asks the program for some. */
static void ask_for_another(void)
{
    void *handle = NULL;
    weir_lease lease = { 0 };
    making->on_create = NULL;
    got_within = weir_handle_get(making->kind, &handle);
    borrowed_within = weir_handle_borrow(making->kind, WEIR_STREAM_CURRENT, WEIR_FOREVER, &lease);
    (void)!weir_handle_return(lease);
}

static void check_within_first_create(library *of, weir_status expected)
{
    making = of;
    of->on_create = ask_for_another;
    assert_ok(weir_handle_return(borrow(of, WEIR_STREAM_CURRENT)));
    assert_status(got_within, expected);
    assert_status(borrowed_within, expected);
    assert_non_null(get(of));
}

static void a_first_create_is_not_waited_for_within_itself(void **state)
{
    (void)state;
    check_within_first_create(&alone, WEIR_ERR_BUSY);
}

static void nor_is_it_in_a_budget_of_bytes(void **state)
{
    (void)state;
    limit(0, 8 * MIB);
    check_within_first_create(&plain, WEIR_ERR_BUSY);
}

static void others_may_be_made_within_a_first_create_that_need_not_be_alone(void **state)
{
    (void)state;
    check_within_first_create(&plain, WEIR_OK);
}

static weir_status other_within;

static void get_the_other(void)
{
    void *handle = NULL;
    other_within = weir_handle_get(other.kind, &handle);
}

/* The other thread might be waiting for this one's. */
static void a_first_create_of_another_thread_is_not_waited_for_within_a_create(void **state)
{
    (void)state;
    holder theirs;
    limit(0, 8 * MIB);
    assert_ok(weir_handle_budget_set(other.kind, 0, 0, 8 * MIB));
    atomic_store(&other.slow_creates, 1);
    plain.on_create = get_the_other;
    holder_start(&theirs, &other, WEIR_STREAM_CURRENT);
    wait_for(&other.arrived);
    assert_non_null(get(&plain));
    sem_post(&other.gate);
    assert_status(other_within, WEIR_ERR_BUSY);
    assert_non_null(holder_handle(&theirs));
    holder_end(&theirs);
}

static weir_status lent_within;

static void borrow_the_other(void)
{
    weir_lease lease = { 0 };
    plain.on_create = NULL;
    lent_within = weir_handle_borrow(other.kind, WEIR_STREAM_CURRENT, 1000000, &lease);
}

/* Nothing is being made there. */
static void a_create_may_wait_for_a_handle_of_another_kind(void **state)
{
    (void)state;
    assert_ok(weir_handle_budget_set(other.kind, 0, 1, 0));
    weir_lease lease = borrow(&other, WEIR_STREAM_CURRENT);
    plain.on_create = borrow_the_other;
    assert_non_null(get(&plain));
    assert_status(lent_within, WEIR_ERR_TIMEOUT);
    assert_ok(weir_handle_return(lease));
}

static void a_threads_handle_counts_as_borrowed_while_it_is_lent(void **state)
{
    (void)state;
    borrower b;
    limit(1, 0);
    assert_non_null(get(&plain));
    assert_ok(weir_handle_release(plain.kind, 0));
    weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT);
    assert_int_equal(numbers_of(&plain, 0).borrowed, 1);
    assert_ok(weir_handle_return(lease));
    assert_int_equal(numbers_of(&plain, 0).borrowed, 0);
    assert_non_null(get(&plain));
    queue(&b, WEIR_FOREVER, true);
    assert_ok(weir_handle_release(plain.kind, 0)); /* straight to the queue */
    pthread_join(b.thread, NULL);
    assert_int_equal(numbers_of(&plain, 0).borrowed, 1);
    assert_ok(weir_handle_return(b.lease));
    assert_int_equal(numbers_of(&plain, 0).borrowed, 0);
}

/* ---- budgets ----------------------------------------------------------------------------------------------------- */

static void a_get_beyond_the_count_is_refused_with_the_remedy(void **state)
{
    (void)state;
    void *handle = &handle;
    limit(1, 0);
    weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT);
    assert_status(weir_handle_get(plain.kind, &handle), WEIR_ERR_BUSY);
    assert_ptr_equal(handle, &handle);
    const char *const words[] = { "plain", "device 0", "(1 handles)", "weir_handle_borrow() and a timeout",
                                  "weir_handle_budget_set" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) assert_non_null(strstr(weir_error_text(), words[i]));
    assert_int_equal(numbers_of(&plain, 0).waits, 0);
    assert_non_null(get(&other));                       /* budgets are per kind */
    assert_non_null(get_on(&plain, default_stream(1))); /* and per device */
    assert_ok(weir_handle_return(lease));
    assert_non_null(get(&plain));
}

static void a_get_beyond_the_bytes_is_refused(void **state)
{
    (void)state;
    void *handle = NULL;
    atomic_store(&plain.bytes, 4 * MIB);
    limit(0, 10 * MIB);
    weir_lease a = borrow(&plain, WEIR_STREAM_CURRENT), b = borrow(&plain, WEIR_STREAM_CURRENT);
    assert_status(weir_handle_get(plain.kind, &handle), WEIR_ERR_BUSY); /* a third would make 12 MiB */
    assert_non_null(strstr(weir_error_text(), "the budget (10.00 MiB) allows no more"));
    assert_int_equal(numbers_of(&plain, 0).bytes, 8 * MIB);
    limit(0, 12 * MIB);
    assert_non_null(get(&plain));
    assert_ok(weir_handle_return(a));
    assert_ok(weir_handle_return(b));
}

static void *blocks[2];

static void grow(void)
{
    blocks[1] = alloc(32 * MIB);
}

static void shrink(void)
{
    assert_ok(weir_free(blocks[0]));
    assert_ok(weir_empty_cache(0));
}

/* Was it counted as the handle's, a budget would be used up for good. */
static void memory_that_weir_takes_during_a_create_is_not_the_handles(void **state)
{
    (void)state;
    atomic_store(&plain.bytes, 4 * MIB);
    limit(0, 8 * MIB);
    plain.on_create = grow;
    weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT);
    plain.on_create = NULL;
    assert_int_equal(numbers_of(&plain, 0).bytes, 4 * MIB);
    assert_non_null(get(&plain));
    assert_ok(weir_handle_return(lease));
    assert_ok(weir_free(blocks[1]));
}

/* Or the handle would seem to take nothing. */
static void nor_does_memory_that_weir_gives_back_make_it_smaller(void **state)
{
    (void)state;
    atomic_store(&plain.bytes, 4 * MIB);
    blocks[0] = alloc(32 * MIB);
    plain.on_create = shrink;
    assert_non_null(get(&plain));
    plain.on_create = NULL;
    assert_int_equal(numbers_of(&plain, 0).bytes, 4 * MIB);
}

/* Nobody knows what a create takes before the first has ended. */
static void a_budget_of_bytes_holds_for_creates_that_begin_together(void **state)
{
    (void)state;
    enum { THREADS = 6 };
    holder holders[THREADS];
    limit(0, 8 * MIB);
    atomic_store(&plain.bytes, 4 * MIB);
    atomic_store(&plain.slow_creates, 1);
    for (int i = 0; i < THREADS; i++) holder_start(&holders[i], &plain, WEIR_STREAM_CURRENT);
    wait_for(&plain.arrived);
    sem_post(&plain.gate);
    int have = 0;
    for (int i = 0; i < THREADS; i++) have += holder_handle(&holders[i]) != NULL;
    assert_int_equal(have, 2);
    assert_int_equal(numbers_of(&plain, 0).bytes, 8 * MIB);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(holders[i].status, holders[i].handle ? WEIR_OK : WEIR_ERR_BUSY);
        holder_end(&holders[i]);
    }
}

static void without_a_budget_of_bytes_nobody_waits_for_what_the_first_takes(void **state)
{
    (void)state;
    holder first, second;
    limit(0, MIB);
    atomic_store(&plain.slow_creates, 1);
    holder_start(&first, &plain, WEIR_STREAM_CURRENT);
    wait_for(&plain.arrived);
    holder_start(&second, &plain, WEIR_STREAM_CURRENT);
    const bool waits = holder_waits(&second);
    limit(0, 0);
    bool stays = true;
    for (int moments = 0; moments < 100 && stays; moments++) stays = holder_waits(&second);
    sem_post(&plain.gate);
    holder_end(&first);
    holder_end(&second);
    assert_true(waits);
    assert_false(stays);
}

/* As of cuDNN. */
static void who_waits_for_a_first_create_that_is_alone_waits_no_longer_than_it_said(void **state)
{
    (void)state;
    holder first, second;
    weir_lease lease = { 0 };
    atomic_store(&alone.slow_creates, 1);
    holder_start(&first, &alone, WEIR_STREAM_CURRENT);
    wait_for(&alone.arrived);
    assert_status(weir_handle_borrow(alone.kind, WEIR_STREAM_CURRENT, 0, &lease), WEIR_ERR_BUSY);
    assert_non_null(strstr(weir_error_text(), "the first alone handle of device 0 is just being made"));
    assert_status(weir_handle_borrow(alone.kind, WEIR_STREAM_CURRENT, 1000000, &lease), WEIR_ERR_TIMEOUT);
    assert_non_null(strstr(weir_error_text(), "the first alone handle of device 0 was not made within 1000000 ns"));
    holder_start(&second, &alone, WEIR_STREAM_CURRENT);
    const bool waits = holder_waits(&second);
    sem_post(&alone.gate);
    assert_non_null(holder_handle(&first));
    assert_non_null(holder_handle(&second));
    holder_end(&first);
    holder_end(&second);
    assert_true(waits);
    assert_int_equal(atomic_load(&alone.most_creating), 1);
}

static void where_the_first_uses_the_budget_up_nobody_waits_for_it(void **state)
{
    (void)state;
    holder first, second;
    assert_ok(weir_handle_budget_set(alone.kind, 0, 1, 0));
    atomic_store(&alone.slow_creates, 1);
    holder_start(&first, &alone, WEIR_STREAM_CURRENT);
    wait_for(&alone.arrived);
    holder_start(&second, &alone, WEIR_STREAM_CURRENT);
    bool waits = true;
    for (int moments = 0; moments < 100 && waits; moments++) waits = holder_waits(&second);
    sem_post(&alone.gate);
    assert_null(holder_handle(&second));
    assert_false(waits);
    assert_int_equal(second.status, WEIR_ERR_BUSY);
    holder_end(&first);
    holder_end(&second);
}

/* What one takes is known by then. */
static void a_budget_of_bytes_counts_the_handle_that_is_being_made_again(void **state)
{
    (void)state;
    holder again;
    void *handle = NULL;
    atomic_store(&plain.bytes, 4 * MIB);
    limit(0, 6 * MIB);
    assert_ok(weir_handle_return(borrow(&plain, WEIR_STREAM_CURRENT)));
    assert_int_equal(trim(&plain, 0), 1);
    atomic_store(&plain.slow_creates, 1);
    holder_start(&again, &plain, WEIR_STREAM_CURRENT);
    wait_for(&plain.arrived);
    const weir_status status = weir_handle_get(plain.kind, &handle);
    sem_post(&plain.gate);
    assert_non_null(holder_handle(&again));
    holder_end(&again);
    assert_status(status, WEIR_ERR_BUSY);
}

static void a_failed_first_create_leaves_a_budget_of_bytes_to_the_next(void **state)
{
    (void)state;
    holder first, second;
    limit(0, 8 * MIB);
    atomic_store(&plain.slow_creates, 1);
    atomic_store(&plain.fail_creates, 1);
    holder_start(&first, &plain, WEIR_STREAM_CURRENT);
    wait_for(&plain.arrived);
    holder_start(&second, &plain, WEIR_STREAM_CURRENT);
    sem_post(&plain.gate);
    assert_int_equal((holder_handle(&first) != NULL) + (holder_handle(&second) != NULL), 1);
    holder_end(&first);
    holder_end(&second);
}

static void handles_destroyed_make_room_in_the_budget(void **state)
{
    (void)state;
    weir_lease lease = { 0 };
    atomic_store(&plain.bytes, 4 * MIB);
    limit(0, 4 * MIB);
    assert_ok(weir_handle_return(borrow(&plain, WEIR_STREAM_CURRENT)));
    assert_int_equal(trim(&plain, 0), 1);
    assert_ok(weir_handle_borrow(plain.kind, WEIR_STREAM_CURRENT, 0, &lease));
    assert_ok(weir_handle_return(lease));
}

static void *trim_elsewhere(void *unused)
{
    assert_int_equal(trim(&plain, 0), 1);
    return unused;
}

static void a_handle_counts_in_the_budget_until_it_is_destroyed(void **state)
{
    (void)state;
    weir_lease lease = { 0 };
    pthread_t trimmer;
    limit(1, 0);
    assert_ok(weir_handle_return(borrow(&plain, WEIR_STREAM_CURRENT)));
    atomic_store(&plain.slow_destroys, 1);
    assert_int_equal(pthread_create(&trimmer, NULL, trim_elsewhere, NULL), 0);
    wait_for(&plain.arrived);
    assert_status(weir_handle_borrow(plain.kind, WEIR_STREAM_CURRENT, 0, &lease), WEIR_ERR_BUSY);
    sem_post(&plain.gate);
    assert_ok(weir_handle_borrow(plain.kind, WEIR_STREAM_CURRENT, WEIR_FOREVER, &lease)); /* waits for it */
    pthread_join(trimmer, NULL);
    assert_ok(weir_handle_return(lease));
}

static void a_kind_without_handles_gets_one_whatever_the_last_one_took(void **state)
{
    (void)state;
    weir_lease lease = { 0 };
    atomic_store(&plain.bytes, 8 * MIB);
    limit(0, 4 * MIB);
    assert_ok(weir_handle_return(borrow(&plain, WEIR_STREAM_CURRENT)));
    assert_int_equal(trim(&plain, 0), 1);
    assert_ok(weir_handle_borrow(plain.kind, WEIR_STREAM_CURRENT, 0, &lease));
    assert_status(weir_handle_borrow(plain.kind, WEIR_STREAM_CURRENT, 0, &(weir_lease){ 0 }), WEIR_ERR_BUSY);
    assert_ok(weir_handle_return(lease));
}

static void a_lower_budget_takes_nothing_away(void **state)
{
    (void)state;
    weir_lease a = borrow(&plain, WEIR_STREAM_CURRENT), b = borrow(&plain, WEIR_STREAM_CURRENT), c = { 0 };
    limit(1, 0);
    assert_int_equal(numbers_of(&plain, 0).live, 2);
    assert_ok(weir_handle_return(a));
    a = borrow(&plain, WEIR_STREAM_CURRENT); /* destroys the idle one */
    assert_status(weir_handle_borrow(plain.kind, WEIR_STREAM_CURRENT, 0, &c), WEIR_ERR_BUSY);
    assert_ok(weir_handle_return(a));
    assert_ok(weir_handle_return(b));
}

/* ---- the queue --------------------------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void a_borrow_waits_no_longer_than_told(void **state)
{
    (void)state;
    weir_lease late = { 0 };
    limit(1, 0);
    weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT);
    assert_status(weir_handle_borrow(plain.kind, WEIR_STREAM_CURRENT, 0, &late), WEIR_ERR_BUSY);
    uint64_t began = now_ns();
    assert_status(weir_handle_borrow(plain.kind, WEIR_STREAM_CURRENT, 30000000, &late), WEIR_ERR_TIMEOUT);
    assert_true(now_ns() - began >= 30000000);
    assert_non_null(strstr(weir_error_text(), "plain"));
    assert_non_null(strstr(weir_error_text(), "the budget is 1 handles;"));
    assert_int_equal(late.id, 0);
    weir_handle_stats stats = numbers_of(&plain, 0);
    assert_int_equal(stats.waits, 1);
    assert_int_equal(stats.timeouts, 1);
    assert_ok(weir_handle_return(lease));
    late = borrow(&plain, WEIR_STREAM_CURRENT); /* the thread that gave up has left the queue */
    assert_ok(weir_handle_return(late));
}

static void a_borrow_for_ever_waits_until_there_is_one(void **state)
{
    (void)state;
    borrower b;
    limit(1, 0);
    weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT);
    queue(&b, WEIR_FOREVER, false);
    nap();
    assert_ok(weir_handle_return(lease));
    pthread_join(b.thread, NULL);
    assert_int_equal(b.status, WEIR_OK);
    weir_handle_stats stats = numbers_of(&plain, 0);
    assert_int_equal(stats.created, 1);
    assert_int_equal(stats.reuses, 1);
    assert_int_equal(stats.idle, 1);
    assert_int_equal(stats.borrowed, 0);
}

static void a_timeout_of_centuries_is_not_one_in_the_past(void **state)
{
    (void)state;
    borrower b;
    limit(1, 0);
    weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT);
    queue(&b, WEIR_FOREVER - 1, false);
    nap();
    assert_int_equal(numbers_of(&plain, 0).timeouts, 0);
    assert_ok(weir_handle_return(lease));
    pthread_join(b.thread, NULL);
    assert_int_equal(b.status, WEIR_OK);
}

static void waiting_threads_are_served_in_order_of_arrival(void **state)
{
    (void)state;
    enum { WAITING = 6 };
    borrower b[WAITING];
    atomic_store(&turns, 0);
    limit(1, 0);
    weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT);
    for (int i = 0; i < WAITING; i++) queue(&b[i], WEIR_FOREVER, false);
    assert_ok(weir_handle_return(lease));
    for (int i = 0; i < WAITING; i++) pthread_join(b[i].thread, NULL);
    for (int i = 0; i < WAITING; i++) {
        assert_int_equal(b[i].status, WEIR_OK);
        assert_int_equal(b[i].turn, i + 1);
    }
    assert_int_equal(atomic_load(&plain.creates), 1);
}

static void a_thread_that_gives_up_is_passed_over(void **state)
{
    (void)state;
    borrower patient[2], hasty;
    atomic_store(&turns, 0);
    limit(1, 0);
    weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT);
    queue(&patient[0], WEIR_FOREVER, false);
    queue(&hasty, 1000000, false);
    queue(&patient[1], WEIR_FOREVER, false);
    pthread_join(hasty.thread, NULL);
    assert_int_equal(hasty.status, WEIR_ERR_TIMEOUT);
    assert_ok(weir_handle_return(lease));
    for (int i = 0; i < 2; i++) {
        pthread_join(patient[i].thread, NULL);
        assert_int_equal(patient[i].status, WEIR_OK);
        assert_int_equal(patient[i].turn, i + 1);
    }
}

static void who_comes_after_the_last_has_given_up_is_served(void **state)
{
    (void)state;
    borrower hasty, patient;
    limit(1, 0);
    weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT);
    queue(&hasty, 1000000, false);
    pthread_join(hasty.thread, NULL);
    queue(&patient, WEIR_FOREVER, false);
    assert_ok(weir_handle_return(lease));
    pthread_join(patient.thread, NULL);
    assert_int_equal(hasty.status, WEIR_ERR_TIMEOUT);
    assert_int_equal(patient.status, WEIR_OK);
}

static void of_two_handles_that_come_at_once_each_serves_one_in_the_queue(void **state)
{
    (void)state;
    limit(2, 0);
    for (int round = 0; round < 20; round++) {
        borrower b[2];
        weir_lease leases[2];
        for (int i = 0; i < 2; i++) leases[i] = borrow(&plain, WEIR_STREAM_CURRENT);
        for (int i = 0; i < 2; i++) queue(&b[i], WEIR_FOREVER, true);
        for (int i = 0; i < 2; i++) assert_ok(weir_handle_return(leases[i])); /* perhaps before one has woken up */
        for (int i = 0; i < 2; i++) pthread_join(b[i].thread, NULL);
        for (int i = 0; i < 2; i++) assert_ok(weir_handle_return(b[i].lease));
    }
}

static void a_higher_budget_lets_the_queue_go_on_in_order(void **state)
{
    (void)state;
    borrower b[3];
    weir_lease newcomer = { 0 };
    limit(1, 0);
    weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT);
    for (int i = 0; i < 3; i++) queue(&b[i], WEIR_FOREVER, true);
    limit(2, 0);
    pthread_join(b[0].thread, NULL);
    assert_int_equal(b[0].status, WEIR_OK);
    nap();
    assert_int_equal(numbers_of(&plain, 0).live, 2);
    assert_status(weir_handle_borrow(plain.kind, WEIR_STREAM_CURRENT, 0, &newcomer), WEIR_ERR_BUSY);
    limit(0, 0);
    for (int i = 1; i < 3; i++) pthread_join(b[i].thread, NULL);
    assert_int_equal(numbers_of(&plain, 0).live, 4);
    for (int i = 0; i < 3; i++) assert_ok(weir_handle_return(b[i].lease));
    assert_ok(weir_handle_return(lease));
}

static void a_create_that_failed_leaves_its_room_to_the_queue(void **state)
{
    (void)state;
    holder doomed;
    borrower b;
    limit(1, 0);
    atomic_store(&plain.slow_creates, 1);
    atomic_store(&plain.fail_creates, 1);
    holder_start(&doomed, &plain, WEIR_STREAM_CURRENT);
    wait_for(&plain.arrived);
    queue(&b, WEIR_FOREVER, false); /* no handle exists yet, but one is being made */
    sem_post(&plain.gate);
    assert_null(holder_handle(&doomed));
    pthread_join(b.thread, NULL);
    assert_int_equal(b.status, WEIR_OK);
    holder_end(&doomed);
}

static void a_create_that_took_less_than_expected_leaves_room_to_the_queue(void **state)
{
    (void)state;
    holder slow;
    borrower b;
    atomic_store(&plain.bytes, 4 * MIB);
    weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT);
    limit(0, 8 * MIB);
    atomic_store(&plain.bytes, 0);
    atomic_store(&plain.slow_creates, 1);
    holder_start(&slow, &plain, WEIR_STREAM_CURRENT);
    wait_for(&plain.arrived);
    queue(&b, WEIR_FOREVER, false);
    sem_post(&plain.gate);
    assert_non_null(holder_handle(&slow));
    pthread_join(b.thread, NULL);
    assert_int_equal(b.status, WEIR_OK);
    holder_end(&slow);
    assert_ok(weir_handle_return(lease));
}

static void a_thread_that_ends_serves_the_queue(void **state)
{
    (void)state;
    holder h;
    borrower b;
    limit(1, 0);
    holder_start(&h, &plain, WEIR_STREAM_CURRENT);
    assert_non_null(holder_handle(&h));
    queue(&b, WEIR_FOREVER, false);
    holder_end(&h);
    pthread_join(b.thread, NULL);
    assert_int_equal(b.status, WEIR_OK);
}

static void a_handle_that_cannot_be_reset_goes_to_the_next_in_the_queue(void **state)
{
    (void)state;
    borrower b[2];
    limit(1, 0);
    weir_lease lease = borrow(&plain, WEIR_STREAM_CURRENT);
    for (int i = 0; i < 2; i++) queue(&b[i], WEIR_FOREVER, false);
    atomic_store(&plain.fail_resets, 1);
    assert_ok(weir_handle_return(lease));
    for (int i = 0; i < 2; i++) pthread_join(b[i].thread, NULL);
    assert_int_equal(b[0].status, WEIR_ERR_LIBRARY);
    assert_int_equal(b[1].status, WEIR_OK);
    assert_int_equal(numbers_of(&plain, 0).borrowed, 0);
}

#define HANDLE_TEST(test) cmocka_unit_test_setup_teardown(test, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HANDLE_TEST(a_lease_has_a_handle_bound_to_its_stream),
        HANDLE_TEST(a_lease_on_another_device_needs_no_current_device),
        HANDLE_TEST(any_thread_may_return_a_lease),
        HANDLE_TEST(a_lease_outlives_the_thread_that_borrowed),
        HANDLE_TEST(returned_handles_are_lent_last_in_first_out),
        HANDLE_TEST(a_lease_of_a_kind_that_cannot_be_is_refused),
        HANDLE_TEST(a_lease_ends_once),
        HANDLE_TEST(forged_leases_are_refused),
        HANDLE_TEST(a_lease_of_a_device_beyond_all_is_refused),
        HANDLE_TEST(a_lease_from_before_a_close_is_refused),
        HANDLE_TEST(of_two_threads_that_return_a_lease_one_succeeds),
        HANDLE_TEST(a_borrow_that_cannot_bind_gives_the_handle_back),
        HANDLE_TEST(a_get_beyond_the_count_is_refused_with_the_remedy),
        HANDLE_TEST(a_get_beyond_the_bytes_is_refused),
        HANDLE_TEST(memory_that_weir_takes_during_a_create_is_not_the_handles),
        HANDLE_TEST(nor_does_memory_that_weir_gives_back_make_it_smaller),
        HANDLE_TEST(a_first_create_is_not_waited_for_within_itself),
        HANDLE_TEST(nor_is_it_in_a_budget_of_bytes),
        HANDLE_TEST(others_may_be_made_within_a_first_create_that_need_not_be_alone),
        HANDLE_TEST(a_first_create_of_another_thread_is_not_waited_for_within_a_create),
        HANDLE_TEST(a_create_may_wait_for_a_handle_of_another_kind),
        HANDLE_TEST(a_threads_handle_counts_as_borrowed_while_it_is_lent),
        HANDLE_TEST(a_budget_of_bytes_holds_for_creates_that_begin_together),
        HANDLE_TEST(without_a_budget_of_bytes_nobody_waits_for_what_the_first_takes),
        HANDLE_TEST(who_waits_for_a_first_create_that_is_alone_waits_no_longer_than_it_said),
        HANDLE_TEST(where_the_first_uses_the_budget_up_nobody_waits_for_it),
        HANDLE_TEST(a_budget_of_bytes_counts_the_handle_that_is_being_made_again),
        HANDLE_TEST(a_failed_first_create_leaves_a_budget_of_bytes_to_the_next),
        HANDLE_TEST(handles_destroyed_make_room_in_the_budget),
        HANDLE_TEST(a_handle_counts_in_the_budget_until_it_is_destroyed),
        HANDLE_TEST(a_kind_without_handles_gets_one_whatever_the_last_one_took),
        HANDLE_TEST(a_lower_budget_takes_nothing_away),
        HANDLE_TEST(a_borrow_waits_no_longer_than_told),
        HANDLE_TEST(a_borrow_for_ever_waits_until_there_is_one),
        HANDLE_TEST(a_timeout_of_centuries_is_not_one_in_the_past),
        HANDLE_TEST(waiting_threads_are_served_in_order_of_arrival),
        HANDLE_TEST(a_thread_that_gives_up_is_passed_over),
        HANDLE_TEST(who_comes_after_the_last_has_given_up_is_served),
        HANDLE_TEST(of_two_handles_that_come_at_once_each_serves_one_in_the_queue),
        HANDLE_TEST(a_higher_budget_lets_the_queue_go_on_in_order),
        HANDLE_TEST(a_create_that_failed_leaves_its_room_to_the_queue),
        HANDLE_TEST(a_create_that_took_less_than_expected_leaves_room_to_the_queue),
        HANDLE_TEST(a_thread_that_ends_serves_the_queue),
        HANDLE_TEST(a_handle_that_cannot_be_reset_goes_to_the_next_in_the_queue),
    };
    return cmocka_run_group_tests(tests, register_all, NULL);
}
