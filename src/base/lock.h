/*
 * lock: mutexes with a rank. A thread may take a lock only of a higher rank than every lock it holds; debug builds
 * check that on each acquire and abort naming both locks. docs/threading.md has the order and its reasons.
 */
#ifndef WR_BASE_LOCK_H
#define WR_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Lowest first: the order in which they may be nested. */
typedef enum wr_lock_rank {
    WR_RANK_OPEN,      /* opening and closing the library and its devices; may be held across driver calls */
    WR_RANK_EXIT,      /* a thread that ends gives its handles back; weir_close() keeps it from doing so too late */
    WR_RANK_KINDS,     /* the registry of handle kinds */
    WR_RANK_GRAPH,     /* one graph: ending, launching, destroying it; held across driver calls */
    WR_RANK_POLL,      /* one thread at a time polls all of a device's pending frees; may be held across driver calls */
    WR_RANK_WAIT,      /* the same for the pending frees that one stream is waited for */
    WR_RANK_MOVE,      /* one thread at a time gives a device's segments back or moves them; held across driver calls */
    WR_RANK_STREAMS,   /* a device's stream table */
    WR_RANK_CAPTURE,   /* one capture: what it keeps and the order inside it; held across driver calls */
    WR_RANK_HANDLES,   /* the handles of one kind on one device: never across a library or driver call */
    WR_RANK_ROUTES,    /* a device's routes to pools, and its captures */
    WR_RANK_RECLAIM,   /* the list of reclaim callbacks */
    WR_RANK_FRONT,     /* one front: the freed blocks of a stream in a pool that are parked */
    WR_RANK_CACHE,     /* a device's blocks, segments and statistics: never across a driver call */
    WR_RANK_CUTTING,   /* the blocks of one stream whose front is detached */
    WR_RANK_POSTS,     /* what other threads have freed for one front to park */
    WR_RANK_EVENTS,    /* a device's free events */
    WR_RANK_ADDRESS,   /* writers of the address map */
    WR_RANK_HISTORIES, /* the list of histories */
    WR_RANK_HISTORY,   /* a device's recorded events */
    WR_RANK_BACKEND,   /* inside a back end, one at a time */
    WR_RANK_LEAF       /* takes no other lock */
} wr_lock_rank;

typedef struct wr_lock {
    pthread_mutex_t mutex;
    wr_lock_rank rank;
    const char *name;
} wr_lock;

#define WR_LOCK_INITIALIZER(rank, name) { PTHREAD_MUTEX_INITIALIZER, rank, name }

void wr_lock_init(wr_lock *lock, wr_lock_rank rank, const char *name);
void wr_lock_destroy(wr_lock *lock);
void wr_lock_acquire(wr_lock *lock);
bool wr_lock_try(wr_lock *lock);          /* false: another thread has it */
void wr_lock_acquire_soon(wr_lock *lock); /* spins for some microseconds before it sleeps: for short sections */
void wr_lock_release(wr_lock *lock);

/* Whether nobody has it. For a child of fork, in which other threads do not exist and so never release a lock. */
bool wr_lock_is_free(wr_lock *lock);

/* For one of many locks of a rank that are taken together. Only the holder of one particular lock of lower rank, the
 * same for all of them, may do so; it sees to their order, which debug builds do not check. */
void wr_lock_acquire_soon_behind(wr_lock *lock);
bool wr_lock_try_behind(wr_lock *lock);
void wr_lock_release_behind(wr_lock *lock);

/* For a lock that is held without its mutex (base/bias.h): debug builds check the order all the same. */
#ifdef NDEBUG
static inline void wr_lock_note_acquired(const wr_lock *lock)
{
    (void)lock;
}

static inline void wr_lock_note_released(const wr_lock *lock)
{
    (void)lock;
}
#else
void wr_lock_note_acquired(const wr_lock *lock);
void wr_lock_note_released(const wr_lock *lock);
#endif

/* Waits on a condition with the lock; for locks that are the innermost one held. */
void wr_lock_wait(wr_lock *lock, pthread_cond_t *condition);

/* A condition whose clock is CLOCK_MONOTONIC. 0, or an error number. */
int wr_lock_condition_init(pthread_cond_t *condition);

/* The time `timeout_ns` from now, on that clock. */
struct timespec wr_lock_deadline(uint64_t timeout_ns);

/* As wr_lock_wait, but only until `deadline` on CLOCK_MONOTONIC, the condition's clock; NULL: for ever. 0 or
 * ETIMEDOUT. */
int wr_lock_wait_until(wr_lock *lock, pthread_cond_t *condition, const struct timespec *deadline);

/* For tests: true when the calling thread holds the lock; always true in release builds. */
bool wr_lock_held(const wr_lock *lock);

#endif
