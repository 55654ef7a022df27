/*
 * script: a trace made ready for replay. Addresses have become slots, streams and devices indices, so that the timed
 * loop needs no lookups. A gate stands for another stream that still uses freed blocks: they wait at it and pass, in
 * order, as their uses end.
 * Owner: the caller of script_build, until script_release. Immutable in between.
 */
#ifndef WEIR_TOOLS_SCRIPT_SCRIPT_H
#define WEIR_TOOLS_SCRIPT_SCRIPT_H

#include "input/input.h"

typedef enum script_kind {
    SCRIPT_ALLOC, /* `bytes` on stream `where`, into the slot */
    SCRIPT_FREE,  /* reusable at once on its own stream; among a RELIEVE's operations maybe not: then it can wait at
                          gate `where` */
    SCRIPT_FREE_LATER, /* freed while another stream still uses it; waits at gate `where` */
    SCRIPT_COMPLETE,   /* the first block that waits at gate `where` passes */
    SCRIPT_EMPTY,      /* the program emptied the cache of device `where` */
    SCRIPT_EMPTY_POOL, /* the idle memory of the private pool of stream `where` went */
    SCRIPT_RELIEVE, /* the recorded allocator was short of memory: it waited for uses, among them those that end in the
                          next `slot` operations, and gave memory back to get other memory; not played under every
                          policy */
    SCRIPT_REFUSED  /* `bytes` on stream `where` could not be had; played only on request */
} script_kind;

typedef struct script_op {
    uint64_t bytes; /* of EMPTY and RELIEVE: what was given back; 0: none was taken right after */
    uint32_t slot;
    uint32_t kind : 3; /* script_kind */
    uint32_t where : 29;
} script_op;

typedef struct script_ops {
    script_op *at;
    size_t count, capacity;
} script_ops;

typedef struct script_stream {
    uint64_t number; /* as recorded; 0 is the default stream */
    int device;
    uint32_t pool; /* 0 is the default pool; others are numbered in the order of their first events */
} script_stream;

/* A SEGMENT_ALLOC or SEGMENT_FREE as recorded. */
typedef struct script_segment {
    uint64_t address, bytes, stream;
    weir_event_kind kind;
    int device;
} script_segment;

/* What makes the state that the recording began in, under PyTorch's native rules: script/start.h. */
typedef struct script_start {
    const char *unknown;      /* why that cannot be made; NULL: it can */
    script_ops ops;           /* in place of `before`; empty: nothing was held */
    script_segment *segments; /* the segments, in the order in which they are made */
    size_t count, capacity;
    size_t slots;   /* those of the script, and of `ops` */
    size_t guesses; /* large blocks of which it is unknown how much they have */
} script_start;

typedef struct script {
    /* Makes the residents: blocks from before the first event, some of them freed and still in use. */
    script_ops before;
    script_ops body;  /* the trace */
    script_ops after; /* frees what the trace left, so that passes are equal */
    script_start start;
    size_t slots;
    size_t operations; /* allocations and frees in the body */
    size_t residents;
    size_t anomalies;       /* events that make no sense where they stand */
    size_t refused;         /* allocations in the body that failed when recorded */
    uint64_t refused_first; /* bytes that the first of them asked for */
    uint64_t duration_ns;   /* from the first event to the last, as recorded; 0 when there are no times */

    script_stream *streams;
    size_t stream_count, stream_capacity;
    int *gates; /* the device of each; blocks pass a gate in order */
    size_t gate_count;
    double *held;             /* by device: the most bytes of segments, with those from before the first event */
    script_segment *segments; /* in recorded order */
    size_t segment_count, segment_capacity;
    int devices;     /* highest device index + 1 */
    bool expandable; /* segments grew by mapping, so their events say nothing about native segments */
} script;

/* Room for why something could not be replayed: an error of the library's with its context. */
enum { SCRIPT_ERROR = 1200 };

/* False: error[] says which event cannot be replayed and why; *out is empty. */
bool script_build(const trace *t, script *out, char *error, size_t error_size);

/* No policy has more devices than the host back end can have. False: error[] says so. */
bool script_is_playable(const script *sc, char error[SCRIPT_ERROR]);

void script_release(script *s);

/* The allocation, made or refused, that a RELIEVE was to make room for; NULL if something else came before it. */
const script_op *script_relieved(const script *s, const script_op *from);

/* An allocation or a free: what counts as an operation. */
static inline bool script_op_is_operation(const script_op *op)
{
    return op->kind == SCRIPT_ALLOC || op->kind == SCRIPT_FREE || op->kind == SCRIPT_FREE_LATER;
}

#endif
