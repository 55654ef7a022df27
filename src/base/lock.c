#include "base/lock.h"

#include "base/compiler.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Between the last try and sleeping; half as many after each earlier one. All together take some microseconds, less
 * than to fall asleep and wake; without pauses each try would take the lock's cache line from its holder. */
enum { PAUSES_MOST = 128 };

/* A mutex call fails only when the lock's memory has been overwritten. */
static void must(int error, const char *call, const wr_lock *lock)
{
    if (WR_LIKELY(error == 0)) return;
    fprintf(stderr, "weir: %s failed on lock \"%s\": %s\n", call, lock->name, strerror(error));
    abort();
}

#ifndef NDEBUG

/* The locks that the calling thread holds, lowest rank first. Room for a few more than are ever nested, since static
 * TLS is scarce (docs/decisions/0005). */
enum { HELD_MOST = 10 };
static WR_THREAD_LOCAL const wr_lock *held[HELD_MOST];
static WR_THREAD_LOCAL int held_count;

static void check_order(const wr_lock *lock)
{
    if (held_count == 0) return;
    const wr_lock *top = held[held_count - 1];
    if (lock->rank > top->rank) return;
    fprintf(stderr,
            "weir: lock order: \"%s\" (rank %d) taken while holding \"%s\" (rank %d); take locks of rising rank only\n",
            lock->name, (int)lock->rank, top->name, (int)top->rank);
    abort();
}

static void push(const wr_lock *lock)
{
    if (held_count == HELD_MOST) {
        fprintf(stderr, "weir: lock \"%s\" taken while holding %d others; make room for more\n", lock->name,
                held_count);
        abort();
    }
    held[held_count++] = lock;
}

static void pop(const wr_lock *lock)
{
    int at = held_count - 1;
    while (at >= 0 && held[at] != lock) at--;
    if (at < 0) {
        fprintf(stderr, "weir: lock \"%s\" released by a thread that does not hold it\n", lock->name);
        abort();
    }
    held_count--;
    memmove(&held[at], &held[at + 1], (size_t)(held_count - at) * sizeof held[0]);
}

static void check_innermost(const wr_lock *lock)
{
    if (held_count > 0 && held[held_count - 1] == lock) return;
    fprintf(stderr, "weir: waiting with lock \"%s\" while the innermost lock held is \"%s\"\n", lock->name,
            held_count > 0 ? held[held_count - 1]->name : "none");
    abort();
}

void wr_lock_note_acquired(const wr_lock *lock)
{
    check_order(lock);
    push(lock);
}

void wr_lock_note_released(const wr_lock *lock)
{
    pop(lock);
}

bool wr_lock_held(const wr_lock *lock)
{
    for (int i = 0; i < held_count; i++)
        if (held[i] == lock) return true;
    return false;
}

#else

static void check_order(const wr_lock *lock)
{
    (void)lock;
}

static void push(const wr_lock *lock)
{
    (void)lock;
}

static void pop(const wr_lock *lock)
{
    (void)lock;
}

static void check_innermost(const wr_lock *lock)
{
    (void)lock;
}

bool wr_lock_held(const wr_lock *lock)
{
    (void)lock;
    return true;
}

#endif

void wr_lock_init(wr_lock *lock, wr_lock_rank rank, const char *name)
{
    lock->rank = rank;
    lock->name = name;
    must(pthread_mutex_init(&lock->mutex, NULL), "pthread_mutex_init", lock);
}

void wr_lock_destroy(wr_lock *lock)
{
    must(pthread_mutex_destroy(&lock->mutex), "pthread_mutex_destroy", lock);
}

static void acquire(wr_lock *lock)
{
    must(pthread_mutex_lock(&lock->mutex), "pthread_mutex_lock", lock);
}

void wr_lock_acquire(wr_lock *lock)
{
    check_order(lock);
    acquire(lock);
    push(lock);
}

void wr_lock_acquire_soon(wr_lock *lock)
{
    check_order(lock);
    wr_lock_acquire_soon_behind(lock);
    push(lock);
}

bool wr_lock_try(wr_lock *lock)
{
    check_order(lock);
    if (!wr_lock_try_behind(lock)) return false;
    push(lock);
    return true;
}

void wr_lock_release(wr_lock *lock)
{
    pop(lock);
    wr_lock_release_behind(lock);
}

bool wr_lock_is_free(wr_lock *lock)
{
    const bool had = wr_lock_try_behind(lock);
    if (had) wr_lock_release_behind(lock);
    return had;
}

void wr_lock_acquire_soon_behind(wr_lock *lock)
{
    for (int pauses = 1; pauses <= PAUSES_MOST; pauses *= 2) {
        if (wr_lock_try_behind(lock)) return;
        for (int i = 0; i < pauses; i++) WR_PAUSE();
    }
    acquire(lock);
}

bool wr_lock_try_behind(wr_lock *lock)
{
    const int error = pthread_mutex_trylock(&lock->mutex);
    if (error != EBUSY) must(error, "pthread_mutex_trylock", lock);
    return error == 0;
}

void wr_lock_release_behind(wr_lock *lock)
{
    must(pthread_mutex_unlock(&lock->mutex), "pthread_mutex_unlock", lock);
}

void wr_lock_wait(wr_lock *lock, pthread_cond_t *condition)
{
    (void)wr_lock_wait_until(lock, condition, NULL);
}

struct timespec wr_lock_deadline(uint64_t timeout_ns)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const uint64_t most = (uint64_t)1 << 60; /* decades: keeps the sum from overflowing */
    const uint64_t ns = (uint64_t)t.tv_nsec + (timeout_ns < most ? timeout_ns : most);
    t.tv_sec += (time_t)(ns / 1000000000u);
    t.tv_nsec = (long)(ns % 1000000000u);
    return t;
}

int wr_lock_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    const int error = pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return error;
}

/* The lock stays in `held` while the thread sleeps: the thread takes no other before it has this one again. */
int wr_lock_wait_until(wr_lock *lock, pthread_cond_t *condition, const struct timespec *deadline)
{
    check_innermost(lock);
    int error = deadline ? pthread_cond_timedwait(condition, &lock->mutex, deadline)
                         : pthread_cond_wait(condition, &lock->mutex);
    if (error != ETIMEDOUT) must(error, "pthread_cond_timedwait", lock);
    return error;
}
