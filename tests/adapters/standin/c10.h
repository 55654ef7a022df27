/*
 * A stand-in for PyTorch's exceptions: c10::Error and its OutOfMemoryError, with the constructor that PyTorch 2.11
 * exports, and with members that a copy would carry along; for its profiler, which notes what it is told; and for the
 * allocators that are registered for kinds of devices. Built as libc10.so and libc10_cuda.so.
 */
#ifndef WEIR_TESTS_ADAPTERS_C10_H
#define WEIR_TESTS_ADAPTERS_C10_H

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#define STANDIN_API __attribute__((visibility("default")))

namespace c10
{

struct SourceLocation {
    const char *function;
    const char *file;
    uint32_t line;
};

class STANDIN_API Error : public std::exception
{
  public:
    Error(SourceLocation where, std::string message);
    ~Error() override;
    const char *what() const noexcept override;

  private:
    std::string message_, what_;
    std::vector<std::string> context_;
};

class STANDIN_API OutOfMemoryError : public Error
{
    using Error::Error;
};

enum class DeviceType : int8_t { CPU, CUDA };

struct Device {
    signed char type, index;
};

class Allocator;
STANDIN_API void SetAllocator(DeviceType type, Allocator *allocator, uint8_t priority);
STANDIN_API Allocator *GetAllocator(const DeviceType &type);

STANDIN_API bool memoryProfilingEnabled();
STANDIN_API void reportMemoryUsageToProfiler(void *memory, int64_t bytes, size_t allocated, size_t reserved,
                                             Device device);
STANDIN_API void reportOutOfMemoryToProfiler(int64_t bytes, size_t allocated, size_t reserved, Device device);
/* What the profiler was told last; no memory: that it has run out. */
struct told {
    int times;
    void *memory;
    int64_t bytes;
    size_t allocated, reserved;
    Device device;
};
STANDIN_API told listen(bool on); /* returns what was told before, and forgets it */

/* How many errors have not been destroyed. */
STANDIN_API int errors_alive();

/* Defined in libc10_cuda.so, so that the class lives there. */
STANDIN_API void throw_out_of_memory(const std::string &message);

} // namespace c10

#endif
