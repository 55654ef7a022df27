#include "device/debug_internal.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/meta.h"
#include "base/size.h"
#include "base/thread_number.h"
#include "device/ladder.h"
#include "observe/stacks.h"
#include "pool/address.h"
#include "pool/pause.h"
#include "pool/pending.h"
#include "pool/report/inspect.h"
#include "stream/quiet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ZONE_BYTES = 256, ZONE_BYTE = 0xA5, LEAKS_SHOWN = 20 };

/* ---- the option -------------------------------------------------------------------------------------------------- */

weir_status wr_debug_parse(const wr_option_value *option, unsigned *flags)
{
    static const struct {
        const char *word;
        unsigned flags;
    } all[] = { { "redzone", WR_DEBUG_REDZONE },
                { "poison", WR_DEBUG_POISON },
                { "stacks", WR_DEBUG_STACKS },
                { "leaks", WR_DEBUG_LEAKS },
                { "streams", WR_DEBUG_STREAMS },
                { "nosub", WR_DEBUG_NOSUB },
                { "all", WR_DEBUG_REDZONE | WR_DEBUG_POISON | WR_DEBUG_STACKS | WR_DEBUG_LEAKS } };
    unsigned found = 0;
    const char *words = option->text;
    while (*words) {
        const size_t length = strcspn(words, ",");
        size_t i = 0;
        while (i < sizeof all / sizeof all[0] &&
               (strlen(all[i].word) != length || strncmp(all[i].word, words, length) != 0))
            i++;
        WR_ENSURE(i < sizeof all / sizeof all[0], WEIR_ERR_OPTION,
                  "option debug: \"%.*s\" from %s is not valid; give a list of redzone, poison, stacks, leaks, "
                  "streams, nosub, or all",
                  (int)length, words, wr_option_source_of(option));
        found |= all[i].flags;
        words += length;
        if (*words == ',') words++;
    }
    *flags = found;
    return WEIR_OK;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

_Static_assert(WR_DEBUG_BUCKETS == 1 << 12, "the upper 12 bits of a hash choose a bucket");

wr_known **wr_debug_link_locked(wr_debug *d, const void *base)
{
    wr_known **link = &d->buckets[wr_hash((uint64_t)(uintptr_t)base >> 8) >> 52];
    while (*link && (*link)->base != base) link = &(*link)->next;
    return link;
}

/* Keeps the record of a freed block until WR_DEBUG_FREED_KEPT others were freed after it. */
static void remember_free_locked(wr_debug *d, wr_known *freed)
{
    char **slot = &d->freed[d->frees % WR_DEBUG_FREED_KEPT];
    freed->free_number = d->frees++;
    wr_known **link = *slot ? wr_debug_link_locked(d, *slot) : NULL;
    /* Unless its address was freed again since */
    if (link && *link && !(*link)->live && (*link)->free_number + WR_DEBUG_FREED_KEPT < d->frees) {
        wr_known *oldest = *link;
        *link = oldest->next;
        wr_meta_free(oldest);
    }
    *slot = freed->base;
}

/* 0: nobody wants it. */
static uint32_t take_stack(const wr_cache *cache, const void *caller)
{
    const bool shown = cache->debug && cache->debug->flags & (WR_DEBUG_STACKS | WR_DEBUG_STREAMS);
    return shown || atomic_load_explicit(&cache->stacked, memory_order_relaxed) ? wr_stacks_take(caller) : 0;
}

/* From here on, wr_stack_now is this call's stack. The caller restores the returned value, since a program's callback
 * may call weir again. */
static uint32_t begin_call(const wr_cache *cache, const void *caller)
{
    const uint32_t outer = wr_stack_now;
    wr_stack_now = take_stack(cache, caller);
    return outer;
}

static wr_call this_call(void)
{
    return (wr_call){ wr_stack_now, wr_thread_number() };
}

static weir_status enter(wr_debug *d, wr_known *made)
{
    void *memory = NULL;
    weir_status status = WEIR_OK;
    wr_lock_acquire(&d->lock);
    wr_known **link = wr_debug_link_locked(d, made->base);
    wr_debug_streams_made_locked(d, made, *link);
    if (!*link) {
        status = wr_meta_alloc(sizeof(wr_known), "debug", &memory);
        if (status == WEIR_OK) *link = memory;
    }
    if (status == WEIR_OK) {
        wr_known *next = (*link)->next;
        **link = *made;
        (*link)->next = next;
    }
    wr_lock_release(&d->lock);
    return status;
}

/* Copies what is known of a block that is to be freed, and notes that it is leaving: until it has left, its memory is
 * looked at, or the device waited for. False: it was freed before, or another thread is just freeing it. By then the
 * memory may be another block's, which is not known here before it has been handed out. */
static bool begin_leaving(wr_debug *d, const void *base, bool direct, wr_known *out)
{
    wr_lock_acquire(&d->lock);
    wr_known *k = *wr_debug_link_locked(d, base);
    const bool may = !k || (k->live && !k->leaving && k->direct == direct);
    if (k) *out = *k;
    if (k && may) k->leaving = true;
    wr_lock_release(&d->lock);
    return may;
}

/* Copies what is known of the address. */
static bool look_up(wr_debug *d, const void *base, wr_known *out)
{
    wr_lock_acquire(&d->lock);
    const wr_known *k = *wr_debug_link_locked(d, base);
    if (k) *out = *k;
    wr_lock_release(&d->lock);
    return k != NULL;
}

uint64_t wr_debug_departed(wr_cache *cache)
{
    if (!(cache->debug->flags & WR_DEBUG_STREAMS)) return 0;
    wr_cache_lock(cache);
    const uint64_t count = cache->departed;
    wr_cache_unlock(cache);
    return count;
}

static void set_live(wr_cache *cache, const void *base, bool live, const wr_call *freed)
{
    wr_debug *d = cache->debug;
    const uint64_t left = wr_debug_departed(cache);
    wr_lock_acquire(&d->lock);
    wr_known *k = *wr_debug_link_locked(d, base);
    if (k) {
        k->live = live;
        k->leaving = false;
        if (freed) k->freed = *freed;
    }
    if (k && !live) {
        k->freed_at = wr_debug_moment();
        k->departed = left;
        remember_free_locked(d, k);
    }
    wr_lock_release(&d->lock);
}

void wr_debug_forget(wr_cache *cache, void *base)
{
    wr_debug *d = cache->debug;
    wr_lock_acquire(&d->lock);
    wr_known **link = wr_debug_link_locked(d, base);
    wr_known *k = *link;
    if (k) *link = k->next;
    wr_lock_release(&d->lock);
    wr_meta_free(k);
}

weir_status wr_debug_create(unsigned flags, wr_debug **out)
{
    void *memory = NULL;
    *out = NULL;
    if (flags == 0) return WEIR_OK;
    WR_TRY(wr_meta_alloc(sizeof(wr_debug), "debug", &memory));
    *out = memory;
    (*out)->flags = flags;
    wr_lock_init(&(*out)->lock, WR_RANK_LEAF, "debug");
    return WEIR_OK;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

void wr_debug_put_call(char *text, size_t capacity, const char *title, const wr_call *c)
{
    const wr_stack *s = wr_stacks_find(c->stack);
    if (!s) return;
    size_t at = strlen(text);
    at += (size_t)snprintf(text + at, capacity - at, "\n%s by thread %u", title, c->thread);
    for (uint32_t i = 0; i < s->count && i < WR_DEBUG_FRAMES && at < capacity; i++) {
        const wr_frame f = wr_frame_of(s->frames[i]);
        const char *slash = f.object ? strrchr(f.object, '/') : NULL, *file = slash ? slash + 1 : f.object;
        at += (size_t)snprintf(text + at, capacity - at,
                               f.is_source ? "%s%s (%s:%" PRIu64 ")" : "%s%s (%s+%#" PRIx64 ")", i == 0 ? ": " : ", ",
                               f.symbol ? f.symbol : "?", file ? file : "?", f.is_source ? f.line : f.in_object);
    }
}

/* Appends what is known to the text of this thread's error. */
static weir_status explain(weir_status status, const wr_known *k)
{
    char text[WR_DEBUG_TEXT] = "";
    char title[48];
    snprintf(title, sizeof title, "%zu bytes allocated", k->bytes);
    wr_debug_put_call(text, sizeof text, title, &k->allocated);
    if (!k->live) wr_debug_put_call(text, sizeof text, "freed", &k->freed);
    return text[0] ? wr_fail(status, "%s%s", weir_error_text(), text) : status;
}

static void log_leak(const wr_device *device, const wr_known *k)
{
    char size[WR_SIZE_TEXT], text[WR_DEBUG_TEXT] = "";
    wr_debug_put_call(text, sizeof text, "allocated", &k->allocated);
    wr_log(WR_LOG_ERROR, "device %d: still allocated: %s at %p%s", device->ordinal, wr_size_format(k->bytes, size),
           (void *)k->base, text);
}

static void log_leaks(const wr_device *device, const wr_debug *d)
{
    uint64_t blocks = 0, bytes = 0;
    char size[WR_SIZE_TEXT];
    for (int i = 0; i < WR_DEBUG_BUCKETS; i++)
        for (const wr_known *k = d->buckets[i]; k; k = k->next) {
            if (!k->live) continue;
            if (blocks < LEAKS_SHOWN) log_leak(device, k);
            blocks++;
            bytes += k->bytes;
        }
    if (blocks)
        wr_log(WR_LOG_ERROR, "device %d: %llu blocks, %s in all, are still allocated", device->ordinal,
               (unsigned long long)blocks, wr_size_format(bytes, size));
}

weir_status wr_debug_destroy(wr_device *device)
{
    wr_debug *d = device->cache.debug;
    weir_status first = WEIR_OK;
    if (!d) return WEIR_OK;
    if (d->flags & WR_DEBUG_LEAKS) log_leaks(device, d);
    wr_debug_forget_poison(device);
    for (int i = 0; i < WR_DEBUG_BUCKETS; i++)
        while (d->buckets[i]) {
            wr_known *k = d->buckets[i];
            d->buckets[i] = k->next;
            if (k->live && k->direct)
                wr_keep_first(&first, wr_driver(device->backend, segment_free, device->ordinal, k->base, k->bytes));
            wr_meta_free(k);
        }
    for (wr_scratch *s = d->awaited, *next; s; s = next) {
        next = s->next;
        wr_meta_free(s);
    }
    device->cache.debug = NULL;
    wr_lock_destroy(&d->lock);
    wr_meta_free(d);
    return first;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Whether the bytes behind the block are unchanged; true when they cannot be read. */
static bool zone_is_whole(wr_device *device, const wr_stream *stream, const wr_known *k)
{
    wr_scratch *zone = NULL;
    bool awaited = false, whole = true;
    if (wr_debug_scratch(ZONE_BYTES, &zone) != WEIR_OK) return true;
    if (wr_debug_read(device, stream, k->base + k->bytes, ZONE_BYTES, zone, &awaited) == WEIR_OK)
        for (size_t i = 0; i < ZONE_BYTES; i++) whole = whole && zone->bytes[i] == ZONE_BYTE;
    wr_debug_scratch_done(device->cache.debug, zone, awaited);
    return whole;
}

/* Whether memory straight from the driver is as good as the pool's: it promises no other kind or alignment, has no
 * source of its own, and is not paused. */
static bool is_of_the_driver(wr_device *device, const wr_mempool *pool, wr_mempool_name name)
{
    if (!pool || name == 0) return true;
    wr_cache_lock(&device->cache);
    const bool is = wr_mempool_name_of(pool) == name && pool->rules.memory == WEIR_MEMORY_DEVICE &&
                    !pool->source.alloc && !pool->rules.range_changed && pool->rules.alignment <= 512 && !pool->paused;
    wr_cache_unlock(&device->cache);
    return is;
}

static weir_status alloc_direct(wr_device *device, wr_known *k)
{
    void *base = NULL;
    WR_TRY(wr_device_alloc_direct(device, k->bytes, &base));
    k->base = base;
    k->direct = true;
    k->devices = UINT64_C(1) << device->ordinal;
    return WEIR_OK;
}

/* What a graph uses of its pool, even where that is free, is not for weir to write to. */
static bool is_a_graphs(wr_mempool *pool)
{
    wr_cache_lock(pool->cache);
    const bool is = pool->held[WR_HELD_BY_GRAPH] != 0;
    wr_cache_unlock(pool->cache);
    return is;
}

static weir_status alloc_zoned(wr_device *device, wr_mempool *pool, wr_mempool_name name, wr_stream *stream,
                               uint64_t id, wr_known *k)
{
    void *base = NULL;
    const bool zoned = device->cache.debug->flags & WR_DEBUG_REDZONE && k->bytes <= WR_REQUEST_MAX &&
                       !wr_debug_captures(device, stream);
    WR_TRY(wr_device_alloc(device, pool, name, stream, id, k->bytes + (zoned ? ZONE_BYTES : 0), &base));
    k->base = base;
    wr_mempool *held = wr_pause_hold_off(&device->cache, wr_address_find(base), base, &k->dropped);
    wr_stream *there = held ? wr_stream_hold(&device->streams, k->stream_id) : NULL; /* NULL: it has ended */
    wr_debug_unpoison(device, there, base);
    k->zoned = zoned && there && !is_a_graphs(held) &&
               wr_debug_fill(device, there, k->base + k->bytes, ZONE_BYTE, ZONE_BYTES) == WEIR_OK;
    wr_stream_let_go(there);
    if (held) wr_pause_let_on(held);
    return WEIR_OK;
}

static weir_status alloc_checked(wr_device *device, wr_mempool *pool, wr_mempool_name name, wr_stream *stream,
                                 uint64_t id, size_t bytes, const wr_stream *current, void **out)
{
    wr_debug *d = device->cache.debug;
    wr_known made = { .bytes = bytes,
                      .stream_id = id,
                      .pool = wr_mempool_id_of(name),
                      .allocated = this_call(),
                      .implicit = stream == current,
                      .live = true };
    const bool direct = d->flags & WR_DEBUG_NOSUB && bytes <= WR_REQUEST_MAX && is_of_the_driver(device, pool, name) &&
                        !wr_debug_captures(device, stream);
    WR_TRY(direct ? alloc_direct(device, &made) : alloc_zoned(device, pool, name, stream, id, &made));
    made.departed = wr_debug_departed(&device->cache);
    weir_status status = enter(d, &made);
    if (status == WEIR_OK)
        *out = made.base;
    else if (direct)
        wr_clean_up(wr_driver(device->backend, segment_free, device->ordinal, made.base, bytes));
    else
        wr_clean_up(wr_device_free(wr_address_find(made.base), made.base));
    return status;
}

weir_status wr_debug_alloc(wr_device *device, wr_mempool *pool, wr_mempool_name name, wr_stream *stream, uint64_t id,
                           size_t bytes, wr_site site, void **out)
{
    const uint32_t outer = begin_call(&device->cache, site.caller);
    weir_status status = device->cache.debug ? alloc_checked(device, pool, name, stream, id, bytes, site.current, out)
                                             : wr_device_alloc(device, pool, name, stream, id, bytes, out);
    wr_stack_now = outer;
    return status;
}

static weir_status tell_broken(const wr_known *k)
{
    (void)!wr_fail(WEIR_ERR_CORRUPT, "weir_free: something has written past the end of the block at %p (%zu bytes)",
                   (void *)k->base, k->bytes);
    (void)!explain(WEIR_ERR_CORRUPT, k);
    wr_log(WR_LOG_ERROR, "%s", weir_error_text());
    return WEIR_ERR_CORRUPT;
}

/* Checks the red zone of a block that is about to be freed, and poisons the block. True: the zone was written. */
static bool look_at_freed(wr_device *device, const wr_segment *segment, const wr_known *k, wr_call here)
{
    uint32_t dropped = 0;
    bool broken = false;
    wr_mempool *held = wr_pause_hold_off(&device->cache, segment, k->base, &dropped);
    if (!held) return false;
    wr_stream *stream = wr_stream_hold(&device->streams, k->stream_id); /* NULL: it has ended */
    if (stream) {
        broken = k->zoned && k->dropped == dropped && !zone_is_whole(device, stream, k);
        /* The fill runs in stream order, after the stream's own uses. It is not ordered with uses of recorded
         * streams. */
        if (device->cache.debug->flags & WR_DEBUG_POISON && !k->recorded)
            wr_debug_poison(device, segment, stream, k, here);
        wr_stream_let_go(stream);
    }
    wr_pause_let_on(held);
    return broken;
}

static weir_status refuse_second(const wr_segment *segment, const void *pointer, const wr_known *k)
{
    weir_pointer_info info = { 0 };
    const weir_status status = k->live ? WEIR_OK : wr_inspect_pointer(segment, pointer, &info);
    if (status != WEIR_OK) return explain(status, k);
    const char *why =
        k->live ? "is just being freed by another thread" : "was freed before; another block is there now";
    return explain(wr_fail(WEIR_ERR_DOUBLE_FREE, "%p %s", pointer, why), k);
}

/* The segment was looked up before the block was said to be leaving. A thread that frees a second time may come so late
 * that the memory has gone and come back in another segment: it then frees the block that is there now, or nothing. */
static const wr_segment *find_again(const wr_segment *found, const void *pointer)
{
    const wr_segment *now = wr_address_find(pointer);
    return now && now->cache == found->cache ? now : found;
}

static weir_status free_checked(const wr_segment *found, void *pointer, const wr_stream *current)
{
    wr_device *device = wr_device_of(found->cache);
    wr_known k = { 0 };
    const wr_call here = this_call();
    if (!begin_leaving(found->cache->debug, pointer, false, &k)) return refuse_second(found, pointer, &k);
    const wr_segment *segment = find_again(found, pointer);
    const bool live = k.live;
    const bool broken = live && look_at_freed(device, segment, &k, here);
    if (live) set_live(segment->cache, pointer, false, &here); /* before the memory can be somebody else's */
    weir_status status = wr_device_free(segment, pointer);
    if (status == WEIR_OK && live) wr_debug_streams_freed(device, &k, current, here);
    return status == WEIR_OK && broken ? tell_broken(&k) : status;
}

weir_status wr_debug_free(const wr_segment *segment, void *pointer, wr_site site)
{
    const uint32_t outer = begin_call(segment->cache, site.caller);
    weir_status status =
        segment->cache->debug ? free_checked(segment, pointer, site.current) : wr_device_free(segment, pointer);
    wr_stack_now = outer;
    return status;
}

/* Notes that another stream uses the block around the pointer, so that the block is not poisoned. */
static void note_recorded(const wr_segment *segment, const void *pointer, const wr_stream *stream)
{
    wr_debug *d = segment->cache->debug;
    weir_pointer_info info = { 0 };
    if (wr_inspect_pointer(segment, pointer, &info) != WEIR_OK) return;
    wr_lock_acquire(&d->lock);
    wr_known *k = *wr_debug_link_locked(d, info.base);
    const uint64_t id = atomic_load(&stream->id);
    if (k && k->stream_id != id) {
        k->recorded = true;
        wr_debug_streams_recorded_locked(k, id);
    }
    wr_lock_release(&d->lock);
}

/* Frees are known by a block's start address only. */
static weir_status explain_refused(wr_debug *d, const void *pointer, weir_status status)
{
    wr_known k = { 0 };
    return look_up(d, pointer, &k) && !k.live ? explain(status, &k) : status;
}

weir_status wr_debug_record(const wr_segment *segment, const void *pointer, wr_device *device, const wr_stream *stream,
                            const void *caller)
{
    const uint32_t outer = begin_call(segment->cache, caller);
    weir_status status = wr_pending_record(segment, pointer, stream, &device->events);
    wr_debug *d = segment->cache->debug;
    if (d && status == WEIR_OK) note_recorded(segment, pointer, stream);
    if (d && status == WEIR_ERR_DOUBLE_FREE) status = explain_refused(d, pointer, status);
    wr_stack_now = outer;
    return status;
}

weir_status wr_debug_empty_cache(wr_device *device, const void *caller)
{
    const uint32_t outer = begin_call(&device->cache, caller);
    weir_status status = wr_device_empty_cache(device);
    wr_stack_now = outer;
    return status;
}

/* ---- straight from the driver ------------------------------------------------------------------------------------ */

wr_device *wr_debug_device_of(const void *pointer)
{
    wr_device *freed_on = NULL;
    for (int i = 0; i < wr_runtime_global.device_count; i++) {
        wr_device *device = wr_runtime_opened(i);
        wr_known k = { 0 };
        if (!device || !device->cache.debug || !look_up(device->cache.debug, pointer, &k)) continue;
        if (k.live && k.direct) return device;
        if (!k.live) freed_on = device;
    }
    return freed_on;
}

static weir_status refuse_freed(const void *pointer, const wr_known *k)
{
    (void)!wr_fail(WEIR_ERR_DOUBLE_FREE, "%p was already freed%s", pointer,
                   k->direct ? "" : ", and its memory has gone back to the driver");
    return explain(WEIR_ERR_DOUBLE_FREE, k);
}

weir_status wr_debug_record_direct(const wr_device *device, const void *pointer, const wr_device *user)
{
    wr_debug *d = device->cache.debug;
    wr_known seen = { 0 };
    wr_lock_acquire(&d->lock);
    wr_known *k = *wr_debug_link_locked(d, pointer);
    if (k) seen = *k;
    const bool live = k && k->live && k->direct;
    if (live) k->devices |= UINT64_C(1) << user->ordinal;
    wr_lock_release(&d->lock);
    return live ? WEIR_OK : refuse_freed(pointer, &seen);
}

static weir_status wait_for_users(const wr_known *k)
{
    for (int i = 0; i < wr_runtime_global.device_count; i++) {
        wr_device *user = k->devices >> i & 1 ? wr_runtime_opened(i) : NULL;
        if (user) WR_TRY(wr_quiet_synchronize(&user->events, &user->streams, "weir_free"));
    }
    return WEIR_OK;
}

weir_status wr_debug_free_direct(wr_device *device, void *pointer, const void *caller)
{
    wr_known k = { 0 };
    const wr_call here = { take_stack(&device->cache, caller), wr_thread_number() };
    const bool known = begin_leaving(device->cache.debug, pointer, true, &k) && k.live;
    if (!known) return refuse_freed(pointer, &k);
    weir_status status = wait_for_users(&k);
    if (status == WEIR_OK) {
        set_live(&device->cache, pointer, false, &here); /* before the address can be somebody else's */
        status = wr_driver(device->backend, segment_free, device->ordinal, pointer, k.bytes);
    }
    if (status != WEIR_OK) set_live(&device->cache, pointer, true, NULL);
    return status;
}
