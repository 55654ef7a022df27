/*
 * Remembers freed memory that was overwritten with POISON_BYTE, by address, and checks it when it is handed out again:
 * with both WR_DEBUG_POISON and WR_DEBUG_STREAMS. What was freed before any segment of the device was given back or
 * paused is not checked.
 */
#include "base/meta.h"
#include "device/debug_internal.h"
#include "pool/address.h"
#include "pool/report/inspect.h"

#include <inttypes.h>

enum {
    POISON_BYTE = 0xDB,
    LOOKED_AT = 1 << 20, /* bytes checked of a freed block, from its start */
    PIECE = 1 << 16,
    RANGES = 1 << 16 /* remembered at any time */
};

struct wr_poisoned {
    RB_ENTRY(wr_poisoned) node;
    wr_poisoned *next; /* in a list of those taken out of the tree */
    char *base;
    size_t bytes;
    wr_known was;
    uint64_t departed; /* the cache's count when it was freed */
};

static int by_address(const wr_poisoned *a, const wr_poisoned *b)
{
    return (a->base > b->base) - (a->base < b->base);
}

RB_GENERATE_INTERNAL(wr_poisoned_tree, wr_poisoned, node, by_address, __attribute__((unused)) static)

static bool follows(const wr_debug *d)
{
    const unsigned both = WR_DEBUG_POISON | WR_DEBUG_STREAMS;
    return d && (d->flags & both) == both;
}

static void drop_locked(wr_debug *d, wr_poisoned *p)
{
    RB_REMOVE(wr_poisoned_tree, &d->poisoned, p);
    d->poisoned_count--;
}

static void insert_locked(wr_debug *d, wr_poisoned *p)
{
    RB_INSERT(wr_poisoned_tree, &d->poisoned, p);
    d->poisoned_count++;
}

/* ---- what is written --------------------------------------------------------------------------------------------- */

/* The stream's work may have been waited for because it is ending. While the move lock is held it does not end, and
 * whoever gets its memory then comes after the fill. Who has the lock may be in a driver call that waits for work,
 * which may wait for this thread: then the block stays as it is. So it does in a graph's pool: the graph uses that
 * pool's free memory, too, and may be running on any stream. */
static bool overwrite(wr_device *device, const wr_segment *segment, wr_stream *stream, const wr_known *k)
{
    wr_cache *cache = &device->cache;
    if (!wr_lock_try(&cache->move_lock)) return false;
    wr_cache_lock(cache);
    const bool own = segment->bin->stream == stream && segment->bin->pool->held[WR_HELD_BY_GRAPH] == 0;
    wr_cache_unlock(cache);
    const bool done = own && wr_debug_fill(device, stream, k->base, POISON_BYTE, k->bytes) == WEIR_OK;
    wr_lock_release(&cache->move_lock);
    return done;
}

#define KEEP_NONE UINT64_MAX

/* All but those that were freed while the cache's count was this. */
static void forget_locked(wr_debug *d, uint64_t count)
{
    for (wr_poisoned *p = RB_MIN(wr_poisoned_tree, &d->poisoned), *next; p; p = next) {
        next = RB_NEXT(wr_poisoned_tree, &d->poisoned, p);
        if (p->departed == count) continue;
        drop_locked(d, p);
        wr_meta_free(p);
    }
}

/* What has left the device since it was freed is never looked at again. */
static void make_room_locked(wr_debug *d, uint64_t count)
{
    if (d->poisoned_count < RANGES || d->swept_at == count) return;
    d->swept_at = count;
    forget_locked(d, count);
}

void wr_debug_poison(wr_device *device, const wr_segment *segment, wr_stream *stream, const wr_known *k, wr_call here)
{
    wr_debug *d = device->cache.debug;
    void *memory = NULL;
    if (!overwrite(device, segment, stream, k) || !follows(d)) return;
    const uint64_t count = wr_debug_departed(&device->cache);
    if (wr_meta_alloc(sizeof(wr_poisoned), "debug", &memory) != WEIR_OK) return;
    wr_poisoned *p = memory;
    *p = (wr_poisoned){ .base = k->base, .bytes = k->bytes, .was = *k, .departed = count };
    p->was.freed = here;
    wr_lock_acquire(&d->lock);
    make_room_locked(d, count);
    const bool room = d->poisoned_count < RANGES && !RB_FIND(wr_poisoned_tree, &d->poisoned, p);
    if (room) insert_locked(d, p);
    wr_lock_release(&d->lock);
    if (!room) wr_meta_free(p);
}

/* ---- what is handed out ------------------------------------------------------------------------------------------ */

/* Takes the freed ranges between the addresses out of the tree, cut to `to`, as a list. The part beyond `to` stays in
 * the tree; if its record cannot be allocated, it is forgotten. */
static wr_poisoned *take_locked(wr_debug *d, char *from, const char *to)
{
    wr_poisoned *taken = NULL;
    wr_poisoned here = { .base = from };
    wr_poisoned *p = RB_NFIND(wr_poisoned_tree, &d->poisoned, &here);
    wr_poisoned *before = p ? RB_PREV(wr_poisoned_tree, &d->poisoned, p) : RB_MAX(wr_poisoned_tree, &d->poisoned);
    if (before && before->base + before->bytes > from)
        before->bytes = (size_t)(from - before->base); /* the rest is handed out anew */
    while (p && p->base < to) {
        wr_poisoned *next = RB_NEXT(wr_poisoned_tree, &d->poisoned, p);
        drop_locked(d, p);
        if (p->base + p->bytes > to) {
            const size_t behind = (size_t)(p->base + p->bytes - to);
            void *memory = NULL;
            p->bytes -= behind;
            if (wr_meta_alloc(sizeof *p, "debug", &memory) == WEIR_OK) {
                wr_poisoned *rest = memory;
                *rest = *p;
                rest->base = p->base + p->bytes;
                rest->bytes = behind;
                insert_locked(d, rest);
            }
        }
        p->next = taken;
        taken = p;
        p = next;
    }
    return taken;
}

/* The offset of the first byte that lost its poison, read in stream order; `bytes` when none did, or reading failed. */
static size_t find_written(wr_device *device, const wr_stream *stream, const wr_poisoned *p, wr_scratch *piece,
                           bool *awaited)
{
    const size_t end = p->bytes < LOOKED_AT ? p->bytes : LOOKED_AT;
    for (size_t at = 0; at < end; at += PIECE) {
        const size_t count = end - at < PIECE ? end - at : PIECE;
        if (wr_debug_read(device, stream, p->base + at, count, piece, awaited) != WEIR_OK) return p->bytes;
        for (size_t i = 0; i < count; i++)
            if (piece->bytes[i] != POISON_BYTE) return at + i;
    }
    return p->bytes;
}

static void look_at(wr_device *device, const wr_stream *stream, const wr_poisoned *p, wr_scratch *piece, bool *awaited)
{
    const size_t at = find_written(device, stream, p, piece, awaited);
    if (at == p->bytes) return;
    const uint64_t number = wr_debug_stream_number(p->was.stream_id);
    wr_debug_found(device, WEIR_EVENT_LATE_WRITE, &p->was, number, p->was.freed.stack);
    if (!wr_debug_is_new(device, WEIR_EVENT_LATE_WRITE, p->was.allocated.stack, p->was.freed.stack)) return;
    wr_log(WR_LOG_ERROR,
           "the block at %p (%zu bytes, stream %#" PRIx64
           ") was written to after it was freed, %zu bytes from its start, as was found when its memory was handed out "
           "again. No stream was recorded on it: if another stream still used it, call weir_record_stream() before "
           "weir_free()",
           (void *)p->was.base, p->was.bytes, number, (size_t)(p->base - p->was.base) + at);
    wr_debug_log_call(WR_LOG_ERROR, "allocated", &p->was.allocated);
    wr_debug_log_call(WR_LOG_ERROR, "freed", &p->was.freed);
}

static wr_poisoned *take_block(const wr_device *device, char *base)
{
    weir_pointer_info info = { 0 };
    wr_debug *d = device->cache.debug;
    const wr_segment *segment = wr_address_find(base);
    if (!segment || wr_inspect_pointer(segment, base, &info) != WEIR_OK) return NULL;
    wr_lock_acquire(&d->lock);
    wr_poisoned *taken = take_locked(d, base, base + info.bytes);
    wr_lock_release(&d->lock);
    return taken;
}

void wr_debug_unpoison(wr_device *device, const wr_stream *stream, void *base)
{
    wr_scratch *piece = NULL;
    bool awaited = false;
    if (!follows(device->cache.debug)) return;
    wr_poisoned *taken = take_block(device, base);
    const bool look = taken && stream && wr_debug_scratch(PIECE, &piece) == WEIR_OK;
    const uint64_t count = taken ? wr_debug_departed(&device->cache) : 0;
    while (taken) {
        wr_poisoned *p = taken;
        taken = p->next;
        if (look && !awaited && p->departed == count) look_at(device, stream, p, piece, &awaited);
        wr_meta_free(p);
    }
    if (piece) wr_debug_scratch_done(device->cache.debug, piece, awaited);
}

void wr_debug_forget_poison(wr_device *device)
{
    wr_debug *d = device->cache.debug;
    wr_lock_acquire(&d->lock);
    forget_locked(d, KEEP_NONE);
    wr_lock_release(&d->lock);
}
