#include "torch/sources.h"

#include "torch/symbols.h"

#include <cstdio>
#include <exception>
#include <new>

namespace
{

/* CUDAPluggableAllocator's functions, of the class itself: no other class is taken. */
struct pluggable {
    void *const *table; /* of its virtual functions */
    void *(*malloc)(void *allocator, size_t bytes, signed char device, void *stream);
    void (*raw_delete)(void *allocator, void *memory);
};

const pluggable &theirs()
{
    static const pluggable found = {
        wa_torch_symbol(WA_TORCH_WHOLE, WA_TORCH_PLUGGABLE_TABLE),
        wa_torch_symbol(WA_TORCH_WHOLE, WA_TORCH_METHOD("6mallocEmaP11CUstream_st")),
        wa_torch_symbol(WA_TORCH_WHOLE, WA_TORCH_METHOD("10raw_deleteEPv")),
    };
    return found;
}

/* C calls these two, so they must not throw. */
weir_status take(void *allocator, size_t bytes, int device, void *stream, void **base)
{
    try {
        *base = theirs().malloc(allocator, bytes, static_cast<signed char>(device), stream);
        return *base ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
    } catch (const std::bad_alloc &) { /* RMM's is derived from it */
        return WEIR_ERR_OUT_OF_MEMORY;
    } catch (const std::exception &e) {
        std::fprintf(stderr, "weir: the allocator of a memory pool refused %zu bytes: %s\n", bytes, e.what());
        return WEIR_ERR_DRIVER;
    } catch (...) {
        return WEIR_ERR_DRIVER;
    }
}

weir_status give(void *allocator, void *base, size_t, int, void *)
{
    try {
        theirs().raw_delete(allocator, base);
        return WEIR_OK;
    } catch (...) {
        return WEIR_ERR_DRIVER;
    }
}

} // namespace

extern "C" bool weir_torch_is_source(const void *allocator)
{
    const pluggable &p = theirs();
    return allocator && p.table && p.malloc && p.raw_delete &&
           *static_cast<void *const *const *>(allocator) == p.table + WA_TABLE_HEAD;
}

extern "C" weir_segment_source wa_source_of(void *allocator)
{
    return { take, give, nullptr, allocator };
}
