#include "thread/handles.h"

#include "base/meta.h"
#include "device/kinds.h"

/* Stands in for a handle that is being made or bound. That may need memory, and so call the program, which must not get
 * hold of the handle then, or give it to another thread. */
static wr_handle away;

static weir_status check_is_here(const wr_handle *handle, const char *kind)
{
    WR_ENSURE(handle != &away, WEIR_ERR_BUSY,
              "%s: this thread's handle is just being made or bound, which has called the program (weir_reclaim_add); "
              "borrow another one meanwhile, with weir_handle_borrow()",
              kind);
    return WEIR_OK;
}

/* *handle: the thread's, or NULL. */
static weir_status prepare(wr_device *device, wr_stream *stream, wr_handle_pool *pool, uint64_t ways,
                           wr_handle **handle)
{
    const bool had = *handle != NULL;
    const uint64_t id = atomic_load_explicit(&stream->id, memory_order_relaxed);
    if (!had) WR_TRY(wr_handle_acquire(pool, &(wr_handle_want){ WR_HANDLE_OF_THREAD, id, 0 }, handle));
    wr_handle *h = *handle;
    const bool serves = had && h->served_id == id;
    if (serves || (had && !pool->kind->bind)) wr_handle_count_hit(h);
    WR_TRY(wr_capture_bind(device, h, stream, serves));
    if (serves) wr_handle_drop_orphans(h); /* this is no hit, perhaps because a stream has ended */
    if (h->served_id && !wr_captures_any(&device->captures)) h->served_ways = ways;
    return WEIR_OK;
}

weir_status wr_thread_handle(wr_device *device, wr_stream *stream, weir_handle_kind kind, uint64_t ways, void **native)
{
    wr_thread *t = NULL;
    wr_handle_pool *pool = NULL;
    WR_TRY(wr_device_handles(device, kind, &pool));
    WR_TRY(wr_thread_own(&t));
    if (!t->handles[device->ordinal]) {
        void *slots = NULL;
        WR_TRY(wr_meta_alloc(sizeof(wr_handle *) * WEIR_HANDLE_KIND_MAX, "thread's handles", &slots));
        t->handles[device->ordinal] = slots;
    }
    wr_handle **slot = &t->handles[device->ordinal][kind], *handle = *slot;
    WR_TRY(check_is_here(handle, pool->kind->name));
    *slot = &away;
    const weir_status status = prepare(device, stream, pool, ways, &handle);
    *slot = handle;
    if (status == WEIR_OK) *native = handle->native;
    return status;
}

weir_status wr_thread_handle_release(const wr_device *device, weir_handle_kind kind)
{
    const wr_thread *t = wr_thread_current;
    wr_handle **slots = wr_thread_is_void(t) ? NULL : t->handles[device->ordinal];
    wr_handle *handle = slots ? slots[kind] : NULL;
    if (!handle) return WEIR_OK;
    WR_TRY(check_is_here(handle, "weir_handle_release"));
    slots[kind] = NULL;
    wr_handle_give_back(handle);
    return WEIR_OK;
}
