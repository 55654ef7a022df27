#include "base/bias.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

WR_THREAD_LOCAL char wr_bias_self;

/* Times in a row until a lock is biased, the first time and at most. */
enum { STREAK_FIRST = 64, STREAK_MAX = 1 << 20 };

static atomic_bool can_bias;

void wr_bias_prepare(void)
{
    if (atomic_load(&can_bias)) return;
    atomic_store(&can_bias,
                 WR_THREAD_SANITIZER || syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0);
}

void wr_bias_init(wr_bias_lock *lock, wr_lock_rank rank, const char *name)
{
    atomic_init(&lock->owner, NULL);
    atomic_init(&lock->inside, false);
    wr_lock_init(&lock->mutex, rank, name);
    lock->last = NULL;
    lock->streak = 0;
    lock->threshold = STREAK_FIRST;
}

void wr_bias_destroy(wr_bias_lock *lock)
{
    wr_lock_destroy(&lock->mutex);
}

/* The owner, if there is one, is out and stays out. The mutex is held. */
static const void *withdraw(wr_bias_lock *lock)
{
    const void *owner = atomic_load_explicit(&lock->owner, memory_order_relaxed);
    if (!owner) return NULL;
    atomic_store_explicit(&lock->owner, NULL, memory_order_seq_cst);
    /* Every thread passes a full fence before this returns: the owner sees the store, or its own is seen below. */
    if (!WR_THREAD_SANITIZER) (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    while (atomic_load_explicit(&lock->inside, memory_order_seq_cst)) sched_yield();
    return owner;
}

wr_bias_hold wr_bias_acquire_slow(wr_bias_lock *lock)
{
    wr_lock_acquire(&lock->mutex);
    if (withdraw(lock) && lock->threshold < STREAK_MAX) lock->threshold *= 2;
    lock->streak = lock->last == &wr_bias_self ? lock->streak + 1 : 0;
    lock->last = &wr_bias_self;
    return WR_BIAS_BY_MUTEX;
}

wr_bias_hold wr_bias_visit(wr_bias_lock *lock)
{
    wr_lock_acquire(&lock->mutex);
    const void *owner = withdraw(lock);
    if (owner) lock->last = owner;
    return owner ? WR_BIAS_AS_VISITOR : WR_BIAS_BY_MUTEX;
}

void wr_bias_release_slow(wr_bias_lock *lock, wr_bias_hold hold)
{
    const bool again = hold == WR_BIAS_AS_VISITOR || (lock->streak >= lock->threshold && atomic_load(&can_bias));
    if (again) {
        atomic_store_explicit(&lock->owner, lock->last, memory_order_release);
        lock->streak = 0;
    }
    wr_lock_release(&lock->mutex);
}
