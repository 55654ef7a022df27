#include "pool/page_locked.h"

#include "backend/backend.h"
#include "base/numa.h"
#include "base/worker.h"
#include "pool/policy.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- faulting in ------------------------------------------------------------------------------------------------- */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { HELPERS_MAX = 64 };
static const size_t SLICE_MIN = (size_t)64 << 20; /* faulting in less takes about as long as starting a thread for it */

typedef struct slice {
    char *base;
    size_t bytes;
    int error;
    pthread_t helper;
    bool helped;
} slice;

/* Asked to populate pages, the kernel reports a lack of memory by an error. Where it is too old for that, they are
 * touched, and it sends a signal. */
static void *fault_in(void *argument)
{
    slice *s = argument;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int result;
    do result = madvise(s->base, s->bytes, MADV_POPULATE_WRITE);
    while (result != 0 && (errno == EINTR || errno == EAGAIN));
    s->error = result == 0 ? 0 : errno;
    if (s->error != EINVAL) return NULL;
    for (size_t at = 0; at < s->bytes; at += page) *(volatile char *)(s->base + at) = 0;
    s->error = 0;
    return NULL;
}

static size_t usable_processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (size_t)CPU_COUNT(&set) : 1;
}

static size_t count_slices(size_t bytes)
{
    size_t count = bytes / SLICE_MIN;
    if (count > HELPERS_MAX) count = HELPERS_MAX;
    if (count > 1 && count > usable_processors()) count = usable_processors();
    return count ? count : 1;
}

static weir_status fault_in_all(void *base, size_t bytes)
{
    slice slices[HELPERS_MAX];
    const size_t count = count_slices(bytes);
    const size_t each = bytes / WR_SEGMENT_UNIT / count * WR_SEGMENT_UNIT;
    for (size_t i = 0; i < count; i++)
        slices[i] = (slice){ .base = (char *)base + i * each, .bytes = i + 1 < count ? each : bytes - i * each };
    for (size_t i = 1; i < count; i++) slices[i].helped = wr_worker_start(&slices[i].helper, fault_in, &slices[i]) == 0;
    int error = 0; /* slices without a thread are done here */
    for (size_t i = 0; i < count; i++)
        if (!slices[i].helped) (void)fault_in(&slices[i]);
    for (size_t i = 0; i < count; i++) {
        if (slices[i].helped) pthread_join(slices[i].helper, NULL);
        if (error == 0) error = slices[i].error;
    }
    if (error == 0) return WEIR_OK;
    return wr_fail_native(WEIR_ERR_OUT_OF_MEMORY, "linux", error, "faulting in %zu bytes of host memory: %s", bytes,
                          strerror(error));
}

/* ---- mapping ----------------------------------------------------------------------------------------------------- */

static weir_status map_aligned(size_t bytes, void **base)
{
    const size_t wide = bytes + WR_SEGMENT_UNIT;
    char *start = mmap(NULL, wide, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return wr_fail_native(WEIR_ERR_OUT_OF_MEMORY, "linux", errno, "mmap of %zu bytes of host memory: %s", wide,
                              strerror(errno));
    const size_t before = -(uintptr_t)start % WR_SEGMENT_UNIT;
    if (before) munmap(start, before);
    munmap(start + before + bytes, WR_SEGMENT_UNIT - before);
    *base = start + before;
    return WEIR_OK;
}

/* Hints that a kernel may refuse. Huge pages are registered faster. A child of fork that writes to such memory, or
 * makes the parent's next write copy the page, would take the page from under the device. */
static void advise(const wr_range *range)
{
    (void)madvise(range->base, range->bytes, MADV_HUGEPAGE);
    (void)madvise(range->base, range->bytes, MADV_DONTFORK);
}

static weir_status take_mapped(const weir_backend *backend, int device, int node, wr_range *range)
{
    WR_TRY(map_aligned(range->bytes, &range->base));
    advise(range);
    weir_status status = node == WR_PAGE_LOCKED_ANYWHERE ? WEIR_OK : wr_numa_bind(range->base, range->bytes, node);
    if (status == WEIR_OK) status = fault_in_all(range->base, range->bytes);
    if (status == WEIR_OK) status = wr_driver(backend, host_register, device, range->base, range->bytes);
    if (status != WEIR_OK) munmap(range->base, range->bytes);
    return status;
}

/* ---- where the driver registers no host memory ------------------------------------------------------------------- */

/* The driver aligns to a page, but the address map needs more, so the segment lies somewhere inside what is taken. The
 * range's chunk says where that begins. */
static weir_status take_from_driver(const weir_backend *backend, int device, int node, wr_range *range)
{
    void *start = NULL;
    WR_ENSURE(node == WR_PAGE_LOCKED_ANYWHERE, WEIR_ERR_NOT_SUPPORTED,
              "back end %s cannot register host memory, so weir cannot place it on NUMA node %d; use WEIR_NUMA_ANY",
              backend->name, node);
    WR_TRY(wr_driver(backend, pinned_alloc, device, range->bytes + WR_SEGMENT_UNIT, &start));
    range->chunk = (uintptr_t)start;
    range->base = (char *)start + -(uintptr_t)start % WR_SEGMENT_UNIT;
    return WEIR_OK;
}

weir_status wr_page_locked_take(const weir_backend *backend, int device, int node, wr_range *range)
{
    wr_range made = { .bytes = range->bytes };
    const bool registers = backend->host_register != NULL;
    weir_status status = registers ? take_mapped(backend, device, node, &made) : WEIR_ERR_NOT_SUPPORTED;
    /* Some devices refuse what their driver has. */
    if (status == WEIR_ERR_NOT_SUPPORTED && (!registers || node == WR_PAGE_LOCKED_ANYWHERE))
        status = take_from_driver(backend, device, node, &made);
    if (status == WEIR_OK) *range = made;
    /* To the ladder a lack is a lack; the text says of what. */
    return status == WEIR_ERR_OUT_OF_HOST_MEMORY ? WEIR_ERR_OUT_OF_MEMORY : status;
}

weir_status wr_page_locked_give(const weir_backend *backend, int device, const wr_range *range)
{
    if (range->chunk != 0)
        return wr_driver(backend, pinned_free, device, (void *)(uintptr_t)range->chunk, range->bytes + WR_SEGMENT_UNIT);
    WR_TRY(wr_driver(backend, host_unregister, device, range->base, range->bytes));
    munmap(range->base, range->bytes);
    return WEIR_OK;
}

void wr_page_locked_abandon(const wr_range *range)
{
    if (range->chunk == 0) munmap(range->base, range->bytes);
}
