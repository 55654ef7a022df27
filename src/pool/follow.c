#include "pool/follow.h"

#include "base/hash.h"
#include "base/meta.h"
#include "base/status.h"

#include <stdlib.h>

/* ---- the course --------------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t bytes)
{
    return wr_hash_add(hash, bytes / WEIR_PLAN_ALIGNMENT);
}

static int by_hash(const void *left, const void *right)
{
    const wr_landmark *a = left, *b = right;
    if (a->hash != b->hash) return a->hash < b->hash ? -1 : 1;
    return a->entry < b->entry ? -1 : a->entry > b->entry;
}

static void find_landmarks(wr_course *c)
{
    for (uint32_t last = WR_FOLLOW_RECENT - 1; last < c->count; last++) {
        uint64_t hash = 0;
        for (uint32_t i = last + 1 - WR_FOLLOW_RECENT; i <= last; i++) hash = mix(hash, c->entries[i].bytes);
        c->landmarks[c->landmark_count++] = (wr_landmark){ hash, last };
    }
    if (c->landmark_count) qsort(c->landmarks, c->landmark_count, sizeof *c->landmarks, by_hash);
}

/* Programs may make plans of their own: nothing is believed. */
static weir_status check(const weir_plan *plan, const weir_plan_arena *a)
{
    WR_ENSURE(a->entries > 0 && a->entries < UINT32_MAX && a->first <= plan->entry_count &&
                  a->entries <= plan->entry_count - a->first,
              WEIR_ERR_INVALID_ARGUMENT, "plan: an arena's entries are not there");
    WR_ENSURE(a->loop_times == 0 ||
                  (a->loop_entries > 0 && a->loop_first <= a->entries && a->loop_entries <= a->entries - a->loop_first),
              WEIR_ERR_INVALID_ARGUMENT, "plan: a loop does not lie in its arena");
    for (uint64_t i = 0; i < a->entries; i++) {
        const weir_plan_entry *e = &plan->entries[a->first + i];
        WR_ENSURE(e->bytes > 0 && (e->bytes | e->offset) % WEIR_PLAN_ALIGNMENT == 0 && e->offset <= a->bytes &&
                      e->bytes <= a->bytes - e->offset,
                  WEIR_ERR_INVALID_ARGUMENT, "plan: entry %llu does not lie in its arena", (unsigned long long)i);
    }
    return WEIR_OK;
}

weir_status wr_course_init(wr_course *course, const weir_plan *plan, const weir_plan_arena *arena)
{
    wr_course c = { 0 };
    void *entries = NULL, *landmarks = NULL;
    WR_TRY(check(plan, arena));
    const size_t count = (size_t)arena->entries;
    WR_TRY(wr_meta_alloc(count * sizeof *c.entries, "plan's entries", &entries));
    weir_status status = wr_meta_alloc(count * sizeof *c.landmarks, "plan's landmarks", &landmarks);
    if (status != WEIR_OK) {
        wr_meta_free(entries);
        return status;
    }
    c.entries = entries;
    c.landmarks = landmarks;
    c.count = (uint32_t)count;
    if (arena->loop_times) {
        c.loop_first = (uint32_t)arena->loop_first;
        c.loop_count = (uint32_t)arena->loop_entries;
    }
    for (size_t i = 0; i < count; i++) {
        const weir_plan_entry *e = &plan->entries[arena->first + i];
        c.entries[i] = (wr_planned){ e->offset, e->bytes };
    }
    find_landmarks(&c);
    *course = c;
    return WEIR_OK;
}

void wr_course_release(wr_course *course)
{
    wr_meta_free(course->entries);
    wr_meta_free(course->landmarks);
    *course = (wr_course){ 0 };
}

/* ---- following ---------------------------------------------------------------------------------------------------- */

void wr_follower_init(wr_follower *follower)
{
    *follower = (wr_follower){ .trust = WR_TRUST_LOST, .probation = WR_PROBATION_LEAST / 2 };
}

/* The n-th last size asked for, from 0. */
static uint64_t recent(const wr_follower *f, uint64_t n)
{
    return f->recent[(f->asked - 1 - n) % WR_FOLLOW_RECENT];
}

/* A program goes round the loop, or, without one, begins again. */
static uint32_t after(const wr_course *c, uint32_t entry)
{
    if (c->loop_count && entry + 1 == c->loop_first + c->loop_count) return c->loop_first;
    return entry + 1 < c->count ? entry + 1 : 0;
}

/* Where the loop is over, and what follows is not its first entry but what comes behind it. */
static bool leaves_loop(const wr_follower *f, const wr_course *c, uint64_t bytes)
{
    const uint32_t behind = c->loop_first + c->loop_count;
    return c->loop_count && f->next == c->loop_first && behind < c->count && c->entries[behind].bytes == bytes;
}

static bool find_near(const wr_follower *f, const wr_course *c, uint32_t *entry)
{
    if (f->asked < 2) return false;
    const uint32_t room = c->count - f->next - 1;
    const uint32_t most = room < WR_FOLLOW_NEAR ? room : WR_FOLLOW_NEAR;
    for (uint32_t i = f->next + 1; i <= f->next + most; i++) {
        if (c->entries[i].bytes != recent(f, 0) || c->entries[i - 1].bytes != recent(f, 1)) continue;
        *entry = i;
        return true;
    }
    return false;
}

static bool agrees(const wr_follower *f, const wr_course *c, uint32_t entry)
{
    for (uint32_t i = 0; i < WR_FOLLOW_RECENT; i++)
        if (c->entries[entry - i].bytes != recent(f, i)) return false;
    return true;
}

/* The first landmark of that hash at or behind the entry. */
static uint32_t landmark_from(const wr_course *c, wr_landmark key)
{
    uint32_t low = 0, high = c->landmark_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (by_hash(&c->landmarks[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The next one ahead; when there is none, the first of all. */
static bool find_far(const wr_follower *f, const wr_course *c, uint32_t *entry)
{
    if (f->asked < WR_FOLLOW_RECENT) return false;
    uint64_t hash = 0;
    for (uint32_t i = WR_FOLLOW_RECENT; i-- > 0;) hash = mix(hash, recent(f, i));
    const uint32_t from[] = { f->next, 0 };
    for (int k = 0; k < 2; k++) {
        const uint32_t i = landmark_from(c, (wr_landmark){ hash, from[k] });
        if (i == c->landmark_count || c->landmarks[i].hash != hash) continue;
        *entry = c->landmarks[i].entry;
        return agrees(f, c, *entry);
    }
    return false;
}

static void gain(wr_follower *f)
{
    f->run++;
    if (f->trust) {
        if (f->trust < WR_TRUST_MOST) f->trust++;
        if (f->run >= WR_PROBATION_OVER * f->probation) f->probation = WR_PROBATION_LEAST;
    } else if (f->run >= f->probation) {
        f->trust = WR_TRUST_MOST / 2;
        f->run = 0;
        if (f->probation < WR_PROBATION_MOST) f->probation *= 2;
    }
}

void wr_follower_fail(wr_follower *f, uint32_t cost)
{
    f->trust -= f->trust < cost ? f->trust : cost;
    if (f->trust == 0) f->run = 0;
}

static bool find(const wr_follower *f, const wr_course *c, uint32_t *entry)
{
    return find_near(f, c, entry) || find_far(f, c, entry);
}

wr_followed wr_follow(wr_follower *f, const wr_course *c, uint64_t bytes, uint32_t *entry)
{
    f->recent[f->asked++ % WR_FOLLOW_RECENT] = bytes;
    wr_followed how = WR_FOLLOW_NEXT;
    *entry = f->next;
    if (WR_UNLIKELY(c->entries[f->next].bytes != bytes)) {
        if (leaves_loop(f, c, bytes))
            *entry = c->loop_first + c->loop_count;
        else
            how = find(f, c, entry) ? WR_FOLLOW_FOUND : WR_FOLLOW_NONE;
    }
    if (how == WR_FOLLOW_NONE) {
        wr_follower_fail(f, WR_TRUST_LOST);
        return how;
    }
    if (how == WR_FOLLOW_NEXT) gain(f);
    f->next = after(c, *entry);
    return how;
}
