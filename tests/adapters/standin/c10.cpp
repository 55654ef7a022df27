#include "c10.h"

#include <atomic>
#include <utility>

namespace
{

std::atomic<int> alive;

} // namespace

c10::Error::Error(SourceLocation where, std::string message)
    : message_(std::move(message)), what_(message_ + " (in " + where.function + ")")
{
    context_.push_back(where.file);
    alive++;
}

c10::Error::~Error()
{
    alive--;
}

const char *c10::Error::what() const noexcept
{
    return what_.c_str();
}

int c10::errors_alive()
{
    return alive;
}

static c10::Allocator *allocators[2];

void c10::SetAllocator(DeviceType type, Allocator *allocator, uint8_t)
{
    allocators[static_cast<int>(type)] = allocator;
}

c10::Allocator *c10::GetAllocator(const DeviceType &type)
{
    return allocators[static_cast<int>(type)];
}

static thread_local bool listening;
static thread_local c10::told heard;

bool c10::memoryProfilingEnabled()
{
    return listening;
}

void c10::reportMemoryUsageToProfiler(void *memory, int64_t bytes, size_t allocated, size_t reserved, Device device)
{
    heard = { heard.times + 1, memory, bytes, allocated, reserved, device };
}

void c10::reportOutOfMemoryToProfiler(int64_t bytes, size_t allocated, size_t reserved, Device device)
{
    heard = { heard.times + 1, nullptr, bytes, allocated, reserved, device };
}

c10::told c10::listen(bool on)
{
    listening = on;
    return std::exchange(heard, told{});
}
