#include "pool/pause.h"

#include "base/backoff.h"
#include "base/log.h"
#include "pool/address.h"
#include "pool/count.h"
#include "pool/front/front.h"
#include "pool/pending.h"
#include "pool/source.h"
#include "pool/starts.h"
#include "stream/quiet.h"

#include <string.h>

/* ---- which pools ------------------------------------------------------------------------------------------------- */

/* A thread that borrows from a pool does not know of its pauses. */
static bool can_pause(const wr_mempool *pool)
{
    return wr_source_maps(pool) && !pool->rules.use_on_oom;
}

static bool is_named(const wr_mempool *pool, const char *tag)
{
    return tag ? strcmp(pool->rules.tag, tag) == 0 : can_pause(pool);
}

/* Pools that cannot be paused are not resumed either, but do not keep others of their tag from that. */
static weir_status check_pools_locked(const wr_cache *cache, const char *tag, bool pausing)
{
    bool any = tag == NULL;
    for (const wr_mempool *pool = cache->pools; pool; pool = pool->next) {
        if (!is_named(pool, tag)) continue;
        any = true;
        WR_ENSURE(!pausing || can_pause(pool), WEIR_ERR_NOT_SUPPORTED,
                  "memory pool " WR_MEMPOOL_FORMAT " with tag \"%s\" cannot be paused: only pools of "
                  "WEIR_MEMORY_MAPPED or WEIR_MEMORY_EXPORTABLE without a source and without use_on_oom can",
                  WR_MEMPOOL_ARGUMENTS(wr_mempool_name_of(pool)), tag);
    }
    WR_ENSURE(any, WEIR_ERR_INVALID_ARGUMENT, "no memory pool of device %d has the tag \"%s\"", cache->device, tag);
    return WEIR_OK;
}

/* Marks the pools that change as those of a new call, unless another call is changing one of them: then *call is 0. */
static weir_status mark(wr_cache *cache, const char *tag, bool pausing, uint64_t *call)
{
    *call = 0;
    wr_cache_lock(cache);
    weir_status status = check_pools_locked(cache, tag, pausing);
    bool marks = status == WEIR_OK;
    for (const wr_mempool *pool = cache->pools; pool && marks; pool = pool->next)
        marks = !is_named(pool, tag) || pool->changing == 0;
    if (marks) *call = ++cache->pause_calls;
    for (wr_mempool *pool = cache->pools; pool && marks; pool = pool->next) {
        if (!is_named(pool, tag) || pool->paused == pausing) continue;
        pool->changing = *call;
        pool->paused = true;
    }
    wr_cache_unlock(cache);
    return status;
}

/* Takes the move lock and marks the pools; on failure neither. Another call that changes one of them is waited for,
 * with none marked. Once their fronts are empty, nothing is allocated from them. */
static weir_status begin(wr_cache *cache, const char *tag, bool pausing, uint64_t *call)
{
    for (wr_backoff b = { 0 };; wr_backoff_wait(&b)) {
        wr_lock_acquire(&cache->move_lock);
        const weir_status status = mark(cache, tag, pausing, call);
        if (*call) return WEIR_OK;
        wr_lock_release(&cache->move_lock);
        WR_TRY(status);
    }
}

/* Whether there are such pools among those that the call changes. */
static bool any_changes(wr_cache *cache, uint64_t call, bool (*passes)(const wr_mempool *pool))
{
    bool any = false;
    wr_cache_lock(cache);
    for (const wr_mempool *pool = cache->pools; pool; pool = pool->next) any |= pool->changing == call && passes(pool);
    wr_cache_unlock(cache);
    return any;
}

/* The segments of the pools that the call changes. The move lock is held: the list goes through the segments. */
static wr_segment *list_changing(wr_cache *cache, uint64_t call)
{
    wr_segment *list = NULL, **tail = &list;
    wr_cache_lock(cache);
    for (const wr_mempool *pool = cache->pools; pool; pool = pool->next)
        if (pool->changing == call) tail = wr_mempool_list_locked(pool, tail);
    wr_cache_unlock(cache);
    return list;
}

/* Unmarks them and releases the move lock. */
static void end(wr_cache *cache, uint64_t call, bool paused)
{
    wr_cache_lock(cache);
    for (wr_mempool *pool = cache->pools; pool; pool = pool->next) {
        if (pool->changing != call) continue;
        pool->changing = 0;
        pool->paused = paused;
    }
    wr_cache_unlock(cache);
    wr_lock_release(&cache->move_lock);
}

static void set_backing_locked(wr_segment *segment, wr_backing backing)
{
    const bool counts = (backing == WR_UNBACKED) != (segment->backing == WR_UNBACKED);
    if (counts) wr_count(wr_counter_backing_out, segment->bin, segment->first);
    segment->backing = backing;
    segment->cache->departed++;
    if (backing == WR_UNBACKED && !segment->copy) segment->dropped++;
    if (counts) wr_count(wr_counter_backing_in, segment->bin, segment->first);
}

static void set_backing(wr_segment *segment, wr_backing backing)
{
    wr_cache_lock(segment->cache);
    set_backing_locked(segment, backing);
    wr_cache_unlock(segment->cache);
}

/* ---- weir's own uses of memory ----------------------------------------------------------------------------------- */

/* Either this sees that the pool changes, or the thread that changes it sees the hold. */
static bool hold_off_locked(wr_mempool *pool)
{
    if (pool->paused) return false;
    atomic_fetch_add(&pool->pauses_held_off, 1);
    return true;
}

wr_mempool *wr_pause_hold_off(wr_cache *cache, const wr_segment *segment, const void *address, uint32_t *dropped)
{
    wr_mempool *held = NULL;
    wr_cache_lock(cache);
    if (segment && wr_address_find(address) == segment && hold_off_locked(segment->bin->pool)) {
        held = segment->bin->pool;
        *dropped = segment->dropped;
    }
    wr_cache_unlock(cache);
    return held;
}

bool wr_pause_hold_off_pool(wr_mempool *pool)
{
    wr_cache_lock(pool->cache);
    const bool held = hold_off_locked(pool);
    wr_cache_unlock(pool->cache);
    return held;
}

void wr_pause_let_on(wr_mempool *pool)
{
    atomic_fetch_sub(&pool->pauses_held_off, 1);
}

static bool is_held_off(const wr_mempool *pool)
{
    return atomic_load(&pool->pauses_held_off) != 0;
}

/* Waits for uses that began before the pools were marked. They take none of the locks that this thread holds. */
static void wait_for_own_uses(wr_cache *cache, uint64_t call)
{
    wr_backoff b = { 0 };
    while (any_changes(cache, call, is_held_off)) wr_backoff_wait(&b);
}

/* ---- contents ---------------------------------------------------------------------------------------------------- */

/* Assigns every block in use its offset in the copy. */
static size_t plan(const wr_segment *segment)
{
    size_t bytes = 0;
    wr_cache_lock(segment->cache);
    for (wr_block *b = segment->first; b; b = b->next) {
        if (b->state == WR_BLOCK_FREE) continue;
        b->kept_at = bytes;
        bytes += b->bytes;
    }
    wr_cache_unlock(segment->cache);
    return bytes;
}

/* Adjacent blocks in use, which are adjacent in the copy too. */
typedef struct run {
    char *base;
    size_t bytes, kept_at;
} run;

/* The first run at or behind the end of the last one. Blocks may be freed at any time, but none is handed out. */
static bool next_run(const wr_segment *segment, run *r)
{
    const char *from = r->base + r->bytes;
    if (from == segment->base + segment->bytes) return false;
    wr_cache_lock(segment->cache);
    const wr_block *b = wr_starts_block_at(segment, from);
    while (b && b->state == WR_BLOCK_FREE) b = b->next;
    const bool found = b != NULL;
    if (found) *r = (run){ .base = b->base, .kept_at = b->kept_at };
    for (; b && b->state != WR_BLOCK_FREE; b = b->next) r->bytes += b->bytes;
    wr_cache_unlock(segment->cache);
    return found;
}

static weir_status queue_copies(const wr_cache *cache, const wr_segment *segment, void *stream, bool out)
{
    run r = { .base = segment->base };
    while (next_run(segment, &r)) {
        char *kept = segment->copy + r.kept_at;
        WR_TRY(
            wr_driver(cache->backend, copy, cache->device, stream, out ? kept : r.base, out ? r.base : kept, r.bytes));
    }
    return WEIR_OK;
}

/* Copies the segments' contents out or back in, on a stream of its own: the default one may be part of a capture that
 * weir does not know of. */
static weir_status copy_contents(const wr_cache *cache, const wr_segment *list, bool out)
{
    void *stream = NULL;
    while (list && !list->copy) list = list->listed;
    if (!list) return WEIR_OK;
    WR_TRY(wr_driver(cache->backend, stream_create, cache->device, 0, &stream));
    weir_status status = WEIR_OK;
    for (const wr_segment *s = list; s && status == WEIR_OK; s = s->listed)
        if (s->copy) status = queue_copies(cache, s, stream, out);
    wr_keep_first(&status, wr_driver(cache->backend, stream_synchronize, cache->device, stream));
    wr_keep_first(&status, wr_driver(cache->backend, stream_destroy, cache->device, stream));
    return status;
}

/* A copy that the driver does not take back stays with its segment; pausing the segment or giving it back tries
 * again. */
static weir_status drop_copy(const wr_cache *cache, wr_segment *segment)
{
    if (!segment->copy) return WEIR_OK;
    WR_TRY(wr_driver(cache->backend, pinned_free, cache->device, segment->copy, segment->copy_bytes));
    segment->copy = NULL;
    return WEIR_OK;
}

static void drop_copies(const wr_cache *cache, wr_segment *list)
{
    const wr_saved_failure told = wr_fail_save();
    for (wr_segment *s = list; s; s = s->listed)
        if (drop_copy(cache, s) != WEIR_OK)
            wr_log(WR_LOG_WARN, "device %d: %zu bytes of pinned memory could not be given back to the driver: %s",
                   cache->device, s->copy_bytes, weir_error_text());
    wr_fail_restore(told);
}

static weir_status keep_contents(const wr_cache *cache, wr_segment *list)
{
    for (wr_segment *s = list; s; s = s->listed) {
        void *copy = NULL;
        const size_t bytes = plan(s);
        if (bytes == 0) continue;
        WR_TRY(wr_driver(cache->backend, pinned_alloc, cache->device, bytes, &copy));
        s->copy = copy;
        s->copy_bytes = bytes;
    }
    return copy_contents(cache, list, true);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void announce_leaving(wr_segment *list, const wr_segment *end)
{
    for (wr_segment *s = list; s != end; s = s->listed) {
        const wr_range range = wr_range_of(s);
        (void)wr_source_tell(s->bin->pool, WEIR_RANGE_LEAVING, &range);
    }
}

/* If the program refuses one, it is told that those before are leaving again. */
static weir_status announce_added(wr_segment *list)
{
    for (wr_segment *s = list; s; s = s->listed) {
        const wr_range range = wr_range_of(s);
        weir_status status = wr_source_tell(s->bin->pool, WEIR_RANGE_ADDED, &range);
        if (status == WEIR_OK) continue;
        announce_leaving(list, s);
        return status;
    }
    return WEIR_OK;
}

static weir_status unmap_all(const wr_cache *cache, wr_segment *list)
{
    for (wr_segment *s = list; s; s = s->listed) {
        WR_TRY(wr_driver(cache->backend, vm_unmap, cache->device, s->base, s->bytes));
        set_backing(s, WR_UNMAPPED);
    }
    return WEIR_OK;
}

/* Memory that the driver does not take back stays with the segment, and is mapped there again on resuming. */
static void give_memory_back(const wr_cache *cache, wr_segment *list)
{
    for (wr_segment *s = list; s; s = s->listed) {
        if (wr_driver(cache->backend, vm_destroy, cache->device, s->chunk, s->bytes) != WEIR_OK) {
            wr_log(WR_LOG_WARN, "device %d: %zu bytes of paused memory could not be given back to the driver: %s",
                   cache->device, s->bytes, weir_error_text());
            continue;
        }
        s->chunk = 0;
        set_backing(s, WR_UNBACKED);
    }
}

/* New memory does not count before all segments have theirs: until then such a segment is marked as unbacked. */
static weir_status back_all(wr_segment *list)
{
    for (wr_segment *s = list; s; s = s->listed) {
        if (s->backing == WR_BACKED) continue;
        wr_range range = wr_range_of(s);
        const weir_status status = wr_source_back(s->bin->pool, &range);
        const bool counts = status != WEIR_OK || s->backing != WR_UNBACKED;
        s->chunk = range.chunk;
        if (counts && range.backing != s->backing) set_backing(s, range.backing);
        WR_TRY(status);
    }
    return WEIR_OK;
}

/* Takes the new memory away again. What cannot be taken away is counted, and is there when resuming is tried again. */
static void unback_all(const wr_cache *cache, wr_segment *list)
{
    const wr_saved_failure told = wr_fail_save();
    for (wr_segment *s = list; s; s = s->listed) {
        if (s->backing != WR_UNBACKED || s->chunk == 0) continue;
        if (wr_driver(cache->backend, vm_unmap, cache->device, s->base, s->bytes) != WEIR_OK) {
            set_backing(s, WR_BACKED);
        } else if (wr_driver(cache->backend, vm_destroy, cache->device, s->chunk, s->bytes) != WEIR_OK) {
            set_backing(s, WR_UNMAPPED);
        } else {
            s->chunk = 0;
        }
    }
    wr_fail_restore(told);
}

/* ---- pausing ----------------------------------------------------------------------------------------------------- */

static weir_status prepare(const wr_cache *cache, wr_segment *list, weir_pause_mode mode)
{
    for (wr_segment *s = list; s; s = s->listed) WR_TRY(drop_copy(cache, s));
    return mode == WEIR_PAUSE_KEEP ? keep_contents(cache, list) : WEIR_OK;
}

/* *paused: whether they are paused now, on failure too. */
static weir_status pause_listed(const wr_cache *cache, wr_segment *list, weir_pause_mode mode, bool *paused)
{
    weir_status status = prepare(cache, list, mode);
    *paused = status == WEIR_OK;
    if (status == WEIR_OK) {
        announce_leaving(list, NULL);
        status = unmap_all(cache, list);
        if (status == WEIR_OK) {
            give_memory_back(cache, list);
            return WEIR_OK;
        }
        /* All memory is there, with its contents. */
        weir_status undone = back_all(list);
        if (undone == WEIR_OK) undone = announce_added(list);
        *paused = undone != WEIR_OK;
        if (undone != WEIR_OK)
            wr_fail_prefix("pausing failed, and so did undoing it; the pools are paused but keep their memory; call "
                           "weir_resume(). ");
    }
    drop_copies(cache, list);
    return status;
}

/* Without any lock that beginning a capture takes, since the work may wait for what comes after that. */
static weir_status finish_present_work(wr_cache *cache, const char *tag)
{
    bool any = false;
    wr_cache_lock(cache);
    weir_status status = check_pools_locked(cache, tag, true);
    for (const wr_mempool *pool = cache->pools; pool && !any; pool = pool->next)
        any = is_named(pool, tag) && !pool->paused && pool->segments != 0;
    wr_cache_unlock(cache);
    return any && status == WEIR_OK ? wr_quiet_synchronize(cache->events, cache->streams, "weir_pause") : status;
}

static bool has_segments(const wr_mempool *pool)
{
    return pool->segments != 0;
}

/* Without the move lock, since that work may wait for a thread that needs memory, or has other pools resumed. */
static weir_status finish_work_of_marked(wr_cache *cache, uint64_t call)
{
    wait_for_own_uses(cache, call);
    if (!any_changes(cache, call, has_segments)) return WEIR_OK;
    return wr_quiet_synchronize(cache->events, cache->streams, "weir_pause");
}

weir_status wr_pause(wr_cache *cache, const char *tag, weir_pause_mode mode)
{
    WR_TRY(finish_present_work(cache, tag));
    /* Blocks that are still pending after this, for streams that capture elsewhere, are kept like those in use. */
    WR_TRY(wr_pending_wait_all(cache, NULL));
    uint64_t call = 0;
    bool paused = false;
    WR_TRY(begin(cache, tag, true, &call));
    wr_fronts_empty(cache);
    wr_lock_release(&cache->move_lock);
    weir_status status = finish_work_of_marked(cache, call);
    wr_lock_acquire(&cache->move_lock);
    if (status == WEIR_OK) status = pause_listed(cache, list_changing(cache, call), mode, &paused);
    end(cache, call, paused);
    return status;
}

/* ---- resuming ---------------------------------------------------------------------------------------------------- */

/* Reserves room under the limit, as growing does. */
static weir_status take_room(wr_cache *cache, const wr_segment *list, size_t *bytes)
{
    *bytes = 0;
    for (const wr_segment *s = list; s; s = s->listed) *bytes += s->bytes - wr_segment_held(s);
    wr_cache_lock(cache);
    weir_status status = wr_cache_check_limit_locked(cache, *bytes);
    if (status == WEIR_OK) cache->growing += *bytes;
    wr_cache_unlock(cache);
    return status;
}

static weir_status resume_listed(wr_cache *cache, wr_segment *list, size_t *missing)
{
    WR_TRY(take_room(cache, list, missing));
    weir_status status = back_all(list);
    if (status == WEIR_OK) status = copy_contents(cache, list, false);
    if (status == WEIR_OK) status = announce_added(list);
    if (status != WEIR_OK) unback_all(cache, list);

    wr_cache_lock(cache);
    cache->growing -= *missing;
    for (wr_segment *s = list; s && status == WEIR_OK; s = s->listed) set_backing_locked(s, WR_BACKED);
    wr_cache_unlock(cache);
    if (status == WEIR_OK) drop_copies(cache, list);
    return status;
}

weir_status wr_resume(wr_cache *cache, const char *tag, size_t *missing)
{
    uint64_t call = 0;
    *missing = 0;
    WR_TRY(begin(cache, tag, false, &call));
    const weir_status status = resume_listed(cache, list_changing(cache, call), missing);
    end(cache, call, status != WEIR_OK);
    return status;
}
