#include "pool/chunk/stitch_turn.h"

#include "pool/chunk/stitch_bounds.h"
#include "pool/front/detach.h"

/* The turns of threads that meet others, and all waits for turns, may together take one part in so many of the
 * program's time. */
enum { TIME_SHARE = 200 };

/* 0: unknown. */
static uint64_t time_now(const wr_cache *cache)
{
    uint64_t now = 0;
    return wr_driver(cache->backend, clock_ns, &now) == WEIR_OK ? now : 0;
}

/* `asked`: when the thread did; 0: it meets no other. The last turn of one that did is paid for by the next. */
static void note_turn(wr_chunks *chunks, uint64_t asked, uint64_t now)
{
    chunks->turn_began = asked ? now : 0;
    if (!chunks->turn_began) return;
    const uint64_t took = (now > asked ? now - asked : 0) + chunks->turn_took;
    chunks->crowded = wr_stitch_pay(&chunks->turns_paid_at, took * TIME_SHARE, now);
    chunks->turn_took = 0;
}

/* The clock is read only where threads meet: it is another's turn, or many want the cache's lock. Who waits for
 * something else that takes the move lock, such as giving memory back, waits for nobody's chunks. */
void wr_stitch_begin_turn(wr_cache *cache, const wr_request *request)
{
    wr_chunks *chunks = &cache->chunks;
    const wr_front *front = wr_front_find(request->stream, request->pool_name);
    const bool first = wr_lock_try(&cache->move_lock), waits = !first && atomic_load(&chunks->turn_underway);
    const bool meets = waits || (front && wr_front_is_detached(front));
    const uint64_t asked = meets ? time_now(cache) : 0;
    if (!first) wr_lock_acquire(&cache->move_lock);
    atomic_store(&chunks->turn_underway, true);
    note_turn(chunks, asked, asked ? time_now(cache) : 0);
}

void wr_stitch_end_turn(wr_cache *cache)
{
    wr_chunks *chunks = &cache->chunks;
    const uint64_t now = chunks->turn_began ? time_now(cache) : 0;
    if (now > chunks->turn_began) chunks->turn_took = now - chunks->turn_began;
    chunks->crowded = false; /* planned places are mapped outside of turns */
    atomic_store(&chunks->turn_underway, false);
    wr_lock_release(&cache->move_lock);
}
