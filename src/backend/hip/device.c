#include "backend/backend.h"
#include "backend/hip/hip_internal.h"

#include <stdio.h>
#include <string.h>

wr_hip_state wr_hip;

/* ---- finding ----------------------------------------------------------------------------------------------------- */

static weir_status check_ordinal(int ordinal)
{
    WR_ENSURE(ordinal >= 0 && ordinal < wr_hip.count, WEIR_ERR_NO_DEVICE,
              "hip: there is no device %d; the runtime shows %d (see HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES)",
              ordinal, wr_hip.count);
    return WEIR_OK;
}

static weir_status check_alive(const wr_hip_device *device)
{
    hipError_t reason = atomic_load_explicit(&device->lost, memory_order_relaxed);
    if (WR_LIKELY(reason == WR_hipSuccess)) return WEIR_OK;
    return wr_fail_native(WEIR_ERR_DEVICE_LOST, "hip", reason,
                          "hip: device %td was lost earlier: %s (%d); restart the process", device - wr_hip.devices,
                          wr_hip_runtime.hipGetErrorName(reason), reason);
}

static weir_status find_open(int ordinal, wr_hip_device **out)
{
    WR_TRY(check_ordinal(ordinal));
    wr_hip_device *found = &wr_hip.devices[ordinal];
    WR_ENSURE(atomic_load_explicit(&found->open, memory_order_acquire), WEIR_ERR_INVALID_ARGUMENT,
              "hip: device %d is not open; call device_open first", ordinal);
    *out = found;
    return WEIR_OK;
}

weir_status wr_hip_device_find(int ordinal, wr_hip_device **out)
{
    wr_hip_device *found = NULL;
    WR_TRY(find_open(ordinal, &found));
    WR_TRY(check_alive(found));
    *out = found;
    return WEIR_OK;
}

/* ---- into the runtime and out of it ------------------------------------------------------------------------------ */

static void restore(const wr_hip_frame *frame)
{
    hipStreamCaptureMode mode = frame->mode;
    if (frame->before != frame->device - wr_hip.devices) (void)wr_hip_own(wr_hip_runtime.hipSetDevice(frame->before));
    (void)wr_hip_own(wr_hip_runtime.hipThreadExchangeStreamCaptureMode(&mode));
}

static weir_status enter_device(wr_hip_device *device, wr_hip_frame *frame)
{
    int ordinal = (int)(device - wr_hip.devices);
    *frame = (wr_hip_frame){ .device = device, .before = ordinal, .mode = WR_hipStreamCaptureModeRelaxed };
    WR_TRY(wr_hip_check(device, "hipThreadExchangeStreamCaptureMode",
                        wr_hip_runtime.hipThreadExchangeStreamCaptureMode(&frame->mode)));
    const char *call = "hipGetDevice";
    int before = ordinal;
    hipError_t code = wr_hip_runtime.hipGetDevice(&before);
    if (code == WR_hipSuccess && before != ordinal) {
        call = "hipSetDevice";
        code = wr_hip_runtime.hipSetDevice(ordinal);
        if (code == WR_hipSuccess) frame->before = before;
    }
    if (WR_LIKELY(code == WR_hipSuccess)) return WEIR_OK;
    restore(frame);
    return wr_hip_check(device, call, code);
}

weir_status wr_hip_enter(int ordinal, wr_hip_frame *frame)
{
    wr_hip_device *device = NULL;
    WR_TRY(wr_hip_device_find(ordinal, &device));
    return enter_device(device, frame);
}

weir_status wr_hip_leave(const wr_hip_frame *frame, const char *call, hipError_t code)
{
    restore(frame);
    return wr_hip_check(frame->device, call, code);
}

static weir_status scope_enter(int ordinal, weir_backend_scope *scope)
{
    wr_hip_frame frame;
    WR_TRY(wr_hip_enter(ordinal, &frame));
    *scope = (weir_backend_scope){ { (uint64_t)frame.before, (uint64_t)frame.mode } };
    return WEIR_OK;
}

/* The foreign code may have made another device current (MIOpen does), so the previous one is restored in any case. */
static void scope_leave(weir_backend_scope *scope)
{
    hipStreamCaptureMode mode = (hipStreamCaptureMode)scope->saved[1];
    (void)wr_hip_own(wr_hip_runtime.hipSetDevice((int)scope->saved[0]));
    (void)wr_hip_own(wr_hip_runtime.hipThreadExchangeStreamCaptureMode(&mode));
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

hipMemAllocationProp wr_hip_chunk_kind(int ordinal)
{
    return (hipMemAllocationProp){
        .type = WR_hipMemAllocationTypePinned,
        .location = { .type = WR_hipMemLocationTypeDevice, .id = ordinal },
    };
}

/* 0 if the runtime or the device has no virtual memory; a runtime that does not know the attribute returns an error. */
static weir_status ask_granularity(wr_hip_device *device, int ordinal)
{
    int supported = 0;
    size_t bytes = 0;
    device->granularity = 0;
    if (wr_hip_runtime.hipMemGetAllocationGranularity == NULL) return WEIR_OK;
    hipError_t code = wr_hip_own(wr_hip_runtime.hipDeviceGetAttribute(
        &supported, WR_hipDeviceAttributeVirtualMemoryManagementSupported, ordinal));
    if (code == WR_hipErrorInvalidValue || (code == WR_hipSuccess && !supported)) return WEIR_OK;
    WR_TRY(wr_hip_check(device, "hipDeviceGetAttribute", code));
    hipMemAllocationProp kind = wr_hip_chunk_kind(ordinal);
    WR_TRY(wr_hip_check(
        device, "hipMemGetAllocationGranularity",
        wr_hip_runtime.hipMemGetAllocationGranularity(&bytes, &kind, WR_hipMemAllocationGranularityMinimum)));
    device->granularity = bytes;
    return WEIR_OK;
}

/* "AMD Instinct MI210 (gfx90a:sramecc+:xnack-)": libraries choose their code, and much else, by the part in
 * parentheses. The runtime gets more room than it should need, in case its structure grows in some version. */
static weir_status ask_name(wr_hip_device *device, int ordinal, char *name, size_t size)
{
    union {
        hipDeviceProp_tR0000 old;
        hipDeviceProp_tR0600 now;
        char room[8192];
    } properties;
    char model[sizeof((weir_device_caps *)NULL)->name] = "";
    const char *architecture = properties.old.gcnArchName;
    memset(&properties, 0, sizeof properties);
    WR_TRY(
        wr_hip_check(device, "hipDeviceGetName", wr_hip_runtime.hipDeviceGetName(model, (int)sizeof model, ordinal)));
    model[sizeof model - 1] = '\0';
    if (wr_hip_runtime.hipGetDevicePropertiesR0600 != NULL) {
        architecture = properties.now.gcnArchName;
        WR_TRY(wr_hip_check(device, "hipGetDevicePropertiesR0600",
                            wr_hip_runtime.hipGetDevicePropertiesR0600(&properties.now, ordinal)));
    } else {
        WR_TRY(wr_hip_check(device, "hipGetDeviceProperties",
                            wr_hip_runtime.hipGetDeviceProperties(&properties.old, ordinal)));
    }
    snprintf(name, size, "%.32s (%.28s)", model[0] != '\0' ? model : "AMD", architecture);
    return WEIR_OK;
}

/* With the device current. */
static weir_status ask_caps(wr_hip_device *device, int ordinal, weir_device_caps *caps)
{
    size_t free_bytes, total_bytes;
    int least, greatest, major, minor;
    weir_device_caps told = { 0 };
    WR_TRY(ask_name(device, ordinal, told.name, sizeof told.name));
    WR_TRY(wr_hip_check(device, "hipMemGetInfo", wr_hip_runtime.hipMemGetInfo(&free_bytes, &total_bytes)));
    WR_TRY(wr_hip_check(device, "hipDeviceGetStreamPriorityRange",
                        wr_hip_runtime.hipDeviceGetStreamPriorityRange(&least, &greatest)));
    WR_TRY(wr_hip_check(device, "hipDeviceComputeCapability",
                        wr_hip_runtime.hipDeviceComputeCapability(&major, &minor, ordinal)));
    WR_TRY(ask_granularity(device, ordinal));
    device->total_memory = total_bytes;
    told.total_memory = total_bytes;
    told.granularity = device->granularity; /* no chunk_aliases: whether they work was never tried on a device */
    told.priority_least = least;
    told.priority_greatest = greatest;
    told.compute_major = (uint32_t)major;
    told.compute_minor = (uint32_t)minor;
    *caps = told;
    return WEIR_OK;
}

static weir_status device_open(int ordinal, weir_device_caps *caps)
{
    wr_hip_frame frame;
    WR_TRY(check_ordinal(ordinal));
    wr_hip_device *device = &wr_hip.devices[ordinal];
    WR_ENSURE(!atomic_load(&device->open), WEIR_ERR_BUSY, "hip: device %d is already open", ordinal);
    atomic_store(&device->lost, WR_hipSuccess);
    WR_TRY(enter_device(device, &frame));
    weir_status status = ask_caps(device, ordinal, caps);
    restore(&frame);
    if (status == WEIR_OK) atomic_store_explicit(&device->open, true, memory_order_release);
    return status;
}

/* There is nothing to release but streams; a lost device is reported once more. */
static weir_status device_close(int ordinal)
{
    wr_hip_device *device = NULL;
    WR_TRY(find_open(ordinal, &device));
    wr_hip_streams_drop(ordinal);
    atomic_store(&device->open, false);
    return check_alive(device);
}

static weir_status close_all(void)
{
    weir_status first = WEIR_OK;
    for (int i = 0; i < wr_hip.count; i++)
        if (atomic_load(&wr_hip.devices[i].open)) wr_keep_first(&first, device_close(i));
    wr_hip.count = 0;
    return first;
}

/* ---- small entries ----------------------------------------------------------------------------------------------- */

static weir_status device_count(int *count)
{
    WR_ENSURE(wr_hip.count > 0, WEIR_ERR_NO_DEVICE, "hip: the back end is not open");
    *count = wr_hip.count;
    return WEIR_OK;
}

static weir_status device_get_current(int *ordinal)
{
    int current = 0;
    WR_TRY(wr_hip_check(NULL, "hipGetDevice", wr_hip_runtime.hipGetDevice(&current)));
    WR_TRY(check_ordinal(current));
    *ordinal = current;
    return WEIR_OK;
}

static weir_status device_set_current(int ordinal)
{
    WR_TRY(check_ordinal(ordinal));
    wr_hip_device *device = &wr_hip.devices[ordinal];
    if (atomic_load_explicit(&device->open, memory_order_acquire)) WR_TRY(check_alive(device));
    return wr_hip_check(device, "hipSetDevice", wr_hip_runtime.hipSetDevice(ordinal));
}

static weir_status device_memory(int ordinal, uint64_t *free_bytes, uint64_t *total_bytes)
{
    wr_hip_frame frame;
    size_t free_now, total;
    WR_TRY(wr_hip_enter(ordinal, &frame));
    WR_TRY(wr_hip_last(&frame, hipMemGetInfo, &free_now, &total));
    *free_bytes = free_now;
    *total_bytes = total;
    return WEIR_OK;
}

static weir_status device_synchronize(int ordinal)
{
    wr_hip_frame frame;
    WR_TRY(wr_hip_enter(ordinal, &frame));
    return wr_hip_leave(&frame, "hipDeviceSynchronize", wr_hip_runtime.hipDeviceSynchronize());
}

static weir_status peer_enable(int ordinal, int peer)
{
    wr_hip_frame frame;
    wr_hip_device *other = NULL;
    int can = 0;
    WR_TRY(wr_hip_device_find(peer, &other));
    if (ordinal == peer) return WEIR_OK;
    WR_TRY(wr_hip_enter(ordinal, &frame));
    hipError_t code = wr_hip_runtime.hipDeviceCanAccessPeer(&can, ordinal, peer);
    if (code != WR_hipSuccess) return wr_hip_leave(&frame, "hipDeviceCanAccessPeer", code);
    if (can) return wr_hip_last(&frame, hipDeviceEnablePeerAccess, peer, 0);
    restore(&frame);
    return wr_fail(WEIR_ERR_NOT_SUPPORTED, "hip: device %d cannot access memory of device %d; copy through the host",
                   ordinal, peer);
}

const weir_backend wr_backend_hip = {
    .size = sizeof(weir_backend),
    .name = "hip",
    .synchronize_ends_all = true,
    .open = wr_hip_open,
    .close = close_all,
    .device_count = device_count,
    .device_open = device_open,
    .device_close = device_close,
    .device_get_current = device_get_current,
    .device_set_current = device_set_current,
    .device_memory = device_memory,
    .device_synchronize = device_synchronize,
    .peer_enable = peer_enable,
    .segment_alloc = wr_hip_segment_alloc,
    .segment_free = wr_hip_segment_free,
    .vm_reserve = wr_hip_vm_reserve,
    .vm_release = wr_hip_vm_release,
    .vm_create = wr_hip_vm_create,
    .vm_destroy = wr_hip_vm_destroy,
    .vm_map = wr_hip_vm_map,
    .vm_unmap = wr_hip_vm_unmap,
    .vm_access = wr_hip_vm_access,
    .pinned_alloc = wr_hip_pinned_alloc,
    .pinned_free = wr_hip_pinned_free,
    .stream_create = wr_hip_stream_create,
    .stream_destroy = wr_hip_stream_destroy,
    .stream_query = wr_hip_stream_query,
    .stream_synchronize = wr_hip_stream_synchronize,
    .stream_wait = wr_hip_stream_wait,
    .stream_callback = wr_hip_stream_callback,
    .event_create = wr_hip_event_create,
    .event_destroy = wr_hip_event_destroy,
    .event_record = wr_hip_event_record,
    .event_query = wr_hip_event_query,
    .event_synchronize = wr_hip_event_synchronize,
    .copy = wr_hip_copy,
    .fill = wr_hip_fill,
    .capture_begin = wr_hip_capture_begin,
    .capture_end = wr_hip_capture_end,
    .capture_status = wr_hip_capture_status,
    .graph_instantiate = wr_hip_graph_instantiate,
    .graph_launch = wr_hip_graph_launch,
    .graph_exec_destroy = wr_hip_graph_exec_destroy,
    .graph_destroy = wr_hip_graph_destroy,
    .clock_ns = wr_vendor_clock_ns,
    .scope_enter = scope_enter,
    .scope_leave = scope_leave,
    .managed_alloc = wr_hip_managed_alloc,
    .managed_free = wr_hip_managed_free,
    .capture_tips = wr_hip_capture_tips,
    .node_dependencies = wr_hip_node_dependencies,
    .stream_check = wr_hip_stream_check,
};
