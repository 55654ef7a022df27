#include "pool/checkpoint.h"

#include "base/backoff.h"
#include "base/meta.h"
#include "pool/account.h"
#include "pool/count.h"
#include "pool/front/front.h"
#include "pool/pending.h"
#include "pool/starts.h"
#include "stream/gate.h"

#include <assert.h>
#include <stdlib.h>

typedef struct saved_block {
    char *base;
    size_t bytes, requested;
    bool library;
} saved_block;

typedef struct saved_segment {
    char *base;
    size_t bytes;
    const wr_bin *bin; /* to compare with, not to follow */
    uint64_t stream;
    const saved_block *live; /* by address */
    size_t count;
} saved_segment;

struct weir_checkpoint {
    wr_mempool_name pool;
    saved_segment *segments; /* by address */
    saved_block *blocks;
    size_t segment_count, block_count;
};

/* ---- blocks of libraries ----------------------------------------------------------------------------------------- */

void wr_checkpoint_set_library(const void *pointer, bool library)
{
    wr_block *block = wr_cache_lock_block(pointer);
    if (WR_UNLIKELY(!block)) return;
    if (block->segment->bin->pool->is_private) block->library = library;
    wr_cache_unlock(block->segment->cache);
}

/* ---- quiet pools ------------------------------------------------------------------------------------------------- */

static bool has_pending_locked(wr_mempool *pool)
{
    const weir_memory_stats *stats = wr_pool_stats_locked(pool);
    return stats->active[WEIR_STAT_ALL].current != stats->allocation[WEIR_STAT_ALL].current;
}

/* How often a pool with pending blocks is looked at although nothing can be waited for, some tenths of a second in all:
 * another thread may be about to queue what it has just freed. A capture, which weir need not know of, takes longer. */
enum { LOOKS_IN_VAIN = 400 };

/* Takes both locks of a pool that serves requests and has no pending blocks; on failure neither. The fronts are
 * closed. */
static weir_status lock_quiet(wr_mempool *pool, wr_mempool_name name)
{
    wr_cache *cache = pool->cache;
    const wr_request asked = { .pool = pool, .pool_name = name };
    wr_backoff backoff = { 0 };
    bool waited = true;
    for (int vain = 0;; vain += !waited) {
        wr_lock_acquire(&cache->move_lock);
        wr_cache_lock(cache);
        weir_status status = wr_cache_check_pool_locked(&asked);
        const bool pending = status == WEIR_OK && has_pending_locked(pool);
        if (status == WEIR_OK && !pending) return WEIR_OK;
        wr_cache_unlock(cache);
        wr_lock_release(&cache->move_lock);
        WR_TRY(status);
        WR_ENSURE(waited || (vain < LOOKS_IN_VAIN && !wr_gate_captures()), WEIR_ERR_BUSY,
                  "memory pool " WR_MEMPOOL_FORMAT
                  " has freed blocks that other streams still use: end the capture first, if one of those is being "
                  "captured, and have no other threads go on freeing such blocks",
                  WR_MEMPOOL_ARGUMENTS(name));
        if (!waited) wr_backoff_wait(&backoff);
        WR_TRY(wr_pending_wait(cache, pool, wr_pending_queued(cache), &waited));
    }
}

static void unlock(wr_cache *cache)
{
    wr_cache_unlock(cache);
    wr_lock_release(&cache->move_lock);
}

/* ---- taking ------------------------------------------------------------------------------------------------------ */

static void count_segment(weir_checkpoint *c, const wr_segment *segment)
{
    c->segment_count++;
    for (const wr_block *b = segment->first; b; b = b->next) c->block_count += b->state == WR_BLOCK_LIVE;
}

static void save_segment(weir_checkpoint *c, const wr_segment *segment)
{
    saved_segment *s = &c->segments[c->segment_count++];
    *s = (saved_segment){ .base = segment->base,
                          .bytes = segment->bytes,
                          .bin = segment->bin,
                          .stream = segment->bin->stream->id,
                          .live = &c->blocks[c->block_count] };
    for (const wr_block *b = segment->first; b; b = b->next)
        if (b->state == WR_BLOCK_LIVE)
            c->blocks[c->block_count++] =
                (saved_block){ .base = b->base, .bytes = b->bytes, .requested = b->requested, .library = b->library };
    s->count = (size_t)(&c->blocks[c->block_count] - s->live);
}

/* For both kinds of records: each starts with its base. */
static int by_address(const void *a, const void *b)
{
    const char *one = *(char *const *)a, *other = *(char *const *)b;
    return one < other ? -1 : one > other;
}

static weir_status save_locked(const wr_mempool *pool, wr_mempool_name name, weir_checkpoint **out)
{
    weir_checkpoint size = { 0 };
    void *memory = NULL;
    for (const wr_segment *s = wr_mempool_first_segment(pool); s; s = wr_mempool_next_segment(s))
        count_segment(&size, s);
    WR_TRY(wr_meta_alloc(sizeof(weir_checkpoint) + size.segment_count * sizeof(saved_segment) +
                             size.block_count * sizeof(saved_block),
                         "checkpoint", &memory));
    weir_checkpoint *c = memory;
    c->pool = name;
    c->segments = (saved_segment *)(c + 1);
    c->blocks = (saved_block *)(c->segments + size.segment_count);
    for (const wr_segment *s = wr_mempool_first_segment(pool); s; s = wr_mempool_next_segment(s)) save_segment(c, s);
    qsort(c->segments, c->segment_count, sizeof(saved_segment), by_address);
    *out = c;
    return WEIR_OK;
}

static weir_status check_lends_locked(const wr_mempool *pool, wr_mempool_name name)
{
    WR_ENSURE(!pool->rules.use_on_oom, WEIR_ERR_INVALID_ARGUMENT,
              "weir_mempool_checkpoint: memory pool " WR_MEMPOOL_FORMAT
              " lends (use_on_oom); restoring it would take blocks from those who borrowed them",
              WR_MEMPOOL_ARGUMENTS(name));
    return WEIR_OK;
}

weir_status wr_checkpoint_take(wr_mempool *pool, wr_mempool_name name, weir_checkpoint **out)
{
    wr_cache *cache = pool->cache;
    wr_fronts_close(cache);
    weir_status status = lock_quiet(pool, name);
    if (status == WEIR_OK) {
        status = check_lends_locked(pool, name);
        if (status == WEIR_OK) status = save_locked(pool, name, out);
        pool->fixed |= status == WEIR_OK;
        unlock(cache);
    }
    wr_fronts_open(cache);
    return status;
}

/* ---- restoring --------------------------------------------------------------------------------------------------- */

/* A block that is live before the restore. */
typedef struct old_block {
    wr_block *block;
    void *pointer;
    /* The checkpoint has it at that place and size, and it is recorded on streams or a library's: it stays as it is */
    bool kept;
    bool waits; /* freed, but its streams must be waited for */
} old_block;

/* Everything that the restore needs, obtained first, so that nothing can fail once it has begun. */
typedef struct change {
    wr_cache *cache;
    const weir_checkpoint *to;
    wr_segment **now; /* the pool's segments, by address */
    size_t now_count;
    old_block *old;
    size_t old_count;
} change;

static int by_base(const void *a, const void *b)
{
    const char *one = (*(wr_segment *const *)a)->base, *other = (*(wr_segment *const *)b)->base;
    return one < other ? -1 : one > other;
}

static weir_status list_now_locked(change *c, const wr_mempool *pool)
{
    void *memory = NULL;
    WR_TRY(wr_meta_alloc((pool->segments + 1) * sizeof(wr_segment *), "segments of a pool", &memory));
    c->now = memory;
    for (wr_segment *s = wr_mempool_first_segment(pool); s; s = wr_mempool_next_segment(s)) c->now[c->now_count++] = s;
    qsort(c->now, c->now_count, sizeof(wr_segment *), by_base);
    return WEIR_OK;
}

/* NULL: the segment is gone. */
static wr_segment *now_of(const change *c, const saved_segment *then)
{
    wr_segment key = { .base = then->base }, *wanted = &key;
    wr_segment **found = bsearch(&wanted, c->now, c->now_count, sizeof(wr_segment *), by_base);
    return found && (*found)->bytes == then->bytes ? *found : NULL;
}

static bool has_memory(const wr_segment *segment, const saved_block *then)
{
    const wr_block *b = wr_starts_block_at(segment, then->base);
    while (b && b->base < then->base + then->bytes && b->state != WR_BLOCK_ABSENT) b = b->next;
    return !b || b->base >= then->base + then->bytes;
}

static weir_status check_segment_locked(const change *c, const saved_segment *then)
{
    const wr_segment *now = now_of(c, then);
    if (then->count == 0) return WEIR_OK;
    WR_ENSURE(!now || (now->bin == then->bin && now->bin->stream->id == then->stream), WEIR_ERR_POOL_MISMATCH,
              "weir_mempool_restore: memory of the block of %zu bytes at %p went to another stream or size class since "
              "the checkpoint",
              then->live[0].bytes, (void *)then->live[0].base);
    for (size_t k = 0; k < then->count; k++)
        WR_ENSURE(now && has_memory(now, &then->live[k]), WEIR_ERR_POOL_MISMATCH,
                  "weir_mempool_restore: memory of the block of %zu bytes at %p was given back since the checkpoint",
                  then->live[k].bytes, (void *)then->live[k].base);
    return WEIR_OK;
}

static const saved_segment *saved_of(const weir_checkpoint *c, char *base)
{
    const saved_segment key = { .base = base };
    return c->segment_count ? bsearch(&key, c->segments, c->segment_count, sizeof key, by_address) : NULL;
}

static void add_old(change *c, const wr_segment *segment)
{
    for (wr_block *b = segment->first; b; b = b->next) {
        if (b->state != WR_BLOCK_LIVE) continue;
        if (c->old) c->old[c->old_count] = (old_block){ .block = b, .pointer = b->base };
        c->old_count++;
    }
}

/* The last saved block that begins before the end of this one, if it overlaps it; NULL: none. */
static const saved_block *then_at(const saved_segment *segment, const wr_block *b)
{
    size_t low = 0, high = segment->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (segment->live[middle].base < b->base + b->bytes)
            low = middle + 1;
        else
            high = middle;
    }
    const saved_block *last = low > 0 ? &segment->live[low - 1] : NULL;
    return last && last->base + last->bytes > b->base ? last : NULL;
}

/* Streams may still use a recorded block after it is freed. If it lay where blocks are to be live again, the restore
 * would have to wait half way, so it must be the checkpoint's very block. A library's block can be freed by nobody
 * else. */
static weir_status check_old_locked(const change *c, old_block *old)
{
    const wr_block *b = old->block;
    const saved_segment *segment = b->uses || b->library ? saved_of(c->to, b->segment->base) : NULL;
    const saved_block *then = segment ? then_at(segment, b) : NULL;
    old->kept = then && then->base == b->base && then->bytes == b->bytes && (then->library || !b->library);
    WR_ENSURE(
        old->kept || !b->library, WEIR_ERR_BUSY,
        "weir_mempool_restore: the block of %zu bytes at %p belongs to a library, which requested it in a capture "
        "since the checkpoint and still uses it; first destroy the library's handles (weir_handle_release() and "
        "weir_handles_trim()), or take the checkpoint after the capture",
        b->bytes, (void *)b->base);
    WR_ENSURE(
        old->kept || !then, WEIR_ERR_BUSY,
        "weir_mempool_restore: the block of %zu bytes at %p was allocated since the checkpoint and is recorded on a "
        "stream; call weir_free() on it first, so that weir can wait for that stream",
        b->bytes, (void *)b->base);
    return WEIR_OK;
}

static weir_status prepare_locked(change *c, const wr_mempool *pool)
{
    void *memory = NULL;
    WR_TRY(list_now_locked(c, pool));
    for (size_t i = 0; i < c->to->segment_count; i++) WR_TRY(check_segment_locked(c, &c->to->segments[i]));
    for (const wr_segment *s = wr_mempool_first_segment(pool); s; s = wr_mempool_next_segment(s)) add_old(c, s);
    WR_TRY(wr_meta_alloc(c->old_count * sizeof(old_block), "blocks to be freed", &memory));
    c->old = memory;
    c->old_count = 0;
    for (const wr_segment *s = wr_mempool_first_segment(pool); s; s = wr_mempool_next_segment(s)) add_old(c, s);
    for (size_t i = 0; i < c->old_count; i++) WR_TRY(check_old_locked(c, &c->old[i]));
    return wr_records_spare_blocks(c->cache,
                                   2 * c->to->block_count); /* each block brought back is cut out of the middle */
}

/* For all who count, a kept block was freed and handed out again, like the others; the program is told the same. */
static void renew_locked(change *c, wr_block *block, size_t requested)
{
    const wr_bin *bin = block->segment->bin;
    const weir_mempool pool = wr_bin_pool_id(bin);
    const void *native = bin->stream->native;
    wr_account_out(bin->account, 1, (int64_t)block->bytes);
    wr_count_freed(bin, block);
    wr_history_record_free(&c->cache->history, block->base, block->requested, native, pool);
    block->requested = requested;
    wr_count_live(bin, block);
    wr_account_in(bin->account, block->bytes);
    wr_history_record_alloc(&c->cache->history, block->base, requested, native, pool, &block->stack);
}

/* By now every block that was live and is not kept is free, so a saved block lies in a kept one or inside a free
 * one. */
static void bring_back_locked(change *c, wr_segment *segment, const saved_block *then)
{
    wr_block *block = wr_starts_block_at(segment, then->base);
    if (block->state == WR_BLOCK_LIVE) {
        renew_locked(c, block, then->requested);
        return;
    }
    assert(block->state == WR_BLOCK_FREE);
    block = wr_cache_hand_out_at_locked(segment, (size_t)(then->base - segment->base), then->bytes, then->requested,
                                        segment->bin->stream->native);
    assert(block);
}

static void apply_locked(change *c)
{
    for (size_t i = 0; i < c->old_count; i++) {
        old_block *old = &c->old[i];
        old->waits = !old->kept && old->block->uses;
        if (!old->kept) wr_cache_give_locked(c->cache, old->block);
    }
    for (size_t i = 0; i < c->to->segment_count; i++) {
        const saved_segment *s = &c->to->segments[i];
        for (size_t k = 0; k < s->count; k++) bring_back_locked(c, now_of(c, s), &s->live[k]);
    }
}

static weir_status restore(change *c, wr_mempool *pool, wr_mempool_name name)
{
    WR_TRY(lock_quiet(pool, name));
    weir_status status = prepare_locked(c, pool);
    if (status == WEIR_OK) apply_locked(c);
    unlock(c->cache);
    return status;
}

static void tell(const change *c, const wr_checkpoint_listener *to)
{
    for (size_t i = 0; to->changed && i < c->old_count; i++) to->changed(c->cache, c->old[i].pointer);
    for (size_t i = 0; to->changed && i < c->to->block_count; i++) to->changed(c->cache, c->to->blocks[i].base);
    for (size_t i = 0; to->freed && i < c->old_count; i++) to->freed(to->user, c->old[i].pointer);
    for (size_t i = 0; to->restored && i < c->to->block_count; i++) to->restored(to->user, c->to->blocks[i].base);
}

weir_status wr_checkpoint_restore(wr_mempool *pool, wr_mempool_name name, const weir_checkpoint *checkpoint,
                                  const wr_checkpoint_listener *listener)
{
    wr_cache *cache = pool->cache;
    change c = { .cache = cache, .to = checkpoint };
    WR_ENSURE(checkpoint->pool == name, WEIR_ERR_POOL_MISMATCH,
              "weir_mempool_restore: the checkpoint belongs to memory pool " WR_MEMPOOL_FORMAT
              ", not " WR_MEMPOOL_FORMAT,
              WR_MEMPOOL_ARGUMENTS(checkpoint->pool), WR_MEMPOOL_ARGUMENTS(name));
    wr_fronts_close(cache);
    weir_status status = restore(&c, pool, name);
    wr_fronts_open(cache);
    if (status == WEIR_OK) {
        for (size_t i = 0; i < c.old_count; i++)
            if (c.old[i].waits) wr_pending_start(cache, c.old[i].block);
        tell(&c, listener);
    }
    wr_meta_free(c.now);
    wr_meta_free(c.old);
    return status;
}
