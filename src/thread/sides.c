#include "thread/sides.h"

#include "pool/front/side.h"

static wr_front *find(const wr_front *main)
{
    wr_thread *t = wr_thread_current;
    if (wr_thread_is_void(t) || !t->sides) return NULL;
    wr_front **at = &t->sides_at_hand[wr_hash((uintptr_t)main) >> (64 - WR_THREAD_SIDES_BITS)];
    if (WR_LIKELY(*at && (*at)->main == main)) return *at;
    wr_front *side = t->sides;
    while (side && side->main != main) side = side->next_own;
    if (side) *at = side;
    return side;
}

/* A side is for threads that stay: to take and to leave one costs as much as some dozens of requests. */
enum { SHARES_MOST = 128 };

static WR_THREAD_LOCAL uint8_t shares; /* requests to shared fronts since the thread last took a side */

static wr_front *take(wr_front *main)
{
    wr_thread *t = NULL;
    if (++shares < SHARES_MOST) return NULL;
    shares = 0;
    wr_front *side = wr_thread_own(&t) == WEIR_OK ? wr_side_take(main) : NULL;
    if (!side) return NULL;
    side->next_own = t->sides;
    t->sides = side;
    return side;
}

wr_front *wr_thread_own_front(wr_front *main)
{
    if (!main || WR_LIKELY(!wr_side_is_wanted(main))) return main;
    wr_front *side = find(main);
    if (!side) side = take(main);
    return side && wr_side_serves(side) ? side : main;
}

bool wr_thread_has_side(const wr_front *main)
{
    return find(main) != NULL;
}

/* While the device has routes or captures, requests are not served from sides. */
static bool is_bypassed(const wr_front *main)
{
    return atomic_load_explicit(&wr_device_of(main->cache)->routes.any, memory_order_relaxed) != 0;
}

bool wr_thread_park(const wr_front *main, wr_block *block, const void *pointer)
{
    wr_front *side = is_bypassed(main) ? NULL : find(main);
    wr_bias_thread *self = side ? wr_bias_acquire_owned(&side->lock) : NULL;
    if (!self) return false;
    const bool parked = wr_side_park(side, block, pointer);
    wr_bias_release_owned(self);
    return parked;
}
