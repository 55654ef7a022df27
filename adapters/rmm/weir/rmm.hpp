/**
 * @file rmm.hpp
 * @brief weir as a memory resource of RMM and of CCCL (cuda::mr), in one header; link -lweir.
 *
 *     weir::rmm_resource resource;                      // the current device's
 *     rmm::mr::set_current_device_resource(resource);   // RMM before 26.06: (&resource)
 *
 * With RMM 26.06 and later, or CCCL alone, it is a value that satisfies cuda::mr::resource; with earlier RMM, a class
 * derived from rmm::mr::device_memory_resource. Memory is stream-ordered by RMM's rules: work on the stream it was
 * allocated on may use it at once; after deallocate() it is reused once the work then queued on the stream named there
 * is over. Failures throw rmm::out_of_memory and rmm::bad_alloc (without RMM: std::bad_alloc) with weir's text.
 *
 * Streams may be destroyed at any time, because weir never learns of them. One of 32 streams of weir's stands for each,
 * and waits for it at every deallocation, which takes two driver calls besides two queries. An allocation takes two
 * more driver calls when the memory may come from another stream, usually none. Streams that share one of the 32 may
 * wait for each other. The default stream always exists and needs none of these calls. The device must be current, as
 * RMM requires.
 *
 * A captured stream gets no memory. What it frees becomes free the next time that it allocates or frees here without
 * being captured; if it is destroyed before that, when the library is closed.
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
#elif !__has_include(<cuda/memory_resource>)
#error "weir/rmm.hpp finds neither RMM nor CCCL: add one of them, CCCL 3.1 or later (CUDA 13.1), to the include path"
#else
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#if defined(CCCL_VERSION) && CCCL_VERSION < 3001000
#error "weir/rmm.hpp needs RMM, or CCCL 3.1 or later (CUDA 13.1): earlier ones have another cuda::mr::resource"
#endif
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

/* Parts of a program that were compiled with different default streams get different names, since their code
 * differs. */
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

/* Weir's alignment, whatever was asked for. */
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

/* A failure that is dealt with here must not be what the program's next cudaGetLastError() returns. */
inline bool failed(cudaError_t error)
{
    if (error != cudaSuccess) (void)cudaGetLastError();
    return error != cudaSuccess;
}

inline void check(cudaError_t error)
{
    if (failed(error)) throw bad_alloc(std::string("weir: ") + cudaGetErrorString(error));
}

/* The runtime takes a lock for each of its calls, which is 1.4 us on 16 threads; the driver takes none for these two
 * (H100, CUDA 13, 2026-11-26: 21 ns). NULL: the driver does not have it. */
template <typename Function> Function *driver_function(const char *name)
{
    void *found = nullptr;
#if CUDART_VERSION >= 12050
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault);
#else
    const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault);
#endif
    return failed(error) ? nullptr : reinterpret_cast<Function *>(found);
}

/* The driver refuses where the runtime has not made a context current yet, and then the runtime is asked. */
inline unsigned long long stream_id(cudaStream_t stream)
{
    static auto *const driver = driver_function<int(cudaStream_t, unsigned long long *)>("cuStreamGetId");
    unsigned long long id = 0;
    if (!driver || driver(stream, &id) != 0) check(cudaStreamGetId(stream, &id));
    return id;
}

inline bool is_capturing(cudaStream_t stream)
{
    static auto *const driver = driver_function<int(cudaStream_t, cudaStreamCaptureStatus *)>("cuStreamIsCapturing");
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (!driver || driver(stream, &status) != 0) check(cudaStreamIsCapturing(stream, &status));
    return status != cudaStreamCaptureStatusNone;
}

/*
 * lane: a stream of weir's that stands for streams of the program. So weir need not know those, and their owners may
 * destroy them while memory that was freed on them is cached. A lane waits for them, and carries no work of the
 * program. `lock` is never held while weir allocates or frees, which may call the program back.
 */
struct lane {
    std::mutex lock;
    weir_stream stream{};
    cudaStream_t native = nullptr;
    cudaEvent_t event = nullptr;
    std::uint64_t owner = 0;  /* the stream whose work is behind all of the lane's memory; 0: none */
    std::uint64_t queued = 0; /* weir_stream_queued() when the owner last waited for the lane */
};

/*
 * lanes: the lanes of a device. Lives until the process ends, because memory may be freed that late.
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
                "weir: the stream is being captured, and a graph needs memory of its own; allocate before the capture, "
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

    /* If the device cannot be made to wait for the stream, the host waits. */
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
            (void)failed(cudaStreamSynchronize(stream));
        }
        (void)!weir_free(pointer);
    }

  private:
    static constexpr std::size_t LANES = 32, REMEMBERED = 4096;

    explicit lanes(int device) : device_(device) {}

    /* Whether it is the device's default stream, whose handle is a number, not a pointer. In programs compiled for a
     * default stream per thread, NULL means the thread's. */
    static bool is_default(cudaStream_t stream)
    {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
        return stream == cudaStreamLegacy;
#else
        return stream == nullptr || stream == cudaStreamLegacy;
#endif
    }

    /* Never 0, and never that of a destroyed stream, unlike an address. A handle that means another stream in each
     * thread has another id in each. */
    static std::uint64_t id_of(cudaStream_t stream)
    {
        static std::atomic<std::uint64_t> threads{ 0 };
        static thread_local std::uint64_t thread = 0;
        if (stream == nullptr || stream == cudaStreamPerThread) {
            if (thread == 0) thread = ++threads;
            return 2 * thread;
        }
        return 2 * static_cast<std::uint64_t>(stream_id(stream)) + 1;
    }

    /* NULL means the thread's here: what names the device's stream does not come this far. */
    static bool captures(cudaStream_t stream)
    {
        return is_capturing(stream == nullptr ? cudaStreamPerThread : stream);
    }

    /* Each thread remembers the last one. A stream may have two lanes for a while, which are ordered like those of two
     * streams. */
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
        if (lanes_.size() == REMEMBERED) lanes_.clear(); /* most of the streams no longer exist */
        const auto found = lanes_.emplace(id, nullptr).first;
        if (!found->second) found->second = &lane_[next_++ % LANES];
        return *found->second;
    }

    /* The lane's stream, made anew after weir_close() along with its event, since the device may have been reset. */
    weir_stream open_locked(lane &lane)
    {
        void *native = nullptr;
        if (lane.stream.id != 0 && weir_stream_native(lane.stream, &native) == WEIR_OK) return lane.stream;
        if (lane.event) (void)failed(cudaEventDestroy(lane.event));
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

    /* Orders later work on the stream behind everything that the lane waits for, unless it is so already. To be called
     * after the allocation: then the lane already waits for the stream that freed the memory. */
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

    /* Makes the stream's lane wait for the stream's present work. */
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

    /* Frees the block once the work on `behind` is over. Recording the block's own stream does nothing; a pointer that
     * is not live is left to weir_free() to refuse. */
    static void free_behind(void *pointer, weir_stream behind)
    {
        const weir_status status = weir_record_stream(pointer, behind);
        if (status != WEIR_ERR_UNKNOWN_POINTER && status != WEIR_ERR_DOUBLE_FREE) check(status);
        (void)!weir_free(pointer);
    }

    /* What a captured stream frees. The stream cannot be waited for, and may have work from before the capture, so the
     * memory is freed the next time that the stream comes here without being captured, unless the library was closed
     * meanwhile, which freed everything. */
    struct withheld {
        std::uint64_t opened; /* the default stream's id, a different one each time the library is opened */
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
        } catch (...) { /* the block is lost: the host has no memory left */
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
    std::mutex lock_;                                 /* guards what follows */
    std::unordered_map<std::uint64_t, lane *> lanes_; /* by stream */
    std::size_t next_ = 0;
    std::unordered_map<std::uint64_t, withheld> withheld_; /* by stream */
    std::atomic<std::size_t> withheld_count_{ 0 };         /* read without the lock */
};

inline void *allocate(lanes &of, std::size_t bytes, std::size_t alignment, void *stream)
{
    if (alignment > ALIGNMENT)
        throw bad_alloc("weir: an alignment of " + std::to_string(alignment) +
                        " bytes was requested, but weir aligns to 512");
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
    /** For the current device, unless another is named. */
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
    /** For the current device, unless another is named. */
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

    /** Usable on any stream at once: waits for the default stream's work on memory that it had before. */
    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t alignment = rmm_detail::ALIGNMENT)
    {
        const weir_stream stream = lanes_->default_stream();
        void *pointer = rmm_detail::allocate(*lanes_, bytes, alignment, cudaStreamLegacy);
        const weir_status status = weir_stream_synchronize(stream);
        if (status != WEIR_OK) (void)!weir_free(pointer);
        rmm_detail::check(status);
        return pointer;
    }

    /** All work that uses the memory must be over, as RMM requires. */
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
