#include "pool/plan/follow.h"

#include "base/hash.h"
#include "base/meta.h"
#include "base/status.h"

#include <stdlib.h>

/* ---- the course -------------------------------------------------------------------------------------------------- */

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

/* Adds one size to the landmarks from `done` on; those too close to the beginning of the course are dropped. */
static void lengthen(wr_course *c, uint32_t done, uint32_t sizes)
{
    uint32_t kept = done;
    for (uint32_t i = done; i < c->landmark_count; i++) {
        wr_landmark l = c->landmarks[i];
        if (l.entry - c->first + 1 < sizes) continue;
        l.hash = mix(l.hash, c->entries[l.entry + 1 - sizes].bytes);
        c->landmarks[kept++] = l;
    }
    c->landmark_count = kept;
}

/* Moves landmarks of few places to the front, to stay as they are. */
static uint32_t settle(wr_course *c, uint32_t done, bool all)
{
    wr_landmark *l = c->landmarks;
    const uint32_t few = 1 + (c->count - c->first) / WR_FOLLOW_FEW;
    for (uint32_t i = done, end; i < c->landmark_count; i = end) {
        for (end = i + 1; end < c->landmark_count && l[end].hash == l[i].hash;) end++;
        if (end - i > few && !all) continue;
        for (uint32_t k = i; k < end; k++, done++) {
            const wr_landmark settled = l[k];
            l[k] = l[done];
            l[done] = settled;
        }
    }
    return done;
}

static void find_landmarks(wr_course *c)
{
    uint32_t done = 0;
    for (uint32_t i = c->first; i < c->count; i++) c->landmarks[c->landmark_count++] = (wr_landmark){ 0, i };
    for (uint32_t sizes = 1; sizes <= WR_FOLLOW_RECENT && done < c->landmark_count; sizes++) {
        lengthen(c, done, sizes);
        const uint32_t left = c->landmark_count - done;
        if (left) qsort(c->landmarks + done, left, sizeof *c->landmarks, by_hash);
        done = settle(c, done, sizes == WR_FOLLOW_RECENT);
    }
    if (done) qsort(c->landmarks, done, sizeof *c->landmarks, by_hash);
}

static int by_size(const void *left, const void *right)
{
    const wr_resident *a = left, *b = right;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return a->entry < b->entry ? -1 : a->entry > b->entry;
}

/* A block freed before half of the recording was over has left its place to others. */
static void list_residents(wr_course *c, const weir_plan_entry *entries)
{
    for (uint32_t i = 0; i < c->first; i++)
        if (entries[i].lives >= c->count / 2)
            c->residents[c->resident_count++] = (wr_resident){ entries[i].bytes, i, 0 };
    if (c->resident_count) qsort(c->residents, c->resident_count, sizeof *c->residents, by_size);
}

/* Programs may make their own plans, so nothing is taken on trust. */
static weir_status check(const weir_plan *plan, const weir_plan_arena *a)
{
    WR_ENSURE(a->entries > 0 && a->entries < UINT32_MAX && a->first <= plan->entry_count &&
                  a->entries <= plan->entry_count - a->first,
              WEIR_ERR_INVALID_ARGUMENT, "plan: an arena has entries that the plan does not have");
    WR_ENSURE(a->loop_times == 0 ||
                  (a->loop_entries > 0 && a->loop_first <= a->entries && a->loop_entries <= a->entries - a->loop_first),
              WEIR_ERR_INVALID_ARGUMENT, "plan: a loop is not inside its arena");
    WR_ENSURE(a->residents <= (a->loop_times ? a->loop_first : a->entries), WEIR_ERR_INVALID_ARGUMENT,
              "plan: an arena's residents are not among the entries before its loop");
    for (uint64_t i = 0; i < a->entries; i++) {
        const weir_plan_entry *e = &plan->entries[a->first + i];
        WR_ENSURE(e->bytes > 0 && (e->bytes | e->offset) % WEIR_PLAN_ALIGNMENT == 0 && e->offset <= a->bytes &&
                      e->bytes <= a->bytes - e->offset,
                  WEIR_ERR_INVALID_ARGUMENT, "plan: entry %llu is not inside its arena", (unsigned long long)i);
        WR_ENSURE(e->stream < a->streams, WEIR_ERR_INVALID_ARGUMENT,
                  "plan: entry %llu is on stream %u of an arena that has %u", (unsigned long long)i, e->stream,
                  a->streams);
    }
    return WEIR_OK;
}

weir_status wr_course_init(wr_course *course, const weir_plan *plan, const weir_plan_arena *arena)
{
    wr_course c = { 0 };
    void *entries = NULL, *landmarks = NULL, *residents = NULL;
    WR_TRY(check(plan, arena));
    const size_t count = (size_t)arena->entries, first = (size_t)arena->residents;
    weir_status status = wr_meta_alloc(count * sizeof *c.entries, "plan's entries", &entries);
    if (status == WEIR_OK) status = wr_meta_alloc(count * sizeof *c.landmarks, "plan's landmarks", &landmarks);
    if (status == WEIR_OK && first) status = wr_meta_alloc(first * sizeof *c.residents, "plan's residents", &residents);
    c.entries = entries;
    c.landmarks = landmarks;
    c.residents = residents;
    if (status != WEIR_OK) {
        wr_course_release(&c);
        return status;
    }
    c.count = (uint32_t)count;
    c.bytes = arena->bytes;
    c.first = (uint32_t)first;
    if (arena->loop_times) {
        c.loop_first = (uint32_t)arena->loop_first;
        c.loop_count = (uint32_t)arena->loop_entries;
    }
    for (size_t i = 0; i < count; i++) {
        const weir_plan_entry *e = &plan->entries[arena->first + i];
        const bool stays = e->lives == WEIR_PLAN_FOREVER || e->lives >= count - i;
        c.entries[i] = (wr_planned){ e->offset, e->bytes, stays };
    }
    list_residents(&c, &plan->entries[arena->first]);
    find_landmarks(&c);
    *course = c;
    return WEIR_OK;
}

void wr_course_release(wr_course *course)
{
    wr_meta_free(course->entries);
    wr_meta_free(course->landmarks);
    wr_meta_free(course->residents);
    wr_meta_free(course->units);
    *course = (wr_course){ 0 };
}

/* Entries of the loop come again, whatever came before. */
static uint32_t before(const wr_course *c, uint32_t entry)
{
    return c->loop_count && entry > c->loop_first ? c->loop_first : entry;
}

/* Marks the units needed from there on. Counts beginnings and ends, since a plan may be made to have many entries that
 * are all large. */
static uint64_t mark_units(const wr_course *c, uint32_t from, uint32_t *edges, uint64_t *units)
{
    const uint64_t end = c->bytes / WR_SEGMENT_UNIT + 1;
    uint64_t count = 0;
    uint32_t depth = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        const wr_planned *e = &c->entries[i];
        if (i >= c->first && i < from) continue;
        edges[e->offset / WR_SEGMENT_UNIT]++;
        edges[(e->offset + e->bytes - 1) / WR_SEGMENT_UNIT + 1]--;
    }
    for (uint64_t u = 0; u < end; u++) {
        depth += edges[u];
        if (!depth) continue;
        units[u / 64] |= UINT64_C(1) << u % 64;
        count++;
    }
    return count;
}

bool wr_course_begin_at(wr_course *c, uint32_t entry)
{
    uint64_t absent = 0, end = 0;
    void *units = NULL, *edges = NULL;
    const uint32_t from = before(c, entry);
    for (uint32_t i = 0; i < c->count; i++) {
        const wr_planned *e = &c->entries[i];
        if (i >= c->first && i < from && e->stays && absent < c->bytes) absent += e->bytes;
        if (e->offset + e->bytes > end) end = e->offset + e->bytes;
    }
    wr_meta_free(c->units);
    c->units = NULL;
    if (absent == 0 || c->bytes / WR_SEGMENT_UNIT >= WR_FOLLOW_UNITS_MOST) return true;
    const size_t last = (size_t)(c->bytes / WR_SEGMENT_UNIT);
    if (wr_meta_alloc((last + 2) * sizeof(uint32_t), "edges of a plan", &edges) != WEIR_OK) return true;
    if (wr_meta_alloc((last / 64 + 1) * sizeof(uint64_t), "units of a plan", &units) != WEIR_OK) {
        wr_meta_free(edges);
        return true;
    }
    c->units = units;
    const uint64_t needed = mark_units(c, from, edges, units) * WR_SEGMENT_UNIT;
    const uint64_t alive = end > absent ? end - absent : 0; /* blocks that stay may overlap in a faulty plan */
    wr_meta_free(edges);
    return needed <= alive + alive / WR_FOLLOW_WASTE + WR_SEGMENT_UNIT;
}

/* ---- following --------------------------------------------------------------------------------------------------- */

static uint32_t resident_from(const wr_course *c, uint64_t bytes)
{
    uint32_t low = 0, high = c->resident_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (c->residents[middle].bytes < bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool wr_course_may_begin(const wr_course *course, uint64_t bytes)
{
    const uint32_t i = resident_from(course, bytes);
    if (i < course->resident_count && course->residents[i].bytes == bytes) return true;
    return course->first < course->count && course->entries[course->first].bytes == bytes;
}

void wr_follower_init(wr_follower *follower, wr_course *course)
{
    for (uint32_t i = 0; i < course->resident_count; i++) course->residents[i].asked = 0;
    *follower = (wr_follower){
        .trust = WR_TRUST_LOST, .probation = WR_PROBATION_LEAST / 2, .rounds = 1, .next = course->first ? WR_NOWHERE : 0
    };
}

/* The n-th last size asked for, from 0; 0, which no entry has, where fewer were. */
static uint64_t recent(const wr_follower *f, uint64_t n)
{
    return f->recent[(f->asked - 1 - n) % WR_FOLLOW_RECENT];
}

/* At its end a program repeats the loop or, without one, begins again. */
static uint32_t after(const wr_course *c, uint32_t entry)
{
    if (c->loop_count && entry + 1 == c->loop_first + c->loop_count) return c->loop_first;
    if (entry + 1 < c->count) return entry + 1;
    return c->first ? WR_NOWHERE : 0;
}

/* The loop has ended, and what follows is the entry behind it instead of its first. */
static bool leaves_loop(const wr_follower *f, const wr_course *c, uint64_t bytes)
{
    const uint32_t behind = c->loop_first + c->loop_count;
    return c->loop_count && f->next == c->loop_first && behind < c->count && c->entries[behind].bytes == bytes;
}

static bool find_near(const wr_follower *f, const wr_course *c, uint32_t *entry)
{
    if (f->next == WR_NOWHERE) return false;
    const uint32_t room = c->count - f->next - 1;
    const uint32_t most = room < WR_FOLLOW_NEAR ? room : WR_FOLLOW_NEAR;
    for (uint32_t i = f->next + 1; i <= f->next + most; i++) {
        if (c->entries[i].bytes != recent(f, 0) || c->entries[i - 1].bytes != recent(f, 1)) continue;
        *entry = i;
        return true;
    }
    return false;
}

/* How many of the last sizes asked for, up to those that identify a place for certain, match those up to the entry. */
static uint32_t agreement(const wr_follower *f, const wr_course *c, uint32_t entry)
{
    uint32_t sizes = 0, most = entry - c->first + 1;
    if (most > WR_FOLLOW_RECENT) most = WR_FOLLOW_RECENT;
    while (sizes < most && c->entries[entry - sizes].bytes == recent(f, sizes)) sizes++;
    return sizes;
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

/* Among the few landmarks of that hash, the one that agrees most; among equals, the next one ahead, or else the
 * first. */
static bool best_of_few(const wr_follower *f, const wr_course *c, uint64_t hash, uint32_t least, uint32_t *entry)
{
    uint32_t most = 0;
    for (uint32_t i = landmark_from(c, (wr_landmark){ hash, 0 }); i < c->landmark_count; i++) {
        const wr_landmark *l = &c->landmarks[i];
        if (l->hash != hash) break;
        const uint32_t sizes = agreement(f, c, l->entry);
        if (sizes < least || sizes < most || (sizes == most && (*entry >= f->next || l->entry < f->next))) continue;
        *entry = l->entry;
        most = sizes;
    }
    return most != 0;
}

/* For a hash of WR_FOLLOW_RECENT sizes there may be many landmarks, which all agree: the next one ahead, or else the
 * first. */
static bool find_sure(const wr_follower *f, const wr_course *c, uint64_t hash, uint32_t *entry)
{
    const uint32_t from[] = { f->next, 0 };
    for (int k = 0; k < 2; k++) {
        const uint32_t i = landmark_from(c, (wr_landmark){ hash, from[k] });
        if (i == c->landmark_count || c->landmarks[i].hash != hash) continue;
        *entry = c->landmarks[i].entry;
        return agreement(f, c, *entry) == WR_FOLLOW_RECENT;
    }
    return false;
}

static bool find_far(const wr_follower *f, const wr_course *c, uint32_t *entry)
{
    uint64_t hash = 0;
    for (uint32_t sizes = 1; sizes < WR_FOLLOW_RECENT; sizes++) {
        hash = mix(hash, recent(f, sizes - 1));
        if (best_of_few(f, c, hash, sizes, entry)) return true;
    }
    return find_sure(f, c, mix(hash, recent(f, WR_FOLLOW_RECENT - 1)), entry);
}

/* The entry begins what repeats: the loop or, without one, the whole course. With residents that does not repeat in
 * order: the first entry, which is one, is never expected. */
static bool begins_round(const wr_course *c, uint32_t entry)
{
    return entry == (c->loop_count ? c->loop_first : 0);
}

/* Of the run, without this request. */
static uint32_t whole_rounds(const wr_follower *f, const wr_course *c)
{
    return (f->run - 1) / (c->loop_count ? c->loop_count : c->count);
}

static void begin_to_trust(wr_follower *f)
{
    f->trust = WR_TRUST_MOST / 2;
    f->run = 0;
}

static void gain(wr_follower *f, const wr_course *c, uint32_t entry)
{
    f->run++;
    if (f->trust) {
        if (f->trust < WR_TRUST_MOST) f->trust++;
        if (f->run >= WR_PROBATION_OVER * f->probation) f->probation = WR_PROBATION_LEAST;
        if (f->rounds > 1 && whole_rounds(f, c) >= WR_PROBATION_OVER * f->rounds) f->rounds = 1;
    } else if (f->run > WR_PROBATION_LEAST && begins_round(c, entry) && whole_rounds(f, c) >= f->rounds) {
        begin_to_trust(f);
        if (f->rounds < WR_ROUNDS_MOST) f->rounds *= WR_ROUNDS_MORE;
    } else if (f->run >= f->probation) {
        begin_to_trust(f);
        const bool first = f->probation < WR_PROBATION_LEAST;
        f->probation *= first ? 2 : WR_PROBATION_MORE;
        if (f->probation > WR_PROBATION_MOST) f->probation = WR_PROBATION_MOST;
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

/* Residents of the size, in turn. `first`: only while one of them was not handed out. */
static bool find_resident(wr_course *c, uint64_t bytes, bool first, uint32_t *entry)
{
    const uint32_t from = resident_from(c, bytes), count = resident_from(c, bytes + 1) - from;
    if (count == 0 || (first && c->residents[from].asked >= count)) return false;
    *entry = c->residents[from + c->residents[from].asked++ % count].entry;
    return true;
}

/* A resident not asked for yet takes precedence over a place that not all of the last sizes confirm, and, while the
 * program makes only residents, over any place. */
static wr_followed locate(const wr_follower *f, wr_course *c, uint64_t bytes, uint32_t *entry)
{
    if (f->next != WR_NOWHERE) {
        *entry = f->next;
        if (WR_LIKELY(c->entries[f->next].bytes == bytes)) return WR_FOLLOW_NEXT;
        *entry = c->loop_first + c->loop_count;
        if (leaves_loop(f, c, bytes)) return WR_FOLLOW_NEXT;
    }
    uint32_t resident = 0;
    const bool looks = f->unserved < WR_FOLLOW_LONG || f->asked % WR_FOLLOW_SELDOM == 0;
    const bool found = looks && find(f, c, entry), served = wr_follower_trusted(f);
    const bool certain = found && f->next != WR_NOWHERE && agreement(f, c, *entry) == WR_FOLLOW_RECENT;
    if (served && !certain && find_resident(c, bytes, found, &resident)) {
        *entry = resident;
        return WR_FOLLOW_RESIDENT;
    }
    return found ? WR_FOLLOW_FOUND : WR_FOLLOW_NONE;
}

/* What follows the end of a course without a loop was not planned, unless it begins again: anywhere else, blocks that
 * live now lie in the places of those to come. */
static void pass_end(wr_follower *f, const wr_course *c, uint32_t entry)
{
    if (f->over && entry > c->first + WR_FOLLOW_NEAR) {
        f->trust = f->run = 0;
        f->probation = WR_PROBATION_MOST;
    }
    if (entry >= c->first + WR_FOLLOW_RECENT) f->over = false;
    if (entry + 1 == c->count && c->loop_count == 0) f->over = true;
}

wr_followed wr_follow(wr_follower *f, wr_course *c, uint64_t bytes, uint32_t *entry)
{
    f->recent[f->asked++ % WR_FOLLOW_RECENT] = bytes;
    f->unserved = wr_follower_trusted(f) ? 0 : f->unserved + 1;
    const wr_followed how = locate(f, c, bytes, entry);
    if (how == WR_FOLLOW_NONE) {
        wr_follower_fail(f, f->missed++ || f->next == WR_NOWHERE ? WR_TRUST_LATE : WR_TRUST_LOST);
        return how;
    }
    f->missed = 0;
    if (how == WR_FOLLOW_RESIDENT) {
        if (f->trust < WR_TRUST_MOST) f->trust++;
        return how;
    }
    if (how == WR_FOLLOW_NEXT)
        gain(f, c, *entry);
    else
        wr_follower_fail(f, WR_TRUST_JUMPED);
    pass_end(f, c, *entry);
    f->next = after(c, *entry);
    return how;
}
