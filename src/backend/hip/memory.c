#include "backend/backend.h"
#include "backend/hip/hip_internal.h"

/* ---- segments and pinned memory ---------------------------------------------------------------------------------- */

weir_status wr_hip_segment_alloc(int ordinal, size_t bytes, void **base)
{
    wr_hip_frame frame;
    void *made = NULL;
    WR_TRY(wr_hip_device_find(ordinal, &frame.device));
    WR_TRY(wr_vendor_check_size("hip: segment_alloc", bytes, frame.device->total_memory));
    WR_TRY(wr_hip_enter(ordinal, &frame));
    WR_TRY(wr_hip_last(&frame, hipMalloc, &made, bytes));
    *base = made;
    return WEIR_OK;
}

/* Waits for all streams of the device. */
weir_status wr_hip_segment_free(int ordinal, void *base, size_t bytes)
{
    wr_hip_frame frame;
    (void)bytes;
    WR_TRY(wr_hip_enter(ordinal, &frame));
    return wr_hip_last(&frame, hipFree, base);
}

/* The runtime uses the same code when host memory runs out. */
static weir_status check_pinned(weir_status status, size_t bytes)
{
    if (status != WEIR_ERR_OUT_OF_MEMORY) return status;
    return wr_fail_native(
        WEIR_ERR_OUT_OF_HOST_MEMORY, "hip", WR_hipErrorOutOfMemory,
        "hip: hipHostMalloc: cannot allocate %zu bytes of pinned memory; free some, or raise the limit of locked "
        "memory (ulimit -l, the container's memory)",
        bytes);
}

/* There is no host_register: kernels must use another address for memory that is registered than the host does, and
 * nobody who gets memory from weir expects two. What the runtime allocates itself has one address. Mapped, it is
 * coherent, as it is by the runtime's default; with Portable alone it would not be. */
weir_status wr_hip_pinned_alloc(int ordinal, size_t bytes, void **base)
{
    wr_hip_frame frame;
    void *made = NULL;
    WR_ENSURE(bytes > 0, WEIR_ERR_INVALID_ARGUMENT, "hip: pinned_alloc: 0 bytes requested");
    WR_TRY(wr_hip_enter(ordinal, &frame));
    weir_status status =
        wr_hip_last(&frame, hipHostMalloc, &made, bytes, WR_hipHostMallocPortable | WR_hipHostMallocMapped);
    WR_TRY(check_pinned(status, bytes));
    *base = made;
    return WEIR_OK;
}

weir_status wr_hip_pinned_free(int ordinal, void *base, size_t bytes)
{
    wr_hip_frame frame;
    (void)bytes;
    WR_TRY(wr_hip_enter(ordinal, &frame));
    return wr_hip_last(&frame, hipHostFree, base);
}

/* The size may exceed the device's memory: the runtime moves what does not fit. */
weir_status wr_hip_managed_alloc(int ordinal, size_t bytes, void **base)
{
    wr_hip_frame frame;
    void *made = NULL;
    WR_ENSURE(bytes > 0, WEIR_ERR_INVALID_ARGUMENT, "hip: managed_alloc: 0 bytes requested");
    WR_TRY(wr_hip_enter(ordinal, &frame));
    WR_TRY(wr_hip_last(&frame, hipMallocManaged, &made, bytes, WR_hipMemAttachGlobal));
    *base = made;
    return WEIR_OK;
}

weir_status wr_hip_managed_free(int ordinal, void *base, size_t bytes)
{
    return wr_hip_segment_free(ordinal, base, bytes);
}

/* ---- virtual memory: mapping and unmapping may wait for streams (docs/amd.md) ------------------------------------ */

/* Every entry about virtual memory begins with this. */
static weir_status enter_vm(int ordinal, const char *call, size_t bytes, wr_hip_frame *frame)
{
    WR_TRY(wr_hip_device_find(ordinal, &frame->device));
    WR_TRY(wr_vendor_check_granules(call, ordinal, bytes, frame->device->granularity));
    return wr_hip_enter(ordinal, frame);
}

static hipMemGenericAllocationHandle_t handle_of(weir_chunk chunk)
{
    return (hipMemGenericAllocationHandle_t)(uintptr_t)chunk;
}

weir_status wr_hip_vm_reserve(int ordinal, size_t bytes, uint64_t hint, void **base)
{
    wr_hip_frame frame;
    void *made = NULL, *wish = (void *)(uintptr_t)hint;
    WR_TRY(enter_vm(ordinal, "hip: vm_reserve", bytes, &frame));
    hipError_t code = wr_hip_runtime.hipMemAddressReserve(&made, bytes, 0, wish, 0);
    if (wish != NULL && wr_hip_own(code) != WR_hipSuccess)
        code = wr_hip_runtime.hipMemAddressReserve(&made, bytes, 0, NULL, 0);
    WR_TRY(wr_hip_leave(&frame, "hipMemAddressReserve", code));
    *base = made;
    return WEIR_OK;
}

weir_status wr_hip_vm_release(int ordinal, void *base, size_t bytes)
{
    wr_hip_frame frame;
    WR_TRY(enter_vm(ordinal, "hip: vm_release", bytes, &frame));
    return wr_hip_last(&frame, hipMemAddressFree, base, bytes);
}

weir_status wr_hip_vm_create(int ordinal, size_t bytes, weir_chunk *chunk)
{
    wr_hip_frame frame;
    hipMemGenericAllocationHandle_t made = NULL;
    WR_TRY(wr_hip_device_find(ordinal, &frame.device));
    WR_TRY(wr_vendor_check_granules("hip: vm_create", ordinal, bytes, frame.device->granularity));
    WR_TRY(wr_vendor_check_size("hip: vm_create", bytes, frame.device->total_memory));
    WR_TRY(wr_hip_enter(ordinal, &frame));
    hipMemAllocationProp kind = wr_hip_chunk_kind(ordinal);
    WR_TRY(wr_hip_last(&frame, hipMemCreate, &made, bytes, &kind, 0));
    *chunk = (uintptr_t)made;
    return WEIR_OK;
}

weir_status wr_hip_vm_destroy(int ordinal, weir_chunk chunk, size_t bytes)
{
    wr_hip_frame frame;
    WR_TRY(enter_vm(ordinal, "hip: vm_destroy", bytes, &frame));
    return wr_hip_last(&frame, hipMemRelease, handle_of(chunk));
}

weir_status wr_hip_vm_map(int ordinal, void *base, size_t bytes, weir_chunk chunk)
{
    wr_hip_frame frame;
    WR_TRY(enter_vm(ordinal, "hip: vm_map", bytes, &frame));
    return wr_hip_last(&frame, hipMemMap, base, bytes, 0, handle_of(chunk), 0);
}

weir_status wr_hip_vm_unmap(int ordinal, void *base, size_t bytes)
{
    wr_hip_frame frame;
    WR_TRY(enter_vm(ordinal, "hip: vm_unmap", bytes, &frame));
    return wr_hip_last(&frame, hipMemUnmap, base, bytes);
}

weir_status wr_hip_vm_access(int ordinal, void *base, size_t bytes, int accessor)
{
    wr_hip_frame frame;
    wr_hip_device *other = NULL;
    WR_TRY(wr_hip_device_find(accessor, &other));
    WR_TRY(enter_vm(ordinal, "hip: vm_access", bytes, &frame));
    const hipMemAccessDesc access = {
        .location = { .type = WR_hipMemLocationTypeDevice, .id = accessor },
        .flags = WR_hipMemAccessFlagsProtReadWrite,
    };
    return wr_hip_last(&frame, hipMemSetAccess, base, bytes, &access, 1);
}
