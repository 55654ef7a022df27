/* A stand-in for RMM's header of the same name, before 26.06: what weir/rmm.hpp uses of it. */
#ifndef STANDIN_RMM_DEVICE_MEMORY_RESOURCE_HPP
#define STANDIN_RMM_DEVICE_MEMORY_RESOURCE_HPP

#include <cstddef>

namespace rmm
{

class cuda_stream_view
{
  public:
    explicit cuda_stream_view(void *stream) : stream_(stream) {}
    void *value() const noexcept
    {
        return stream_;
    }

  private:
    void *stream_;
};

namespace mr
{

class device_memory_resource
{
  public:
    virtual ~device_memory_resource() = default;

    void *allocate(std::size_t bytes, cuda_stream_view stream)
    {
        return do_allocate(bytes, stream);
    }

    void deallocate(void *pointer, std::size_t bytes, cuda_stream_view stream)
    {
        do_deallocate(pointer, bytes, stream);
    }

    bool is_equal(const device_memory_resource &other) const noexcept
    {
        return do_is_equal(other);
    }

  private:
    virtual void *do_allocate(std::size_t bytes, cuda_stream_view stream) = 0;
    virtual void do_deallocate(void *pointer, std::size_t bytes, cuda_stream_view stream) = 0;
    virtual bool do_is_equal(const device_memory_resource &other) const noexcept
    {
        return this == &other;
    }
};

} // namespace mr
} // namespace rmm

#endif
