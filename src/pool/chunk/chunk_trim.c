/*
 * chunk_trim: giving back chunks and slots. As with segments, each driver call lies between two locked steps.
 */
#include "base/log.h"
#include "base/meta.h"
#include "pool/address.h"
#include "pool/bin.h"
#include "pool/chunk/chunk.h"
#include "pool/chunk/stitch_bounds.h"
#include "pool/count.h"
#include "pool/plan/serve.h"
#include "pool/share.h"
#include "pool/source.h"
#include "pool/starts.h"
#include "stream/event.h"

#include <assert.h>

/* So many times what is held may be mapped: unmapping stale slots costs as much as mapping. Streams that have the same
 * memory by turns find it mapped at their addresses if it may be twice for each, up to a most. */
enum { MAPPED_TIMES = 16, MAPPED_TIMES_EACH = 2, MAPPED_TIMES_MOST = 64 };

/* Regions are reclaimed once this share of the addresses is left, which takes many streams, and then with so small a
 * share more each time. */
enum { RECLAIM_LEFT_SHARE = 4, RECLAIM_SHARE = 128 };

/* ---- one slot ---------------------------------------------------------------------------------------------------- */

static void *place_of(const wr_slot *slot)
{
    return slot->region->base + slot->at;
}

static void hide_slot_locked(wr_cache *cache, wr_slot *slot)
{
    wr_slot_drop_locked(cache, slot);
    wr_address_remove(place_of(slot), slot->chunk->bytes);
}

/* Cannot fail: the tables of the address map are there, and the region has room for a slot it had. */
static void show_slot_locked(wr_cache *cache, wr_slot *slot)
{
    weir_status mapped = wr_address_insert(place_of(slot), slot->chunk->bytes, slot->region);
    assert(mapped == WEIR_OK);
    (void)mapped;
    wr_slot_add_locked(cache, slot);
}

static weir_status unmap(const wr_cache *cache, const wr_slot *slot)
{
    return wr_driver(cache->backend, vm_unmap, cache->device, place_of(slot), slot->chunk->bytes);
}

/* Unmaps a stale slot and drops it. If the driver refuses, the slot stays. */
static weir_status unmap_stale(wr_cache *cache, wr_slot *slot)
{
    wr_cache_lock(cache);
    hide_slot_locked(cache, slot);
    wr_cache_unlock(cache);
    weir_status status = unmap(cache, slot);
    wr_cache_lock(cache);
    if (status == WEIR_OK)
        wr_slot_record_done(cache, slot);
    else
        show_slot_locked(cache, slot);
    wr_cache_unlock(cache);
    return status;
}

/* ---- whole chunks ------------------------------------------------------------------------------------------------ */

/* Which chunks go. */
typedef struct trimming {
    const wr_mempool_scope *scope;
    bool planned; /* including those of planned places */
} trimming;

/* Since the survey some of it may have been handed out, or a graph may have begun to use the pool. */
static bool may_go_locked(const trimming *t, const wr_chunk *chunk)
{
    if (!wr_mempool_in_scope_locked(chunk->pool, t->scope)) return false;
    for (const wr_slot *s = chunk->slots; s; s = s->next_of_chunk) {
        if (!wr_slot_is_stale(s) && !wr_slot_free_block(s)) return false;
    }
    return true;
}

/* Makes the chunk nobody's, but held and mapped. *home: a slot with a part of it; NULL: it is in use. */
static weir_status take_out(wr_trim_wait *wait, const trimming *t, wr_chunk *chunk, wr_slot **home, wr_block **aside)
{
    wr_cache *cache = wait->cache;
    *home = NULL;
    wr_cache_lock(cache);
    weir_status status = wr_records_set_aside(cache, 2, aside);
    if (status == WEIR_OK) status = wr_records_spare_blocks(cache, 2 * chunk->parts);
    if (status == WEIR_OK && may_go_locked(t, chunk)) {
        status = wr_trim_wait_launches_locked(wait, chunk->pool);
        if (status == WEIR_OK) *home = wr_chunk_hold_locked(chunk);
    }
    if (!*home) wr_records_put_back(cache, aside);
    wr_cache_unlock(cache);
    return status;
}

/* Undoes take_out. */
static void let_go(wr_cache *cache, wr_chunk *chunk, wr_block **aside)
{
    wr_cache_lock(cache);
    wr_chunk_let_go_locked(cache, chunk);
    wr_records_put_back(cache, aside);
    wr_cache_unlock(cache);
}

static void leave(wr_cache *cache, wr_chunk *chunk)
{
    wr_cache_lock(cache);
    (void)wr_chunk_leave_locked(cache, chunk);
    wr_cache_unlock(cache);
}

/* All of it is the slot's again, as one part. */
static void put_in(wr_cache *cache, wr_slot *home, wr_block **aside)
{
    wr_cache_lock(cache);
    wr_records_put_back(cache, aside);
    wr_slot_enter_locked(cache, home, 0, home->chunk->bytes);
    wr_cache_unlock(cache);
}

static weir_status unmap_others(wr_cache *cache, const wr_chunk *chunk, const wr_slot *home)
{
    for (wr_slot *s = chunk->slots, *next; s; s = next) {
        next = s->next_of_chunk;
        if (s != home) WR_TRY(unmap_stale(cache, s));
    }
    return WEIR_OK;
}

/* Takes the memory back from its last address. If the driver keeps it, it is mapped there again. If that is refused
 * too, its state is unknown: addresses where something may stay mapped must not be asked for again. */
static weir_status drop_memory(wr_cache *cache, const wr_slot *home)
{
    wr_range range = {
        .base = place_of(home), .bytes = home->chunk->bytes, .chunk = home->chunk->handle, .backing = WR_BACKED
    };
    WR_TRY(unmap(cache, home));
    wr_share_end_export(home->chunk);
    weir_status status = wr_driver(cache->backend, vm_destroy, cache->device, range.chunk, range.bytes);
    if (status == WEIR_OK || wr_source_map(cache, &range) == WEIR_OK) return status;
    wr_log(WR_LOG_WARN, "device %d: %zu bytes could not be given back to the driver: %s", cache->device, range.bytes,
           weir_error_text());
    wr_cache_lock(cache);
    home->region->region->closed = true;
    home->chunk->stuck = true;
    wr_cache_unlock(cache);
    return WEIR_OK;
}

/* While the driver is asked, the chunk already counts as given back, so that what another thread gets instead is not
 * counted twice. The limit still counts it. */
static weir_status give_back(wr_cache *cache, wr_chunk *chunk, wr_slot *home)
{
    wr_mempool *pool = chunk->pool;
    wr_cache_lock(cache);
    cache->departed++;
    hide_slot_locked(cache, home);
    wr_chunk_drop_locked(cache, chunk);
    cache->leaving += chunk->bytes;
    pool->leaving += chunk->bytes;
    wr_cache_unlock(cache);

    weir_status status = drop_memory(cache, home);
    wr_cache_lock(cache);
    cache->leaving -= chunk->bytes;
    pool->leaving -= chunk->bytes;
    if (status == WEIR_OK) {
        WR_COUNT(pool, driver_frees, 1);
        cache->ledger.changes++;
        wr_stitch_note_scarce(cache); /* not to be held again at once */
        cache->chunks.gathered_at = cache->chunks.asked_at = 0;
        cache->chunks.mixed = false;
        if (chunk->stuck) wr_cache_lose(cache, chunk->bytes);
        wr_slot_record_done(cache, home);
        wr_chunk_record_done(cache, chunk);
    } else {
        wr_chunk_add_locked(cache, chunk);
        show_slot_locked(cache, home);
    }
    wr_cache_unlock(cache);
    return status;
}

static weir_status trim_chunk(wr_trim_wait *wait, const trimming *t, wr_chunk *chunk, size_t *released)
{
    wr_cache *cache = wait->cache;
    const size_t bytes = chunk->bytes;
    wr_slot *home = NULL;
    wr_block *aside = NULL;
    if (wr_trim_wait_busy(wait, wr_chunk_bin(chunk)->stream)) return WEIR_OK;
    weir_status status = take_out(wait, t, chunk, &home, &aside);
    if (!home) return status;
    status = wr_trim_wait_stream(wait, home->region->bin->stream);
    if (status != WEIR_OK) {
        let_go(cache, chunk, &aside);
        return status;
    }
    leave(cache, chunk);
    status = unmap_others(cache, chunk, home);
    if (status == WEIR_OK) status = give_back(cache, chunk, home);
    if (status != WEIR_OK) {
        put_in(cache, home, &aside);
        return status;
    }
    wr_cache_lock(cache);
    wr_records_put_back(cache, &aside);
    wr_cache_unlock(cache);
    *released += bytes;
    return WEIR_OK;
}

static weir_status list_free(wr_cache *cache, const trimming *t, wr_chunk ***list, size_t *count)
{
    void *made = NULL;
    wr_cache_lock(cache);
    const wr_chunks *c = &cache->chunks;
    weir_status status = wr_chunks_survey_begin_locked(cache);
    wr_mempool *pool = status == WEIR_OK ? wr_mempool_first_in_locked(cache, t->scope) : NULL;
    for (; pool; pool = wr_mempool_next_in_locked(pool, t->scope)) wr_chunks_survey_locked(pool);
    if (status == WEIR_OK) status = wr_meta_alloc((c->whole_count + 1) * sizeof(wr_chunk *), "free chunks", &made);
    *list = made;
    *count = 0;
    for (size_t i = 0; i < c->whole_count && status == WEIR_OK; i++)
        if ((t->planned || c->whole[i]->bin->class != WR_PLANNED) &&
            (!t->scope->stream || c->whole[i]->bin->stream == t->scope->stream))
            (*list)[(*count)++] = c->whole[i];
    wr_cache_unlock(cache);
    if (status == WEIR_OK) wr_chunks_sort(*list, *count);
    return status;
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

static weir_status release_region(wr_cache *cache, wr_segment *segment)
{
    wr_bin *bin = segment->bin;
    wr_cache_lock(cache);
    wr_bin_drop_segment(bin, segment);
    wr_serve_forget_region_locked(cache, segment);
    wr_cache_unlock(cache);
    weir_status status = wr_driver(cache->backend, vm_release, cache->device, segment->base, segment->bytes);
    wr_cache_lock(cache);
    if (status == WEIR_OK) {
        cache->chunks.addresses -= segment->bytes;
        bin->pool->segments--;
        wr_starts_remove(segment->first);
        wr_region_done(cache, segment);
    } else {
        wr_bin_add_segment(bin, segment);
    }
    wr_cache_unlock(cache);
    return status;
}

static weir_status release_regions(wr_cache *cache, const trimming *t)
{
    weir_status first = WEIR_OK;
    wr_segment *list = NULL, **tail = &list;
    wr_cache_lock(cache);
    for (wr_mempool *p = wr_mempool_first_in_locked(cache, t->scope); p; p = wr_mempool_next_in_locked(p, t->scope))
        if (wr_mempool_chunked(p)) tail = wr_mempool_list_locked(p, tail);
    wr_cache_unlock(cache);
    for (wr_segment *s = list, *next; s; s = next) {
        next = s->listed;
        if (s->region && s->region->count == 0 && !s->region->closed) wr_keep_first(&first, release_region(cache, s));
    }
    return first;
}

static weir_status trim(wr_trim_wait *wait, const trimming *t, size_t enough, size_t *released)
{
    wr_chunk **list = NULL;
    size_t count = 0;
    bool captured = false;
    weir_status first = list_free(wait->cache, t, &list, &count);
    for (size_t i = 0; i < count && *released < enough; i++)
        wr_keep_first(&first, wr_trim_wait_spare(trim_chunk(wait, t, list[i], released), &captured));
    wr_meta_free(list);
    return first == WEIR_OK && captured ? WEIR_ERR_CAPTURE : first;
}

weir_status wr_chunks_trim_unplanned(wr_trim_wait *wait, size_t enough, size_t *released)
{
    const wr_mempool_scope scope = { .of = WR_SCOPE_ONE, .pool = wait->cache->pools };
    const trimming t = { .scope = &scope };
    return trim(wait, &t, enough, released);
}

weir_status wr_chunks_trim(wr_trim_wait *wait, const wr_mempool_scope *scope, size_t enough, size_t *released)
{
    wr_cache *cache = wait->cache;
    const trimming t = { .scope = scope, .planned = true };
    if (cache->chunks.region_bytes == 0) return WEIR_OK;
    weir_status first = trim(wait, &t, enough, released);
    if (*released >= enough) return first;
    if (enough == SIZE_MAX)
        wr_keep_first(&first, release_regions(cache, &t));
    else
        wr_clean_up(release_regions(cache, &t)); /* the memory was all that was wanted */
    return first;
}

/* ---- stale slots ------------------------------------------------------------------------------------------------- */

/* Bytes; where the number of mappings is bounded, as many as that number of them have on average. */
static uint64_t mapped_most(const wr_cache *cache)
{
    const wr_chunks *c = &cache->chunks;
    uint64_t times = MAPPED_TIMES_EACH * (uint64_t)cache->front_count;
    if (times < MAPPED_TIMES) times = MAPPED_TIMES;
    if (times > MAPPED_TIMES_MOST) times = MAPPED_TIMES_MOST;
    const uint64_t most = times * (uint64_t)cache->stats.reserved_bytes[WEIR_STAT_ALL].current;
    if (c->mappings_most == 0 || c->mappings <= c->mappings_most) return most;
    const uint64_t share = c->mapped_bytes / c->mappings * c->mappings_most;
    return share < most ? share : most;
}

/* Graphs may use stale slots at every launch. */
static uint64_t bytes_too_many(wr_cache *cache, const wr_bin *bin)
{
    wr_cache_lock(cache);
    const uint64_t mapped = cache->chunks.mapped_bytes;
    const uint64_t most = mapped_most(cache);
    const bool graphed = bin->pool->graphed;
    wr_cache_unlock(cache);
    return mapped > most && !graphed ? mapped - most : 0;
}

/* Work queued before a slot became stale may still use it; an event behind that work tells. *moment: slots that were
 * stale by then are no longer in use. */
static bool pass_fence(wr_cache *cache, wr_bin *bin, uint64_t *moment)
{
    if (!bin->fence) {
        if (wr_event_behind(cache->events, bin->stream->native, &bin->fence) != WEIR_OK || !bin->fence) return false;
        bin->fenced = cache->chunks.moments;
    }
    if (wr_driver(cache->backend, event_query, cache->device, bin->fence) != WEIR_OK) return false;
    wr_bin_drop_fence(bin);
    *moment = bin->fenced;
    return true;
}

static wr_slot *oldest_stale(const wr_bin *bin)
{
    wr_slot *oldest = NULL;
    for (const wr_segment *s = bin->segments; s; s = s->next) {
        wr_slot *slot = s->region ? TAILQ_FIRST(&s->region->stale) : NULL;
        if (slot && (!oldest || slot->stale_since < oldest->stale_since)) oldest = slot;
    }
    return oldest;
}

/* Of one bin, oldest first; returns how many bytes are still too many. */
static uint64_t unmap_stale_of(wr_cache *cache, wr_bin *bin, uint64_t many)
{
    uint64_t moment = 0;
    if (many == 0 || !pass_fence(cache, bin, &moment)) return many;
    for (wr_slot *slot; many > 0 && (slot = oldest_stale(bin)) && slot->stale_since <= moment;) {
        const size_t bytes = slot->chunk->bytes;
        if (unmap_stale(cache, slot) != WEIR_OK) break; /* it costs only addresses */
        many -= bytes < many ? bytes : many;
    }
    return many;
}

/* The bin of the slot that has been stale for longest, of the first few that may be unmapped. */
static wr_bin *longest_stale(wr_cache *cache)
{
    enum { LOOKS = 64 };
    wr_bin *found = NULL;
    wr_cache_lock(cache); /* graphs come and go without the move lock */
    const wr_slot *slot = TAILQ_FIRST(&cache->chunks.stale);
    for (int looks = 0; slot && !found && looks < LOOKS; looks++, slot = TAILQ_NEXT(slot, stale_of_all))
        if (!slot->region->bin->pool->graphed && slot->region->bin->class != WR_PLANNED) found = slot->region->bin;
    wr_cache_unlock(cache);
    return found;
}

/* What a bin has left that got nothing since this one's oldest slot became stale goes first: its stream may never come
 * back. Streams that take turns each give up their own. */
void wr_chunks_unmap_stale(wr_cache *cache, wr_bin *bin)
{
    uint64_t many = bytes_too_many(cache, bin);
    wr_bin *const other = many ? longest_stale(cache) : NULL;
    const wr_slot *own = many ? oldest_stale(bin) : NULL;
    if (other && other != bin && (!own || other->grew < own->stale_since)) many = unmap_stale_of(cache, other, many);
    (void)unmap_stale_of(cache, bin, many);
    bin->grew = cache->chunks.moments;
}

static bool is_left_locked(const wr_segment *segment)
{
    const wr_region *region = segment->region;
    if (!region || region->closed || segment->bin->class == WR_PLANNED || segment->bin->pool->graphed) return false;
    for (uint32_t i = 0; i < region->count; i++)
        if (!region->slots[i].stale) return false;
    return true;
}

static void reclaim_region(wr_cache *cache, wr_segment *segment)
{
    uint64_t moment = 0;
    wr_cache_lock(cache);
    const bool left = is_left_locked(segment);
    wr_cache_unlock(cache);
    if (!left) return;
    struct wr_stale_slots *stale = &segment->region->stale;
    if (!TAILQ_EMPTY(stale) && !pass_fence(cache, segment->bin, &moment)) return;
    for (wr_slot *slot; (slot = TAILQ_FIRST(stale));)
        if (slot->stale_since > moment || unmap_stale(cache, slot) != WEIR_OK) return;
    wr_clean_up(release_region(cache, segment)); /* what the driver does not take back stays */
}

void wr_chunks_reclaim_addresses(wr_cache *cache)
{
    wr_chunks *c = &cache->chunks;
    wr_segment *list = NULL, **tail = &list;
    wr_cache_lock(cache);
    const uint64_t most = wr_regions_most(cache);
    const bool many = c->addresses > most - most / RECLAIM_LEFT_SHARE &&
                      c->addresses > c->reclaimed_at + c->reclaimed_at / RECLAIM_SHARE;
    for (const wr_mempool *pool = cache->pools; pool && many; pool = pool->next)
        if (wr_mempool_chunked(pool)) tail = wr_mempool_list_locked(pool, tail);
    wr_cache_unlock(cache);
    if (!many) return;
    for (wr_segment *next; list; list = next) {
        next = list->listed;
        reclaim_region(cache, list);
    }
    wr_cache_lock(cache);
    c->reclaimed_at = c->addresses;
    wr_cache_unlock(cache);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* Destroys the chunks whose last slot this is. */
static weir_status release_slots(wr_cache *cache, const wr_region *region)
{
    weir_status first = WEIR_OK;
    for (uint32_t i = region->count; i-- > 0;) {
        wr_slot *slot = region->slots[i].slot;
        wr_chunk *chunk = slot->chunk;
        wr_keep_first(&first, unmap(cache, slot));
        hide_slot_locked(cache, slot);
        if (chunk->slots) continue;
        wr_share_end_export(chunk);
        wr_keep_first(&first, wr_driver(cache->backend, vm_destroy, cache->device, chunk->handle, chunk->bytes));
    }
    return first;
}

weir_status wr_chunks_release_region(wr_cache *cache, const wr_segment *segment)
{
    weir_status first = release_slots(cache, segment->region);
    if (!segment->region->closed) /* else their loss was reported already */
        wr_keep_first(&first, wr_driver(cache->backend, vm_release, cache->device, segment->base, segment->bytes));
    wr_meta_free(segment->region->slots);
    wr_meta_free(segment->region);
    return first;
}
