/*
 * handles: the library handles that a thread owns, one per kind and device.
 * Owner: the thread; nobody else reads them, so no lock. Given back when the thread ends.
 */
#ifndef WR_THREAD_HANDLES_H
#define WR_THREAD_HANDLES_H

#include "handle/handle.h"
#include "thread/thread.h"

/* The hit: the calling thread's handle of a kind, where the last get was on the same stream, which still exists, and no
 * capture is underway that might have to keep the handle. NULL: none of that is sure. */
static inline wr_handle *wr_thread_handle_hit(weir_handle_kind kind, uint64_t stream_id)
{
    const wr_thread *t = wr_thread_current;
    const int device = wr_stream_id_device(stream_id);
    if (WR_UNLIKELY((uint32_t)kind >= WEIR_HANDLE_KIND_MAX || device >= WR_DEVICE_MAX || wr_thread_is_void(t)))
        return NULL;
    wr_handle *const *handles = t->handles[device];
    wr_handle *handle = handles ? handles[kind] : NULL;
    const uint64_t ways = atomic_load_explicit(&wr_runtime_global.ways, memory_order_acquire);
    if (WR_UNLIKELY(!handle || handle->served_id != stream_id || handle->served_ways != ways)) return NULL;
    wr_handle_count_hit(handle);
    return handle;
}

/* The same handle otherwise: created, taken over or bound anew if necessary. `ways` was read before the stream was
 * found. */
WR_CHECKED weir_status wr_thread_handle(wr_device *device, wr_stream *stream, weir_handle_kind kind, uint64_t ways,
                                        void **native);

/* Gives the thread's handle of a known kind back before the thread ends. Having none is fine. */
WR_CHECKED weir_status wr_thread_handle_release(const wr_device *device, weir_handle_kind kind);

#endif
