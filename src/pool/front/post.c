#include "pool/front/post.h"

#include "base/log.h"
#include "base/meta.h"
#include "base/size.h"
#include "pool/front/detach.h"
#include "pool/front/hit.h"
#include "pool/pending.h"

/* So much is posted at most: to the rest of the cache it is live, and cannot be had for other requests. */
static const size_t BYTES_MOST = 64 * WR_MIB;

_Static_assert(WR_POSTS_MOST == WR_FRONT_DEPTH_SMALL, "what is posted of one size finds room");

/* So much is worth collecting. With every block that is taken out the two threads wait for each other's cache lines,
 * which for a few costs more than to split a free one. */
enum { WORTH = 64 };
static const size_t WORTH_BYTES = WR_MIB;

/* Of posted blocks of one class. */
typedef struct amounts {
    int64_t of[WR_FLOW_LIVE];
} amounts;

/* Of one block, which the caller has claimed. The owner of a front that is not shared frees without a claim; if it
 * erroneously does so at the same moment, the block may be changing. */
WR_RACES static amounts amounts_of(const wr_block *block)
{
    return (amounts){ { [WR_FLOW_BLOCKS] = 1,
                        [WR_FLOW_BYTES] = (int64_t)block->bytes,
                        [WR_FLOW_REQUESTED] = (int64_t)block->requested } };
}

static void add(amounts *a, int64_t bytes, int64_t requested)
{
    a->of[WR_FLOW_BLOCKS]++;
    a->of[WR_FLOW_BYTES] += bytes;
    a->of[WR_FLOW_REQUESTED] += requested;
}

/* The posts' lock is held. Who sees less posted sees what was stored before, too (wr_front_not_live). */
static void add_posted(wr_posts *posts, int class, const amounts *a, int sign)
{
    for (int number = 0; number < WR_FLOW_LIVE; number++) {
        atomic_int_fast64_t *sum = &posts->sums[class][number];
        const int64_t now = atomic_load_explicit(sum, memory_order_relaxed);
        atomic_store_explicit(sum, now + sign * a->of[number], memory_order_release);
    }
}

/* To what is parked. The front's lock is held. */
static void add_parked(wr_front_part *part, const amounts *a, int sign)
{
    for (int number = 0; number < WR_FLOW_LIVE; number++)
        wr_front_count(part, (wr_flow_number)number, sign * a->of[number]);
}

static void add_one_parked(wr_front *front, const wr_block *block, int sign)
{
    const amounts one = amounts_of(block);
    add_parked(wr_front_part_for(front, block->bytes), &one, sign);
}

static size_t bytes_posted(const wr_front *front)
{
    return (size_t)(wr_front_posted(front, WR_SMALL, WR_FLOW_BYTES) + wr_front_posted(front, WR_LARGE, WR_FLOW_BYTES));
}

static void set_worth(wr_posts *posts, bool worth)
{
    if (atomic_load_explicit(&posts->worth, memory_order_relaxed) == worth) return;
    atomic_store_explicit(&posts->worth, worth, memory_order_relaxed);
}

static bool has_list(wr_posts *posts)
{
    void *made = NULL;
    if (!posts->at && wr_meta_alloc(WR_POSTS_MOST * sizeof *posts->at, "posted blocks", &made) == WEIR_OK)
        posts->at = made;
    return posts->at != NULL;
}

/* What becomes of a claimed block. False: the owner of a front that is not shared, who frees without a claim, has
 * erroneously freed it meanwhile. */
static bool decide(wr_block *block, wr_block_mark mark)
{
    return wr_block_change_mark(block, WR_MARK_CLAIMED, mark) == WR_MARK_CLAIMED;
}

/* *full: there was no room, but there is once the posts are collected. */
static bool post(wr_front *front, wr_block *block, const void *pointer, bool *full)
{
    wr_posts *posts = &front->posts;
    wr_lock_acquire_soon(&posts->lock);
    const uint32_t count = atomic_load_explicit(&posts->count, memory_order_relaxed);
    const bool claimed =
        posts->open && wr_front_good(front, block, pointer) && has_list(posts) && wr_front_claim(front, block, pointer);
    const amounts one = claimed ? amounts_of(block) : (amounts){ 0 };
    const size_t bytes = (size_t)one.of[WR_FLOW_BYTES];
    const size_t sum = bytes_posted(front) + bytes;
    const bool fits = count < WR_POSTS_MOST && sum <= BYTES_MOST;
    const bool posted = claimed && decide(block, fits ? WR_MARK_POSTED : WR_MARK_PARKABLE) && fits;
    *full = claimed && !fits && bytes <= BYTES_MOST;
    if (posted) {
        posts->at[count] = (wr_post){ block, (uint32_t)bytes, (uint32_t)one.of[WR_FLOW_REQUESTED] };
        add_posted(posts, wr_front_class(bytes), &one, 1);
        atomic_store_explicit(&posts->count, count + 1, memory_order_relaxed);
        if (count + 1 >= WORTH || sum >= WORTH_BYTES) set_worth(posts, true);
    }
    wr_lock_release(&posts->lock);
    return posted;
}

/* All, or the last `most`. What they amount to counts as parked from then on. The lock is held no longer than it takes
 * to copy them: other threads wait for it. */
static uint32_t take_out(wr_front *front, wr_block **taken, uint32_t most, amounts sums[WR_CLASSES])
{
    wr_posts *posts = &front->posts;
    wr_lock_acquire_soon(&posts->lock);
    const uint32_t there = atomic_load_explicit(&posts->count, memory_order_relaxed);
    const uint32_t count = there < most ? there : most;
    for (uint32_t i = 0; i < count; i++) {
        const wr_post *p = &posts->at[there - 1 - i];
        taken[i] = p->block;
        add(&sums[wr_front_class(p->bytes)], p->bytes, p->requested);
    }
    for (int class = WR_SMALL; class < WR_CLASSES; class ++) {
        add_parked(&front->parts[class], &sums[class], 1);
        add_posted(posts, class, &sums[class], -1);
    }
    atomic_store_explicit(&posts->count, there - count, memory_order_relaxed);
    if (there == count) set_worth(posts, false);
    wr_lock_release(&posts->lock);
    return count;
}

/* Makes a posted block a parked one; once it is in the list, nobody without the front's lock changes its mark. Not if
 * its owner has freed it while it was being posted: two threads freed it at once, and neither was told of an error.
 * Then it may even be posted twice by now. */
static bool claim(const wr_front *front, wr_block *block)
{
    const bool good = wr_front_of_block(block) == front && wr_block_is(block, WR_MARK_POSTED);
    if (good)
        wr_block_mark_as(block, WR_MARK_PARKED);
    else
        wr_log(WR_LOG_WARN, "weir_free: two threads freed the same block at once; it was freed once");
    return good;
}

/* What they amount to counts as parked: add_one_parked() takes each out once it is so, or is free. */
static uint32_t claim_posts(wr_front *front, wr_block **blocks, uint32_t most)
{
    amounts sums[WR_CLASSES] = { 0 };
    const uint32_t count = take_out(front, blocks, most, sums);
    uint32_t claimed = 0;
    for (uint32_t i = 0; i < count; i++)
        if (claim(front, blocks[i])) blocks[claimed++] = blocks[i];
    if (WR_UNLIKELY(claimed != count)) {
        for (int class = WR_SMALL; class < WR_CLASSES; class ++) add_parked(&front->parts[class], &sums[class], -1);
        for (uint32_t i = 0; i < claimed; i++) add_one_parked(front, blocks[i], 1);
    }
    return claimed;
}

/* A block that was parked while it was being recorded has come back with a use. Nobody would wait for that. */
static void forget_uses_locked(wr_cache *cache, wr_block *const *blocks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (WR_UNLIKELY(blocks[i]->uses)) wr_pending_forget_locked(cache, blocks[i]);
}

static bool any_used(wr_block *const *blocks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (blocks[i]->uses) return true;
    return false;
}

/* False: the front is not detached, or uses have to be forgotten, for which the cache's lock is needed. */
static bool lock_cutting_for(wr_front *front, wr_block *const *blocks, uint32_t count)
{
    if (!wr_front_lock_cutting(front)) return false;
    if (WR_LIKELY(!any_used(blocks, count))) return true;
    wr_front_unlock_cutting(front, false);
    return false;
}

/* `counted`: each counts as parked until then. */
static void free_all(wr_front *front, wr_block *const *blocks, uint32_t count, bool counted)
{
    const bool cuts = lock_cutting_for(front, blocks, count);
    if (!cuts) {
        wr_cache_lock(front->cache);
        wr_front_meet_locked(front);
        forget_uses_locked(front->cache, blocks, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (counted) add_one_parked(front, blocks[i], -1);
        wr_front_give_locked(front, blocks[i]);
    }
    if (cuts)
        wr_front_unlock_cutting(front, true);
    else
        wr_cache_unlock(front->cache);
}

void wr_front_free_claimed(wr_front *front, wr_block *const *blocks, uint32_t count)
{
    free_all(front, blocks, count, false);
}

void wr_front_collect_all(wr_front *front)
{
    wr_block *blocks[WR_POSTS_MOST];
    const uint32_t count = claim_posts(front, blocks, WR_POSTS_MOST);
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++)
        if (wr_front_place_locked(front, blocks[i]))
            add_one_parked(front, blocks[i], -1);
        else
            blocks[left++] = blocks[i];
    if (left) free_all(front, blocks, left, true);
}

/* The owner keeps its bias. */
static void collect_for_owner(wr_front *front)
{
    wr_bias_visit(&front->lock);
    wr_front_collect_all(front);
    wr_bias_release(&front->lock, WR_BIAS_OUTER);
}

bool wr_front_post(wr_front *front, wr_block *block, const void *pointer)
{
    bool full = false;
    if (!wr_bias_is_contested(&front->lock)) return false;
    if (post(front, block, pointer, &full)) return true;
    if (!full) return false;
    collect_for_owner(front);
    return post(front, block, pointer, &full);
}

/* The slots stay as they are (wr_front_give_locked): a request may be about to take from one. */
static void free_some_posts_locked(wr_front *front, uint32_t most)
{
    enum { AT_ONCE = 128 }; /* the caller may have as many as there can be on its stack */
    wr_block *blocks[AT_ONCE];
    for (uint32_t next = AT_ONCE; most > 0; most -= next) {
        if (next > most) next = most;
        const uint32_t count = claim_posts(front, blocks, next);
        forget_uses_locked(front->cache, blocks, count);
        for (uint32_t i = 0; i < count; i++) {
            add_one_parked(front, blocks[i], -1);
            wr_front_count_free(front, blocks[i]->bytes, blocks[i]->requested);
            wr_cache_give_locked(front->cache, blocks[i]);
        }
    }
}

/* Those that are there, and once what has come meanwhile. Where others go on posting, each further look would be for a
 * few, for which the threads wait for each other. */
void wr_front_free_posts_locked(wr_front *front)
{
    for (int i = 0; i < 2; i++) free_some_posts_locked(front, wr_front_posts(front));
}

void wr_front_open_posts_locked(wr_front *front, bool open)
{
    if (front->posts.open == open) return;
    wr_lock_acquire_soon(&front->posts.lock);
    front->posts.open = open;
    wr_lock_release(&front->posts.lock);
    wr_front_free_posts_locked(front);
}
