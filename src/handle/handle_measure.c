#include "handle/handle_measure.h"

#define UNKNOWN UINT64_MAX

static uint64_t free_memory(const wr_handle_pool *pool)
{
    uint64_t free_bytes = UNKNOWN, total = 0;
    wr_clean_up(wr_driver(pool->site.backend, device_memory, pool->site.device, &free_bytes, &total));
    return free_bytes;
}

wr_handle_measure wr_handle_measure_begin(const wr_handle_pool *pool)
{
    wr_creates *creates = pool->site.creates;
    wr_handle_measure m = { .others = atomic_fetch_add(&creates->running, 1) };
    m.serial = atomic_fetch_add(&creates->begun, 1) + 1;
    m.before = free_memory(pool);
    return m;
}

void wr_handle_measure_again(const wr_handle_pool *pool, wr_handle_measure *measure)
{
    measure->before = free_memory(pool);
}

uint64_t wr_handle_measure_end(wr_handle_pool *pool, const wr_handle_measure *measure)
{
    wr_creates *creates = pool->site.creates;
    const uint64_t after = free_memory(pool);
    const uint64_t later = atomic_load(&creates->begun) - measure->serial;
    const bool known = measure->before != UNKNOWN && after != UNKNOWN;
    const uint64_t taken = known && measure->before > after ? measure->before - after : 0;
    atomic_fetch_sub(&creates->running, 1);
    if (known && measure->others == 0 && later == 0) return taken;
    wr_lock_acquire(&pool->lock);
    const uint64_t typical = pool->typical_bytes;
    wr_lock_release(&pool->lock);
    return typical ? typical : taken / (1 + measure->others + later);
}
