#include "thread/thread.h"

#include "base/exit_key.h"
#include "base/meta.h"
#include "device/graph.h"
#include "pool/front/side.h"

/* What every thread has until it changes something: epoch 0 is never the library's, so it is always void. */
static wr_thread nothing = { .device = -1 };

WR_THREAD_LOCAL wr_thread *wr_thread_current = &nothing;

WR_THREAD_LOCAL wr_thread_known wr_thread_knows;

static void leave_sides(const wr_thread *t)
{
    for (wr_front *side = t->sides, *next; side && !wr_thread_is_void(t); side = next) {
        next = side->next_own; /* before another thread may have it */
        wr_side_leave(side);
    }
}

static void leave_graphs(const wr_thread *t)
{
    if (!t->captures) return;
    for (int i = 0; i < WR_DEVICE_MAX && !wr_thread_is_void(t); i++) {
        wr_device *device = wr_runtime_opened(i);
        if (device) wr_graphs_leave(device);
    }
}

/* Gives the handles back to their pools, and parked blocks to their caches, and ends routes. Makes no library or driver
 * call, since the thread may end after main has. The lock keeps weir_close from destroying the pools meanwhile. */
static void give_back(const wr_thread *t)
{
    /* In a child of fork the lock may be held by a thread that does not exist there. */
    if (wr_thread_is_void(t)) return;
    wr_lock_acquire(&wr_runtime_global.exit_lock);
    for (int device = 0; device < WR_DEVICE_MAX && !wr_thread_is_void(t); device++)
        for (int kind = 0; t->handles[device] && kind < WEIR_HANDLE_KIND_MAX; kind++)
            if (t->handles[device][kind]) wr_handle_give_back(t->handles[device][kind]);
    for (uint32_t i = 0; i < t->route_count && !wr_thread_is_void(t); i++)
        if (t->routes[i].route.name) wr_mempool_unref_quietly(t->routes[i].route.pool, WR_HELD_BY_ROUTE);
    leave_sides(t);
    leave_graphs(t);
    wr_lock_release(&wr_runtime_global.exit_lock);
}

static void free_lists(const wr_thread *t)
{
    for (int device = 0; device < WR_DEVICE_MAX; device++) wr_meta_free(t->handles[device]);
}

static void at_thread_exit(void *thread)
{
    wr_thread_current = &nothing; /* for other destructors that run later and call weir */
    wr_thread_knows.ways = 0;
    give_back(thread);
    free_lists(thread);
    wr_meta_free(thread);
}

weir_status wr_thread_own(wr_thread **out)
{
    if (wr_thread_current == &nothing) {
        static wr_exit_key exit_key = { .at_exit = at_thread_exit };
        void *made = NULL;
        WR_TRY(wr_meta_alloc(sizeof(wr_thread), "thread context", &made));
        const bool kept = wr_exit_key_set(&exit_key, made);
        if (!kept) wr_meta_free(made);
        WR_ENSURE(kept, WEIR_ERR_OUT_OF_HOST_MEMORY,
                  "no thread-specific key is left in this process (pthread_key_create), or no memory for this thread's "
                  "value");
        wr_thread_current = made;
        *wr_thread_current = nothing;
    }
    if (wr_thread_is_void(wr_thread_current)) {
        free_lists(wr_thread_current);
        *wr_thread_current = nothing;
        wr_thread_current->epoch = atomic_load_explicit(&wr_runtime_global.epoch, memory_order_relaxed);
    }
    *out = wr_thread_current;
    return WEIR_OK;
}

weir_status wr_thread_device(int *ordinal)
{
    const weir_backend *backend = wr_runtime_global.backend;
    /* The driver's current device, if it has one, is the truth: other code in the process sets it too. This is the one
     * driver call that a hit may make; it is not counted, since a counter shared between threads would cost more than
     * the call. */
    if (backend->device_get_current) return backend->device_get_current(ordinal);
    const wr_thread *t = wr_thread_current;
    *ordinal = t->device >= 0 && !wr_thread_is_void(t) ? t->device : 0;
    return WEIR_OK;
}

weir_status wr_thread_set_device(int ordinal)
{
    const weir_backend *backend = wr_runtime_global.backend;
    wr_thread *t = NULL;
    WR_TRY(wr_thread_own(&t));
    if (backend->device_set_current) WR_TRY(wr_driver(backend, device_set_current, ordinal));
    t->device = ordinal;
    wr_thread_knows.here.front = NULL;
    return WEIR_OK;
}

static weir_status resolve_ordinal(int *ordinal)
{
    WR_TRY(wr_runtime_enter());
    return *ordinal == WEIR_DEVICE_CURRENT ? wr_thread_device(ordinal) : WEIR_OK;
}

weir_status wr_thread_resolve_device(int ordinal, wr_device **device)
{
    WR_TRY(resolve_ordinal(&ordinal));
    return wr_runtime_device(ordinal, device);
}

weir_status wr_thread_look_up_device(int ordinal, wr_device **device)
{
    WR_TRY(resolve_ordinal(&ordinal));
    return wr_runtime_device_there(ordinal, device);
}

static uint64_t chosen_id(const wr_device *device)
{
    const wr_thread *t = wr_thread_current;
    return wr_thread_is_void(t) ? 0 : t->stream_ids[device->ordinal];
}

wr_stream *wr_thread_chosen_stream(wr_device *device)
{
    const uint64_t id = chosen_id(device);
    return id ? wr_stream_find(&device->streams, id) : NULL;
}

wr_stream *wr_thread_stream(wr_device *device)
{
    wr_stream *s = wr_thread_chosen_stream(device);
    return s ? s : wr_stream_default_of(&device->streams);
}

uint64_t wr_thread_stream_id(wr_device *device)
{
    if (wr_thread_chosen_stream(device)) return chosen_id(device);
    return atomic_load_explicit(&wr_stream_default_of(&device->streams)->id, memory_order_relaxed);
}

weir_status wr_thread_set_stream(const wr_device *device, uint64_t id)
{
    wr_thread *t = NULL;
    WR_TRY(wr_thread_own(&t));
    t->stream_ids[device->ordinal] = id;
    wr_thread_knows.here.front = NULL;
    return WEIR_OK;
}

weir_status wr_thread_resolve_stream(weir_stream stream, wr_device **device, wr_stream **out)
{
    WR_TRY(wr_runtime_enter());
    if (stream.id == 0) {
        WR_TRY(wr_thread_resolve_device(WEIR_DEVICE_CURRENT, device));
        *out = wr_thread_stream(*device);
        return WEIR_OK;
    }
    *out = wr_thread_find_stream(stream.id, device);
    WR_ENSURE(*out, WEIR_ERR_INVALID_STREAM,
              "stream %#llx does not exist: it was destroyed, dates from before a weir_close(), or never existed",
              (unsigned long long)stream.id);
    return WEIR_OK;
}
