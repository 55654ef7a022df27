/*
 * weir/rmm.hpp on the host back end, compiled against stand-ins of both kinds of RMM.
 */
#undef NDEBUG
#include <atomic>
#include <cassert>
#include <chrono>
#include <cstring>
#include <thread>
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
    static std::atomic<bool> done{ false };
    weir_stream stream{};
    WEIR_CHECK(weir_stream_default(0, &stream));
    const auto late = [](void *) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        done = true;
    };
    WEIR_CHECK(weir_stream_callback(stream, late, nullptr));
    void *pointer = resource.allocate_sync(1 << 20);
    assert(pointer && done);
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

/* Streams of the program: weir is not asked about them. */
static void *const ONE = reinterpret_cast<void *>(0x1000), *const OTHER = reinterpret_cast<void *>(0x2000);

static void a_streams_memory_is_its_own_again_without_a_wait_of_it(weir::rmm_resource &resource)
{
    void *first = take(resource, 1 << 20, ONE);
    assert(in_use() == 1 << 20 && standin::cuda.waited == ONE); /* once, because the lane is new */
    const int waits = standin::cuda.waits;
    give(resource, first, 1 << 20, ONE);
    assert(in_use() == 0 && standin::cuda.waits == waits + 1 &&
           standin::cuda.waited != ONE); /* the lane waits for the stream */
    void *second = take(resource, 1 << 20, ONE);
    assert(second == first && standin::cuda.waits == waits + 1);
    give(resource, second, 1 << 20, ONE);
}

static void another_streams_memory_is_not(weir::rmm_resource &resource)
{
    void *first = take(resource, 1 << 20, ONE);
    give(resource, first, 1 << 20, ONE);
    void *second = take(resource, 1 << 20, OTHER);
    assert(second != first);
    give(resource, second, 1 << 20, OTHER);
}

static void memory_freed_on_another_stream_waits_for_that_one(weir::rmm_resource &resource)
{
    void *first = take(resource, 1 << 20, ONE);
    const int records = standin::cuda.records;
    give(resource, first, 1 << 20, OTHER);
    assert(in_use() == 0 && standin::cuda.records == records + 1);
    void *second = take(resource, 1 << 20, ONE);
    give(resource, second, 1 << 20, ONE);
}

static void a_stream_at_the_address_of_one_that_was_destroyed_is_another(weir::rmm_resource &resource)
{
    void *first = take(resource, 1 << 20, ONE);
    give(resource, first, 1 << 20, ONE);
    standin::cuda.generation = 7;
    void *second = take(resource, 1 << 20, ONE);
    assert(second != first && standin::cuda.waited == ONE);
    give(resource, second, 1 << 20, ONE);
    standin::cuda.generation = 0;
}

static void the_driver_is_asked_and_the_runtime_where_that_refuses(weir::rmm_resource &resource)
{
    standin::cuda.runtime_asked = standin::cuda.driver_asked = 0;
    give(resource, take(resource, 1 << 20, ONE), 1 << 20, ONE);
    assert(standin::cuda.runtime_asked == 0 && standin::cuda.driver_asked == 4);
    standin::cuda.without_driver = true;
    give(resource, take(resource, 1 << 20, ONE), 1 << 20, ONE);
    assert(standin::cuda.runtime_asked == 4 && standin::cuda.driver_asked == 8);
    standin::cuda.without_driver = false;
}

static void streams_that_share_a_lane_wait_for_each_other(weir::rmm_resource &resource)
{
    void *first = take(resource, 1 << 20, ONE), *second = nullptr, *stream = nullptr;
    give(resource, first, 1 << 20, ONE);
    int tries = 0;
    while (second != first && tries++ < 64) { /* one of them shares the first stream's lane */
        stream = reinterpret_cast<void *>(static_cast<std::uintptr_t>(0x100000) + 0x1000u * unsigned(tries));
        second = take(resource, 1 << 20, stream);
        assert(standin::cuda.waited == stream);
        give(resource, second, 1 << 20, stream);
    }
    assert(second == first);
    const int waits = standin::cuda.waits;
    give(resource, take(resource, 1 << 20, ONE), 1 << 20, ONE);
    assert(standin::cuda.waits == waits + 2); /* the stream waits for its lane again, and the lane for the stream */
    give(resource, take(resource, 1 << 20, ONE), 1 << 20, stream);
    void *third = take(resource, 1 << 20, ONE);
    assert(third == first && standin::cuda.waited == ONE); /* for the other stream, which freed it */
    give(resource, third, 1 << 20, ONE);
}

static void the_default_stream_needs_no_driver(weir::rmm_resource &resource)
{
    const int calls = standin::cuda.records + standin::cuda.waits;
    void *first = take(resource, 1 << 20, nullptr);
    give(resource, first, 1 << 20, nullptr);
    void *second = take(resource, 1 << 20, cudaStreamLegacy); /* its other name */
    assert(second == first && standin::cuda.records + standin::cuda.waits == calls);
    give(resource, second, 1 << 20, ONE); /* waits for the lane */
    assert(in_use() == 0 && standin::cuda.records + standin::cuda.waits == calls + 2);
}

static void the_streams_of_threads_are_theirs(weir::rmm_resource &resource)
{
    void *const own = reinterpret_cast<void *>(2);
    void *first = take(resource, 1 << 20, own);
    give(resource, first, 1 << 20, own);
    std::thread([&resource, own, first] {
        void *second = take(resource, 1 << 20, own);
        assert(second != first);
        give(resource, second, 1 << 20, own);
    }).join();
    void *third = take(resource, 1 << 20, own);
    assert(third == first);
    give(resource, third, 1 << 20, own);
}

/* What failed here is not what a program finds that asks the runtime about a call of its own. */
static bool nothing_left_to_report()
{
    return cudaGetLastError() == cudaSuccess;
}

static void a_stream_that_cannot_be_waited_for_there_is_waited_for_here(weir::rmm_resource &resource)
{
    void *pointer = take(resource, 1 << 20, ONE);
    standin::cuda.fails = true;
    give(resource, pointer, 1 << 20, ONE);
    assert(in_use() == 0 && standin::cuda.synchronized == 1 && nothing_left_to_report());
    try {
        (void)take(resource, 1 << 20, ONE);
        assert(false);
    } catch (const rmm::bad_alloc &e) {
        assert(std::strstr(e.what(), "invalid argument"));
    }
    assert(in_use() == 0 && nothing_left_to_report());
    standin::cuda.fails = false;
}

static void a_captured_stream_gets_no_memory_and_frees_later(weir::rmm_resource &resource)
{
    void *pointer = take(resource, 1 << 20, ONE), *other = take(resource, 1 << 20, OTHER);
    standin::cuda.capturing = true;
    try {
        (void)take(resource, 1 << 20, ONE);
        assert(false);
    } catch (const rmm::bad_alloc &e) {
        assert(std::strstr(e.what(), "captured"));
    }
    const int calls = standin::cuda.records + standin::cuda.synchronized;
    give(resource, pointer, 1 << 20, ONE);
    assert(in_use() == 2 << 20 && standin::cuda.records + standin::cuda.synchronized == calls);
    standin::cuda.capturing = false;
    give(resource, other, 1 << 20, OTHER);
    assert(in_use() == 1 << 20); /* work queued on ONE before the capture may have used it */
    const int records = standin::cuda.records;
    void *second = take(resource, 1 << 20, ONE);
    assert(second == pointer && in_use() == 1 << 20 && standin::cuda.records == records + 1);
    give(resource, second, 1 << 20, ONE);
    assert(in_use() == 0);
}

static void what_a_captured_stream_freed_is_kept_until_its_stream_can_be_waited_for(weir::rmm_resource &resource)
{
    void *pointer = take(resource, 1 << 20, ONE);
    standin::cuda.capturing = true;
    give(resource, pointer, 1 << 20, ONE);
    standin::cuda.capturing = false;
    standin::cuda.fails_to_wait = true;
    try {
        (void)take(resource, 1 << 20, ONE);
        assert(false);
    } catch (const rmm::bad_alloc &) {
    }
    assert(nothing_left_to_report());
    standin::cuda.fails_to_wait = false;
    give(resource, take(resource, 1 << 20, ONE), 1 << 20, ONE);
    assert(in_use() == 0);
}

static void *kept;

static bool free_kept(void *user, int, std::size_t)
{
    const bool any = kept != nullptr;
    if (any) give(*static_cast<weir::rmm_resource *>(user), kept, 1 << 20, ONE);
    kept = nullptr;
    return any;
}

static void a_callback_may_free_while_its_stream_allocates(weir::rmm_resource &resource)
{
    kept = take(resource, 1 << 20, ONE);
    WEIR_CHECK(weir_reclaim_add(free_kept, &resource));
    try {
        (void)take(resource, static_cast<std::size_t>(1) << 50, ONE);
        assert(false);
    } catch (const rmm::out_of_memory &) {
        assert(kept == nullptr && in_use() == 0);
    }
    WEIR_CHECK(weir_reclaim_remove(free_kept, &resource));
}

static void what_weir_itself_writes_is_waited_for(weir::rmm_resource &resource)
{
    WEIR_CHECK(weir_close());
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.debug = "poison";
    WEIR_CHECK(weir_open(&settings));
    give(resource, take(resource, 1 << 20, ONE), 1 << 20, ONE);
    const int waits = standin::cuda.waits;
    void *pointer = take(resource, 1 << 20, ONE); /* which weir has filled, on its own stream */
    assert(standin::cuda.waits == waits + 1 && standin::cuda.waited == ONE);
    give(resource, pointer, 1 << 20, ONE);
}

static void memory_can_be_had_again_after_weir_close(weir::rmm_resource &resource)
{
    void *withheld = take(resource, 1 << 20, ONE);
    standin::cuda.capturing = true;
    give(resource, withheld, 1 << 20, ONE);
    standin::cuda.capturing = false;
    WEIR_CHECK(weir_close());
    WEIR_CHECK(weir_open(nullptr));
    void *const others = take(resource, 1 << 20, nullptr);
    const int waits = standin::cuda.waits;
    assert(nothing_left_to_report());
    give(resource, take(resource, 1 << 10, ONE), 1 << 10, ONE); /* does not free a block that has another owner now */
    assert(in_use() == 1 << 20 && standin::cuda.waits > waits + 1); /* the lane is new: its stream waits for it, too */
    give(resource, others, 1 << 20, nullptr);
    for (void *stream : { ONE, static_cast<void *>(nullptr) })
        give(resource, take(resource, 1 << 20, stream), 1 << 20, stream);
    assert(in_use() == 0 && nothing_left_to_report());
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

int main()
{
    weir::rmm_resource resource, far(1);
    assert(same(resource, weir::rmm_resource(0)) && !same(resource, far));
    a_streams_memory_is_its_own_again_without_a_wait_of_it(resource);
    another_streams_memory_is_not(resource);
    memory_freed_on_another_stream_waits_for_that_one(resource);
    a_stream_at_the_address_of_one_that_was_destroyed_is_another(resource);
    the_driver_is_asked_and_the_runtime_where_that_refuses(resource);
    streams_that_share_a_lane_wait_for_each_other(resource);
    the_default_stream_needs_no_driver(resource);
    the_streams_of_threads_are_theirs(resource);
    a_stream_that_cannot_be_waited_for_there_is_waited_for_here(resource);
    a_captured_stream_gets_no_memory_and_frees_later(resource);
    what_a_captured_stream_freed_is_kept_until_its_stream_can_be_waited_for(resource);
    a_callback_may_free_while_its_stream_allocates(resource);
    running_out_is_rmms_error_with_weirs_text(resource);
#if !WEIR_RMM_DERIVES
    synchronous_memory_is_for_any_stream(resource);
    an_alignment_that_weir_does_not_have_is_refused(resource);
#endif
    WEIR_CHECK(weir_validate(0));
    memory_can_be_had_again_after_weir_close(resource);
    what_weir_itself_writes_is_waited_for(resource);
    WEIR_CHECK(weir_close());
    return 0;
}
