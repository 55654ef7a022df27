#include "pool/front/detach.h"

#include "base/size.h"
#include "pool/count.h"
#include "pool/front/shares.h"
#include "pool/starts.h"

#include <assert.h>

enum {
    WAIT = 8,  /* what a request that finds the lock taken counts; one that finds it free counts -1 */
    USED = 16, /* what it counts less for a free that needs the cache's lock in any case */
    WAITS_MOST = 256,
    VISITS_MOST = 256,    /* a front is attached after the cache's lock was taken so often ... */
    VISITS_SPARED = 8,    /* ... beyond this many times for each time its own lock was enough, */
    ALONE_MOST = 1 << 18, /* or when that was so as often as this in a row, and no other thread was met meanwhile */
    SPINS = 200,          /* looks before waiting for another thread: some microseconds */
    RECORDS = 64,         /* of blocks, for what a front splits */
    RECORDS_MOST = 512    /* including those of coalesced blocks; the rest goes back */
};

/* In a detached front's flow, which never reaches a peak: `spare` says how much may become live. */
static const int64_t ROOM = INT64_MAX / 4;

/* ---- all cutting locks ------------------------------------------------------------------------------------------- */

void wr_detached_lock(wr_cache *cache)
{
    atomic_store_explicit(&cache->cutting_wanted, true, memory_order_relaxed);
    for (wr_front *f = cache->detached; f; f = f->next_detached) wr_lock_acquire_soon_behind(&f->cutting);
    atomic_store_explicit(&cache->cutting_wanted, false, memory_order_relaxed);
    for (wr_front *f = cache->detached, *next; f; f = next) {
        next = f->next_detached;
        if (++f->visits > VISITS_MOST || f->alone >= ALONE_MOST) wr_front_attach_locked(f);
    }
}

void wr_detached_unlock(const wr_cache *cache)
{
    for (wr_front *f = cache->detached; f; f = f->next_detached) wr_lock_release_behind(&f->cutting);
}

static const int64_t LEAST[WR_FLOW_LIVE] = { 1024, 8 * WR_MIB, 8 * WR_MIB };

/* Of detached fronts but `own`. */
static wr_shares shares_of(const wr_cache *cache, const wr_mempool *pool, const wr_front *own, wr_flow_number number)
{
    wr_shares sum = { 0, 0 };
    for (const wr_front *f = cache->detached; f; f = f->next_detached)
        if (f != own && wr_front_is_in(f, pool)) wr_shares_add(&sum, f, number);
    return sum;
}

/* Most of what is below a peak is unshared, so that a front whose blocks become more finds what others do not need. */
static int64_t usual_share(int64_t fronts, int64_t spare, int number)
{
    enum { TIMES = 16 };
    const int64_t share = fronts ? spare / (TIMES * fronts) : 0;
    return share > LEAST[number] ? share : LEAST[number];
}

int64_t wr_detached_share(const wr_front *front, const wr_mempool *pool, wr_flow_number number, int64_t spare)
{
    const wr_shares others = shares_of(front->cache, pool, front, number);
    const int64_t next = wr_shares_next(others, spare, LEAST[number]);
    if (others.count == 0 || !wr_front_may_share(front)) return next;
    const int64_t usual = usual_share(others.count + 1, spare, number);
    return usual < spare - others.spare ? usual : next;
}

/* `unpromised`: without what settled detached fronts have spare. */
static void divide(wr_unshared *unshared, const wr_cache *cache, const wr_mempool *pool, const wr_not_live *unpromised)
{
    const wr_flow *flow = pool ? &pool->flow : &cache->ledger.flow;
    for (int i = 0; i < WR_FLOW_LIVE; i++) {
        const wr_shares given = shares_of(cache, pool, NULL, (wr_flow_number)i);
        const int64_t rest = wr_not_live_below_peak(unpromised, flow, i);
        unshared->share[i] = usual_share(given.count, rest + given.spare, i);
        atomic_store_explicit(&unshared->rest[i], rest > 0 ? rest : 0, memory_order_relaxed);
    }
}

void wr_detached_divide_locked(wr_mempool *pool)
{
    wr_not_live all, own;
    wr_fronts_sum_unpromised_locked(pool, &all, &own);
    divide(&pool->cache->unshared, pool->cache, NULL, &all);
    if (pool->counted) divide(&pool->unshared, pool->cache, pool, &own);
}

static int64_t take(wr_unshared *unshared, wr_flow_number number, int64_t least, int64_t most)
{
    int64_t there = atomic_load_explicit(&unshared->rest[number], memory_order_relaxed), taken = 0;
    do {
        if (there < least) return 0;
        taken = there < most ? there : most;
    } while (!atomic_compare_exchange_weak_explicit(&unshared->rest[number], &there, there - taken,
                                                    memory_order_relaxed, memory_order_relaxed));
    return taken;
}

static void put(wr_unshared *unshared, wr_flow_number number, int64_t amount)
{
    atomic_fetch_add_explicit(&unshared->rest[number], amount, memory_order_relaxed);
}

int64_t wr_front_take_unshared(const wr_front *front, wr_flow_number number, int64_t least, int64_t most)
{
    wr_unshared *all = &front->cache->unshared;
    const int64_t taken = take(all, number, least, most);
    if (taken == 0 || !front->pool->counted) return taken;
    const int64_t of_pool = take(&front->pool->unshared, number, least, taken);
    if (of_pool < taken) put(all, number, taken - of_pool);
    return of_pool;
}

void wr_front_put_unshared(const wr_front *front, wr_flow_number number, int64_t amount)
{
    put(&front->cache->unshared, number, amount);
    if (front->pool->counted) put(&front->pool->unshared, number, amount);
}

int64_t wr_front_usual_share(const wr_front *front, wr_flow_number number)
{
    const int64_t of_all = front->cache->unshared.share[number], of_pool = front->pool->unshared.share[number];
    return front->pool->counted && of_pool < of_all ? of_pool : of_all;
}

static bool promised_too_much(const wr_cache *cache, const wr_mempool *pool, const wr_not_live *not_live)
{
    const wr_flow *flow = pool ? &pool->flow : &cache->ledger.flow;
    for (int i = 0; i < WR_FLOW_LIVE; i++) {
        const wr_shares given = shares_of(cache, pool, NULL, (wr_flow_number)i);
        if (wr_shares_exceed(given, wr_not_live_below_peak(not_live, flow, i), LEAST[i])) return true;
    }
    return false;
}

static void unsettle_all(const wr_cache *cache)
{
    for (wr_front *f = cache->detached; f; f = f->next_detached) wr_front_unsettle(f);
}

void wr_detached_review_locked(wr_mempool *pool)
{
    const wr_cache *cache = pool->cache;
    wr_not_live all, own;
    wr_fronts_sum_locked(pool, &all, &own);
    wr_count_peaks_locked(pool, &all, &own);
    const bool of_pool = pool->counted && promised_too_much(cache, pool, &own);
    if (of_pool || promised_too_much(cache, NULL, &all)) unsettle_all(cache);
}

int64_t wr_detached_untold(const wr_cache *cache, const wr_mempool *pool, wr_class class, int number)
{
    int64_t sum = 0;
    for (const wr_front *f = cache->detached; f; f = f->next_detached)
        if (wr_front_is_in(f, pool)) sum += wr_flow_untold(&f->ledger.flow, wr_stat_kind(class), number);
    return sum;
}

uint64_t wr_cache_changes_locked(const wr_cache *cache)
{
    uint64_t changes = cache->ledger.changes;
    for (const wr_front *f = cache->detached; f; f = f->next_detached) changes += f->ledger.changes;
    return changes;
}

/* ---- one of them ------------------------------------------------------------------------------------------------- */

static bool is_wanted(const wr_cache *cache)
{
    return atomic_load_explicit(&cache->cutting_wanted, memory_order_relaxed);
}

/* A thread that wants all cutting locks gets them soon, unless the holder of one is not running. A mutex may go to the
 * same thread again and again, so this one queues for the cache's; it reads and changes nothing under it. */
static WR_NOINLINE void let_first(wr_cache *cache)
{
    for (int i = 0; i < SPINS; i++) {
        WR_PAUSE();
        if (!is_wanted(cache)) return;
    }
    wr_lock_acquire(&cache->lock.mutex);
    wr_lock_release(&cache->lock.mutex);
}

/* Returns whether no other thread wanted it meanwhile. */
static bool lock_cutting(wr_front *front)
{
    const bool wanted = is_wanted(front->cache);
    if (WR_UNLIKELY(wanted)) let_first(front->cache);
    if (WR_LIKELY(wr_lock_try(&front->cutting))) return !wanted;
    wr_lock_acquire_soon(&front->cutting);
    return false;
}

bool wr_front_lock_cutting(wr_front *front)
{
    if (!wr_front_is_detached(front) || front->alone >= ALONE_MOST) return false; /* whoever takes all attaches it */
    if (WR_UNLIKELY(!lock_cutting(front))) front->alone = 0;
    if (WR_LIKELY(wr_front_is_detached(front))) return true;
    wr_lock_release(&front->cutting);
    return false;
}

void wr_front_unlock_cutting(wr_front *front, bool enough)
{
    if (enough) {
        front->visits -= front->visits < VISITS_SPARED ? front->visits : VISITS_SPARED;
        front->alone++;
    }
    wr_lock_release(&front->cutting);
}

/* ---- coming and going -------------------------------------------------------------------------------------------- */

static void begin_flow(wr_flow *flow)
{
    for (int kind = 0; kind < WEIR_STAT_KINDS; kind++)
        for (int number = 0; number < WR_FLOW_NUMBERS; number++) {
            flow->came[kind][number] = 0;
            flow->room[kind][number] = flow->had[kind][number] = ROOM;
        }
}

static void tell_flow(wr_flow *to, const wr_flow *flow)
{
    for (int kind = 0; kind < WEIR_STAT_KINDS; kind++)
        for (int number = 0; kind != WEIR_STAT_ALL && number < WR_FLOW_NUMBERS; number++) {
            to->came[kind][number] += flow->came[kind][number];
            wr_flow_go(to, kind, (wr_flow_number)number, wr_flow_untold(flow, kind, number));
        }
}

static void tell(wr_front *front)
{
    wr_cache *cache = front->cache;
    wr_ledger *ledger = &front->ledger;
    wr_mempool *pool = front->pool;
    tell_flow(&cache->ledger.flow, &ledger->flow);
    if (pool->counted) tell_flow(&pool->flow, &ledger->flow);
    begin_flow(&ledger->flow);
    WR_COUNT(pool, hits, ledger->hits);
    cache->ledger.changes += ledger->changes;
    ledger->hits = ledger->changes = 0;
    wr_count_full_locked(pool);
    wr_count_splits_full_locked(pool);
}

static void use_ledger(const wr_front *front, wr_ledger *ledger)
{
    for (int class = WR_SMALL; class < WR_CLASSES; class ++)
        if (front->bins[class]) wr_bin_use_ledger(front->bins[class], ledger);
}

static void put_records_back(wr_front *front, size_t kept)
{
    while (front->ledger.unused_block_count > kept)
        wr_record_block_done(front->cache, wr_ledger_take_record(&front->ledger));
}

static weir_status stock_up(wr_front *front)
{
    put_records_back(front, RECORDS_MOST);
    if (front->ledger.unused_block_count >= RECORDS / 2) return WEIR_OK;
    WR_TRY(wr_records_spare_blocks(front->cache, RECORDS));
    while (front->ledger.unused_block_count < RECORDS)
        wr_ledger_add_record(&front->ledger, wr_ledger_take_record(&front->cache->ledger));
    return WEIR_OK;
}

static void share_starts(wr_cache *cache)
{
    wr_starts *starts = wr_starts_of(cache);
    if (starts) starts->shared = cache->detached != NULL;
}

/* The stream's account is changed under the cutting lock: one front's only. */
static bool has_detached_sibling(const wr_front *front)
{
    const wr_front *f = wr_front_youngest(front->stream);
    while (f && !wr_front_is_detached(f)) f = f->sibling;
    return f != NULL;
}

weir_status wr_front_detach_locked(wr_front *front)
{
    wr_cache *cache = front->cache;
    if (front->closed || has_detached_sibling(front)) return WEIR_OK;
    WR_TRY(stock_up(front));
    begin_flow(&front->ledger.flow);
    const bool free = wr_lock_try_behind(&front->cutting);
    assert(free); /* while the front is attached, only the holder of its lock takes this one */
    (void)free;
    front->visits = front->alone = 0;
    wr_front **link = &cache->detached;
    while (*link && (uintptr_t)*link < (uintptr_t)front) link = &(*link)->next_detached;
    front->next_detached = *link;
    *link = front;
    use_ledger(front, &front->ledger);
    share_starts(cache);
    wr_front_unsettle(front); /* alone it did not know of what others did since */
    atomic_store_explicit(&front->detached, true, memory_order_relaxed);
    return WEIR_OK;
}

void wr_front_count_wait_locked(wr_front *front, bool contended)
{
    if (wr_front_is_detached(front)) {
        if (contended) front->alone = 0;
        (void)stock_up(front); /* without records it asks again */
        return;
    }
    if (contended || front->cache->detached)
        front->waits += WAIT;
    else
        front->waits--; /* there are some, or this would not be called */
    if (front->waits < WAITS_MOST) return;
    front->waits = 0;
    (void)!wr_front_detach_locked(front); /* on failure, tries again after waiting as often */
}

void wr_front_count_used_locked(wr_front *front)
{
    front->waits -= front->waits < USED ? front->waits : USED;
}

void wr_front_attach_locked(wr_front *front)
{
    wr_cache *cache = front->cache;
    wr_front **link = &cache->detached;
    if (!wr_front_is_detached(front)) return;
    while (*link != front) link = &(*link)->next_detached;
    *link = front->next_detached;
    tell(front);
    put_records_back(front, 0);
    use_ledger(front, &cache->ledger);
    share_starts(cache);
    wr_front_unsettle(front);
    atomic_store_explicit(&front->detached, false, memory_order_relaxed);
    wr_lock_release_behind(&front->cutting);
}

void wr_fronts_attach_locked(wr_cache *cache)
{
    while (cache->detached) wr_front_attach_locked(cache->detached);
}
