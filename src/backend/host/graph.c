#include "backend/host/host_internal.h"
#include "base/meta.h"

#include <inttypes.h>
#include <string.h>

/* Nodes are kept in the order of the calls. Each comes after those it depends on, so a graph runs in this order.
 * `before` serves only to find work that was not joined, and to report the order. */
typedef struct node {
    wr_host_work work; /* WR_HOST_NOTHING: a join of two streams */
    int64_t before[2]; /* -1: none */
    bool reached;
} node;

/* Owner: the origin stream, from capture_begin to capture_end. */
struct wr_host_capture {
    LIST_ENTRY(wr_host_capture) link;
    uint64_t id;
    wr_host_stream *origin;
    LIST_HEAD(, wr_host_stream) streams; /* the origin too */
    pthread_t thread;                    /* the one that began it, unless relaxed */
    bool any_thread;
    const char *spoiled; /* what invalidated it; NULL: nothing */
    node *nodes;
    uint32_t count, room;
};

/* Owner: its user, or the device when it closes. Immutable. */
typedef struct graph {
    wr_host_object object;
    size_t count;
    node *nodes;
} graph;

/* Owners: its user, and launches that have not completed. Immutable except for `last`. */
struct wr_host_exec {
    wr_host_object object;
    atomic_uint references;
    bool calls;
    wr_lock lock;
    wr_host_fence last; /* the last launch, behind which the next one runs; under the lock */
    size_t count;
    wr_host_work work[];
};

static wr_lock captures_lock = WR_LOCK_INITIALIZER(WR_RANK_BACKEND, "host captures");
static LIST_HEAD(, wr_host_capture) captures = LIST_HEAD_INITIALIZER(captures);
static uint64_t last_id;

/* ---- inside a capture: captures_lock held ------------------------------------------------------------------------ */

static wr_host_capture *capture_of(wr_host_stream *stream)
{
    return atomic_load_explicit(&stream->capture, memory_order_relaxed);
}

static wr_host_capture *find_capture(uint64_t id)
{
    wr_host_capture *capture;
    LIST_FOREACH(capture, &captures, link)
        if (capture->id == id) break;
    return capture;
}

static void spoil(wr_host_capture *capture, const char *reason)
{
    if (capture != NULL && capture->spoiled == NULL) capture->spoiled = reason;
}

static weir_status fail_spoiled(const wr_host_capture *capture)
{
    return wr_fail(WEIR_ERR_CAPTURE, "host: capture %" PRIu64 " was invalidated: %s; end it and capture again",
                   capture->id, capture->spoiled);
}

static void attach(wr_host_capture *capture, wr_host_stream *stream)
{
    LIST_INSERT_HEAD(&capture->streams, stream, captured_link);
    stream->tip = -1;
    atomic_store(&stream->capture, capture);
}

/* Takes the streams out of the capture, which is then the caller's alone. */
static void dissolve(wr_host_capture *capture)
{
    wr_host_stream *stream;
    LIST_FOREACH(stream, &capture->streams, captured_link) atomic_store(&stream->capture, NULL);
    LIST_REMOVE(capture, link);
}

static void free_capture(wr_host_capture *capture)
{
    wr_meta_free(capture->nodes);
    wr_meta_free(capture);
}

/* Adds a node after the stream's last and after `other`. */
static weir_status add_node(wr_host_capture *capture, wr_host_stream *stream, const wr_host_work *work, int64_t other)
{
    WR_TRY(wr_meta_grow(&capture->nodes, &capture->room, capture->count + 1, sizeof *capture->nodes,
                        "nodes of a captured graph"));
    capture->nodes[capture->count] = (node){ .work = *work, .before = { stream->tip, other } };
    stream->tip = (int64_t)capture->count++;
    return WEIR_OK;
}

/* A launch of the graph would not wait for work that the origin stream was never made to wait for. */
static bool all_joined(wr_host_capture *capture)
{
    node *nodes = capture->nodes;
    int64_t tip = capture->origin->tip;
    if (tip >= 0) nodes[tip].reached = true;
    for (int64_t i = tip; i >= 0; i--) {
        if (!nodes[i].reached) continue;
        for (int j = 0; j < 2; j++)
            if (nodes[i].before[j] >= 0) nodes[nodes[i].before[j]].reached = true;
    }
    for (size_t i = 0; i < capture->count; i++)
        if (!nodes[i].reached && nodes[i].work.kind != WR_HOST_NOTHING) return false;
    return true;
}

/* ---- calls that do not go with a capture ------------------------------------------------------------------------- */

weir_status wr_host_capture_refuse_stream(wr_host_stream *stream, const char *call)
{
    if (WR_LIKELY(atomic_load(&stream->capture) == NULL)) return WEIR_OK;
    wr_lock_acquire(&captures_lock);
    spoil(capture_of(stream), call);
    wr_lock_release(&captures_lock);
    return wr_fail(WEIR_ERR_CAPTURE, "host: %s on stream %p, which is being captured; this invalidates the capture",
                   call, (void *)stream);
}

weir_status wr_host_capture_refuse_event(const wr_host_target *target, const char *call)
{
    if (WR_LIKELY(target->capture == 0)) return WEIR_OK;
    wr_lock_acquire(&captures_lock);
    spoil(find_capture(target->capture), call);
    wr_lock_release(&captures_lock);
    return wr_fail(WEIR_ERR_CAPTURE,
                   "host: %s on an event that was last recorded in capture %" PRIu64
                   ", which this invalidates if it is still underway; record the event outside a capture first",
                   call, target->capture);
}

static bool concerns(const wr_host_capture *capture, int device)
{
    const wr_host_stream *stream;
    LIST_FOREACH(stream, &capture->streams, captured_link)
        if (stream->device == device) return true;
    return false;
}

weir_status wr_host_capture_refuse_device(int device, const char *call)
{
    bool any = false;
    wr_host_capture *capture;
    wr_lock_acquire(&captures_lock);
    LIST_FOREACH(capture, &captures, link) {
        if (!concerns(capture, device)) continue;
        spoil(capture, call);
        any = true;
    }
    wr_lock_release(&captures_lock);
    WR_ENSURE(!any, WEIR_ERR_CAPTURE,
              "host: %s on device %d while a capture is underway there; this invalidates the capture", call, device);
    return WEIR_OK;
}

void wr_host_capture_abandon(int device)
{
    wr_host_capture *capture, *next;
    wr_lock_acquire(&captures_lock);
    for (capture = LIST_FIRST(&captures); capture != NULL; capture = next) {
        next = LIST_NEXT(capture, link);
        if (!concerns(capture, device)) continue;
        dissolve(capture);
        free_capture(capture);
    }
    wr_lock_release(&captures_lock);
}

/* ---- recording --------------------------------------------------------------------------------------------------- */

/* The stream's capture; NULL, with the reason in *status, when there is none or it is invalidated. */
static wr_host_capture *good_capture(wr_host_stream *stream, weir_status *status)
{
    wr_host_capture *capture = capture_of(stream);
    if (capture != NULL && capture->spoiled == NULL) return capture;
    *status = capture != NULL
                  ? fail_spoiled(capture)
                  : wr_fail(WEIR_ERR_CAPTURE, "host: the capture of stream %p ended during the call", (void *)stream);
    return NULL;
}

static weir_status add_locked(wr_host_stream *stream, const wr_host_work *work)
{
    weir_status status;
    wr_host_capture *capture = good_capture(stream, &status);
    return capture != NULL ? add_node(capture, stream, work, -1) : status;
}

weir_status wr_host_capture_add(wr_host_stream *stream, const wr_host_work *work)
{
    wr_lock_acquire(&captures_lock);
    weir_status status = add_locked(stream, work);
    wr_lock_release(&captures_lock);
    return status;
}

weir_status wr_host_capture_tip(wr_host_stream *stream, wr_host_target *target)
{
    weir_status status = WEIR_OK;
    wr_lock_acquire(&captures_lock);
    const wr_host_capture *capture = good_capture(stream, &status);
    if (capture != NULL) {
        target->capture = capture->id;
        target->node = stream->tip;
    }
    wr_lock_release(&captures_lock);
    return status;
}

/* Why CUDA forbids the stream to wait for what was recorded in `other`; NULL when it does not. */
static const char *no_join(const wr_host_stream *stream, const wr_host_capture *own, const wr_host_capture *other)
{
    if (other == NULL) return "a wait for an event that was not recorded in a capture underway";
    if (own != NULL && own != other) return "a wait that would merge two captures";
    if (stream == wr_host.devices[stream->device].default_stream)
        return "a wait by the default stream, which cannot be captured";
    return NULL;
}

static weir_status wait_locked(wr_host_stream *stream, const wr_host_target *target)
{
    wr_host_capture *own = capture_of(stream);
    wr_host_capture *other = target->capture != 0 ? find_capture(target->capture) : NULL;
    const wr_host_work join = { .kind = WR_HOST_NOTHING };

    if (own != NULL && own->spoiled != NULL) return fail_spoiled(own);
    if (other != NULL && other->spoiled != NULL) return fail_spoiled(other);
    const char *reason = no_join(stream, own, other);
    if (reason != NULL) {
        spoil(own, reason);
        spoil(other, reason);
        return wr_fail(WEIR_ERR_CAPTURE, "host: stream_wait on stream %p: %s; this invalidates the captures involved",
                       (void *)stream, reason);
    }

    if (own == NULL) attach(other, stream);
    if (target->node < 0 || target->node == stream->tip) return WEIR_OK;
    weir_status status = add_node(other, stream, &join, target->node);
    if (status != WEIR_OK && own == NULL) {
        LIST_REMOVE(stream, captured_link);
        atomic_store(&stream->capture, NULL);
    }
    return status;
}

weir_status wr_host_capture_wait(wr_host_stream *stream, const wr_host_target *target)
{
    wr_lock_acquire(&captures_lock);
    weir_status status = wait_locked(stream, target);
    wr_lock_release(&captures_lock);
    return status;
}

/* ---- entries: capture -------------------------------------------------------------------------------------------- */

weir_status wr_host_capture_begin(int ordinal, void *native, weir_capture_mode mode)
{
    wr_host_stream *stream;
    void *memory;
    WR_TRY(wr_host_stream_enter(WEIR_BACKEND_capture_begin, ordinal, native, &stream));
    WR_ENSURE((unsigned)mode <= WEIR_CAPTURE_RELAXED, WEIR_ERR_INVALID_ARGUMENT,
              "host: capture_begin: mode %d is not a value of enum weir_capture_mode", (int)mode);
    WR_ENSURE(stream != wr_host.devices[ordinal].default_stream, WEIR_ERR_CAPTURE,
              "host: capture_begin: the default stream cannot be captured; use a created one");
    WR_TRY(wr_meta_alloc(sizeof(wr_host_capture), "a capture", &memory));
    wr_host_capture *capture = memory;
    capture->origin = stream;
    capture->thread = pthread_self();
    capture->any_thread = mode == WEIR_CAPTURE_RELAXED;

    wr_lock_acquire(&captures_lock);
    bool already = capture_of(stream) != NULL;
    if (!already) {
        capture->id = ++last_id;
        attach(capture, stream);
        LIST_INSERT_HEAD(&captures, capture, link);
    }
    wr_lock_release(&captures_lock);
    if (!already) return WEIR_OK;
    wr_meta_free(capture);
    return wr_fail(WEIR_ERR_CAPTURE, "host: capture_begin: stream %p is already being captured; end that capture first",
                   (void *)stream);
}

/* Takes the stream's capture apart. If it was invalidated, `nodes` stays NULL and the status says why. */
static weir_status end_locked(wr_host_stream *stream, graph *made)
{
    wr_host_capture *capture = capture_of(stream);
    WR_ENSURE(capture != NULL, WEIR_ERR_CAPTURE, "host: capture_end: stream %p is not being captured", (void *)stream);
    WR_ENSURE(capture->origin == stream, WEIR_ERR_CAPTURE,
              "host: capture_end: the capture of stream %p began on stream %p; end it there", (void *)stream,
              (void *)capture->origin);
    WR_ENSURE(capture->any_thread || pthread_equal(capture->thread, pthread_self()), WEIR_ERR_WRONG_THREAD,
              "host: capture_end: the capture was begun by another thread; end it there or begin it relaxed");

    if (!all_joined(capture))
        spoil(capture, "unjoined work: the origin stream does not wait for the work of another stream");
    dissolve(capture);
    weir_status status = WEIR_OK;
    if (capture->spoiled != NULL) {
        status = fail_spoiled(capture);
    } else {
        made->nodes = capture->nodes;
        made->count = capture->count;
        capture->nodes = NULL;
    }
    free_capture(capture);
    return status;
}

weir_status wr_host_capture_end(int ordinal, void *native, void **out)
{
    wr_host_stream *stream;
    void *memory;
    WR_TRY(wr_host_stream_enter(WEIR_BACKEND_capture_end, ordinal, native, &stream));
    WR_ENSURE(out != NULL, WEIR_ERR_INVALID_ARGUMENT, "host: capture_end: graph is NULL");
    WR_TRY(wr_meta_alloc(sizeof(graph), "a graph", &memory));
    graph *made = memory;

    wr_lock_acquire(&captures_lock);
    weir_status status = end_locked(stream, made);
    wr_lock_release(&captures_lock);
    if (status != WEIR_OK) {
        wr_meta_free(made);
        return status;
    }
    wr_host_object_add(&made->object, WR_HOST_IS_GRAPH, ordinal);
    *out = made;
    return WEIR_OK;
}

weir_status wr_host_capture_status(int ordinal, void *native, weir_capture_state *state, uint64_t *id)
{
    wr_host_stream *stream;
    WR_TRY(wr_host_stream_enter(WEIR_BACKEND_capture_status, ordinal, native, &stream));
    WR_ENSURE(state != NULL && id != NULL, WEIR_ERR_INVALID_ARGUMENT, "host: capture_status: an out-parameter is NULL");
    if (atomic_load(&stream->capture) == NULL) {
        *state = WEIR_CAPTURE_NONE;
        return WEIR_OK;
    }
    wr_lock_acquire(&captures_lock);
    const wr_host_capture *capture = capture_of(stream);
    *state = WEIR_CAPTURE_NONE;
    if (capture != NULL) {
        *state = capture->spoiled != NULL ? WEIR_CAPTURE_INVALIDATED : WEIR_CAPTURE_ACTIVE;
        if (*state == WEIR_CAPTURE_ACTIVE) *id = capture->id;
    }
    wr_lock_release(&captures_lock);
    return WEIR_OK;
}

/* ---- entries: the order inside a capture ------------------------------------------------------------------------- */

/* Users get a number for a node, because nodes move as a capture grows; stale numbers are recognised. */
#define NODE_BITS 32

static void *name_of(const wr_host_capture *capture, int64_t index)
{
    return (void *)(uintptr_t)((capture->id << NODE_BITS) | ((uint64_t)index + 1));
}

static weir_status find_node(const void *name, wr_host_capture **capture, int64_t *index)
{
    uint64_t number = (uintptr_t)name & (((uint64_t)1 << NODE_BITS) - 1);
    LIST_FOREACH(*capture, &captures, link)
        if ((uint32_t)(*capture)->id == (uintptr_t)name >> NODE_BITS) break;
    WR_ENSURE(*capture != NULL && number >= 1 && number <= (*capture)->count, WEIR_ERR_INVALID_ARGUMENT,
              "host: node_dependencies: %p is not a node of a capture underway", name);
    *index = (int64_t)number - 1;
    return WEIR_OK;
}

/* Marks a node as reached; whether it was not before. */
static bool reach(wr_host_capture *capture, int64_t index)
{
    if (index < 0 || capture->nodes[index].reached) return false;
    capture->nodes[index].reached = true;
    return true;
}

/* Writes the numbers of the two nodes; for a join, for which CUDA has no node, those of the nodes before it. A node
 * comes after those it depends on, so one pass downwards meets everything that was reached. */
static void name_work(wr_host_capture *capture, int64_t one, int64_t two, void **nodes, size_t capacity, size_t *count)
{
    size_t found = 0;
    int open = reach(capture, one) + reach(capture, two);
    for (int64_t i = one > two ? one : two; open > 0; i--) {
        node *at = &capture->nodes[i];
        if (!at->reached) continue;
        at->reached = false;
        open--;
        if (at->work.kind == WR_HOST_NOTHING) {
            open += reach(capture, at->before[0]) + reach(capture, at->before[1]);
            continue;
        }
        if (found < capacity) nodes[found] = name_of(capture, i);
        found++;
    }
    *count = found;
}

weir_status wr_host_capture_tips(int ordinal, void *native, void **nodes, size_t capacity, size_t *count)
{
    wr_host_stream *stream;
    weir_status status = WEIR_OK;
    WR_TRY(wr_host_stream_enter(WEIR_BACKEND_capture_tips, ordinal, native, &stream));
    WR_ENSURE(count != NULL && (nodes != NULL || capacity == 0), WEIR_ERR_INVALID_ARGUMENT,
              "host: capture_tips: an out-parameter is NULL");
    WR_ENSURE(atomic_load(&stream->capture) != NULL, WEIR_ERR_CAPTURE,
              "host: capture_tips: stream %p is not being captured", native);
    wr_lock_acquire(&captures_lock);
    wr_host_capture *capture = good_capture(stream, &status);
    if (capture != NULL) name_work(capture, stream->tip, -1, nodes, capacity, count);
    wr_lock_release(&captures_lock);
    return status;
}

weir_status wr_host_node_dependencies(int ordinal, void *name, void **nodes, size_t capacity, size_t *count)
{
    wr_host_device *device;
    wr_host_capture *capture;
    int64_t index;
    WR_TRY(wr_host_enter(WEIR_BACKEND_node_dependencies, ordinal, &device));
    WR_ENSURE(count != NULL && (nodes != NULL || capacity == 0), WEIR_ERR_INVALID_ARGUMENT,
              "host: node_dependencies: an out-parameter is NULL");
    wr_lock_acquire(&captures_lock);
    weir_status status = find_node(name, &capture, &index);
    if (status == WEIR_OK) {
        const int64_t *before = capture->nodes[index].before;
        name_work(capture, before[0], before[1], nodes, capacity, count);
    }
    wr_lock_release(&captures_lock);
    return status;
}

/* ---- entries: graphs --------------------------------------------------------------------------------------------- */

void wr_host_exec_unref(wr_host_exec *exec)
{
    if (atomic_fetch_sub_explicit(&exec->references, 1, memory_order_acq_rel) > 1) return;
    wr_host_fence_drop(&exec->last);
    wr_lock_destroy(&exec->lock);
    wr_meta_free(exec);
}

void wr_host_exec_run(const wr_host_exec *exec)
{
    for (size_t i = 0; i < exec->count; i++) wr_host_work_run(&exec->work[i]);
}

bool wr_host_exec_calls(const wr_host_exec *exec)
{
    return exec->calls;
}

void wr_host_graph_close(wr_host_object *object)
{
    bool is_exec = object->magic == WR_HOST_IS_EXEC;
    wr_host_object_remove(object);
    if (is_exec) {
        wr_host_exec_unref((wr_host_exec *)object);
        return;
    }
    wr_meta_free(((graph *)object)->nodes);
    wr_meta_free(object);
}

weir_status wr_host_graph_instantiate(int ordinal, void *native, void **out)
{
    wr_host_device *device;
    void *memory;
    WR_TRY(wr_host_enter(WEIR_BACKEND_graph_instantiate, ordinal, &device));
    WR_TRY(wr_host_object_check(native, WR_HOST_IS_GRAPH, ordinal));
    WR_ENSURE(out != NULL, WEIR_ERR_INVALID_ARGUMENT, "host: graph_instantiate: exec is NULL");
    const graph *source = native;
    WR_TRY(wr_meta_alloc(sizeof(wr_host_exec) + source->count * sizeof(wr_host_work), "an executable graph", &memory));
    wr_host_exec *exec = memory;
    atomic_init(&exec->references, 1);
    wr_lock_init(&exec->lock, WR_RANK_BACKEND, "host executable graph");
    for (size_t i = 0; i < source->count; i++) {
        const wr_host_work *work = &source->nodes[i].work;
        if (work->kind == WR_HOST_NOTHING) continue;
        exec->calls |= work->kind == WR_HOST_CALL;
        exec->work[exec->count++] = *work;
    }
    wr_host_object_add(&exec->object, WR_HOST_IS_EXEC, ordinal);
    *out = exec;
    return WEIR_OK;
}

/* A launch inside a capture becomes nodes of that capture. */
static weir_status record_launch(wr_host_stream *stream, const wr_host_exec *exec)
{
    weir_status status = WEIR_OK;
    wr_lock_acquire(&captures_lock);
    for (size_t i = 0; i < exec->count && status == WEIR_OK; i++) status = add_locked(stream, &exec->work[i]);
    if (status != WEIR_OK) spoil(capture_of(stream), "a graph launch that could not be recorded whole");
    wr_lock_release(&captures_lock);
    return status;
}

/* Launches of one executable graph do not overlap, even on different streams. */
static weir_status wait_for_last(wr_host_stream *stream, wr_host_exec *exec)
{
    wr_lock_acquire(&exec->lock);
    wr_host_fence last = wr_host_fence_copy(&exec->last);
    wr_lock_release(&exec->lock);
    weir_status status = WEIR_OK;
    if (last.stream != stream && !wr_host_fence_passed(&last)) {
        wr_host_work wait = { .kind = WR_HOST_WAIT, .fence = last };
        status = wr_host_submit(stream, &wait, NULL);
        if (status == WEIR_OK) return WEIR_OK;
    }
    wr_host_fence_drop(&last);
    return status;
}

weir_status wr_host_graph_launch(int ordinal, void *native, void *native_stream)
{
    wr_host_stream *stream;
    uint64_t position;
    WR_TRY(wr_host_stream_enter(WEIR_BACKEND_graph_launch, ordinal, native_stream, &stream));
    WR_TRY(wr_host_object_check(native, WR_HOST_IS_EXEC, ordinal));
    wr_host_exec *exec = native;
    if (atomic_load(&stream->capture) != NULL) return record_launch(stream, exec);

    WR_TRY(wait_for_last(stream, exec));
    wr_host_work work = { .kind = WR_HOST_GRAPH, .exec = exec };
    atomic_fetch_add(&exec->references, 1);
    weir_status status = wr_host_submit(stream, &work, &position);
    if (status != WEIR_OK) {
        wr_host_exec_unref(exec);
        return status;
    }
    wr_host_stream_ref(stream);
    wr_lock_acquire(&exec->lock);
    wr_host_fence old = exec->last;
    exec->last = (wr_host_fence){ stream, position };
    wr_lock_release(&exec->lock);
    wr_host_fence_drop(&old);
    return WEIR_OK;
}

weir_status wr_host_graph_exec_destroy(int ordinal, void *native)
{
    wr_host_device *device;
    WR_TRY(wr_host_enter(WEIR_BACKEND_graph_exec_destroy, ordinal, &device));
    WR_TRY(wr_host_object_check(native, WR_HOST_IS_EXEC, ordinal));
    wr_host_graph_close(native);
    return WEIR_OK;
}

weir_status wr_host_graph_destroy(int ordinal, void *native)
{
    wr_host_device *device;
    WR_TRY(wr_host_enter(WEIR_BACKEND_graph_destroy, ordinal, &device));
    WR_TRY(wr_host_object_check(native, WR_HOST_IS_GRAPH, ordinal));
    wr_host_graph_close(native);
    return WEIR_OK;
}
