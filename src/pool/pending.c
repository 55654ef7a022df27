#include "pool/pending.h"

#include "base/backoff.h"
#include "base/meta.h"
#include "pool/address.h"
#include "pool/count.h"
#include "pool/starts.h"

static weir_status wait_for_stream_locked(wr_cache *cache, const wr_stream *stream, uint64_t id, wr_event_pool *events,
                                          wr_wait **out)
{
    for (wr_wait *w = cache->waits; w; w = w->next)
        if (w->stream_id == id) {
            *out = w;
            return WEIR_OK;
        }
    void *made = NULL;
    WR_TRY(wr_meta_alloc(sizeof(wr_wait), "stream wait", &made));
    wr_wait *w = made;
    wr_lock_init(&w->lock, WR_RANK_WAIT, "wait");
    w->stream_id = id;
    w->native = stream->native;
    w->events = events;
    w->next = cache->waits;
    cache->waits = w;
    *out = w;
    return WEIR_OK;
}

static void free_wait(wr_wait *w)
{
    wr_lock_destroy(&w->lock);
    wr_meta_free(w);
}

/* Only the holder of the poll lock unlinks waits, because it may be looking at one without the cache's lock. */
static void drop_unused_waits_locked(wr_cache *cache)
{
    wr_wait **link = &cache->waits;
    while (*link) {
        wr_wait *w = *link;
        if (w->uses != 0) {
            link = &w->next;
            continue;
        }
        *link = w->next;
        free_wait(w);
    }
}

static weir_status add_use_locked(wr_cache *cache, wr_block *block, const wr_stream *stream, wr_event_pool *events)
{
    const uint64_t id = atomic_load(&stream->id);
    /* 0: it has just ended, and its work before that */
    if (block->segment->bin->stream == stream || id == 0) return WEIR_OK;
    /* Also if the stream is recorded already: a block that was parked while it was being recorded comes back with that
     * use. */
    WR_ENSURE(wr_block_mark_used(block), WEIR_ERR_DOUBLE_FREE,
              "%p was freed by another thread meanwhile (%s, %zu bytes)", (void *)block->base, cache->name,
              block->bytes);
    for (const wr_use *u = block->uses; u; u = u->next_of_block)
        if (u->wait->stream_id == id) return WEIR_OK;
    wr_use *use = NULL;
    wr_wait *wait = NULL;
    WR_TRY(wr_record_use(cache, &use));
    weir_status status = wait_for_stream_locked(cache, stream, id, events, &wait);
    if (status != WEIR_OK) {
        wr_record_use_done(cache, use);
        return status;
    }
    *use = (wr_use){ .block = block, .wait = wait, .next_of_block = block->uses };
    block->uses = use;
    wait->uses++;
    wr_history_record(&cache->history, WEIR_EVENT_RECORD_STREAM, block->base, wr_block_requested(block), stream->native,
                      wr_bin_pool_id(block->segment->bin));
    return WEIR_OK;
}

weir_status wr_pending_record(const wr_segment *segment, const void *address, const wr_stream *stream,
                              wr_event_pool *events)
{
    wr_cache *cache = segment->cache;
    wr_block *block = NULL;
    wr_cache_lock(cache);
    weir_status status = wr_cache_live_block_locked(segment, address, &block);
    if (status == WEIR_OK) status = add_use_locked(cache, block, stream, events);
    wr_cache_unlock(cache);
    return status;
}

/* A thread that ends the stream sets `ended` before it reads `marking`, so one side sees the other. */
bool wr_wait_enter(wr_wait *wait)
{
    atomic_fetch_add(&wait->marking, 1);
    return !atomic_load(&wait->ended);
}

void wr_wait_leave(wr_wait *wait)
{
    atomic_fetch_sub(&wait->marking, 1);
}

/* An event behind the stream's present work. NULL: there cannot be one now, because the stream is capturing (the event
 * would become part of the graph) or the driver refuses. */
static void *mark(wr_wait *wait)
{
    void *event = NULL;
    if (wr_wait_enter(wait)) (void)!wr_event_behind(wait->events, wait->native, &event);
    wr_wait_leave(wait);
    return event;
}

void wr_pending_forget_locked(wr_cache *cache, wr_block *block)
{
    while (block->uses) {
        wr_use *use = block->uses;
        block->uses = use->next_of_block;
        use->wait->uses--;
        wr_record_use_done(cache, use);
    }
}

void wr_pending_skip(wr_block *block)
{
    wr_cache *cache = block->segment->cache;
    wr_cache_lock(cache);
    wr_pending_forget_locked(cache, block);
    wr_count_waited(block);
    wr_cache_reclaim_locked(cache, block);
    wr_cache_unlock(cache);
}

weir_status wr_pending_keep(const wr_segment *segment, const void *address)
{
    wr_cache *cache = segment->cache;
    wr_block *block = NULL;
    weir_status status = WEIR_OK;
    wr_cache_lock(cache);
    /* A block that another graph keeps may have been freed by the program. */
    if (wr_address_find(address) == segment) block = wr_starts_block_at(segment, address);
    if (!block || block->kept == 0) status = wr_cache_live_block_locked(segment, address, &block);
    if (status == WEIR_OK) block->kept++;
    wr_cache_unlock(cache);
    return status;
}

void wr_pending_let_go(const wr_segment *segment, const void *base)
{
    wr_cache *cache = segment->cache;
    wr_cache_lock(cache);
    wr_block *block = wr_starts_block_at(segment, base);
    bool waits = --block->kept == 0 && block->state == WR_BLOCK_PENDING;
    /* Another thread freed it in error, and it was handed out again, after it was recorded and before it was kept. */
    if (waits && !block->uses) {
        wr_count_waited(block);
        wr_cache_reclaim_locked(cache, block);
        waits = false;
    }
    wr_cache_unlock(cache);
    if (waits) wr_pending_start(cache, block);
}

static bool chain_use(wr_wait *wait, wr_stream *to)
{
    const bool there = wr_wait_enter(wait); /* else the stream has ended, and its work is over */
    const bool chained = !there || wr_event_chained(wait->events, wait->native, to);
    wr_wait_leave(wait);
    return chained;
}

/* The move lock keeps the block's stream from ending meanwhile. */
static bool chain_uses(wr_cache *cache, const wr_block *block)
{
    wr_lock_acquire(&cache->move_lock);
    wr_cache_lock(cache);
    wr_stream *to = block->segment->bin->stream;
    wr_cache_unlock(cache);
    bool chained = true;
    for (const wr_use *u = block->uses; u && chained; u = u->next_of_block) chained = chain_use(u->wait, to);
    wr_lock_release(&cache->move_lock);
    return chained;
}

void wr_pending_chain(wr_cache *cache, wr_block *block)
{
    if (!chain_uses(cache, block)) {
        wr_pending_start(cache, block);
        return;
    }
    wr_pending_skip(block);
    if (!wr_lock_try(&cache->poll_lock)) return; /* its holder tidies up too */
    wr_cache_lock(cache);
    drop_unused_waits_locked(cache);
    wr_cache_unlock(cache);
    wr_lock_release(&cache->poll_lock);
}

static wr_use *first_of(const wr_wait *wait)
{
    return atomic_load_explicit(&wait->first, memory_order_acquire);
}

static wr_use *next_of(const wr_use *use)
{
    return atomic_load_explicit(&use->next_in_wait, memory_order_acquire);
}

/* Completes the wait's first use. The block is reclaimed with its last use. Both the wait's lock and the cache's are
 * held. */
static void complete_locked(wr_cache *cache, wr_wait *wait)
{
    wr_use *use = first_of(wait), *next = next_of(use);
    wr_block *block = use->block;
    atomic_store_explicit(&wait->first, next, memory_order_relaxed);
    if (!next) wait->last = NULL;
    wait->uses--;
    atomic_fetch_sub_explicit(&cache->pending, 1, memory_order_relaxed);

    wr_use **link = &block->uses;
    while (*link != use) link = &(*link)->next_of_block;
    *link = use->next_of_block;
    use->block = NULL;
    if (use->holders == 0) wr_record_use_done(cache, use);
    if (block->uses) return;
    wr_count_waited(block);
    wr_cache_reclaim_locked(cache, block);
}

/* Another device that is lost runs nothing any more, and what it used is as good as before. */
static weir_status unless_lost_elsewhere(const wr_cache *cache, const wr_event_pool *events, weir_status status)
{
    return status == WEIR_ERR_DEVICE_LOST && events->device != cache->device ? WEIR_OK : status;
}

/* Asks the driver about a use, without the cache's lock. If no event could be recorded, this may wait for the
 * stream. */
static weir_status ask(const wr_cache *cache, wr_wait *wait, const wr_use *use, bool wait_for_it)
{
    wr_event_pool *events = wait->events;
    if (use->event)
        return unless_lost_elsewhere(cache, events, wr_driver(cache->backend, event_query, events->device, use->event));
    if (atomic_load(&wait->ended)) return WEIR_OK;
    return unless_lost_elsewhere(cache, events, wr_event_ask_stream(events, wait->native, wait_for_it));
}

/* The first uses of a stream that are over, and what becomes of their events. */
enum { POPPED_MOST = 32 };
typedef struct popped {
    wr_wait *wait;
    uint32_t uses, events;
    void *event[POPPED_MOST];
} popped;

/* Looks how many uses of the stream, from the first on, are over. Each is asked about: threads that free at the same
 * time may queue their uses in another order than they recorded the events. The wait's lock is held, but not the
 * cache's. */
static void look(const wr_cache *cache, wr_wait *wait, popped *p)
{
    p->wait = wait;
    p->uses = p->events = 0;
    for (wr_use *use = first_of(wait); use && p->uses < POPPED_MOST; use = next_of(use), p->uses++) {
        if (!use->event) use->event = mark(wait);
        if (ask(cache, wait, use, false) != WEIR_OK) return;
    }
}

/* The wait's lock and the cache's are held. */
static void pop_locked(wr_cache *cache, popped *p)
{
    for (uint32_t i = 0; i < p->uses; i++) {
        const wr_use *use = first_of(p->wait);
        if (use->holders == 0 && use->event) p->event[p->events++] = use->event;
        complete_locked(cache, p->wait);
    }
}

/* The wait's lock is held. */
static void put_events(const popped *p)
{
    if (p->events != 0) wr_events_put(p->wait->events, p->event, p->events);
}

static void pop(wr_cache *cache, popped *p)
{
    if (p->uses == 0) return;
    wr_cache_lock(cache);
    pop_locked(cache, p);
    wr_cache_unlock(cache);
    put_events(p);
}

/* Pops the stream's uses that are over, first to last. The wait's lock is held. */
static void poll_stream(wr_cache *cache, wr_wait *wait)
{
    popped p;
    do {
        look(cache, wait, &p);
        pop(cache, &p);
    } while (p.uses == POPPED_MOST);
}

/* `waits`: for a thread that is doing so. */
static void poll_wait(wr_cache *cache, wr_wait *wait, bool waits)
{
    if (waits)
        wr_lock_acquire(&wait->lock);
    else if (!wr_lock_try(&wait->lock))
        return;
    poll_stream(cache, wait);
    wr_lock_release(&wait->lock);
}

static bool has_pending(const wr_cache *cache)
{
    return WR_UNLIKELY(atomic_load_explicit(&cache->pending, memory_order_relaxed) != 0);
}

static void queue_locked(wr_cache *cache, wr_use *use)
{
    wr_wait *w = use->wait;
    atomic_store_explicit(&use->next_in_wait, NULL, memory_order_relaxed);
    use->serial = ++cache->queued_uses;
    atomic_store_explicit(w->last ? &w->last->next_in_wait : &w->first, use, memory_order_release);
    w->last = use;
    atomic_fetch_add_explicit(&cache->pending, 1, memory_order_relaxed);
}

/* Hits do not poll. If the streams of the block's uses were not asked here, what completed long ago would be found only
 * at the next miss, after others were cut from larger blocks in its stead. The price is a query too many per recorded
 * event. What the first stream has done is popped as the uses are queued, since the cache's lock is what many threads
 * wait for. The block's uses keep its waits, until they are queued; then the first wait stays as long as its lock is
 * held. */
void wr_pending_start(wr_cache *cache, wr_block *block)
{
    popped p = { .uses = 0 };
    wr_wait *first = has_pending(cache) ? block->uses->wait : NULL;
    for (wr_use *u = block->uses; first && u; u = u->next_of_block)
        if (u->wait != first) poll_wait(cache, u->wait, false);
    if (first && !wr_lock_try(&first->lock)) first = NULL;
    if (first) look(cache, first, &p);
    for (; p.uses == POPPED_MOST; look(cache, first, &p)) pop(cache, &p);
    for (wr_use *u = block->uses; u; u = u->next_of_block) u->event = mark(u->wait);
    wr_cache_lock(cache);
    pop_locked(cache, &p);
    for (wr_use *u = block->uses; u; u = u->next_of_block) queue_locked(cache, u);
    wr_cache_unlock(cache);
    put_events(&p);
    if (first) wr_lock_release(&first->lock);
}

static void hold(wr_cache *cache, wr_use *use)
{
    wr_cache_lock(cache);
    use->holders++;
    wr_cache_unlock(cache);
}

/* True: the use was popped meanwhile, and `wait` may be gone. */
static bool let_go(wr_cache *cache, wr_use *use, wr_event_pool *events)
{
    wr_cache_lock(cache);
    const bool gone = use->block == NULL, last = --use->holders == 0 && gone;
    void *event = use->event;
    if (last) wr_record_use_done(cache, use);
    wr_cache_unlock(cache);
    if (last) wr_event_put(events, event);
    return gone;
}

/* Waits for the event without locks, which others need, for unrelated streams too. False: the use was popped meanwhile,
 * and the wait may be gone. Poll lock held, before and after. */
static bool await_event(wr_cache *cache, wr_use *use, wr_event_pool *events, weir_status *status)
{
    wr_lock_release(&cache->poll_lock);
    *status =
        unless_lost_elsewhere(cache, events, wr_driver(cache->backend, event_synchronize, events->device, use->event));
    wr_lock_acquire(&cache->poll_lock);
    return !let_go(cache, use, events);
}

/* The use of that serial, if it is still there, is over. Poll lock held. */
static void pop_awaited(wr_cache *cache, wr_wait *wait, uint64_t serial)
{
    wr_lock_acquire(&wait->lock);
    const wr_use *first = first_of(wait);
    popped p = { .wait = wait, .uses = first && first->serial == serial };
    pop(cache, &p);
    wr_lock_release(&wait->lock);
}

/* Whether a use queued by then is of a block of that pool; NULL: of any. */
static bool is_awaited(wr_cache *cache, const wr_wait *wait, const wr_mempool *pool, uint64_t newest)
{
    bool found = false;
    wr_cache_lock(cache);
    for (const wr_use *u = first_of(wait); u && !found && u->serial <= newest; u = next_of(u))
        found = !pool || u->block->segment->bin->pool == pool;
    wr_cache_unlock(cache);
    return found;
}

/* Waits for the stream's first use to be over, and pops it. Poll lock held. Unless that succeeds, the wait is still in
 * the list. */
static weir_status await_first(wr_cache *cache, wr_wait *wait, uint64_t newest)
{
    weir_status status = WEIR_ERR_NOT_READY;
    wr_lock_acquire(&wait->lock);
    wr_use *use = first_of(wait);
    if (!use || use->serial > newest) {
        wr_lock_release(&wait->lock);
        return status;
    }
    const uint64_t serial = use->serial;
    if (!use->event) use->event = mark(wait);
    const bool has_event = use->event != NULL;
    if (has_event)
        hold(cache, use);
    else
        status = ask(cache, wait, use, true);
    wr_lock_release(&wait->lock);
    if (has_event && !await_event(cache, use, wait->events, &status)) return WEIR_OK;
    if (status == WEIR_OK) pop_awaited(cache, wait, serial);
    return status;
}

static wr_wait *first_wait(wr_cache *cache)
{
    wr_cache_lock(cache);
    wr_wait *wait = cache->waits;
    wr_cache_unlock(cache);
    return wait;
}

static void poll_all(wr_cache *cache, bool waits)
{
    const wr_saved_failure told = wr_fail_save(); /* what cannot be asked now is asked later */
    for (wr_wait *w = first_wait(cache); w; w = w->next) poll_wait(cache, w, waits);
    wr_fail_restore(told);
    wr_cache_lock(cache);
    drop_unused_waits_locked(cache);
    wr_cache_unlock(cache);
}

void wr_pending_flush(wr_cache *cache)
{
    wr_lock_acquire(&cache->poll_lock);
    poll_all(cache, true);
    wr_lock_release(&cache->poll_lock);
}

void wr_pending_poll(wr_cache *cache)
{
    if (!has_pending(cache) || !wr_lock_try(&cache->poll_lock)) return;
    poll_all(cache, false);
    wr_lock_release(&cache->poll_lock);
}

uint64_t wr_pending_queued(wr_cache *cache)
{
    wr_cache_lock(cache);
    const uint64_t queued = cache->queued_uses;
    wr_cache_unlock(cache);
    return queued;
}

/* That nothing of the stream's can be waited for is no failure. */
static weir_status await_one(wr_cache *cache, wr_wait *wait, uint64_t newest, bool *waited)
{
    const weir_status status = await_first(cache, wait, newest);
    *waited = status == WEIR_OK;
    return status == WEIR_ERR_NOT_READY ? WEIR_OK : status;
}

weir_status wr_pending_wait(wr_cache *cache, const wr_mempool *pool, uint64_t newest, bool *waited)
{
    weir_status first = WEIR_OK;
    *waited = false;
    wr_lock_acquire(&cache->poll_lock);
    for (wr_wait *w = first_wait(cache); w; w = *waited ? NULL : w->next) /* it may be gone once it was waited for */
        if (is_awaited(cache, w, pool, newest)) wr_keep_first(&first, await_one(cache, w, newest, waited));
    poll_all(cache, true);
    wr_lock_release(&cache->poll_lock);
    return *waited ? WEIR_OK : first;
}

weir_status wr_pending_wait_all(wr_cache *cache, const wr_mempool *pool)
{
    const uint64_t newest = wr_pending_queued(cache);
    for (bool waited = true; waited;) WR_TRY(wr_pending_wait(cache, pool, newest, &waited));
    return WEIR_OK;
}

void wr_pending_end_stream(wr_cache *cache, uint64_t stream_id)
{
    wr_lock_acquire(&cache->poll_lock);
    for (wr_wait *w = first_wait(cache); w; w = w->next) {
        if (w->stream_id != stream_id) continue;
        wr_lock_acquire(&w->lock); /* nobody asks the driver about the stream meanwhile */
        atomic_store(&w->ended, true);
        wr_lock_release(&w->lock);
        wr_backoff b = { 0 };
        while (atomic_load(&w->marking) != 0) wr_backoff_wait(&b); /* for as long as recording an event takes */
    }
    wr_lock_release(&cache->poll_lock);
}

void wr_pending_release(wr_cache *cache)
{
    while (cache->waits) {
        wr_wait *w = cache->waits;
        for (const wr_use *u = w->first; u; u = u->next_in_wait)
            if (u->event) wr_event_put(w->events, u->event);
        cache->waits = w->next;
        free_wait(w);
    }
}
