#include "base/thread_number.h"

#include "base/compiler.h"

#include <stdatomic.h>

uint32_t wr_thread_number(void)
{
    static atomic_uint_fast32_t last;
    static WR_THREAD_LOCAL uint32_t mine;
    if (mine == 0) mine = (uint32_t)atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    return mine;
}
