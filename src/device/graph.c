#include "device/graph.h"

#include "base/meta.h"
#include "base/thread_number.h"
#include "device/device.h"
#include "device/ladder.h"
#include "pool/pause.h"
#include "pool/pending.h"
#include "stream/gate.h"
#include "stream/quiet.h"

#include <assert.h>

/* An id has a serial number that is never reused, not even after weir_close, the device, and the slot's index. */
#define INDEX_BITS 20
#define DEVICE_BITS 8
#define GRAPHS_MAX ((uint32_t)1 << INDEX_BITS)

typedef enum graph_state {
    UNDERWAY, /* its capture is underway */
    CAPTURED, /* there is a native graph */
    FOREIGN,  /* adopted, and its capture is over: its owner has the native graph */
    EMPTY,    /* the capture failed */
    GONE      /* destroyed while another thread waited for its lock */
} graph_state;

struct wr_graph {
    uint64_t id;
    wr_device *device;
    uint32_t references; /* the table's lock */
    wr_lock lock;        /* the rest */
    graph_state state;
    bool adopted;
    uint32_t thread;    /* that opened it */
    atomic_bool left;   /* that thread has ended */
    uint64_t stream_id; /* where the capture began */
    void *stream;
    uint64_t capture_id;
    wr_capture *capture; /* while it is registered */
    wr_mempool_name pool_name;
    wr_keeps kept; /* once the capture is over */
    void *native, *executable;
};

/* ---- the table --------------------------------------------------------------------------------------------------- */

static atomic_uint_fast64_t last_serial;

void wr_graphs_init(wr_graphs *graphs)
{
    *graphs = (wr_graphs){ 0 };
    wr_lock_init(&graphs->lock, WR_RANK_LEAF, "graphs");
}

void wr_graphs_release(wr_graphs *graphs)
{
    wr_meta_free(graphs->slots);
    wr_lock_destroy(&graphs->lock);
}

static weir_status grow_locked(wr_graphs *graphs)
{
    WR_ENSURE(graphs->capacity < GRAPHS_MAX, WEIR_ERR_OUT_OF_HOST_MEMORY,
              "there are %u graphs, the most that weir can have; destroy some", graphs->capacity);
    return wr_meta_grow(&graphs->slots, &graphs->capacity, graphs->capacity + 1, sizeof *graphs->slots, "graphs");
}

static weir_status publish(wr_graphs *graphs, wr_graph *graph)
{
    weir_status status = WEIR_OK;
    wr_lock_acquire(&graphs->lock);
    uint32_t index = 0;
    while (index < graphs->capacity && graphs->slots[index]) index++;
    if (index == graphs->capacity) status = grow_locked(graphs);
    if (status == WEIR_OK) {
        const uint64_t serial = atomic_fetch_add_explicit(&last_serial, 1, memory_order_relaxed) + 1;
        graph->id = serial << (INDEX_BITS + DEVICE_BITS) | (uint64_t)graph->device->ordinal << INDEX_BITS | index;
        graphs->slots[index] = graph;
    }
    wr_lock_release(&graphs->lock);
    return status;
}

static void unref(wr_graph *graph)
{
    wr_graphs *graphs = &graph->device->graphs;
    wr_lock_acquire(&graphs->lock);
    const bool last = --graph->references == 0;
    wr_lock_release(&graphs->lock);
    if (!last) return;
    wr_lock_destroy(&graph->lock);
    wr_meta_free(graph);
}

/* Returns the graph with a reference. `take` hands over the table's, so that the graph is not found again. */
static wr_graph *find(weir_graph id, bool take)
{
    const uint64_t ordinal = id.id >> INDEX_BITS & ((1u << DEVICE_BITS) - 1);
    const uint32_t index = (uint32_t)id.id & (GRAPHS_MAX - 1);
    wr_device *device = ordinal < WR_DEVICE_MAX ? wr_runtime_opened((int)ordinal) : NULL;
    if (!device) return NULL;
    wr_graphs *graphs = &device->graphs;
    wr_lock_acquire(&graphs->lock);
    wr_graph *g = index < graphs->capacity ? graphs->slots[index] : NULL;
    if (g && g->id != id.id) g = NULL;
    if (g && take) graphs->slots[index] = NULL;
    if (g && !take) g->references++;
    wr_lock_release(&graphs->lock);
    return g;
}

static weir_status unknown(weir_graph id)
{
    return wr_fail(WEIR_ERR_INVALID_ARGUMENT,
                   "graph %#llx does not exist: it was destroyed, dates from before a weir_close(), or never existed",
                   (unsigned long long)id.id);
}

/* Takes the graph's lock. NULL: there is no such graph. */
static wr_graph *enter(weir_graph id)
{
    wr_graph *g = find(id, false);
    if (!g) return NULL;
    wr_lock_acquire(&g->lock);
    if (g->state != GONE) return g;
    wr_graph_done(g);
    return NULL;
}

weir_status wr_graph_enter(weir_graph id, wr_graph **out)
{
    *out = enter(id);
    return *out ? WEIR_OK : unknown(id);
}

void wr_graph_done(wr_graph *graph)
{
    wr_lock_release(&graph->lock);
    unref(graph);
}

/* ---- beginning --------------------------------------------------------------------------------------------------- */

static weir_status hold_made(const wr_device *device, wr_mempool *pool, wr_mempool_name name, wr_mempool **out)
{
    WR_ENSURE(pool->cache == &device->cache, WEIR_ERR_WRONG_DEVICE,
              "the graph's pool belongs to device %d, its stream to device %d", pool->cache->device, device->ordinal);
    WR_TRY(wr_mempool_ref(pool, name, WR_HELD_BY_GRAPH));
    *out = pool;
    return WEIR_OK;
}

/* The pool of a public id, with a graph's reference. The first capture that names the id creates the pool. */
static weir_status hold_pool(wr_device *device, weir_mempool id, wr_mempool_name *name, wr_mempool **out)
{
    wr_mempool *pool = NULL;
    if (id.capture == 0 && id.user == 0)
        return wr_mempool_create_new(&device->cache, NULL, WR_HELD_BY_GRAPH, name, out);
    /* Another capture may make the pool first, and fail to begin, which ends the pool but not the id. */
    for (;;) {
        WR_TRY(wr_mempool_find(id, name, &pool));
        if (pool && pool->cache == &device->cache) wr_cache_trim_inherited(pool, *name);
        const weir_status status = pool ? hold_made(device, pool, *name, out)
                                        : wr_mempool_create(&device->cache, NULL, *name, WR_HELD_BY_GRAPH, out);
        if (status != (pool ? WEIR_ERR_POOL_MISMATCH : WEIR_ERR_BUSY)) return status;
    }
}

static weir_status make(wr_device *device, const wr_stream *stream, bool adopt, wr_graph **out)
{
    void *memory = NULL;
    WR_TRY(wr_meta_alloc(sizeof(wr_graph), "graph", &memory));
    wr_graph *g = memory;
    g->device = device;
    g->references = 1;
    g->state = UNDERWAY;
    g->adopted = adopt;
    g->thread = wr_thread_number();
    g->stream_id = atomic_load_explicit(&stream->id, memory_order_relaxed);
    g->stream = stream->native;
    wr_lock_init(&g->lock, WR_RANK_GRAPH, "graph");
    weir_status status = publish(&device->graphs, g);
    if (status != WEIR_OK) unref(g);
    if (status == WEIR_OK) *out = g;
    return status;
}

static weir_status check_stream(const wr_device *device, const wr_stream *stream, bool adopt, uint64_t *id)
{
    weir_capture_state state = WEIR_CAPTURE_NONE;
    const char *call = adopt ? "weir_graph_adopt" : "weir_graph_begin";
    WR_ENSURE(device->backend->capture_begin, WEIR_ERR_NOT_SUPPORTED, "%s: back end %s has no graphs", call,
              device->backend->name);
    WR_ENSURE(stream != wr_stream_default_of(&device->streams), WEIR_ERR_INVALID_ARGUMENT,
              "%s: the default stream cannot be captured; name another stream, or make another one current", call);
    WR_TRY(wr_stream_ask_capture(device->backend, device->ordinal, stream->native, &state, id));
    WR_ENSURE(adopt || state == WEIR_CAPTURE_NONE, WEIR_ERR_CAPTURE,
              "%s: stream %p is already being captured; weir_graph_adopt() takes over a capture that the program began",
              call, stream->native);
    WR_ENSURE(!adopt || state == WEIR_CAPTURE_ACTIVE, WEIR_ERR_CAPTURE, "%s: stream %p is %s", call, stream->native,
              state == WEIR_CAPTURE_NONE ? "not being captured" : "in a capture that was invalidated");
    return WEIR_OK;
}

/* Ends a capture that no graph will have. If that fails too, nobody but the program can. */
static void undo_begin(const wr_graph *g)
{
    const wr_device *d = g->device;
    weir_capture_state state = WEIR_CAPTURE_NONE;
    weir_status asked = WEIR_OK;
    uint64_t id = 0;
    void *native = NULL;
    wr_clean_up(wr_driver(d->backend, capture_end, d->ordinal, g->stream, &native));
    if (native) wr_clean_up(wr_driver(d->backend, graph_destroy, d->ordinal, native));
    wr_clean_up(asked = wr_driver(d->backend, capture_status, d->ordinal, g->stream, &state, &id));
    if (asked == WEIR_OK && state != WEIR_CAPTURE_NONE)
        wr_fail_prefix("stream %p is still being captured, since its capture could not be ended again; end it with the "
                       "driver's own function. It was to be ended because of this: ",
                       g->stream);
}

static weir_status begin_closed(const wr_graph *g, weir_capture_mode mode, uint64_t *id)
{
    const wr_device *d = g->device;
    weir_capture_state state = WEIR_CAPTURE_NONE;
    WR_TRY(wr_driver(d->backend, capture_begin, d->ordinal, g->stream, mode));
    weir_status status = wr_driver(d->backend, capture_status, d->ordinal, g->stream, &state, id);
    if (status == WEIR_OK && state != WEIR_CAPTURE_ACTIVE)
        status = wr_fail(WEIR_ERR_CAPTURE, "the capture of stream %p was invalidated as it began", g->stream);
    if (status != WEIR_OK) undo_begin(g);
    return status;
}

static weir_status begin(wr_graph *g, weir_capture_mode mode)
{
    uint64_t id = 0;
    wr_gate_close_to_begin();
    weir_status status = begin_closed(g, mode, &id);
    wr_gate_open_begun();
    if (status != WEIR_OK) return status;
    g->capture_id = id;
    wr_capture_begun(g->capture, id);
    return WEIR_OK;
}

/* Registers the capture, so that everything from here on belongs to the graph. The graph keeps its pool first. */
static weir_status register_with(wr_graph *g, wr_mempool *pool, wr_mempool_name name, uint64_t id)
{
    WR_TRY(wr_capture_register(g->device, g->stream, pool, id, &g->capture));
    g->capture_id = id;
    g->pool_name = name;
    return wr_capture_keep(g->capture, wr_keep_pool(pool, name));
}

static void unregister(wr_graph *g)
{
    if (!g->capture) return;
    const wr_saved_failure told = wr_fail_save();
    wr_capture_unregister(g->capture, &g->kept);
    wr_fail_restore(told);
    g->capture = NULL;
}

weir_status wr_graph_open(wr_device *device, wr_stream *stream, weir_mempool pool, weir_capture_mode mode, bool adopt,
                          weir_graph *out)
{
    wr_graph *g = NULL;
    wr_mempool *held = NULL;
    wr_mempool_name name = 0;
    uint64_t id = 0;
    WR_TRY(check_stream(device, stream, adopt, &id));
    /* Memory cannot be given back while its stream captures, so idle memory that earlier graphs left goes now. */
    if (!adopt) wr_pending_flush(&device->cache);
    if (!adopt) wr_mempool_tidy(&device->cache);
    WR_TRY(hold_pool(device, pool, &name, &held));
    weir_status status = make(device, stream, adopt, &g);
    if (status == WEIR_OK) status = register_with(g, held, name, adopt ? id : 0);
    if (status == WEIR_OK && !adopt) status = begin(g, mode);
    if (status == WEIR_OK) {
        wr_cache_lock(&device->cache);
        held->made_in_vain = false;
        wr_cache_unlock(&device->cache);
        *out = (weir_graph){ g->id };
    } else if (g) {
        unregister(g);
        wr_keeps_release(&g->kept);
        unref(find((weir_graph){ g->id }, true));
    }
    /* Quietly: the error text must stay that of the first failure. */
    wr_mempool_unref_quietly(held, WR_HELD_BY_GRAPH);
    wr_mempool_sweep(&device->cache);
    return status;
}

/* ---- ending ------------------------------------------------------------------------------------------------------ */

/* Whether the driver still has the capture. */
static weir_status ask(const wr_graph *g, bool *goes_on)
{
    const wr_device *d = g->device;
    weir_capture_state state = WEIR_CAPTURE_NONE;
    uint64_t id = g->capture_id;
    *goes_on = false;
    wr_stream *stream = wr_stream_hold(&d->streams, g->stream_id);
    if (!stream) return WEIR_OK;
    const weir_status status = wr_stream_ask_capture(d->backend, d->ordinal, g->stream, &state, &id);
    wr_stream_let_go(stream);
    if (status == WEIR_ERR_INVALID_STREAM) return WEIR_OK; /* its owner has ended it, and the capture with it */
    if (status != WEIR_OK) return status;
    *goes_on = state == WEIR_CAPTURE_INVALIDATED || (state == WEIR_CAPTURE_ACTIVE && id == g->capture_id);
    return WEIR_OK;
}

/* A capture whose state cannot be read may go on; on a lost device none does. */
static bool may_go_on(const wr_graph *g)
{
    bool on = false;
    weir_status asked = WEIR_OK;
    wr_clean_up(asked = ask(g, &on));
    return asked == WEIR_OK ? on : asked != WEIR_ERR_DEVICE_LOST;
}

static weir_status end_driver(const wr_graph *g, bool goes_on, void **native)
{
    const wr_device *d = g->device;
    WR_ENSURE(goes_on, WEIR_ERR_CAPTURE,
              "the capture of stream %p is already over: it was ended without weir, or its stream has ended",
              g->stream);
    wr_gate_close();
    weir_status status = wr_driver(d->backend, capture_end, d->ordinal, g->stream, native);
    wr_gate_open();
    return status;
}

weir_status wr_graph_end(wr_graph *g)
{
    bool on = false;
    WR_ENSURE(g->state == UNDERWAY, WEIR_ERR_INVALID_ARGUMENT, "weir_graph_end: the graph's capture has ended already");
    weir_status status = ask(g, &on);
    if (status != WEIR_OK && status != WEIR_ERR_DEVICE_LOST) return status;
    if (g->adopted) {
        WR_ENSURE(
            !on, WEIR_ERR_BUSY,
            "weir_graph_end: stream %p is still being captured; the owner of an adopted capture must end it first",
            g->stream);
        unregister(g);
        g->state = FOREIGN;
        return WEIR_OK;
    }
    if (status == WEIR_OK) status = end_driver(g, on, &g->native);
    if (status != WEIR_OK && may_go_on(g)) return status; /* another thread may have to end it */
    unregister(g);
    g->state = status == WEIR_OK ? CAPTURED : EMPTY;
    return status;
}

/* Ends a capture that nobody will end otherwise, if it is underway. An adopted one is its owner's to end. If only the
 * thread that began it may, nothing changes, unless that thread has ended or `forced`. */
static weir_status abandon(wr_graph *g, bool forced)
{
    weir_status first = WEIR_OK;
    bool on = false;
    if (g->state != UNDERWAY) return WEIR_OK;
    if (!g->adopted) first = ask(g, &on);
    if (first != WEIR_OK) first = ask(g, &on); /* drivers report earlier failures here; nobody could end it later */
    if (on) {
        first = end_driver(g, on, &g->native);
        if (first == WEIR_ERR_WRONG_THREAD && !forced && !atomic_load(&g->left)) return first;
        if (first == WEIR_ERR_CAPTURE && !may_go_on(g)) first = WEIR_OK; /* it was invalidated, and so is over */
    }
    unregister(g);
    g->state = EMPTY;
    return first;
}

/* Destroys everything of the graph but what it kept, unless its capture must go on. Returns the first failure. */
static weir_status take_apart(wr_graph *g)
{
    const wr_device *d = g->device;
    weir_status first = abandon(g, false);
    if (g->state == UNDERWAY) return first;
    if (g->executable) wr_keep_first(&first, wr_driver(d->backend, graph_exec_destroy, d->ordinal, g->executable));
    if (g->native) wr_keep_first(&first, wr_driver(d->backend, graph_destroy, d->ordinal, g->native));
    wr_pending_poll(&g->device->cache); /* blocks it left pending may be idle by now, and go with the pool */
    g->state = GONE;
    return first;
}

/* The owner of an adopted graph need not have waited for its launches: PyTorch does not, and lets cudaFree wait. So
 * their pools' memory goes back only once the device was waited for. For whatever else the graph kept, that is done at
 * once; where it would end a capture, the caller must have made sure of it, as weir_graph_destroy() says. */
static void note_launches(const wr_keeps *kept)
{
    for (uint32_t i = 0; i < kept->pools; i++) {
        wr_mempool *pool = wr_kept_pool(&kept->items[i]);
        assert(pool->is_private); /* nobody waits for strays (wr_stream_table) in the default pool */
        wr_cache_lock(pool->cache);
        pool->stray = atomic_fetch_add(&pool->cache->streams->strays, 1) + 1;
        wr_cache_unlock(pool->cache);
    }
}

weir_status wr_graph_destroy(weir_graph id)
{
    wr_graph *g = enter(id);
    if (!g) return unknown(id);
    wr_device *d = g->device;
    const bool launched_by_owner = g->state == FOREIGN;
    weir_status status = take_apart(g);
    wr_keeps kept = { 0 };
    if (g->state == GONE) {
        kept = g->kept;
        g->kept = (wr_keeps){ 0 };
        if (g->adopted) note_launches(&kept);
        unref(find(id, true));
    }
    wr_graph_done(g);
    if (launched_by_owner && kept.count > kept.pools)
        wr_clean_up(wr_quiet_synchronize(&d->events, &d->streams, "weir_graph_destroy"));
    wr_keeps_release(&kept);
    return status;
}

void wr_graphs_leave(wr_device *device)
{
    wr_graphs *graphs = &device->graphs;
    wr_lock_acquire(&graphs->lock);
    for (uint32_t i = 0; i < graphs->capacity; i++)
        if (graphs->slots[i] && graphs->slots[i]->thread == wr_thread_number())
            atomic_store(&graphs->slots[i]->left, true);
    wr_lock_release(&graphs->lock);
}

weir_status wr_graphs_end_captures(wr_device *device)
{
    weir_status first = WEIR_OK;
    for (uint32_t i = 0; i < device->graphs.capacity; i++) {
        wr_graph *g = device->graphs.slots[i] ? find((weir_graph){ device->graphs.slots[i]->id }, false) : NULL;
        if (!g) continue;
        wr_lock_acquire(&g->lock);
        wr_keep_first(&first, abandon(g, true));
        wr_graph_done(g);
    }
    return first;
}

weir_status wr_graphs_end(wr_device *device)
{
    weir_status first = WEIR_OK;
    for (uint32_t i = 0; i < device->graphs.capacity; i++) {
        const wr_graph *g = device->graphs.slots[i];
        if (g) wr_keep_first(&first, wr_graph_destroy((weir_graph){ g->id }));
    }
    return first;
}

/* ---- using ------------------------------------------------------------------------------------------------------- */

static void let_pause(const wr_graph *g, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) wr_pause_let_on(wr_kept_pool(&g->kept.items[i]));
}

/* Until let_pause() its pools are not paused, and what is launched until then is waited for. */
static weir_status keep_from_pausing(const wr_graph *g)
{
    for (uint32_t i = 0; i < g->kept.pools; i++) {
        wr_mempool *pool = wr_kept_pool(&g->kept.items[i]);
        if (wr_pause_hold_off_pool(pool)) continue;
        let_pause(g, i);
        return wr_fail(WEIR_ERR_BUSY,
                       "weir_graph_launch: memory pool " WR_MEMPOOL_FORMAT
                       " of the graph is paused; call weir_resume() first",
                       WR_MEMPOOL_ARGUMENTS(wr_mempool_name_of(pool)));
    }
    return WEIR_OK;
}

/* A graph launched inside another capture becomes part of that graph, which must then keep what this one keeps. */
static weir_status pass_on(const wr_graph *g, wr_device *device, const wr_stream *stream)
{
    wr_capture *capture = NULL;
    weir_status status = WEIR_OK;
    WR_TRY(wr_capture_of(device, stream->native, &capture));
    for (uint32_t i = 0; capture && i < g->kept.count && status == WEIR_OK; i++)
        status = wr_capture_keep(capture, g->kept.items[i]);
    wr_capture_unref(capture);
    return status;
}

/* The driver takes device memory for it, which may all lie idle in the cache. */
static weir_status instantiate(wr_graph *g)
{
    wr_device *d = g->device;
    weir_status status = wr_driver(d->backend, graph_instantiate, d->ordinal, g->native, &g->executable);
    if (status != WEIR_ERR_OUT_OF_MEMORY) return status;
    wr_device_make_room(d);
    return wr_driver(d->backend, graph_instantiate, d->ordinal, g->native, &g->executable);
}

weir_status wr_graph_launch(wr_graph *g, wr_device *device, const wr_stream *stream)
{
    static const char *const why[] = { [UNDERWAY] = "its capture has not ended; call weir_graph_end() first",
                                       [FOREIGN] = "it was adopted; its owner launches it",
                                       [EMPTY] = "its capture failed; capture again" };
    WR_ENSURE(g->state == CAPTURED, WEIR_ERR_INVALID_ARGUMENT, "weir_graph_launch: the graph has nothing to launch: %s",
              why[g->state]);
    WR_ENSURE(device == g->device, WEIR_ERR_WRONG_DEVICE,
              "weir_graph_launch: the graph belongs to device %d, the stream to device %d", g->device->ordinal,
              device->ordinal);
    WR_TRY(keep_from_pausing(g));
    weir_status status = pass_on(g, device, stream);
    if (status == WEIR_OK && !g->executable) status = instantiate(g);
    if (status == WEIR_OK)
        status = wr_driver(device->backend, graph_launch, device->ordinal, g->executable, stream->native);
    let_pause(g, g->kept.pools);
    return status;
}

weir_status wr_graph_retain(wr_graph *g, weir_mempool id)
{
    wr_mempool_name name = 0;
    wr_mempool *pool = NULL;
    WR_ENSURE(id.capture != 0 || id.user != 0, WEIR_ERR_INVALID_ARGUMENT,
              "weir_graph_retain_pool: name a private pool; nothing keeps the memory of the default one in place");
    WR_TRY(wr_mempool_find(id, &name, &pool));
    WR_ENSURE(
        pool, WEIR_ERR_POOL_MISMATCH,
        "weir_graph_retain_pool: memory pool {%llu, %llu} does not exist yet: the first capture that names it creates "
        "it",
        (unsigned long long)id.capture, (unsigned long long)id.user);
    const wr_kept kept = wr_keep_pool(pool, name);
    return g->capture ? wr_capture_keep(g->capture, kept) : wr_keeps_add(&g->kept, kept);
}

weir_mempool wr_graph_pool(const wr_graph *g)
{
    return wr_mempool_id_of(g->pool_name);
}

void wr_graph_native(const wr_graph *g, void **native, void **executable)
{
    *native = g->native;
    *executable = g->executable;
}
