/*
 * input: recorded allocation traces of any format, as one array of weir_event.
 * Owner: the caller of trace_read, until trace_release. No locks: one thread reads a trace. A new format is one file
 * and one row in input.c's table.
 */
#ifndef WEIR_TOOLS_INPUT_H
#define WEIR_TOOLS_INPUT_H

#include "weir/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Settings of the recorded allocator, where the file has them (PyTorch snapshots do). */
typedef struct trace_settings {
    bool known;
    bool expandable_segments;
    uint64_t max_split_size; /* 0: unlimited */
    double gc_threshold;
    char roundup_power2_divisions[256]; /* in PyTorch's grammar; "" when off */
    char config[512];                   /* PYTORCH_CUDA_ALLOC_CONF as recorded, cut to fit */
} trace_settings;

/* A block that was live when the snapshot was taken (PyTorch snapshots list them). */
typedef struct trace_live {
    uint64_t address, bytes, requested, stream, pool[2];
    uint32_t stack; /* where it was allocated; 0: not known */
    int16_t device;
    bool pending; /* freed, waiting for a stream */
} trace_live;

/* A segment as it stood when the snapshot was taken. */
typedef struct trace_segment {
    uint64_t address, bytes, stream, pool[2];
    int16_t device;
    bool mapped; /* it grows by mapping, so adjacent pieces belong to one segment */
} trace_segment;

/* Where allocations were made: distinct stacks of distinct frames, where the file has them. */
typedef struct trace_stacks {
    char **frames; /* "train.py:12:step" */
    size_t frame_count;
    uint32_t *items; /* frames of the stacks, innermost first */
    size_t *first;   /* stack i is items[first[i]] to items[first[i + 1]] */
    size_t count;    /* including stack 0, which is empty; 0: the file has no stacks */
    uint32_t *of;    /* an event's stack; NULL: the file has none */
    uint64_t lost;   /* how often a stack was left out, where the file says */
} trace_stacks;

typedef struct trace {
    char *name;         /* the file's name without folders and without .pickle.gz and the like */
    const char *format; /* "pytorch-snapshot", "rmm-csv", "weir" */
    weir_event *events; /* in recorded order for each device; devices merged stably by time */
    size_t count;
    uint64_t dropped; /* events lost before the first one, where the file says */
    trace_live *live; /* blocks live at the end, where the file lists them; by device, then address */
    size_t live_count;
    trace_segment *segments; /* likewise */
    size_t segment_count;
    trace_stacks stacks;
    trace_settings settings;
} trace;

/* The stack of an event; 0, the empty stack, for all events of a file without stacks. */
static inline uint32_t trace_stack(const trace *t, size_t event)
{
    return t->stacks.of ? t->stacks.of[event] : 0;
}

/* Whether events of the kind are what the program asked for: a timeline counts these. */
static inline bool trace_kind_is_operation(uint16_t kind)
{
    return kind == WEIR_EVENT_ALLOC || kind == WEIR_EVENT_FREE_REQUESTED;
}

/* Whether events of the kind take memory from the driver, or give it back. */
static inline bool trace_kind_takes(uint16_t kind)
{
    return kind == WEIR_EVENT_SEGMENT_ALLOC || kind == WEIR_EVENT_SEGMENT_MAP;
}

static inline bool trace_kind_gives(uint16_t kind)
{
    return kind == WEIR_EVENT_SEGMENT_FREE || kind == WEIR_EVENT_SEGMENT_UNMAP;
}

/* The address range is there already or stays; memory comes behind it, or goes. */
static inline bool trace_kind_maps(uint16_t kind)
{
    return kind == WEIR_EVENT_SEGMENT_MAP || kind == WEIR_EVENT_SEGMENT_UNMAP;
}

/* Where and why reading failed. */
typedef struct trace_error {
    uint64_t offset; /* byte of the (decompressed) input */
    char text[256];  /* "opcode 0x63 (GLOBAL) is not data", without path and offset */
} trace_error;

/* Reports how far reading is, for a progress bar; `total` is 0 when unknown. May be NULL. */
typedef void (*trace_progress)(void *user, uint64_t bytes_read, uint64_t total);

/* Bounds on hostile input; trace_limits_default are far above any real file. */
typedef struct trace_limits {
    uint64_t events, memo, stack, depth, string_bytes;
} trace_limits;
extern const trace_limits trace_limits_default;

/* Reads `path` ("-": standard input), gzipped or not; the content tells the format. False: *error says why and where,
 * *out is empty. */
bool trace_read(const char *path, trace *out, trace_error *error, trace_progress progress, void *user);

/* Whether a path has an extension that hardly anything but traces has. */
bool trace_is_named(const char *path);

/* The path without folders and trace extensions: "runs/gpt2.v1.pickle.gz" becomes "gpt2.v1". The caller frees it; NULL:
 * no memory. */
char *trace_name_of(const char *path);

/* As trace_read, from memory, with limits: for fuzzers and tests. */
bool trace_read_memory(const void *bytes, size_t count, const trace_limits *limits, trace *out, trace_error *error);

void trace_release(trace *t);

#endif
