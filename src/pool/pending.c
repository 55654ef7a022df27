#include "pool/pending.h"

#include "base/meta.h"
#include "pool/address.h"
#include "pool/count.h"
#include "pool/starts.h"

#include <sched.h>

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
    w->stream_id = id;
    w->native = stream->native;
    w->events = events;
    w->next = cache->waits;
    cache->waits = w;
    *out = w;
    return WEIR_OK;
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
        wr_meta_free(w);
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
    wr_history_record(&cache->history, WEIR_EVENT_RECORD_STREAM, block->base, block->requested, stream->native,
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

/* An event behind the stream's present work. NULL: there cannot be one now, because the stream is capturing (the event
 * would become part of the graph) or the driver refuses. */
static void *record_event(const wr_wait *wait)
{
    void *event = NULL;
    return wr_event_behind(wait->events, wait->native, &event) == WEIR_OK ? event : NULL;
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

static void *mark(wr_wait *wait)
{
    void *event = wr_wait_enter(wait) ? record_event(wait) : NULL;
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
    /* If the stream has ended, its work is over. */
    const bool chained = !wr_wait_enter(wait) || wr_event_chained(wait->events, wait->native, to);
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
    cache->chains = true;
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

/* Completes the wait's first use. The block is reclaimed with its last use. Poll lock and cache lock held. */
static void complete_locked(wr_cache *cache, wr_wait *wait)
{
    wr_use *use = wait->first;
    wr_block *block = use->block;
    wait->first = use->next_in_wait;
    if (!wait->first) wait->last = NULL;
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

/* Asks the driver about a use, without the cache's lock. If no event could be recorded, this may wait for the
 * stream. */
static weir_status ask(const wr_cache *cache, wr_wait *wait, const wr_use *use, bool wait_for_it)
{
    if (use->event) return wr_driver(cache->backend, event_query, wait->events->device, use->event);
    if (atomic_load(&wait->ended)) return WEIR_OK;
    return wr_event_ask_stream(wait->events, wait->native, wait_for_it);
}

static wr_use *first_use(wr_cache *cache, const wr_wait *wait)
{
    wr_cache_lock(cache);
    wr_use *use = wait->first;
    wr_cache_unlock(cache);
    return use;
}

/* Poll lock held. */
static void pop_first(wr_cache *cache, wr_wait *wait)
{
    wr_cache_lock(cache);
    void *event = wait->first->holders == 0 ? wait->first->event : NULL;
    complete_locked(cache, wait);
    wr_cache_unlock(cache);
    if (event) wr_event_put(wait->events, event);
}

/* Pops the stream's first use when its work is over. Poll lock held. */
static weir_status try_first(wr_cache *cache, wr_wait *wait)
{
    wr_use *use = first_use(cache, wait);
    if (!use) return WEIR_ERR_NOT_READY;
    if (!use->event) use->event = mark(wait);
    const weir_status status = ask(cache, wait, use, false);
    if (status == WEIR_OK) pop_first(cache, wait);
    return status;
}

/* Pops the stream's uses that are over, first to last. Poll lock held. */
static void poll_stream(wr_cache *cache, wr_wait *wait)
{
    while (try_first(cache, wait) == WEIR_OK) continue;
}

/* Takes the poll lock if there is anything to ask about and nobody else is polling. */
static bool begin_poll(wr_cache *cache)
{
    if (WR_LIKELY(atomic_load_explicit(&cache->pending, memory_order_relaxed) == 0)) return false;
    return wr_lock_try(&cache->poll_lock);
}

/* Hits do not poll. Without this, what completed long ago would be found only at the next miss, after others were cut
 * from larger blocks in its stead. The price is a query too many per recorded event. The block's own uses keep its
 * waits. */
static void poll_streams_of(wr_cache *cache, const wr_block *block)
{
    if (!begin_poll(cache)) return;
    for (const wr_use *u = block->uses; u; u = u->next_of_block) poll_stream(cache, u->wait);
    wr_lock_release(&cache->poll_lock);
}

void wr_pending_start(wr_cache *cache, wr_block *block)
{
    poll_streams_of(cache, block);
    for (wr_use *u = block->uses; u; u = u->next_of_block) u->event = mark(u->wait);

    wr_cache_lock(cache);
    for (wr_use *u = block->uses; u; u = u->next_of_block) {
        wr_wait *w = u->wait;
        if (w->last)
            w->last->next_in_wait = u;
        else
            w->first = u;
        w->last = u;
        u->next_in_wait = NULL;
        u->serial = ++cache->queued_uses;
        atomic_fetch_add_explicit(&cache->pending, 1, memory_order_relaxed);
    }
    wr_cache_unlock(cache);
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
    const bool popped = use->block == NULL, last = --use->holders == 0 && popped;
    void *event = use->event;
    if (last) wr_record_use_done(cache, use);
    wr_cache_unlock(cache);
    if (last) wr_event_put(events, event);
    return popped;
}

/* As try_first, but waits for the work, without the poll lock, which others need for unrelated streams. */
static weir_status await_first(wr_cache *cache, wr_wait *wait, uint64_t newest, bool *went_away)
{
    wr_use *use = first_use(cache, wait);
    if (!use || use->serial > newest) return WEIR_ERR_NOT_READY;
    if (!use->event) use->event = mark(wait);
    weir_status status = WEIR_OK;
    if (use->event) {
        wr_event_pool *events = wait->events;
        hold(cache, use);
        wr_lock_release(&cache->poll_lock);
        *went_away = true;
        status = wr_driver(cache->backend, event_synchronize, events->device, use->event);
        wr_lock_acquire(&cache->poll_lock);
        if (let_go(cache, use, events)) return WEIR_OK;
    } else {
        status = ask(cache, wait, use, true);
    }
    if (status == WEIR_OK) pop_first(cache, wait);
    return status;
}

static wr_wait *first_wait(wr_cache *cache)
{
    wr_cache_lock(cache);
    wr_wait *wait = cache->waits;
    wr_cache_unlock(cache);
    return wait;
}

static void poll_all(wr_cache *cache)
{
    const wr_saved_failure told = wr_fail_save(); /* what cannot be asked now is asked later */
    for (wr_wait *w = first_wait(cache); w; w = w->next) poll_stream(cache, w);
    wr_fail_restore(told);
    wr_cache_lock(cache);
    drop_unused_waits_locked(cache);
    wr_cache_unlock(cache);
}

void wr_pending_flush(wr_cache *cache)
{
    wr_lock_acquire(&cache->poll_lock);
    poll_all(cache);
    wr_lock_release(&cache->poll_lock);
}

void wr_pending_poll(wr_cache *cache)
{
    if (!begin_poll(cache)) return;
    poll_all(cache);
    wr_lock_release(&cache->poll_lock);
}

uint64_t wr_pending_queued(wr_cache *cache)
{
    wr_cache_lock(cache);
    const uint64_t queued = cache->queued_uses;
    wr_cache_unlock(cache);
    return queued;
}

weir_status wr_pending_wait(wr_cache *cache, uint64_t newest, bool *waited)
{
    weir_status status = WEIR_ERR_NOT_READY;
    wr_lock_acquire(&cache->poll_lock);
    bool went_away = false; /* then the list may have changed */
    for (wr_wait *w = first_wait(cache); w && status == WEIR_ERR_NOT_READY; w = went_away ? NULL : w->next)
        status = await_first(cache, w, newest, &went_away);
    poll_all(cache);
    wr_lock_release(&cache->poll_lock);
    *waited = status == WEIR_OK;
    return status == WEIR_ERR_NOT_READY ? WEIR_OK : status;
}

weir_status wr_pending_wait_all(wr_cache *cache)
{
    const uint64_t newest = wr_pending_queued(cache);
    for (bool waited = true; waited;) WR_TRY(wr_pending_wait(cache, newest, &waited));
    return WEIR_OK;
}

void wr_pending_end_stream(wr_cache *cache, uint64_t stream_id)
{
    /* The poll lock keeps other threads from asking the driver about the stream meanwhile. */
    wr_lock_acquire(&cache->poll_lock);
    for (wr_wait *w = first_wait(cache); w; w = w->next) {
        if (w->stream_id != stream_id) continue;
        atomic_store(&w->ended, true);
        while (atomic_load(&w->marking) != 0) sched_yield(); /* for as long as recording an event takes */
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
        wr_meta_free(w);
    }
}
