/*
 * debug: checks for programs that are being debugged (option `debug`): red zones behind blocks, poisoned freed memory,
 * stacks of allocations and frees, leaks at close, and blocks straight from the driver. It stands between the API and
 * the allocator, where the stack of each call is taken, too, for what it finds and for recorded events. Where neither
 * is wanted it costs one test per call (wr_cache_is_watched).
 * Owner: the device's cache; NULL there when off. Lock: its own (WR_RANK_LEAF) for the table of blocks, never held
 * across a driver call. Memory of a stream that captures is left unchecked.
 */
#ifndef WR_DEVICE_DEBUG_H
#define WR_DEVICE_DEBUG_H

#include "device/device.h"

typedef enum wr_debug_flag {
    WR_DEBUG_REDZONE = 1, /* bytes behind each block are checked when it is freed */
    WR_DEBUG_POISON = 2,  /* freed memory is overwritten */
    WR_DEBUG_STACKS = 4,  /* errors and leak reports say where a block was allocated and freed */
    WR_DEBUG_LEAKS = 8,   /* blocks still allocated when the library is closed are logged */
    WR_DEBUG_NOSUB = 16,  /* each block is an allocation of the driver's own, so that its tools see every block */
    WR_DEBUG_STREAMS = 64 /* uses on streams that a block is not ordered with are reported */
} wr_debug_flag;

#define WR_DEBUG_FRAMES 12 /* frames shown of a stack */

typedef struct wr_debug wr_debug;

/* Reads a list such as "redzone,leaks", of the words above; "all" is all but nosub and streams, empty is none.
 * WEIR_ERR_OPTION names an unknown word. */
WR_CHECKED weir_status wr_debug_parse(const wr_option_value *option, unsigned *flags);

/* Flags 0: *out is NULL. */
WR_CHECKED weir_status wr_debug_create(unsigned flags, wr_debug **out);

/* Logs leaks, if asked to, and gives back blocks that came straight from the driver. */
weir_status wr_debug_destroy(wr_device *device);

/* Where the program called. */
typedef struct wr_site {
    const void *caller;       /* WR_CALLER */
    const wr_stream *current; /* the thread's current stream on the device; NULL: not asked for, or none set */
} wr_site;

/* As wr_device_alloc, wr_device_free and wr_pending_record, where the cache is watched. */
WR_CHECKED weir_status wr_debug_alloc(wr_device *device, wr_mempool *pool, wr_mempool_name name, wr_stream *stream,
                                      uint64_t id, size_t bytes, wr_site site, void **out);
/* WEIR_ERR_CORRUPT: bytes behind the block were written; it is freed all the same. */
WR_CHECKED weir_status wr_debug_free(const wr_segment *segment, void *pointer, wr_site site);
/* `device` is the stream's. */
WR_CHECKED weir_status wr_debug_record(const wr_segment *segment, const void *pointer, wr_device *device,
                                       const wr_stream *stream, const void *caller);

/* As wr_device_empty_cache, watched or not. */
WR_CHECKED weir_status wr_debug_empty_cache(wr_device *device, const void *caller);

/* Notes that `stream` waits for the present work of `other`. NULL stream: the host; NULL other: all streams of the
 * device. */
void wr_debug_wait(const wr_device *device, const wr_stream *stream, const wr_stream *other);

/* Notes that the stream uses the block around the pointer, if any. `by` names the public call that queued the use. */
void wr_debug_use(const wr_device *device, const wr_stream *stream, const void *pointer, bool writes, const char *by,
                  const void *caller);

/* A block that begins at `base` was handed out: checks, through `stream`, that the freed memory in it still has its
 * poison, and forgets that memory. NULL stream: only forgets. */
void wr_debug_unpoison(wr_device *device, const wr_stream *stream, void *base);

/* Forgets what is known of the address, which a restored checkpoint has given to another block or to none. */
void wr_debug_forget(wr_cache *cache, void *base);

/* Forgets all poisoned memory of the device. */
void wr_debug_forget_poison(wr_device *device);

/* For pointers outside all segments: the device whose driver gave that block, under WR_DEBUG_NOSUB, or the one that it
 * was freed on, if its memory has gone back to the driver; NULL: none. */
wr_device *wr_debug_device_of(const void *pointer);
WR_CHECKED weir_status wr_debug_free_direct(wr_device *device, void *pointer, const void *caller);
/* Freeing such a block waits for all streams of its device and of `user`, the recorded stream's. */
WR_CHECKED weir_status wr_debug_record_direct(const wr_device *device, const void *pointer, const wr_device *user);

#endif
