#include "pool/post.h"

#include "base/log.h"
#include "base/meta.h"
#include "pool/detach.h"

/* So much is posted at most: to the rest of the cache it is live, and cannot be had for other requests. */
static const size_t BYTES_MOST = 64 * WR_MIB;

/* Blocks that are taken out at once: as many as a slot has room for. */
enum { BATCH = WR_FRONT_DEPTH_SMALL };

static bool has_list(wr_posts *posts)
{
    void *made = NULL;
    if (!posts->at && wr_meta_alloc(WR_POSTS_MOST * sizeof(wr_block *), "posted blocks", &made) == WEIR_OK)
        posts->at = made;
    return posts->at != NULL;
}

/* False: the block is not parkable any more. While it was looked at, a thread that frees it in error may have freed it,
 * and the record may be another block's by now. */
static bool mark_posted(const wr_front *front, wr_block *block, const void *pointer)
{
    if (wr_block_change_mark(block, WR_MARK_PARKABLE, WR_MARK_POSTED) != WR_MARK_PARKABLE) return false;
    if (WR_LIKELY(block->base == pointer && wr_front_of_block(block) == front)) return true;
    (void)wr_block_change_mark(block, WR_MARK_POSTED, WR_MARK_PARKABLE);
    return false;
}

/* *full: there was no room. */
static bool post(wr_front *front, wr_block *block, const void *pointer, bool *full)
{
    wr_posts *posts = &front->posts;
    wr_lock_acquire_soon(&posts->lock);
    const uint32_t count = atomic_load_explicit(&posts->count, memory_order_relaxed);
    const bool may = posts->open && wr_front_good(front, block, pointer) && has_list(posts);
    *full = may && (count == WR_POSTS_MOST || posts->bytes + block->bytes > BYTES_MOST);
    const bool posted = may && !*full && mark_posted(front, block, pointer);
    if (posted) {
        posts->at[count] = block;
        posts->bytes += block->bytes;
        atomic_store_explicit(&posts->count, count + 1, memory_order_relaxed);
    }
    wr_lock_release(&posts->lock);
    return posted;
}

/* Makes a posted block a parked one; nobody without the front's lock changes the mark of a posted block. Not if its
 * owner has freed it while it was being posted: two threads freed it at once, and neither was told of an error. Then it
 * may even be posted twice by now. */
static bool claim(const wr_front *front, wr_block *block)
{
    const bool good = wr_front_of_block(block) == front && wr_block_is(block, WR_MARK_POSTED);
    if (good)
        wr_block_mark_as(block, WR_MARK_PARKED);
    else
        wr_log(WR_LOG_WARN, "weir_free: two threads freed the same block at once; it was freed once");
    return good;
}

/* Those that were posted last. The posts' lock is held. */
static uint32_t take_out(wr_front *front, wr_block *blocks[BATCH])
{
    wr_posts *posts = &front->posts;
    uint32_t count = atomic_load_explicit(&posts->count, memory_order_relaxed), taken = 0;
    for (; count > 0 && taken < BATCH; count--) {
        wr_block *block = posts->at[count - 1];
        if (claim(front, block)) blocks[taken++] = block;
    }
    for (uint32_t i = 0; i < taken; i++) posts->bytes -= blocks[i]->bytes;
    if (count == 0) posts->bytes = 0; /* blocks that could not be claimed may be of other sizes by now */
    atomic_store_explicit(&posts->count, count, memory_order_relaxed);
    return taken;
}

static void free_locked(wr_front *front, wr_block *const *blocks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        wr_front_count_free(front, blocks[i]->bytes, blocks[i]->requested);
        wr_cache_give_locked(front->cache, blocks[i]);
    }
}

static void free_some(wr_front *front, wr_block *const *blocks, uint32_t count)
{
    const bool cuts = wr_front_lock_cutting(front);
    if (!cuts) {
        wr_cache_lock(front->cache);
        wr_front_meet_locked(front);
    }
    free_locked(front, blocks, count);
    if (cuts)
        wr_front_unlock_cutting(front, true);
    else
        wr_cache_unlock(front->cache);
}

void wr_front_collect_some(wr_front *front)
{
    wr_block *blocks[BATCH];
    wr_lock_acquire_soon(&front->posts.lock);
    const uint32_t count = take_out(front, blocks);
    wr_lock_release(&front->posts.lock);
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!wr_front_place_locked(front, blocks[i])) blocks[left++] = blocks[i];
    if (left) free_some(front, blocks, left);
}

/* The owner keeps its bias. */
static void collect_for_owner(wr_front *front)
{
    wr_bias_visit(&front->lock);
    for (int i = 0; i < WR_POSTS_MOST / BATCH; i++) wr_front_collect(front);
    wr_bias_release(&front->lock, WR_BIAS_OUTER);
}

bool wr_front_post(wr_front *front, wr_block *block, const void *pointer)
{
    bool full = false;
    if (!wr_bias_is_anothers(&front->lock)) return false;
    if (post(front, block, pointer, &full)) return true;
    if (!full || block->bytes > BYTES_MOST) return false;
    collect_for_owner(front);
    return post(front, block, pointer, &full);
}

void wr_front_free_posts_locked(wr_front *front)
{
    wr_block *blocks[BATCH];
    /* Not for ever, where others go on posting. */
    for (int i = 0; i <= WR_POSTS_MOST / BATCH && wr_front_has_posts(front); i++) {
        wr_lock_acquire_soon(&front->posts.lock);
        const uint32_t count = take_out(front, blocks);
        wr_lock_release(&front->posts.lock);
        free_locked(front, blocks, count);
    }
}

void wr_front_open_posts_locked(wr_front *front, bool open)
{
    if (front->posts.open == open) return;
    wr_lock_acquire_soon(&front->posts.lock);
    front->posts.open = open;
    wr_lock_release(&front->posts.lock);
    wr_front_free_posts_locked(front);
}
