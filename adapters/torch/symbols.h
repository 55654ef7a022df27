/*
 * symbols: parts of PyTorch, found by name in the libraries that the process has loaded.
 */
#ifndef WEIR_ADAPTERS_TORCH_SYMBOLS_H
#define WEIR_ADAPTERS_TORCH_SYMBOLS_H

#include <cstddef>
#include <dlfcn.h>

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

#endif
