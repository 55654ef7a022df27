#include "backend/backend.h"
#include "backend/cuda/cuda_internal.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

wr_cuda_state wr_cuda;

/* ---- finding ----------------------------------------------------------------------------------------------------- */

static weir_status check_ordinal(int ordinal)
{
    WR_ENSURE(ordinal >= 0 && ordinal < wr_cuda.count, WEIR_ERR_NO_DEVICE,
              "cuda: there is no device %d; the driver shows %d (see CUDA_VISIBLE_DEVICES)", ordinal, wr_cuda.count);
    return WEIR_OK;
}

static weir_status check_alive(const wr_cuda_device *device)
{
    CUresult reason = atomic_load_explicit(&device->lost, memory_order_relaxed);
    if (WR_LIKELY(reason == WR_CUDA_SUCCESS)) return WEIR_OK;
    const char *name = NULL;
    if (wr_cu.cuGetErrorName(reason, &name) != WR_CUDA_SUCCESS || name == NULL) name = "unnamed code";
    return wr_fail_native(WEIR_ERR_DEVICE_LOST, "cuda", reason,
                          "cuda: device %td was lost earlier: %s (%d); close the library and open it again, or restart "
                          "the process",
                          device - wr_cuda.devices, name, reason);
}

static weir_status find_open(int ordinal, wr_cuda_device **out)
{
    WR_TRY(check_ordinal(ordinal));
    wr_cuda_device *found = &wr_cuda.devices[ordinal];
    WR_ENSURE(atomic_load_explicit(&found->open, memory_order_acquire), WEIR_ERR_INVALID_ARGUMENT,
              "cuda: device %d is not open; call device_open first", ordinal);
    *out = found;
    return WEIR_OK;
}

weir_status wr_cuda_device_find(int ordinal, wr_cuda_device **out)
{
    wr_cuda_device *found = NULL;
    WR_TRY(find_open(ordinal, &found));
    WR_TRY(check_alive(found));
    *out = found;
    return WEIR_OK;
}

/* ---- into the driver and out of it ------------------------------------------------------------------------------- */

/* Resetting a device destroys its primary context. The next user makes another one, which may have the same address but
 * has nothing of ours in it. */
static CUresult check_generation(const wr_cuda_device *device)
{
    unsigned long long now = 0;
    if (device->generation == 0) return WR_CUDA_SUCCESS;
    CUresult code = wr_cu.cuCtxGetId(device->context, &now);
    if (code == WR_CUDA_SUCCESS && now != device->generation) return WR_CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return code;
}

static void restore(const wr_cuda_frame *frame)
{
    CUstreamCaptureMode mode = frame->mode;
    if (frame->switched) (void)wr_cu.cuCtxSetCurrent(frame->before); /* fails when it was destroyed meanwhile */
    (void)wr_cu.cuThreadExchangeStreamCaptureMode(&mode);
}

static weir_status enter_context(wr_cuda_device *device, wr_cuda_frame *frame)
{
    *frame = (wr_cuda_frame){ .device = device, .mode = WR_CU_STREAM_CAPTURE_MODE_RELAXED };
    WR_TRY(wr_cuda_check(device, "cuThreadExchangeStreamCaptureMode",
                         wr_cu.cuThreadExchangeStreamCaptureMode(&frame->mode)));
    const char *call = "cuCtxGetCurrent";
    CUresult code = wr_cu.cuCtxGetCurrent(&frame->before);
    if (code == WR_CUDA_SUCCESS && frame->before != device->context) {
        call = "cuCtxSetCurrent";
        code = wr_cu.cuCtxSetCurrent(device->context);
        frame->switched = code == WR_CUDA_SUCCESS;
    }
    if (code == WR_CUDA_SUCCESS) {
        call = "cuCtxGetId";
        code = check_generation(device);
    }
    if (WR_LIKELY(code == WR_CUDA_SUCCESS)) return WEIR_OK;
    restore(frame);
    if (code == WR_CUDA_ERROR_INVALID_CONTEXT) code = WR_CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return wr_cuda_check(device, call, code);
}

weir_status wr_cuda_enter(int ordinal, wr_cuda_frame *frame)
{
    wr_cuda_device *device = NULL;
    WR_TRY(wr_cuda_device_find(ordinal, &device));
    return enter_context(device, frame);
}

/* The primary context was there when the frame was entered. If it still is, the one that was destroyed is another. */
weir_status wr_cuda_leave(const wr_cuda_frame *frame, const char *call, CUresult code)
{
    wr_cuda_device *device = frame->device;
    restore(frame);
    if (WR_UNLIKELY(code == WR_CUDA_ERROR_CONTEXT_IS_DESTROYED) && device->generation != 0 &&
        check_generation(device) == WR_CUDA_SUCCESS)
        return wr_cuda_fail(device, call, code, WEIR_ERR_INVALID_STREAM);
    return wr_cuda_check(device, call, code);
}

static weir_status scope_enter(int ordinal, weir_backend_scope *scope)
{
    wr_cuda_frame frame;
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    *scope = (weir_backend_scope){ { (uintptr_t)frame.before, (uint64_t)frame.mode, frame.switched } };
    return WEIR_OK;
}

/* The foreign code may have made another context current, so the previous one is restored even if it was the
 * device's. */
static void scope_leave(weir_backend_scope *scope)
{
    const wr_cuda_frame frame = {
        .before = (CUcontext)(uintptr_t)scope->saved[0],
        .mode = (CUstreamCaptureMode)scope->saved[1],
        .switched = true,
    };
    restore(&frame);
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

/* Where they can be, all chunks are such that they can be exported, which takes no time, and reached by network cards,
 * which takes a little (docs/decisions/0012). */
CUmemAllocationProp wr_cuda_chunk_kind(const wr_cuda_device *device)
{
    return (CUmemAllocationProp){
        .type = WR_CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = device->exports ? WR_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0,
        .location = { .type = WR_CU_MEM_LOCATION_TYPE_DEVICE, .id = device->handle },
        .allocFlags = { .gpuDirectRDMACapable = device->rdma },
    };
}

static weir_status attribute(wr_cuda_device *device, CUdevice_attribute which, int *value)
{
    return wr_cuda_check(device, "cuDeviceGetAttribute", wr_cu.cuDeviceGetAttribute(value, which, device->handle));
}

/* Makes one granule of the memory that chunks are made of, and lets the device access it. */
static CUresult try_chunk(const wr_cuda_device *device)
{
    CUdeviceptr base = 0;
    CUmemGenericAllocationHandle chunk = 0;
    const CUmemAllocationProp kind = wr_cuda_chunk_kind(device);
    const CUmemAccessDesc access = { .location = kind.location, .flags = WR_CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    const size_t bytes = device->granularity;
    CUresult code = wr_cu.cuMemAddressReserve(&base, bytes, 0, 0, 0);
    if (code != WR_CUDA_SUCCESS) return code;
    code = wr_cu.cuMemCreate(&chunk, bytes, &kind, 0);
    if (code == WR_CUDA_SUCCESS) {
        code = wr_cu.cuMemMap(base, bytes, 0, chunk, 0);
        const bool mapped = code == WR_CUDA_SUCCESS;
        if (mapped) code = wr_cu.cuMemSetAccess(base, bytes, &access, 1);
        if (mapped) (void)wr_cu.cuMemUnmap(base, bytes);
        (void)wr_cu.cuMemRelease(chunk);
    }
    (void)wr_cu.cuMemAddressFree(base, bytes);
    return code;
}

/* A device that is full now says nothing about what it can do. */
static bool works(const wr_cuda_device *device)
{
    const CUresult code = try_chunk(device);
    return code == WR_CUDA_SUCCESS || code == WR_CUDA_ERROR_OUT_OF_MEMORY;
}

/* Drivers offer what they then refuse: under WSL2, before R615, access to memory that network cards reach (PyTorch's
 * issue 192330); on virtual GPUs, file descriptors, or mapped memory as such. So what is offered is tried, and what
 * does not work is done without. */
static void drop_what_fails(wr_cuda_device *device)
{
    static const struct {
        bool rdma, exports;
        const char *lacking;
    } less[] = { { false, true, "that network cards reach (GPUDirect RDMA); they cannot reach what weir maps" },
                 { true, false, "for file descriptors; weir cannot share it with other processes" },
                 { false, false, "for file descriptors or network cards; weir cannot share what it maps" } };
    const bool rdma = device->rdma, exports = device->exports;
    const char *lacking = works(device) ? NULL : "at all; weir maps none";
    bool working = !lacking;
    for (size_t i = 0; i < sizeof less / sizeof less[0] && !working; i++) {
        if ((less[i].rdma && !rdma) || (less[i].exports && !exports)) continue; /* not offered */
        if (less[i].rdma == rdma && less[i].exports == exports) continue;       /* that has failed */
        device->rdma = less[i].rdma;
        device->exports = less[i].exports;
        working = works(device);
        if (working) lacking = less[i].lacking;
    }
    if (!working) device->granularity = 0;
    if (lacking)
        wr_log(WR_LOG_WARN, "cuda: device %d offers mapped memory that cannot be used: none works %s",
               (int)(device - wr_cuda.devices), lacking);
}

/* A granularity of 0 if the driver or the device (some virtual GPUs) has no virtual memory. Old drivers do not know the
 * attribute about network cards. */
static weir_status ask_virtual_memory(wr_cuda_device *device)
{
    int supported = 0, exports = 0, rdma = 0;
    size_t bytes = 0;
    device->granularity = 0;
    device->exports = device->rdma = false;
    if (wr_cu.cuMemGetAllocationGranularity == NULL) return WEIR_OK;
    WR_TRY(attribute(device, WR_CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &supported));
    if (!supported) return WEIR_OK;
    WR_TRY(attribute(device, WR_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, &exports));
    device->exports = exports != 0;
    const CUmemAllocationProp kind = wr_cuda_chunk_kind(device);
    const CUresult code = wr_cu.cuMemGetAllocationGranularity(&bytes, &kind, WR_CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (code == WR_CUDA_ERROR_NOT_SUPPORTED) return WEIR_OK; /* a virtual GPU: XGBoost's issue 12217 */
    WR_TRY(wr_cuda_check(device, "cuMemGetAllocationGranularity", code));
    device->granularity = bytes;
    const CUresult asked = wr_cu.cuDeviceGetAttribute(
        &rdma, WR_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device->handle);
    device->rdma = asked == WR_CUDA_SUCCESS && rdma != 0;
    drop_what_fails(device);
    return WEIR_OK;
}

/* Inside the device's context. */
static weir_status ask_caps(wr_cuda_device *device, weir_device_caps *caps)
{
    size_t free_bytes, total_bytes;
    int least, greatest, major, minor;
    weir_device_caps told = { 0 };
    WR_TRY(
        wr_cuda_check(device, "cuDeviceGetName", wr_cu.cuDeviceGetName(told.name, sizeof told.name, device->handle)));
    WR_TRY(wr_cuda_check(device, "cuMemGetInfo", wr_cu.cuMemGetInfo(&free_bytes, &total_bytes)));
    WR_TRY(wr_cuda_check(device, "cuCtxGetStreamPriorityRange", wr_cu.cuCtxGetStreamPriorityRange(&least, &greatest)));
    WR_TRY(attribute(device, WR_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major));
    WR_TRY(attribute(device, WR_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor));
    WR_TRY(ask_virtual_memory(device));
    device->total_memory = total_bytes;
    told.name[sizeof told.name - 1] = '\0';
    told.total_memory = total_bytes;
    told.granularity = device->granularity;
    told.chunk_aliases = device->granularity != 0;
    told.priority_least = least;
    told.priority_greatest = greatest;
    told.compute_major = (uint32_t)major;
    told.compute_minor = (uint32_t)minor;
    *caps = told;
    return WEIR_OK;
}

static weir_status set_up(wr_cuda_device *device, weir_device_caps *caps)
{
    wr_cuda_frame frame;
    device->generation = 0;
    if (wr_cu.cuCtxGetId != NULL)
        WR_TRY(wr_cuda_check(device, "cuCtxGetId", wr_cu.cuCtxGetId(device->context, &device->generation)));
    WR_TRY(enter_context(device, &frame));
    weir_status status = ask_caps(device, caps);
    restore(&frame);
    return status;
}

/* A thread must not keep a current context that the release has destroyed; a context that others still hold stays
 * current. */
static void forget_destroyed(const wr_cuda_device *device)
{
    unsigned flags;
    int active = 1;
    CUcontext current = NULL;
    if (wr_cu.cuDevicePrimaryCtxGetState(device->handle, &flags, &active) != WR_CUDA_SUCCESS || active) return;
    if (wr_cu.cuCtxGetCurrent(&current) == WR_CUDA_SUCCESS && current == device->context)
        (void)wr_cu.cuCtxSetCurrent(NULL);
}

/* A device that was closed destroyed its context under threads that had chosen it, if nobody else used it. They stay on
 * that device. */
static bool find_ended(CUcontext current, int *ordinal)
{
    for (int i = 0; i < wr_cuda.count; i++) {
        if (atomic_load(&wr_cuda.devices[i].ended) != current) continue;
        *ordinal = i;
        return true;
    }
    return false;
}

/* Contexts of two devices may have had the same address, one after the other. */
static void note_ended(wr_cuda_device *device)
{
    int other;
    if (find_ended(device->context, &other)) atomic_store(&wr_cuda.devices[other].ended, NULL);
    atomic_store(&device->ended, device->context);
}

/* A reset of the device does not end our retain, so it is released in any case. */
static weir_status release(wr_cuda_device *device)
{
    weir_status lost = check_alive(device);
    atomic_store(&device->open, false);
    CUresult code = wr_cu.cuDevicePrimaryCtxRelease(device->handle);
    forget_destroyed(device);
    note_ended(device);
    device->context = NULL;
    return lost != WEIR_OK ? lost : wr_cuda_check(device, "cuDevicePrimaryCtxRelease", code);
}

static weir_status device_open(int ordinal, weir_device_caps *caps)
{
    WR_TRY(check_ordinal(ordinal));
    wr_cuda_device *device = &wr_cuda.devices[ordinal];
    WR_ENSURE(!atomic_load(&device->open), WEIR_ERR_BUSY, "cuda: device %d is already open", ordinal);
    atomic_store(&device->lost, WR_CUDA_SUCCESS);
    WR_TRY(wr_cuda_check(device, "cuDevicePrimaryCtxRetain",
                         wr_cu.cuDevicePrimaryCtxRetain(&device->context, device->handle)));
    weir_status status = set_up(device, caps);
    if (status == WEIR_OK) {
        atomic_store_explicit(&device->open, true, memory_order_release);
        return WEIR_OK;
    }
    (void)wr_cu.cuDevicePrimaryCtxRelease(device->handle); /* the caller is told the first failure */
    device->context = NULL;
    return status;
}

static weir_status device_close(int ordinal)
{
    wr_cuda_device *device = NULL;
    WR_TRY(find_open(ordinal, &device));
    return release(device);
}

static weir_status close_all(void)
{
    weir_status first = WEIR_OK;
    for (int i = 0; i < wr_cuda.count; i++)
        if (atomic_load(&wr_cuda.devices[i].open)) wr_keep_first(&first, release(&wr_cuda.devices[i]));
    wr_cuda.count = 0;
    return first;
}

/* ---- small entries ----------------------------------------------------------------------------------------------- */

static weir_status device_count(int *count)
{
    WR_ENSURE(wr_cuda.count > 0, WEIR_ERR_NO_DEVICE, "cuda: the back end is not open");
    *count = wr_cuda.count;
    return WEIR_OK;
}

/* The primary context, without creating it: NULL when nobody uses it, and then it is not current anywhere either. */
static weir_status find_primary(const wr_cuda_device *device, CUcontext *found)
{
    unsigned flags;
    int active;
    *found = NULL;
    WR_TRY(wr_cuda_check(NULL, "cuDevicePrimaryCtxGetState",
                         wr_cu.cuDevicePrimaryCtxGetState(device->handle, &flags, &active)));
    if (!active) return WEIR_OK;
    WR_TRY(wr_cuda_check(NULL, "cuDevicePrimaryCtxRetain", wr_cu.cuDevicePrimaryCtxRetain(found, device->handle)));
    (void)wr_cu.cuDevicePrimaryCtxRelease(device->handle);
    return WEIR_OK;
}

/* The current context is not that of an open device. If it is a primary context all the same, then either weir has not
 * opened the device, or the device was reset. */
static weir_status device_of_other_context(CUcontext current, int *ordinal)
{
    CUdevice handle;
    CUcontext primary = NULL;
    const CUresult code = wr_cu.cuCtxGetDevice(&handle);
    const bool gone = code == WR_CUDA_ERROR_CONTEXT_IS_DESTROYED || code == WR_CUDA_ERROR_INVALID_CONTEXT;
    if (gone && find_ended(current, ordinal)) return WEIR_OK;
    WR_TRY(wr_cuda_check(NULL, "cuCtxGetDevice", code));
    for (int i = 0; i < wr_cuda.count; i++) {
        wr_cuda_device *device = &wr_cuda.devices[i];
        if (device->handle != handle) continue;
        WR_TRY(find_primary(device, &primary));
        WR_ENSURE(
            primary == current, WEIR_ERR_NOT_SUPPORTED,
            "cuda: the thread's current context is not the primary context of device %d (it comes from cuCtxCreate, "
            "or is a green context), and weir works in primary contexts only; make the primary one current "
            "(cudaSetDevice, weir_device_set_current), or name a stream in the call",
            i);
        *ordinal = i;
        return WEIR_OK;
    }
    return wr_fail(WEIR_ERR_NO_DEVICE,
                   "cuda: the thread's current context belongs to device %d, but weir uses only the first %d", handle,
                   wr_cuda.count);
}

/* A thread without a context is on device 0, as in the CUDA runtime; no context is created. Implicit calls ask this on
 * their hit path, so it makes one driver call, and not one that fails, because the driver takes a lock to fail
 * (cuCtxGetDevice without a context: 0.6 us alone, 18 us on 16 threads). */
static weir_status device_get_current(int *ordinal)
{
    CUcontext current = NULL;
    WR_TRY(wr_cuda_check(NULL, "cuCtxGetCurrent", wr_cu.cuCtxGetCurrent(&current)));
    if (current == NULL) {
        *ordinal = 0;
        return WEIR_OK;
    }
    for (int i = 0; i < wr_cuda.count; i++) {
        wr_cuda_device *device = &wr_cuda.devices[i];
        if (!atomic_load_explicit(&device->open, memory_order_acquire) || device->context != current) continue;
        *ordinal = i;
        return WEIR_OK;
    }
    return device_of_other_context(current, ordinal);
}

/* Restores a device that was current before and that weir has not opened: without opening it. For device 0 the thread
 * may have had no context. */
static weir_status set_unopened_current(wr_cuda_device *device, int ordinal)
{
    CUcontext primary = NULL;
    WR_TRY(find_primary(device, &primary));
    WR_ENSURE(primary || ordinal == 0, WEIR_ERR_INVALID_ARGUMENT,
              "cuda: the primary context of device %d no longer exists", ordinal);
    return wr_cuda_check(device, "cuCtxSetCurrent", wr_cu.cuCtxSetCurrent(primary));
}

static weir_status device_set_current(int ordinal)
{
    wr_cuda_device *device = NULL;
    WR_TRY(check_ordinal(ordinal));
    if (!atomic_load_explicit(&wr_cuda.devices[ordinal].open, memory_order_acquire))
        return set_unopened_current(&wr_cuda.devices[ordinal], ordinal);
    WR_TRY(wr_cuda_device_find(ordinal, &device));
    return wr_cuda_check(device, "cuCtxSetCurrent", wr_cu.cuCtxSetCurrent(device->context));
}

static weir_status device_memory(int ordinal, uint64_t *free_bytes, uint64_t *total_bytes)
{
    wr_cuda_frame frame;
    size_t free_now, total;
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    WR_TRY(wr_cuda_last(&frame, cuMemGetInfo, &free_now, &total));
    *free_bytes = free_now;
    *total_bytes = total;
    return WEIR_OK;
}

static weir_status device_synchronize(int ordinal)
{
    wr_cuda_frame frame;
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    return wr_cuda_leave(&frame, "cuCtxSynchronize", wr_cu.cuCtxSynchronize());
}

static weir_status peer_enable(int ordinal, int peer_ordinal)
{
    wr_cuda_frame frame;
    wr_cuda_device *peer = NULL;
    int can = 0;
    WR_TRY(wr_cuda_device_find(peer_ordinal, &peer));
    if (ordinal == peer_ordinal) return WEIR_OK;
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    CUresult code = wr_cu.cuDeviceCanAccessPeer(&can, frame.device->handle, peer->handle);
    if (code != WR_CUDA_SUCCESS) return wr_cuda_leave(&frame, "cuDeviceCanAccessPeer", code);
    if (can) return wr_cuda_last(&frame, cuCtxEnablePeerAccess, peer->context, 0);
    restore(&frame);
    return wr_fail(WEIR_ERR_NOT_SUPPORTED, "cuda: device %d cannot access memory of device %d; copy through the host",
                   ordinal, peer_ordinal);
}

const weir_backend wr_backend_cuda = {
    .size = sizeof(weir_backend),
    .name = "cuda",
    .open = wr_cuda_open,
    .close = close_all,
    .device_count = device_count,
    .device_open = device_open,
    .device_close = device_close,
    .device_get_current = device_get_current,
    .device_set_current = device_set_current,
    .device_memory = device_memory,
    .device_synchronize = device_synchronize,
    .peer_enable = peer_enable,
    .segment_alloc = wr_cuda_segment_alloc,
    .segment_free = wr_cuda_segment_free,
    .vm_reserve = wr_cuda_vm_reserve,
    .vm_release = wr_cuda_vm_release,
    .vm_create = wr_cuda_vm_create,
    .vm_destroy = wr_cuda_vm_destroy,
    .vm_map = wr_cuda_vm_map,
    .vm_unmap = wr_cuda_vm_unmap,
    .vm_access = wr_cuda_vm_access,
    .pinned_alloc = wr_cuda_pinned_alloc,
    .pinned_free = wr_cuda_pinned_free,
    .stream_create = wr_cuda_stream_create,
    .stream_destroy = wr_cuda_stream_destroy,
    .stream_query = wr_cuda_stream_query,
    .stream_synchronize = wr_cuda_stream_synchronize,
    .stream_wait = wr_cuda_stream_wait,
    .stream_callback = wr_cuda_stream_callback,
    .event_create = wr_cuda_event_create,
    .event_destroy = wr_cuda_event_destroy,
    .event_record = wr_cuda_event_record,
    .event_query = wr_cuda_event_query,
    .event_synchronize = wr_cuda_event_synchronize,
    .copy = wr_cuda_copy,
    .fill = wr_cuda_fill,
    .capture_begin = wr_cuda_capture_begin,
    .capture_end = wr_cuda_capture_end,
    .capture_status = wr_cuda_capture_status,
    .graph_instantiate = wr_cuda_graph_instantiate,
    .graph_launch = wr_cuda_graph_launch,
    .graph_exec_destroy = wr_cuda_graph_exec_destroy,
    .graph_destroy = wr_cuda_graph_destroy,
    .clock_ns = wr_vendor_clock_ns,
    .scope_enter = scope_enter,
    .scope_leave = scope_leave,
    .host_register = wr_cuda_host_register,
    .host_unregister = wr_cuda_host_unregister,
    .managed_alloc = wr_cuda_managed_alloc,
    .managed_free = wr_cuda_managed_free,
    .vm_create_exportable = wr_cuda_vm_create_exportable,
    .vm_export = wr_cuda_vm_export,
    .vm_import = wr_cuda_vm_import,
    .capture_tips = wr_cuda_capture_tips,
    .node_dependencies = wr_cuda_node_dependencies,
    .stream_check = wr_cuda_stream_check,
};
