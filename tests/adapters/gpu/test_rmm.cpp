/*
 * weir/rmm.hpp under RMM itself (26.06 or later), on a GPU. Built and run by scripts/clients where the package librmm
 * is.
 */
#undef NDEBUG
#include <cassert>
#include <cstdio>
#include <cstring>
#include <cuda_runtime_api.h>
#include <numeric>
#include <rmm/cuda_stream.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <thread>
#include <vector>
#include <weir/rmm.hpp>

static int64_t in_use()
{
    weir_memory_stats stats{};
    stats.size = sizeof stats;
    WEIR_CHECK(weir_stats_get(0, &stats));
    return stats.allocated_bytes[WEIR_STAT_ALL].current;
}

static void check(cudaError_t error)
{
    if (error != cudaSuccess) std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
    assert(error == cudaSuccess);
}

static void containers_hold_what_was_put_into_them()
{
    const rmm::cuda_stream stream;
    std::vector<int> numbers(1 << 20), back(numbers.size());
    std::iota(numbers.begin(), numbers.end(), 7);
    rmm::device_uvector<int> first(numbers.size(), stream);
    assert(in_use() == 4 << 20);
    check(cudaMemcpyAsync(first.data(), numbers.data(), 4 << 20, cudaMemcpyDefault, stream.value()));
    rmm::device_uvector<int> second(first, stream); /* a copy on the device */
    first.resize(0, stream);
    first.shrink_to_fit(stream);
    assert(in_use() == 4 << 20);
    check(cudaMemcpyAsync(back.data(), second.data(), 4 << 20, cudaMemcpyDefault, stream.value()));
    stream.synchronize();
    assert(back == numbers);
}

static void what_is_freed_is_reused_on_its_stream()
{
    const rmm::cuda_stream stream, other;
    rmm::device_buffer first(1 << 20, stream);
    const void *where = first.data();
    first = rmm::device_buffer();
    const rmm::device_buffer elsewhere(1 << 20, other), again(1 << 20, stream);
    assert(again.data() == where && elsewhere.data() != where);
}

static void work_on_a_stream_of_its_own(int thread)
{
    const rmm::cuda_stream stream;
    for (int round = 0; round < 200; round++) {
        const std::size_t bytes = static_cast<std::size_t>(1 + (round * 37 + thread * 11) % 300) << 10;
        rmm::device_buffer a(bytes, stream), b(bytes / 2, stream);
        std::vector<unsigned char> back(bytes);
        check(cudaMemsetAsync(a.data(), thread, bytes, stream.value()));
        check(cudaMemsetAsync(b.data(), 255, bytes / 2, stream.value()));
        check(cudaMemcpyAsync(back.data(), a.data(), bytes, cudaMemcpyDefault, stream.value()));
        stream.synchronize();
        for (const unsigned char byte : back) assert(byte == thread);
    }
}

static void threads_with_streams_do_not_meet()
{
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++) threads.emplace_back(work_on_a_stream_of_its_own, i);
    for (std::thread &thread : threads) thread.join();
}

/* Each stream fills the memory that the stream before it freed, and is destroyed with work queued. Memory is short, so
 * that memory freed by one stream must serve others. */
static void streams_may_be_destroyed_with_work_queued()
{
    constexpr std::size_t BYTES = static_cast<std::size_t>(1) << 30, SAMPLE = 4096, PLACES = 5;
    constexpr int STREAMS = 80;
    void *samples = nullptr;
    check(cudaMallocHost(&samples, STREAMS * PLACES * SAMPLE));
    auto *sample = static_cast<unsigned char *>(samples);
    WEIR_CHECK(weir_empty_cache(0));
    WEIR_CHECK(weir_memory_limit_set(0, 2 * BYTES + BYTES / 2));
    for (int i = 0; i < STREAMS; i++) {
        const rmm::cuda_stream stream;
        const rmm::device_buffer buffer(BYTES, stream);
        for (int value : { 255, i })
            check(cudaMemsetAsync(const_cast<void *>(buffer.data()), value, BYTES, stream.value()));
        for (std::size_t place = 0; place < PLACES; place++, sample += SAMPLE)
            check(cudaMemcpyAsync(sample,
                                  static_cast<const char *>(buffer.data()) + place * (BYTES - SAMPLE) / (PLACES - 1),
                                  SAMPLE, cudaMemcpyDefault, stream.value()));
    }
    check(cudaDeviceSynchronize());
    sample = static_cast<unsigned char *>(samples);
    for (std::size_t i = 0; i < STREAMS * PLACES * SAMPLE; i++) assert(sample[i] == i / (PLACES * SAMPLE));
    WEIR_CHECK(weir_memory_limit_set(0, 0));
    check(cudaFreeHost(samples));
}

static void adaptors_go_on_top()
{
    const rmm::cuda_stream stream;
    rmm::mr::statistics_resource_adaptor counted{ weir::rmm_resource() };
    {
        const rmm::device_buffer buffer(3 << 20, stream, counted);
        assert(counted.get_bytes_counter().value == 3 << 20 && in_use() == 3 << 20);
    }
    assert(counted.get_bytes_counter().value == 0 && counted.get_bytes_counter().peak == 3 << 20 && in_use() == 0);
}

static void running_out_is_rmms_error_and_not_the_end()
{
    const rmm::cuda_stream stream;
    try {
        const rmm::device_buffer impossible(static_cast<std::size_t>(1) << 50, stream);
        assert(false);
    } catch (const rmm::out_of_memory &e) {
        assert(std::strstr(e.what(), "weir: out of memory on device 0"));
    }
    const rmm::device_buffer possible(1 << 20, stream);
}

int main()
{
    rmm::mr::set_current_device_resource(weir::rmm_resource());
    containers_hold_what_was_put_into_them();
    what_is_freed_is_reused_on_its_stream();
    threads_with_streams_do_not_meet();
    streams_may_be_destroyed_with_work_queued();
    adaptors_go_on_top();
    running_out_is_rmms_error_and_not_the_end();
    assert(in_use() == 0);
    WEIR_CHECK(weir_validate(0));
    WEIR_CHECK(weir_close());
    std::puts("OK: 6 tests");
    return 0;
}
