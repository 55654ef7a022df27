#include "replay/gate.h"

#include "grow.h"
#include "weir/host.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define LONGEST_WAIT_NS 50000000

static void wait_to_pass(void *argument)
{
    gate *at = argument;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until); /* which nobody sets */
    until.tv_nsec += LONGEST_WAIT_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (sem_clockwait(&at->pass, CLOCK_MONOTONIC, &until) != 0 && errno == EINTR) continue;
}

static void nothing(void *argument)
{
    (void)argument;
}

static weir_status gate_open(gate *at, int device, bool host)
{
    at->device = device;
    weir_status status = weir_stream_create(device, WEIR_PRIORITY_DEFAULT, &at->stream);
    if (status != WEIR_OK) return status;
    sem_init(&at->pass, 0, 0);
    status = weir_stream_native(at->stream, &at->native);
    return status == WEIR_OK && host ? weir_host_stream_hold(device, at->native) : status;
}

weir_status gates_open(gates *g, const int *devices, size_t count, bool host)
{
    *g = (gates){ .host = host };
    if (count == 0) return WEIR_OK;
    g->at = grow_new(count, sizeof *g->at);
    while (g->count < count) {
        weir_status status = gate_open(&g->at[g->count], devices[g->count], host);
        if (status != WEIR_OK) {
            gates_close(g);
            return status;
        }
        g->count++;
    }
    return WEIR_OK;
}

weir_status gate_free(gates *g, size_t index, void *pointer)
{
    gate *at = &g->at[index];
    weir_status status = WEIR_OK;
    if (!g->host) status = weir_stream_callback(at->stream, wait_to_pass, at);
    if (!pointer && g->host) status = weir_stream_callback(at->stream, nothing, NULL);
    if (status == WEIR_OK && pointer) status = weir_record_stream(pointer, at->stream);
    if (status == WEIR_OK && pointer) status = weir_free(pointer);
    if (status == WEIR_OK) at->waiting++;
    return status;
}

weir_status gate_pass(gates *g, size_t index)
{
    gate *at = &g->at[index];
    uint64_t queued = 0, ran = 0;
    at->waiting--;
    if (!g->host) return sem_post(&at->pass) == 0 ? WEIR_OK : WEIR_ERR_INTERNAL;
    weir_status status = weir_host_stream_queued(at->device, at->native, &queued);
    /* Fewer are queued than wait here if the library itself has waited for some. */
    if (status != WEIR_OK || queued <= at->waiting) return status;
    return weir_host_stream_step(at->device, at->native, queued - at->waiting, &ran);
}

void gates_close(gates *g)
{
    for (size_t i = 0; i < g->count; i++) {
        gate *at = &g->at[i];
        while (!g->host && at->waiting) {
            sem_post(&at->pass);
            at->waiting--;
        }
        (void)weir_stream_destroy(at->stream); /* waits for queued work */
        sem_destroy(&at->pass);
    }
    free(g->at);
    *g = (gates){ 0 };
}
