/* The vendor's own create functions, as a plain program calls them: one handle per thread, with the library's own
 * workspace. weir finds the libraries, but makes no handle here. */
#include "peers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    weir_handle_kind kind;
    const char *name;
    int (*create)(void **handle); /* NULL: not found yet */
} rows[] = { { WEIR_CUBLAS, "cublasCreate_v2", NULL },
             { WEIR_CUSPARSE, "cusparseCreate", NULL },
             { WEIR_CUSOLVER_DN, "cusolverDnCreate", NULL },
             { WEIR_CUDNN, "cudnnCreate", NULL } };
enum { ROWS = sizeof rows / sizeof rows[0] };

static void find(size_t row)
{
    weir_handle_kind_info info = { .size = sizeof info };
    if (rows[row].create || weir_handle_kind_info_get(rows[row].kind, &info) != WEIR_OK) return;
    void *library = dlopen(info.library, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, rows[row].name) : NULL;
    memcpy(&rows[row].create, &symbol, sizeof symbol);
}

static void *create_handle(weir_handle_kind kind, uint64_t stream)
{
    void *handle = NULL;
    size_t i = 0;
    (void)stream;
    while (i < ROWS && rows[i].kind != kind) i++;
    if (i == ROWS) return NULL;
    find(i);
    if (!rows[i].create) return NULL;
    const int code = rows[i].create(&handle);
    if (code == 0) return handle;
    fprintf(stderr, "weir-bench: %s: code %d\n", rows[i].name, code);
    exit(1);
}

static const char *open_raw(void)
{
    return peer_weir.open();
}

static uint64_t new_stream(void)
{
    return peer_weir.stream();
}

static void enter(uint64_t stream)
{
    peer_weir.enter(stream);
}

static uint64_t device_memory(void)
{
    return peer_weir.device_memory();
}

const bench_peer peer_raw = { .version = BENCH_PEER_VERSION,
                              .name = "library default",
                              .open = open_raw,
                              .stream = new_stream,
                              .enter = enter,
                              .device_memory = device_memory,
                              .handle = create_handle };
