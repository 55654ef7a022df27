#include "torch/requests.h"

#include "torch/errors.h"
#include "torch/hooks.h"
#include "torch/symbols.h"

#include <stdexcept>
#include <string>

namespace
{

/* PyTorch's functions for what is current in the calling thread. */
struct current {
    int (*device)(signed char *out);
    wa_cuda_stream (*stream)(signed char device);
    void *(*native)(const wa_cuda_stream *stream);
    void (*settle_device)(); /* sets the device that PyTorch has put off to set */
};

const current &theirs()
{
    static const current found = {
        wa_torch_symbol(WA_TORCH_CORE, "_ZN3c104cuda9GetDeviceEPa"),
        wa_torch_symbol(WA_TORCH_CORE, "_ZN3c104cuda20getCurrentCUDAStreamEa"),
        wa_torch_symbol(WA_TORCH_CORE, "_ZNK3c104cuda10CUDAStream6streamEv"),
        wa_torch_symbol(WA_TORCH_CORE, "_ZN3c104cuda15SetTargetDeviceEv"),
    };
    return found;
}

/* cudaSetDevice() tells the driver at once since CUDA 12 (its documentation). The driver is asked because
 * cudaGetDevice() takes a lock: 1.4 us on 16 threads. */
bool driver_knows;

void *native_of(signed char device)
{
    const wa_cuda_stream stream = theirs().stream(device);
    return theirs().native(&stream);
}

void *alloc_on(signed char device, size_t bytes)
{
    return weir_torch_alloc(static_cast<ssize_t>(bytes), device, native_of(device));
}

void delete_in_destructor(void *memory)
{
    weir_torch_free(memory, 0, 0, nullptr);
}

} // namespace

bool wa_requests_begin(int cuda)
{
    driver_knows = cuda >= 12 && theirs().settle_device;
    return theirs().device && theirs().stream && theirs().native;
}

signed char wa_current_device()
{
    if (driver_knows) {
        int known = 0;
        theirs().settle_device();
        if (weir_device_get_current(&known) == WEIR_OK) return static_cast<signed char>(known);
    }
    signed char device = 0;
    const int error = theirs().device(&device);
    if (error) throw std::runtime_error("weir: PyTorch has no current device: CUDA error " + std::to_string(error));
    return device;
}

void *wa_current_native(signed char device)
{
    return theirs().stream && theirs().native ? native_of(device) : nullptr;
}

wa_data_ptr wa_allocate(void *allocator, size_t bytes)
{
    const signed char device = wa_current_device();
    void *memory = alloc_on(device, bytes);
    return { memory, { memory, wa_raw_deleter(allocator) }, { WA_CUDA, device } };
}

void *wa_raw_alloc(void *, size_t bytes)
{
    return alloc_on(wa_current_device(), bytes);
}

void *wa_raw_alloc_with_stream(void *, size_t bytes, void *stream)
{
    return weir_torch_alloc(static_cast<ssize_t>(bytes), wa_current_device(), stream);
}

void wa_raw_delete(void *, void *memory)
{
    const weir_status status = wa_torch_free(memory);
    if (wa_torch_refused(status)) wa_torch_check(status);
}

wa_deleter wa_raw_deleter(const void *)
{
    return delete_in_destructor;
}
