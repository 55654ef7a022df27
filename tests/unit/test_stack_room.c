/*
 * How much of a thread's stack calls take (docs/threading.md): threads of programs with thousands of them have little.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host_support.h"
#include "must.h"
#include "sanitized.h"
#include "weir/observe.h"
#include "weir/trace.h"

#include <pthread.h>
#include <sys/mman.h>

enum { ROOM = 1 << 18, UNTOUCHED = 0x5a };

/* Of the thread that makes the call, and how much of it the call took. */
static unsigned char *stack;
static size_t taken;

static int open_recording(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_devices = 1, .host_memory = 64 * MIB, .history = 100, .history_stacks = 16 });
    stack = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return stack == MAP_FAILED ? -1 : 0;
}

static int close_recording(void **state)
{
    munmap(stack, ROOM);
    return close_host(state);
}

/* The stack grows downwards. What is just below this function's own part is left for the loop. */
static void *call(void *function)
{
    unsigned char *const here = __builtin_frame_address(0);
    for (volatile unsigned char *at = here - KIB; at > stack;) *--at = UNTOUCHED;
    (*(void (**)(void))function)();
    size_t left = 0;
    while (stack[left] == UNTOUCHED) left++;
    taken = (size_t)(here - stack) - left;
    return NULL;
}

static size_t stack_of(void (*function)(void))
{
    pthread_t thread;
    pthread_attr_t attributes;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstack(&attributes, stack, ROOM), 0);
    assert_int_equal(pthread_create(&thread, &attributes, call, &function), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attributes);
    return taken;
}

static void save_history(void)
{
    must(weir_history_save("/dev/null") == WEIR_OK);
}

static void save_pickle(void)
{
    must(weir_snapshot_save("/dev/null", NULL) == WEIR_OK);
}

static void save_trace(void)
{
    weir_snapshot_options options = WEIR_SNAPSHOT_OPTIONS_INIT;
    options.format = WEIR_SNAPSHOT_TRACE;
    must(weir_snapshot_save("/dev/null", &options) == WEIR_OK);
}

static void write_statistics(void)
{
    static char text[1 << 16];
    size_t length;
    must(weir_stats_json(text, sizeof text, &length) == WEIR_OK);
    must(weir_stats_openmetrics(text, sizeof text, &length) == WEIR_OK);
}

static void run_out_of_memory(void)
{
    void *block;
    must(weir_alloc(128 * MIB, &block) == WEIR_ERR_OUT_OF_MEMORY);
}

static void writing_what_happened_takes_little_stack(void **state)
{
    (void)state;
    static void (*const calls[])(void) = { save_history, save_pickle, save_trace, write_statistics };
    if (SANITIZED) skip();
    void *block;
    assert_ok(weir_alloc(MIB, &block));
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) assert_in_range(stack_of(calls[i]), 0, 16 * KIB);
}

static void a_failure_for_want_of_memory_takes_little_stack(void **state)
{
    (void)state;
    if (SANITIZED) skip();
    assert_in_range(stack_of(run_out_of_memory), 0, 20 * KIB);
}

#define RECORDING(test) cmocka_unit_test_setup_teardown(test, open_recording, close_recording)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RECORDING(writing_what_happened_takes_little_stack),
        RECORDING(a_failure_for_want_of_memory_takes_little_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
