#include "pluggable.h"

#include "standin/torch_cuda.h"

#include <cstring>
#include <functional>
#include <new>
#include <stdexcept>
#include <sys/types.h>
#include <utility>

using mempool_id = std::pair<unsigned long long, unsigned long long>;
using stream_filter = std::function<bool(void *)>;

extern "C" {
void *weir_torch_alloc(ssize_t size, int device, void *stream);
void *weir_torch_alloc_segment(ssize_t size, int device, void *stream);
void weir_torch_free_segment(void *pointer, ssize_t size, int device, void *stream);
void weir_torch_free(void *pointer, ssize_t size, int device, void *stream);
void weir_torch_init(int device_count);
void weir_torch_reset();
void weir_torch_memory_fraction(double fraction, int device);
void *weir_torch_base_alloc(void *pointer, size_t *size);
void weir_torch_record_stream(void *pointer, void *stream);
void weir_torch_begin_allocate_to_pool(int device, mempool_id id, stream_filter filter);
void weir_torch_end_allocate_to_pool(int device, mempool_id id);
void weir_torch_release_pool(int device, mempool_id id);
bool weir_torch_answer(int cuda);
void weir_torch_profile();
}

using torch::cuda::CUDAPluggableAllocator::make;
using namespace c10::cuda::CUDACachingAllocator;

namespace
{

template <typename Function> const char *told(Function function)
{
    static thread_local std::string text;
    text.clear();
    try {
        function();
    } catch (const c10::OutOfMemoryError &e) {
        text = std::string("OutOfMemoryError: ") + e.what();
    } catch (const std::bad_alloc &e) {
        text = std::string("bad_alloc: ") + e.what();
    } catch (const std::exception &e) {
        text = std::string("exception: ") + e.what();
    }
    return text.c_str();
}

/* A filter with state, so that a lost copy shows. */
struct counted {
    pluggable_filter filter;
    void *argument;
    int *copies;

    counted(pluggable_filter f, void *a, int *c) : filter(f), argument(a), copies(c)
    {
        ++*copies;
    }
    counted(const counted &other) : counted(other.filter, other.argument, other.copies) {}
    counted &operator=(const counted &) = delete;
    ~counted()
    {
        --*copies;
    }
    bool operator()(void *stream) const
    {
        return filter(argument, stream);
    }
};

} // namespace

const char *pluggable_alloc(size_t size, int device, void *stream, void **out)
{
    return told([&] { *out = weir_torch_alloc(static_cast<ssize_t>(size), device, stream); });
}

void *pluggable_alloc_segment(size_t size, int device, void *stream)
{
    return weir_torch_alloc_segment(static_cast<ssize_t>(size), device, stream);
}

void pluggable_free_segment(void *pointer, size_t size, int device, void *stream)
{
    weir_torch_free_segment(pointer, static_cast<ssize_t>(size), device, stream);
}

void pluggable_free(void *pointer, size_t size, int device, void *stream)
{
    weir_torch_free(pointer, static_cast<ssize_t>(size), device, stream);
}

const char *pluggable_init(int device_count)
{
    return told([&] { weir_torch_init(device_count); });
}

const char *pluggable_reset(void)
{
    return told([] { weir_torch_reset(); });
}

const char *pluggable_memory_fraction(double fraction, int device)
{
    return told([&] { weir_torch_memory_fraction(fraction, device); });
}

const char *pluggable_base_alloc(void *pointer, void **base, size_t *size)
{
    return told([&] { *base = weir_torch_base_alloc(pointer, size); });
}

const char *pluggable_record_stream(void *pointer, void *stream)
{
    return told([&] { weir_torch_record_stream(pointer, stream); });
}

const char *pluggable_begin_allocate_to_pool(int device, unsigned long long capture, unsigned long long user,
                                             pluggable_filter filter, void *argument, int *copies)
{
    return told(
        [&] { weir_torch_begin_allocate_to_pool(device, { capture, user }, counted(filter, argument, copies)); });
}

const char *pluggable_end_allocate_to_pool(int device, unsigned long long capture, unsigned long long user)
{
    return told([&] { weir_torch_end_allocate_to_pool(device, { capture, user }); });
}

void pluggable_release_pool(int device, unsigned long long capture, unsigned long long user)
{
    weir_torch_release_pool(device, { capture, user });
}

void pluggable_become_current(pluggable_kind kind)
{
    delete change(kind == PLUGGABLE_NONE ? nullptr
                                         : make(kind == PLUGGABLE_DERIVED, weir_torch_alloc, weir_torch_free));
    c10::SetAllocator(c10::DeviceType::CUDA, torch::cuda::CUDAPluggableAllocator::torchs_own(), 0);
}

bool pluggable_answer(int cuda)
{
    return weir_torch_answer(cuda);
}

const char *pluggable_cache_info(int device, size_t *largest)
{
    return told([&] { get()->cacheInfo(static_cast<signed char>(device), largest); });
}

int pluggable_copy(int device, int from_device, bool reachable)
{
    return get()->memcpyAsync(nullptr, device, nullptr, from_device, 1, nullptr, reachable);
}

const char *pluggable_get_memory_fraction(int device, double *fraction)
{
    return told([&] { *fraction = get()->getMemoryFraction(static_cast<signed char>(device)); });
}

bool pluggable_is_registered(void)
{
    return static_cast<void *>(c10::GetAllocator(c10::DeviceType::CUDA)) == get();
}

pluggable_told pluggable_listen(bool on)
{
    weir_torch_profile();
    const c10::told told = c10::listen(on);
    return { told.times, told.memory, told.bytes, told.allocated, told.reserved, told.device.index };
}

const char *pluggable_attach_observer(pluggable_observer observer, void *argument)
{
    return told([&] {
        get()->attachOutOfMemoryObserver([=](int64_t device, size_t bytes, size_t total, size_t free) {
            observer(argument, static_cast<int>(device), bytes, total, free);
        });
    });
}

const char *pluggable_record_history(bool enabled, size_t events, bool stacks, bool clear)
{
    using c10::CachingDeviceAllocator::RecordContext;
    const RecordContext when = stacks ? RecordContext::ALL : RecordContext::NEVER;
    return told([&] { get()->recordHistory(enabled, nullptr, events, when, clear, { "oom" }); });
}

const char *pluggable_snapshot(unsigned long long user, bool traces)
{
    static thread_local std::string of;
    const char *failed = told([&] { of = get()->snapshot({ 0, user }, traces).of; });
    return *failed ? failed : of.c_str();
}

const char *pluggable_attach_tracker(pluggable_tracker tracker, void *argument)
{
    return told([&] { get()->attachAllocatorTraceTracker(make_tracker(tracker, argument)); });
}

void pluggable_set_current(int device, void *stream)
{
    c10::cuda::set_current(static_cast<signed char>(device), static_cast<CUstream_st *>(stream));
}

void pluggable_put_off(void (*what)(int device), int device)
{
    c10::cuda::put_off(what, device);
}

/* Whether PyTorch will recognise the block as its allocator's. */
static bool is_standard(const c10::DataPtr &block, int device)
{
    return block.context.get_deleter() == get()->raw_deleter() && block.context.get() == block.data &&
           block.device.type == 1 && block.device.index == device;
}

const char *pluggable_allocate(size_t size, int device, void **out)
{
    return told([&] {
        c10::DataPtr block = get()->allocate(size);
        if (!is_standard(block, device)) throw std::logic_error("not as PyTorch's");
        *out = block.context.release();
    });
}

const char *pluggable_raw_alloc(size_t size, void **out)
{
    return told([&] { *out = get()->raw_alloc(size); });
}

const char *pluggable_raw_alloc_with_stream(size_t size, void *stream, void **out)
{
    return told([&] { *out = get()->raw_alloc_with_stream(size, static_cast<CUstream_st *>(stream)); });
}

const char *pluggable_delete(void *pointer)
{
    return told([&] { get()->raw_delete(pointer); });
}

void pluggable_drop(void *pointer)
{
    get()->raw_deleter()(pointer);
}

struct pluggable_state {
    std::shared_ptr<AllocatorState> state;
};

const char *pluggable_get_checkpoint(int device, unsigned long long capture, unsigned long long user,
                                     pluggable_state **out)
{
    return told([&] {
        *out = new pluggable_state{ get()->getCheckpointState(static_cast<signed char>(device), { capture, user }) };
    });
}

void pluggable_end_checkpoint(pluggable_state *checkpoint)
{
    delete checkpoint;
}

const char *pluggable_set_checkpoint(int device, const pluggable_state *checkpoint, pluggable_change *out)
{
    return told([&] {
        CheckpointDelta delta = get()->setCheckpointPoolState(static_cast<signed char>(device), checkpoint->state);
        *out = {};
        for (void *block : delta.ptrs_freed) out->freed[out->freed_count++] = block;
        for (c10::DataPtr &block : delta.dataptrs_allocd) {
            if (!is_standard(block, device)) throw std::logic_error("not as PyTorch's");
            out->restored[out->restored_count++] = block.context.release();
        }
    });
}

const char *pluggable_share(void *pointer, char handle[PLUGGABLE_HANDLE], ptrdiff_t *offset)
{
    return told([&] {
        const ShareableHandle made = get()->shareIpcHandle(pointer);
        if (made.handle.size() >= PLUGGABLE_HANDLE) throw std::logic_error("too long for this test");
        std::memcpy(handle, made.handle.c_str(), made.handle.size() + 1);
        *offset = made.offset;
    });
}

struct pluggable_shared {
    std::shared_ptr<void> memory;
};

const char *pluggable_open_shared(const char *handle, ptrdiff_t offset, void **pointer, pluggable_shared **out)
{
    return told([&] {
        *out = new pluggable_shared{ get()->getIpcDevPtr(handle) };
        *pointer = static_cast<char *>((*out)->memory.get()) + offset;
    });
}

void pluggable_end_shared(pluggable_shared *shared)
{
    delete shared;
}

void pluggable_set_collect(void (*what)(void *), void *argument)
{
    torch::set_collect(what, argument);
}

void pluggable_throw(void *)
{
    throw std::runtime_error("an event could not be asked");
}

namespace
{

/* The functions of the test, which know nothing of C++. */
pluggable_allocate_function allocate_of_test;
pluggable_free_function free_of_test;

void *allocate_for_test(ssize_t size, int device, void *stream)
{
    void *made = allocate_of_test(static_cast<size_t>(size), device, stream);
    if (made == allocate_of_test) throw std::runtime_error("the allocator has thrown");
    if (made == PLUGGABLE_BAD_ALLOC) throw std::bad_alloc();
    return made;
}

void free_for_test(void *pointer, ssize_t, int, void *)
{
    free_of_test(pointer);
}

} // namespace

void *pluggable_make_allocator(bool derived, pluggable_allocate_function allocate, pluggable_free_function free)
{
    allocate_of_test = allocate;
    free_of_test = free;
    return make(derived, allocate_for_test, free_for_test);
}

void pluggable_end_allocator(void *allocator)
{
    delete static_cast<torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator *>(allocator);
}

bool pluggable_is_enabled(void)
{
    return get()->isEnabled();
}

int pluggable_errors_alive(void)
{
    return c10::errors_alive();
}
