#include "shared/streams.h"

#include <stdatomic.h>

enum { REMEMBERED = 8, DEVICES = 64 };

typedef struct name {
    void *native;
    int device;
    weir_stream stream; /* {0}: none yet */
} name;

static _Thread_local name names[REMEMBERED];
static atomic_uint_fast64_t served; /* a bit per device */

/* Native streams are addresses of objects or small numbers. */
static name *place_of(int device, const void *native)
{
    const uintptr_t number = (uintptr_t)native;
    return &names[(number >> 4 ^ number >> 9 ^ number ^ (unsigned)device) % REMEMBERED];
}

/* A name goes stale by weir_stream_destroy() and weir_close(). */
static bool good(const name *n, int device, const void *native)
{
    int unused = 0;
    return n->stream.id != 0 && n->native == native && n->device == device &&
           weir_stream_device(n->stream, &unused) == WEIR_OK;
}

weir_status wa_stream_of(int device, void *native, weir_stream *out)
{
    name *n = place_of(device, native);
    if (!good(n, device, native)) {
        weir_stream stream = { 0 };
        const weir_status status = weir_stream_from_native(device, native, &stream);
        if (status != WEIR_OK) return status;
        *n = (name){ native, device, stream };
    }
    *out = n->stream;
    return WEIR_OK;
}

/* PyTorch and CuPy let devices reach each other by calls that do not cover mapped memory, which weir's may be. Devices
 * that cannot reach each other stay so. */
static void join(int device, uint_fast64_t others)
{
    for (int other = 0; other < DEVICES; other++) {
        if (other == device || !(others >> other & 1)) continue;
        (void)!weir_device_enable_peer(device, other);
        (void)!weir_device_enable_peer(other, device);
    }
}

static void note_served(int device)
{
    const uint_fast64_t bit = device >= 0 && device < DEVICES ? (uint_fast64_t)1 << device : 0;
    if (atomic_load_explicit(&served, memory_order_relaxed) & bit) return;
    const uint_fast64_t before = atomic_fetch_or(&served, bit);
    if (!(before & bit)) join(device, before); /* of two at once the later one sees the other */
}

weir_status wa_alloc(size_t bytes, int device, void *native, void **out)
{
    weir_stream stream = { 0 };
    weir_status status = wa_stream_of(device, native, &stream);
    if (status != WEIR_OK) return status;
    status = weir_alloc_on(bytes, stream, out);
    if (status == WEIR_OK) note_served(device);
    return status;
}

weir_status wa_empty_caches(void)
{
    const uint_fast64_t devices = atomic_load(&served);
    weir_status first = WEIR_OK;
    for (int device = 0; device < DEVICES; device++) {
        if (!(devices >> device & 1)) continue;
        const weir_status status = weir_empty_cache(device);
        if (first == WEIR_OK) first = status;
    }
    return first;
}
