#include "torch/memory.h"

#include "shared/streams.h"

#include <pthread.h>
#include <string.h>
#include <weir/trace.h>

weir_status wa_torch_check_devices(int count)
{
    const char *backend = NULL;
    int devices = 0;
    weir_status status = weir_backend_name(&backend);
    if (status == WEIR_OK) status = weir_device_count(&devices);
    if (status != WEIR_OK) return status;
    return count > 0 && (strcmp(backend, "host") == 0 || devices < count) ? WEIR_ERR_NO_DEVICE : WEIR_OK;
}

/* Limits that were in force before fractions, and what the last fraction made of them. */
typedef struct limits {
    uint64_t own, set;
} limits;

/* A fraction lifts no limit that came from elsewhere: the one in force, unless the last fraction set it. */
static weir_status set_fraction_locked(double fraction, int device, uint64_t total, limits *l)
{
    uint64_t now = 0;
    weir_status status = weir_memory_limit_get(device, &now);
    if (status != WEIR_OK) return status;
    const uint64_t own = now == l->set ? l->own : now;
    const uint64_t bytes = (uint64_t)(fraction * (double)total);
    const uint64_t wanted = fraction >= 1 ? 0 : bytes + (bytes == 0); /* a limit of 0 would mean none */
    const uint64_t set = own != 0 && (wanted == 0 || wanted > own) ? own : wanted;
    status = weir_memory_limit_set(device, set);
    if (status == WEIR_OK) *l = (limits){ own, set };
    return status;
}

weir_status wa_torch_set_fraction(double fraction, int device)
{
    enum { DEVICES = 64 }; /* as many as weir has */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static limits of[DEVICES];
    weir_device_info info = { .size = sizeof info };
    if (!(fraction >= 0 && fraction <= 1)) return WEIR_ERR_INVALID_ARGUMENT; /* NaN, too */
    weir_status status = weir_device_info_get(device, &info);
    if (status != WEIR_OK) return status;
    if (device < 0 || device >= DEVICES) return WEIR_ERR_INVALID_ARGUMENT;
    pthread_mutex_lock(&lock);
    status = set_fraction_locked(fraction, device, info.total_memory, &of[device]);
    pthread_mutex_unlock(&lock);
    return status;
}

/* `info->size` is set. */
static weir_status ask_device(int device, weir_device_info *info, uint64_t *limit)
{
    const weir_status status = weir_device_info_get(device, info);
    return status == WEIR_OK ? weir_memory_limit_get(device, limit) : status;
}

weir_status wa_torch_fraction(int device, double *fraction)
{
    weir_device_info info = { .size = sizeof info };
    uint64_t limit = 0;
    const weir_status status = ask_device(device, &info, &limit);
    if (status == WEIR_OK)
        *fraction = limit && limit < info.total_memory ? (double)limit / (double)info.total_memory : 1;
    return status;
}

weir_status wa_torch_largest(int device, size_t *bytes)
{
    weir_device_info info = { .size = sizeof info };
    weir_memory_stats stats = { .size = sizeof stats };
    uint64_t limit = 0;
    weir_status status = ask_device(device, &info, &limit);
    if (status == WEIR_OK) status = weir_stats_get(device, &stats);
    if (status != WEIR_OK) return status;
    const uint64_t held = (uint64_t)stats.reserved_bytes[WEIR_STAT_ALL].current;
    const uint64_t used = (uint64_t)stats.active_bytes[WEIR_STAT_ALL].current;
    const uint64_t most = (held > used ? held - used : 0) + info.free_memory; /* paused memory is used, but not held */
    const uint64_t left = limit > used ? limit - used : 0;
    *bytes = (size_t)(limit && left < most ? left : most);
    return WEIR_OK;
}

weir_status wa_torch_room(int device, size_t *total, size_t *free)
{
    weir_device_info info = { .size = sizeof info };
    uint64_t limit = 0;
    const weir_status status = ask_device(device, &info, &limit);
    if (status != WEIR_OK) return status;
    *total = (size_t)(limit ? limit : info.total_memory);
    *free = (size_t)info.free_memory;
    return WEIR_OK;
}

weir_status wa_torch_segment(const void *pointer, void **base, size_t *bytes)
{
    weir_pointer_info info = { .size = sizeof info };
    const weir_status status = weir_pointer_info_get(pointer, &info);
    if (status != WEIR_OK) return status;
    *base = info.segment;
    *bytes = info.segment_bytes;
    return WEIR_OK;
}

/* Devices not in use are tried last, because asking one opens it, which takes a context of some hundred MiB. */
static weir_status find_elsewhere(int home, void *native, weir_stream *out, weir_error *why)
{
    int devices = 0;
    const uint64_t served = wa_served();
    weir_status status = weir_device_count(&devices), first = WEIR_ERR_INVALID_STREAM;
    if (status != WEIR_OK) return status;
    for (int i = 0; i < 2 * devices; i++) {
        const int device = i % devices;
        if (device == home || (served >> device & 1) != (i < devices)) continue;
        status = wa_stream_of(device, native, out);
        if (status == WEIR_OK) {
            why->text[0] = '\0';
            return WEIR_OK;
        }
        if (status == WEIR_ERR_INVALID_STREAM || first != WEIR_ERR_INVALID_STREAM) continue;
        first = status;
        (void)!weir_last_error(why);
    }
    return first;
}

weir_status wa_torch_record(const void *pointer, void *native, weir_error *why)
{
    weir_pointer_info info = { .size = sizeof info };
    weir_stream stream = { 0 };
    weir_status status = weir_pointer_info_get(pointer, &info);
    if (status == WEIR_ERR_UNKNOWN_POINTER) return WEIR_OK;
    if (status != WEIR_OK) return status;
    status = wa_stream_of(info.device, native, &stream);
    if (status == WEIR_ERR_INVALID_STREAM) status = find_elsewhere(info.device, native, &stream, why);
    return status == WEIR_OK ? weir_record_stream(pointer, stream) : status;
}

static weir_status clear_histories(void)
{
    int devices = 0;
    weir_status status = weir_device_count(&devices);
    for (int i = 0; i < devices && status == WEIR_OK; i++) status = weir_history_clear(i);
    return status;
}

weir_status weir_torch_record_history(bool enabled, uint64_t events, bool stacks, bool clear)
{
    enum { USUAL = 1000000 };
    if (!enabled) {
        const weir_status status = weir_history_stop();
        return status == WEIR_ERR_BUSY ? weir_history_start(1, 0) : status;
    }
    const weir_status status = clear ? clear_histories() : WEIR_OK;
    const bool named = events > 0 && events <= WEIR_HISTORY_EVENTS_MAX;
    return status == WEIR_OK ? weir_history_start(named ? events : USUAL, stacks ? WEIR_HISTORY_FRAMES_MAX : 0)
                             : status;
}
