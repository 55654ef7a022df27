#include "backend/backend.h"
#include "backend/cuda/cuda_internal.h"

static CUdeviceptr address_of(const void *base)
{
    return (uintptr_t)base;
}

static void *pointer_to(CUdeviceptr base)
{
    return (void *)(uintptr_t)base;
}

/* ---- segments and pinned memory ---------------------------------------------------------------------------------- */

weir_status wr_cuda_segment_alloc(int ordinal, size_t bytes, void **base)
{
    wr_cuda_frame frame;
    CUdeviceptr made = 0;
    WR_TRY(wr_cuda_device_find(ordinal, &frame.device));
    WR_TRY(wr_vendor_check_size("cuda: segment_alloc", bytes, frame.device->total_memory));
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    WR_TRY(wr_cuda_last(&frame, cuMemAlloc, &made, bytes));
    *base = pointer_to(made);
    return WEIR_OK;
}

weir_status wr_cuda_segment_free(int ordinal, void *base, size_t bytes)
{
    wr_cuda_frame frame;
    (void)bytes;
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    return wr_cuda_last(&frame, cuMemFree, address_of(base));
}

/* The driver uses the same code when host memory runs out. */
static weir_status check_pinned(weir_status status, const char *call, size_t bytes)
{
    if (status != WEIR_ERR_OUT_OF_MEMORY) return status;
    return wr_fail_native(
        WEIR_ERR_OUT_OF_HOST_MEMORY, "cuda", WR_CUDA_ERROR_OUT_OF_MEMORY,
        "cuda: %s: cannot allocate %zu bytes of pinned memory; free some, or raise the limit of locked memory (ulimit "
        "-l, the container's memory)",
        call, bytes);
}

weir_status wr_cuda_pinned_alloc(int ordinal, size_t bytes, void **base)
{
    wr_cuda_frame frame;
    void *made = NULL;
    WR_ENSURE(bytes > 0, WEIR_ERR_INVALID_ARGUMENT, "cuda: pinned_alloc: 0 bytes requested");
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    weir_status status = wr_cuda_last(&frame, cuMemHostAlloc, &made, bytes, WR_CU_MEMHOSTALLOC_PORTABLE);
    WR_TRY(check_pinned(status, "cuMemHostAlloc", bytes));
    *base = made;
    return WEIR_OK;
}

weir_status wr_cuda_pinned_free(int ordinal, void *base, size_t bytes)
{
    wr_cuda_frame frame;
    (void)bytes;
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    return wr_cuda_last(&frame, cuMemFreeHost, base);
}

weir_status wr_cuda_host_register(int ordinal, void *base, size_t bytes)
{
    wr_cuda_frame frame;
    WR_CUDA_NEED(cuMemHostRegister);
    WR_TRY(wr_backend_check_pages("cuda: host_register", base, bytes));
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    weir_status status = wr_cuda_last(&frame, cuMemHostRegister, base, bytes,
                                      WR_CU_MEMHOSTREGISTER_PORTABLE | WR_CU_MEMHOSTREGISTER_DEVICEMAP);
    return check_pinned(status, "cuMemHostRegister", bytes);
}

weir_status wr_cuda_host_unregister(int ordinal, void *base, size_t bytes)
{
    wr_cuda_frame frame;
    (void)bytes;
    WR_CUDA_NEED(cuMemHostUnregister);
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    return wr_cuda_last(&frame, cuMemHostUnregister, base);
}

/* The size may exceed the device's memory: the driver moves what does not fit. */
weir_status wr_cuda_managed_alloc(int ordinal, size_t bytes, void **base)
{
    wr_cuda_frame frame;
    CUdeviceptr made = 0;
    WR_CUDA_NEED(cuMemAllocManaged);
    WR_ENSURE(bytes > 0, WEIR_ERR_INVALID_ARGUMENT, "cuda: managed_alloc: 0 bytes requested");
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    WR_TRY(wr_cuda_last(&frame, cuMemAllocManaged, &made, bytes, WR_CU_MEM_ATTACH_GLOBAL));
    *base = pointer_to(made);
    return WEIR_OK;
}

weir_status wr_cuda_managed_free(int ordinal, void *base, size_t bytes)
{
    return wr_cuda_segment_free(ordinal, base, bytes);
}

/* ---- virtual memory ---------------------------------------------------------------------------------------------- */

/* Every entry about virtual memory begins with this. */
static weir_status enter_vm(int ordinal, const char *call, size_t bytes, wr_cuda_frame *frame)
{
    WR_TRY(wr_cuda_device_find(ordinal, &frame->device));
    WR_TRY(wr_vendor_check_granules(call, ordinal, bytes, frame->device->granularity));
    return wr_cuda_enter(ordinal, frame);
}

weir_status wr_cuda_vm_reserve(int ordinal, size_t bytes, uint64_t hint, void **base)
{
    wr_cuda_frame frame;
    CUdeviceptr made = 0;
    WR_TRY(enter_vm(ordinal, "cuda: vm_reserve", bytes, &frame));
    CUresult code = wr_cu.cuMemAddressReserve(&made, bytes, 0, hint, 0);
    if (hint != 0 && code != WR_CUDA_SUCCESS) code = wr_cu.cuMemAddressReserve(&made, bytes, 0, 0, 0);
    WR_TRY(wr_cuda_leave(&frame, "cuMemAddressReserve", code));
    *base = pointer_to(made);
    return WEIR_OK;
}

weir_status wr_cuda_vm_release(int ordinal, void *base, size_t bytes)
{
    wr_cuda_frame frame;
    WR_TRY(enter_vm(ordinal, "cuda: vm_release", bytes, &frame));
    return wr_cuda_last(&frame, cuMemAddressFree, address_of(base), bytes);
}

weir_status wr_cuda_vm_create(int ordinal, size_t bytes, weir_chunk *chunk)
{
    wr_cuda_frame frame;
    CUmemGenericAllocationHandle made = 0;
    WR_TRY(wr_cuda_device_find(ordinal, &frame.device));
    WR_TRY(wr_vendor_check_granules("cuda: vm_create", ordinal, bytes, frame.device->granularity));
    WR_TRY(wr_vendor_check_size("cuda: vm_create", bytes, frame.device->total_memory));
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    const CUmemAllocationProp kind = wr_cuda_chunk_kind(frame.device);
    WR_TRY(wr_cuda_last(&frame, cuMemCreate, &made, bytes, &kind, 0));
    *chunk = made;
    return WEIR_OK;
}

static weir_status check_exports(int ordinal)
{
    wr_cuda_device *device = NULL;
    WR_TRY(wr_cuda_device_find(ordinal, &device));
    WR_ENSURE(device->exports, WEIR_ERR_NOT_SUPPORTED,
              "cuda: device %d cannot share memory between processes by file descriptors", ordinal);
    return WEIR_OK;
}

weir_status wr_cuda_vm_create_exportable(int ordinal, size_t bytes, weir_chunk *chunk)
{
    WR_TRY(check_exports(ordinal));
    return wr_cuda_vm_create(ordinal, bytes, chunk);
}

weir_status wr_cuda_vm_export(int ordinal, weir_chunk chunk, int *descriptor)
{
    wr_cuda_frame frame;
    int made = -1;
    WR_CUDA_NEED(cuMemExportToShareableHandle);
    WR_TRY(check_exports(ordinal));
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    WR_TRY(wr_cuda_last(&frame, cuMemExportToShareableHandle, &made, chunk, WR_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                        0));
    *descriptor = made;
    return WEIR_OK;
}

/* The driver does not tell the size; vm_map notices a wrong one. */
weir_status wr_cuda_vm_import(int ordinal, int descriptor, size_t bytes, weir_chunk *chunk)
{
    wr_cuda_frame frame;
    CUmemGenericAllocationHandle made = 0;
    WR_TRY(enter_vm(ordinal, "cuda: vm_import", bytes, &frame));
    WR_TRY(wr_cuda_last(&frame, cuMemImportFromShareableHandle, &made, (void *)(uintptr_t)descriptor,
                        WR_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    *chunk = made;
    return WEIR_OK;
}

weir_status wr_cuda_vm_destroy(int ordinal, weir_chunk chunk, size_t bytes)
{
    wr_cuda_frame frame;
    WR_TRY(enter_vm(ordinal, "cuda: vm_destroy", bytes, &frame));
    return wr_cuda_last(&frame, cuMemRelease, chunk);
}

weir_status wr_cuda_vm_map(int ordinal, void *base, size_t bytes, weir_chunk chunk)
{
    wr_cuda_frame frame;
    WR_TRY(enter_vm(ordinal, "cuda: vm_map", bytes, &frame));
    return wr_cuda_last(&frame, cuMemMap, address_of(base), bytes, 0, chunk, 0);
}

weir_status wr_cuda_vm_unmap(int ordinal, void *base, size_t bytes)
{
    wr_cuda_frame frame;
    WR_TRY(enter_vm(ordinal, "cuda: vm_unmap", bytes, &frame));
    return wr_cuda_last(&frame, cuMemUnmap, address_of(base), bytes);
}

weir_status wr_cuda_vm_access(int ordinal, void *base, size_t bytes, int accessor)
{
    wr_cuda_frame frame;
    wr_cuda_device *other = NULL;
    WR_TRY(wr_cuda_device_find(accessor, &other));
    WR_TRY(enter_vm(ordinal, "cuda: vm_access", bytes, &frame));
    const CUmemAccessDesc access = {
        .location = { .type = WR_CU_MEM_LOCATION_TYPE_DEVICE, .id = other->handle },
        .flags = WR_CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    return wr_cuda_last(&frame, cuMemSetAccess, address_of(base), bytes, &access, 1);
}
