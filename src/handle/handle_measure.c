#include "handle/handle_measure.h"

#define UNKNOWN UINT64_MAX
#define BEGUN (UINT64_C(1) << 32) /* one, in wr_creates.count */

static uint64_t free_memory(const wr_handle_pool *pool)
{
    uint64_t free_bytes = UNKNOWN, total = 0;
    wr_clean_up(wr_driver(pool->site.backend, device_memory, pool->site.device, &free_bytes, &total));
    return free_bytes;
}

wr_handle_measure wr_handle_measure_begin(const wr_handle_pool *pool)
{
    wr_creates *creates = pool->site.creates;
    const uint64_t before = atomic_fetch_add(&creates->count, BEGUN + 1);
    wr_handle_measure m = { .others = (uint32_t)before, .serial = (uint32_t)(before / BEGUN) + 1 };
    wr_handle_measure_again(pool, &m);
    return m;
}

void wr_handle_measure_again(const wr_handle_pool *pool, wr_handle_measure *measure)
{
    measure->held_before = pool->site.held(pool->site.device_context);
    measure->free_before = free_memory(pool);
}

uint64_t wr_handle_measure_end(wr_handle_pool *pool, const wr_handle_measure *measure)
{
    wr_creates *creates = pool->site.creates;
    const uint64_t free_after = free_memory(pool), held_after = pool->site.held(pool->site.device_context);
    const uint32_t later = (uint32_t)(atomic_load(&creates->count) / BEGUN) - measure->serial;
    const bool known = measure->free_before != UNKNOWN && free_after != UNKNOWN;
    const uint64_t before = measure->free_before + measure->held_before, after = free_after + held_after;
    const uint64_t taken = known && before > after ? before - after : 0;
    atomic_fetch_sub(&creates->count, 1);
    if (known && measure->others == 0 && later == 0) return taken;
    wr_lock_acquire(&pool->lock);
    const uint64_t typical = pool->typical_bytes;
    wr_lock_release(&pool->lock);
    return typical ? typical : taken / (UINT64_C(1) + measure->others + later);
}
