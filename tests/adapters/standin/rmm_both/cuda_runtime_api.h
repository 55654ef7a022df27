/* A stand-in for the CUDA runtime's header: what weir/rmm.hpp uses of it, on the host back end. It counts. */
#ifndef STANDIN_CUDA_RUNTIME_API_H
#define STANDIN_CUDA_RUNTIME_API_H

#include <cstdint>

typedef struct CUstream_st *cudaStream_t;
typedef struct standin_event {
    int unused;
} *cudaEvent_t;
enum cudaError_t { cudaSuccess, cudaErrorInvalidValue };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };

#define cudaStreamLegacy ((cudaStream_t)1)
#define cudaStreamPerThread ((cudaStream_t)2)
#define cudaEventDisableTiming 2u

namespace standin
{
struct runtime {
    int records = 0, waits = 0, synchronized = 0;
    cudaStream_t waited = nullptr; /* the stream that last waited for an event */
    unsigned long long generation = 0;
    bool capturing = false, fails = false;
};
inline runtime cuda;
} // namespace standin

inline cudaError_t standin_result()
{
    return standin::cuda.fails ? cudaErrorInvalidValue : cudaSuccess;
}

inline const char *cudaGetErrorString(cudaError_t)
{
    return "invalid argument";
}

inline cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id)
{
    *id = static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(stream)) + standin::cuda.generation;
    return standin_result();
}

inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *status)
{
    *status = standin::cuda.capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return standin_result();
}

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    static standin_event one;
    *event = &one;
    return standin_result();
}

inline cudaError_t cudaEventDestroy(cudaEvent_t)
{
    return cudaErrorInvalidValue; /* as after a reset of the device */
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
    return standin_result();
}

inline cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    standin::cuda.synchronized++;
    return cudaSuccess;
}

#endif
