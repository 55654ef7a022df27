/*
 * bias: a lock that costs its usual owner two stores. It belongs to the thread that takes it again and again; another
 * thread that wants it takes the mutex, withdraws the bias, and waits until the owner is out. The owner's stores are
 * ordered against the other's by membarrier(2), which puts the cost on the rare side; without it the lock is a mutex.
 * docs/threading.md has the protocol, tests/model/bias.pml checks it.
 */
#ifndef WR_BASE_BIAS_H
#define WR_BASE_BIAS_H

#include "base/compiler.h"
#include "base/lock.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

/* A thread as locks know it. Each writes its own, so that one who lost a bias and is late disturbs nobody. Never given
 * back: one that outlived its thread becomes another's. */
typedef struct wr_bias_thread {
    /* the lock that it has, or is about to have, as owner; one at a time */
    _Alignas(WR_CACHE_LINES) _Atomic(const void *) inside;
    atomic_bool taken;
} wr_bias_thread;

typedef struct wr_bias_lock {
    _Atomic(wr_bias_thread *) owner; /* the thread it is biased to; NULL: it is a mutex now. Changed under the mutex */
    wr_lock mutex;
    const void *last;     /* who had the mutex last: an address in that thread's own memory, compared only */
    wr_bias_thread *heir; /* who gets the bias at the release; NULL: nobody */
    uint32_t streak;      /* times in a row that `last` had it */
    uint32_t threshold;   /* of such times until it is biased to `last`; doubled when a bias was withdrawn too soon */
    uint64_t since;       /* when it got its bias, in nanoseconds */
} wr_bias_lock;

/* NULL until the thread gets its first bias. */
extern WR_THREAD_LOCAL __attribute__((tls_model("initial-exec"))) wr_bias_thread *wr_bias_self;

/* How the calling thread has the lock: what the release needs. */
typedef enum wr_bias_hold { WR_BIAS_AS_OWNER, WR_BIAS_BY_MUTEX } wr_bias_hold;

/* Once per process, before the first lock: whether bias can be had at all. */
void wr_bias_prepare(void);

void wr_bias_init(wr_bias_lock *lock, wr_lock_rank rank, const char *name);
void wr_bias_destroy(wr_bias_lock *lock);

#define WR_BIAS_LOAD (WR_THREAD_SANITIZER ? memory_order_seq_cst : memory_order_acquire)

wr_bias_hold wr_bias_acquire_slow(wr_bias_lock *lock);
void wr_bias_release_slow(wr_bias_lock *lock);

static inline void wr_bias_enter(wr_bias_thread *self, const wr_bias_lock *lock)
{
    assert(!atomic_load_explicit(&self->inside, memory_order_relaxed));
    if (WR_THREAD_SANITIZER) { /* knows nothing of membarrier: under it the owner pays for a fence */
        atomic_store_explicit(&self->inside, lock, memory_order_seq_cst);
        return;
    }
    atomic_store_explicit(&self->inside, lock, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
}

/* Only when it is the calling thread's, as which it is released; NULL: it is not. */
static inline wr_bias_thread *wr_bias_acquire_owned(wr_bias_lock *lock)
{
    wr_bias_thread *self = wr_bias_self;
    if (WR_UNLIKELY(!self)) return NULL;
    wr_bias_enter(self, lock);
    if (WR_LIKELY(atomic_load_explicit(&lock->owner, WR_BIAS_LOAD) == self)) return self;
    atomic_store_explicit(&self->inside, NULL, memory_order_release);
    return NULL;
}

static inline void wr_bias_release_owned(wr_bias_thread *self)
{
    atomic_store_explicit(&self->inside, NULL, memory_order_release);
}

/* No thread may have two: it has one word to say so. */
static inline wr_bias_hold wr_bias_acquire(wr_bias_lock *lock)
{
    return WR_LIKELY(wr_bias_acquire_owned(lock) != NULL) ? WR_BIAS_AS_OWNER : wr_bias_acquire_slow(lock);
}

static inline void wr_bias_release(wr_bias_lock *lock, wr_bias_hold hold)
{
    if (WR_LIKELY(hold == WR_BIAS_AS_OWNER))
        wr_bias_release_owned(wr_bias_self);
    else
        wr_bias_release_slow(lock);
}

/* For one who looks in seldom, at everybody's lock: the owner has its bias back afterwards. */
wr_bias_hold wr_bias_visit(wr_bias_lock *lock);

#endif
