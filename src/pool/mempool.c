#include "pool/mempool.h"

#include "base/meta.h"
#include "pool/bin.h"
#include "pool/chunk/chunk.h"
#include "pool/count.h"
#include "pool/front/detach.h"
#include "pool/plan/subplan.h"

#include <assert.h>
#include <string.h>

/* ---- coming and going -------------------------------------------------------------------------------------------- */

static void append_locked(wr_cache *cache, wr_mempool *pool)
{
    pool->before = cache->last_pool;
    pool->next = NULL;
    *(cache->last_pool ? &cache->last_pool->next : &cache->pools) = pool;
    cache->last_pool = pool;
    cache->unlimited_pools += !wr_mempool_is_limited(pool);
}

/* From now on the default pool's numbers are kept apart from the device's. */
static void count_default_locked(wr_cache *cache)
{
    wr_mempool *pool = cache->pools;
    if (pool->counted) return;
    wr_fronts_attach_locked(cache);
    pool->stats = *wr_stats_locked(cache);
    wr_count_measure_locked(&pool->stats, &pool->flow);
    pool->counted = true;
    for (wr_bin *bin = pool->first_bin; bin; bin = bin->next) wr_bin_use_ledger(bin, &cache->ledger);
}

static void remove_locked(wr_cache *cache, wr_mempool *pool)
{
    pool->before->next = pool->next; /* the default pool is before all others */
    *(pool->next ? &pool->next->before : &cache->last_pool) = pool->before;
    cache->unlimited_pools -= !wr_mempool_is_limited(pool);
    TAILQ_REMOVE(&cache->released_pools, pool, released);
}

static void hold_locked(wr_mempool *pool, wr_holder holder)
{
    if (wr_mempool_is_orphan(pool)) TAILQ_REMOVE(&pool->cache->released_pools, pool, released);
    pool->held[holder]++;
    if (holder == WR_HELD_BY_GRAPH) pool->graphed = true;
}

/* Chunks are for pools like the default one. Chunks and their parts begin at multiples of WR_CHUNK_PART_LEAST, or where
 * a block does. */
static const wr_policy *policy_for(const wr_cache *cache, const wr_mempool *pool)
{
    const wr_policy *policy = cache->policy;
    const bool like_default = wr_mempool_is_plain(pool) && pool->rules.alignment <= WR_CHUNK_PART_LEAST;
    const bool chunked = cache->chunks.region_bytes != 0 && (!pool->is_private || like_default);
    return policy->of_segments && !chunked ? policy->of_segments : policy;
}

weir_status wr_mempool_create(wr_cache *cache, const weir_mempool_options *rules, wr_mempool_name name,
                              wr_holder holder, wr_mempool **out)
{
    wr_mempool *pool = NULL;
    wr_cache_lock(cache);
    weir_status status = wr_record_mempool(cache, &pool);
    if (status == WEIR_OK) {
        memset(&pool->rules, 0, sizeof *pool - offsetof(wr_mempool, rules));
        hold_locked(pool, holder);
        pool->is_private = name != 0;
        pool->made_in_vain = holder == WR_HELD_BY_GRAPH;
        if (rules) pool->rules = *rules;
        if (rules && rules->source) pool->source = *rules->source;
        pool->rules.source = NULL;
        atomic_store_explicit(&pool->policy, policy_for(cache, pool), memory_order_relaxed);
        atomic_store_explicit(&pool->alignment, pool->rules.alignment, memory_order_relaxed);
        atomic_store_explicit(&pool->name, name, memory_order_release);
        pool->counted = pool->is_private;
        status = name == 0 ? WEIR_OK : wr_mempool_name_claim(name, pool);
        if (status != WEIR_OK) {
            atomic_store_explicit(&pool->name, 0, memory_order_release);
            wr_record_mempool_done(cache, pool);
        }
    }
    if (status == WEIR_OK) {
        if (pool->is_private) count_default_locked(cache);
        append_locked(cache, pool);
        *out = pool;
    }
    wr_cache_unlock(cache);
    return status;
}

weir_status wr_mempool_create_new(wr_cache *cache, const weir_mempool_options *rules, wr_holder holder,
                                  wr_mempool_name *name, wr_mempool **out)
{
    WR_TRY(wr_mempool_name_new(holder != WR_HELD_BY_GRAPH, name));
    const weir_status status = wr_mempool_create(cache, rules, *name, holder, out);
    if (status != WEIR_OK) wr_mempool_name_end(*name);
    return status;
}

weir_status wr_mempool_check_name(const wr_mempool *pool, wr_mempool_name name)
{
    WR_ENSURE(wr_mempool_name_of(pool) == name, WEIR_ERR_POOL_MISMATCH,
              "memory pool " WR_MEMPOOL_FORMAT " no longer exists", WR_MEMPOOL_ARGUMENTS(name));
    return WEIR_OK;
}

weir_status wr_mempool_ref(wr_mempool *pool, wr_mempool_name name, wr_holder holder)
{
    wr_cache_lock(pool->cache);
    weir_status status = wr_mempool_check_name(pool, name);
    if (status == WEIR_OK) hold_locked(pool, holder);
    wr_cache_unlock(pool->cache);
    return status;
}

/* True: it was the last reference, and the pool is to go with its memory. */
static bool let_go_locked(wr_mempool *pool, wr_holder holder)
{
    assert(pool->held[holder] > 0);
    pool->held[holder]--;
    if (holder == WR_HELD_BY_GRAPH && pool->held[holder] == 0 && pool->stray == 0) pool->graphed = false;
    if (!wr_mempool_is_orphan(pool)) return false;
    TAILQ_INSERT_TAIL(&pool->cache->released_pools, pool, released);
    atomic_store_explicit(&pool->cache->orphans, true, memory_order_relaxed);
    return true;
}

weir_status wr_mempool_unref(wr_mempool *pool, wr_mempool_name name, wr_holder holder)
{
    wr_cache *cache = pool->cache;
    size_t released = 0;
    wr_cache_lock(cache);
    const bool there = wr_mempool_name_of(pool) == name && pool->held[holder] > 0;
    const bool last = there && let_go_locked(pool, holder);
    wr_cache_unlock(cache);
    WR_ENSURE(there, WEIR_ERR_POOL_MISMATCH, "memory pool " WR_MEMPOOL_FORMAT " was already released",
              WR_MEMPOOL_ARGUMENTS(name));
    /* What cannot be given back now (a stream is capturing, the driver refuses) is given back when somebody needs
     * it. */
    if (last) wr_clean_up(wr_cache_trim_pool(pool, name, &released));
    return WEIR_OK;
}

void wr_mempool_unref_quietly(wr_mempool *pool, wr_holder holder)
{
    wr_cache *cache = pool->cache;
    const wr_mempool_name name = wr_mempool_name_of(pool);
    wr_cache_lock(cache);
    const bool last = let_go_locked(pool, holder);
    wr_cache_unlock(cache);
    if (last) wr_fronts_empty_in(cache, name);
}

/* Unlinks a pool without references and segments. */
static wr_mempool *unlink_dead_locked(wr_cache *cache, wr_mempool_name *name)
{
    wr_mempool *pool;
    TAILQ_FOREACH(pool, &cache->released_pools, released) {
        if (pool->segments != 0) continue;
        remove_locked(cache, pool);
        *name = wr_mempool_name_of(pool);
        if (pool->made_in_vain && !wr_mempool_is_of_capture(pool))
            wr_mempool_name_disclaim(*name);
        else
            wr_mempool_name_end(*name);
        atomic_store_explicit(&pool->name, 0, memory_order_release);
        return pool;
    }
    return NULL;
}

bool wr_mempool_in_scope_locked(const wr_mempool *pool, const wr_mempool_scope *scope)
{
    switch (scope->of) {
    case WR_SCOPE_RELEASED: return wr_mempool_is_orphan(pool);
    case WR_SCOPE_ONE:
        return pool == scope->pool && wr_mempool_name_of(pool) == scope->name && wr_mempool_trimmable(pool, pool);
    default:
        return wr_mempool_trimmable(pool, scope->pool) && (!scope->pinned || pool->rules.memory == WEIR_MEMORY_PINNED);
    }
}

static wr_mempool *after(const wr_mempool *pool, const wr_mempool_scope *scope)
{
    switch (scope->of) {
    case WR_SCOPE_RELEASED: return TAILQ_NEXT(pool, released);
    case WR_SCOPE_ONE: return NULL;
    default: return pool->next;
    }
}

static wr_mempool *from_locked(wr_mempool *pool, const wr_mempool_scope *scope)
{
    while (pool && !wr_mempool_in_scope_locked(pool, scope)) pool = after(pool, scope);
    return pool;
}

wr_mempool *wr_mempool_first_in_locked(const wr_cache *cache, const wr_mempool_scope *scope)
{
    switch (scope->of) {
    case WR_SCOPE_RELEASED: return from_locked(TAILQ_FIRST(&cache->released_pools), scope);
    case WR_SCOPE_ONE: return from_locked(scope->pool, scope);
    default: return from_locked(cache->pools, scope);
    }
}

wr_mempool *wr_mempool_next_in_locked(const wr_mempool *pool, const wr_mempool_scope *scope)
{
    return from_locked(after(pool, scope), scope);
}

static void free_bins(const wr_mempool *pool)
{
    for (wr_bin *bin = pool->first_bin, *next; bin; bin = next) {
        next = bin->next;
        wr_bin_drop_fence(bin);
        wr_meta_free(bin);
    }
    wr_meta_free(pool->bins);
}

wr_segment **wr_mempool_list_locked(const wr_mempool *pool, wr_segment **tail)
{
    for (wr_segment *s = wr_mempool_first_segment(pool); s; s = wr_mempool_next_segment(s)) {
        *tail = s;
        tail = &s->listed;
    }
    *tail = NULL;
    return tail;
}

void wr_mempool_sweep(wr_cache *cache)
{
    for (;;) {
        wr_cache_lock(cache);
        wr_mempool_name name = 0;
        wr_mempool *pool = unlink_dead_locked(cache, &name);
        wr_subplan *subplans = pool ? wr_subplans_return_locked(cache, pool) : NULL;
        wr_cache_unlock(cache);
        if (!pool) return;
        wr_subplans_destroy(subplans);
        wr_fronts_part(pool, name);
        const weir_segment_source source = pool->source;
        free_bins(pool);
        wr_cache_lock(cache);
        wr_record_mempool_done(cache, pool);
        wr_cache_unlock(cache);
        if (source.release) source.release(source.user);
    }
}

void wr_mempool_tidy(wr_cache *cache)
{
    if (!atomic_load_explicit(&cache->orphans, memory_order_relaxed)) return;
    atomic_store_explicit(&cache->orphans, false, memory_order_relaxed);
    wr_cache_trim_released(cache);
}

void wr_mempools_release(wr_cache *cache)
{
    while (cache->pools) {
        wr_mempool *pool = cache->pools;
        cache->pools = pool->next;
        if (pool->is_private) wr_mempool_name_end(wr_mempool_name_of(pool));
        wr_meta_free(pool->bins); /* the bins went with their segments */
        if (pool->source.release) pool->source.release(pool->source.user);
    }
}
