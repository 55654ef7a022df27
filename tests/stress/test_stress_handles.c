/*
 * Handles under load: threads that come and go, and all operations at once. The library that makes the handles checks
 * that no two owners ever have the same one; races are left to the thread sanitizer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "handle_support.h"
#include "stress/stress_support.h"

enum { AT_ONCE = 16, SHORT_THREADS = SANITIZED ? 1600 : 10000, WORKERS = 8, ROUNDS = SANITIZED ? 300 : 3000 };

static library plain = { .name = "plain" }, roomy = { .name = "roomy" };

static int register_all(void **state)
{
    (void)state;
    library_register(&plain, WEIR_HANDLE_FIRST_ALONE);
    library_register(&roomy, 0);
    library_works_in_memory_of_weirs(&roomy);
    return 0;
}

static int start(void **state)
{
    (void)state;
    library_start(&plain);
    library_start(&roomy);
    open_host((weir_settings){ .host_devices = 2, .host_memory = 2048 * MIB });
    return 0;
}

static int end(void **state)
{
    close_host(state);
    library_end(&plain);
    library_end(&roomy);
    return 0;
}

/* ---- threads by the ten thousand --------------------------------------------------------------------------------- */

static atomic_int refused;

static void *live_shortly(void *argument)
{
    void *handle = NULL;
    (void)argument;
    if (weir_handle_get(plain.kind, &handle) != WEIR_OK) atomic_fetch_add(&refused, 1);
    if (weir_handle_get(plain.kind, &handle) != WEIR_OK) atomic_fetch_add(&refused, 1);
    return NULL;
}

static void run_short_threads(int count)
{
    pthread_t threads[AT_ONCE];
    for (int i = 0; i < count; i++) {
        if (i >= AT_ONCE) pthread_join(threads[i % AT_ONCE], NULL);
        assert_int_equal(pthread_create(&threads[i % AT_ONCE], NULL, live_shortly, NULL), 0);
    }
    for (int i = 0; i < AT_ONCE; i++) pthread_join(threads[i], NULL);
}

static void short_threads_need_no_more_handles_than_run_at_once(void **state)
{
    (void)state;
    atomic_store(&refused, 0);
    run_short_threads(10 * AT_ONCE);
    weir_handle_stats stats = numbers_of(&plain, 0);
    const uint64_t records = wr_meta_live() - stats.live;
    run_short_threads(SHORT_THREADS);
    assert_int_equal(atomic_load(&refused), 0);
    stats = numbers_of(&plain, 0);
    assert_true(stats.peak <= AT_ONCE);
    assert_int_equal(stats.created, stats.live);
    assert_int_equal(stats.idle, stats.live);
    assert_int_equal(stats.created + stats.reuses, SHORT_THREADS + 10 * AT_ONCE);
    assert_int_equal(stats.hits, SHORT_THREADS + 10 * AT_ONCE);
    assert_int_equal(wr_meta_live() - stats.live, records);
}

/* ---- everything at once ------------------------------------------------------------------------------------------ */

/* Leases on their way from one thread to another. */
static struct {
    pthread_mutex_t mutex;
    weir_lease leases[64];
    int count;
} passed = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static atomic_int mistakes;
static atomic_bool stop;
static weir_stream streams[2][3];

static void expect(bool right)
{
    if (!right) atomic_fetch_add(&mistakes, 1);
}

/* The owner of a handle writes to it without a lock: two owners would race. */
static void use(void *handle)
{
    ((thing *)handle)->bytes++;
    ((thing *)handle)->bytes--;
}

static void own(const library *l, weir_stream stream)
{
    void *handle = NULL;
    weir_status status = weir_handle_get_on(l->kind, stream, &handle);
    expect(status == WEIR_OK || status == WEIR_ERR_BUSY);
    if (status == WEIR_OK) use(handle);
}

static void lend(const library *l, weir_stream stream, uint64_t timeout_ns)
{
    weir_lease lease = { 0 };
    weir_status status = weir_handle_borrow(l->kind, stream, timeout_ns, &lease);
    expect(status == WEIR_OK || status == WEIR_ERR_BUSY || status == WEIR_ERR_TIMEOUT);
    if (status != WEIR_OK) return;
    use(weir_lease_handle(lease));
    pthread_mutex_lock(&passed.mutex);
    const bool pass = passed.count < 64;
    if (pass) passed.leases[passed.count++] = lease;
    pthread_mutex_unlock(&passed.mutex);
    if (!pass) expect(weir_handle_return(lease) == WEIR_OK);
}

static bool return_one(void)
{
    weir_lease lease = { 0 };
    pthread_mutex_lock(&passed.mutex);
    if (passed.count > 0) lease = passed.leases[--passed.count];
    pthread_mutex_unlock(&passed.mutex);
    if (lease.id == 0) return false;
    void *handle = weir_lease_handle(lease);
    expect(handle != NULL);
    if (handle) use(handle);
    expect(weir_handle_return(lease) == WEIR_OK);
    expect(weir_handle_return(lease) == WEIR_ERR_INVALID_ARGUMENT);
    return true;
}

static void *work(void *argument)
{
    uint32_t random = (uint32_t)(uintptr_t)argument * 2654435761u + 1;
    for (int i = 0; i < ROUNDS; i++) {
        const uint32_t r = next_random(&random);
        const library *l = r & 1 ? &plain : &roomy;
        const weir_stream s = streams[r >> 1 & 1][(r >> 2) % 3];
        switch ((r >> 8) % 8) {
        case 0:
        case 1:
        case 2: own(l, s); break;
        case 3: lend(l, s, 0); break;
        case 4: lend(l, s, 200000); break;
        case 5: (void)return_one(); break;
        case 6: expect(weir_stream_set_current(s) == WEIR_OK); break;
        default: expect(weir_handle_release(l->kind, r >> 1 & 1) == WEIR_OK); break;
        }
    }
    return NULL;
}

/* Threads that live for a few calls only. */
static void *churn(void *argument)
{
    (void)argument;
    while (!atomic_load(&stop)) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, live_shortly, NULL) != 0) return NULL;
        pthread_join(thread, NULL);
    }
    return NULL;
}

static void *administer(void *argument)
{
    (void)argument;
    for (unsigned i = 0; !atomic_load(&stop); i++) {
        weir_handle_stats stats = { .size = sizeof stats };
        const library *l = i & 1 ? &plain : &roomy;
        const int device = i >> 1 & 1;
        void *block = NULL;
        expect(weir_handle_budget_set(l->kind, device, i % 4 ? 3 + i % 5 : 0, i % 3 ? 0 : 64 * MIB) == WEIR_OK);
        expect(weir_handles_trim(i % 5 ? l->kind : 0, device, NULL) == WEIR_OK);
        expect(weir_handle_stats_get(l->kind, device, &stats) == WEIR_OK);
        expect(stats.live == stats.created - stats.destroyed && stats.idle + stats.borrowed <= stats.live);
        if (weir_alloc(1500 * MIB, &block) == WEIR_OK) expect(weir_free(block) == WEIR_OK); /* up the ladder */
        (void)return_one(); /* so that nobody queues for ever */
        sched_yield();
    }
    return NULL;
}

static void everything_at_once_loses_nothing(void **state)
{
    (void)state;
    pthread_t workers[WORKERS], others[2];
    atomic_store(&mistakes, 0);
    atomic_store(&stop, false);
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < 3; i++) streams[device][i] = new_stream(device);
    assert_int_equal(pthread_create(&others[0], NULL, churn, NULL), 0);
    assert_int_equal(pthread_create(&others[1], NULL, administer, NULL), 0);
    for (uintptr_t i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&workers[i], NULL, work, (void *)(i + 1)), 0);
    for (int i = 0; i < WORKERS; i++) pthread_join(workers[i], NULL);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++) pthread_join(others[i], NULL);
    while (return_one()) continue;
    assert_int_equal(atomic_load(&mistakes), 0);

    const library *const both[] = { &plain, &roomy };
    for (int i = 0; i < 2; i++) {
        uint64_t live = 0;
        for (int device = 0; device < 2; device++) {
            weir_handle_stats stats = numbers_of(both[i], device);
            assert_int_equal(stats.borrowed, 0);
            assert_int_equal(stats.idle, stats.live); /* all threads have ended */
            assert_int_equal(stats.live, stats.created - stats.destroyed);
            live += stats.live;
        }
        assert_int_equal(live, (uint64_t)(both[i]->creates - both[i]->destroys));
    }
    for (int device = 0; device < 2; device++) {
        assert_ok(weir_handles_trim(0, device, NULL));
        assert_int_equal(numbers_of(&roomy, device).workspace_bytes, 0);
        assert_int_equal(stats_of(device).allocated_bytes[WEIR_STAT_ALL].current, 0);
    }
}

/* ---- a queue under pressure -------------------------------------------------------------------------------------- */

static atomic_int in_use;

static void *take_turns(void *argument)
{
    (void)argument;
    for (int i = 0; i < ROUNDS / 3; i++) {
        weir_lease lease = { 0 };
        if (weir_handle_borrow(plain.kind, WEIR_STREAM_CURRENT, WEIR_FOREVER, &lease) != WEIR_OK) {
            expect(false);
            continue;
        }
        expect(atomic_fetch_add(&in_use, 1) < 2);
        use(weir_lease_handle(lease));
        atomic_fetch_sub(&in_use, 1);
        expect(weir_handle_return(lease) == WEIR_OK);
    }
    return NULL;
}

static void no_more_borrow_than_the_budget_allows_and_all_get_a_turn(void **state)
{
    (void)state;
    pthread_t threads[WORKERS];
    atomic_store(&mistakes, 0);
    atomic_store(&in_use, 0);
    assert_ok(weir_handle_budget_set(plain.kind, 0, 2, 0));
    for (int i = 0; i < WORKERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, take_turns, NULL), 0);
    for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&mistakes), 0);
    weir_handle_stats stats = numbers_of(&plain, 0);
    assert_true(stats.peak <= 2);
    assert_int_equal(stats.timeouts, 0);
    assert_int_equal(stats.idle, stats.live);
}

#define STRESS_TEST(test) cmocka_unit_test_setup_teardown(test, start, end)

/* ---- streams that end -------------------------------------------------------------------------------------------- */

enum { STREAM_THREADS = 4, STREAMS_EACH = SANITIZED ? 500 : 5000 };

/* The handle that it gives back has work on a stream that has ended, or is just ending. */
static void *use_a_handle_on_streams_that_end(void *argument)
{
    (void)argument;
    for (int i = 0; i < STREAMS_EACH; i++) {
        weir_stream stream;
        void *handle = NULL;
        const bool made = weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &stream) == WEIR_OK;
        if (!made || weir_handle_get_on(roomy.kind, stream, &handle) != WEIR_OK) atomic_fetch_add(&refused, 1);
        if (weir_handle_release(roomy.kind, 0) != WEIR_OK) atomic_fetch_add(&refused, 1);
        if (made && weir_stream_destroy(stream) != WEIR_OK) atomic_fetch_add(&refused, 1);
    }
    return NULL;
}

static void a_handle_goes_on_while_its_last_stream_ends(void **state)
{
    pthread_t threads[STREAM_THREADS];
    (void)state;
    atomic_store(&refused, 0);
    for (int i = 0; i < STREAM_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_a_handle_on_streams_that_end, NULL), 0);
    for (int i = 0; i < STREAM_THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&refused), 0);
    assert_ok(weir_validate(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STRESS_TEST(short_threads_need_no_more_handles_than_run_at_once),
        STRESS_TEST(everything_at_once_loses_nothing),
        STRESS_TEST(no_more_borrow_than_the_budget_allows_and_all_get_a_turn),
        STRESS_TEST(a_handle_goes_on_while_its_last_stream_ends),
    };
    return cmocka_run_group_tests(tests, register_all, NULL);
}
