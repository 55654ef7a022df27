/*
 * weir/rmm.hpp on the host back end, compiled against stand-ins of both kinds of RMM.
 */
#undef NDEBUG
#include <cassert>
#include <cstring>
#include <weir/rmm.hpp>

#if WEIR_RMM_DERIVES
static void *take(weir::rmm_resource &resource, std::size_t bytes, void *stream)
{
    return resource.allocate(bytes, rmm::cuda_stream_view(stream));
}

static void give(weir::rmm_resource &resource, void *pointer, std::size_t bytes, void *stream)
{
    resource.deallocate(pointer, bytes, rmm::cuda_stream_view(stream));
}

static bool same(const weir::rmm_resource &a, const weir::rmm_resource &b)
{
    return a.is_equal(b);
}
#else
static void *take(weir::rmm_resource &resource, std::size_t bytes, void *stream)
{
    return resource.allocate(stream, bytes);
}

static void give(weir::rmm_resource &resource, void *pointer, std::size_t bytes, void *stream)
{
    resource.deallocate(stream, pointer, bytes);
}

static bool same(const weir::rmm_resource &a, const weir::rmm_resource &b)
{
    return a == b && !(a != b);
}

static void synchronous_memory_is_for_any_stream(weir::rmm_resource &resource)
{
    void *pointer = resource.allocate_sync(1 << 20);
    assert(pointer);
    resource.deallocate_sync(pointer, 1 << 20);
}

static void an_alignment_that_weir_does_not_have_is_refused(weir::rmm_resource &resource)
{
    try {
        (void)resource.allocate(nullptr, 1, 4096);
        assert(false);
    } catch (const rmm::bad_alloc &e) {
        assert(std::strstr(e.what(), "4096"));
    }
}
#endif

static int64_t in_use()
{
    weir_memory_stats stats{};
    stats.size = sizeof stats;
    WEIR_CHECK(weir_stats_get(0, &stats));
    return stats.allocated_bytes[WEIR_STAT_ALL].current;
}

static void memory_is_freed_on_its_own_stream(weir::rmm_resource &resource)
{
    weir_stream stream{}, other{};
    void *native = nullptr, *elsewhere = nullptr;
    WEIR_CHECK(weir_stream_create(0, 0, &stream));
    WEIR_CHECK(weir_stream_create(0, 0, &other));
    WEIR_CHECK(weir_stream_native(stream, &native));
    WEIR_CHECK(weir_stream_native(other, &elsewhere));
    void *first = take(resource, 1 << 20, native);
    assert(in_use() == 1 << 20);
    give(resource, first, 1 << 20, elsewhere);
    assert(in_use() == 0);
    void *second = take(resource, 1 << 20, native);
    assert(second == first);
    give(resource, second, 1 << 20, native);
}

static void running_out_is_rmms_error_with_weirs_text(weir::rmm_resource &resource)
{
    try {
        (void)take(resource, static_cast<std::size_t>(1) << 50, nullptr);
        assert(false);
    } catch (const rmm::out_of_memory &e) {
        assert(std::strstr(e.what(), "weir: out of memory on device 0"));
    }
}

static void other_failures_are_bad_allocs(weir::rmm_resource &resource)
{
    try {
        (void)take(resource, 1, reinterpret_cast<void *>(2));
        assert(false);
    } catch (const rmm::out_of_memory &) {
        assert(false);
    } catch (const rmm::bad_alloc &e) {
        assert(std::strstr(e.what(), "cudaStreamPerThread"));
    }
}

int main()
{
    weir::rmm_resource resource, far(1);
    assert(same(resource, weir::rmm_resource(0)) && !same(resource, far));
    memory_is_freed_on_its_own_stream(resource);
    running_out_is_rmms_error_with_weirs_text(resource);
    other_failures_are_bad_allocs(resource);
#if !WEIR_RMM_DERIVES
    synchronous_memory_is_for_any_stream(resource);
    an_alignment_that_weir_does_not_have_is_refused(resource);
#endif
    WEIR_CHECK(weir_validate(0));
    WEIR_CHECK(weir_close());
    return 0;
}
