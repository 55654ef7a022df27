/*
 * thread: what a thread has of its own: its current device and, per device, its current stream.
 * Owner: the thread; nobody else reads it, so no lock. Made at the first call that changes something from the
 * default, freed at thread exit. What it remembers is void when the library's epoch has moved on.
 */
#ifndef WR_THREAD_THREAD_H
#define WR_THREAD_THREAD_H

#include "device/device.h"

typedef struct wr_thread {
    uint64_t epoch;
    int device;                            /* -1: none chosen */
    uint64_t stream_ids[WR_DEVICE_MAX];    /* 0: the default stream */
} wr_thread;

/* The calling thread's current device. */
WR_CHECKED weir_status wr_thread_device(int *ordinal);
WR_CHECKED weir_status wr_thread_set_device(int ordinal);

/* An ordinal as users give it: WEIR_DEVICE_CURRENT is resolved, the device opened. Enters the library. */
WR_CHECKED weir_status wr_thread_resolve_device(int ordinal, wr_device **device);

/* The calling thread's current stream of an open device. A current stream that has ended gives the default one. */
wr_stream *wr_thread_stream(wr_device *device);
WR_CHECKED weir_status wr_thread_set_stream(wr_device *device, const wr_stream *stream);

/* A stream as users give it: {0} is the current stream of the current device. Enters the library. */
WR_CHECKED weir_status wr_thread_resolve_stream(weir_stream stream, wr_device **device, wr_stream **out);

#endif
