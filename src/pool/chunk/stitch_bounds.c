#include "pool/chunk/stitch_bounds.h"

#include "base/size.h"
#include "pool/count.h"
#include "stream/gate.h"

/* Slack: how much more than was ever live may be held before chunks are mapped again, one part in so many. Where blocks
 * are replaced again and again by slightly larger ones, these can then lie where neighbours of the old ones were. What
 * is mapped together instead stays apart for good, and more is held. Requests that a plan lacks are served beside
 * planned places, and not from them. */
enum { SLACK_SHARE = 40 };

/* More slack for requests of at most this part of what was ever live, where one stream has it all and memory is not
 * short: new memory for them is little, and from there on programs with many such blocks, in ever-changing sizes, find
 * room by best fit alone. */
enum { LITTLE_PART = 20, LITTLE_SLACK_SHARE = 24 };

/* Mapping a chunk again, and unmapping it later, takes at least so long (0007), and may take one part in so many of a
 * program's time. That share grows with the square of what is held over what was ever live, up to a most. Mapping is
 * dear when it has exceeded the share by more than the patience. */
enum { MOVE_NS = 60000, MOVE_TIME_SHARE = 200, MOVE_TIME_SHARE_MOST = 20 };
#define PATIENCE_NS UINT64_C(10000000000)

/* Once REST_TIMES as many bytes as are held were dear, each further REST_PRICE dear bytes let one more be held, up to a
 * share: a program that runs for ever comes to rest, and one that ends sooner holds no more. A share of the device,
 * however much of it others have, or of the limit is left. */
enum { REST_TIMES = 32, REST_PRICE = 64, REST_SHARE = 4, REST_LEAVES_SHARE = 8 };

/* Where threads meet and their turns (stitch_turn.h) take too long, each so many bytes taken let one more be held, up
 * to a share. */
enum { CROWDED_PRICE = 8, CROWDED_SHARE = 2 };

/* A new chunk is at least this share of what the stream has of the class, between the least and the usual size: small
 * programs stay small. For large blocks it is less where streams are many, since each has a last chunk partly in
 * use. */
enum { GROWTH_SHARE = 8 };

/* Small blocks get chunks of their own, whatever is free elsewhere, up to this share of all chunks, or SMALL_LEAST. */
enum { SMALL_SHARE = 16 };
#define SMALL_LEAST ((size_t)32 << 20)

/* What a stream has parked stays its own, found again without the driver. From this share of all and so many bytes on,
 * it is gathered where another stream would get new memory. Once mapping is dear, that takes a share more held each
 * time, so that streams which use the memory in turn get their own, unless they find it mapped at their addresses: then
 * no more is mapped after gathering than is used again as it is. */
enum { PARKED_SHARE = 16, GATHER_SHARE = 8 };
#define PARKED_LEAST ((size_t)64 << 20)

/* Many fronts are asked what they have parked only once for each such share more that is held: it takes as long as
 * there are streams, and each new stream needs new memory. */
enum { ASK_SHARE = 64 };

/* No chunk is more than this share of what is held in all, or, if larger, of the request that it is made for: a large
 * request is not mapped from too many chunks. */
enum { MOST_SHARE = 40, MOST_OWN_SHARE = 12 };

/* Where memory may become short, the driver's time matters less: from this share of a limit on, which somebody has set
 * for a reason, and from half of what the device has for this cache on. */
enum { TIGHT_LIMIT_SHARE = 8, TIGHT_DEVICE_SHARE = 2 };

/* It hardly matters where only this share is left: what is free in the middle of a chunk in use cannot be used
 * elsewhere. But a large request need not consist of too many chunks. */
enum { LAST_SHARE = 8, LAST_OWN_SHARE = 512 };

/* Memory for a range comes in cells of at most this size, aligned to it: what the plan has beyond them is not needed
 * yet. */
#define CELL_MOST WR_CHUNK_USUAL

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

static size_t at_most_the_limit(const wr_cache *cache, size_t room)
{
    return cache->limit && cache->limit < room ? (size_t)cache->limit : room;
}

/* What others have is not there for this cache. */
static size_t room_now(const wr_cache *cache)
{
    const wr_chunks *c = &cache->chunks;
    return c->room && c->room < c->region_bytes ? (size_t)c->room : c->region_bytes;
}

bool wr_stitch_is_tight(const wr_cache *cache, size_t held)
{
    return (cache->limit && held > cache->limit / TIGHT_LIMIT_SHARE) || held > room_now(cache) / TIGHT_DEVICE_SHARE;
}

static bool leaves_a(size_t share, size_t room, size_t held)
{
    return held <= room - room / share;
}

size_t wr_stitch_most(const wr_cache *cache, size_t bytes)
{
    const size_t held = (size_t)wr_cache_limited_locked(cache) + bytes;
    const size_t own = bytes / MOST_OWN_SHARE, of_all = held / MOST_SHARE;
    const size_t share = wr_round_up(own > of_all ? own : of_all, WR_SEGMENT_UNIT);
    const bool last = !leaves_a(LAST_SHARE, at_most_the_limit(cache, room_now(cache)), held) &&
                      bytes / LAST_OWN_SHARE < WR_CHUNK_LAST;
    if (last) return WR_CHUNK_LAST;
    if (share < WR_CHUNK_TIGHT || wr_stitch_is_tight(cache, held)) return WR_CHUNK_TIGHT;
    return share < WR_CHUNK_MOST ? share : WR_CHUNK_MOST;
}

/* Counts none as one. */
static size_t streams_with_chunks(const wr_mempool *pool)
{
    return pool->streams_with_chunks ? pool->streams_with_chunks : 1;
}

static uint64_t left_of_limit(const wr_cache *cache)
{
    if (!cache->limit) return UINT64_MAX;
    const uint64_t held = wr_cache_counted_locked(cache);
    return held < cache->limit ? cache->limit - held : 0;
}

/* What both the limit and the pool's cap leave. */
static uint64_t left_of_both(const wr_mempool *pool)
{
    const uint64_t limit = left_of_limit(pool->cache), cap = wr_cache_left_of_cap_locked(pool);
    return limit < cap ? limit : cap;
}

uint64_t wr_stitch_left(const wr_mempool *pool)
{
    const wr_cache *cache = pool->cache;
    const uint64_t both = left_of_both(pool), held = wr_cache_limited_locked(cache), room = room_now(cache);
    if (!cache->chunks.region_bytes) return both;
    const uint64_t there = held < room ? room - held : 0;
    return there < both ? there : both;
}

size_t wr_stitch_least(const wr_stitch_plan *p, size_t most)
{
    const size_t has = p->bin->part_bytes + (p->open ? p->open->part_bytes : 0);
    const size_t streams = p->bin->class == WR_SMALL ? 1 : streams_with_chunks(p->request->pool);
    /* The driver or a bound has refused, so nothing can be spared */
    const size_t left = p->forced ? 0 : (size_t)(left_of_both(p->request->pool) / WR_SEGMENT_UNIT * WR_SEGMENT_UNIT);
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

/* ---- what may be held -------------------------------------------------------------------------------------------- */

/* The time in which this many nanoseconds may go to mapping: less, the more is held over what was ever live. */
static uint64_t time_for(wr_cache *cache, uint64_t took)
{
    const weir_memory_stats *stats = wr_stats_locked(cache);
    const double held = (double)stats->reserved_bytes[WEIR_STAT_ALL].current;
    const double most = (double)wr_count_most_requested_locked(cache);
    const double times = held > most && most > 0 ? held / most : 1;
    const double share = MOVE_TIME_SHARE / (times * times);
    return (uint64_t)((double)took * (share > MOVE_TIME_SHARE_MOST ? share : MOVE_TIME_SHARE_MOST));
}

bool wr_stitch_pay(uint64_t *paid_at, uint64_t time, uint64_t now)
{
    const uint64_t patience_ends = now + PATIENCE_NS;
    if (*paid_at < now) *paid_at = now;
    *paid_at += time;
    if (*paid_at <= patience_ends) return false;
    *paid_at = patience_ends;
    return true;
}

void wr_stitch_note_moved(wr_cache *cache, size_t count, size_t bytes, uint64_t took, uint64_t now)
{
    wr_chunks *chunks = &cache->chunks;
    const uint64_t least = (uint64_t)count * MOVE_NS;
    chunks->moved += bytes;
    chunks->dear = wr_stitch_pay(&chunks->paid_at, time_for(cache, took > least ? took : least), now);
    if (chunks->dear) chunks->dear_bytes += bytes;
    if (chunks->crowded) chunks->crowded_bytes += bytes;
}

void wr_stitch_note_reused(wr_cache *cache, size_t bytes)
{
    cache->chunks.reused += bytes;
    if (cache->chunks.crowded) cache->chunks.crowded_bytes += bytes;
}

void wr_stitch_note_scarce(wr_cache *cache)
{
    cache->chunks.dear_bytes = cache->chunks.crowded_bytes = 0;
}

static int64_t between(int64_t value, int64_t most)
{
    return value < 0 ? 0 : value < most ? value : most;
}

/* What may be held beyond the slack by a program whose chunks were mapped again and again, or whose threads waited for
 * each other's. Memory held in segments is no reason for more. */
static int64_t rest_for(const wr_stitch_plan *p, size_t held, int64_t most)
{
    const wr_chunks *c = &p->cache->chunks;
    const int64_t chunks = (int64_t)p->request->pool->chunk_bytes, of = chunks < most ? chunks : most;
    const int64_t dear = between(((int64_t)c->dear_bytes - REST_TIMES * chunks) / REST_PRICE, of / REST_SHARE);
    const int64_t crowded = between((int64_t)c->crowded_bytes / CROWDED_PRICE, of / CROWDED_SHARE);
    const size_t room = at_most_the_limit(p->cache, c->region_bytes); /* who is refused asks again some day */
    if (!leaves_a(REST_LEAVES_SHARE, room, held)) return 0;
    return dear > crowded ? dear : crowded;
}

static int64_t slack_for(const wr_stitch_plan *p, int64_t most)
{
    const bool little = !p->range && !p->pressed && (int64_t)p->request->requested <= most / LITTLE_PART;
    return most / (little && streams_with_chunks(p->request->pool) == 1 ? LITTLE_SLACK_SHARE : SLACK_SHARE);
}

/* Whether so much may be held if `most` was live at once; the more was, the more. */
static bool may_be_held(const wr_stitch_plan *p, int64_t held, int64_t most)
{
    const int64_t rest = p->range ? 0 : rest_for(p, (size_t)held, most); /* planned places have a budget */
    return held <= most + slack_for(p, most) + rest;
}

/* What is live. What other streams have parked counts as live here where it cannot be had for a range. The stream's own
 * parked blocks are free already, but for those in sides (pool/front/side.h). Takes time for all fronts. */
static int64_t live_bytes(const wr_stitch_plan *p)
{
    const int64_t parked = p->range ? wr_fronts_parked_locked(p->cache, NULL, WR_FLOW_REQUESTED) : 0;
    const int64_t not_live = wr_fronts_not_live_locked(p->cache, WR_FLOW_REQUESTED);
    return wr_stats_locked(p->cache)->requested_bytes[WEIR_STAT_ALL].current - not_live + parked;
}

/* Fronts are asked only where it depends on them: they have nothing but what is active to the cache. */
bool wr_stitch_has_slack(const wr_stitch_plan *p, size_t bytes)
{
    const weir_memory_stats *stats = wr_stats_locked(p->cache);
    const int64_t requested = (int64_t)p->request->requested;
    const int64_t held = stats->reserved_bytes[WEIR_STAT_ALL].current + (int64_t)bytes;
    const int64_t most = wr_count_most_requested_locked(p->cache);
    const int64_t at_most = wr_fronts_active_locked(p->cache) + requested;
    if (may_be_held(p, held, most)) return true;
    if (at_most <= most || !may_be_held(p, held, at_most)) return false;
    const int64_t now = live_bytes(p) + requested;
    return now > most && may_be_held(p, held, now);
}

static bool small_stay_few(const wr_stitch_plan *p, size_t bytes)
{
    const size_t share = p->request->pool->chunk_bytes / SMALL_SHARE;
    return p->request->pool->small_bytes + bytes <= (share > SMALL_LEAST ? share : SMALL_LEAST);
}

bool wr_stitch_may_grow(const wr_stitch_plan *p, size_t bytes)
{
    const bool small = p->bin->class == WR_SMALL && !p->pressed;
    return (small && small_stay_few(p, bytes)) || wr_stitch_has_slack(p, bytes);
}

/* Whether at least so many bytes are parked where the pool may get them: in itself, and in the default pool. `more`:
 * what is to be new otherwise. */
static bool is_parked(wr_cache *cache, const wr_mempool *own, size_t least, size_t more)
{
    wr_chunks *c = &cache->chunks;
    const bool many = cache->front_count > WR_FRONTS_SUMMED;
    if (wr_fronts_active_locked(cache) < (int64_t)least) return false;
    if (many && c->bytes + more < c->asked_at + c->asked_at / ASK_SHARE) return false;
    int64_t parked = wr_fronts_parked_locked(cache, own, WR_FLOW_BYTES);
    if (own->is_private && wr_stitch_has_default(own))
        parked += wr_fronts_parked_locked(cache, cache->pools, WR_FLOW_BYTES);
    const bool enough = parked >= (int64_t)least;
    c->asked_at = enough ? 0 : c->bytes;
    return enough;
}

/* Parked by threads that share the stream of a small request. Each has some of every size in its side, and wants it
 * again. */
static size_t parked_beside(const wr_stitch_plan *p)
{
    const wr_front *front = wr_front_find(p->request->stream, 0);
    int64_t parked = 0;
    if (p->bin->class != WR_SMALL || !front || !wr_front_is_shared(front)) return 0;
    for (const wr_front *f = front; f; f = wr_front_beside(f)) parked += wr_front_not_live_in_all(f, WR_FLOW_BYTES);
    return parked > 0 ? (size_t)parked : 0;
}

/* More than a program may come to hold for the sake of time, however dear mapping is. */
static bool is_too_much(const wr_stitch_plan *p, size_t held)
{
    const int64_t most = wr_count_most_requested_locked(p->cache);
    return (int64_t)held > most + slack_for(p, most) + most / CROWDED_SHARE;
}

bool wr_stitch_may_gather(const wr_stitch_plan *p, size_t bytes)
{
    const wr_mempool *own = p->request->pool;
    const size_t all = own->chunk_bytes + (own->is_private ? p->cache->pools->chunk_bytes : 0);
    const wr_chunks *c = &p->cache->chunks;
    const size_t last = c->gathered_at, share = all / PARKED_SHARE;
    const bool grown = c->bytes >= last + last / GATHER_SHARE, cheap = !c->dear || c->moved <= c->reused;
    if (wr_gate_captures() || !(cheap || grown || is_too_much(p, c->bytes + bytes))) return false;
    return is_parked(p->cache, own, (share > PARKED_LEAST ? share : PARKED_LEAST) + (grown ? 0 : parked_beside(p)),
                     bytes);
}
