/* Fronts come with a stream's first bin in a pool, or beside another one, and are listed while blocks of them may be
 * parked. */
#include "pool/front/front.h"

#include "base/meta.h"
#include "pool/front/not_live.h"
#include "pool/policy.h"

#include <assert.h>

/* `main`: of a side; NULL: a main front. */
static weir_status make(wr_cache *cache, wr_stream *stream, wr_account *account, wr_front *main, wr_front **out)
{
    void *made = NULL;
    WR_TRY(wr_meta_alloc(sizeof(wr_front), "stream's parked blocks", &made));
    wr_front *front = made;
    wr_bias_init(&front->lock, WR_BIAS_OUTER, WR_RANK_FRONT, "front");
    wr_lock_init(&front->cutting, WR_RANK_CUTTING, "cutting");
    wr_lock_init(&front->posts.lock, WR_RANK_POSTS, "posts");
    front->cache = cache;
    front->stream = stream;
    front->account = account;
    front->closed = front->asks = true;
    front->main = main ? main : front;
    front->older = cache->youngest_front;
    cache->youngest_front = front;
    *out = front;
    return WEIR_OK;
}

/* A front that was another pool's stays closed until wr_front_meet_locked, for which its lock is held too. */
static void begin(wr_front *front, wr_mempool *pool)
{
    wr_cache *cache = front->cache;
    const wr_mempool_name name = wr_mempool_name_of(pool);
    const wr_policy *policy = wr_mempool_policy(pool);
    front->pool = pool;
    for (int class = WR_SMALL; class < WR_CLASSES; class ++) front->bins[class] = NULL;
    front->plain_max = pool->rules.alignment <= WR_FRONT_QUANTUM ? policy->plain_max(&cache->options) : 0;
    front->large_unit = policy->large_unit;
    wr_front_unsettle(front);
    atomic_store_explicit(&front->name, name, memory_order_release);
}

static void count_listed(wr_front *front)
{
    wr_cache *cache = front->cache;
    assert(front->closed);
    if (cache->front_count++ == WR_FRONTS_SUMMED) wr_fronts_add_up_locked(cache);
    front->listed = true;
}

static void link_in(wr_front *front)
{
    wr_cache *cache = front->cache;
    wr_front *next = wr_front_first(cache);
    front->prev = NULL;
    if (next) next->prev = front;
    atomic_store_explicit(&front->next, next, memory_order_release);
    atomic_store_explicit(&cache->fronts, front, memory_order_release);
}

void wr_front_list_locked(wr_front *front)
{
    if (front->listed) return;
    count_listed(front);
    link_in(front);
}

void wr_front_unlist_locked(wr_front *front)
{
    wr_cache *cache = front->cache;
    wr_front *next = wr_front_next(front);
    if (!front->listed) return;
    assert(front->closed);
    wr_front_add_up(front); /* nothing is parked */
    cache->front_count--;
    front->listed = false;
    atomic_store_explicit(&front->shared, false, memory_order_relaxed);
    atomic_store_explicit(&front->turns, 0, memory_order_relaxed);
    if (next) next->prev = front->prev;
    atomic_store_explicit(front->prev ? &front->prev->next : &cache->fronts, next, memory_order_release);
}

/* Its lock is not held: it is met before anybody can find it. */
static void publish(wr_front *front, wr_stream *stream)
{
    front->sibling = wr_front_youngest(stream);
    count_listed(front);
    wr_front_meet_locked(front);
    link_in(front);
    atomic_store_explicit(&stream->fronts, front, memory_order_release);
    if (!front->pool->is_private) atomic_store_explicit(&stream->front, front, memory_order_release);
}

/* Besides that of the default pool. */
static bool has_enough(const wr_stream *stream)
{
    unsigned count = 0;
    for (const wr_front *f = wr_front_youngest(stream); f; f = f->sibling) count += wr_front_find(stream, 0) != f;
    return count >= WR_FRONTS_OF_STREAM;
}

weir_status wr_front_of_locked(wr_mempool *pool, wr_stream *stream, wr_account *account, wr_front **out)
{
    *out = pool->is_private ? wr_front_find(stream, WR_MEMPOOL_NOBODY) : NULL;
    if (*out) {
        begin(*out, pool);
        return WEIR_OK;
    }
    if (pool->is_private && has_enough(stream)) return WEIR_OK;
    WR_TRY(make(pool->cache, stream, account, NULL, out));
    begin(*out, pool);
    publish(*out, stream);
    return WEIR_OK;
}

void wr_front_begin_beside_locked(wr_front *side)
{
    if (!wr_front_is_of(side, atomic_load_explicit(&side->main->name, memory_order_relaxed)))
        begin(side, side->main->pool);
}

static weir_status find_idle_locked(wr_front *main, wr_front **out)
{
    *out = main->idle;
    if (*out) {
        main->idle = (*out)->idle;
        return WEIR_OK;
    }
    WR_TRY(make(main->cache, main->stream, main->account, main, out));
    begin(*out, main->pool);
    return WEIR_OK;
}

weir_status wr_front_take_beside_locked(wr_front *main, wr_front **out)
{
    WR_TRY(find_idle_locked(main, out));
    /* Released, too: who still stands on a side that was left goes on from it, to sides made since. */
    atomic_store_explicit(&(*out)->beside, wr_front_beside(main), memory_order_release);
    atomic_store_explicit(&main->beside, *out, memory_order_release);
    return WEIR_OK;
}

void wr_front_leave_beside_locked(wr_front *side)
{
    wr_front *main = side->main, *before = main;
    while (wr_front_beside(before) != side) before = wr_front_beside(before);
    atomic_store_explicit(&before->beside, wr_front_beside(side), memory_order_release);
    side->idle = main->idle;
    main->idle = side;
}
