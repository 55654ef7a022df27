/*
 * handles: the library handles that a thread owns, one per kind and device.
 * Owner: the thread; nobody else reads them, so no lock. Given back when the thread ends.
 */
#ifndef WR_THREAD_HANDLES_H
#define WR_THREAD_HANDLES_H

#include "pool/handle.h"
#include "thread/thread.h"

/* The calling thread's handle of a kind, bound to the stream: created, taken over or bound anew if necessary. */
WR_CHECKED weir_status wr_thread_handle(wr_device *device, wr_stream *stream, weir_handle_kind kind, void **native);

/* Gives the thread's handle back before the thread ends. Having none is fine. */
void wr_thread_handle_release(const wr_device *device, weir_handle_kind kind);

#endif
