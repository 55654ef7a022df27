#include "base/bias.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/exit_key.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

WR_THREAD_LOCAL wr_bias_thread *wr_bias_self; /* its address identifies a running thread, with or without a bias */

/* Streak at which a lock is biased, at first and at most. */
enum { STREAK_FIRST = 64, STREAK_MAX = 1 << 20 };

/* A bias for this long pays many times over for its withdrawal, which takes microseconds. So threads that use a stream
 * in turn, each for a part of a program's step, get the bias in turn. */
#define WORTHWHILE_NS UINT64_C(1000000)

static atomic_bool can_bias;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static wr_bias_thread records[1024]; /* of threads that have a bias; any further thread gets none, */
static atomic_uint records_taken;    /* and does not look through all of them each time that it might have one */

/* Takes no lock, which a child of fork might find held for ever. */
static void at_thread_exit(void *record)
{
    wr_bias_self = NULL;
    atomic_store(&((wr_bias_thread *)record)->taken, false);
    atomic_fetch_sub_explicit(&records_taken, 1, memory_order_relaxed);
}

static wr_exit_key exit_key = { .at_exit = at_thread_exit };

static void prepare(void)
{
    atomic_store(&can_bias,
                 WR_THREAD_SANITIZER || syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0);
}

void wr_bias_prepare(void)
{
    pthread_once(&once, prepare);
}

/* The calling thread's record; NULL when it cannot have one, which only costs speed. */
static wr_bias_thread *own_record(void)
{
    if (!atomic_load_explicit(&can_bias, memory_order_relaxed)) return NULL;
    if (wr_bias_self) return wr_bias_self;
    if (atomic_load_explicit(&records_taken, memory_order_relaxed) >= sizeof records / sizeof records[0]) return NULL;
    for (size_t i = 0; i < sizeof records / sizeof records[0] && !wr_bias_self; i++)
        if (!atomic_load(&records[i].taken) && !atomic_exchange(&records[i].taken, true)) wr_bias_self = &records[i];
    if (!wr_bias_self) return NULL;
    /* Released after what the record's last thread did: who waits for that one (wait_for) may next see what this one
     * stores here, which heads a release sequence of its own. */
    for (int depth = 0; depth < WR_BIAS_DEPTHS; depth++) wr_bias_leave(wr_bias_self, (wr_bias_depth)depth);
    atomic_fetch_add_explicit(&records_taken, 1, memory_order_relaxed);
    if (!wr_exit_key_set(&exit_key, wr_bias_self)) at_thread_exit(wr_bias_self);
    return wr_bias_self;
}

void wr_bias_init(wr_bias_lock *lock, wr_bias_depth depth, wr_lock_rank rank, const char *name)
{
    lock->depth = depth;
    atomic_init(&lock->owner, NULL);
    wr_lock_init(&lock->mutex, rank, name);
    atomic_init(&lock->last, NULL);
    atomic_init(&lock->waiting, 0);
    lock->heir = NULL;
    lock->streak = 0;
    lock->threshold = STREAK_FIRST;
    lock->since = 0;
}

void wr_bias_destroy(wr_bias_lock *lock)
{
    wr_lock_destroy(&lock->mutex);
}

/* The owner is mostly out at once, unless it is not running. What is seen in the end is its release of the lock
 * (wr_bias_leave), or something that the same thread stored later: that is acquired in either case, for a relaxed store
 * continues the release sequence of its own thread. */
static void wait_for(const wr_bias_lock *lock, const wr_bias_thread *owner)
{
    wr_backoff b = { 0 };
    while (atomic_load_explicit(&owner->inside[lock->depth], memory_order_seq_cst) == lock) wr_backoff_wait(&b);
}

/* Afterwards the owner, if there was one, is out and stays out. The mutex is held. */
static wr_bias_thread *withdraw(wr_bias_lock *lock)
{
    wr_bias_thread *owner = atomic_load_explicit(&lock->owner, memory_order_relaxed);
    if (!owner) return NULL;
    atomic_store_explicit(&lock->owner, NULL, memory_order_seq_cst);
    /* Every thread passes a full fence before this returns: either the owner sees the store, or its own store is seen
     * below. */
    if (!WR_THREAD_SANITIZER && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) {
        /* Forbidden since it was registered. No store stays in a processor's store buffer this long. */
        struct timespec left = { 0, 1000000 };
        atomic_store(&can_bias, false);
        while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
    }
    wait_for(lock, owner);
    return owner;
}

/* Another thread has the lock from now on. By how long a thread has had it, and not how long with the bias: else what
 * made the threshold large, and kept the thread from the bias for most of its turn, would keep it so for ever. */
static void end_turn(wr_bias_lock *lock, bool withdrawn)
{
    if (lock->since == 0) return;
    if (wr_clock_ns(CLOCK_MONOTONIC) - lock->since >= WORTHWHILE_NS)
        lock->threshold = STREAK_FIRST;
    else if (withdrawn && lock->threshold < STREAK_MAX)
        lock->threshold *= 2;
    lock->since = 0;
}

/* The mutex has just been acquired. */
static void take_over(wr_bias_lock *lock)
{
    wr_bias_thread *owner = atomic_load_explicit(&lock->owner, memory_order_relaxed);
    if (owner && owner == wr_bias_self) { /* a visitor gave the bias back meanwhile */
        lock->heir = owner;
        return;
    }
    const bool again = atomic_load_explicit(&lock->last, memory_order_relaxed) == &wr_bias_self;
    const bool withdrawn = withdraw(lock) != NULL;
    if (withdrawn || !again) end_turn(lock, withdrawn);
    lock->streak = again ? lock->streak + 1 : 0;
    if (lock->streak == STREAK_FIRST) lock->since = wr_clock_ns(CLOCK_MONOTONIC);
    atomic_store_explicit(&lock->last, &wr_bias_self, memory_order_relaxed);
    lock->heir = lock->streak >= lock->threshold ? own_record() : NULL;
    if (lock->streak >= lock->threshold && !lock->heir) lock->streak = 0;
}

void wr_bias_acquire_slow(wr_bias_lock *lock)
{
    if (!wr_lock_try(&lock->mutex)) {
        atomic_fetch_add_explicit(&lock->waiting, 1, memory_order_relaxed);
        wr_lock_acquire_soon(&lock->mutex);
        atomic_fetch_sub_explicit(&lock->waiting, 1, memory_order_relaxed);
    }
    take_over(lock);
}

bool wr_bias_try_slow(wr_bias_lock *lock)
{
    if (!wr_lock_try(&lock->mutex)) return false;
    take_over(lock);
    return true;
}

bool wr_bias_is_contested(const wr_bias_lock *lock)
{
    const void *last = atomic_load_explicit(&lock->last, memory_order_relaxed);
    return (last && last != &wr_bias_self) || atomic_load_explicit(&lock->waiting, memory_order_relaxed) != 0;
}

void wr_bias_take_away(wr_bias_lock *lock)
{
    wr_lock_acquire(&lock->mutex);
    (void)withdraw(lock);
    lock->heir = NULL;
}

void wr_bias_visit(wr_bias_lock *lock)
{
    wr_lock_acquire(&lock->mutex);
    lock->heir = withdraw(lock);
    if (!atomic_load(&can_bias)) lock->heir = NULL;
}

bool wr_bias_prepare_thread(void)
{
    return own_record() != NULL;
}

void wr_bias_adopt(wr_bias_lock *lock)
{
    wr_bias_take_away(lock);
    lock->heir = own_record();
    wr_bias_release_slow(lock);
}

void wr_bias_release_slow(wr_bias_lock *lock)
{
    if (lock->heir) {
        atomic_store_explicit(&lock->owner, lock->heir, memory_order_release);
        lock->streak = 0;
    }
    wr_lock_release(&lock->mutex);
}
