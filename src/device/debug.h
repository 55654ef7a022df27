/*
 * debug: checks for programs that are being looked into (option `debug`): bytes behind each block that nobody may write,
 * freed memory overwritten, the stacks of allocations and frees, what is still allocated at the end, and memory straight
 * from the driver. It stands between the API and the allocator; off, it costs one test per call. So it is also what notes
 * which call of the program it is, for recorded events (option `history_stacks`).
 * Owner: the device's cache; NULL there when off. Lock: its own (WR_RANK_LEAF) for the table of blocks, never held across a
 * driver call. What it does with the memory of a stream that captures, it leaves out.
 */
#ifndef WR_DEVICE_DEBUG_H
#define WR_DEVICE_DEBUG_H

#include "device/device.h"

typedef enum wr_debug_flag {
    WR_DEBUG_REDZONE = 1,  /* bytes behind each block are checked when it is freed */
    WR_DEBUG_POISON = 2,   /* freed memory is overwritten */
    WR_DEBUG_STACKS = 4,   /* errors and leaks tell where a block was allocated and freed */
    WR_DEBUG_LEAKS = 8,    /* what is allocated when the library is closed is logged */
    WR_DEBUG_NOSUB = 16,   /* each block is an allocation of the driver's, so that its tools see what each is */
    WR_DEBUG_HISTORY = 32, /* no check: recorded events have the stack of the call that they happened in */
    WR_DEBUG_STREAMS = 64  /* uses on streams that a block is not ordered with are told */
} wr_debug_flag;

#define WR_DEBUG_FRAMES 12 /* of each stack */

typedef struct wr_debug wr_debug;

/* "redzone,leaks": a list of the words above but history, "all" but nosub and streams; empty is none. WEIR_ERR_OPTION names a word that is none. */
WR_CHECKED weir_status wr_debug_parse(const wr_option_value *option, unsigned *flags);

/* Flags 0: *out is NULL. */
WR_CHECKED weir_status wr_debug_create(unsigned flags, wr_debug **out);

/* Logs what is still allocated, if asked to, and gives back what came straight from the driver. */
weir_status wr_debug_destroy(wr_device *device);

/* Where the program called. */
typedef struct wr_site {
    const void *caller; /* WR_CALLER */
    const wr_stream
        *current; /* the thread's current stream, of the device; NULL: it was not asked for, or none was set */
} wr_site;

/* As wr_device_alloc, wr_device_free and wr_pending_record, on a device that has one. */
WR_CHECKED weir_status wr_debug_alloc(wr_device *device, wr_mempool *pool, wr_mempool_name name, wr_stream *stream,
                                      size_t bytes, wr_site site, void **out);
/* WEIR_ERR_CORRUPT: bytes behind the block were written; it is freed all the same. */
WR_CHECKED weir_status wr_debug_free(const wr_segment *segment, void *pointer, wr_site site);
/* `device` is the stream's. */
WR_CHECKED weir_status wr_debug_record(const wr_segment *segment, const void *pointer, wr_device *device,
                                       const wr_stream *stream, const void *caller);

/* The stream waits for the other's present work. NULL: the host, and all streams of the device. */
void wr_debug_wait(const wr_device *device, const wr_stream *stream, const wr_stream *other);

/* The stream does something with what the pointer points to, if that is a block: `by` is the call that asks for it. */
void wr_debug_use(const wr_device *device, const wr_stream *stream, const void *pointer, bool writes, const char *by,
                  const void *caller);

/* The block that begins there was handed out, to whoever: what was freed in it is looked at, with a stream that may; NULL: it is
 * only forgotten. */
void wr_debug_unpoison(wr_device *device, const wr_stream *stream, void *base);

/* So may all memory of the device have been. */
void wr_debug_forget_poison(wr_device *device);

/* The device whose driver gave that block, by WR_DEBUG_NOSUB; NULL: none did. For pointers in no segment. */
wr_device *wr_debug_device_of(const void *pointer);
WR_CHECKED weir_status wr_debug_free_direct(wr_device *device, void *pointer, const void *caller);
/* Nothing is noted: freeing such a block waits for all streams. */
WR_CHECKED weir_status wr_debug_record_direct(const wr_device *device, const void *pointer);

#endif
