#include "pool/stitch_bounds.h"

#include "base/size.h"
#include "pool/count.h"
#include "pool/gate.h"

/* More may be held than was ever live, before chunks are mapped again: 1 in so many. Blocks that are replaced by ones a bit
 * larger, all of them again and again, then come to lie where their neighbours were; what is mapped together instead lies
 * apart for good, and they hold more. What a plan does not have is served beside planned places, and not from them. */
enum { SLACK_SHARE = 40 };

/* For requests of at most such a part of what was ever live it may be more, where one stream has it all and memory is not short:
 * what is new for them is little, and programs with many such blocks, of ever other sizes, find room by best fit alone from there
 * on. */
enum { LITTLE_PART = 20, LITTLE_SLACK_SHARE = 24 };

/* Mapping a chunk again, and unmapping it later, takes so long at least (0007), and may take such a share of a program's time; with
 * the square of what is held for what was ever live a larger one, up to a most. What is mapped when that was exceeded by more
 * than the patience is dear. */
enum { MOVE_NS = 60000, MOVE_TIME_SHARE = 200, MOVE_TIME_SHARE_MOST = 20 };
#define MOVE_PATIENCE_NS UINT64_C(10000000000)

/* Once so many times what is held was dear, each so many bytes more that are let one more be held, up to a share: a program that
 * goes on for ever comes to rest, one that ends before holds no more. A share of the device, or of the limit, is left to others. */
enum { REST_TIMES = 32, REST_PRICE = 64, REST_SHARE = 4, REST_LEAVES_SHARE = 8 };

/* A new chunk is this share of what the stream has of the class, between the least and the usual size, and of large blocks less
 * where streams are many, each of which has a last one partly in use: small programs stay small. */
enum { GROWTH_SHARE = 8 };

/* Small blocks have chunks of their own, whatever is free elsewhere, up to a share of all, or a little. */
enum { SMALL_SHARE = 16 };
#define SMALL_LEAST ((size_t)32 << 20)

/* What streams have parked stays theirs: each finds it again without the driver. From a share of all on, and from so much, it is
 * taken where another stream would get new memory. Where that comes to be dear it happens again when a share more is held only,
 * so those that use it by turns then have memory of their own for it. */
enum { PARKED_SHARE = 16, GATHER_SHARE = 8 };
#define PARKED_LEAST ((size_t)64 << 20)

/* None is more than this share of what is held in all, or of the request that it is made for: what is large itself is not mapped
 * again from so many. */
enum { MOST_SHARE = 40, MOST_OWN_SHARE = 12 };

/* Where memory may become short the driver's time matters less: from a share of a limit on, which somebody has set for a reason,
 * and from half of the device on. */
enum { TIGHT_LIMIT_SHARE = 8, TIGHT_DEVICE_SHARE = 2 };

/* And hardly where so little is left: what lies in the middle of a chunk in use cannot be used elsewhere. But what is large
 * itself need not consist of so many. */
enum { LAST_SHARE = 8, LAST_OWN_SHARE = 512 };

/* Memory behind a range comes in multiples of this at most, from one on: what a plan has above and below is not needed yet. */
#define CELL_MOST WR_CHUNK_USUAL

/* ---- chunks ------------------------------------------------------------------------------------------------------- */

bool wr_stitch_is_tight(const wr_cache *cache, size_t held)
{
    return (cache->limit && held > cache->limit / TIGHT_LIMIT_SHARE) ||
           held > cache->chunks.region_bytes / TIGHT_DEVICE_SHARE;
}

/* What may be held in all. */
static size_t room_of(const wr_cache *cache)
{
    const size_t device = cache->chunks.region_bytes;
    return cache->limit && cache->limit < device ? (size_t)cache->limit : device;
}

static bool leaves_a(size_t share, const wr_cache *cache, size_t held)
{
    const size_t room = room_of(cache);
    return held <= room - room / share;
}

size_t wr_stitch_most(const wr_cache *cache, size_t bytes)
{
    const size_t held = (size_t)wr_cache_limited_locked(cache) + bytes;
    const size_t own = bytes / MOST_OWN_SHARE, of_all = held / MOST_SHARE;
    const size_t share = wr_round_up(own > of_all ? own : of_all, WR_SEGMENT_UNIT);
    const bool last = !leaves_a(LAST_SHARE, cache, held) && bytes / LAST_OWN_SHARE < WR_CHUNK_LAST;
    if (last) return WR_CHUNK_LAST;
    if (share < WR_CHUNK_TIGHT || wr_stitch_is_tight(cache, held)) return WR_CHUNK_TIGHT;
    return share < WR_CHUNK_MOST ? share : WR_CHUNK_MOST;
}

/* No more than `most` are counted, and none is one. */
static size_t streams_with_chunks(const wr_mempool *pool, size_t most)
{
    size_t count = 0;
    for (uint32_t i = WR_LARGE; i < pool->bin_capacity && count < most; i += WR_BINS)
        count += pool->bins[i] && pool->bins[i]->part_bytes;
    return count ? count : 1;
}

static uint64_t left_of_limit(const wr_cache *cache)
{
    if (!cache->limit) return UINT64_MAX;
    const uint64_t held = wr_cache_counted_locked(cache);
    return held < cache->limit ? cache->limit - held : 0;
}

/* What the limit and the pool's cap leave, in whole units. */
static size_t left_of_both(const wr_stitch_plan *p)
{
    const uint64_t limit = left_of_limit(p->cache), cap = wr_cache_left_of_cap_locked(p->request->pool);
    return (size_t)(limit < cap ? limit : cap) / WR_SEGMENT_UNIT * WR_SEGMENT_UNIT;
}

size_t wr_stitch_least(const wr_stitch_plan *p, size_t most)
{
    const size_t has = p->bin->part_bytes + (p->open ? p->open->part_bytes : 0);
    const size_t enough = has / (GROWTH_SHARE * WR_CHUNK_LEAST) + 1; /* with so many it is the least there is */
    const size_t streams = p->bin->class == WR_SMALL ? 1 : streams_with_chunks(p->request->pool, enough);
    const size_t left = p->forced ? 0 : left_of_both(p); /* nothing to spare, where the driver or a bound has refused */
    size_t least = wr_round_up(has / (GROWTH_SHARE * streams), WR_SEGMENT_UNIT);
    if (least > WR_CHUNK_USUAL) least = WR_CHUNK_USUAL;
    if (least > most) least = most;
    if (least > left) least = left;
    return least < WR_CHUNK_LEAST ? WR_CHUNK_LEAST : least;
}

size_t wr_stitch_cell(const wr_stitch_plan *p)
{
    size_t cell = WR_SEGMENT_UNIT;
    while (!p->range->sparing && cell < CELL_MOST && cell < p->bin->part_bytes / GROWTH_SHARE) cell *= 2;
    return cell;
}

/* ---- what may be held --------------------------------------------------------------------------------------------- */

/* The time in which so many nanoseconds may go to mapping: less, the more is held for what was ever live. */
static uint64_t time_for(wr_cache *cache, uint64_t took)
{
    const weir_memory_stats *stats = wr_stats_locked(cache);
    const double held = (double)stats->reserved_bytes[WEIR_STAT_ALL].current;
    const double most = (double)wr_count_most_requested_locked(cache);
    const double times = held > most && most > 0 ? held / most : 1;
    const double share = MOVE_TIME_SHARE / (times * times);
    return (uint64_t)((double)took * (share > MOVE_TIME_SHARE_MOST ? share : MOVE_TIME_SHARE_MOST));
}

void wr_stitch_note_moved(wr_cache *cache, size_t count, size_t bytes, uint64_t took, uint64_t now)
{
    wr_chunks *chunks = &cache->chunks;
    const uint64_t patience_ends = now + MOVE_PATIENCE_NS, least = (uint64_t)count * MOVE_NS;
    if (chunks->paid_at < now) chunks->paid_at = now;
    chunks->paid_at += time_for(cache, took > least ? took : least);
    chunks->dear = chunks->paid_at > patience_ends;
    if (!chunks->dear) return;
    chunks->paid_at = patience_ends;
    chunks->dear_bytes += bytes;
}

/* What may be held beyond the slack, for a program that has had its chunks mapped again and again. It is no reason for more that
 * much is held in segments. */
static int64_t rest_for(const wr_stitch_plan *p, size_t held, int64_t most)
{
    const int64_t chunks = (int64_t)p->request->pool->chunk_bytes;
    const int64_t beyond = (int64_t)p->cache->chunks.dear_bytes - REST_TIMES * chunks;
    const int64_t share = (chunks < most ? chunks : most) / REST_SHARE;
    if (beyond <= 0 || !leaves_a(REST_LEAVES_SHARE, p->cache, held)) return 0;
    return beyond / REST_PRICE < share ? beyond / REST_PRICE : share;
}

static int64_t slack_for(const wr_stitch_plan *p, int64_t most)
{
    const bool little = !p->range && !p->pressed && (int64_t)p->request->requested <= most / LITTLE_PART;
    return most / (little && streams_with_chunks(p->request->pool, 2) == 1 ? LITTLE_SLACK_SHARE : SLACK_SHARE);
}

bool wr_stitch_has_slack(const wr_stitch_plan *p, size_t bytes)
{
    const weir_memory_stats *stats = wr_stats_locked(p->cache);
    /* What other streams have parked counts as live there, and cannot be had for a range; the stream's own is free already. */
    const int64_t parked = p->range ? wr_fronts_parked_locked(p->cache, NULL, WR_FLOW_REQUESTED) : 0;
    const int64_t not_live = wr_fronts_not_live_locked(p->cache, WR_FLOW_REQUESTED);
    const int64_t live = stats->requested_bytes[WEIR_STAT_ALL].current - not_live + parked;
    const int64_t now = live + (int64_t)p->request->requested;
    const int64_t held = stats->reserved_bytes[WEIR_STAT_ALL].current + (int64_t)bytes;
    int64_t most = wr_count_most_requested_locked(p->cache);
    if (now > most) most = now;
    const int64_t rest = p->range ? 0 : rest_for(p, (size_t)held, most); /* planned places have a budget */
    return held <= most + slack_for(p, most) + rest;
}

/* Chunks for small blocks, of all streams. */
static size_t small_bytes(const wr_mempool *pool)
{
    size_t bytes = 0;
    for (uint32_t i = WR_SMALL; i < pool->bin_capacity; i += WR_BINS)
        bytes += pool->bins[i] ? pool->bins[i]->part_bytes : 0;
    return bytes;
}

static bool small_stay_few(const wr_stitch_plan *p, size_t bytes)
{
    const size_t share = p->request->pool->chunk_bytes / SMALL_SHARE;
    return small_bytes(p->request->pool) + bytes <= (share > SMALL_LEAST ? share : SMALL_LEAST);
}

bool wr_stitch_may_grow(const wr_stitch_plan *p, size_t bytes)
{
    const bool small = p->bin->class == WR_SMALL && !p->pressed;
    return (small && small_stay_few(p, bytes)) || wr_stitch_has_slack(p, bytes);
}

bool wr_stitch_may_gather(const wr_stitch_plan *p)
{
    const wr_mempool *own = p->request->pool;
    const size_t all = p->request->pool->chunk_bytes + (own->is_private ? p->cache->pools->chunk_bytes : 0);
    const size_t last = p->cache->chunks.gathered_at, share = all / PARKED_SHARE;
    return !wr_gate_captures() && (!p->cache->chunks.dear || p->cache->chunks.bytes >= last + last / GATHER_SHARE) &&
           wr_fronts_parked_locked(p->cache, p->cache->pools, WR_FLOW_BYTES) >=
               (int64_t)(share > PARKED_LEAST ? share : PARKED_LEAST);
}
