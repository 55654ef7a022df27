/* Allocators of host memory, which show what a malloc costs on this machine. */
#include "peers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct library {
    void *(*alloc)(size_t);
    void (*release)(void *);
} library;

/* The loader's error text, with the remedy where a library needs more static thread-local storage than is kept free. */
static const char *why_not(void)
{
    static char text[512];
    const char *said = dlerror();
    if (!said || !strstr(said, "static TLS")) return said;
    snprintf(text, sizeof text, "%s; set GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384", said);
    return text;
}

static const char *load(library *l, const char *file, const char *alloc, const char *release)
{
    void *object = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void *a = object ? dlsym(object, alloc) : NULL, *r = object ? dlsym(object, release) : NULL;
    if (!a || !r) return why_not();
    memcpy(&l->alloc, &a, sizeof a); /* ISO C has no cast from void * to a function pointer */
    memcpy(&l->release, &r, sizeof r);
    return NULL;
}

#define HOST_PEER(title, opener, library)                                                                              \
    static void *library##_alloc(size_t bytes, uint64_t stream)                                                        \
    {                                                                                                                  \
        (void)stream;                                                                                                  \
        return library.alloc(bytes);                                                                                   \
    }                                                                                                                  \
    static void library##_release(void *pointer, uint64_t stream)                                                      \
    {                                                                                                                  \
        (void)stream;                                                                                                  \
        library.release(pointer);                                                                                      \
    }                                                                                                                  \
    const bench_peer peer_##library = { .version = BENCH_PEER_VERSION,                                                 \
                                        .name = title,                                                                 \
                                        .open = opener,                                                                \
                                        .alloc = library##_alloc,                                                      \
                                        .release = library##_release };

static const library libc = { malloc, free };
static library mimalloc, jemalloc;

static const char *open_mimalloc(void)
{
    return load(&mimalloc, "libmimalloc.so.2", "mi_malloc", "mi_free");
}

static const char *open_jemalloc(void)
{
    return load(&jemalloc, "libjemalloc.so.2", "malloc", "free");
}

HOST_PEER("malloc", NULL, libc)
HOST_PEER("mimalloc", open_mimalloc, mimalloc)
HOST_PEER("jemalloc", open_jemalloc, jemalloc)
