/*
 * Handles and the process: fork and exit. Children report by their exit status, and through a pipe what their library
 * did: 'c' for a create, 'd' for a destroy.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "handle_support.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static library plain = { .name = "plain" };
static weir_handle_kind telling;
static int pipe_ends[2];
static atomic_bool slow;
static sem_t creating;

static int tell_create(void *user, int device, void **handle)
{
    if (atomic_load(&slow)) {
        struct timespec time = { 0, 300000000 };
        sem_post(&creating);
        nanosleep(&time, NULL);
    }
    if (write(pipe_ends[1], "c", 1) != 1) return LIBRARY_BROKEN;
    return library_create(user, device, handle);
}

static int tell_destroy(void *user, void *handle)
{
    if (write(pipe_ends[1], "d", 1) != 1) return LIBRARY_BROKEN;
    return library_destroy(user, handle);
}

static int register_all(void **state)
{
    (void)state;
    library_register(&plain, 0);
    const weir_handle_ops ops = { WEIR_HANDLE_OPS_INIT,    .name = "telling",    .create = tell_create,
                                  .destroy = tell_destroy, .bind = library_bind, .user = &plain };
    assert_ok(weir_handle_kind_register(&ops, &telling));
    return 0;
}

static int start(void **state)
{
    (void)state;
    library_start(&plain);
    return 0;
}

static int end(void **state)
{
    (void)state;
    library_end(&plain);
    return 0;
}

/* Exit status of a child that does `function`; what its library told is in `told`. */
static int in_a_child(int (*function)(void), char *told, size_t room)
{
    assert_int_equal(pipe(pipe_ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(30); /* a deadlock must not hang the test */
        close(pipe_ends[0]);
        exit(function()); /* with everything that runs at exit */
    }
    close(pipe_ends[1]);
    size_t length = 0;
    ssize_t got = 0;
    while (length + 1 < room && (got = read(pipe_ends[0], told + length, room - 1 - length)) > 0) length += (size_t)got;
    told[length] = '\0';
    close(pipe_ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "child, line %d: %s: %s\n", __LINE__, #condition, weir_error_text());                      \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static bool open_small(void)
{
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "host";
    settings.host_memory = 64 * MIB;
    return weir_open(&settings) == WEIR_OK;
}

/* ---- exit -------------------------------------------------------------------------------------------------------- */

static void *get_slowly(void *argument)
{
    void *handle = NULL;
    (void)argument;
    (void)!weir_handle_get(telling, &handle);
    return NULL;
}

static int exit_while_another_thread_creates(void)
{
    void *handle = NULL;
    pthread_t thread;
    weir_lease lease = { 0 };
    EXPECT(open_small());
    EXPECT(weir_handle_get(telling, &handle) == WEIR_OK);
    EXPECT(weir_handle_borrow(telling, WEIR_STREAM_CURRENT, 0, &lease) == WEIR_OK);
    sem_init(&creating, 0, 0);
    atomic_store(&slow, true);
    EXPECT(pthread_create(&thread, NULL, get_slowly, NULL) == 0);
    pthread_detach(thread);
    wait_for(&creating);
    return 0; /* to exit() */
}

static void exit_destroys_nothing_also_while_a_handle_is_created(void **state)
{
    char told[16];
    (void)state;
    assert_int_equal(in_a_child(exit_while_another_thread_creates, told, sizeof told), 0);
    assert_int_equal(strncmp(told, "cc", 2), 0); /* the third may have come to its end */
    assert_null(strchr(told, 'd'));
}

static int close_and_exit(void)
{
    void *handle = NULL;
    EXPECT(open_small());
    EXPECT(weir_handle_get(telling, &handle) == WEIR_OK);
    EXPECT(weir_close() == WEIR_OK);
    return 0;
}

static void closing_before_exit_destroys(void **state)
{
    char told[16];
    (void)state;
    assert_int_equal(in_a_child(close_and_exit, told, sizeof told), 0);
    assert_string_equal(told, "cd");
}

static pthread_t main_thread;

/* The last thread ends the process and reports what became of the main thread's handle. */
static void *outlive_the_main_thread(void *argument)
{
    weir_handle_stats stats = { .size = sizeof stats };
    (void)argument;
    pthread_join(main_thread, NULL);
    _exit(weir_handle_stats_get(telling, 0, &stats) == WEIR_OK && stats.idle == 1 ? 0 : 1);
}

/* By pthread_exit: its destructors run, unlike at exit(). */
static int end_the_main_thread(void)
{
    void *handle = NULL;
    pthread_t thread;
    EXPECT(open_small());
    EXPECT(weir_handle_get(telling, &handle) == WEIR_OK);
    main_thread = pthread_self();
    EXPECT(pthread_create(&thread, NULL, outlive_the_main_thread, NULL) == 0);
    pthread_exit(NULL);
}

static void the_main_thread_may_end_like_any_other(void **state)
{
    char told[16];
    (void)state;
    if (SANITIZED) skip(); /* sanitizers want the main thread to end last */
    assert_int_equal(in_a_child(end_the_main_thread, told, sizeof told), 0);
    assert_string_equal(told, "c");
}

/* ---- fork -------------------------------------------------------------------------------------------------------- */

static weir_stream kept_stream;
static weir_lease kept_lease;

static int every_call_is_refused(void)
{
    void *handle = NULL;
    weir_lease lease = { 0 };
    weir_handle_stats stats = { .size = sizeof stats };
    EXPECT(weir_handle_get(plain.kind, &handle) == WEIR_ERR_FORKED);
    EXPECT(weir_handle_get_on(plain.kind, kept_stream, &handle) == WEIR_ERR_FORKED);
    EXPECT(weir_handle_release(plain.kind, 0) == WEIR_ERR_FORKED);
    EXPECT(weir_handle_borrow(plain.kind, kept_stream, WEIR_FOREVER, &lease) == WEIR_ERR_FORKED);
    EXPECT(weir_lease_handle(kept_lease) == NULL);
    EXPECT(weir_handle_return(kept_lease) == WEIR_ERR_FORKED);
    EXPECT(weir_handle_budget_set(plain.kind, 0, 1, 1) == WEIR_ERR_FORKED);
    EXPECT(weir_handles_trim(0, 0, NULL) == WEIR_ERR_FORKED);
    EXPECT(weir_handle_stats_get(plain.kind, 0, &stats) == WEIR_ERR_FORKED);
    EXPECT(weir_handle_kind_info_get(plain.kind, &(weir_handle_kind_info){ .size = sizeof(weir_handle_kind_info) }) ==
           WEIR_ERR_FORKED);
    return 0;
}

static void in_a_forked_child_every_call_is_refused(void **state)
{
    char told[16];
    open_host((weir_settings){ .host_memory = 64 * MIB });
    kept_stream = new_stream(0);
    (void)get_on(&plain, kept_stream);
    kept_lease = borrow(&plain, kept_stream);
    assert_int_equal(in_a_child(every_call_is_refused, told, sizeof told), 0);
    assert_ok(weir_handle_return(kept_lease)); /* the parent goes on */
    assert_non_null(get_on(&plain, kept_stream));
    close_host(state);
}

static void *outlive_the_forking_thread(void *argument)
{
    void *handle = NULL;
    (void)argument;
    pthread_join(main_thread, NULL);
    _exit(weir_handle_get(plain.kind, &handle) == WEIR_ERR_FORKED ? 0 : 1);
}

/* The forking thread's handles do not go back to a pool that may be locked. */
static int end_the_forking_thread(void)
{
    pthread_t thread;
    main_thread = pthread_self();
    EXPECT(pthread_create(&thread, NULL, outlive_the_forking_thread, NULL) == 0);
    pthread_exit(NULL);
}

/* A lock that another thread holds at the fork stays held in the child. */
static void a_thread_of_a_forked_child_ends_without_locks(void **state)
{
    char told[16];
    if (SANITIZED) skip(); /* as above */
    open_host((weir_settings){ .host_memory = 64 * MIB });
    (void)get(&plain);
    wr_handle_pool *pool = NULL;
    assert_ok(wr_device_handles(open_device(0), plain.kind, &pool));
    wr_lock_acquire(&wr_runtime_global.exit_lock);
    wr_lock_acquire(&pool->lock);
    int status = in_a_child(end_the_forking_thread, told, sizeof told);
    wr_lock_release(&pool->lock);
    wr_lock_release(&wr_runtime_global.exit_lock);
    assert_int_equal(status, 0);
    close_host(state);
}

static int use_handles(void)
{
    void *handle = NULL;
    EXPECT(weir_handle_get(telling, &handle) == WEIR_OK);
    EXPECT(weir_handle_release(telling, 0) == WEIR_OK);
    EXPECT(weir_handles_trim(telling, 0, NULL) == WEIR_OK);
    return 0;
}

static void a_child_forked_before_a_device_was_used_has_handles(void **state)
{
    char told[16];
    open_host((weir_settings){ .host_memory = 64 * MIB });
    assert_int_equal(in_a_child(use_handles, told, sizeof told), 0);
    assert_string_equal(told, "cd");
    close_host(state);
}

#define PROCESS_TEST(test) cmocka_unit_test_setup_teardown(test, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PROCESS_TEST(exit_destroys_nothing_also_while_a_handle_is_created),
        PROCESS_TEST(closing_before_exit_destroys),
        PROCESS_TEST(the_main_thread_may_end_like_any_other),
        PROCESS_TEST(in_a_forked_child_every_call_is_refused),
        PROCESS_TEST(a_thread_of_a_forked_child_ends_without_locks),
        PROCESS_TEST(a_child_forked_before_a_device_was_used_has_handles),
    };
    return cmocka_run_group_tests(tests, register_all, NULL);
}
