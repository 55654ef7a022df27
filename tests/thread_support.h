/*
 * thread_support: running a part of a test in a thread of its own. Include after the cmocka headers.
 */
#ifndef WEIR_TESTS_THREAD_SUPPORT_H
#define WEIR_TESTS_THREAD_SUPPORT_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Work for a stream: lasts until *ends is true. */
static inline void last_until(void *ends)
{
    while (!atomic_load((atomic_bool *)ends)) continue;
}

static inline void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0) continue;
}

/* Runs `work` in a thread, waits until that has ended, and returns its result. */
static inline void *in_a_thread(void *(*work)(void *), void *argument)
{
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, work, argument), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    return result;
}

#endif
