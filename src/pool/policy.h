/*
 * policy: decides where a request goes; the cache does the work. A policy chooses sizes, when a block is split, and
 * when a larger block is too large. Policies are constant tables without state.
 */
#ifndef WR_POOL_POLICY_H
#define WR_POOL_POLICY_H

#include "base/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Size classes, which never share a segment, nor addresses of chunks unless memory is short. A stream has a bin for
 * each, and one for places that a plan gives out, which serve other requests only as pool/plan/serve.h says. */
typedef enum wr_class { WR_SMALL, WR_LARGE, WR_CLASSES, WR_PLANNED = WR_CLASSES, WR_BINS } wr_class;

#define WR_SMALL_MAX ((size_t)1 << 20)

/* The options that policies use, in bytes. */
typedef struct wr_policy_options {
    size_t max_split; /* SIZE_MAX: every block may be split */
    size_t large_segment;
    size_t non_split_rounding; /* a block that is not split serves requests smaller by less than this */
    double gc_threshold;
    uint32_t roundup[WR_ROUNDUP_ENTRIES];
} wr_policy_options;

/* What a policy makes of a request. */
typedef struct wr_fit {
    size_t block_bytes;   /* size of the block to hand out */
    size_t segment_bytes; /* what to take from the driver when no block fits; a multiple of WR_SEGMENT_UNIT */
    wr_class class;
} wr_fit;

/* Segments are multiples of the driver's page, so that no page is shared with other memory. */
#define WR_SEGMENT_UNIT_LOG2 21u
#define WR_SEGMENT_UNIT ((size_t)1 << WR_SEGMENT_UNIT_LOG2)

/* Requests above this are refused before any arithmetic on them can overflow. */
#define WR_REQUEST_MAX ((size_t)1 << 60)

typedef struct wr_policy {
    const char *name;
    /* For memory not made of chunks, where this one is for chunks. NULL: this one is for segments. */
    const struct wr_policy *of_segments;
    bool poll_always; /* poll pending frees at every allocation, not only on a miss */
    bool rehome;      /* under pressure, move idle segments of other streams to this one instead of releasing them */
    bool parks;       /* freed blocks wait whole for a request of their size, until anything else is missed */
    bool release_all; /* under pressure, give back all idle segments, not just enough */
    bool exact;       /* under pressure, wait for all pending frees, and search for them only after that */

    void (*fit)(const wr_policy_options *options, size_t requested, wr_fit *fit);
    /* If it parks: the largest request whose block may be the next multiple of 512 or, above WR_SMALL_MAX, of
     * large_unit. */
    size_t (*plain_max)(const wr_policy_options *options);
    size_t large_unit; /* a power of two */
    /* Whether a request may take a free block of `candidate` bytes, the smallest that is large enough. NULL: always. */
    bool (*takes)(const wr_policy_options *options, const wr_fit *fit, size_t candidate);
    /* Whether the rest of a block of `candidate` bytes is split off. NULL: always; blocks are multiples of 512. */
    bool (*splits)(const wr_policy_options *options, const wr_fit *fit, size_t candidate);
} wr_policy;

extern const wr_policy wr_policy_torch;
extern const wr_policy wr_policy_torch_exact; /* the same to the letter, where memory is short: for replays */
extern const wr_policy wr_policy_segments;
extern const wr_policy wr_policy_weir;
extern const wr_policy wr_policy_pinned; /* for pinned host memory; not to be chosen by name */

/* plain_max under PyTorch's rules, before a policy's own restrictions. */
size_t wr_policy_torch_plain_max(const wr_policy_options *options);

/* NULL: there is no policy of that name. */
const wr_policy *wr_policy_by_name(const char *name);

WR_CHECKED weir_status wr_policy_options_read(const wr_options *options, wr_policy_options *out);

#endif
