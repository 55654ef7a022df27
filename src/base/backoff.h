/* Waiting for another thread that is to act within microseconds and cannot tell when it has. */
#ifndef WR_BASE_BACKOFF_H
#define WR_BASE_BACKOFF_H

#include <sched.h>
#include <time.h>

enum { WR_BACKOFF_YIELDS = 100, WR_BACKOFF_FIRST_NS = 50000, WR_BACKOFF_MOST_NS = 1000000 };

typedef struct wr_backoff {
    unsigned turns;
    long nap_ns;
} wr_backoff;

/* To be called, from zeroes on, for as long as there is something to wait for. It first yields, for tens of
 * microseconds in all if no other thread wants the processor, then sleeps for longer and longer. The other thread may
 * need just this processor, which a thread of a higher priority gives up only by sleeping. */
static inline void wr_backoff_wait(wr_backoff *b)
{
    if (b->turns < WR_BACKOFF_YIELDS) {
        b->turns++;
        sched_yield();
        return;
    }
    b->nap_ns = b->nap_ns == 0 ? WR_BACKOFF_FIRST_NS : b->nap_ns * 2;
    if (b->nap_ns > WR_BACKOFF_MOST_NS) b->nap_ns = WR_BACKOFF_MOST_NS;
    nanosleep(&(struct timespec){ .tv_nsec = b->nap_ns }, NULL);
}

#endif
