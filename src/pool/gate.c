#include "pool/gate.h"

#include <sched.h>
#include <stdatomic.h>

static atomic_uint inside, closed, captures;

/* Each side says what it does before it looks at the other, so one of them sees the other. */
void wr_gate_enter(void)
{
    for (;;) {
        atomic_fetch_add(&inside, 1);
        if (atomic_load(&closed) == 0) return;
        atomic_fetch_sub(&inside, 1);
        while (atomic_load(&closed) != 0) sched_yield();
    }
}

void wr_gate_leave(void)
{
    atomic_fetch_sub(&inside, 1);
}

void wr_gate_close(void)
{
    atomic_fetch_add(&closed, 1);
    while (atomic_load(&inside) != 0) sched_yield();
}

void wr_gate_open(void)
{
    atomic_fetch_sub(&closed, 1);
}

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
