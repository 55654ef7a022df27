/*
 * Shared by the stand-in's files, in addition to what both drivers' stand-ins share (standin/driver). standin_lock
 * guards contexts too.
 */
#ifndef WEIR_TESTS_STANDIN_CUDA_INTERNAL_H
#define WEIR_TESTS_STANDIN_CUDA_INTERNAL_H

#include "standin/cuda/standin.h"
#include "standin/driver/driver.h"

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

/* Counts the call, fails it if that was scripted, and checks that the driver is initialised. standin_enter also checks
 * that the thread has a living context, whose device is *device. */
CUresult standin_begin(enum standin_call call);
CUresult standin_enter(enum standin_call call, int *device);

/* The same for a call that names a stream: which must not have ended with its context. */
CUresult standin_enter_on(CUstream stream, enum standin_call call, int *device);

/* Whether the device can do what the environment may deny by "0", as some virtual GPUs cannot. */
int standin_can(const char *variable);

/* The thread's context, living or not; NULL: none. */
CUcontext standin_current(void);
CUcontext standin_whole_context(CUcontext context); /* of a green one the primary one, else itself */
void standin_forget_streams(int device);            /* lock held */
bool standin_is_blocking(CUstream stream);
void standin_end_streams(CUcontext context, int device); /* with their context; the lock is not held */

#endif
