/**
 * @file rmm.hpp
 * @brief weir as a memory resource of RMM and of CCCL (cuda::mr), in one header; link -lweir.
 *
 *     weir::rmm_resource resource;                      // the current device's
 *     rmm::mr::set_current_device_resource(resource);   // RMM before 26.06: (&resource)
 *
 * With RMM 26.06 and later, or CCCL alone, it is a value that satisfies cuda::mr::resource; with RMM before that, a class
 * derived from rmm::mr::device_memory_resource. Memory is stream-ordered as RMM says: it may be used at once by work on
 * the stream it was allocated on, and again by others once the work that is on the stream named to deallocate() then is over.
 * Failures throw rmm::out_of_memory and rmm::bad_alloc (without RMM: std::bad_alloc) with weir's text.
 *
 * Streams may be destroyed at any time: weir never hears of them. Each is represented by one of 32 streams of weir's, which
 * waits for it with every deallocation (two driver calls, besides two questions); allocating takes two more when the memory may
 * be from elsewhere, usually none. Streams that share one may wait for each other. The default stream, which stays, takes none
 * at all. The device must be current, as RMM has it.
 *
 * A captured stream gets no memory. What it frees is free when it allocates or frees here next, and is not captured; if it is
 * destroyed before that, when the library is closed.
 */
#ifndef WEIR_RMM_HPP
#define WEIR_RMM_HPP

#include <weir/weir.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#if __has_include(<rmm/mr/device_memory_resource.hpp>)
#include <rmm/mr/device_memory_resource.hpp>
#define WEIR_RMM_DERIVES 1
#elif __has_include(<rmm/mr/device/device_memory_resource.hpp>)
#include <rmm/mr/device/device_memory_resource.hpp>
#define WEIR_RMM_DERIVES 1
#else
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#define WEIR_RMM_DERIVES 0
#endif
#if __has_include(<rmm/error.hpp>)
#include <rmm/error.hpp>
#define WEIR_RMM_ERRORS 1
#else
#define WEIR_RMM_ERRORS 0
#endif

namespace weir
{

/* What differs between parts of a program that were compiled with other default streams has other names. */
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
inline namespace per_thread_default_stream
{
#else
inline namespace legacy_default_stream
{
#endif

namespace rmm_detail
{

#if WEIR_RMM_ERRORS
using bad_alloc = rmm::bad_alloc;
using out_of_memory = rmm::out_of_memory;
#else
class bad_alloc : public std::bad_alloc
{
  public:
    explicit bad_alloc(std::string text) : text_(std::move(text)) {}

    const char *what() const noexcept override
    {
        return text_.c_str();
    }

  private:
    std::string text_;
};

class out_of_memory : public bad_alloc
{
    using bad_alloc::bad_alloc;
};
#endif

/* What weir gives, whatever is asked. */
constexpr std::size_t ALIGNMENT = 512;

inline void check(weir_status status)
{
    if (status == WEIR_ERR_OUT_OF_MEMORY) throw out_of_memory(std::string("weir: ") + weir_error_text());
    if (status != WEIR_OK) throw bad_alloc(std::string("weir: ") + weir_error_text());
}

inline int device_or_current(int device)
{
    if (device == WEIR_DEVICE_CURRENT) check(weir_device_get_current(&device));
    return device;
}

inline void check(cudaError_t error)
{
    if (error != cudaSuccess) throw bad_alloc(std::string("weir: ") + cudaGetErrorString(error));
}

/*
 * lane: a stream of weir's that stands for streams of the program, which weir then need not know: their owners may destroy
 * them while memory that was freed on them is cached. It waits for them, and has no work of the program's. `lock` is never
 * held while weir allocates or frees, which may call the program back.
 */
struct lane {
    std::mutex lock;
    weir_stream stream{};
    cudaStream_t native = nullptr;
    cudaEvent_t event = nullptr;
    std::uint64_t owner = 0;  /* the stream whose work is behind all of the lane's memory; 0: none */
    std::uint64_t queued = 0; /* of weir_stream_queued(), when the owner last waited for the lane */
};

/*
 * lanes: those of a device. Lives until the process ends, because memory may be freed that late.
 */
class lanes
{
  public:
    static lanes &of(int device)
    {
        static std::mutex lock;
        static auto *const all = new std::unordered_map<int, lanes *>;
        const std::lock_guard<std::mutex> locked(lock);
        lanes *&found = (*all)[device];
        if (!found) found = new lanes(device);
        return *found;
    }

    void *allocate(std::size_t bytes, cudaStream_t stream)
    {
        void *pointer = nullptr;
        if (is_default(stream)) {
            check(weir_alloc_on(bytes, default_stream(), &pointer));
            return pointer;
        }
        if (captures(stream))
            throw bad_alloc(
                "weir: the stream is captured, and a graph needs memory of its own: allocate before the capture, "
                "or with weir_graph_begin() and weir_alloc_on()");
        const std::uint64_t id = id_of(stream);
        free_withheld(stream, id);
        lane &own = lane_of(id);
        check(weir_alloc_on(bytes, open(own), &pointer));
        try {
            follow(own, stream, id);
        } catch (...) {
            (void)!weir_free(pointer);
            throw;
        }
        return pointer;
    }

    [[nodiscard]] weir_stream default_stream() const
    {
        weir_stream stream{};
        check(weir_stream_default(device_, &stream));
        return stream;
    }

    /* Where the stream cannot be waited for on the device, the host waits. */
    void deallocate(void *pointer, cudaStream_t stream) noexcept
    {
        try {
            if (is_default(stream)) {
                free_behind(pointer, default_stream());
                return;
            }
            const std::uint64_t id = id_of(stream);
            if (captures(stream)) {
                withhold(pointer, id);
                return;
            }
            free_withheld(stream, id);
            free_behind(pointer, pass(stream, id));
            return;
        } catch (...) {
            (void)cudaStreamSynchronize(stream);
        }
        (void)!weir_free(pointer);
    }

  private:
    static constexpr std::size_t LANES = 32, REMEMBERED = 4096;

    explicit lanes(int device) : device_(device) {}

    /* A number where a pointer would be; NULL is the default stream of the thread in programs compiled so. */
    static bool is_default(cudaStream_t stream)
    {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
        return stream == cudaStreamLegacy;
#else
        return stream == nullptr || stream == cudaStreamLegacy;
#endif
    }

    /* Never that of a stream which was destroyed, as its address may be; and not 0. What is another stream in each thread has
     * one in each. */
    static std::uint64_t id_of(cudaStream_t stream)
    {
        static std::atomic<std::uint64_t> threads{ 0 };
        static thread_local std::uint64_t thread = 0;
        unsigned long long id = 0;
        if (stream == nullptr || stream == cudaStreamPerThread) {
            if (thread == 0) thread = ++threads;
            return 2 * thread;
        }
        check(cudaStreamGetId(stream, &id));
        return 2 * id + 1;
    }

    static bool captures(cudaStream_t stream)
    {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        check(cudaStreamIsCapturing(stream, &status));
        return status != cudaStreamCaptureStatusNone;
    }

    /* Each thread remembers the last one. A stream may have two for a while: they are ordered as those of two streams. */
    lane &lane_of(std::uint64_t id)
    {
        static thread_local struct {
            const lanes *of;
            std::uint64_t id;
            lane *found;
        } last{};
        if (last.of != this || last.id != id) last = { this, id, &look_up(id) };
        return *last.found;
    }

    lane &look_up(std::uint64_t id)
    {
        const std::lock_guard<std::mutex> locked(lock_);
        if (lanes_.size() == REMEMBERED) lanes_.clear(); /* most of the streams are no more */
        const auto found = lanes_.emplace(id, nullptr).first;
        if (!found->second) found->second = &lane_[next_++ % LANES];
        return *found->second;
    }

    /* The lane's stream, made anew after weir_close(), and its event with it: the device may have been reset. */
    weir_stream open_locked(lane &lane)
    {
        void *native = nullptr;
        if (lane.stream.id != 0 && weir_stream_native(lane.stream, &native) == WEIR_OK) return lane.stream;
        if (lane.event) (void)cudaEventDestroy(lane.event);
        lane.event = nullptr;
        check(cudaEventCreateWithFlags(&lane.event, cudaEventDisableTiming));
        check(weir_stream_create(device_, 0, &lane.stream));
        check(weir_stream_native(lane.stream, &native));
        lane.native = static_cast<cudaStream_t>(native);
        lane.owner = 0;
        return lane.stream;
    }

    weir_stream open(lane &lane)
    {
        const std::lock_guard<std::mutex> locked(lane.lock);
        return open_locked(lane);
    }

    /* Work of the stream from now on comes behind whatever the lane waits for, if that is not so already. Afterwards: whoever
     * freed what the stream was just given has passed the lane before. */
    static void follow(lane &lane, cudaStream_t stream, std::uint64_t id)
    {
        std::uint64_t queued = 0;
        const std::lock_guard<std::mutex> locked(lane.lock);
        check(weir_stream_queued(lane.stream, &queued));
        if (lane.owner == id && lane.queued == queued) return;
        check(cudaEventRecord(lane.event, lane.native));
        check(cudaStreamWaitEvent(stream, lane.event, 0));
        lane.owner = id;
        lane.queued = queued;
    }

    /* The stream's lane waits for its present work. */
    weir_stream pass(cudaStream_t stream, std::uint64_t id)
    {
        lane &own = lane_of(id);
        const std::lock_guard<std::mutex> locked(own.lock);
        open_locked(own);
        check(cudaEventRecord(own.event, stream));
        check(cudaStreamWaitEvent(own.native, own.event, 0));
        if (own.owner != id) own.owner = 0;
        return own.stream;
    }

    /* Also for the stream that it belongs to, where that says nothing, and whether or not it is freed already. */
    static void free_behind(void *pointer, weir_stream behind)
    {
        const weir_status status = weir_record_stream(pointer, behind);
        if (status != WEIR_ERR_UNKNOWN_POINTER && status != WEIR_ERR_DOUBLE_FREE) check(status);
        (void)!weir_free(pointer);
    }

    /* What a captured stream frees: it cannot be waited for, and may have work from before the capture. So that is freed when
     * the stream comes here next, and is not captured; if the library was not closed meanwhile, with which all memory went. */
    struct withheld {
        std::uint64_t opened; /* the default stream's number, another one each time the library is open */
        std::vector<void *> pointers;
    };

    void withhold(void *pointer, std::uint64_t id) noexcept
    {
        try {
            const std::uint64_t opened = default_stream().id;
            const std::lock_guard<std::mutex> locked(lock_);
            withheld &mine = withheld_[id];
            if (mine.opened != opened) mine = { opened, {} };
            mine.pointers.push_back(pointer);
            withheld_count_ = withheld_.size();
        } catch (...) { /* it is lost: the host has no memory left */
        }
    }

    withheld take_withheld(std::uint64_t id)
    {
        withheld mine{};
        const std::lock_guard<std::mutex> locked(lock_);
        const auto found = withheld_.find(id);
        if (found == withheld_.end()) return mine;
        mine = std::move(found->second);
        withheld_.erase(found);
        withheld_count_ = withheld_.size();
        return mine;
    }

    void free_withheld(cudaStream_t stream, std::uint64_t id)
    {
        if (withheld_count_ == 0) return;
        withheld mine = take_withheld(id);
        if (mine.pointers.empty() || mine.opened != default_stream().id) return;
        try {
            for (const weir_stream behind = pass(stream, id); !mine.pointers.empty(); mine.pointers.pop_back())
                free_behind(mine.pointers.back(), behind);
        } catch (...) {
            for (void *pointer : mine.pointers) withhold(pointer, id);
            throw;
        }
    }

    const int device_;
    lane lane_[LANES];
    std::mutex lock_;                                 /* of what follows */
    std::unordered_map<std::uint64_t, lane *> lanes_; /* by stream */
    std::size_t next_ = 0;
    std::unordered_map<std::uint64_t, withheld> withheld_; /* by stream */
    std::atomic<std::size_t> withheld_count_{ 0 };         /* read without the lock */
};

inline void *allocate(lanes &of, std::size_t bytes, std::size_t alignment, void *stream)
{
    if (alignment > ALIGNMENT)
        throw bad_alloc("weir: an alignment of " + std::to_string(alignment) + " bytes was asked for; weir's is 512");
    return of.allocate(bytes, static_cast<cudaStream_t>(stream));
}

inline void deallocate(lanes &of, void *pointer, void *stream) noexcept
{
    if (pointer) of.deallocate(pointer, static_cast<cudaStream_t>(stream));
}

} // namespace rmm_detail

#if WEIR_RMM_DERIVES

class rmm_resource final : public rmm::mr::device_memory_resource
{
  public:
    /** Of the current device, unless one is named. */
    explicit rmm_resource(int device = WEIR_DEVICE_CURRENT)
        : lanes_(&rmm_detail::lanes::of(rmm_detail::device_or_current(device)))
    {
    }

  private:
    void *do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
    {
        return rmm_detail::allocate(*lanes_, bytes, rmm_detail::ALIGNMENT, stream.value());
    }

    void do_deallocate(void *pointer, std::size_t, rmm::cuda_stream_view stream) noexcept override
    {
        rmm_detail::deallocate(*lanes_, pointer, stream.value());
    }

    [[nodiscard]] bool do_is_equal(const rmm::mr::device_memory_resource &other) const noexcept override
    {
        const auto *resource = dynamic_cast<const rmm_resource *>(&other);
        return resource != nullptr && resource->lanes_ == lanes_;
    }

    rmm_detail::lanes *lanes_; /* the device's */
};

#else

class rmm_resource final
{
  public:
    /** Of the current device, unless one is named. */
    explicit rmm_resource(int device = WEIR_DEVICE_CURRENT)
        : lanes_(&rmm_detail::lanes::of(rmm_detail::device_or_current(device)))
    {
    }

    [[nodiscard]] void *allocate(cuda::stream_ref stream, std::size_t bytes,
                                 std::size_t alignment = rmm_detail::ALIGNMENT)
    {
        return rmm_detail::allocate(*lanes_, bytes, alignment, stream.get());
    }

    void deallocate(cuda::stream_ref stream, void *pointer, std::size_t, std::size_t = rmm_detail::ALIGNMENT) noexcept
    {
        rmm_detail::deallocate(*lanes_, pointer, stream.get());
    }

    /** For any stream at once: waits for what the default stream still does with memory that it had before. */
    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t alignment = rmm_detail::ALIGNMENT)
    {
        const weir_stream stream = lanes_->default_stream();
        void *pointer = rmm_detail::allocate(*lanes_, bytes, alignment, cudaStreamLegacy);
        const weir_status status = weir_stream_synchronize(stream);
        if (status != WEIR_OK) (void)!weir_free(pointer);
        rmm_detail::check(status);
        return pointer;
    }

    /** All work on it must be over, as RMM has it. */
    void deallocate_sync(void *pointer, std::size_t, std::size_t = rmm_detail::ALIGNMENT) noexcept
    {
        (void)!weir_free(pointer);
    }

    [[nodiscard]] bool operator==(const rmm_resource &other) const noexcept
    {
        return lanes_ == other.lanes_;
    }

    [[nodiscard]] bool operator!=(const rmm_resource &other) const noexcept
    {
        return !(*this == other);
    }

    friend constexpr void get_property(const rmm_resource &, cuda::mr::device_accessible) noexcept {}

  private:
    rmm_detail::lanes *lanes_; /* the device's */
};

#endif

} // namespace
} // namespace weir

#endif
