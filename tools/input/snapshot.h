/*
 * snapshot: PyTorch's memory snapshots (torch.cuda.memory._dump_snapshot, memory_snapshot, and the C++ writer), read
 * from their pickle: the events of each device, the blocks and segments at the end, the allocator's settings.
 */
#ifndef WEIR_TOOLS_INPUT_SNAPSHOT_H
#define WEIR_TOOLS_INPUT_SNAPSHOT_H

#include "source.h"

bool snapshot_detect(const uint8_t *head, size_t count);

/* On false the source's error is set; *out may hold something and is released by the caller either way. */
bool snapshot_read(source *s, const trace_limits *limits, trace *out);

#endif
