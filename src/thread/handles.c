#include "thread/handles.h"

#include "base/meta.h"
#include "device/kinds.h"

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
    wr_handle **slot = &t->handles[device->ordinal][kind];
    const bool had = *slot != NULL;
    if (!had) WR_TRY(wr_handle_acquire(pool, WR_HANDLE_OF_THREAD, 0, slot));
    const bool serves = had && (*slot)->served_id == atomic_load_explicit(&stream->id, memory_order_relaxed);
    if (serves || (had && !pool->kind->bind)) wr_handle_count_hit(*slot);
    WR_TRY(wr_capture_bind(device, *slot, stream, serves));
    if ((*slot)->served_id && !wr_captures_any(&device->captures)) (*slot)->served_ways = ways;
    *native = (*slot)->native;
    return WEIR_OK;
}

void wr_thread_handle_release(const wr_device *device, weir_handle_kind kind)
{
    const wr_thread *t = wr_thread_current;
    wr_handle **slots = wr_thread_is_void(t) ? NULL : t->handles[device->ordinal];
    if (!slots || !slots[kind]) return;
    wr_handle *handle = slots[kind];
    slots[kind] = NULL;
    wr_handle_give_back(handle);
}
