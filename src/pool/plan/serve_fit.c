#include "pool/plan/serve_fit.h"

#include "base/log.h"
#include "pool/chunk/chunk.h"

#include <assert.h>

/* After two rounds a plan's fit can be judged: so many times more requests must have been placed than not. At first
 * half of them is enough, since the plan may have come in mid-course. */
enum { ROUNDS_TELL = 2, WELL_TIMES = 32, WELL_TIMES_FIRST = 1 };

static uint64_t round_of(const wr_serving *serving)
{
    uint64_t round = 0;
    for (size_t i = 0; i < serving->count; i++) round += serving->arenas[i].course.count;
    return round;
}

static wr_serve_fit judge_locked(wr_serving *serving)
{
    const uint64_t enough = ROUNDS_TELL * round_of(serving), own = serving->placed + serving->failed;
    const bool told = own >= enough, told_all = own + serving->others >= enough;
    const uint64_t times = serving->settled ? WELL_TIMES : WELL_TIMES_FIRST;
    const bool its = !told || serving->failed * times <= serving->placed;
    const bool all = !told_all || (serving->failed + serving->others) * times <= serving->placed; /* and so its */
    if (told) serving->placed = serving->failed = 0;
    if (told_all) serving->others = 0; /* also while the plan's own streams rest */
    if (told && its) serving->told = true;
    if (all) return WR_FITS;
    return its ? WR_FITS_ITS_STREAMS : WR_FITS_NOT;
}

wr_serve_fit wr_serve_fits(wr_cache *cache)
{
    wr_cache_lock(cache);
    wr_serving *serving = wr_serving_locked(cache);
    const wr_serve_fit fit = serving ? judge_locked(serving) : WR_FITS_NOT;
    wr_cache_unlock(cache);
    return fit;
}

static bool is_for_locked(const wr_cache *cache, uint64_t native)
{
    const wr_serving *serving = wr_serving_locked(cache);
    for (size_t i = 0; serving && i < serving->count; i++) {
        const wr_served *s = &serving->arenas[i];
        if (s->named && s->native == native) return true;
        if (s->stream && (uint64_t)(uintptr_t)s->stream->native == native) return true;
    }
    return false;
}

bool wr_serve_lacks(wr_cache *cache, const wr_arena_user *users, uint64_t count)
{
    bool lacks = false;
    wr_cache_lock(cache);
    for (uint64_t i = 0; i < count && !lacks; i++) lacks = !is_for_locked(cache, users[i].native);
    wr_cache_unlock(cache);
    return lacks;
}

static weir_status trim_once(wr_trim_wait *wait)
{
    wr_cache *cache = wait->cache;
    size_t released = 0;
    wr_lock_acquire(&cache->move_lock);
    wr_fronts_empty(cache);
    const weir_status status = wr_chunks_trim_unplanned(wait, SIZE_MAX, &released);
    wr_lock_release(&cache->move_lock);
    return status == WEIR_ERR_CAPTURE ? WEIR_OK : status;
}

/* For work on the memory that goes back, which may be waiting for this thread. */
#define SETTLE_NS UINT64_C(1000000000)

weir_status wr_serve_settle(wr_cache *cache)
{
    wr_trim_wait wait = { .cache = cache };
    wr_cache_lock(cache);
    wr_serving *serving = wr_serving_locked(cache);
    const bool settles = serving && serving->told && !serving->settled;
    if (settles) serving->settled = true;
    wr_cache_unlock(cache);
    if (!settles) return WEIR_OK;
    weir_status status = trim_once(&wait);
    if (status == WEIR_OK && wr_trim_wait_briefly(&wait, SETTLE_NS)) status = trim_once(&wait);
    (void)wr_trim_wait_again(&wait, true); /* what is in use for longer stays */
    return status;
}

/* A plan of no use for two rounds, and so many requests, only costs time. Requests of streams that it is not for say
 * little: they may come while its own streams have a pause, or their threads no processor. */
enum { IN_VAIN_LEAST = 4096, IN_VAIN_OTHERS = 1 << 20 };

static bool is_of_no_use(const wr_serving *serving)
{
    const uint64_t in_vain = serving->in_vain + serving->in_vain_others;
    if (in_vain < ROUNDS_TELL * round_of(serving)) return false;
    return serving->in_vain >= IN_VAIN_LEAST || serving->in_vain_others >= IN_VAIN_OTHERS;
}

/* Takes the plan out of service. The next to serve a plan, or to close the library, destroys it: the cache's lock alone
 * is not enough for that. */
static bool lay_down_locked(wr_cache *cache)
{
    wr_serving *serving = wr_serving_locked(cache);
    if (!serving || !is_of_no_use(serving)) return false;
    assert(!cache->laid_down);
    wr_log(
        WR_LOG_INFO,
        "%s: the plan is no longer served: it placed none of the last %llu requests of its streams and %llu of others",
        cache->name, (unsigned long long)serving->in_vain, (unsigned long long)serving->in_vain_others);
    cache->laid_down = serving;
    atomic_store_explicit(&cache->serving, NULL, memory_order_release);
    return true;
}

static void count_locked(const wr_cache *cache, const wr_stream *stream, wr_outcome found)
{
    wr_serving *serving = wr_serving_locked(cache);
    if (!serving) return;
    if (found == WR_SERVED) {
        serving->placed++;
        serving->in_vain = serving->in_vain_others = 0;
    } else if (wr_served_locked(cache, stream)) {
        serving->failed++;
        serving->in_vain++;
    } else {
        serving->others++;
        serving->in_vain_others++;
    }
}

bool wr_serve_count_locked(wr_cache *cache, const wr_stream *stream, wr_outcome found)
{
    count_locked(cache, stream, found);
    return lay_down_locked(cache);
}
