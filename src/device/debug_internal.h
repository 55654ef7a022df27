/*
 * debug_internal: what the debug*.c files share: the table of blocks, and what is known of each.
 * Owner and lock as debug.h says.
 */
#ifndef WR_DEVICE_DEBUG_INTERNAL_H
#define WR_DEVICE_DEBUG_INTERNAL_H

#include "base/log.h"
#include "device/debug.h"

#include <bsd/sys/tree.h>

enum {
    WR_DEBUG_USES = 6,
    WR_DEBUG_RECORDED = 8,
    WR_DEBUG_TOLD = 256,
    WR_DEBUG_FREED_KEPT = 1 << 14, /* blocks whose free is remembered */
    WR_DEBUG_BUCKETS = 1 << 12,
    WR_DEBUG_TEXT = 1024
};

/* A call of the program, and the thread that made it. */
typedef struct wr_call {
    uint32_t stack, thread; /* stack: a number given by observe/stacks.h */
} wr_call;

/* A use of a block by a stream. weir sees only the uses that it queues itself. */
typedef struct wr_seen {
    uint64_t stream_id; /* 0: nothing */
    uint64_t moment;
    wr_call call;
    const char *by; /* "weir_copy"; NULL: whatever used the memory before this block */
    bool wrote;
} wr_seen;

/* What is known of an address: its present block, or its last one. */
typedef struct wr_known {
    struct wr_known *next; /* in its bucket */
    char *base;
    size_t bytes; /* as asked for */
    uint64_t stream_id;
    weir_mempool pool;
    wr_call allocated, freed;
    uint64_t free_number; /* of its last free, by wr_debug.frees */
    bool live;
    bool direct;      /* straight from the driver */
    bool leaving;     /* about to be freed, once it has been looked at, or, if direct, the device is idle */
    bool recorded;    /* used by other streams */
    uint64_t devices; /* if direct: its own, and those of recorded streams, a bit each */
    bool zoned;       /* there is a red zone behind it ... */
    uint32_t dropped; /* ... valid while the segment's contents were dropped no more often than this */

    /* with WR_DEBUG_STREAMS: */
    bool implicit; /* its stream was the current one, not named in the call */
    uint64_t allocated_at, freed_at;
    uint64_t departed; /* wr_cache.departed at its last free: memory that left since has come back without its uses */
    wr_seen uses[WR_DEBUG_USES]; /* of each stream the last read and the last write, as far as there is room */
    uint64_t recorded_on[WR_DEBUG_RECORDED];
    unsigned recorded_count; /* beyond the array's size: counts as all streams */
} wr_known;

/* What was reported already: a repetition from the same two stacks is only counted. */
typedef struct wr_told {
    weir_event_kind what;
    uint32_t first, second; /* stacks */
} wr_told;

typedef struct wr_poisoned wr_poisoned;
RB_HEAD(wr_poisoned_tree, wr_poisoned);

/* Host memory that device memory is copied to for inspection. */
typedef struct wr_scratch {
    struct wr_scratch *next;
    unsigned char bytes[];
} wr_scratch;

struct wr_debug {
    unsigned flags;
    wr_lock lock;
    wr_known *buckets[WR_DEBUG_BUCKETS];
    char *freed[WR_DEBUG_FREED_KEPT]; /* a ring of addresses: the oldest is forgotten first */
    uint64_t frees;
    wr_told told[WR_DEBUG_TOLD];
    unsigned told_count;
    bool told_all;                    /* and said so: further findings are counted only */
    struct wr_poisoned_tree poisoned; /* freed memory by address, no two overlap */
    size_t poisoned_count;
    uint64_t swept_at;   /* wr_cache.departed when the tree was last swept for want of room */
    wr_scratch *awaited; /* waiting for a copy into these failed, and it may still arrive: kept until close */
};

/* The link in its bucket where the address is, or would be inserted. */
wr_known **wr_debug_link_locked(wr_debug *d, const void *base);

/* How often any memory of the device was given back or paused; 0 without WR_DEBUG_STREAMS, where it does not matter. */
uint64_t wr_debug_departed(wr_cache *cache);

/* Appends "\nallocated by thread 3: solve (solver+0x4c1d), main (solver+0x1a2b)"; nothing when the stack is unknown. */
void wr_debug_put_call(char *text, size_t capacity, const char *title, const wr_call *c);

/* ---- device memory (debug_memory.c) ------------------------------------------------------------------------------ */

/* Whether a capture forbids touching memory of the stream now. */
bool wr_debug_captures(const wr_device *device, const wr_stream *stream);

WR_CHECKED weir_status wr_debug_scratch(size_t bytes, wr_scratch **out);

/* Reads memory once the stream's work is done. Fails when the stream captures by then, or when other threads keep it
 * busy. *awaited, false before: the copy was queued but waiting for it failed. */
WR_CHECKED weir_status wr_debug_read(wr_device *device, const wr_stream *stream, const void *from, size_t bytes,
                                     wr_scratch *scratch, bool *awaited);
void wr_debug_scratch_done(wr_debug *d, wr_scratch *scratch, bool awaited);

/* Queues a fill on weir's own behalf. WEIR_ERR_CAPTURE: it could become part of a graph. */
WR_CHECKED weir_status wr_debug_fill(const wr_device *device, wr_stream *stream, void *base, unsigned char value,
                                     size_t bytes);

/* ---- streams (debug_streams.c): these do nothing without WR_DEBUG_STREAMS ---------------------------------------- */

/* A block is about to enter the table; `before` is what was known of its address, or NULL. The lock is held. */
void wr_debug_streams_made_locked(const wr_debug *d, wr_known *made, const wr_known *before);

void wr_debug_streams_recorded_locked(wr_known *k, uint64_t stream_id);

/* A block was freed; `k` is its state before. `current`: as in wr_site. */
void wr_debug_streams_freed(wr_device *device, const wr_known *k, const wr_stream *current, wr_call here);

/* A logical clock: later than all moments before. */
uint64_t wr_debug_moment(void);

/* Counts a finding about the block and records it in the history, with a stream's number and the call's stack. */
void wr_debug_found(wr_device *device, weir_event_kind what, const wr_known *k, uint64_t stream, uint32_t stack);

/* True when this was not yet reported for the same two stacks; marks it reported. */
bool wr_debug_is_new(wr_device *device, weir_event_kind what, uint32_t first, uint32_t second);

/* A stream as users see it: the native one; 0 when it has ended. */
uint64_t wr_debug_stream_number(uint64_t stream_id);

void wr_debug_log_call(wr_log_level level, const char *title, const wr_call *c);

/* ---- poison (debug_poison.c) ------------------------------------------------------------------------------------- */

/* Overwrites a block that is about to be freed, in stream order. */
void wr_debug_poison(wr_device *device, const wr_segment *segment, wr_stream *stream, const wr_known *k, wr_call here);

#endif
