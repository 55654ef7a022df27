#include "handle/handle_bind.h"

#include "base/meta.h"
#include "pool/address.h"
#include "pool/pending.h"

weir_status wr_handle_scope_enter(const wr_handle_pool *pool, weir_backend_scope *scope)
{
    return wr_backend_scope_enter(pool->site.backend, pool->site.device, scope);
}

void wr_handle_scope_leave(const wr_handle_pool *pool, weir_backend_scope *scope)
{
    wr_backend_scope_leave(pool->site.backend, scope);
}

weir_status wr_handle_refused(const wr_kind *kind, const char *what, int code)
{
    return wr_fail_native(WEIR_ERR_LIBRARY, kind->name, code, "%s: %s failed with %s", kind->name, what,
                          kind->error_text(kind->self, code));
}

/* ---- memory for libraries that take it from weir ----------------------------------------------------------------- */

/* The id of the stream that the library names, or of the one its handle is bound to; 0: there is none. That one may
 * have ended: the driver must not be asked about it, nor may another stream with its address be adopted for it. */
static uint64_t stream_id_for(const wr_handle *handle, void *native_stream, bool on_bound)
{
    if (on_bound || (handle->stream_id && native_stream == handle->native_stream)) return handle->stream_id;
    return wr_stream_known(handle->pool->site.streams, native_stream);
}

static void count_workspace(wr_handle_pool *pool, int64_t bytes)
{
    wr_lock_acquire(&pool->lock);
    pool->stats.workspace_bytes += (uint64_t)bytes;
    wr_lock_release(&pool->lock);
}

static int feed_alloc(void *context, size_t bytes, void *native_stream, bool on_bound, void **out)
{
    const wr_handle *handle = context;
    const wr_handle_site *site = &handle->pool->site;
    uint64_t id = stream_id_for(handle, native_stream, on_bound);
    if (!id && !on_bound && wr_stream_adopt(site->streams, native_stream, &id) != WEIR_OK) id = 0;
    wr_stream *stream = wr_stream_find(site->streams, id);
    if (!stream) stream = wr_stream_default_of(site->streams);
    return site->alloc(site->device_context, stream, bytes, true, out) == WEIR_OK ? 0 : 1;
}

/* Streams that the handle could not wait for may still use the memory. */
static weir_status record_owed(const wr_handle *handle, const void *pointer)
{
    const wr_handle_site *site = &handle->pool->site;
    const wr_segment *segment = handle->owed.count ? wr_address_find(pointer) : NULL;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; segment && i < handle->owed.count && status == WEIR_OK; i++) {
        wr_stream *owed = wr_stream_hold(site->streams, handle->owed.ids[i]);
        if (owed) status = wr_pending_record(segment, pointer, owed, site->events);
        wr_stream_let_go(owed);
    }
    return status;
}

/* A library that frees the memory is done with it, on the stream where it used it last. */
static int feed_free(void *context, void *pointer, void *native_stream, bool on_bound)
{
    const wr_handle *handle = context;
    const wr_handle_site *site = &handle->pool->site;
    wr_stream *stream = wr_stream_hold(site->streams, stream_id_for(handle, native_stream, on_bound));
    weir_status status = record_owed(handle, pointer);
    if (status == WEIR_OK) status = site->free(site->device_context, pointer, stream);
    wr_stream_let_go(stream);
    return status == WEIR_OK ? 0 : 1;
}

weir_status wr_handle_feed(wr_handle *handle)
{
    const wr_kind *kind = handle->pool->kind;
    if (!kind->set_memory) return WEIR_OK;
    handle->memory = (wr_kind_memory){ .context = handle, .alloc = feed_alloc, .free = feed_free };
    weir_backend_scope scope;
    WR_TRY(wr_handle_scope_enter(handle->pool, &scope));
    int code = kind->set_memory(kind->self, handle->native, &handle->memory);
    wr_handle_scope_leave(handle->pool, &scope);
    return code == 0 ? WEIR_OK : wr_handle_refused(kind, "setting its memory handler", code);
}

/* ---- workspaces -------------------------------------------------------------------------------------------------- */

static size_t workspace_wanted(const wr_handle_pool *pool)
{
    const wr_kind *kind = pool->kind;
    return kind->workspace_bytes && kind->set_workspace ? kind->workspace_bytes(kind->self, pool->site.caps) : 0;
}

static void free_workspace(wr_handle *handle, uint32_t index)
{
    const wr_handle_site *site = &handle->pool->site;
    const wr_workspace w = handle->workspaces[index];
    handle->workspaces[index] = handle->workspaces[--handle->workspace_count];
    count_workspace(handle->pool, -(int64_t)w.bytes);
    if (w.captured) return;
    /* In stream order: work queued with it runs before the memory is reused. */
    (void)site->free(site->device_context, w.memory, NULL); /* a block of our own cannot be unknown */
}

void wr_handle_drop_workspaces(wr_handle *handle)
{
    while (handle->workspace_count) free_workspace(handle, 0);
    wr_meta_free(handle->workspaces);
    handle->workspaces = NULL;
    handle->workspace_capacity = 0;
}

void wr_handle_drop_orphans(wr_handle *handle)
{
    if (handle->workspace_count == 0) return;
    wr_lock_acquire(&handle->pool->lock);
    const bool held = handle->graphs != 0;
    wr_lock_release(&handle->pool->lock);
    if (held) return;
    for (uint32_t i = handle->workspace_count; i-- > 0;)
        if (!wr_stream_find(handle->pool->site.streams, handle->workspaces[i].stream_id)) free_workspace(handle, i);
}

static weir_status workspace_on(wr_handle *handle, wr_stream *stream, size_t bytes, wr_workspace **workspace)
{
    const wr_handle_site *site = &handle->pool->site;
    const uint64_t id = atomic_load_explicit(&stream->id, memory_order_relaxed);
    for (uint32_t i = 0; i < handle->workspace_count; i++)
        if (handle->workspaces[i].stream_id == id) {
            *workspace = &handle->workspaces[i];
            return WEIR_OK;
        }
    WR_TRY(wr_meta_grow(&handle->workspaces, &handle->workspace_capacity, handle->workspace_count + 1,
                        sizeof *handle->workspaces, "workspaces"));
    void *memory = NULL;
    WR_TRY(site->alloc(site->device_context, stream, bytes, false, &memory));
    *workspace = &handle->workspaces[handle->workspace_count++];
    **workspace = (wr_workspace){ .stream_id = id, .memory = memory, .bytes = bytes };
    count_workspace(handle->pool, (int64_t)bytes);
    return WEIR_OK;
}

/* Of the capture that the stream is in itself, unlike the default stream while another one captures. *id: 0 unless it
 * is active. */
static weir_status capture_of(const wr_handle_pool *pool, const wr_stream *stream, weir_capture_state *state,
                              uint64_t *id)
{
    WR_TRY(wr_stream_ask_capture(pool->site.backend, stream->device, stream->native, state, id));
    if (*state != WEIR_CAPTURE_ACTIVE) *id = 0;
    return WEIR_OK;
}

/* An invalidated capture still keeps events away from its streams. */
static bool captures(weir_capture_state state)
{
    return state == WEIR_CAPTURE_ACTIVE || state == WEIR_CAPTURE_INVALIDATED;
}

/* Needed after every bind, because cuBLAS forgets the workspace when its stream is set. */
static weir_status attach_workspace(wr_handle *handle, wr_stream *stream, bool captured)
{
    const wr_kind *kind = handle->pool->kind;
    const size_t bytes = workspace_wanted(handle->pool);
    wr_workspace *w = NULL;
    if (bytes == 0) return WEIR_OK;
    wr_handle_drop_orphans(handle);
    WR_TRY(workspace_on(handle, stream, bytes, &w));
    if (captured) w->captured = true;
    int code = kind->set_workspace(kind->self, handle->native, w->memory, w->bytes);
    return code == 0 ? WEIR_OK : wr_handle_refused(kind, "setting its workspace", code);
}

/* ---- binding ----------------------------------------------------------------------------------------------------- */

/* Makes later work on `to` wait for the handle's work on `from`: its internal memory is ordered by its stream only. If
 * either captures, that is impossible (an event would tie the two together), and left to the program. */
static weir_status chain(const wr_handle_pool *pool, const wr_stream *from, wr_stream *to, bool *chained,
                         uint64_t *from_capture)
{
    weir_capture_state from_state = WEIR_CAPTURE_NONE, to_state = WEIR_CAPTURE_NONE;
    uint64_t to_capture = 0;
    for (int tries = 0; tries < 2; tries++) { /* the capture may have ended by the time it is asked about */
        WR_TRY(wr_event_chain_uncaptured(pool->site.events, from->native, to, chained));
        if (*chained) return WEIR_OK;
        const weir_status asked = capture_of(pool, from, &from_state, from_capture);
        if (asked == WEIR_ERR_INVALID_STREAM) return WEIR_OK; /* its owner has ended it: owed until weir forgets it */
        if (asked != WEIR_OK) return asked;
        WR_TRY(capture_of(pool, to, &to_state, &to_capture));
        if (captures(from_state) || captures(to_state)) return WEIR_OK;
    }
    return wr_fail(
        WEIR_ERR_CAPTURE,
        "%s: the handle moves to or from the default stream while a stream that synchronises with that one is being "
        "captured, and the event needed there would invalidate the capture; wait until the capture has ended, or use "
        "a handle of another thread",
        pool->kind->name);
}

static weir_status leave_stream(const wr_handle_pool *pool, uint64_t from_id, wr_stream *to, bool *chained,
                                uint64_t *from_capture)
{
    wr_stream *from = wr_stream_hold(pool->site.streams, from_id);
    *chained = !from; /* it has ended: there is nothing to wait for */
    if (!from) return WEIR_OK;
    weir_status status = chain(pool, from, to, chained, from_capture);
    wr_stream_let_go(from);
    return status;
}

static weir_status owe(const wr_handle_pool *pool, wr_handle_debts *owed, uint64_t id)
{
    for (uint32_t i = 0; i < owed->count; i++)
        if (owed->ids[i] == id) return WEIR_OK;
    WR_ENSURE(
        owed->count < WR_HANDLE_DEBTS, WEIR_ERR_CAPTURE,
        "%s: the handle has work on more than %d streams that are now being captured, so weir cannot wait for it; "
        "wait until those captures have ended, or use a handle of another thread",
        pool->kind->name, WR_HANDLE_DEBTS);
    owed->ids[owed->count++] = id;
    return WEIR_OK;
}

/* The handle goes to that stream from all that have work with it. `owed`: streams that it could not wait for, which the
 * next stream must. */
static weir_status leave_streams(const wr_handle *handle, uint64_t id, wr_stream *to, bool to_captures,
                                 wr_handle_debts *owed)
{
    const wr_handle_pool *pool = handle->pool;
    bool chained = false;
    uint64_t capture = 0;
    for (uint32_t i = 0; i < handle->owed.count; i++) {
        const uint64_t from_id = handle->owed.ids[i];
        chained = !to_captures; /* captured work does not come after what was queued on its stream before */
        if (from_id != id) WR_TRY(leave_stream(pool, from_id, to, &chained, &capture));
        if (!chained) WR_TRY(owe(pool, owed, from_id));
    }
    if (handle->stream_id == id) return WEIR_OK;
    WR_TRY(leave_stream(pool, handle->stream_id, to, &chained, &capture));
    const bool all_in_graph = capture != 0 && capture == handle->capture_id;
    return chained || all_in_graph ? WEIR_OK : owe(pool, owed, handle->stream_id);
}

static weir_status set_stream(wr_handle *handle, wr_stream *stream, bool captured)
{
    const wr_kind *kind = handle->pool->kind;
    weir_backend_scope scope;
    WR_TRY(wr_handle_scope_enter(handle->pool, &scope));
    int code = kind->bind(kind->self, handle->native, stream->native);
    weir_status status =
        code == 0 ? attach_workspace(handle, stream, captured) : wr_handle_refused(kind, "setting its stream", code);
    wr_handle_scope_leave(handle->pool, &scope);
    return status;
}

weir_status wr_handle_bind(wr_handle *handle, wr_stream *stream, bool for_graph)
{
    wr_handle_pool *pool = handle->pool;
    const wr_kind *kind = pool->kind;
    const uint64_t id = atomic_load_explicit(&stream->id, memory_order_relaxed);
    handle->served_id = handle->served_ways = 0;
    if (kind->bind) {
        const uint64_t last_id = handle->stream_id;
        void *const last_native = handle->native_stream;
        wr_handle_debts owed = { .count = 0 };
        weir_capture_state state = WEIR_CAPTURE_NONE;
        uint64_t capture = 0;
        WR_TRY(capture_of(pool, stream, &state, &capture));
        WR_TRY(leave_streams(handle, id, stream, captures(state), &owed));
        handle->stream_id = id; /* what the library takes from weir meanwhile is for this stream */
        handle->native_stream = stream->native;
        /* An invalidated capture yields no graph */
        weir_status status = set_stream(handle, stream, !for_graph && state == WEIR_CAPTURE_ACTIVE);
        if (status != WEIR_OK) {
            handle->native_stream = last_native;
            handle->stream_id = last_id; /* the handle's last use is still there, and must be waited for */
            return status;
        }
        handle->owed = owed;
        if (last_id != id) handle->capture_id = capture;
        wr_lock_acquire(&pool->lock);
        pool->stats.rebinds++;
        wr_lock_release(&pool->lock);
    }
    handle->stream_id = id;
    if (!(kind->flags & WEIR_HANDLE_BIND_ALWAYS) && handle->owed.count == 0) handle->served_id = id;
    return WEIR_OK;
}
