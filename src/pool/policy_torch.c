/*
 * PyTorch's native rules (CUDACachingAllocator.cpp, 2025-12): same segments, same splits, same reuse, so that a
 * recorded program reserves what it reserved when it was recorded.
 */
#include "base/size.h"
#include "pool/policy.h"

enum { MIN_BLOCK = 512 };
static const size_t SMALL_SEGMENT = 2 * WR_MIB;
static const size_t LARGE_MIN_OWN = 10 * WR_MIB; /* from here on a segment is made to measure */

/* Requests below 2 MiB use the first entry, above 32 GiB the last. */
static uint32_t divisions_for(const wr_policy_options *options, size_t bytes)
{
    unsigned log2 = 63u - (unsigned)__builtin_clzll(bytes);
    unsigned entry = log2 < 20 ? 0 : log2 - 20;
    return options->roundup[entry < WR_ROUNDUP_ENTRIES ? entry : WR_ROUNDUP_ENTRIES - 1];
}

/* Rounds up to the next of `divisions` equal steps between two powers of two; powers of two stay as they are, being
 * multiples of their step. No step is 0, since `bytes` is above MIN_BLOCK * divisions. */
static size_t round_to_division(size_t bytes, uint32_t divisions)
{
    size_t floor = (size_t)1 << (63u - (unsigned)__builtin_clzll(bytes));
    size_t step = floor / divisions;
    return (bytes + step - 1) & ~(step - 1);
}

static size_t round_request(const wr_policy_options *options, size_t bytes)
{
    if (bytes < MIN_BLOCK) return MIN_BLOCK;
    uint32_t divisions = divisions_for(options, bytes);
    if (divisions > 1 && bytes > (size_t)MIN_BLOCK * divisions) return round_to_division(bytes, divisions);
    return wr_round_up(bytes, MIN_BLOCK);
}

size_t wr_policy_torch_plain_max(const wr_policy_options *options)
{
    for (int i = 0; i < WR_ROUNDUP_ENTRIES; i++)
        if (options->roundup[i] > 1) return 0;
    return WR_REQUEST_MAX;
}

static void fit(const wr_policy_options *options, size_t requested, wr_fit *out)
{
    size_t bytes = round_request(options, requested);
    size_t segment = SMALL_SEGMENT;
    if (bytes > WR_SMALL_MAX) segment = options->large_segment;
    if (bytes >= LARGE_MIN_OWN || bytes > segment) segment = wr_round_up(bytes, WR_SEGMENT_UNIT);
    *out = (wr_fit){ .block_bytes = bytes,
                     .segment_bytes = segment,
                     .class = bytes <= WR_SMALL_MAX ? WR_SMALL : WR_LARGE };
}

/* Oversize blocks serve only oversize requests of nearly their size. */
static bool takes(const wr_policy_options *options, const wr_fit *request, size_t candidate)
{
    if (candidate < options->max_split) return true;
    return request->block_bytes >= options->max_split && candidate < request->block_bytes + options->non_split_rounding;
}

static bool splits(const wr_policy_options *options, const wr_fit *request, size_t candidate)
{
    size_t rest = candidate - request->block_bytes;
    if (request->class == WR_SMALL) return rest >= MIN_BLOCK;
    return request->block_bytes < options->max_split && rest > WR_SMALL_MAX;
}

#define RULES .poll_always = true, .release_all = true, .fit = fit, .takes = takes, .splits = splits

const wr_policy wr_policy_torch = { .name = "torch", RULES };
const wr_policy wr_policy_torch_exact = { .name = "torch-exact", .exact = true, RULES };
