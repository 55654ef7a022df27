#include "pool/graph_order.h"

#include "base/hash.h"
#include "base/meta.h"
#include "pool/pending.h"
#include "stream/gate.h"

/* A list of graph nodes, which are opaque. All zero is empty. */
typedef struct node_list {
    void **nodes;
    uint32_t count, capacity;
} node_list;

/* A set of graph nodes, by hash. */
typedef struct node_set {
    void **slots; /* a power of two, at most half used */
    size_t count, capacity;
} node_set;

/* A freed block, and, for each stream that uses it, the last nodes before the free. */
struct wr_deferred {
    wr_deferred *next;
    wr_block *block;
    uint64_t stream_id; /* the block's */
    node_list markers;
};

/* All nodes known to come before what is captured next on a stream. The set only grows, because what follows on the
 * stream comes after what was there: a rule for the program, which can replace what a captured stream depends on. */
struct wr_ancestry {
    wr_ancestry *next;
    uint64_t stream_id;
    node_set known;
};

/* ---- lists and sets ---------------------------------------------------------------------------------------------- */

static weir_status make_room(node_list *list, size_t more)
{
    return wr_meta_grow(&list->nodes, &list->capacity, list->count + more, sizeof *list->nodes, "nodes of a capture");
}

static size_t slot_of(const node_set *set, const void *node)
{
    size_t slot = (size_t)(wr_hash((uint64_t)(uintptr_t)node) >> 20) & (set->capacity - 1);
    while (set->slots[slot] && set->slots[slot] != node) slot = (slot + 1) & (set->capacity - 1);
    return slot;
}

static bool contains(const node_set *set, const void *node)
{
    return set->capacity != 0 && set->slots[slot_of(set, node)] != NULL;
}

static weir_status grow_set(node_set *set)
{
    void *memory = NULL;
    node_set larger = { .capacity = set->capacity ? set->capacity * 2 : 64, .count = set->count };
    WR_TRY(wr_meta_alloc(larger.capacity * sizeof(void *), "nodes of a capture", &memory));
    larger.slots = memory;
    for (size_t i = 0; i < set->capacity; i++)
        if (set->slots[i]) larger.slots[slot_of(&larger, set->slots[i])] = set->slots[i];
    wr_meta_free(set->slots);
    *set = larger;
    return WEIR_OK;
}

/* *added: it was not in the set. */
static weir_status add_node(node_set *set, void *node, bool *added)
{
    if (set->count * 2 >= set->capacity) WR_TRY(grow_set(set));
    const size_t slot = slot_of(set, node);
    *added = set->slots[slot] == NULL;
    set->slots[slot] = node;
    set->count += *added;
    return WEIR_OK;
}

/* ---- asking the driver ------------------------------------------------------------------------------------------- */

typedef enum nodes_of { TIPS, DEPENDENCIES } nodes_of; /* of a native stream; of a node */

static weir_status append(const weir_backend *backend, int device, nodes_of which, void *of, node_list *list)
{
    for (size_t room = 4;;) {
        size_t count = 0;
        WR_TRY(make_room(list, room));
        void **end = list->nodes + list->count;
        WR_TRY(which == TIPS ? wr_driver(backend, capture_tips, device, of, end, room, &count)
                             : wr_driver(backend, node_dependencies, device, of, end, room, &count));
        if (count <= room) {
            list->count += count;
            return WEIR_OK;
        }
        room = count;
    }
}

/* WEIR_ERR_CAPTURE when the stream is not in the capture. To be called inside the gate, since another thread may be
 * ending the capture. */
static weir_status append_markers(const weir_backend *backend, int device, void *native, uint64_t capture,
                                  node_list *list)
{
    weir_capture_state state = WEIR_CAPTURE_NONE;
    uint64_t id = 0;
    WR_TRY(wr_driver(backend, capture_status, device, native, &state, &id));
    if (state != WEIR_CAPTURE_ACTIVE || id != capture) return WEIR_ERR_CAPTURE;
    return append(backend, device, TIPS, native, list);
}

/* ---- deferring --------------------------------------------------------------------------------------------------- */

static weir_status collect_markers(const wr_block *block, const wr_stream *own, uint64_t capture, node_list *list)
{
    const weir_backend *backend = block->segment->cache->backend;
    WR_TRY(append_markers(backend, own->device, own->native, capture, list));
    for (const wr_use *use = block->uses; use; use = use->next_of_block) {
        wr_wait *w = use->wait;
        weir_status status = WEIR_ERR_CAPTURE;
        if (wr_wait_enter(w)) status = append_markers(backend, w->events->device, w->native, capture, list);
        wr_wait_leave(w);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

void wr_graph_order_mark(const void *pointer, uint64_t capture)
{
    wr_block *block = wr_cache_lock_block(pointer);
    if (WR_UNLIKELY(!block)) return;
    block->capture = capture;
    wr_cache_unlock(block->segment->cache);
}

/* A block that was handed out elsewhere may be used by work that is not part of the capture. */
static bool is_of(const wr_graph_order *order, const wr_block *block, const wr_stream *own, const wr_mempool *pool)
{
    wr_cache *cache = block->segment->cache;
    wr_cache_lock(cache);
    const wr_bin *bin = block->segment->bin;
    const bool is = bin->pool == pool && bin->stream == own && block->capture == order->capture;
    wr_cache_unlock(cache);
    return is;
}

bool wr_graph_order_defer(wr_graph_order *order, wr_block *block, const wr_stream *own, const wr_mempool *pool,
                          uint64_t id)
{
    void *memory = NULL;
    if (!is_of(order, block, own, pool) || !pool->cache->backend->capture_tips) return false;
    if (wr_meta_alloc(sizeof(wr_deferred), "deferred free", &memory) != WEIR_OK) return false;
    wr_deferred *d = memory;
    d->block = block;
    d->stream_id = atomic_load_explicit(&own->id, memory_order_relaxed);
    wr_gate_enter();
    const weir_status collected = collect_markers(block, own, id, &d->markers);
    wr_gate_leave();
    if (collected != WEIR_OK) {
        wr_meta_free(d->markers.nodes);
        wr_meta_free(d);
        return false;
    }
    d->next = order->first;
    order->first = d;
    atomic_fetch_add_explicit(&order->count, 1, memory_order_relaxed);
    return true;
}

/* ---- reclaiming -------------------------------------------------------------------------------------------------- */

static weir_status ancestry_of(wr_graph_order *order, uint64_t id, wr_ancestry **out)
{
    wr_ancestry *a = order->ancestries;
    while (a && a->stream_id != id) a = a->next;
    if (!a) {
        void *memory = NULL;
        WR_TRY(wr_meta_alloc(sizeof(wr_ancestry), "order of a capture", &memory));
        a = memory;
        a->stream_id = id;
        a->next = order->ancestries;
        order->ancestries = a;
    }
    *out = a;
    return WEIR_OK;
}

/* Keeps the nodes in list[from...] that were not known, and makes them known. */
static weir_status keep_new(node_set *known, node_list *list, size_t from)
{
    size_t kept = from;
    for (size_t i = from; i < list->count; i++) {
        bool added = false;
        WR_TRY(add_node(known, list->nodes[i], &added));
        if (added) list->nodes[kept++] = list->nodes[i];
    }
    list->count = kept;
    return WEIR_OK;
}

static weir_status walk(const weir_backend *backend, const wr_stream *stream, node_set *known, node_list *open)
{
    WR_TRY(append(backend, stream->device, TIPS, stream->native, open));
    WR_TRY(keep_new(known, open, 0));
    while (open->count != 0) {
        void *node = open->nodes[--open->count];
        const size_t from = open->count;
        WR_TRY(append(backend, stream->device, DEPENDENCIES, node, open));
        WR_TRY(keep_new(known, open, from));
    }
    return WEIR_OK;
}

/* Walks back from the stream's tips to known nodes. False: it failed this time. */
static bool learn(const weir_backend *backend, const wr_stream *stream, wr_ancestry *ancestry)
{
    node_list open = { 0 };
    wr_gate_enter();
    const bool learnt = walk(backend, stream, &ancestry->known, &open) == WEIR_OK;
    wr_gate_leave();
    wr_meta_free(open.nodes);
    if (learnt) return true;
    /* A known node stands for everything before it, which was not walked to the end. */
    wr_meta_free(ancestry->known.slots);
    ancestry->known = (node_set){ 0 };
    return false;
}

static bool proven(const wr_deferred *deferred, const wr_ancestry *ancestry)
{
    for (size_t i = 0; i < deferred->markers.count; i++)
        if (!contains(&ancestry->known, deferred->markers.nodes[i])) return false;
    return true;
}

static bool any_of(const wr_graph_order *order, uint64_t stream_id)
{
    const wr_deferred *d = order->first;
    while (d && d->stream_id != stream_id) d = d->next;
    return d != NULL;
}

static wr_block *take_out(wr_graph_order *order, wr_deferred **link)
{
    wr_deferred *d = *link;
    wr_block *block = d->block;
    *link = d->next;
    atomic_fetch_sub_explicit(&order->count, 1, memory_order_relaxed);
    wr_meta_free(d->markers.nodes);
    wr_meta_free(d);
    return block;
}

void wr_graph_order_reclaim(wr_graph_order *order, const wr_stream *stream)
{
    const uint64_t id = atomic_load_explicit(&stream->id, memory_order_relaxed);
    wr_ancestry *ancestry = NULL;
    if (!any_of(order, id)) return;
    const weir_backend *backend = order->first->block->segment->cache->backend;
    if (ancestry_of(order, id, &ancestry) != WEIR_OK || !learn(backend, stream, ancestry)) return;
    for (wr_deferred **link = &order->first; *link;) {
        if ((*link)->stream_id == id && proven(*link, ancestry))
            wr_pending_skip(take_out(order, link));
        else
            link = &(*link)->next;
    }
}

void wr_graph_order_end(wr_graph_order *order)
{
    while (order->first) {
        wr_block *block = take_out(order, &order->first);
        wr_pending_start(block->segment->cache, block);
    }
    while (order->ancestries) {
        wr_ancestry *a = order->ancestries;
        order->ancestries = a->next;
        wr_meta_free(a->known.slots);
        wr_meta_free(a);
    }
}
