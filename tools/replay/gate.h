/*
 * gate: streams that stand for the other streams of a recorded program. A block freed while another stream still uses
 * it is recorded on a gate that is held; releasing the gate ends that use.
 *
 * On the host back end a gate is a held stream. On a real driver it is a stream whose callback waits for a semaphore;
 * callbacks of one driver may run one after the other, so there a gate released before an older one may take effect
 * only with that one.
 *
 * When the library itself waits for pending frees (memory is short), the work that it waits for would have gone on in
 * the recorded program. So a thread watches the replay and releases all gates when it finds it waiting.
 *
 * Owner: the session. Held and released by the replaying thread; the watcher releases too, so `held` is atomic.
 */
#ifndef WEIR_TOOLS_REPLAY_GATE_H
#define WEIR_TOOLS_REPLAY_GATE_H

#include "weir/weir.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

typedef struct gate {
    weir_stream stream;
    void *native;
    int device;
    atomic_bool held;
    sem_t opened;
} gate;

typedef struct gates {
    gate *at;
    size_t count;
    bool host;
    const atomic_uintptr_t *position; /* changes with every operation of the replay */
    uint64_t calls_at_start;          /* host: calls that wait, before the watcher began */
    pthread_t watcher;
    atomic_bool stop;
    bool watched;
} gates;

/* One gate per entry of `devices`. On failure weir_error_text() says why and nothing is left. */
weir_status gates_open(gates *g, const int *devices, size_t count, bool host, const atomic_uintptr_t *position);

/* What is recorded on the gate's stream from now on does not complete. */
weir_status gate_hold(gates *g, size_t index);

/* Nothing happens when it is not held. */
weir_status gate_release(gates *g, size_t index);

/* Releases and destroys all. `g` may be all zero. */
void gates_close(gates *g);

#endif
