/*
 * symbols: parts of PyTorch, found by name in the libraries that the process has loaded.
 */
#ifndef WEIR_ADAPTERS_TORCH_SYMBOLS_H
#define WEIR_ADAPTERS_TORCH_SYMBOLS_H

#include <cstddef>
#include <dlfcn.h>

constexpr const char *WA_TORCH_CORE = "libc10_cuda.so", *WA_TORCH_WHOLE = "libtorch_cuda.so";

/* CUDAPluggableAllocator, mangled: the class, and a name with its parameters in it. */
#define WA_ALLOCATOR "5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"
#define WA_ALLOCATOR_METHOD(name) "_ZN" WA_ALLOCATOR name

/* A table of virtual functions begins with the offset to the top of the object, and its type. */
constexpr size_t WA_TABLE_HEAD = 2;

/* NULL: there is none. In a library that is not loaded under that name it is looked for in all. */
inline void *wa_torch_symbol(const char *library, const char *symbol)
{
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    void *found = dlsym(handle ? handle : RTLD_DEFAULT, symbol);
    if (handle) dlclose(handle); /* PyTorch keeps it loaded */
    return found;
}

/* A method that takes a c10::DeviceIndex, which was an int in PyTorch 2.2 and before. */
inline void *wa_allocator_method(const char *name, const char *before)
{
    void *found = wa_torch_symbol(WA_TORCH_WHOLE, name);
    return found ? found : wa_torch_symbol(WA_TORCH_WHOLE, before);
}

#endif
