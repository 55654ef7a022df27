/*
 * numa: the machine's NUMA nodes, and putting memory on one of them. No library is needed for either. Any thread; no
 * lock.
 */
#ifndef WR_BASE_NUMA_H
#define WR_BASE_NUMA_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WR_NUMA_NODES 256 /* numbers beyond are not used: no machine has them */

/* The nodes that have memory. */
typedef struct wr_numa {
    uint64_t present[WR_NUMA_NODES / 64];
    uint32_t count;
} wr_numa;

/* A machine that does not tell has node 0. */
void wr_numa_read(wr_numa *out);

static inline bool wr_numa_has(const wr_numa *numa, int node)
{
    return node >= 0 && node < WR_NUMA_NODES && (numa->present[node / 64] >> (node % 64) & 1);
}

/* Pages of whole-page memory that nobody has touched will lie on the node. WEIR_ERR_NOT_SUPPORTED when the system or its
 * rules for this process forbid it. */
WR_CHECKED weir_status wr_numa_bind(void *base, size_t bytes, int node);

/* Tests: the machine has the nodes of a list ("0-1,4"), and binding to one does nothing but fail with `error` (0: does
 * not). NULL: the machine is as it is. Not while other threads are in weir. */
void wr_numa_pretend(const char *nodes, int error);

#endif
