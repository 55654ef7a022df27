#include "observe/stacks.h"

#include "base/hash.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/meta.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum {
    OWN_FRAMES = 10, /* most frames of weir's own further in than the caller's, where nothing is inlined */
    ARENA_BYTES = 1 << 16
};

typedef struct arena {
    struct arena *next;
    size_t used;
    _Alignas(wr_stack) char bytes[ARENA_BYTES];
} arena;

/* Open addressing, at most half full, so nothing ever moves: a stack's number is its place, from 1. */
static struct {
    _Atomic(_Atomic(const wr_stack *) *) at; /* NULL: there is none. The next two are constant while it is there */
    uint64_t places, kept_max;
    atomic_uint frames; /* most frames of a stack */
    atomic_uint_fast64_t kept, lost;
    wr_lock lock;
    arena *arenas; /* the newest first */
} table = { .lock = WR_LOCK_INITIALIZER(WR_RANK_LEAF, "stacks") };

WR_THREAD_LOCAL uint32_t wr_stack_now;

static _Atomic(const weir_stack_source *) source; /* NULL: stacks are of machine code only. Changes once */

static _Atomic(const wr_stack *) *there(void)
{
    return atomic_load_explicit(&table.at, memory_order_acquire);
}

weir_status wr_stacks_open(uint32_t frames, uint64_t kept)
{
    void *memory = NULL, *first[1];
    uint64_t places = 2;
    if (frames == 0) return WEIR_OK;
    atomic_store_explicit(&table.frames, frames < WEIR_HISTORY_FRAMES_MAX ? frames : WEIR_HISTORY_FRAMES_MAX,
                          memory_order_relaxed);
    if (there()) return WEIR_OK;
    while (places < 2 * kept) places *= 2;
    WR_TRY(wr_meta_reserve(places * sizeof(_Atomic(const wr_stack *)), "call stacks", &memory));
    table.places = places;
    table.kept_max = kept;
    (void)backtrace(first,
                    1); /* the first call loads the unwinder, which must not happen in the middle of an allocation */
    atomic_store_explicit(&table.at, memory, memory_order_release);
    return WEIR_OK;
}

void wr_stacks_close(void)
{
    if (!there()) return;
    wr_meta_release((void *)there(), table.places * sizeof *there());
    for (arena *a = table.arenas; a;) {
        arena *next = a->next;
        wr_meta_free(a);
        a = next;
    }
    atomic_store(&table.at, NULL);
    table.arenas = NULL;
    table.places = table.kept_max = 0;
    atomic_store(&table.kept, 0);
    atomic_store(&table.lost, 0);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(void *const *frames, uint32_t count)
{
    uint64_t hash = count;
    for (uint32_t i = 0; i < count; i++) hash = wr_hash_add(hash, (uint64_t)(uintptr_t)frames[i]);
    return hash;
}

static bool same(const wr_stack *s, uint64_t hash, void *const *frames, uint32_t count)
{
    return s->hash == hash && s->count == count && memcmp(s->frames, frames, count * sizeof *frames) == 0;
}

/* The place of the stack, from `at` on, or the first free place. The places before it hold other stacks for ever. */
static uint64_t look_from(uint64_t at, uint64_t hash, void *const *frames, uint32_t count, bool *found)
{
    for (*found = false;; at = (at + 1) & (table.places - 1)) {
        const wr_stack *s = atomic_load_explicit(&there()[at], memory_order_acquire);
        *found = s && same(s, hash, frames, count);
        if (!s || *found) return at;
    }
}

static wr_stack *make_stack_locked(uint32_t count)
{
    const size_t bytes = sizeof(wr_stack) + count * sizeof(void *);
    if (!table.arenas || ARENA_BYTES - table.arenas->used < bytes) {
        void *memory = NULL;
        if (wr_meta_alloc(sizeof(arena), "call stacks", &memory) != WEIR_OK) return NULL;
        arena *made = memory;
        made->next = table.arenas;
        table.arenas = made;
    }
    wr_stack *s = (wr_stack *)(void *)(table.arenas->bytes + table.arenas->used);
    table.arenas->used += bytes;
    return s;
}

static bool is_full(void)
{
    return atomic_load_explicit(&table.kept, memory_order_relaxed) == table.kept_max;
}

/* False: no room. */
static bool add(uint64_t *at, uint64_t hash, void *const *frames, uint32_t count)
{
    bool found = false;
    wr_lock_acquire(&table.lock);
    *at = look_from(*at, hash, frames, count, &found);
    wr_stack *s = found || is_full() ? NULL : make_stack_locked(count);
    if (s) {
        s->hash = hash;
        s->count = count;
        memcpy(s->frames, frames, count * sizeof *frames);
        atomic_store_explicit(&there()[*at], s, memory_order_release);
        atomic_fetch_add_explicit(&table.kept, 1, memory_order_relaxed);
    }
    wr_lock_release(&table.lock);
    return found || s;
}

uint32_t wr_stacks_number(void *const *frames, uint32_t count)
{
    bool found = false;
    if (!there() || count == 0) return 0;
    const uint64_t hash = hash_of(frames, count);
    uint64_t at = look_from(hash >> 32 & (table.places - 1), hash, frames, count, &found);
    if (WR_LIKELY(found) || (!is_full() && add(&at, hash, frames, count))) return (uint32_t)at + 1;
    if (atomic_fetch_add_explicit(&table.lost, 1, memory_order_relaxed) == 0)
        wr_log(
            WR_LOG_WARN,
            "%llu distinct call stacks are kept, and there is no room for more; events with other stacks are recorded "
            "without one. Raise WEIR_HISTORY_STACKS_KEPT",
            (unsigned long long)atomic_load(&table.kept));
    return 0;
}

bool wr_stacks_from(const weir_stack_source *wanted)
{
    const weir_stack_source *there = NULL;
    return atomic_compare_exchange_strong(&source, &there, wanted) || there == wanted;
}

/* False: there is no source, or it has none. */
static bool take_from_source(uint32_t *number)
{
    const void *frames[WEIR_HISTORY_FRAMES_MAX];
    const weir_stack_source *from = atomic_load_explicit(&source, memory_order_acquire);
    const size_t most = atomic_load_explicit(&table.frames, memory_order_relaxed);
    const size_t count = from ? from->take(from->user, frames, most) : 0;
    if (count == 0) return false;
    *number = wr_stacks_number((void *const *)frames, (uint32_t)(count < most ? count : most));
    return true;
}

uint32_t wr_stacks_take(const void *caller)
{
    void *frames[WEIR_HISTORY_FRAMES_MAX + OWN_FRAMES];
    if (!there()) return 0;
    uint32_t taken = 0;
    if (take_from_source(&taken)) return taken;
    const int most = (int)atomic_load_explicit(&table.frames, memory_order_relaxed);
    const int count = backtrace(frames, most + OWN_FRAMES);
    int first = 0;
    while (first < count && first < OWN_FRAMES && frames[first] != caller) first++;
    if (first == count || frames[first] != caller) first = 0; /* the caller is not on it, so the whole stack is shown */
    return wr_stacks_number(frames + first, (uint32_t)(count - first < most ? count - first : most));
}

const wr_stack *wr_stacks_find(uint32_t number)
{
    if (number == 0 || number >= wr_stacks_end()) return NULL;
    return atomic_load_explicit(&there()[number - 1], memory_order_acquire);
}

uint64_t wr_stacks_lost(void)
{
    return atomic_load_explicit(&table.lost, memory_order_relaxed);
}

uint32_t wr_stacks_end(void)
{
    return there() ? (uint32_t)table.places + 1 : 0;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

wr_frame wr_frame_of(const void *frame)
{
    const weir_stack_source *from = atomic_load_explicit(&source, memory_order_acquire);
    weir_frame place = { 0 };
    if (from && from->describe(from->user, frame, &place))
        return (wr_frame){ .object = place.file, .symbol = place.function, .is_source = true, .line = place.line };
    /* The call lies before its return address, which may be in the next function. */
    const char *address = (const char *)frame - 1;
    Dl_info found = { 0 };
    if (dladdr(address, &found) == 0) return (wr_frame){ .in_object = (uint64_t)(uintptr_t)address };
    return (wr_frame){ .object = found.dli_fname,
                       .symbol = found.dli_sname,
                       .in_object = (uint64_t)(address - (const char *)found.dli_fbase),
                       .in_symbol = found.dli_sname ? (uint64_t)(address - (const char *)found.dli_saddr) : 0 };
}
