/* How much a front may make live, by parked blocks or split ones, before a peak could be exceeded: what is spare. */
#include "pool/front/hit.h"

#include "base/size.h"
#include "pool/account.h"
#include "pool/count.h"
#include "pool/front/detach.h"
#include "pool/front/post.h"
#include "pool/front/shares.h"

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Makes that much more spare without changing what is parked. */
static void spare_more(wr_front_part *part, wr_flow_number number, int64_t amount)
{
    wr_front_keep(part, number, -amount);
    wr_front_count(part, number, amount);
}

static void set_spare(wr_front_part *part, wr_flow_number number, int64_t spare)
{
    spare_more(part, number, spare - wr_front_spare(part, number));
}

static void count_spare(wr_front_part *part, int64_t blocks, int64_t bytes, int64_t requested)
{
    spare_more(part, WR_FLOW_BLOCKS, blocks);
    spare_more(part, WR_FLOW_BYTES, bytes);
    spare_more(part, WR_FLOW_REQUESTED, requested);
}

void wr_front_count_free(wr_front *front, size_t bytes, size_t requested)
{
    count_spare(wr_front_part_for(front, bytes), 1, (int64_t)bytes, (int64_t)requested);
}

void wr_front_count_live(wr_front *front, size_t bytes, size_t requested)
{
    count_spare(wr_front_part_for(front, bytes), -1, -(int64_t)bytes, -(int64_t)requested);
}

/* Divides `spare`: each class gets what it has parked or, if that is too much, a part, so that neither needs the lock
 * again at once; what remains is halved. */
static void share_out(wr_front *front, wr_flow_number number, int64_t spare)
{
    wr_front_part *parts = front->parts;
    const int64_t small = wr_front_parked(&parts[WR_SMALL], number), large = wr_front_parked(&parts[WR_LARGE], number);
    const int64_t of_large = smaller(large, larger(spare - small, spare / 2));
    const int64_t of_small = smaller(small, spare - of_large), rest = spare - of_large - of_small;
    set_spare(&parts[WR_LARGE], number, of_large + rest / 2);
    set_spare(&parts[WR_SMALL], number, of_small + rest - rest / 2);
}

/* Lowers `spare` to what the front may make live below the peak of the pool (NULL: of the device). */
static void bound_by_peak(const wr_front *front, const wr_mempool *pool, const wr_not_live *not_live,
                          int64_t spare[WR_FLOW_LIVE])
{
    const wr_flow *flow = pool ? &pool->flow : &front->cache->ledger.flow;
    for (int i = 0; i < WR_FLOW_LIVE; i++) {
        int64_t below = wr_not_live_below_peak(not_live, flow, i);
        if (wr_front_is_detached(front)) below = wr_detached_share(front, pool, (wr_flow_number)i, below);
        spare[i] = smaller(spare[i], below);
    }
}

static int64_t below_peak(const weir_stat *stat, const wr_front *front, wr_flow_number number)
{
    return stat->peak - stat->current + wr_fronts_not_live_on(front->stream, number);
}

/* What a front or a side gets in any case: so many blocks, and the bytes that they have on average. With fewer bytes it
 * would ask again after a few requests, and asking takes longer the more sides there are. */
static int64_t least_share(const wr_account *account, wr_flow_number number)
{
    enum { BLOCKS = 64 };
    const int64_t blocks = account->blocks.current;
    if (number == WR_FLOW_BLOCKS) return BLOCKS;
    const int64_t bytes = blocks > 0 ? account->bytes.current / blocks * BLOCKS : 0;
    return smaller(larger(bytes, WR_MIB), 8 * WR_MIB);
}

/* A front and its sides hand out what is below the same peaks. */
static int64_t share_beside(const wr_front *front, wr_flow_number number, int64_t spare)
{
    const int64_t least = least_share(front->account, number);
    wr_shares others = { 0, 0 };
    for (const wr_front *f = front->main; f; f = wr_front_beside(f))
        if (f != front && f->listed) wr_shares_add(&others, f, number);
    if (wr_shares_exceed(others, spare, least)) {
        wr_fronts_unsettle(front->stream, front);
        others.spare = 0;
    }
    return wr_shares_next(others, spare, least);
}

/* What is spare is bounded by the peaks of the device, the pool and the stream. */
void wr_front_settle_locked(wr_front *front)
{
    wr_not_live all, own;
    wr_front_free_posts_locked(front); /* to peaks they would be live */
    wr_front_add_up_locked(front);
    wr_fronts_sum_locked(front->pool, &all, &own);
    const bool shared = wr_front_is_shared(front->main);
    /* Those may have exceeded a peak meanwhile. */
    if (shared) wr_account_note_peaks(front->account);
    if (shared || wr_front_is_detached(front)) wr_count_peaks_locked(front->pool, &all, &own);
    int64_t spare[WR_FLOW_LIVE] = { [WR_FLOW_BLOCKS] = below_peak(&front->account->blocks, front, WR_FLOW_BLOCKS),
                                    [WR_FLOW_BYTES] = below_peak(&front->account->bytes, front, WR_FLOW_BYTES),
                                    [WR_FLOW_REQUESTED] = INT64_MAX };
    bound_by_peak(front, NULL, &all, spare);
    if (front->pool->counted) bound_by_peak(front, front->pool, &own, spare);
    for (int i = 0; shared && i < WR_FLOW_LIVE; i++) spare[i] = share_beside(front, (wr_flow_number)i, spare[i]);
    for (int i = 0; i < WR_FLOW_LIVE; i++) share_out(front, (wr_flow_number)i, spare[i]);
    atomic_store_explicit(&front->below, front->plain_max + 1, memory_order_relaxed);
    if (wr_front_is_detached(front)) wr_detached_divide_locked(front->pool);
}

static void unsettle_other_pools(const wr_front *front)
{
    for (wr_front *f = wr_front_youngest(front->stream); f; f = wr_front_after(f))
        if (f->main != front) wr_front_unsettle(f);
}

void wr_front_note_taken_locked(wr_front *front, size_t bytes, size_t requested, bool sole)
{
    wr_front_part *part = wr_front_part_for(front, bytes);
    const wr_front_rest rest = wr_front_rest_of(part, bytes, requested);
    const bool settled = wr_front_is_settled(front);
    wr_front_leave_spare(part, rest);
    wr_front_keep_all(part, 1, (int64_t)bytes, (int64_t)requested); /* what is parked does not change */
    if (WR_UNLIKELY(!wr_front_spares(rest))) wr_front_unsettle(front);
    if (!sole && WR_UNLIKELY(front->cache->detached)) {
        wr_detached_review_locked(front->pool);
        if (wr_front_is_detached(front))
            wr_front_settle_locked(front); /* its ledger alone does not show peaks */
        else
            wr_detached_divide_locked(front->pool);
    }
    if (settled && wr_front_is_shared(front) && wr_front_spares(rest))
        unsettle_other_pools(front); /* it has taken of its own share only */
    else
        wr_fronts_unsettle(front->stream, front);
}

/* What one class lacks, the other may have spare. */
static void lend(wr_front_part *from, wr_front_part *to, wr_flow_number number, int64_t need)
{
    const int64_t lacking = need - wr_front_spare(to, number), there = wr_front_spare(from, number);
    if (lacking <= 0 || there < lacking) return;
    spare_more(from, number, -lacking);
    spare_more(to, number, lacking);
}

/* What the front may have more below its stream's own peak. */
static int64_t below_own_peak(const wr_front *front, wr_flow_number number)
{
    const wr_account *account = front->account;
    const weir_stat *stat = number == WR_FLOW_BLOCKS ? &account->blocks : &account->bytes;
    if (number == WR_FLOW_REQUESTED) return INT64_MAX;
    return below_peak(stat, front, number) - wr_front_spare_in_all(front, number);
}

/* Of what is unshared, so that the class has at least `need` spare. A block that is `parked` notes no peak of its
 * stream; one that is split off does (pool/account.h), so for that only what is taken ahead is below it. */
static bool share_more(wr_front *front, wr_front_part *part, wr_flow_number number, int64_t need, bool parked)
{
    const int64_t lacking = need - wr_front_spare(part, number);
    if (lacking <= 0) return true;
    const int64_t own = below_own_peak(front, number), most = smaller(wr_front_usual_share(front, number), own);
    if (parked && own < lacking) return false;
    const int64_t more = wr_front_take_unshared(front, number, lacking, larger(lacking, most));
    spare_more(part, number, more);
    return more > 0;
}

/* Beyond twice the usual share: what is more than that or, if more is parked, than that. */
static int64_t too_much(const wr_front *front, const wr_front_part *part, wr_flow_number number)
{
    const int64_t usual = wr_front_usual_share(front, number);
    const int64_t more = wr_front_spare(part, number) - larger(usual, wr_front_parked(part, number));
    return more > usual ? more : 0;
}

void wr_front_return_more(wr_front *front, size_t block_bytes)
{
    wr_front_part *part = wr_front_part_for(front, block_bytes);
    if (WR_LIKELY(too_much(front, part, WR_FLOW_BYTES) == 0)) return;
    if (!wr_front_may_share(front) || !wr_front_is_settled(front)) return;
    for (int i = 0; i < WR_FLOW_LIVE; i++) {
        const int64_t more = too_much(front, part, (wr_flow_number)i);
        if (more == 0) continue;
        spare_more(part, (wr_flow_number)i, -more);
        wr_front_put_unshared(front, (wr_flow_number)i, more);
    }
}

bool wr_front_may_take(wr_front *front, size_t block_bytes, size_t requested, bool parked)
{
    wr_front_part *part = wr_front_part_for(front, block_bytes);
    wr_front_part *other = &front->parts[wr_front_class(block_bytes) == WR_SMALL ? WR_LARGE : WR_SMALL];
    if (!wr_front_is_settled(front)) return false;
    lend(other, part, WR_FLOW_BLOCKS, 1);
    lend(other, part, WR_FLOW_BYTES, (int64_t)block_bytes);
    lend(other, part, WR_FLOW_REQUESTED, (int64_t)requested);
    if (WR_LIKELY(wr_front_spares(wr_front_rest_of(part, block_bytes, requested)))) return true;
    return wr_front_may_share(front) && share_more(front, part, WR_FLOW_BLOCKS, 1, parked) &&
           share_more(front, part, WR_FLOW_BYTES, (int64_t)block_bytes, parked) &&
           share_more(front, part, WR_FLOW_REQUESTED, (int64_t)requested, parked);
}
