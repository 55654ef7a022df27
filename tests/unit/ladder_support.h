/*
 * ladder_support: shared by tests of what happens when memory is short: a small device with three streams. Include
 * after the cmocka headers.
 */
#ifndef WEIR_TESTS_UNIT_LADDER_SUPPORT_H
#define WEIR_TESTS_UNIT_LADDER_SUPPORT_H

#include "host_support.h"
#include "meanwhile_support.h"

static weir_stream one, two, three;

static inline int open_with(const char *policy, weir_settings settings)
{
    settings.policy = policy;
    settings.host_memory = 64 * MIB;
    open_host(settings);
    one = new_stream(0);
    two = new_stream(0);
    three = new_stream(0);
    return 0;
}

static inline void refuse(size_t bytes, weir_stream stream)
{
    void *block = &block;
    assert_status(weir_alloc_on(bytes, stream, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_ptr_equal(block, &block);
}

/* Frees a block on `stream`, which leaves its segment idle. */
static inline void *leave_idle(size_t bytes, weir_stream stream)
{
    void *block = alloc_on(bytes, stream);
    assert_ok(weir_free(block));
    return block;
}

/* Frees the block while work of another stream is recorded on it, which the caller joins. */
static inline void free_while_used(void *block, releaser *work)
{
    start_releaser(work, two);
    assert_ok(weir_record_stream(block, two));
    assert_ok(weir_free(block));
}

static inline int open_recording(void **state)
{
    return open_with(*state, (weir_settings){ .history = 1000 });
}

/* A test, for each policy that is named. */
#define POLICY(test, setup, policy) { #test " (" policy ")", test, setup, close_host, (void *)(uintptr_t)policy }
#define SEGMENTS(test) POLICY(test, open_recording, "segments"), POLICY(test, open_recording, "torch")
#define ALL(test) POLICY(test, open_recording, "weir"), SEGMENTS(test)

#endif
