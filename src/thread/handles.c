#include "thread/handles.h"

#include "base/meta.h"
#include "device/kinds.h"

/* The owner is the only writer, so the sum needs no atomic read-modify-write. */
static inline void count_hit(wr_handle *handle)
{
    const uint64_t hits = atomic_load_explicit(&handle->hits, memory_order_relaxed);
    atomic_store_explicit(&handle->hits, hits + 1, memory_order_relaxed);
}

static WR_NOINLINE weir_status get_slow(wr_device *device, wr_stream *stream, weir_handle_kind kind, void **native)
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
    wr_handle **slot = &t->handles[device->ordinal][kind];
    const bool had = *slot != NULL;
    if (!had) WR_TRY(wr_handle_acquire(pool, WR_HANDLE_OWNED, 0, slot));
    const bool serves = had && (*slot)->served_id == atomic_load_explicit(&stream->id, memory_order_relaxed);
    if (serves || (had && !pool->kind->bind)) count_hit(*slot);
    WR_TRY(wr_capture_bind(device, *slot, stream, serves));
    *native = (*slot)->native;
    return WEIR_OK;
}

weir_status wr_thread_handle(wr_device *device, wr_stream *stream, weir_handle_kind kind, void **native)
{
    const wr_thread *t = wr_thread_self();
    wr_handle *const *slots = t->handles[device->ordinal];
    const bool captures = wr_captures_any(&device->captures); /* a capture may have to keep the handle */
    if (WR_LIKELY(slots && (uint32_t)kind < WEIR_HANDLE_KIND_MAX && !wr_thread_is_void(t) && !captures)) {
        wr_handle *h = slots[kind];
        if (WR_LIKELY(h && h->served_id == atomic_load_explicit(&stream->id, memory_order_relaxed))) {
            count_hit(h);
            *native = h->native;
            return WEIR_OK;
        }
    }
    return get_slow(device, stream, kind, native);
}

void wr_thread_handle_release(const wr_device *device, weir_handle_kind kind)
{
    const wr_thread *t = wr_thread_self();
    wr_handle **slots = wr_thread_is_void(t) ? NULL : t->handles[device->ordinal];
    if (!slots || (uint32_t)kind >= WEIR_HANDLE_KIND_MAX || !slots[kind]) return;
    wr_handle *handle = slots[kind];
    slots[kind] = NULL;
    wr_handle_give_back(handle);
}
