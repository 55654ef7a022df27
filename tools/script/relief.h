/*
 * relief: runs of segments that the recorded allocator gave back, and whether it did so because memory was short. Each
 * run becomes an EMPTY or, as one that was short, a RELIEVE, with what the allocator may have waited for behind it.
 * Owner: the builder of the script, until reliefs_release.
 */
#ifndef WEIR_TOOLS_SCRIPT_RELIEF_H
#define WEIR_TOOLS_SCRIPT_RELIEF_H

#include "script/script.h"

/* Of one device. Indices are those of operations in the body. */
typedef struct giving {
    size_t last, first;   /* the last EMPTY, and the first one of the same shortage; `last` of 0: none since memory was
                            taken */
    double held, most;    /* bytes of segments, counted from the recording's beginning; hostile sizes do not overflow */
    double held_before;   /* at `first` */
    bool asked;           /* the last EMPTY's stack says that the program emptied the cache */
    uint64_t gone;        /* bytes that it gave back; 0: and yet an allocation failed */
    weir_event *segments; /* that were given back since `first` */
    size_t count, capacity;
    bool in_run;   /* since something else happened, an EMPTY or a shortage has given memory back */
    bool chosen;   /* max_split_size may have chosen the first of them */
    bool relieved; /* the last segment was taken after others were given back, by `relief` */
    size_t relief;
    uint64_t *ended; /* addresses of blocks whose uses ended since the last free, with it, or allocation */
    size_t ended_count, ended_capacity;
} giving;

typedef struct relief relief;

typedef struct reliefs {
    const trace *t;
    script *s;
    giving *devices;
    relief *at;
    size_t count, capacity;
} reliefs;

void reliefs_open(reliefs *r, const trace *t, script *s);
void reliefs_release(reliefs *r);

/* A free was requested; it was completed. */
void reliefs_freed(reliefs *r, int device);
void reliefs_ended(reliefs *r, const weir_event *event);

/* A segment was given back. `begins`: the device's event before was another. A run of private pools' segments alone is
 * no EMPTY, since a pool that goes takes its own with it, unless the stack says that the program emptied the cache. */
void reliefs_gave(reliefs *r, const weir_event *event, bool begins);

/* A segment was taken. `relieved`: right after others were given back. `captures`: for a capture. `freed`: the device's
 * last free. */
void reliefs_took(reliefs *r, const weir_event *event, bool relieved, bool captures, size_t freed);

/* An allocation was made. */
void reliefs_allocated(reliefs *r, const weir_event *event);

/* An allocation failed. True: memory was given back in its favour, in an order that only such an allocation repeats. */
bool reliefs_failed(reliefs *r, const weir_event *event, size_t freed);

/* Once all gates are open; s->gates has room for one more on each device. */
void reliefs_settle(const reliefs *r);

#endif
