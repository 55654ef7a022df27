#include "device/capture.h"

#include "base/hash.h"
#include "base/meta.h"
#include "device/device.h"
#include "device/runtime.h"
#include "pool/pending.h"
#include "stream/gate.h"

/* ---- what is kept ------------------------------------------------------------------------------------------------ */

static weir_status hold_pool(void *pool, uint64_t name)
{
    return wr_mempool_ref(pool, name, WR_HELD_BY_GRAPH);
}

static void let_go_of_pool(void *pool, uint64_t name)
{
    (void)wr_mempool_unref(pool, name, WR_HELD_BY_GRAPH);
}

static const wr_keeper of_pools = { hold_pool, let_go_of_pool };

static bool is_pool(const wr_kept *kept)
{
    return kept->keeper == &of_pools;
}

enum { FEW = 16 }; /* items are searched one by one up to here */
_Static_assert(FEW > 0 && (FEW & (FEW - 1)) == 0, "a hash is masked by the number of slots, which grows from this");

static bool same(const wr_kept *a, const wr_kept *b)
{
    return a->object == b->object && a->name == b->name && a->keeper == b->keeper;
}

/* The slot of the item, or the empty one that it would get. */
static uint32_t *slot_of(const wr_keeps *list, const wr_kept *kept)
{
    const uint64_t hash = wr_hash_add(wr_hash((uint64_t)(uintptr_t)kept->object), kept->name);
    size_t i = (size_t)(hash >> 20) & (list->slot_count - 1);
    while (list->slots[i] && !same(&list->items[list->slots[i] - 1], kept)) i = (i + 1) & (list->slot_count - 1);
    return &list->slots[i];
}

static bool keeps(const wr_keeps *list, const wr_kept *kept)
{
    if (list->slots) return *slot_of(list, kept) != 0;
    for (uint32_t i = 0; i < list->count; i++)
        if (same(&list->items[i], kept)) return true;
    return false;
}

static weir_status make_room(wr_keeps *list)
{
    static const char what[] = "what a graph keeps";
    void *memory = NULL;
    WR_TRY(wr_meta_grow(&list->items, &list->capacity, list->count + 1, sizeof *list->items, what));
    if (list->count < FEW || list->count * (size_t)2 < list->slot_count) return WEIR_OK;
    const size_t slot_count = list->slot_count ? list->slot_count * 2 : (size_t)FEW * 4;
    WR_TRY(wr_meta_alloc(slot_count * sizeof *list->slots, what, &memory));
    wr_meta_free(list->slots);
    list->slots = memory;
    list->slot_count = slot_count;
    for (uint32_t i = 0; i < list->count; i++) *slot_of(list, &list->items[i]) = i + 1;
    return WEIR_OK;
}

static void put(wr_keeps *list, uint32_t index, wr_kept kept)
{
    if (list->slots) *slot_of(list, &kept) = index + 1;
    list->items[index] = kept;
}

weir_status wr_keeps_add(wr_keeps *list, wr_kept kept)
{
    if (keeps(list, &kept)) return WEIR_OK;
    WR_TRY(make_room(list));
    WR_TRY(kept.keeper->hold(kept.object, kept.name));
    uint32_t index = list->count++;
    if (is_pool(&kept)) {
        /* It takes the place of the first item that is no pool. */
        if (list->pools != index) put(list, index, list->items[list->pools]);
        index = list->pools++;
    }
    put(list, index, kept);
    return WEIR_OK;
}

void wr_keeps_release(wr_keeps *list)
{
    while (list->count) {
        const wr_kept *k = &list->items[--list->count];
        k->keeper->let_go(k->object, k->name);
    }
    wr_meta_free(list->items);
    wr_meta_free(list->slots);
    *list = (wr_keeps){ 0 };
}

wr_kept wr_keep_pool(wr_mempool *pool, wr_mempool_name name)
{
    return (wr_kept){ &of_pools, pool, name };
}

wr_mempool *wr_kept_pool(const wr_kept *kept)
{
    assert(is_pool(kept));
    return kept->object;
}

static weir_status hold_handle(void *handle, uint64_t name)
{
    (void)name;
    wr_handle_hold(handle);
    return WEIR_OK;
}

static void let_go_of_handle(void *handle, uint64_t name)
{
    (void)name;
    wr_handle_let_go(handle);
    wr_runtime_change_ways(); /* the thread's next get is no hit, and drops what the graph kept of streams that ended */
}

static const wr_keeper of_handles = { hold_handle, let_go_of_handle };

weir_status wr_capture_keep(wr_capture *capture, wr_kept kept)
{
    wr_lock_acquire(&capture->lock);
    weir_status status = capture->over ? WEIR_OK : wr_keeps_add(&capture->kept, kept);
    wr_lock_release(&capture->lock);
    return status;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

void wr_captures_init(wr_captures *captures)
{
    *captures = (wr_captures){ 0 };
    wr_lock_init(&captures->lock, WR_RANK_ROUTES, "captures");
}

void wr_captures_release(wr_captures *captures)
{
    wr_lock_destroy(&captures->lock);
}

/* The capture with that id; otherwise the one about to begin on the stream, whose id is not known yet. It is not the
 * one that the stream is in as long as that has an id: its beginning will fail then. */
static wr_capture *find_locked(const wr_captures *captures, uint64_t id, const void *native)
{
    wr_capture *beginning = NULL;
    for (wr_capture *c = captures->first; c; c = c->next) {
        if (c->id != 0 && c->id == id) return c;
        if (c->id == 0 && c->origin == native) beginning = c;
    }
    return beginning;
}

weir_status wr_capture_register(wr_device *device, void *origin, wr_mempool *pool, uint64_t id, wr_capture **out)
{
    wr_captures *captures = &device->captures;
    void *memory = NULL;
    WR_TRY(wr_meta_alloc(sizeof(wr_capture), "capture", &memory));
    wr_capture *c = memory;
    c->device = device;
    c->origin = origin;
    c->route = (wr_route){ pool, wr_mempool_name_of(pool), wr_route_serial() };
    c->order.capture = c->route.serial;
    c->id = id;
    c->references = 1;
    wr_lock_init(&c->lock, WR_RANK_CAPTURE, "capture");

    wr_lock_acquire(&captures->lock);
    const bool known = find_locked(captures, id, origin) != NULL;
    if (!known) {
        c->next = captures->first;
        captures->first = c;
        atomic_fetch_add(&captures->count, 1);
        wr_routes_change(&device->routes, 1);
        wr_gate_capture_comes();
    }
    wr_lock_release(&captures->lock);
    if (known) wr_capture_unref(c);
    WR_ENSURE(!known, WEIR_ERR_CAPTURE, "device %d: weir already knows the capture of stream %p", device->ordinal,
              origin);
    *out = c;
    return WEIR_OK;
}

void wr_capture_begun(wr_capture *capture, uint64_t id)
{
    wr_captures *captures = &capture->device->captures;
    wr_lock_acquire(&captures->lock);
    capture->id = id;
    wr_lock_release(&captures->lock);
}

void wr_capture_unregister(wr_capture *capture, wr_keeps *kept)
{
    wr_captures *captures = &capture->device->captures;
    wr_lock_acquire(&captures->lock);
    wr_capture **link = &captures->first;
    while (*link != capture) link = &(*link)->next;
    *link = capture->next;
    atomic_fetch_sub(&captures->count, 1);
    wr_routes_change(&capture->device->routes, -1);
    wr_gate_capture_goes();
    wr_lock_release(&captures->lock);

    wr_lock_acquire(&capture->lock);
    wr_graph_order order = capture->order;
    *kept = capture->kept;
    capture->over = true;
    wr_lock_release(&capture->lock);
    wr_graph_order_end(&order);
    wr_capture_unref(capture);
}

void wr_capture_unref(wr_capture *capture)
{
    if (!capture) return;
    wr_captures *captures = &capture->device->captures;
    wr_lock_acquire(&captures->lock);
    const bool last = --capture->references == 0;
    wr_lock_release(&captures->lock);
    if (!last) return;
    wr_lock_destroy(&capture->lock);
    wr_meta_free(capture);
}

/* Whether weir was told of it on another device, one of whose streams it began on. */
static bool is_of_another(const wr_device *device, uint64_t id)
{
    bool found = false;
    for (int i = 0; i < WR_DEVICE_MAX && !found; i++) {
        wr_device *other = wr_runtime_opened(i);
        if (!other || other == device || !wr_captures_any(&other->captures)) continue;
        wr_lock_acquire(&other->captures.lock);
        found = find_locked(&other->captures, id, NULL) != NULL;
        wr_lock_release(&other->captures.lock);
    }
    return found;
}

/* When none is found, *state tells whether the stream is in a capture that weir was not told of. */
static weir_status find(wr_device *device, void *native, weir_capture_state *state, wr_capture **out)
{
    uint64_t id = 0;
    *out = NULL;
    WR_TRY(wr_stream_ask_capture(device->backend, device->ordinal, native, state, &id));
    if (*state != WEIR_CAPTURE_ACTIVE) return WEIR_OK;
    wr_lock_acquire(&device->captures.lock);
    wr_capture *c = find_locked(&device->captures, id, native);
    if (c) c->references++;
    wr_lock_release(&device->captures.lock);
    if (!c && is_of_another(device, id)) *state = WEIR_CAPTURE_NONE; /* as while no capture is known here */
    *out = c;
    return WEIR_OK;
}

weir_status wr_capture_of(wr_device *device, void *native, wr_capture **out)
{
    weir_capture_state state = WEIR_CAPTURE_NONE;
    *out = NULL;
    return wr_captures_any(&device->captures) ? find(device, native, &state, out) : WEIR_OK;
}

/* ---- allocations ------------------------------------------------------------------------------------------------- */

/* Holds the stream, which another thread may be destroying, while `find` asks about it. If it has ended, nothing is
 * found, and the request is refused later. */
static weir_status find_held(wr_device *device, const wr_stream *stream, weir_capture_state *state, wr_capture **out)
{
    wr_stream *held = wr_stream_hold(&device->streams, atomic_load(&stream->id));
    weir_status status = WEIR_OK;
    *state = WEIR_CAPTURE_NONE;
    *out = NULL;
    if (held) status = find(device, held->native, state, out);
    wr_stream_let_go(held);
    return status;
}

weir_status wr_capture_choose(wr_device *device, const wr_stream *stream, wr_route *best)
{
    weir_capture_state state = WEIR_CAPTURE_NONE;
    wr_capture *capture = NULL;
    if (!wr_captures_any(&device->captures)) return WEIR_OK;
    WR_TRY(find_held(device, stream, &state, &capture));
    WR_ENSURE(state != WEIR_CAPTURE_INVALIDATED, WEIR_ERR_CAPTURE,
              "the capture of stream %p was invalidated; end it before allocating there", stream->native);
    WR_ENSURE(capture || state != WEIR_CAPTURE_ACTIVE, WEIR_ERR_CAPTURE,
              "stream %p is in a capture that weir does not know, so nothing would keep the memory for its graph; call "
              "weir_graph_adopt() after the capture has begun, or allocate with weir_alloc_from()",
              stream->native);
    if (capture && capture->route.serial > best->serial) *best = capture->route;
    wr_capture_unref(capture);
    return WEIR_OK;
}

weir_status wr_capture_keep_pool(wr_device *device, const wr_stream *stream, wr_mempool *pool, wr_mempool_name name,
                                 uint64_t *number)
{
    weir_capture_state state = WEIR_CAPTURE_NONE;
    wr_capture *capture = NULL;
    if (name == 0) return WEIR_OK;
    WR_TRY(find_held(device, stream, &state, &capture));
    if (!capture) return WEIR_OK;
    weir_status status = wr_capture_keep(capture, wr_keep_pool(pool, name));
    *number = capture->order.capture;
    wr_capture_unref(capture);
    return status;
}

weir_status wr_capture_bind(wr_device *device, wr_handle *handle, wr_stream *stream, bool serves)
{
    wr_capture *capture = NULL;
    weir_status status = WEIR_OK;
    WR_TRY(wr_capture_of(device, stream->native, &capture));
    if (capture) status = wr_capture_keep(capture, (wr_kept){ &of_handles, handle, 0 });
    if (status == WEIR_OK && !serves) status = wr_handle_bind(handle, stream, capture != NULL);
    wr_capture_unref(capture);
    return status;
}

/* ---- frees ------------------------------------------------------------------------------------------------------- */

static bool defer_on(wr_device *device, wr_block *block, const wr_stream *own)
{
    wr_capture *capture = NULL;
    if (wr_capture_of(device, own->native, &capture) != WEIR_OK || !capture) return false;
    wr_lock_acquire(&capture->lock);
    const bool deferred = !capture->over && wr_graph_order_defer(&capture->order, block, own, capture->route.pool,
                                                                 atomic_load(&capture->id));
    wr_lock_release(&capture->lock);
    wr_capture_unref(capture);
    return deferred;
}

/* Defers the free to the capture of the block's stream, if the block was handed out in it, from its pool, and only its
 * streams use the block. */
static bool defer(wr_device *device, wr_block *block)
{
    wr_cache_lock(&device->cache);
    const uint64_t id = atomic_load(&block->segment->bin->stream->id);
    wr_cache_unlock(&device->cache);
    wr_stream *own = wr_stream_hold(&device->streams, id);
    const bool deferred = own && defer_on(device, block, own);
    wr_stream_let_go(own);
    return deferred;
}

void wr_capture_await(wr_device *device, wr_block *block)
{
    wr_cache *cache = &device->cache;
    if (wr_captures_any(&device->captures) && defer(device, block)) return;
    wr_cache_lock(cache);
    const bool chains = block->lent || block->segment->bin->pool->rules.deterministic;
    wr_cache_unlock(cache);
    (chains ? wr_pending_chain : wr_pending_start)(cache, block);
}

static void reclaim(wr_device *device, const wr_stream *stream)
{
    wr_capture *capture = NULL;
    if (wr_capture_of(device, stream->native, &capture) != WEIR_OK || !capture) return;
    if (atomic_load_explicit(&capture->order.count, memory_order_relaxed) != 0) {
        wr_lock_acquire(&capture->lock);
        if (!capture->over) wr_graph_order_reclaim(&capture->order, stream);
        wr_lock_release(&capture->lock);
    }
    wr_capture_unref(capture);
}

void wr_capture_reclaim(wr_device *device, const wr_stream *stream)
{
    if (!wr_captures_any(&device->captures)) return;
    wr_stream *held = wr_stream_hold(&device->streams, atomic_load(&stream->id));
    if (held) reclaim(device, held);
    wr_stream_let_go(held);
}
