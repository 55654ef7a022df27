#include "backend/backend.h"
#include "backend/host/host_internal.h"
#include "base/fork.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

wr_host_state wr_host;

/* ---- finding ----------------------------------------------------------------------------------------------------- */

static weir_status check_ordinal(int device)
{
    WR_ENSURE(atomic_load_explicit(&wr_host.open, memory_order_acquire), WEIR_ERR_NO_DEVICE,
              "host: the back end is not open");
    WR_ENSURE(device >= 0 && device < wr_host.count, WEIR_ERR_NO_DEVICE,
              "host: there is no device %d; there are %d (WEIR_HOST_DEVICES sets how many)", device, wr_host.count);
    return WEIR_OK;
}

weir_status wr_host_device_find(int device, wr_host_device **out)
{
    WR_TRY(check_ordinal(device));
    wr_host_device *found = &wr_host.devices[device];
    WR_ENSURE(atomic_load_explicit(&found->open, memory_order_acquire), WEIR_ERR_INVALID_ARGUMENT,
              "host: device %d is not open; call device_open first", device);
    *out = found;
    return WEIR_OK;
}

static weir_status check_present(int device)
{
    WR_ENSURE(!atomic_load_explicit(&wr_host.devices[device].lost, memory_order_relaxed), WEIR_ERR_DEVICE_LOST,
              "host: device %d is lost; close the library and open it again", device);
    return WEIR_OK;
}

weir_status wr_host_check_open(const char *call)
{
    WR_TRY(wr_fork_check());
    WR_ENSURE(atomic_load(&wr_host.open), WEIR_ERR_NOT_SUPPORTED,
              "%s: the host back end is not open; open the library with WEIR_BACKEND=host", call);
    return WEIR_OK;
}

weir_status wr_host_enter(enum weir_backend_entry entry, int device, wr_host_device **out)
{
    WR_TRY(wr_host_gate(entry));
    WR_TRY(wr_host_device_find(device, out));
    return check_present(device);
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

static const char *kind_name(wr_host_kind kind)
{
    switch (kind) {
    case WR_HOST_IS_STREAM: return "stream";
    case WR_HOST_IS_EVENT: return "event";
    case WR_HOST_IS_GRAPH: return "graph";
    case WR_HOST_IS_EXEC: return "executable graph";
    }
    return "object";
}

weir_status wr_host_object_check(const void *object, wr_host_kind kind, int device)
{
    const wr_host_object *found = object;
    WR_ENSURE(found != NULL && found->magic == kind, WEIR_ERR_INVALID_ARGUMENT,
              "host: %p is no %s, or it was destroyed", object, kind_name(kind));
    WR_ENSURE(found->device == device, WEIR_ERR_WRONG_DEVICE, "host: %s %p belongs to device %d, not to device %d",
              kind_name(kind), object, found->device, device);
    return WEIR_OK;
}

void wr_host_object_add(wr_host_object *object, wr_host_kind kind, int device)
{
    wr_host_device *owner = &wr_host.devices[device];
    object->magic = kind;
    object->device = device;
    wr_lock_acquire(&owner->list_lock);
    LIST_INSERT_HEAD(&owner->objects, object, link);
    wr_lock_release(&owner->list_lock);
}

void wr_host_object_remove(wr_host_object *object)
{
    wr_host_device *owner = &wr_host.devices[object->device];
    object->magic = 0;
    wr_lock_acquire(&owner->list_lock);
    LIST_REMOVE(object, link);
    wr_lock_release(&owner->list_lock);
}

wr_host_stream *wr_host_stream_after(wr_host_device *device, uint64_t serial, bool busy)
{
    wr_host_stream *found = NULL;
    wr_lock_acquire(&device->list_lock);
    TAILQ_FOREACH(found, &device->streams, link)
        if (found->serial > serial && (!busy || !wr_host_stream_idle(found))) break;
    if (found != NULL) wr_host_stream_ref(found);
    wr_lock_release(&device->list_lock);
    return found;
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static void close_objects(wr_host_device *device)
{
    wr_host_object *object;
    while ((object = LIST_FIRST(&device->objects)) != NULL) {
        if (object->magic == WR_HOST_IS_EVENT)
            wr_host_event_close(object);
        else
            wr_host_graph_close(object);
    }
}

/* Drops work that has not begun, as destroying a driver's context does. */
static void close_streams(wr_host_device *device)
{
    wr_host_stream *stream;
    while ((stream = TAILQ_FIRST(&device->streams)) != NULL) {
        wr_host_stream_discard(stream);
        wr_host_stream_join(stream);
        TAILQ_REMOVE(&device->streams, stream, link);
        wr_host_stream_unref(stream);
    }
}

static void close_device(int ordinal)
{
    wr_host_device *device = &wr_host.devices[ordinal];
    if (!atomic_exchange(&device->open, false)) return;
    wr_host_capture_abandon(ordinal);
    close_streams(device);
    close_objects(device);
    wr_host_registrations_close(ordinal);
    wr_host_memory_close(device);
    wr_lock_destroy(&device->memory_lock);
    wr_lock_destroy(&device->list_lock);
}

static weir_status host_open(const weir_backend_config *config)
{
    WR_ENSURE(config != NULL && config->size >= sizeof *config, WEIR_ERR_INVALID_ARGUMENT,
              "host: open needs a weir_backend_config with its size set");
    WR_ENSURE(config->host_devices >= 1 && config->host_devices <= WR_HOST_DEVICES_MAX, WEIR_ERR_INVALID_ARGUMENT,
              "host: %" PRIu64 " devices requested; 1 to %d are possible", config->host_devices, WR_HOST_DEVICES_MAX);
    WR_ENSURE(config->host_memory > 0, WEIR_ERR_INVALID_ARGUMENT, "host: host_memory is 0; devices need memory");
    WR_ENSURE(!atomic_load(&wr_host.open), WEIR_ERR_BUSY, "host: the back end is already open");

    WR_TRY(wr_host_gate(WEIR_BACKEND_open));
    wr_host.count = (int)config->host_devices;
    wr_host.memory = config->host_memory;
    for (int i = 0; i < wr_host.count; i++) atomic_store(&wr_host.devices[i].lost, false);
    atomic_store(&wr_host.hollow, false);
    atomic_store(&wr_host.open, true);
    return WEIR_OK;
}

/* Gives everything back whatever it returns, as device_close does: a scripted failure must not leak. */
static weir_status host_close(void)
{
    weir_status status = wr_host_gate(WEIR_BACKEND_close);
    for (int i = 0; i < wr_host.count; i++) close_device(i);
    atomic_store(&wr_host.open, false);
    wr_host_script_clear();
    return status;
}

static weir_status device_count(int *count)
{
    WR_TRY(wr_host_gate(WEIR_BACKEND_device_count));
    WR_ENSURE(count != NULL, WEIR_ERR_INVALID_ARGUMENT, "host: device_count: count is NULL");
    WR_ENSURE(atomic_load(&wr_host.open), WEIR_ERR_NO_DEVICE, "host: the back end is not open");
    *count = wr_host.count;
    return WEIR_OK;
}

/* The devices' share of what the system allows a process, half of which is left to the program. Without contents there
 * are none. */
static uint64_t mappings_most(const wr_host_device *device)
{
    uint64_t most = 0;
    if (device->memory.hollow) return 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    if (!file || fscanf(file, "%" SCNu64, &most) != 1) most = 65530; /* Linux's default */
    if (file) fclose(file);
    const uint64_t share = most / 2 / (uint64_t)wr_host.count;
    return share ? share : 1;
}

static void tell_caps(int ordinal, weir_device_caps *caps)
{
    *caps = (weir_device_caps){
        .total_memory = wr_host.memory,
        .granularity = WR_HOST_GRANULARITY,
        .chunk_aliases = 1,
        .mappings_most = mappings_most(&wr_host.devices[ordinal]),
        .priority_least = WR_HOST_PRIORITY_LEAST,
        .priority_greatest = WR_HOST_PRIORITY_GREATEST,
    };
    snprintf(caps->name, sizeof caps->name, "weir host device %d", ordinal);
}

static weir_status device_open(int ordinal, weir_device_caps *caps)
{
    WR_TRY(wr_host_gate(WEIR_BACKEND_device_open));
    WR_ENSURE(caps != NULL, WEIR_ERR_INVALID_ARGUMENT, "host: device_open: caps is NULL");
    WR_TRY(check_ordinal(ordinal));
    WR_TRY(check_present(ordinal));
    wr_host_device *device = &wr_host.devices[ordinal];
    WR_ENSURE(!atomic_load(&device->open), WEIR_ERR_BUSY, "host: device %d is already open", ordinal);

    wr_lock_init(&device->memory_lock, WR_RANK_BACKEND, "host memory");
    wr_lock_init(&device->list_lock, WR_RANK_BACKEND, "host objects");
    TAILQ_INIT(&device->streams);
    LIST_INIT(&device->objects);
    device->next_serial = 1;
    atomic_store(&device->leaving, 0);
    atomic_store(&device->peers, 0);

    weir_status status = wr_host_memory_open(device);
    if (status != WEIR_OK) goto fail;
    status = wr_host_stream_new(ordinal, WR_HOST_PRIORITY_LEAST, &device->default_stream);
    if (status != WEIR_OK) goto fail_stream;
    atomic_store(&device->open, true);
    tell_caps(ordinal, caps);
    return WEIR_OK;

fail_stream:
    wr_host_memory_close(device);
fail:
    wr_lock_destroy(&device->memory_lock);
    wr_lock_destroy(&device->list_lock);
    return status;
}

static weir_status device_close(int ordinal)
{
    weir_status status = wr_host_gate(WEIR_BACKEND_device_close);
    wr_host_device *device;
    WR_TRY(wr_host_device_find(ordinal, &device));
    if (status == WEIR_OK) status = check_present(ordinal);
    close_device(ordinal);
    return status;
}

/* ---- small entries ----------------------------------------------------------------------------------------------- */

static weir_status device_memory(int ordinal, uint64_t *free_bytes, uint64_t *total_bytes)
{
    wr_host_device *device;
    WR_TRY(wr_host_enter(WEIR_BACKEND_device_memory, ordinal, &device));
    WR_ENSURE(free_bytes != NULL && total_bytes != NULL, WEIR_ERR_INVALID_ARGUMENT,
              "host: device_memory: an out-parameter is NULL");
    wr_lock_acquire(&device->memory_lock);
    *free_bytes = wr_host.memory - device->used;
    wr_lock_release(&device->memory_lock);
    *total_bytes = wr_host.memory;
    return WEIR_OK;
}

static weir_status peer_enable(int ordinal, int peer)
{
    wr_host_device *device;
    WR_TRY(wr_host_enter(WEIR_BACKEND_peer_enable, ordinal, &device));
    WR_TRY(check_ordinal(peer));
    atomic_fetch_or(&device->peers, (uint64_t)1 << peer);
    return WEIR_OK;
}

weir_status weir_host_lose_device(int ordinal)
{
    WR_TRY(wr_host_check_open("weir_host_lose_device"));
    WR_TRY(check_ordinal(ordinal));
    wr_host_device *device = &wr_host.devices[ordinal];
    atomic_store(&device->lost, true);
    if (!atomic_load(&device->open)) return WEIR_OK;

    uint64_t serial = 0;
    wr_host_stream *stream;
    while ((stream = wr_host_stream_after(device, serial, false)) != NULL) {
        serial = stream->serial;
        wr_host_stream_discard(stream);
        wr_host_stream_unref(stream);
    }
    return WEIR_OK;
}

weir_status weir_host_omit_contents(void)
{
    WR_TRY(wr_host_check_open("weir_host_omit_contents"));
    for (int i = 0; i < wr_host.count; i++)
        WR_ENSURE(!atomic_load(&wr_host.devices[i].open), WEIR_ERR_BUSY,
                  "weir_host_omit_contents: device %d is in use; call this before any device is used", i);
    atomic_store(&wr_host.hollow, true);
    return WEIR_OK;
}

const weir_backend wr_backend_host = {
    .size = sizeof(weir_backend),
    .name = "host",
    .forks = true,
    .open = host_open,
    .close = host_close,
    .device_count = device_count,
    .device_open = device_open,
    .device_close = device_close,
    .device_memory = device_memory,
    .device_synchronize = wr_host_device_synchronize,
    .peer_enable = peer_enable,
    .segment_alloc = wr_host_segment_alloc,
    .segment_free = wr_host_segment_free,
    .vm_reserve = wr_host_vm_reserve,
    .vm_release = wr_host_vm_release,
    .vm_create = wr_host_vm_create,
    .vm_destroy = wr_host_vm_destroy,
    .vm_map = wr_host_vm_map,
    .vm_unmap = wr_host_vm_unmap,
    .vm_access = wr_host_vm_access,
    .pinned_alloc = wr_host_pinned_alloc,
    .pinned_free = wr_host_pinned_free,
    .stream_create = wr_host_stream_create,
    .stream_destroy = wr_host_stream_destroy,
    .stream_query = wr_host_stream_query,
    .stream_synchronize = wr_host_stream_synchronize,
    .stream_wait = wr_host_stream_wait,
    .stream_callback = wr_host_stream_callback,
    .event_create = wr_host_event_create,
    .event_destroy = wr_host_event_destroy,
    .event_record = wr_host_event_record,
    .event_query = wr_host_event_query,
    .event_synchronize = wr_host_event_synchronize,
    .copy = wr_host_copy,
    .fill = wr_host_fill,
    .capture_begin = wr_host_capture_begin,
    .capture_end = wr_host_capture_end,
    .capture_status = wr_host_capture_status,
    .graph_instantiate = wr_host_graph_instantiate,
    .graph_launch = wr_host_graph_launch,
    .graph_exec_destroy = wr_host_graph_exec_destroy,
    .graph_destroy = wr_host_graph_destroy,
    .clock_ns = wr_host_clock_ns,
    .host_register = wr_host_register,
    .host_unregister = wr_host_unregister,
    .managed_alloc = wr_host_managed_alloc,
    .managed_free = wr_host_managed_free,
    .vm_create_exportable = wr_host_vm_create_exportable,
    .vm_export = wr_host_vm_export,
    .vm_import = wr_host_vm_import,
    .capture_tips = wr_host_capture_tips,
    .node_dependencies = wr_host_node_dependencies,
    .stream_check = wr_host_stream_check,
};
