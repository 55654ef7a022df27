/*
 * bias: a biased lock, which costs its owner thread two stores. The bias goes to the thread that takes the lock many
 * times in a row. Another thread that wants the lock takes the mutex, withdraws the bias, and waits until the owner is
 * out. membarrier(2) orders the owner's stores against the other thread's and puts the cost on the rare side; without
 * it the lock is a mutex. docs/threading.md has the protocol, tests/model/bias.pml checks it.
 */
#ifndef WR_BASE_BIAS_H
#define WR_BASE_BIAS_H

#include "base/compiler.h"
#include "base/lock.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

/* Nesting depth of a lock: a thread may hold one lock of each depth as owner. */
typedef enum wr_bias_depth { WR_BIAS_OUTER, WR_BIAS_INNER, WR_BIAS_DEPTHS } wr_bias_depth;

typedef struct wr_bias_lock wr_bias_lock;

/* A thread's record, which tells other threads what it holds. Each thread writes only its own, so that a former owner
 * that is late disturbs nobody. Never freed: the record of a thread that has ended becomes another thread's. */
typedef struct wr_bias_thread {
    /* the locks that the thread holds, or is about to hold, as owner */
    _Alignas(WR_CACHE_LINES) _Atomic(const wr_bias_lock *) inside[WR_BIAS_DEPTHS];
    atomic_bool taken;
} wr_bias_thread;

struct wr_bias_lock {
    _Atomic(wr_bias_thread *) owner; /* the thread it is biased to; NULL: none. Changed under the mutex */
    wr_lock mutex;
    wr_bias_depth depth; /* constant */
    /* The thread that had the mutex last, but for visitors: an address in its thread-local memory, only compared.
     * Written under the mutex */
    _Atomic(const void *) last;
    atomic_uint waiting;  /* threads that have found the mutex taken, and want it */
    wr_bias_thread *heir; /* the thread that gets the bias at the release; NULL: none */
    uint32_t streak;      /* times in a row that `last` had it */
    uint32_t threshold;   /* the streak at which it is biased to `last`; doubled when a bias was withdrawn too soon */
    uint64_t since;       /* when `last` had it often enough for the first threshold, in nanoseconds; 0: not yet */
};

/* NULL until the thread gets its first bias. */
extern WR_THREAD_LOCAL __attribute__((tls_model("initial-exec"))) wr_bias_thread *wr_bias_self;

/* Once per process, before the first lock: finds out whether locks can be biased at all. */
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
    if (WR_THREAD_SANITIZER) { /* it does not know membarrier: the owner pays for a fence */
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

/* `self`: the calling thread's record. False: it is not the owner. */
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

/* Takes an outer lock if the calling thread is its owner, and returns the record with which to release it; NULL: it is
 * not. */
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

/* `depth` is lock->depth, passed as a constant to save reading it. */
static WR_ALWAYS_INLINE void wr_bias_acquire(wr_bias_lock *lock, wr_bias_depth depth)
{
    assert(depth == lock->depth);
    if (WR_UNLIKELY(!wr_bias_acquire_owned_at(lock, depth))) wr_bias_acquire_slow(lock);
}

/* False: another thread has the mutex. An owner that is inside is waited for. */
static WR_ALWAYS_INLINE bool wr_bias_try(wr_bias_lock *lock, wr_bias_depth depth)
{
    assert(depth == lock->depth);
    return WR_LIKELY(wr_bias_acquire_owned_at(lock, depth) != NULL) || wr_bias_try_slow(lock);
}

/* The thread's own record tells whether it holds the lock as owner or by the mutex. */
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

/* Whether another thread than the calling one had the lock last, as owner or not, or waits for it: one that is fast
 * enough to take it again and again had it last each time, while others wait. It may have changed since. */
bool wr_bias_is_contested(const wr_bias_lock *lock);

/* Whether the calling thread can own locks. */
bool wr_bias_prepare_thread(void);

/* Makes the calling thread, which can, the owner of a lock that it alone takes from now on, but for visitors. */
void wr_bias_adopt(wr_bias_lock *lock);

/* Whether it has an owner, which may have changed since. */
static inline bool wr_bias_is_owned(const wr_bias_lock *lock)
{
    return atomic_load_explicit(&lock->owner, memory_order_relaxed) != NULL;
}

/* Acquires; the lock has no owner any more. */
void wr_bias_take_away(wr_bias_lock *lock);

/* Acquires, for a rare visitor to other threads' locks: the release gives the owner its bias back. */
void wr_bias_visit(wr_bias_lock *lock);

#endif
