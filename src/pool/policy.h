/*
 * policy: where a request goes, apart from how. A policy decides sizes, when a block is split and when a larger one
 * is too large; the cache does the work. Policies are constant tables without state.
 */
#ifndef WR_POOL_POLICY_H
#define WR_POOL_POLICY_H

#include "base/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Size classes, which never share a segment, nor addresses of chunks unless memory is short. A stream has a bin for each, and
 * one of places that a plan gives out (pool/serve.h), from whose free blocks no request is served. */
typedef enum wr_class { WR_SMALL, WR_LARGE, WR_CLASSES, WR_PLANNED = WR_CLASSES, WR_BINS } wr_class;

#define WR_SMALL_MAX ((size_t)1 << 20)

/* The options a policy listens to, in bytes. */
typedef struct wr_policy_options {
    size_t max_split; /* SIZE_MAX: every block may be split */
    size_t large_segment;
    size_t non_split_rounding; /* a block that is not split serves what is less than so much smaller */
    double gc_threshold;
    uint32_t roundup[WR_ROUNDUP_ENTRIES];
} wr_policy_options;

/* What a policy makes of a request. */
typedef struct wr_fit {
    size_t block_bytes;   /* size of the block to hand out */
    size_t segment_bytes; /* what to take from the driver when no block fits; a multiple of WR_SEGMENT_UNIT */
    wr_class class;
} wr_fit;

/* Segments are multiples of the driver's page, so that no page is shared with a stranger. */
#define WR_SEGMENT_UNIT_LOG2 21u
#define WR_SEGMENT_UNIT ((size_t)1 << WR_SEGMENT_UNIT_LOG2)

/* Requests above this are refused before any arithmetic on them can overflow. */
#define WR_REQUEST_MAX ((size_t)1 << 60)

typedef struct wr_policy {
    const char *name;
    /* It is for memory made of chunks; this one is for what is not. NULL: it is that. */
    const struct wr_policy *of_segments;
    bool poll_always; /* look at pending frees at every allocation, not only on a miss */
    bool rehome;      /* under pressure, move idle segments of other streams here instead of releasing them */
    bool parks; /* freed blocks wait whole for a request of their size, if one comes before anything else is missed */
    bool release_all; /* under pressure, give back all idle segments, not just enough of them */

    void (*fit)(const wr_policy_options *options, size_t requested, wr_fit *fit);
    /* Where it parks: blocks for requests of up to so many bytes may be the next multiple of 512, above WR_SMALL_MAX of large_unit. */
    size_t (*plain_max)(const wr_policy_options *options);
    size_t large_unit; /* a power of two */
    /* May a request take a free block of `candidate` bytes, the smallest that is large enough? NULL: it may. */
    bool (*takes)(const wr_policy_options *options, const wr_fit *fit, size_t candidate);
    /* Is the rest of a block of `candidate` bytes cut off for others? NULL: it is, since blocks are multiples of 512. */
    bool (*splits)(const wr_policy_options *options, const wr_fit *fit, size_t candidate);
} wr_policy;

extern const wr_policy wr_policy_torch;
extern const wr_policy wr_policy_segments;
extern const wr_policy wr_policy_weir;
extern const wr_policy wr_policy_pinned; /* of pinned host memory; not to be chosen by name */

/* plain_max of PyTorch's rules, before what a policy adds. */
size_t wr_policy_torch_plain_max(const wr_policy_options *options);

/* NULL for a name that is none. */
const wr_policy *wr_policy_by_name(const char *name);

/* Reads the options a policy listens to. */
WR_CHECKED weir_status wr_policy_options_read(const wr_options *options, wr_policy_options *out);

#endif
