#include "backend/host/host_internal.h"
#include "base/meta.h"

/* Owner: its user; the device frees events that are left when it closes. */
typedef struct event {
    wr_host_object object;
    wr_lock lock;
    wr_host_target target;
} event;

static weir_status enter(enum weir_backend_entry entry, int ordinal, void *native, event **out)
{
    wr_host_device *device;
    WR_TRY(wr_host_enter(entry, ordinal, &device));
    WR_TRY(wr_host_object_check(native, WR_HOST_IS_EVENT, ordinal));
    *out = native;
    return WEIR_OK;
}

weir_status wr_host_event_create(int ordinal, void **out)
{
    wr_host_device *device;
    void *memory;
    WR_TRY(wr_host_enter(WEIR_BACKEND_event_create, ordinal, &device));
    WR_ENSURE(out != NULL, WEIR_ERR_INVALID_ARGUMENT, "host: event_create: event is NULL");
    WR_TRY(wr_meta_alloc(sizeof(event), "an event of the host back end", &memory));
    event *made = memory;
    wr_lock_init(&made->lock, WR_RANK_BACKEND, "host event");
    wr_host_object_add(&made->object, WR_HOST_IS_EVENT, ordinal);
    *out = made;
    return WEIR_OK;
}

/* Nothing else points to an event: waiters have a copy of its fence. */
void wr_host_event_close(wr_host_object *object)
{
    event *gone = (event *)object;
    wr_host_object_remove(object);
    wr_host_fence_drop(&gone->target.fence);
    wr_lock_destroy(&gone->lock);
    wr_meta_free(gone);
}

weir_status wr_host_event_destroy(int ordinal, void *native)
{
    event *gone;
    WR_TRY(enter(WEIR_BACKEND_event_destroy, ordinal, native, &gone));
    wr_host_event_close(&gone->object);
    return WEIR_OK;
}

weir_status wr_host_event_record(int ordinal, void *native, void *native_stream)
{
    event *recorded;
    wr_host_stream *stream;
    wr_host_target target = { .recorded = true, .node = -1 };
    WR_TRY(enter(WEIR_BACKEND_event_record, ordinal, native, &recorded));
    WR_TRY(wr_host_stream_find(ordinal, native_stream, &stream));
    if (atomic_load(&stream->capture) != NULL)
        WR_TRY(wr_host_capture_tip(stream, &target));
    else
        WR_TRY(wr_host_mark(stream, &target.fence));

    wr_lock_acquire(&recorded->lock);
    wr_host_fence old = recorded->target.fence;
    recorded->target = target;
    wr_lock_release(&recorded->lock);
    wr_host_fence_drop(&old);
    return WEIR_OK;
}

/* Drops a fence that has passed, so that events keep no destroyed stream alive for long. */
wr_host_target wr_host_event_target(void *native)
{
    event *asked = native;
    wr_host_fence passed = { NULL, 0 };
    wr_lock_acquire(&asked->lock);
    if (wr_host_fence_passed(&asked->target.fence)) {
        passed = asked->target.fence;
        asked->target.fence = (wr_host_fence){ NULL, 0 };
    }
    wr_host_target target = asked->target;
    target.fence = wr_host_fence_copy(&target.fence);
    wr_lock_release(&asked->lock);
    wr_host_fence_drop(&passed);
    return target;
}

weir_status wr_host_event_query(int ordinal, void *native)
{
    event *asked;
    WR_TRY(enter(WEIR_BACKEND_event_query, ordinal, native, &asked));
    wr_host_target target = wr_host_event_target(asked);
    WR_TRY(wr_host_capture_refuse_event(&target, "event_query"));
    weir_status status = target.fence.stream == NULL ? WEIR_OK : WEIR_ERR_NOT_READY;
    wr_host_fence_drop(&target.fence);
    return status;
}

weir_status wr_host_event_synchronize(int ordinal, void *native)
{
    event *asked;
    WR_TRY(enter(WEIR_BACKEND_event_synchronize, ordinal, native, &asked));
    wr_host_target target = wr_host_event_target(asked);
    WR_TRY(wr_host_capture_refuse_event(&target, "event_synchronize"));
    wr_host_fence_reach(&target.fence);
    wr_host_fence_drop(&target.fence);
    WR_ENSURE(!atomic_load(&wr_host.devices[ordinal].lost), WEIR_ERR_DEVICE_LOST,
              "host: device %d was lost while waiting for its work; close the library and open it again", ordinal);
    return WEIR_OK;
}
