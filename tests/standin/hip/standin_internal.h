/*
 * Shared by the stand-in's files, in addition to what both drivers' stand-ins share (standin/driver).
 */
#ifndef WEIR_TESTS_STANDIN_HIP_INTERNAL_H
#define WEIR_TESTS_STANDIN_HIP_INTERNAL_H

#include "backend/hip/types.h"
#include "standin/driver/driver.h"
#include "standin/hip/standin.h"

typedef struct dim3 {
    uint32_t x, y, z;
} dim3;

/* hipPointerAttribute_t of ROCm 6. */
struct standin_pointer {
    int type; /* 0 not known, 1 host, 2 device */
    int device;
    void *devicePointer, *hostPointer;
    int isManaged;
    unsigned int allocationFlags;
};

enum standin_call {
#define X(need, result, name, parameters) STANDIN_##name,
#include "backend/hip/symbols.def"
#undef X
#define X(result, name, parameters) STANDIN_##name,
#include "standin/hip/extras.def"
#undef X
    STANDIN_CALL_COUNT
};

#define X(need, result, name, parameters) STANDIN_HIP_PUBLIC result name parameters;
#include "backend/hip/symbols.def"
#undef X
#define X(result, name, parameters) STANDIN_HIP_PUBLIC result name parameters;
#include "standin/hip/extras.def"
#undef X

/* Counts the call, fails it if that was scripted, and starts the runtime if there is a device. */
int standin_begin(enum standin_call call);
/* The same, and makes the thread's device ready for work. */
int standin_enter(enum standin_call call, int *device);
/* The same for a call about a stream or an event. *device is its device, or the thread's for a default stream.
 * Recognises destroyed streams, because rocBLAS asks about the previous stream of its handle. */
int standin_enter_stream(enum standin_call call, void *stream, int *device);
int standin_enter_event(enum standin_call call, void *event, int *device);
/* The state in which a capture that gave no graph left the stream; WEIR_CAPTURE_NONE: there was none. */
weir_capture_state standin_left(void *stream);
void standin_leave(void *stream, weir_capture_state state);
/* Whether the event was last recorded outside captures, on a stream that captures now. */
bool standin_recorded_before_capture(void *event, int *device, void **stream);
/* Whether the stream synchronises with the default stream. */
bool standin_is_blocking(void *stream);
/* Sets what hipGetLastError() will return, and returns it. */
int standin_last(int code);

uint64_t standin_memory(void); /* of each device */
int standin_architecture_major(void);
int standin_architecture_minor(void);

/* Waits for all work queued on the device, which harms no capture. */
void standin_wait_for_all(int device);

/* The variant of this stand-in: 5, 6 or 7. */
extern const int standin_hip_major;

#endif
