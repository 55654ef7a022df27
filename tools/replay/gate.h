/*
 * gate: streams that stand for the other streams of a recorded program. A block freed while another stream still used
 * it is recorded on a gate; its use lasts until the gate lets it pass. Blocks pass a gate in order, as work on a stream
 * completes.
 *
 * On the host back end a gate is a held stream that is stepped. If the library itself waits for a block, because memory
 * is short, the held stream runs up to that block, as the recorded program would have gone on. On a real driver a gate
 * is a stream with a callback for each block. The callback waits for a semaphore, but not for long, so that nothing can
 * hang on it.
 *
 * Owner: the session. One thread uses it.
 */
#ifndef WEIR_TOOLS_REPLAY_GATE_H
#define WEIR_TOOLS_REPLAY_GATE_H

#include "weir/weir.h"

#include <semaphore.h>

typedef struct gate {
    weir_stream stream;
    void *native;
    int device;
    uint64_t waiting; /* blocks recorded on it that may not pass yet */
    sem_t pass;
} gate;

typedef struct gates {
    gate *at;
    size_t count;
    bool host;
} gates;

/* One gate per entry of `devices`. On failure weir_error_text() says why and nothing is left. */
weir_status gates_open(gates *g, const int *devices, size_t count, bool host);

/* Frees a block whose use lasts until it passes the gate. NULL, for a block that was never allocated, keeps the
 * order. */
weir_status gate_free(gates *g, size_t index, void *pointer);

/* Lets the first block that waits at the gate pass. */
weir_status gate_pass(gates *g, size_t index);

/* Lets all blocks pass. `g` may be all zero. */
void gates_close(gates *g);

#endif
