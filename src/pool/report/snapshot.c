#include "pool/report/snapshot.h"

#include "base/meta.h"
#include "pool/count.h"
#include "pool/front/front.h"

#include <stdlib.h>

static void walk_locked(const wr_cache *cache, const wr_snapshot_what *what, wr_snapshot_device *out,
                        void (*see)(wr_snapshot_device *out, const wr_segment *segment))
{
    for (const wr_mempool *pool = cache->pools; pool; pool = pool->next) {
        if (what->pool && pool != what->pool) continue;
        for (const wr_segment *s = wr_mempool_first_segment(pool); s; s = wr_mempool_next_segment(s)) see(out, s);
    }
    const wr_segment *hidden;
    LIST_FOREACH(hidden, &cache->hidden_list, in_hidden)
        if (!what->pool || hidden->bin->pool == what->pool) see(out, hidden);
}

/* Each run of blocks with memory in a region counts as a segment. */
static bool begins_run(const wr_block *block)
{
    return block->state != WR_BLOCK_ABSENT && (!block->prev || block->prev->state == WR_BLOCK_ABSENT);
}

static void count(wr_snapshot_device *out, const wr_segment *segment)
{
    for (const wr_block *b = segment->first; b; b = b->next) {
        out->segment_count += begins_run(b);
        out->block_count += b->state != WR_BLOCK_ABSENT;
    }
}

static void begin_segment(wr_snapshot_device *out, const wr_block *block)
{
    const wr_bin *bin = block->segment->bin;
    out->segments[out->segment_count++] =
        (wr_snapshot_segment){ .address = (uint64_t)(uintptr_t)block->base,
                               .stream = (uint64_t)(uintptr_t)bin->stream->native,
                               .pool = wr_bin_pool_id(bin),
                               .is_small = !block->segment->region && bin->class == WR_SMALL,
                               .is_expandable = block->segment->region != NULL,
                               .blocks = &out->blocks[out->block_count] };
}

static void copy(wr_snapshot_device *out, const wr_segment *segment)
{
    for (const wr_block *b = segment->first; b; b = b->next) {
        if (b->state == WR_BLOCK_ABSENT) continue;
        if (begins_run(b)) begin_segment(out, b);
        wr_snapshot_segment *to = &out->segments[out->segment_count - 1];
        const weir_block_state state = wr_block_seen_as(b);
        out->blocks[out->block_count++] = (wr_snapshot_block){ .address = (uint64_t)(uintptr_t)b->base,
                                                               .bytes = b->bytes,
                                                               .requested = state == WEIR_BLOCK_FREE ? 0 : b->requested,
                                                               .stack = state == WEIR_BLOCK_FREE ? 0 : b->stack,
                                                               .state = state };
        to->bytes += b->bytes;
        to->count++;
    }
}

/* A reader who goes back through events from the blocks of one pool would not find those of other pools' events. */
static void keep_events_of(weir_mempool pool, wr_snapshot_device *out)
{
    size_t kept = 0;
    for (size_t i = 0; i < out->event_count; i++) {
        const weir_event *e = &out->events[i];
        const bool is_of_all = e->kind == WEIR_EVENT_LABEL || e->kind == WEIR_EVENT_SNAPSHOT;
        if (!is_of_all && (e->pool[0] != pool.capture || e->pool[1] != pool.user)) continue;
        if (out->event_stacks) out->event_stacks[kept] = out->event_stacks[i];
        out->events[kept++] = *e;
    }
    out->event_count = kept;
}

static weir_status copy_events_locked(wr_cache *cache, const wr_snapshot_what *what, wr_snapshot_device *out)
{
    uint64_t events = 0, dropped = 0;
    void *memory = NULL;
    const uint64_t active = (uint64_t)wr_stats_locked(cache)->active_bytes[WEIR_STAT_ALL].current;
    if (wr_history_capacity(&cache->history) == 0) return WEIR_OK;
    wr_history_record(&cache->history, WEIR_EVENT_SNAPSHOT, NULL, active, NULL, (weir_mempool){ 0, 0 });
    /* Nobody can record what happens to a block meanwhile, but other events may come. */
    const uint64_t room = wr_history_held(&cache->history) + WR_HISTORY_PAGE;
    WR_TRY(wr_meta_resize(&memory, (size_t)room * sizeof(weir_event), "snapshot"));
    out->events = memory;
    if (wr_stacks_end() != 0) {
        memory = NULL;
        WR_TRY(wr_meta_resize(&memory, (size_t)room * sizeof(uint32_t), "snapshot"));
        out->event_stacks = memory;
    }
    wr_history_copy(&cache->history, out->events, out->event_stacks, room, &events, &dropped);
    out->event_count = (size_t)events;
    out->history = wr_history_capacity(&cache->history);
    out->overflowed = dropped != 0;
    if (what->pool) keep_events_of(wr_mempool_id_of(wr_mempool_name_of(what->pool)), out);
    return WEIR_OK;
}

static weir_status take_locked(wr_cache *cache, const wr_snapshot_what *what, wr_snapshot_device *out)
{
    void *segments = NULL, *blocks = NULL;
    wr_snapshot_device numbers = { 0 };
    if (what->pool) WR_TRY(wr_mempool_check_name(what->pool, what->pool_name));
    walk_locked(cache, what, &numbers, count);
    WR_TRY(wr_meta_alloc(numbers.segment_count * sizeof(wr_snapshot_segment), "snapshot", &segments));
    out->segments = segments;
    WR_TRY(wr_meta_alloc(numbers.block_count * sizeof(wr_snapshot_block), "snapshot", &blocks));
    out->blocks = blocks;
    walk_locked(cache, what, out, copy);
    return what->history ? copy_events_locked(cache, what, out) : WEIR_OK;
}

static int by_address(const void *left, const void *right)
{
    const wr_snapshot_segment *a = left, *b = right;
    return (a->address > b->address) - (a->address < b->address);
}

/* With the fronts closed, what happens to blocks is recorded only under the cache's lock, so segments and events
 * agree. */
weir_status wr_snapshot_take(wr_cache *cache, const wr_snapshot_what *what, wr_snapshot_device *out)
{
    wr_fronts_close_and_lock(cache);
    weir_status status = take_locked(cache, what, out);
    wr_fronts_unlock_and_open(cache);
    if (status == WEIR_OK && out->segment_count)
        qsort(out->segments, out->segment_count, sizeof *out->segments, by_address);
    return status;
}
