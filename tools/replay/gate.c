#include "replay/gate.h"

#include "grow.h"
#include "weir/host.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define TICK_NS 1000000
/* The host back end counts calls that wait, so that standing still after one is proof enough; elsewhere standing still
 * for long is the only sign. */
#define STILL_TICKS_HOST 5
#define STILL_TICKS_DRIVER 200

/* Calls so far that may wait for a gate. */
static uint64_t waiting_calls(void)
{
    static const enum weir_backend_entry entries[] = { WEIR_BACKEND_event_synchronize, WEIR_BACKEND_stream_synchronize,
                                                       WEIR_BACKEND_device_synchronize };
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        uint64_t count = 0;
        if (weir_host_calls(entries[i], &count) == WEIR_OK) sum += count;
    }
    return sum;
}

static void release_all(gates *g)
{
    for (size_t i = 0; i < g->count; i++) (void)gate_release(g, i);
}

static void *watch(void *argument)
{
    gates *g = argument;
    const struct timespec tick = { .tv_nsec = TICK_NS };
    uintptr_t position = 0;
    unsigned still = 0;
    /* Up to the last tick, and up to the one before the replay stood still. */
    uint64_t calls = g->calls_at_start, calls_before = calls;

    while (!atomic_load(&g->stop)) {
        nanosleep(&tick, NULL);
        uintptr_t now = atomic_load_explicit(g->position, memory_order_relaxed);
        if (now != position) {
            position = now;
            still = 0;
            calls_before = calls;
        } else {
            still++;
        }
        if (g->host) calls = waiting_calls();
        bool waits = g->host ? still >= STILL_TICKS_HOST && calls > calls_before : still >= STILL_TICKS_DRIVER;
        if (!waits) continue;
        release_all(g);
        still = 0;
    }
    return NULL;
}

static void wait_until_opened(void *argument)
{
    gate *at = argument;
    while (sem_wait(&at->opened) != 0 && errno == EINTR) continue;
}

weir_status gates_open(gates *g, const int *devices, size_t count, bool host, const atomic_uintptr_t *position)
{
    *g = (gates){ .host = host, .position = position };
    if (count == 0) return WEIR_OK;

    g->at = grow_new(count, sizeof *g->at);
    for (; g->count < count; g->count++) {
        gate *at = &g->at[g->count];
        at->device = devices[g->count];
        weir_status status = weir_stream_create(at->device, WEIR_PRIORITY_DEFAULT, &at->stream);
        if (status == WEIR_OK) status = weir_stream_native(at->stream, &at->native);
        if (status != WEIR_OK) {
            gates_close(g);
            return status;
        }
        sem_init(&at->opened, 0, 0);
    }
    g->calls_at_start = host ? waiting_calls() : 0;
    if (pthread_create(&g->watcher, NULL, watch, g) != 0) {
        gates_close(g);
        return WEIR_ERR_OUT_OF_HOST_MEMORY;
    }
    g->watched = true;
    return WEIR_OK;
}

weir_status gate_hold(gates *g, size_t index)
{
    gate *at = &g->at[index];
    weir_status status = g->host ? weir_host_stream_hold(at->device, at->native)
                                 : weir_stream_callback(at->stream, wait_until_opened, at);
    if (status == WEIR_OK) atomic_store(&at->held, true);
    return status;
}

static bool any_held(const gates *g)
{
    for (size_t i = 0; i < g->count; i++)
        if (atomic_load(&g->at[i].held)) return true;
    return false;
}

weir_status gate_release(gates *g, size_t index)
{
    gate *at = &g->at[index];
    if (!atomic_exchange(&at->held, false)) return WEIR_OK;
    if (g->host) return weir_host_stream_release(at->device, at->native);
    sem_post(&at->opened);
    /* Only the release of the last one is sure to take effect, and worth waiting for to make replays repeatable. */
    return any_held(g) ? WEIR_OK : weir_stream_synchronize(at->stream);
}

void gates_close(gates *g)
{
    if (g->watched) {
        atomic_store(&g->stop, true);
        pthread_join(g->watcher, NULL);
    }
    release_all(g);
    for (size_t i = 0; i < g->count; i++) {
        (void)weir_stream_destroy(g->at[i].stream);
        sem_destroy(&g->at[i].opened);
    }
    free(g->at);
    *g = (gates){ 0 };
}
