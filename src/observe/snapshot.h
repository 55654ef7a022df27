/*
 * snapshot: where every block is at one instant, and the events that led there; written in PyTorch's format, or as a
 * trace. Plain data, filled by pool/report/snapshot.h. Owner: the caller. No lock.
 */
#ifndef WR_OBSERVE_SNAPSHOT_H
#define WR_OBSERVE_SNAPSHOT_H

#include "observe/output.h"
#include "observe/settings.h"
#include "weir/observe.h"
#include "weir/trace.h"

typedef struct wr_snapshot_block {
    uint64_t address, bytes, requested; /* requested: 0 when free */
    uint32_t stack;                     /* of the call that allocated it; 0: not known */
    weir_block_state state;
} wr_snapshot_block;

typedef struct wr_snapshot_segment {
    uint64_t address, bytes, stream; /* stream: the native one */
    weir_mempool pool;
    bool is_small, is_expandable;
    wr_snapshot_block *blocks; /* part of the device's array */
    size_t count;
} wr_snapshot_segment;

/* All zero for a device that is not part of the snapshot. */
typedef struct wr_snapshot_device {
    wr_snapshot_segment *segments; /* by address */
    wr_snapshot_block *blocks;
    weir_event *events;
    uint32_t *event_stacks; /* NULL: they have none */
    size_t segment_count, block_count, event_count;
    uint64_t history; /* events that the history keeps; 0: none are wanted */
    bool overflowed;  /* older events are gone */
} wr_snapshot_device;

typedef struct wr_snapshot {
    wr_snapshot_device *devices;
    int device_count;
    wr_settings settings;
} wr_snapshot;

void wr_snapshot_release(wr_snapshot *snapshot);

/* Both writers fail only for want of memory, for the labels of the events and the stacks. */
WR_CHECKED weir_status wr_snapshot_write_pickle(wr_output *out, const wr_snapshot *snapshot);

/* Writes the blocks as events, as if they had been allocated just now, one after the other. */
WR_CHECKED weir_status wr_snapshot_write_trace(wr_output *out, const wr_snapshot *snapshot);

#endif
