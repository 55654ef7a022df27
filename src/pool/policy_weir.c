/*
 * weir's own rules, the default, for memory made of chunks: any block that is large enough is split, since free memory
 * can be had at another address. Pools that are not made of chunks have segments.
 */
#include "base/size.h"
#include "pool/policy.h"

static void fit(const wr_policy_options *options, size_t requested, wr_fit *out)
{
    wr_policy_torch.fit(options, requested, out);
    out->segment_bytes = wr_round_up(out->block_bytes, WR_SEGMENT_UNIT);
}

const wr_policy wr_policy_weir = {
    .name = "weir",
    .of_segments = &wr_policy_segments,
    .rehome = true,
    .parks = true,
    .fit = fit,
    .plain_max = wr_policy_torch_plain_max,
    .large_unit = 512,
};
