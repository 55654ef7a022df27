#include "standin/hip/standin_internal.h"

#include <stdatomic.h>

static atomic_int refused_frees;

void standin_hip_refuse_frees(int code)
{
    atomic_store(&refused_frees, code);
}

/* ---- segments and pinned memory ---------------------------------------------------------------------------------- */

hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    int device;
    uint64_t free_now, total;
    TRY(standin_enter(STANDIN_hipMemGetInfo, &device));
    TRY(standin_last(standin_code(wr_backend_host.device_memory(device, &free_now, &total))));
    *free_bytes = free_now;
    *total_bytes = total;
    return 0;
}

static int alloc(int device, size_t bytes, void **base)
{
    *base = NULL;
    if (bytes == 0) return 0;
    TRY(standin_last(standin_code(wr_backend_host.segment_alloc(device, bytes, base))));
    standin_remember(SEGMENT, device, (uintptr_t)*base, bytes);
    return 0;
}

hipError_t hipMalloc(void **base, size_t bytes)
{
    int device;
    TRY(standin_enter(STANDIN_hipMalloc, &device));
    TRY(standin_last(standin_unsafe()));
    return alloc(device, bytes, base);
}

/* Waits for all streams of the block's device. */
hipError_t hipFree(void *base)
{
    int device;
    standin_record known;
    TRY(standin_enter(STANDIN_hipFree, &device));
    TRY(standin_last(atomic_load(&refused_frees)));
    TRY(standin_last(standin_unsafe()));
    if (base == NULL) return 0;
    const bool managed = standin_recall(MANAGED, (uintptr_t)base, &known) == 0;
    if (!managed) TRY(standin_last(standin_recall(SEGMENT, (uintptr_t)base, &known)));
    standin_wait_for_all(known.device);
    TRY(standin_last(standin_forget(known.kind, known.key, &known)));
    if (managed)
        return standin_last(standin_forgotten(&known, wr_backend_host.managed_free(known.device, base, known.bytes)));
    return standin_last(standin_forgotten(&known, wr_backend_host.segment_free(known.device, base, known.bytes)));
}

/* There is no pool: the memory is allocated at once, and freed when the stream reaches the free. */
hipError_t hipMallocAsync(void **base, size_t bytes, hipStream_t stream)
{
    int device;
    TRY(standin_enter_stream(STANDIN_hipMallocAsync, stream, &device));
    if (standin_capturing(device, stream)) return standin_last(NOT_SUPPORTED);
    return alloc(device, bytes, base);
}

hipError_t hipFreeAsync(void *base, hipStream_t stream)
{
    int device;
    standin_record known;
    TRY(standin_enter_stream(STANDIN_hipFreeAsync, stream, &device));
    if (standin_capturing(device, stream)) return standin_last(NOT_SUPPORTED);
    TRY(standin_last(standin_code(wr_backend_host.stream_synchronize(device, standin_stream(stream)))));
    TRY(standin_last(standin_forget(SEGMENT, (uintptr_t)base, &known)));
    return standin_last(standin_forgotten(&known, wr_backend_host.segment_free(known.device, base, known.bytes)));
}

hipError_t hipDeviceGetDefaultMemPool(void **pool, int device)
{
    static char pools[64];
    TRY(standin_begin(STANDIN_hipDeviceGetDefaultMemPool));
    *pool = &pools[device & 63];
    return 0;
}

hipError_t hipMemPoolTrimTo(void *pool, size_t bytes)
{
    (void)pool;
    (void)bytes;
    return standin_begin(STANDIN_hipMemPoolTrimTo);
}

hipError_t hipHostMalloc(void **base, size_t bytes, unsigned int flags)
{
    int device;
    TRY(standin_enter(STANDIN_hipHostMalloc, &device));
    if (flags != (WR_hipHostMallocPortable | WR_hipHostMallocMapped)) return standin_last(WR_hipErrorInvalidValue);
    TRY(standin_last(standin_unsafe()));
    TRY(standin_last(standin_code(wr_backend_host.pinned_alloc(device, bytes, base))));
    standin_remember(PINNED, device, (uintptr_t)*base, bytes);
    return 0;
}

hipError_t hipMallocManaged(void **base, size_t bytes, unsigned int flags)
{
    int device;
    TRY(standin_enter(STANDIN_hipMallocManaged, &device));
    TRY(standin_last(standin_unsafe()));
    if (flags != WR_hipMemAttachGlobal) return standin_last(INVALID_VALUE);
    TRY(standin_last(standin_code(wr_backend_host.managed_alloc(device, bytes, base))));
    standin_remember(MANAGED, device, (uintptr_t)*base, bytes);
    return 0;
}

hipError_t hipHostRegister(void *base, size_t bytes, unsigned int flags)
{
    int device;
    TRY(standin_enter(STANDIN_hipHostRegister, &device));
    TRY(standin_last(standin_unsafe()));
    if (flags > 15) return standin_last(INVALID_VALUE);
    weir_status status = wr_backend_host.host_register(device, base, bytes);
    if (status == WEIR_ERR_INVALID_ARGUMENT) return standin_last(WR_hipErrorHostMemoryAlreadyRegistered);
    TRY(standin_last(standin_code(status)));
    standin_remember(REGISTERED, device, (uintptr_t)base, bytes);
    return 0;
}

hipError_t hipHostUnregister(void *base)
{
    int device;
    standin_record known;
    TRY(standin_enter(STANDIN_hipHostUnregister, &device));
    TRY(standin_last(standin_unsafe()));
    if (standin_forget(REGISTERED, (uintptr_t)base, &known) != 0)
        return standin_last(WR_hipErrorHostMemoryNotRegistered);
    return standin_last(standin_forgotten(&known, wr_backend_host.host_unregister(known.device, base, known.bytes)));
}

/* Kernels reach registered memory at another address than the host; what the runtime allocates, at the same. */
hipError_t hipHostGetDevicePointer(void **base, void *host, unsigned int flags)
{
    standin_record known;
    TRY(standin_begin(STANDIN_hipHostGetDevicePointer));
    if (flags != 0) return standin_last(INVALID_VALUE);
    const bool registered = standin_recall(REGISTERED, (uintptr_t)host, &known) == 0;
    if (!registered) TRY(standin_last(standin_recall(PINNED, (uintptr_t)host, &known)));
    *base = (char *)host + (registered ? (uintptr_t)1 << 44 : 0);
    return 0;
}

hipError_t hipHostFree(void *base)
{
    int device;
    standin_record known;
    TRY(standin_enter(STANDIN_hipHostFree, &device));
    TRY(standin_last(standin_unsafe()));
    if (base == NULL) return 0;
    TRY(standin_last(standin_forget(PINNED, (uintptr_t)base, &known)));
    return standin_last(standin_forgotten(&known, wr_backend_host.pinned_free(known.device, base, known.bytes)));
}

hipError_t hipMemPtrGetInfo(void *base, size_t *bytes)
{
    standin_record known;
    TRY(standin_begin(STANDIN_hipMemPtrGetInfo));
    TRY(standin_last(standin_recall(SEGMENT, (uintptr_t)base, &known)));
    *bytes = known.bytes;
    return 0;
}

/* Knows only addresses at which an allocation begins; others are reported as unknown. */
hipError_t hipPointerGetAttributes(struct standin_pointer *attributes, const void *pointer)
{
    standin_record known;
    TRY(standin_begin(STANDIN_hipPointerGetAttributes));
    *attributes = (struct standin_pointer){ 0 };
    const bool on_device = standin_recall(SEGMENT, (uintptr_t)pointer, &known) == 0;
    if (!on_device && standin_recall(PINNED, (uintptr_t)pointer, &known) != 0) return 0;
    attributes->type = on_device ? 2 : 1;
    attributes->device = known.device;
    attributes->devicePointer = (void *)(uintptr_t)pointer;
    attributes->hostPointer = on_device ? NULL : (void *)(uintptr_t)pointer;
    return 0;
}

/* ---- virtual memory ---------------------------------------------------------------------------------------------- */

static int check_kind(const hipMemAllocationProp *what)
{
    if (what->type != WR_hipMemAllocationTypePinned || what->location.type != WR_hipMemLocationTypeDevice)
        return INVALID_VALUE;
    return what->requestedHandleType == 0 ? 0 : NOT_SUPPORTED;
}

hipError_t hipMemGetAllocationGranularity(size_t *bytes, const hipMemAllocationProp *what,
                                          hipMemAllocationGranularity_flags which)
{
    TRY(standin_begin(STANDIN_hipMemGetAllocationGranularity));
    TRY(standin_last(check_kind(what)));
    if (which < 0 || which > 1) return standin_last(INVALID_VALUE);
    *bytes = (size_t)2 << 20;
    return 0;
}

/* An invalid size gives out of memory here. */
hipError_t hipMemAddressReserve(void **base, size_t bytes, size_t alignment, void *hint, unsigned long long flags)
{
    int device;
    TRY(standin_enter(STANDIN_hipMemAddressReserve, &device));
    if (flags != 0) return standin_last(INVALID_VALUE);
    if (bytes == 0 || bytes % ((size_t)2 << 20) != 0 || (alignment & (alignment - 1)) != 0)
        return standin_last(OUT_OF_MEMORY);
    TRY(standin_last(standin_code(wr_backend_host.vm_reserve(device, bytes, (uintptr_t)hint, base))));
    standin_remember(RESERVATION, device, (uintptr_t)*base, bytes);
    return 0;
}

hipError_t hipMemAddressFree(void *base, size_t bytes)
{
    standin_record known;
    TRY(standin_begin(STANDIN_hipMemAddressFree));
    TRY(standin_last(standin_forget(RESERVATION, (uintptr_t)base, &known)));
    return standin_last(standin_forgotten(&known, wr_backend_host.vm_release(known.device, base, bytes)));
}

hipError_t hipMemCreate(hipMemGenericAllocationHandle_t *chunk, size_t bytes, const hipMemAllocationProp *what,
                        unsigned long long flags)
{
    int device;
    weir_chunk made;
    TRY(standin_enter(STANDIN_hipMemCreate, &device));
    TRY(standin_last(check_kind(what)));
    if (flags != 0) return standin_last(INVALID_VALUE);
    TRY(standin_last(standin_code(wr_backend_host.vm_create(what->location.id, bytes, &made))));
    standin_remember(CHUNK, what->location.id, made, bytes);
    *chunk = (hipMemGenericAllocationHandle_t)(uintptr_t)made;
    return 0;
}

hipError_t hipMemRelease(hipMemGenericAllocationHandle_t chunk)
{
    standin_record known;
    TRY(standin_begin(STANDIN_hipMemRelease));
    TRY(standin_last(standin_forget(CHUNK, (uintptr_t)chunk, &known)));
    return standin_last(standin_forgotten(&known, wr_backend_host.vm_destroy(known.device, known.key, known.bytes)));
}

/* A command on the device's default stream, waited for. */
static int through_default_stream(int device)
{
    return standin_last(standin_code(wr_backend_host.stream_synchronize(device, NULL)));
}

hipError_t hipMemMap(void *base, size_t bytes, size_t offset, hipMemGenericAllocationHandle_t chunk,
                     unsigned long long flags)
{
    standin_record known;
    TRY(standin_begin(STANDIN_hipMemMap));
    if (flags != 0 || offset != 0) return standin_last(INVALID_VALUE);
    TRY(standin_last(standin_recall(CHUNK, (uintptr_t)chunk, &known)));
    TRY(through_default_stream(known.device));
    return standin_last(standin_code(wr_backend_host.vm_map(known.device, base, bytes, known.key)));
}

hipError_t hipMemUnmap(void *base, size_t bytes)
{
    standin_record known;
    TRY(standin_begin(STANDIN_hipMemUnmap));
    TRY(standin_last(standin_recall(RESERVATION, (uintptr_t)base, &known)));
    TRY(through_default_stream(known.device));
    return standin_last(standin_code(wr_backend_host.vm_unmap(known.device, base, bytes)));
}

hipError_t hipMemSetAccess(void *base, size_t bytes, const hipMemAccessDesc *access, size_t count)
{
    standin_record known;
    TRY(standin_begin(STANDIN_hipMemSetAccess));
    TRY(standin_last(standin_recall(RESERVATION, (uintptr_t)base, &known)));
    for (size_t i = 0; i < count; i++) {
        if (access[i].location.type != WR_hipMemLocationTypeDevice ||
            access[i].flags != WR_hipMemAccessFlagsProtReadWrite)
            return standin_last(INVALID_VALUE);
        TRY(standin_last(standin_code(wr_backend_host.vm_access(known.device, base, bytes, access[i].location.id))));
    }
    return 0;
}
