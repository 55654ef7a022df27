#include "stream/gate.h"

#include "base/backoff.h"
#include "base/compiler.h"
#include "base/lock.h"

#include <stdatomic.h>

static atomic_uint inside, closed, captures;

/* Each side announces itself before it looks at the other, so one of them sees the other. */
void wr_gate_enter(void)
{
    for (wr_backoff b = { 0 };;) {
        atomic_fetch_add(&inside, 1);
        if (atomic_load(&closed) == 0) return;
        atomic_fetch_sub(&inside, 1);
        while (atomic_load(&closed) != 0) wr_backoff_wait(&b);
    }
}

void wr_gate_leave(void)
{
    atomic_fetch_sub(&inside, 1);
}

void wr_gate_close(void)
{
    wr_backoff b = { 0 };
    atomic_fetch_add(&closed, 1);
    while (atomic_load(&inside) != 0) wr_backoff_wait(&b);
}

void wr_gate_open(void)
{
    atomic_fetch_sub(&closed, 1);
}

/* ---- beginnings -------------------------------------------------------------------------------------------------- */

static wr_lock lock = WR_LOCK_INITIALIZER(WR_RANK_LEAF, "bars");
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned bars, beginning, waiting; /* under the lock */
static unsigned long turn;                /* under the lock: how often waiting threads were allowed to begin */
static WR_THREAD_LOCAL unsigned own_bars;

/* The holder of a bar may hold locks and need others' to go on, so it never waits for a beginning that waits for
 * bars. */
void wr_gate_bar(void)
{
    if (own_bars++ > 0) return;
    wr_lock_acquire(&lock);
    while (beginning != 0) wr_lock_wait(&lock, &changed);
    bars++;
    wr_lock_release(&lock);
}

void wr_gate_lift_bar(void)
{
    if (--own_bars > 0) return;
    wr_lock_acquire(&lock);
    if (--bars == 0 && waiting != 0) {
        beginning += waiting;
        waiting = 0;
        turn++;
        pthread_cond_broadcast(&changed);
    }
    wr_lock_release(&lock);
}

void wr_gate_close_to_begin(void)
{
    wr_lock_acquire(&lock);
    if (bars == 0 || own_bars > 0) {
        beginning++;
    } else {
        const unsigned long now = turn;
        waiting++;
        while (turn == now) wr_lock_wait(&lock, &changed);
    }
    wr_lock_release(&lock);
    wr_gate_close();
}

void wr_gate_open_begun(void)
{
    wr_gate_open();
    wr_lock_acquire(&lock);
    if (--beginning == 0) pthread_cond_broadcast(&changed);
    wr_lock_release(&lock);
}

/* ---- known captures ---------------------------------------------------------------------------------------------- */

void wr_gate_capture_comes(void)
{
    atomic_fetch_add(&captures, 1);
}

void wr_gate_capture_goes(void)
{
    atomic_fetch_sub(&captures, 1);
}

bool wr_gate_captures(void)
{
    return atomic_load(&captures) != 0;
}
