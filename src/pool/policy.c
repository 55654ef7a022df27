#include "pool/policy.h"

#include "base/size.h"

#include <string.h>

static const wr_policy *const policies[] = { &wr_policy_weir, &wr_policy_segments, &wr_policy_torch,
                                             &wr_policy_torch_exact };

const wr_policy *wr_policy_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++)
        if (strcmp(policies[i]->name, name) == 0) return policies[i];
    return NULL;
}

weir_status wr_policy_options_read(const wr_options *options, wr_policy_options *out)
{
    wr_policy_options o = { 0 };
    uint64_t max_split = options->value[WR_OPTION_max_split_size].number;
    uint64_t large = options->value[WR_OPTION_large_segment].number;
    uint64_t rounding = options->value[WR_OPTION_max_non_split_rounding].number;
    WR_TRY(wr_options_parse_roundup(options->value[WR_OPTION_roundup_power2_divisions].text, o.roundup));
    o.large_segment = wr_round_up((size_t)large, WR_SEGMENT_UNIT);
    /* PyTorch allows both to be the same, and gives up the idle segments. The other policies would never split them. */
    const wr_policy *policy = wr_policy_by_name(options->value[WR_OPTION_policy].text);
    const bool torch = policy == &wr_policy_torch || policy == &wr_policy_torch_exact;
    WR_ENSURE(
        max_split == 0 || max_split > o.large_segment || (torch && max_split >= large), WEIR_ERR_OPTION,
        "option max_split_size: %llu is %s large_segment (%zu bytes), so no idle segment could be split again; make "
        "it larger, or 0",
        (unsigned long long)max_split, torch ? "below" : "not above", o.large_segment);
    o.non_split_rounding = rounding == 0 ? o.large_segment : (size_t)rounding;
    o.max_split = max_split == 0 ? SIZE_MAX : (size_t)max_split;
    o.gc_threshold = options->value[WR_OPTION_gc_threshold].share;
    *out = o;
    return WEIR_OK;
}
