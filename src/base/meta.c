#include "base/meta.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LEAST_ITEMS = 16 }; /* of an array that grows */

static _Atomic uint64_t live;
static _Atomic uint64_t failing; /* the allocation to fail, counted from the next; 0: none */

static bool must_fail(void)
{
    uint64_t left = atomic_load_explicit(&failing, memory_order_relaxed);
    while (left != 0) {
        if (atomic_compare_exchange_weak_explicit(&failing, &left, left - 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            return left == 1;
    }
    return false;
}

static void count_one(void)
{
    atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
}

static void uncount_one(void)
{
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
}

static weir_status refuse(size_t bytes, const char *what)
{
    return wr_fail(WEIR_ERR_OUT_OF_HOST_MEMORY,
                   "out of host memory: %zu bytes for %s; free memory of the process or raise its limits", bytes, what);
}

/* malloc may return NULL for 0 bytes, which would look like a failure. */
static size_t at_least_one(size_t bytes)
{
    return bytes != 0 ? bytes : 1;
}

static void *allocate(size_t bytes)
{
    void *memory = must_fail() ? NULL : calloc(1, at_least_one(bytes));
    if (memory != NULL) count_one();
    return memory;
}

weir_status wr_meta_alloc(size_t bytes, const char *what, void **out)
{
    void *memory = allocate(bytes);
    if (memory == NULL) return refuse(bytes, what);
    *out = memory;
    return WEIR_OK;
}

weir_status wr_meta_resize(void **memory, size_t bytes, const char *what)
{
    void *resized = must_fail() ? NULL : realloc(*memory, at_least_one(bytes));
    if (resized == NULL) return refuse(bytes, what);
    if (*memory == NULL) count_one();
    *memory = resized;
    return WEIR_OK;
}

weir_status wr_meta_grow(void *items, uint32_t *capacity, size_t need, size_t item_bytes, const char *what)
{
    if (need <= *capacity) return WEIR_OK;
    WR_ENSURE(need <= UINT32_MAX / 2, WEIR_ERR_OUT_OF_HOST_MEMORY, "%zu items are too many for %s", need, what);
    uint32_t larger = *capacity ? *capacity : LEAST_ITEMS;
    while (larger < need) larger *= 2;
    void *memory; /* the pointer is copied by memcpy, because its type is unknown here */
    memcpy(&memory, items, sizeof memory);
    WR_TRY(wr_meta_resize(&memory, larger * item_bytes, what));
    memset((char *)memory + *capacity * item_bytes, 0, (larger - *capacity) * item_bytes);
    memcpy(items, &memory, sizeof memory);
    *capacity = larger;
    return WEIR_OK;
}

void wr_meta_free(void *memory)
{
    if (memory == NULL) return;
    uncount_one();
    free(memory);
}

weir_status wr_meta_strdup(const char *text, char **out)
{
    size_t bytes = strlen(text) + 1;
    char *copy = allocate(bytes);
    if (copy == NULL) return refuse(bytes, "a string");
    memcpy(copy, text, bytes);
    *out = copy;
    return WEIR_OK;
}

weir_status wr_meta_reserve(size_t bytes, const char *what, void **out)
{
    errno = ENOMEM; /* what an injected failure reports */
    void *memory = must_fail()
                       ? MAP_FAILED
                       : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return wr_fail(
            WEIR_ERR_OUT_OF_HOST_MEMORY,
            "cannot reserve %zu bytes of address space for %s: %s; raise the process's limits (ulimit -v, -d)", bytes,
            what, strerror(errno));
    count_one();
    *out = memory;
    return WEIR_OK;
}

void wr_meta_release(void *memory, size_t bytes)
{
    if (memory == NULL) return;
    uncount_one();
    munmap(memory, bytes);
}

void wr_meta_fail_nth(uint64_t nth)
{
    atomic_store_explicit(&failing, nth, memory_order_relaxed);
}

uint64_t wr_meta_live(void)
{
    return atomic_load_explicit(&live, memory_order_relaxed);
}
