/*
 * numa: the machine's NUMA nodes, and placing memory on one of them. Needs no library. Any thread; no lock.
 */
#ifndef WR_BASE_NUMA_H
#define WR_BASE_NUMA_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WR_NUMA_NODES 256 /* higher numbers are ignored: no machine has them */

/* The nodes that have memory. */
typedef struct wr_numa {
    uint64_t present[WR_NUMA_NODES / 64];
    uint32_t count;
} wr_numa;

/* If the system does not list its nodes: node 0. */
void wr_numa_read(wr_numa *out);

static inline bool wr_numa_has(const wr_numa *numa, int node)
{
    return node >= 0 && node < WR_NUMA_NODES && (numa->present[node / 64] >> (node % 64) & 1);
}

/* Binds whole pages that nobody has touched yet to the node. WEIR_ERR_NOT_SUPPORTED when the system or its rules for
 * this process forbid it. */
WR_CHECKED weir_status wr_numa_bind(void *base, size_t bytes, int node);

/* Tests: pretends that the machine has the nodes of a list ("0-1,4"), and that binding to a node fails with `error` (0:
 * succeeds, doing nothing). NULL ends that. Not while other threads are in weir. */
void wr_numa_pretend(const char *nodes, int error);

#endif
