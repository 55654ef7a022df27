/*
 * What the stand-in's files share. One process-wide lock guards contexts, captures and records of memory; the host
 * back end below has its own.
 */
#ifndef WEIR_TESTS_STANDIN_CUDA_INTERNAL_H
#define WEIR_TESTS_STANDIN_CUDA_INTERNAL_H

#include "backend/backend.h"
#include "standin/cuda/standin.h"

#include <pthread.h>
#include <stdbool.h>

enum standin_call {
#define X(need, name, suffix, version, parameters) STANDIN_##name,
#include "backend/cuda/symbols.def"
#undef X
    STANDIN_CALL_COUNT
};

#define X(need, name, suffix, version, parameters)                                                                     \
    __attribute__((visibility("default"))) CUresult name##suffix parameters;
#include "backend/cuda/symbols.def"
#undef X

extern pthread_mutex_t standin_lock;

/* Counts the call and fails it if that was scripted; then: the driver is initialised; then: the thread has a living
 * context, of *device. */
CUresult standin_count(enum standin_call call);
CUresult standin_begin(enum standin_call call);
CUresult standin_enter(enum standin_call call, int *device);

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        CUresult try_code_ = (call);                                                                                   \
        if (try_code_ != WR_CUDA_SUCCESS) return try_code_;                                                            \
    } while (0)

/* The driver's code for what the host back end said. */
CUresult standin_code(weir_status status);
/* The same for work on a stream: a capture that does not take it. */
CUresult standin_work_code(weir_status status);

/* The default stream has three names. */
void *standin_stream(CUstream stream);

/* For calls that are not safe while others capture: by the thread's mode, CUDA_SUCCESS or 900 with the captures
 * concerned invalidated. */
CUresult standin_unsafe(void);
void standin_forget_captures(int device); /* lock held */

void standin_forget_memory(int device); /* lock held */

/* The thread's, living or not; NULL: none. */
CUcontext standin_current(void);
void standin_forget_streams(int device); /* lock held */

#endif
