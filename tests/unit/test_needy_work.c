/*
 * Work on one stream that waits for a thread which needs memory on another, while a third thread waits for that work.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device_support.h"
#include "host_support.h"
#include "pool/trim_wait.h"
#include "pool_support.h"
#include "thread_support.h"

#include <limits.h>
#include <sched.h>
#include <time.h>

static weir_stream needy, other;

/* The needy stream always has AHEAD steps of work to do, each of which waits for the thread's step of that number. In
 * each of its own the thread takes memory from the driver. */
enum { AHEAD = 3 };
static atomic_long step;
static atomic_bool over;
static weir_status refused;

static void wait_for_step(void *number)
{
    while (atomic_load(&step) < (intptr_t)number) nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
}

static weir_status take_a_step(intptr_t number)
{
    void *block = NULL;
    weir_status status = weir_stream_callback(needy, wait_for_step, (void *)(number + AHEAD));
    if (status == WEIR_OK) status = weir_alloc_on(24 * MIB, other, &block);
    nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    return status;
}

static void *take_steps(void *unused)
{
    for (intptr_t next = 1; !atomic_load(&over) && refused == WEIR_OK; next++) {
        refused = take_a_step(next);
        atomic_store(&step, (long)next);
    }
    atomic_store(&step, LONG_MAX); /* all work may end */
    return unused;
}

/* *state: the policy; NULL: the default. */
static int open_scene(void **state)
{
    open_host((weir_settings){ .policy = *state, .host_memory = 64 * 1024 * MIB });
    needy = new_stream(0);
    other = new_stream(0);
    refused = WEIR_OK;
    atomic_store(&step, 0);
    atomic_store(&over, false);
    return 0;
}

/* What each call must not wait for without end. */
static void expect_to_end(weir_status (*call)(void))
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, take_steps, NULL), 0);
    while (atomic_load(&step) < AHEAD) sched_yield();
    const weir_status status = call();
    atomic_store(&over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_status(refused, WEIR_OK);
    assert_status(status, WEIR_OK);
}

static weir_status empty_cache(void)
{
    return weir_empty_cache(0);
}

static void giving_back_ends(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc_on(40 * MIB, needy)));
    expect_to_end(empty_cache);
}

/* In each round work of some is waited for, and no new work comes. */
static void what_many_busy_streams_have_is_given_back(void **state)
{
    (void)state;
    enum { STREAMS = 6 * WR_TRIM_WAIT_STREAMS };
    weir_stream streams[STREAMS];
    void *blocks[STREAMS];
    for (int i = 0; i < STREAMS; i++) blocks[i] = alloc_on(2 * MIB, streams[i] = new_stream(0));
    for (int i = 0; i < STREAMS; i++) {
        make_busy(streams[i]);
        assert_ok(weir_free(blocks[i]));
    }
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
    for (int i = 0; i < STREAMS; i++) let_run(streams[i]);
}

static weir_mempool capped;

/* What the pool has idle is not enough for another stream, and can go only once the needy stream's work is over. */
static weir_status ask_for_more(void)
{
    void *block = NULL;
    const weir_status status = weir_alloc_from(capped, 50 * MIB, default_stream(0), &block);
    return status == WEIR_ERR_OUT_OF_MEMORY ? WEIR_OK : status;
}

static void asking_for_what_cannot_go_ends(void **state)
{
    (void)state;
    weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "");
    options.cap = 64 * MIB;
    options.no_split = true; /* so it has segments, not chunks */
    capped = make_pool(options);
    assert_ok(weir_free(alloc_from(capped, 40 * MIB, needy)));
    expect_to_end(ask_for_more);
}

static weir_status pause_it(void)
{
    return weir_pause(0, "model", WEIR_PAUSE_DROP);
}

static void pausing_ends(void **state)
{
    (void)state;
    (void)alloc_from(make_pool(pool_options(WEIR_MEMORY_MAPPED, "model")), MIB, needy);
    expect_to_end(pause_it);
    assert_ok(weir_resume(0, "model"));
}

#define test(name) cmocka_unit_test_setup_teardown(name, open_scene, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(giving_back_ends),
        test(what_many_busy_streams_have_is_given_back),
        { "asking_for_what_cannot_go_ends (segments)", asking_for_what_cannot_go_ends, open_scene, close_host,
          (void *)(uintptr_t)"segments" },
        { "asking_for_what_cannot_go_ends (weir)", asking_for_what_cannot_go_ends, open_scene, close_host, NULL },
        test(pausing_ends),
    };
    return cmocka_run_group_tests_name("needy_work", tests, NULL, NULL);
}
