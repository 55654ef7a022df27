/*
 * Borrowing: a request that its own pool has no memory for is served from the free blocks of private pools that lend
 * (use_on_oom).
 */
#include "pool/count.h"

/* A graph uses the free memory of its pool at every launch, and what it borrowed would go back to another pool. */
static bool lends(const wr_mempool *pool, const wr_mempool *to)
{
    return pool->rules.use_on_oom && pool != to && wr_mempool_references(pool) > 0 && !pool->held[WR_HELD_BY_GRAPH];
}

/* Memory that is lent is plain device memory, cut as it comes. A checkpoint knows only what its own pool has, so what
 * was borrowed since would stay live when it is restored. */
static bool may_borrow(const wr_mempool *pool)
{
    return !pool->is_private ||
           (wr_mempool_is_plain(pool) && pool->rules.cap == 0 && pool->rules.alignment <= 512 && !pool->fixed);
}

static weir_status borrow_locked(wr_cache *cache, const wr_request *request, void **out)
{
    for (wr_mempool *pool = cache->pools; pool && !*out; pool = pool->next) {
        if (!lends(pool, request->pool)) continue;
        wr_request lent = wr_cache_request(pool, wr_mempool_name_of(pool), request->stream, request->requested);
        wr_block *block = wr_cache_find_free_locked(&lent);
        if (!block) continue;
        WR_TRY(wr_cache_hand_out_locked(cache, &lent, block, out));
        WR_COUNT(pool, hits, 1);
        pool->lent++;
        WR_COUNT(pool, lent, 1);
    }
    return WEIR_OK;
}

weir_status wr_cache_borrow(wr_cache *cache, const wr_request *request, void **out)
{
    *out = NULL;
    wr_cache_lock(cache);
    const bool may = !request->pool->held[WR_HELD_BY_GRAPH] && may_borrow(request->pool);
    weir_status status = wr_cache_check_target_locked(request);
    if (status == WEIR_OK && may) status = borrow_locked(cache, request, out);
    wr_cache_unlock(cache);
    return status;
}
