/* A stand-in for the CUDA runtime's header: what weir/rmm.hpp uses of it, on the host back end. It counts. */
#ifndef STANDIN_CUDA_RUNTIME_API_H
#define STANDIN_CUDA_RUNTIME_API_H

#include <cstdint>
#include <string_view>

#ifndef CUDART_VERSION
#define CUDART_VERSION 13000
#endif

typedef struct CUstream_st *cudaStream_t;
typedef struct standin_event {
    int unused;
} *cudaEvent_t;
enum cudaError_t { cudaSuccess, cudaErrorInvalidValue };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };

#define cudaEnableDefault 0ull
#define cudaStreamLegacy ((cudaStream_t)1)
#define cudaStreamPerThread ((cudaStream_t)2)
#define cudaEventDisableTiming 2u

namespace standin
{
struct runtime {
    int records = 0, waits = 0, synchronized = 0;
    cudaStream_t waited = nullptr; /* the stream that last waited for an event */
    unsigned long long generation = 0;
    bool capturing = false, fails = false, fails_to_wait = false;
    bool without_driver = false; /* its functions refuse, as where no context is current */
    int runtime_asked = 0, driver_asked = 0;
    cudaError_t last = cudaSuccess; /* of all threads; CUDA has one for each */
};
inline runtime cuda;
} // namespace standin

inline cudaError_t standin_result(bool fails = standin::cuda.fails)
{
    if (fails) standin::cuda.last = cudaErrorInvalidValue;
    return fails ? cudaErrorInvalidValue : cudaSuccess;
}

inline const char *cudaGetErrorString(cudaError_t)
{
    return "invalid argument";
}

inline cudaError_t cudaGetLastError()
{
    const cudaError_t last = standin::cuda.last;
    standin::cuda.last = cudaSuccess;
    return last;
}

inline cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id)
{
    standin::cuda.runtime_asked++;
    *id = static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(stream)) + standin::cuda.generation;
    return standin_result();
}

inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *status)
{
    standin::cuda.runtime_asked++;
    *status = standin::cuda.capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return standin_result();
}

namespace standin
{

/* The driver's functions of the same meaning. */
inline int driver_id(cudaStream_t stream, unsigned long long *id)
{
    cuda.driver_asked++;
    *id = static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(stream)) + cuda.generation;
    return cuda.without_driver || cuda.fails;
}

inline int driver_capturing(cudaStream_t, cudaStreamCaptureStatus *status)
{
    cuda.driver_asked++;
    *status = cuda.capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cuda.without_driver || cuda.fails;
}

inline cudaError_t find(const char *name, void **found)
{
    const std::string_view wanted(name);
    *found = nullptr;
    if (wanted == "cuStreamGetId") *found = reinterpret_cast<void *>(driver_id);
    if (wanted == "cuStreamIsCapturing") *found = reinterpret_cast<void *>(driver_capturing);
    return standin_result(!*found);
}

} // namespace standin

#if CUDART_VERSION >= 12050
inline cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **found, unsigned, unsigned long long)
{
    return standin::find(name, found);
}
#else
inline cudaError_t cudaGetDriverEntryPoint(const char *name, void **found, unsigned long long)
{
    return standin::find(name, found);
}
#endif

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    static standin_event one;
    *event = &one;
    return standin_result();
}

inline cudaError_t cudaEventDestroy(cudaEvent_t)
{
    return standin_result(true); /* as after a reset of the device */
}

inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t)
{
    standin::cuda.records++;
    return standin_result();
}

inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t, unsigned)
{
    standin::cuda.waits++;
    standin::cuda.waited = stream;
    return standin_result(standin::cuda.fails_to_wait || standin::cuda.fails);
}

inline cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    standin::cuda.synchronized++;
    return standin_result();
}

#endif
