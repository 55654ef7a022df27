/*
 * told_support: threads that do what they are told, while the test waits. Include after the cmocka headers. The test
 * says what a `struct worker` is, which has the thread as a member.
 */
#ifndef WEIR_TESTS_TOLD_SUPPORT_H
#define WEIR_TESTS_TOLD_SUPPORT_H

#include "thread_support.h"

struct worker;

typedef struct told_thread {
    pthread_t thread;
    sem_t told, done;
    void (*work)(struct worker *worker); /* NULL: end */
    struct worker *worker;
} told_thread;

static inline void *told_run(void *argument)
{
    told_thread *t = argument;
    for (;;) {
        wait_for(&t->told);
        if (!t->work) return NULL;
        t->work(t->worker);
        sem_post(&t->done);
    }
}

static inline void told_begin(told_thread *t, struct worker *worker)
{
    *t = (told_thread){ .worker = worker };
    sem_init(&t->told, 0, 0);
    sem_init(&t->done, 0, 0);
    assert_int_equal(pthread_create(&t->thread, NULL, told_run, t), 0);
}

/* Its `done` says when it is through. */
static inline void told_start(told_thread *t, void (*work)(struct worker *worker))
{
    t->work = work;
    sem_post(&t->told);
}

static inline void told_end(told_thread *t)
{
    told_start(t, NULL);
    assert_int_equal(pthread_join(t->thread, NULL), 0);
    sem_destroy(&t->told);
    sem_destroy(&t->done);
}

#endif
