/**
 * @file rmm.hpp
 * @brief weir as a memory resource of RMM and of CCCL (cuda::mr), in one header; link -lweir.
 *
 *     weir::rmm_resource resource;                      // the current device's
 *     rmm::mr::set_current_device_resource(resource);   // RMM before 26.06: (&resource)
 *
 * With RMM 26.06 and later, or CCCL alone, it is a value that satisfies cuda::mr::resource; with RMM before that, a class
 * derived from rmm::mr::device_memory_resource. Memory is stream-ordered as RMM says: it may be used at once by work on
 * the stream it was allocated on, and is freed on that stream whatever stream is named then, which must have been made to
 * wait for the others. Failures throw rmm::out_of_memory and rmm::bad_alloc (without RMM: std::bad_alloc) with weir's text.
 */
#ifndef WEIR_RMM_HPP
#define WEIR_RMM_HPP

#include <weir/weir.h>

#include <cstddef>
#include <new>
#include <string>
#include <utility>

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

inline void *allocate(int device, std::size_t bytes, std::size_t alignment, void *native)
{
    weir_stream stream{};
    void *pointer = nullptr;
    if (alignment > ALIGNMENT)
        throw bad_alloc("weir: an alignment of " + std::to_string(alignment) + " bytes was asked for; weir's is 512");
    check(weir_stream_from_native(device, native, &stream));
    check(weir_alloc_on(bytes, stream, &pointer));
    return pointer;
}

inline void deallocate(void *pointer) noexcept
{
    (void)!weir_free(pointer);
}

} // namespace rmm_detail

#if WEIR_RMM_DERIVES

class rmm_resource final : public rmm::mr::device_memory_resource
{
  public:
    /** Of the current device, unless one is named. */
    explicit rmm_resource(int device = WEIR_DEVICE_CURRENT) : device_(rmm_detail::device_or_current(device)) {}

  private:
    void *do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
    {
        return rmm_detail::allocate(device_, bytes, rmm_detail::ALIGNMENT, stream.value());
    }

    void do_deallocate(void *pointer, std::size_t, rmm::cuda_stream_view) noexcept override
    {
        rmm_detail::deallocate(pointer);
    }

    [[nodiscard]] bool do_is_equal(const rmm::mr::device_memory_resource &other) const noexcept override
    {
        const auto *resource = dynamic_cast<const rmm_resource *>(&other);
        return resource != nullptr && resource->device_ == device_;
    }

    int device_;
};

#else

class rmm_resource final
{
  public:
    /** Of the current device, unless one is named. */
    explicit rmm_resource(int device = WEIR_DEVICE_CURRENT) : device_(rmm_detail::device_or_current(device)) {}

    [[nodiscard]] void *allocate(cuda::stream_ref stream, std::size_t bytes,
                                 std::size_t alignment = rmm_detail::ALIGNMENT)
    {
        return rmm_detail::allocate(device_, bytes, alignment, stream.get());
    }

    void deallocate(cuda::stream_ref, void *pointer, std::size_t, std::size_t = rmm_detail::ALIGNMENT) noexcept
    {
        rmm_detail::deallocate(pointer);
    }

    /** For any stream at once: waits for what the default stream still does with memory that it had before. */
    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t alignment = rmm_detail::ALIGNMENT)
    {
        weir_stream stream{};
        void *pointer = rmm_detail::allocate(device_, bytes, alignment, nullptr);
        weir_status status = weir_stream_default(device_, &stream);
        if (status == WEIR_OK) status = weir_stream_synchronize(stream);
        if (status != WEIR_OK) rmm_detail::deallocate(pointer);
        rmm_detail::check(status);
        return pointer;
    }

    void deallocate_sync(void *pointer, std::size_t, std::size_t = rmm_detail::ALIGNMENT) noexcept
    {
        rmm_detail::deallocate(pointer);
    }

    [[nodiscard]] bool operator==(const rmm_resource &other) const noexcept
    {
        return device_ == other.device_;
    }

    [[nodiscard]] bool operator!=(const rmm_resource &other) const noexcept
    {
        return !(*this == other);
    }

    friend constexpr void get_property(const rmm_resource &, cuda::mr::device_accessible) noexcept {}

  private:
    int device_;
};

#endif

} // namespace weir

#endif
