#include "standin/cuda/standin_internal.h"

#include <stdatomic.h>
#include <sys/stat.h>

static void *pointer(CUdeviceptr base)
{
    return (void *)(uintptr_t)base;
}

/* ---- segments and pinned memory ---------------------------------------------------------------------------------- */

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    int device;
    uint64_t free_now, total;
    TRY(standin_enter(STANDIN_cuMemGetInfo, &device));
    TRY(standin_code(wr_backend_host.device_memory(device, &free_now, &total)));
    *free_bytes = free_now;
    *total_bytes = total;
    return WR_CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *base, size_t bytes)
{
    int device;
    void *made;
    TRY(standin_enter(STANDIN_cuMemAlloc, &device));
    TRY(standin_unsafe());
    TRY(standin_code(wr_backend_host.segment_alloc(device, bytes, &made)));
    standin_remember(SEGMENT, device, (uintptr_t)made, bytes);
    *base = (uintptr_t)made;
    return WR_CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr base)
{
    int device;
    standin_record known;
    TRY(standin_enter(STANDIN_cuMemFree, &device));
    TRY(standin_unsafe());
    if (base == 0) return WR_CUDA_SUCCESS;
    if (standin_forget(MANAGED, base, &known) == 0)
        return standin_forgotten(&known, wr_backend_host.managed_free(known.device, pointer(base), known.bytes));
    TRY(standin_forget(SEGMENT, base, &known));
    return standin_forgotten(&known, wr_backend_host.segment_free(known.device, pointer(base), known.bytes));
}

CUresult cuMemAllocManaged(CUdeviceptr *base, size_t bytes, unsigned int flags)
{
    int device;
    void *made;
    TRY(standin_enter(STANDIN_cuMemAllocManaged, &device));
    TRY(standin_unsafe());
    if (flags != WR_CU_MEM_ATTACH_GLOBAL) return WR_CUDA_ERROR_INVALID_VALUE;
    TRY(standin_code(wr_backend_host.managed_alloc(device, bytes, &made)));
    standin_remember(MANAGED, device, (uintptr_t)made, bytes);
    *base = (uintptr_t)made;
    return WR_CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **base, size_t bytes, unsigned int flags)
{
    int device;
    TRY(standin_enter(STANDIN_cuMemHostAlloc, &device));
    TRY(standin_unsafe());
    if (flags != WR_CU_MEMHOSTALLOC_PORTABLE) return WR_CUDA_ERROR_INVALID_VALUE;
    TRY(standin_code(wr_backend_host.pinned_alloc(device, bytes, base)));
    standin_remember(PINNED, device, (uintptr_t)*base, bytes);
    return WR_CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *base)
{
    int device;
    standin_record known;
    TRY(standin_enter(STANDIN_cuMemFreeHost, &device));
    TRY(standin_unsafe());
    TRY(standin_forget(PINNED, (uintptr_t)base, &known));
    return standin_forgotten(&known, wr_backend_host.pinned_free(known.device, base, known.bytes));
}

CUresult cuMemHostRegister_v2(void *base, size_t bytes, unsigned int flags)
{
    int device;
    TRY(standin_enter(STANDIN_cuMemHostRegister, &device));
    TRY(standin_unsafe());
    if (flags != (WR_CU_MEMHOSTREGISTER_PORTABLE | WR_CU_MEMHOSTREGISTER_DEVICEMAP)) return WR_CUDA_ERROR_INVALID_VALUE;
    weir_status status = wr_backend_host.host_register(device, base, bytes);
    if (status == WEIR_ERR_INVALID_ARGUMENT) return WR_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    TRY(standin_code(status));
    standin_remember(REGISTERED, device, (uintptr_t)base, bytes);
    return WR_CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *base)
{
    int device;
    standin_record known;
    TRY(standin_enter(STANDIN_cuMemHostUnregister, &device));
    TRY(standin_unsafe());
    if (standin_forget(REGISTERED, (uintptr_t)base, &known) != 0) return WR_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    return standin_forgotten(&known, wr_backend_host.host_unregister(known.device, base, known.bytes));
}

/* ---- virtual memory: legal during every capture ------------------------------------------------------------------ */

static atomic_ulong for_network_cards;

unsigned long standin_cuda_rdma_chunks(void)
{
    return for_network_cards;
}

static CUresult check_kind(const CUmemAllocationProp *what)
{
    if (what->type != WR_CU_MEM_ALLOCATION_TYPE_PINNED || what->location.type != WR_CU_MEM_LOCATION_TYPE_DEVICE)
        return WR_CUDA_ERROR_INVALID_VALUE;
    const int supported = standin_can("STANDIN_CUDA_EXPORTS") ? (int)WR_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
    return ((int)what->requestedHandleTypes & ~supported) == 0 ? WR_CUDA_SUCCESS : WR_CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *what,
                                       CUmemAllocationGranularity_flags which)
{
    TRY(standin_begin(STANDIN_cuMemGetAllocationGranularity));
    TRY(check_kind(what));
    if (which < 0 || which > 1) return WR_CUDA_ERROR_INVALID_VALUE;
    *bytes = (size_t)2 << 20;
    return WR_CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *base, size_t bytes, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags)
{
    int device;
    void *made;
    TRY(standin_enter(STANDIN_cuMemAddressReserve, &device));
    if (flags != 0 || (alignment & (alignment - 1)) != 0) return WR_CUDA_ERROR_INVALID_VALUE;
    TRY(standin_code(wr_backend_host.vm_reserve(device, bytes, hint, &made)));
    standin_remember(RESERVATION, device, (uintptr_t)made, bytes);
    *base = (uintptr_t)made;
    return WR_CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr base, size_t bytes)
{
    standin_record known;
    TRY(standin_begin(STANDIN_cuMemAddressFree));
    TRY(standin_forget(RESERVATION, base, &known));
    return standin_forgotten(&known, wr_backend_host.vm_release(known.device, pointer(base), bytes));
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *chunk, size_t bytes, const CUmemAllocationProp *what,
                     unsigned long long flags)
{
    weir_chunk made;
    TRY(standin_begin(STANDIN_cuMemCreate));
    TRY(check_kind(what));
    if (!standin_can("STANDIN_CUDA_VM_WORKS")) return WR_CUDA_ERROR_NOT_SUPPORTED;
    if (what->requestedHandleTypes && !standin_can("STANDIN_CUDA_EXPORTS_WORK")) return WR_CUDA_ERROR_NOT_SUPPORTED;
    if (flags != 0) return WR_CUDA_ERROR_INVALID_VALUE;
    weir_status status = what->requestedHandleTypes == 0
                             ? wr_backend_host.vm_create(what->location.id, bytes, &made)
                             : wr_backend_host.vm_create_exportable(what->location.id, bytes, &made);
    TRY(standin_code(status));
    standin_remember(CHUNK, what->location.id, made, bytes);
    for_network_cards += what->allocFlags.gpuDirectRDMACapable;
    *chunk = made;
    return WR_CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle chunk, CUmemAllocationHandleType type,
                                      unsigned long long flags)
{
    standin_record known;
    TRY(standin_begin(STANDIN_cuMemExportToShareableHandle));
    TRY(standin_recall(CHUNK, chunk, &known));
    if (type != WR_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0) return WR_CUDA_ERROR_INVALID_VALUE;
    return standin_code(wr_backend_host.vm_export(known.device, chunk, shared));
}

/* The file gives the size but not the device, so the chunk goes to the current device. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *chunk, void *shared,
                                        CUmemAllocationHandleType type)
{
    int device, file = (int)(uintptr_t)shared;
    struct stat about;
    weir_chunk made;
    TRY(standin_enter(STANDIN_cuMemImportFromShareableHandle, &device));
    if (type != WR_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(file, &about) != 0 || about.st_size == 0)
        return WR_CUDA_ERROR_INVALID_VALUE;
    TRY(standin_code(wr_backend_host.vm_import(device, file, (size_t)about.st_size, &made)));
    standin_remember(CHUNK, device, made, (uint64_t)about.st_size);
    *chunk = made;
    return WR_CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle chunk)
{
    standin_record known;
    TRY(standin_begin(STANDIN_cuMemRelease));
    TRY(standin_forget(CHUNK, chunk, &known));
    return standin_forgotten(&known, wr_backend_host.vm_destroy(known.device, chunk, known.bytes));
}

CUresult cuMemMap(CUdeviceptr base, size_t bytes, size_t offset, CUmemGenericAllocationHandle chunk,
                  unsigned long long flags)
{
    standin_record known;
    TRY(standin_begin(STANDIN_cuMemMap));
    TRY(standin_recall(CHUNK, chunk, &known));
    if (flags != 0) return WR_CUDA_ERROR_INVALID_VALUE;
    if (offset != 0) return WR_CUDA_ERROR_NOT_SUPPORTED;
    return standin_code(wr_backend_host.vm_map(known.device, pointer(base), bytes, chunk));
}

CUresult cuMemUnmap(CUdeviceptr base, size_t bytes)
{
    standin_record known;
    TRY(standin_begin(STANDIN_cuMemUnmap));
    TRY(standin_recall(RESERVATION, base, &known));
    return standin_code(wr_backend_host.vm_unmap(known.device, pointer(base), bytes));
}

CUresult cuMemSetAccess(CUdeviceptr base, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    standin_record known;
    TRY(standin_begin(STANDIN_cuMemSetAccess));
    TRY(standin_recall(RESERVATION, base, &known));
    for (size_t i = 0; i < count; i++) {
        if (access[i].location.type != WR_CU_MEM_LOCATION_TYPE_DEVICE ||
            access[i].flags != WR_CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return WR_CUDA_ERROR_INVALID_VALUE;
        TRY(standin_code(wr_backend_host.vm_access(known.device, pointer(base), bytes, access[i].location.id)));
    }
    return WR_CUDA_SUCCESS;
}
