#include "backend/host/host_internal.h"

/*
 * What driver calls cost on one NVIDIA H200 (driver 580.159, CUDA 13.0, 2026-11-20), in nanoseconds, with nothing else
 * running. Virtual memory was measured in bulk, 1 GiB in chunks of each size, and divided by the number of handles:
 *
 *   chunk    handles  create     map  set access   unmap  release    (microseconds, total)
 *   2 MiB        512    4924     987       14541    8849     5176
 *   8 MiB        128    1140      79        3264    2019     1614
 *   20 MiB        51     564      31        1554     769      976
 *   32 MiB        32     362      35         845     502      786
 *   128 MiB        8     136       9         321     171      700
 *   512 MiB        2      39       3         110      47      400
 *
 * cudaMalloc took 33 to 52 us and cudaFree 28 to 39 us from 512 B to 20 MiB (taken to grow with the size), 60 and 123
 * us for 256 MiB, 335 and 2118 us for 4 GiB; cudaHostAlloc 1.3 and 44.7 ms, cudaFreeHost 0.5 and 10 ms for 4 KiB and 64
 * MiB.
 */

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

typedef struct point {
    uint64_t bytes, nanoseconds;
} point;

static const point segment_alloc[] = {
    { 512, 33000 }, { 20 * MIB, 52000 }, { 256 * MIB, 60000 }, { 4096 * MIB, 335000 }
};
static const point segment_free[] = {
    { 512, 28000 }, { 20 * MIB, 39000 }, { 256 * MIB, 123000 }, { 4096 * MIB, 2118000 }
};
static const point pinned_alloc[] = { { 4 * KIB, 1300000 }, { 64 * MIB, 44700000 } };
static const point pinned_free[] = { { 4 * KIB, 500000 }, { 64 * MIB, 10000000 } };
static const point vm_create[] = { { 2 * MIB, 9617 },   { 8 * MIB, 8906 },    { 20 * MIB, 11059 },
                                   { 32 * MIB, 11313 }, { 128 * MIB, 17000 }, { 512 * MIB, 19500 } };
static const point vm_map[] = { { 2 * MIB, 1928 },  { 8 * MIB, 617 },    { 20 * MIB, 608 },
                                { 32 * MIB, 1094 }, { 128 * MIB, 1125 }, { 512 * MIB, 1500 } };
static const point vm_access[] = { { 2 * MIB, 28400 },  { 8 * MIB, 25500 },   { 20 * MIB, 30471 },
                                   { 32 * MIB, 26406 }, { 128 * MIB, 40125 }, { 512 * MIB, 55000 } };
static const point vm_unmap[] = { { 2 * MIB, 17283 },  { 8 * MIB, 15773 },   { 20 * MIB, 15078 },
                                  { 32 * MIB, 15688 }, { 128 * MIB, 21375 }, { 512 * MIB, 23500 } };
static const point vm_destroy[] = { { 2 * MIB, 10109 },  { 8 * MIB, 12609 },   { 20 * MIB, 19137 },
                                    { 32 * MIB, 24563 }, { 128 * MIB, 87500 }, { 512 * MIB, 200000 } };

/* Points by size; none for an entry whose cost does not depend on size. */
typedef struct curve {
    const point *points;
    size_t count;
} curve;

#define CURVE(points) { points, sizeof(points) / sizeof *(points) }

static const curve curves[WEIR_BACKEND_ENTRY_COUNT] = {
    [WEIR_BACKEND_segment_alloc] = CURVE(segment_alloc),
    [WEIR_BACKEND_segment_free] = CURVE(segment_free),
    [WEIR_BACKEND_managed_alloc] = CURVE(segment_alloc), /* assumed, as the next three */
    [WEIR_BACKEND_managed_free] = CURVE(segment_free),
    [WEIR_BACKEND_vm_create_exportable] = CURVE(vm_create),
    [WEIR_BACKEND_vm_import] = CURVE(vm_create),
    [WEIR_BACKEND_pinned_alloc] = CURVE(pinned_alloc),
    [WEIR_BACKEND_pinned_free] = CURVE(pinned_free),
    [WEIR_BACKEND_vm_create] = CURVE(vm_create),
    [WEIR_BACKEND_vm_map] = CURVE(vm_map),
    [WEIR_BACKEND_vm_access] = CURVE(vm_access),
    [WEIR_BACKEND_vm_unmap] = CURVE(vm_unmap),
    [WEIR_BACKEND_vm_destroy] = CURVE(vm_destroy),
};

static const uint64_t constants[WEIR_BACKEND_ENTRY_COUNT] = {
    [WEIR_BACKEND_device_get_current] = 19,
    [WEIR_BACKEND_device_memory] = 7000, /* measured on an earlier machine */
    [WEIR_BACKEND_vm_reserve] = 2000,    /* assumed, as vm_release: addresses only */
    [WEIR_BACKEND_vm_release] = 2000,
    [WEIR_BACKEND_stream_create] = 288000,
    [WEIR_BACKEND_stream_wait] = 472,
    [WEIR_BACKEND_stream_query] = 321, /* assumed: as an event's; the next two likewise, waiting itself left out */
    [WEIR_BACKEND_stream_synchronize] = 321,
    [WEIR_BACKEND_event_synchronize] = 321,
    [WEIR_BACKEND_event_create] = 230, /* measured together with the next: 460 */
    [WEIR_BACKEND_event_destroy] = 230,
    [WEIR_BACKEND_event_record] = 466,
    [WEIR_BACKEND_event_query] = 321,
    [WEIR_BACKEND_capture_status] = 80,
};

bool wr_host_cost_has_size(enum weir_backend_entry entry)
{
    return curves[entry].count > 0;
}

/* Linear between the points, in bytes, because a call costs a part per call and a part per page. Above the last point
 * the last line goes on; below the first the cost is constant. */
uint64_t wr_host_cost(enum weir_backend_entry entry, uint64_t bytes)
{
    const curve *c = &curves[entry];
    if (c->count == 0) return constants[entry];
    if (bytes <= c->points[0].bytes) return c->points[0].nanoseconds;
    size_t right = 1;
    while (right + 1 < c->count && c->points[right].bytes < bytes) right++;

    const point *a = &c->points[right - 1], *b = &c->points[right];
    double slope = ((double)b->nanoseconds - (double)a->nanoseconds) / (double)(b->bytes - a->bytes);
    return (uint64_t)((double)a->nanoseconds + slope * (double)(bytes - a->bytes) + 0.5);
}
