/*
 * What a child of fork() sees. Children report by their exit status: 0, or the line of the expectation that failed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "device_support.h"
#include "host_support.h"
#include "sanitized.h"
#include "thread_support.h"
#include "weir/trace.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *kept_block;
static weir_stream kept_stream;
static weir_mempool kept_id; /* of no pool yet */

#define EXPECT(call, expected)                                                                                         \
    do {                                                                                                               \
        weir_status got_ = (call);                                                                                     \
        if (got_ != (expected)) {                                                                                      \
            fprintf(stderr, "child, line %d: %s: %s\n", __LINE__, #call, weir_status_name(got_));                      \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static void in_a_child_that(void (*ends)(int status), int (*function)(void))
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(30); /* a deadlock must not hang the test */
        ends(function());
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* With everything that runs at exit. */
static void in_a_child(int (*function)(void))
{
    in_a_child_that(exit, function);
}

static int open_in_use(void **state)
{
    open_small_host(state);
    kept_stream = new_stream(0);
    kept_block = alloc_on(4096, kept_stream);
    assert_ok(weir_mempool_reserve(&kept_id));
    return 0;
}

static int open_with_stacks(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB, .history = 10000, .history_stacks = 16 });
    kept_stream = new_stream(0);
    kept_block = alloc_on(4096, kept_stream);
    return 0;
}

static int every_call_is_refused(void)
{
    const char *name = NULL;
    void *pointer = NULL;
    int number = 0;
    uint64_t count = 0;
    size_t events = 0;
    weir_stream stream = kept_stream;
    weir_stream_guard guard = { .thread = 1, .previous = kept_stream };
    weir_memory_stats stats = { .size = sizeof stats };
    weir_device_info device = { .size = sizeof device };
    weir_pointer_info info = { .size = sizeof info };
    weir_checkpoint *checkpoint = NULL;
    EXPECT(weir_open(NULL), WEIR_ERR_FORKED);
    EXPECT(weir_backend_name(&name), WEIR_ERR_FORKED);
    EXPECT(weir_device_count(&number), WEIR_ERR_FORKED);
    EXPECT(weir_device_info_get(0, &device), WEIR_ERR_FORKED);
    EXPECT(weir_device_get_current(&number), WEIR_ERR_FORKED);
    EXPECT(weir_device_set_current(0), WEIR_ERR_FORKED);
    EXPECT(weir_device_synchronize(0), WEIR_ERR_FORKED);
    EXPECT(weir_device_enable_peer(0, 0), WEIR_ERR_FORKED);
    EXPECT(weir_stream_default(0, &stream), WEIR_ERR_FORKED);
    EXPECT(weir_stream_from_pool(0, 0, &stream), WEIR_ERR_FORKED);
    EXPECT(weir_stream_create(0, 0, &stream), WEIR_ERR_FORKED);
    EXPECT(weir_stream_from_native(0, NULL, &stream), WEIR_ERR_FORKED);
    EXPECT(weir_stream_destroy(stream), WEIR_ERR_FORKED);
    EXPECT(weir_stream_get_current(0, &stream), WEIR_ERR_FORKED);
    EXPECT(weir_stream_set_current(stream), WEIR_ERR_FORKED);
    EXPECT(weir_stream_enter(stream, &guard), WEIR_ERR_FORKED);
    EXPECT(weir_stream_leave(&guard), WEIR_ERR_FORKED);
    EXPECT(weir_stream_native(stream, &pointer), WEIR_ERR_FORKED);
    EXPECT(weir_stream_device(stream, &number), WEIR_ERR_FORKED);
    EXPECT(weir_stream_priority(stream, &number), WEIR_ERR_FORKED);
    EXPECT(weir_stream_queued(stream, &count), WEIR_ERR_FORKED);
    EXPECT(weir_stream_query(stream), WEIR_ERR_FORKED);
    EXPECT(weir_stream_synchronize(stream), WEIR_ERR_FORKED);
    EXPECT(weir_stream_wait(stream, stream), WEIR_ERR_FORKED);
    EXPECT(weir_stream_callback(stream, do_slow_work, &number), WEIR_ERR_FORKED);
    EXPECT(weir_copy(&number, &number, 1, stream), WEIR_ERR_FORKED);
    EXPECT(weir_fill(&number, 0, 1, stream), WEIR_ERR_FORKED);
    EXPECT(weir_alloc(512, &pointer), WEIR_ERR_FORKED);
    EXPECT(weir_alloc_on(512, stream, &pointer), WEIR_ERR_FORKED);
    EXPECT(weir_free(kept_block), WEIR_ERR_FORKED);
    EXPECT(weir_record_stream(kept_block, stream), WEIR_ERR_FORKED);
    EXPECT(weir_pointer_info_get(kept_block, &info), WEIR_ERR_FORKED);
    EXPECT(weir_empty_cache(0), WEIR_ERR_FORKED);
    EXPECT(weir_pinned_alloc(512, WEIR_NUMA_ANY, &pointer), WEIR_ERR_FORKED);
    EXPECT(weir_pinned_free(kept_block), WEIR_ERR_FORKED);
    EXPECT(weir_pinned_record(kept_block, stream), WEIR_ERR_FORKED);
    EXPECT(weir_pinned_reserve(512, WEIR_NUMA_ANY), WEIR_ERR_FORKED);
    EXPECT(weir_pinned_limit_set(0), WEIR_ERR_FORKED);
    EXPECT(weir_pinned_trim(0), WEIR_ERR_FORKED);
    EXPECT(weir_pinned_stats_get(&stats), WEIR_ERR_FORKED);
    EXPECT(weir_mempool_checkpoint((weir_mempool){ 0, 1 }, &checkpoint), WEIR_ERR_FORKED);
    EXPECT(weir_mempool_unref(kept_id), WEIR_ERR_FORKED);
    EXPECT(weir_memory_limit_set(0, 1), WEIR_ERR_FORKED);
    EXPECT(weir_memory_limit_get(0, &count), WEIR_ERR_FORKED);
    EXPECT(weir_stats_get(0, &stats), WEIR_ERR_FORKED);
    EXPECT(weir_stats_reset(0), WEIR_ERR_FORKED);
    EXPECT(weir_driver_calls(&count), WEIR_ERR_FORKED);
    EXPECT(weir_validate(0), WEIR_ERR_FORKED);
    EXPECT(weir_history_read(0, NULL, 0, &events, NULL), WEIR_ERR_FORKED);
    EXPECT(weir_history_save("/nonexistent/trace"), WEIR_ERR_FORKED);
    EXPECT(weir_close(), WEIR_ERR_FORKED);
    EXPECT(weir_open(NULL), WEIR_ERR_FORKED); /* for ever */
    return 0;
}

static int every_string_is_cut(void)
{
    uint64_t count = 0;
    EXPECT(weir_host_fail(WEIR_BACKEND_copy, 1, WEIR_ERR_DRIVER), WEIR_ERR_FORKED);
    EXPECT(weir_host_fail_any(1, WEIR_ERR_DRIVER), WEIR_ERR_FORKED);
    EXPECT(weir_host_fail_clear(), WEIR_ERR_FORKED);
    EXPECT(weir_host_lose_device(0), WEIR_ERR_FORKED);
    EXPECT(weir_host_latency(WEIR_BACKEND_copy, 1), WEIR_ERR_FORKED);
    EXPECT(weir_host_clock_hold(true), WEIR_ERR_FORKED);
    EXPECT(weir_host_clock_advance(1), WEIR_ERR_FORKED);
    EXPECT(weir_host_calls(WEIR_BACKEND_copy, &count), WEIR_ERR_FORKED);
    EXPECT(weir_host_driver_time(&count), WEIR_ERR_FORKED);
    EXPECT(weir_host_stream_hold(0, NULL), WEIR_ERR_FORKED);
    EXPECT(weir_host_stream_step(0, NULL, 1, &count), WEIR_ERR_FORKED);
    EXPECT(weir_host_stream_queued(0, NULL, &count), WEIR_ERR_FORKED);
    EXPECT(weir_host_stream_release(0, NULL), WEIR_ERR_FORKED);
    EXPECT(weir_host_place_segments(0, NULL, 0), WEIR_ERR_FORKED);
    EXPECT(weir_host_omit_contents(), WEIR_ERR_FORKED);
    EXPECT(weir_host_address_range(0, &count), WEIR_ERR_FORKED);
    EXPECT(weir_host_cost(WEIR_BACKEND_copy, 1, &count), WEIR_OK);
    EXPECT(weir_history_label_push("child"), WEIR_OK);
    EXPECT(weir_history_label_pop(), WEIR_OK);
    return 0;
}

static void the_child_cannot_control_the_host_back_end(void **state)
{
    (void)state;
    in_a_child(every_string_is_cut);
}

static void every_call_is_refused_in_the_child(void **state)
{
    (void)state;
    in_a_child(every_call_is_refused);
}

static void the_parent_goes_on(void **state)
{
    (void)state;
    in_a_child(every_call_is_refused);
    assert_ok(weir_validate(0));
    assert_ok(weir_free(kept_block));
    assert_ptr_equal(alloc_on(4096, kept_stream), kept_block);
}

static int a_grandchild_is_refused_too(void)
{
    void *pointer = NULL;
    pid_t child = fork();
    if (child == 0) exit(weir_alloc(512, &pointer) == WEIR_ERR_FORKED ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    return status != 0;
}

static void grandchildren_are_refused_in_turn(void **state)
{
    (void)state;
    in_a_child(a_grandchild_is_refused_too);
}

static int the_library_works(void)
{
    void *pointer = NULL;
    weir_stream stream = { 0 };
    EXPECT(weir_stream_create(0, 0, &stream), WEIR_OK);
    EXPECT(weir_alloc_on(12 * MIB, stream, &pointer), WEIR_OK);
    EXPECT(weir_record_stream(pointer, WEIR_STREAM_CURRENT), WEIR_OK);
    EXPECT(weir_free(pointer), WEIR_OK);
    EXPECT(weir_validate(0), WEIR_OK);
    EXPECT(weir_close(), WEIR_OK);
    return 0;
}

static void a_child_forked_before_a_device_was_used_may_use_it(void **state)
{
    (void)state;
    in_a_child(the_library_works);
    assert_ok(weir_free(alloc(512)));
}

static int open_and_use(void)
{
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "host";
    settings.host_memory = 64 * MIB;
    EXPECT(weir_open(&settings), WEIR_OK);
    return the_library_works();
}

static void a_child_of_a_closed_library_may_open_it(void **state)
{
    (void)state;
    assert_ok(weir_close());
    in_a_child(open_and_use);
    open_small_host(state);
}

static void *allocate_once(void *unused)
{
    (void)unused;
    void *block = NULL;
    return (void *)(intptr_t)(weir_alloc(512, &block) != WEIR_OK || weir_free(block) != WEIR_OK);
}

static int threads_that_end_leave_their_pages_to_others(void)
{
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "host";
    settings.host_memory = 64 * MIB;
    settings.history = 1000;
    EXPECT(weir_open(&settings), WEIR_OK);
    uint64_t after_one = 0;
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        void *failed = NULL;
        if (pthread_create(&thread, NULL, allocate_once, NULL) || pthread_join(thread, &failed) || failed) return 1;
        if (i == 0) after_one = wr_meta_live();
    }
    if (wr_meta_live() != after_one) fprintf(stderr, "child: each thread takes memory that stays\n");
    return wr_meta_live() != after_one;
}

/* A program can set a label before the library is open. */
static void a_child_forked_after_a_label_records_in_few_pages(void **state)
{
    (void)state;
    assert_ok(weir_close());
    assert_ok(weir_history_label_push("startup"));
    assert_ok(weir_history_label_pop());
    in_a_child(threads_that_end_leave_their_pages_to_others);
    open_small_host(state);
}

/* Locks that other threads hold at the fork stay held in the child, which has none of those threads. */
typedef struct busy {
    atomic_bool stop;
    sem_t started;
} busy;

static bool frees_nothing(void *user, int device, size_t needed)
{
    (void)user, (void)device, (void)needed;
    return false;
}

static void *allocate_without_pause(void *argument)
{
    busy *b = argument;
    sem_post(&b->started);
    while (!atomic_load(&b->stop)) {
        void *block = NULL;
        if (weir_alloc(4096, &block) == WEIR_OK) (void)weir_free(block);
        (void)weir_empty_cache(0);
    }
    return NULL;
}

static void a_fork_while_threads_hold_locks_does_not_hang_the_child(void **state)
{
    (void)state;
    busy b = { .stop = false };
    pthread_t threads[2];
    sem_init(&b.started, 0, 0);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, allocate_without_pause, &b), 0);
    for (int i = 0; i < 2; i++) wait_for(&b.started);
    /* _exit skips the leak checker: in the child nothing points to what the parent's threads hold. */
    for (int i = 0; i < 10; i++) in_a_child_that(_exit, every_call_is_refused);
    atomic_store(&b.stop, true);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    sem_destroy(&b.started);
}

/* In a namespace of its own a child may have the number of its parent, of which each is the first process. */
pid_t getpid(void)
{
    return 1;
}

static pthread_t forking_thread;

static void *outlive_the_forking_thread(void *unused)
{
    (void)unused;
    pthread_join(forking_thread, NULL);
    _exit(0);
}

static int end_the_forking_thread(void)
{
    pthread_t thread;
    forking_thread = pthread_self();
    if (pthread_create(&thread, NULL, outlive_the_forking_thread, NULL) != 0) return 1;
    pthread_exit(NULL);
}

static void a_thread_that_recorded_ends_without_locks_in_the_child(void **state)
{
    (void)state;
    if (SANITIZED) skip(); /* sanitizers want the main thread to end last */
    wr_history *history = &device_0()->cache.history;
    assert_true(wr_history_capacity(history) != 0);
    wr_lock_acquire(&history->lock);
    in_a_child(end_the_forking_thread);
    wr_lock_release(&history->lock);
}

static void *script_without_pause(void *argument)
{
    busy *b = argument;
    sem_post(&b->started);
    while (!atomic_load(&b->stop))
        if (weir_host_fail(WEIR_BACKEND_copy, 1, WEIR_ERR_DRIVER) == WEIR_OK) (void)weir_host_fail_clear();
    return NULL;
}

/* The call is refused or done, depending on whether the other thread was in the middle of it. */
static int scripts_are_answered(void)
{
    const weir_status cleared = weir_host_fail_clear();
    const bool refused = cleared == WEIR_ERR_FORKED;
    EXPECT(cleared, refused ? WEIR_ERR_FORKED : WEIR_OK);
    EXPECT(weir_close(), refused ? WEIR_ERR_FORKED : WEIR_OK);
    return 0;
}

static void a_fork_while_failures_are_scripted_does_not_hang_the_child(void **state)
{
    (void)state;
    busy b = { .stop = false };
    pthread_t thread;
    sem_init(&b.started, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, script_without_pause, &b), 0);
    wait_for(&b.started);
    for (int i = 0; i < 200; i++) in_a_child_that(_exit, scripts_are_answered);
    atomic_store(&b.stop, true);
    pthread_join(thread, NULL);
    sem_destroy(&b.started);
}

static void *open_the_device(void *unused)
{
    void *block = NULL;
    (void)unused;
    return weir_alloc(512, &block) == WEIR_OK ? block : NULL;
}

static int a_device_is_refused(void)
{
    void *block = NULL;
    EXPECT(weir_alloc(512, &block), WEIR_ERR_FORKED);
    EXPECT(weir_close(), WEIR_ERR_FORKED);
    return 0;
}

static void a_fork_while_a_device_is_opened_does_not_hang_the_child(void **state)
{
    (void)state;
    pthread_t thread;
    void *block = NULL;
    assert_ok(weir_host_latency(WEIR_BACKEND_device_open, 200000000));
    assert_int_equal(pthread_create(&thread, NULL, open_the_device, NULL), 0);
    await_call_of(WEIR_BACKEND_device_open, 0);
    in_a_child_that(_exit, a_device_is_refused);
    pthread_join(thread, &block);
    assert_non_null(block);
    assert_ok(weir_free(block));
}

static void *add_callbacks_kinds_and_pools(void *argument)
{
    busy *b = argument;
    weir_handle_kind kind;
    const weir_handle_ops nameless = { WEIR_HANDLE_OPS_INIT };
    int reserved = 0;
    sem_post(&b->started);
    while (!atomic_load(&b->stop)) {
        if (weir_reclaim_add(frees_nothing, NULL) == WEIR_OK) (void)weir_reclaim_remove(frees_nothing, NULL);
        (void)weir_handle_kind_register(&nameless, &kind);
        if (reserved++ < 100000) (void)weir_mempool_reserve(&(weir_mempool){ 0 }); /* there are only so many */
    }
    return NULL;
}

/* The call is refused or done, depending on whether the other thread was in the middle of it. */
static int callbacks_kinds_and_pools_are_answered(void)
{
    weir_handle_kind kind;
    weir_mempool pool;
    const weir_handle_ops nameless = { WEIR_HANDLE_OPS_INIT };
    const weir_status added = weir_reclaim_add(frees_nothing, NULL);
    const bool refused = added == WEIR_ERR_FORKED;
    EXPECT(added, refused ? WEIR_ERR_FORKED : WEIR_OK);
    EXPECT(weir_mempool_reserve(&pool), refused ? WEIR_ERR_FORKED : WEIR_OK);
    EXPECT(weir_handle_kind_register(&nameless, &kind), refused ? WEIR_ERR_FORKED : WEIR_ERR_INVALID_ARGUMENT);
    EXPECT(weir_close(), refused ? WEIR_ERR_FORKED : WEIR_OK);
    return 0;
}

static void a_fork_while_callbacks_are_added_does_not_hang_the_child(void **state)
{
    (void)state;
    busy b = { .stop = false };
    pthread_t thread;
    sem_init(&b.started, 0, 0);
    /* The first error is made ready for with pthread_once(), which in a child waits without end for a thread that was
     * in it, if it is ThreadSanitizer's. */
    assert_status(weir_mempool_reserve(NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(pthread_create(&thread, NULL, add_callbacks_kinds_and_pools, &b), 0);
    wait_for(&b.started);
    for (int i = 0; i < 200; i++) in_a_child_that(_exit, callbacks_kinds_and_pools_are_answered);
    atomic_store(&b.stop, true);
    pthread_join(thread, NULL);
    sem_destroy(&b.started);
}

#define IN_USE(test) cmocka_unit_test_setup_teardown(test, open_in_use, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_USE(every_call_is_refused_in_the_child),
        IN_USE(the_child_cannot_control_the_host_back_end),
        IN_USE(the_parent_goes_on),
        IN_USE(grandchildren_are_refused_in_turn),
        cmocka_unit_test_setup_teardown(a_child_forked_before_a_device_was_used_may_use_it, open_small_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(a_child_of_a_closed_library_may_open_it, open_small_host, close_host),
        cmocka_unit_test_setup_teardown(a_child_forked_after_a_label_records_in_few_pages, open_small_host, close_host),
        IN_USE(a_fork_while_threads_hold_locks_does_not_hang_the_child),
        cmocka_unit_test_setup_teardown(a_fork_while_threads_hold_locks_does_not_hang_the_child, open_with_stacks,
                                        close_host),
        cmocka_unit_test_setup_teardown(a_thread_that_recorded_ends_without_locks_in_the_child, open_with_stacks,
                                        close_host),
        cmocka_unit_test_setup_teardown(a_fork_while_callbacks_are_added_does_not_hang_the_child, open_small_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(a_fork_while_failures_are_scripted_does_not_hang_the_child, open_small_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(a_fork_while_a_device_is_opened_does_not_hang_the_child, open_small_host,
                                        close_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
