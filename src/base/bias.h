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

/* How deep a lock lies: a thread may have one of each as owner at a time. */
typedef enum wr_bias_depth { WR_BIAS_OUTER, WR_BIAS_INNER, WR_BIAS_DEPTHS } wr_bias_depth;

typedef struct wr_bias_lock wr_bias_lock;

/* A thread as locks know it. Each writes its own, so that one who lost a bias and is late disturbs nobody. Never given
 * back: one that outlived its thread becomes another's. */
typedef struct wr_bias_thread {
    /* the locks that it has, or is about to have, as owner */
    _Alignas(WR_CACHE_LINES) _Atomic(const wr_bias_lock *) inside[WR_BIAS_DEPTHS];
    atomic_bool taken;
} wr_bias_thread;

struct wr_bias_lock {
    _Atomic(wr_bias_thread *) owner; /* the thread it is biased to; NULL: it is a mutex now. Changed under the mutex */
    wr_lock mutex;
    wr_bias_depth depth;  /* constant */
    const void *last;     /* who had the mutex last: an address in that thread's own memory, compared only */
    wr_bias_thread *heir; /* who gets the bias at the release; NULL: nobody */
    uint32_t streak;      /* times in a row that `last` had it */
    uint32_t threshold;   /* of such times until it is biased to `last`; doubled when a bias was withdrawn too soon */
    uint64_t since;       /* when it got its bias, in nanoseconds */
};

/* NULL until the thread gets its first bias. */
extern WR_THREAD_LOCAL __attribute__((tls_model("initial-exec"))) wr_bias_thread *wr_bias_self;

/* Once per process, before the first lock: whether bias can be had at all. */
void wr_bias_prepare(void);

void wr_bias_init(wr_bias_lock *lock, wr_bias_depth depth, wr_lock_rank rank, const char *name);
void wr_bias_destroy(wr_bias_lock *lock);

#define WR_BIAS_LOAD (WR_THREAD_SANITIZER ? memory_order_seq_cst : memory_order_acquire)

WR_NOINLINE void wr_bias_acquire_slow(wr_bias_lock *lock);
WR_NOINLINE bool wr_bias_try_slow(wr_bias_lock *lock);
WR_NOINLINE void wr_bias_release_slow(wr_bias_lock *lock);

static WR_ALWAYS_INLINE void wr_bias_enter(wr_bias_thread *self, const wr_bias_lock *lock, wr_bias_depth depth)
{
    assert(!atomic_load_explicit(&self->inside[depth], memory_order_relaxed));
    if (WR_THREAD_SANITIZER) { /* knows nothing of membarrier: under it the owner pays for a fence */
        atomic_store_explicit(&self->inside[depth], lock, memory_order_seq_cst);
        return;
    }
    atomic_store_explicit(&self->inside[depth], lock, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
}

static WR_ALWAYS_INLINE void wr_bias_leave(wr_bias_thread *self, wr_bias_depth depth)
{
    atomic_store_explicit(&self->inside[depth], NULL, memory_order_release);
}

/* For the calling thread's record; false: it is not the owner. */
static WR_ALWAYS_INLINE bool wr_bias_acquire_owned_by(wr_bias_thread *self, wr_bias_lock *lock, wr_bias_depth depth)
{
    wr_bias_enter(self, lock, depth);
    if (WR_LIKELY(atomic_load_explicit(&lock->owner, WR_BIAS_LOAD) == self)) {
        wr_lock_note_acquired(&lock->mutex);
        return true;
    }
    wr_bias_leave(self, depth);
    return false;
}

static WR_ALWAYS_INLINE wr_bias_thread *wr_bias_acquire_owned_at(wr_bias_lock *lock, wr_bias_depth depth)
{
    wr_bias_thread *self = wr_bias_self;
    return WR_LIKELY(self && wr_bias_acquire_owned_by(self, lock, depth)) ? self : NULL;
}

/* An outer lock, only when it is the calling thread's, as which it is released; NULL: it is not. */
static inline wr_bias_thread *wr_bias_acquire_owned(wr_bias_lock *lock)
{
    return wr_bias_acquire_owned_at(lock, WR_BIAS_OUTER);
}

static inline void wr_bias_release_owned(wr_bias_thread *self)
{
#ifndef NDEBUG
    wr_lock_note_released(&self->inside[WR_BIAS_OUTER]->mutex);
#endif
    wr_bias_leave(self, WR_BIAS_OUTER);
}

/* `depth` is the lock's, said again so that it costs nothing. */
static WR_ALWAYS_INLINE void wr_bias_acquire(wr_bias_lock *lock, wr_bias_depth depth)
{
    assert(depth == lock->depth);
    if (WR_UNLIKELY(!wr_bias_acquire_owned_at(lock, depth))) wr_bias_acquire_slow(lock);
}

/* False: somebody else has the mutex. One that is inside as owner is waited for. */
static WR_ALWAYS_INLINE bool wr_bias_try(wr_bias_lock *lock, wr_bias_depth depth)
{
    assert(depth == lock->depth);
    return WR_LIKELY(wr_bias_acquire_owned_at(lock, depth) != NULL) || wr_bias_try_slow(lock);
}

/* As owner, or by the mutex: the thread's own word tells. */
static WR_ALWAYS_INLINE void wr_bias_release(wr_bias_lock *lock, wr_bias_depth depth)
{
    wr_bias_thread *self = wr_bias_self;
    if (WR_LIKELY(self && atomic_load_explicit(&self->inside[depth], memory_order_relaxed) == lock)) {
        wr_lock_note_released(&lock->mutex);
        wr_bias_leave(self, depth);
    } else {
        wr_bias_release_slow(lock);
    }
}

/* For one who looks in seldom, at everybody's lock: the owner has its bias back afterwards. */
void wr_bias_visit(wr_bias_lock *lock);

#endif
