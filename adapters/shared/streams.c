#include "shared/streams.h"

#include <stdatomic.h>
#include <stdbool.h>

enum { REMEMBERED = 8, DEVICES = 64 };

typedef struct name {
    void *native;
    int device;
    weir_stream stream; /* {0}: none yet */
    bool served;        /* memory has been allocated on it */
} name;

static _Thread_local name names[REMEMBERED];

/* By device: the default stream, if memory was allocated on the device, else 0. weir_close() makes them stale. */
static atomic_uint_fast64_t served[DEVICES];

/* A hash: native streams are addresses of objects or small numbers. */
static name *place_of(int device, const void *native)
{
    const uintptr_t number = (uintptr_t)native;
    return &names[(number >> 4 ^ number >> 9 ^ number ^ (unsigned)device) % REMEMBERED];
}

/* weir_stream_destroy() and weir_close() make a name stale. */
static bool good(const name *n, int device, const void *native)
{
    int unused = 0;
    return n->stream.id != 0 && n->native == native && n->device == device &&
           weir_stream_device(n->stream, &unused) == WEIR_OK;
}

static weir_status find(int device, void *native, name **out)
{
    name *n = place_of(device, native);
    if (!good(n, device, native)) {
        weir_stream stream = { 0 };
        const weir_status status = weir_stream_from_native(device, native, &stream);
        if (status != WEIR_OK) return status;
        *n = (name){ .native = native, .device = device, .stream = stream };
    }
    *out = n;
    return WEIR_OK;
}

weir_status wa_stream_of(int device, void *native, weir_stream *out)
{
    name *n = NULL;
    const weir_status status = find(device, native, &n);
    if (status == WEIR_OK) *out = n->stream;
    return status;
}

static bool is_served(int device)
{
    const weir_stream stream = { atomic_load(&served[device]) };
    int unused = 0;
    return stream.id != 0 && weir_stream_device(stream, &unused) == WEIR_OK;
}

/* The calls by which PyTorch and CuPy enable peer access do not cover mapped memory, which weir's may be. Failures are
 * ignored: some devices cannot reach each other. */
void wa_note_served(int device)
{
    weir_stream stream = { 0 };
    if (device < 0 || device >= DEVICES || is_served(device)) return;
    if (weir_stream_default(device, &stream) != WEIR_OK) return;
    atomic_store(&served[device], stream.id); /* if two devices come at once, the later one sees the other */
    for (int other = 0; other < DEVICES; other++) {
        if (other == device || !is_served(other)) continue;
        (void)!weir_device_enable_peer(device, other);
        (void)!weir_device_enable_peer(other, device);
    }
}

static weir_status alloc_first(size_t bytes, int device, void *native, void **out)
{
    name *n = NULL;
    weir_status status = find(device, native, &n);
    if (status != WEIR_OK) return status;
    const weir_stream stream = n->stream;
    status = weir_alloc_on(bytes, stream, out);
    if (status != WEIR_OK) return status;
    wa_note_served(device);
    if (n->stream.id == stream.id) n->served = true; /* unless reclaim callbacks have reused the place meanwhile */
    return WEIR_OK;
}

weir_status wa_alloc(size_t bytes, int device, void *native, void **out)
{
    const name *n = place_of(device, native);
    if (n->served && n->native == native && n->device == device) {
        const weir_status status = weir_alloc_on(bytes, n->stream, out);
        if (status != WEIR_ERR_INVALID_STREAM) return status; /* else the name is stale */
    }
    return alloc_first(bytes, device, native, out);
}

uint64_t wa_served(void)
{
    uint64_t devices = 0;
    for (int device = 0; device < DEVICES; device++) devices |= (uint64_t)is_served(device) << device;
    return devices;
}

weir_status wa_empty_caches(void)
{
    weir_status first = WEIR_OK;
    for (int device = 0; device < DEVICES; device++) {
        if (!is_served(device)) continue;
        const weir_status status = weir_empty_cache(device);
        if (first == WEIR_OK) first = status;
    }
    return first;
}
