/* A memory resource of RMM: its own pool, the driver's pool behind it, or weir behind it, as -DRMM_RESOURCE="pool",
 * "async" or "weir" says. Built where RMM is, by scripts/rmm-build; named to weir-bench with --peer. */
#include "peer.h"

#include <cuda_runtime_api.h>
#include <optional>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <weir/rmm.hpp>

namespace
{

using any_resource = cuda::mr::any_resource<cuda::mr::device_accessible>;

std::optional<any_resource> resource;

constexpr std::string_view KIND = RMM_RESOURCE;

any_resource make()
{
    if (KIND == "weir") return weir::rmm_resource(0);
    if (KIND == "async") return rmm::mr::cuda_async_memory_resource();
    return rmm::mr::pool_memory_resource(any_resource(rmm::mr::cuda_memory_resource()), 0);
}

const char *open_rmm()
{
    static std::string reason;
    try {
        if (cudaSetDevice(0) != cudaSuccess || cudaFree(nullptr) != cudaSuccess)
            throw std::runtime_error("there is no GPU");
        resource = make();
        return nullptr;
    } catch (const std::exception &e) {
        reason = e.what();
        return reason.c_str();
    }
}

void close_rmm()
{
    (void)cudaDeviceSynchronize();
    resource.reset();
    if (KIND == "weir") (void)!weir_empty_cache(0);
}

uint64_t default_stream()
{
    return 0;
}

uint64_t new_stream()
{
    cudaStream_t stream = nullptr;
    (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    return reinterpret_cast<std::uintptr_t>(stream);
}

void enter(uint64_t)
{
    (void)cudaSetDevice(0);
}

cuda::stream_ref reference(uint64_t stream)
{
    return cuda::stream_ref{ reinterpret_cast<cudaStream_t>(stream) };
}

/* A block is represented by RMM's container of it, which knows the size that RMM's deallocate needs. */
void *alloc(size_t bytes, uint64_t stream)
{
    try {
        return new rmm::device_buffer(bytes, reference(stream), *resource);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

void release(void *pointer, uint64_t)
{
    delete static_cast<rmm::device_buffer *>(pointer);
}

void empty()
{
    close_rmm();
    (void)open_rmm();
}

uint64_t device_memory()
{
    size_t unused = 0, total = 0;
    (void)cudaMemGetInfo(&unused, &total);
    return total - unused;
}

/* An RMM resource does not report what it has reserved. */
const bench_peer rmm_peer = { BENCH_PEER_VERSION,
                              "rmm " RMM_RESOURCE,
                              open_rmm,
                              close_rmm,
                              default_stream,
                              new_stream,
                              enter,
                              alloc,
                              release,
                              empty,
                              device_memory,
                              device_memory,
                              nullptr,
                              nullptr };

} // namespace

extern "C" __attribute__((visibility("default"))) const bench_peer *bench_peer_get(void)
{
    return &rmm_peer;
}
