/*
 * symbols: parts of PyTorch, found by name in the libraries that the process has loaded.
 */
#ifndef WEIR_ADAPTERS_TORCH_SYMBOLS_H
#define WEIR_ADAPTERS_TORCH_SYMBOLS_H

#include <cstddef>
#include <dlfcn.h>

constexpr const char *WA_TORCH_BASE = "libc10.so", *WA_TORCH_CORE = "libc10_cuda.so",
                     *WA_TORCH_WHOLE = "libtorch_cuda.so";

/* CUDAPluggableAllocator, and its functions, as the linker knows them. */
#define WA_TORCH_PLUGGABLE "5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"
#define WA_TORCH_PLUGGABLE_TABLE "_ZTVN" WA_TORCH_PLUGGABLE "E"
#define WA_TORCH_METHOD(name) "_ZN" WA_TORCH_PLUGGABLE name
#define WA_TORCH_CONST_METHOD(name) "_ZNK" WA_TORCH_PLUGGABLE name

/* A table of virtual functions begins with the offset to the top of the object, and its type. */
constexpr size_t WA_TABLE_HEAD = 2;

/* An address, as a pointer to whatever stands there. */
class wa_symbol
{
    void *address_;

  public:
    explicit wa_symbol(void *address) : address_(address) {}

    template <typename Thing> operator Thing *() const
    {
        return reinterpret_cast<Thing *>(address_);
    }
};

/* NULL: there is none. In a library that is not loaded under that name it is looked for in all. */
inline wa_symbol wa_torch_symbol(const char *library, const char *symbol)
{
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    void *found = dlsym(handle ? handle : RTLD_DEFAULT, symbol);
    if (handle) dlclose(handle); /* PyTorch keeps it loaded */
    return wa_symbol(found);
}

#endif
