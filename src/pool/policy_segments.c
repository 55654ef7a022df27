/*
 * weir's own rules for segments: on devices without virtual memory, and in private pools whose rules concern segments.
 * They use PyTorch's sizes, split off everything that can be split off, and poll pending frees only when those are
 * needed.
 */
#include "base/size.h"
#include "pool/policy.h"

enum { QUANTUM = 512 };

#define LARGE_REST_MIN (64 * WR_KIB) /* the least that is worth splitting off a large block */

static void fit(const wr_policy_options *options, size_t requested, wr_fit *out)
{
    wr_policy_torch.fit(options, requested, out);
    if (out->class == WR_LARGE) out->block_bytes = wr_round_up(out->block_bytes, LARGE_REST_MIN);
    /* A segment of max_split_size is not split once idle, so the next request like this one must be able to have all of
     * it. Under PyTorch's rules such segments pile up. */
    if (out->block_bytes < options->max_split && out->segment_bytes >= options->max_split)
        out->block_bytes = out->segment_bytes;
}

/* With max_split_size, the block size of a large request depends on its segment. */
static size_t plain_max(const wr_policy_options *options)
{
    const size_t most = wr_policy_torch_plain_max(options);
    return options->max_split == SIZE_MAX || most < WR_SMALL_MAX ? most : WR_SMALL_MAX;
}

static bool splits(const wr_policy_options *options, const wr_fit *request, size_t candidate)
{
    size_t rest = candidate - request->block_bytes;
    if (request->class == WR_SMALL) return rest >= QUANTUM;
    return request->block_bytes < options->max_split && rest >= LARGE_REST_MIN;
}

static bool takes(const wr_policy_options *options, const wr_fit *request, size_t candidate)
{
    return wr_policy_torch.takes(options, request, candidate);
}

const wr_policy wr_policy_segments = {
    .name = "segments",
    .rehome = true,
    .parks = true,
    .fit = fit,
    .plain_max = plain_max,
    .large_unit = LARGE_REST_MIN,
    .takes = takes,
    .splits = splits,
};
