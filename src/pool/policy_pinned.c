/*
 * The rules for pinned host memory. Nothing is rounded to powers of two: small blocks are rounded to 512 bytes, others
 * to 64 KiB. Only blocks up to 8 MiB share segments that are larger than the request.
 */
#include "base/size.h"
#include "pool/policy.h"

enum { QUANTUM = 512 };
static const size_t LARGE_QUANTUM = 64 * WR_KIB;
static const size_t SHARED_MAX = 8 * WR_MIB;
static const size_t SHARED_SEGMENT = 16 * WR_MIB;

static void fit(const wr_policy_options *options, size_t requested, wr_fit *out)
{
    (void)options;
    const bool small = requested <= WR_SMALL_MAX;
    const size_t bytes = wr_round_up(requested, small ? QUANTUM : LARGE_QUANTUM);
    size_t segment = WR_SEGMENT_UNIT;
    if (!small) segment = bytes <= SHARED_MAX ? SHARED_SEGMENT : wr_round_up(bytes, WR_SEGMENT_UNIT);
    *out = (wr_fit){ .block_bytes = bytes, .segment_bytes = segment, .class = small ? WR_SMALL : WR_LARGE };
}

static bool splits(const wr_policy_options *options, const wr_fit *request, size_t candidate)
{
    (void)options;
    return candidate - request->block_bytes >= (request->class == WR_SMALL ? (size_t)QUANTUM : LARGE_QUANTUM);
}

const wr_policy wr_policy_pinned = {
    .name = "pinned",
    .fit = fit,
    .splits = splits,
};
