/*
 * debug_internal: what the files of debug share: the table of blocks, and what is known of one.
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

/* Who was in which call of the program. */
typedef struct wr_call {
    uint32_t stack, thread; /* stack: a number of observe/stacks.h */
} wr_call;

/* What a stream did with a block, as far as weir was asked to have it done. */
typedef struct wr_seen {
    uint64_t stream_id; /* 0: nothing */
    uint64_t moment;
    wr_call call;
    const char *by; /* "weir_copy"; NULL: what the block was there before for */
    bool wrote;
} wr_seen;

/* What is known of an address: the block that is there now, or was last. */
typedef struct wr_known {
    struct wr_known *next; /* in its bucket */
    char *base;
    size_t bytes; /* as asked for */
    uint64_t stream_id;
    weir_mempool pool;
    wr_call allocated, freed;
    bool live;
    bool direct;      /* straight from the driver */
    bool zoned;       /* bytes behind it are those of a red zone, */
    bool recorded;    /* used by other streams */
    uint32_t dropped; /* unless the contents of its segment were dropped more often */

    /* with WR_DEBUG_STREAMS: */
    bool implicit; /* its stream was not named, but current */
    uint64_t allocated_at, freed_at;
    wr_seen uses[WR_DEBUG_USES]; /* the last ones */
    unsigned use_count;
    uint64_t recorded_on[WR_DEBUG_RECORDED];
    unsigned recorded_count; /* more than there is room for: on all */
} wr_known;

/* What was told already: the same of the same two calls is counted only. */
typedef struct wr_told {
    weir_event_kind what;
    uint32_t first, second; /* stacks */
} wr_told;

typedef struct wr_poisoned wr_poisoned;
RB_HEAD(wr_poisoned_tree, wr_poisoned);

/* Where device memory is copied to, to be looked at. */
typedef struct wr_scratch {
    struct wr_scratch *next;
    unsigned char bytes[];
} wr_scratch;

struct wr_debug {
    unsigned flags;
    wr_lock lock;
    wr_known *buckets[WR_DEBUG_BUCKETS];
    char *freed[WR_DEBUG_FREED_KEPT]; /* addresses, in a ring: whose turn it is is forgotten */
    uint64_t frees;
    wr_told told[WR_DEBUG_TOLD];
    unsigned told_count;
    struct wr_poisoned_tree poisoned; /* freed memory by address, no two overlap */
    size_t poisoned_count;
    wr_scratch *awaited; /* a copy may still come there, since waiting for it failed: kept to the end */
};

/* Where in its bucket the address is, or would be. */
wr_known **wr_debug_link_locked(wr_debug *d, const void *base);

WR_CHECKED weir_status wr_debug_scratch(size_t bytes, wr_scratch **out);

/* Reads what is there when all that the stream has to do is done, unless it captures by then, or others keep it busy. *awaited,
 * false before: waiting for the copy failed. */
WR_CHECKED weir_status wr_debug_read(wr_device *device, const wr_stream *stream, const void *from, size_t bytes,
                                     wr_scratch *scratch, bool *awaited);
void wr_debug_scratch_done(wr_debug *d, wr_scratch *scratch, bool awaited);

/* Behind what is there: "\nallocated by thread 3: solve (solver+0x4c1d), main (solver+0x1a2b)"; nothing when the stack is
 * not known. */
void wr_debug_put_call(char *text, size_t capacity, const char *title, const wr_call *c);

/* Whether memory of the stream must be left alone now, because of a capture. */
bool wr_debug_captures(const wr_device *device, const wr_stream *stream);

/* ---- streams (debug_streams.c): nothing is done without WR_DEBUG_STREAMS ------------------------------------------- */

/* A block that is about to be entered; `before` is what was there, if anything. The lock is held. */
void wr_debug_streams_made_locked(const wr_debug *d, wr_known *made, const wr_known *before);

void wr_debug_streams_recorded_locked(wr_known *k, uint64_t stream_id);

/* A block that was freed, as it was known before. `current`: as wr_debug_free has it. */
void wr_debug_streams_freed(wr_device *device, const wr_known *k, const wr_stream *current, wr_call here);

/* The moment now: later than all before. */
uint64_t wr_debug_moment(void);

/* Counts what was found of the block and records it: a stream's number, and the stack of the call that it is about. */
void wr_debug_found(wr_device *device, weir_event_kind what, const wr_known *k, uint64_t stream, uint32_t stack);

/* True when the same was not told yet of the same two stacks. */
bool wr_debug_is_new(wr_device *device, weir_event_kind what, uint32_t first, uint32_t second);

/* A stream as users see it: the native one; 0 when it has ended. */
uint64_t wr_debug_stream_number(uint64_t stream_id);

/* Queues a fill of memory, of weir's own. WEIR_ERR_CAPTURE: it could become part of a graph. */
WR_CHECKED weir_status wr_debug_fill(const wr_device *device, wr_stream *stream, void *base, unsigned char value,
                                     size_t bytes);

void wr_debug_log_call(wr_log_level level, const char *title, const wr_call *c);

/* ---- poison (debug_poison.c) --------------------------------------------------------------------------------------- */

/* Overwrites a block that is about to be freed, in stream order. */
void wr_debug_poison(wr_device *device, const wr_segment *segment, wr_stream *stream, const wr_known *k, wr_call here);

#endif
