/*
 * space: which ranges of a span [0, bytes) are taken: of an address range, or of a file. Bookkeeping only, no system
 * call. First fit by address, so equal calls give equal places; every operation is O(log ranges).
 * Owner: what the span describes (an arena, a device's memory file, a reservation); its lock guards the span too.
 */
#ifndef WR_BACKEND_HOST_SPACE_H
#define WR_BACKEND_HOST_SPACE_H

#include "base/status.h"

#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum wr_host_use {
    WR_HOST_SEGMENT,
    WR_HOST_MANAGED,
    WR_HOST_PINNED,
    WR_HOST_RESERVATION,
    WR_HOST_CHUNK,
    WR_HOST_MAP
} wr_host_use;

struct wr_host_space;

/* A free or a taken range. */
typedef struct wr_host_range {
    RB_ENTRY(wr_host_range) links;
    uint64_t base, bytes;
    uint64_t largest; /* free ranges: the most bytes of any in this one's subtree */

    /* Taken ranges only; set by the caller that takes it. */
    wr_host_use use;
    struct wr_host_space *maps;  /* WR_HOST_RESERVATION: what is mapped into it, by offset from its base */
    struct wr_host_range *chunk; /* WR_HOST_MAP: what is mapped */
    bool accessible;             /* WR_HOST_MAP: access was given, and its memory is mapped */
    uint64_t handle;             /* WR_HOST_CHUNK: the weir_chunk */
    uint64_t map_count;          /* WR_HOST_CHUNK: how often it is mapped */
    bool destroyed;              /* WR_HOST_CHUNK: lives on only because it is mapped */
    uint64_t charged;            /* WR_HOST_CHUNK: bytes counted against the device; 0 when it is another's */
    int file;                    /* WR_HOST_CHUNK: its own file, for other processes; -1: it is in the device's file */
} wr_host_range;

RB_HEAD(wr_host_tree, wr_host_range);

typedef struct wr_host_space {
    struct wr_host_tree vacant, taken;
} wr_host_space;

WR_CHECKED weir_status wr_host_space_init(wr_host_space *space, uint64_t bytes);

/* Frees the records of all ranges. */
void wr_host_space_clear(wr_host_space *space);

/* Takes the first vacant place that is large enough; `alignment` is a power of two. If there is none, *range is NULL
 * and the result WEIR_OK, because only the caller can say what that means. */
WR_CHECKED weir_status wr_host_space_take(wr_host_space *space, uint64_t bytes, uint64_t alignment,
                                          wr_host_range **range);

/* Takes exactly this place; *range is NULL when any of it is taken or outside the span. */
WR_CHECKED weir_status wr_host_space_take_at(wr_host_space *space, uint64_t base, uint64_t bytes,
                                             wr_host_range **range);

/* Makes a taken range vacant and frees its record. */
void wr_host_space_give(wr_host_space *space, wr_host_range *range);

/* The taken range that starts at `base`; the one that contains `place`; the first after `range`. NULL: there is
 * none. */
wr_host_range *wr_host_space_find(const wr_host_space *space, uint64_t base);
wr_host_range *wr_host_space_around(const wr_host_space *space, uint64_t place);
wr_host_range *wr_host_space_next(wr_host_range *range);

bool wr_host_space_empty(const wr_host_space *space);

/* The first taken range; NULL when there is none. */
wr_host_range *wr_host_space_first(wr_host_space *space);

#endif
