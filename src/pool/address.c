#include "pool/address.h"

#include "base/lock.h"
#include "base/meta.h"

/* A page that segments fill only partly: one may end in it, one may begin in it. */
typedef struct wr_address_edges {
    _Atomic(void *) low, high; /* owners of [page, low_end) and [high_start, next page) */
    atomic_uintptr_t low_end, high_start;
} edges;

typedef wr_address_leaf leaf;

char wr_address_partly;
_Atomic(wr_address_leaf *) wr_address_root[(size_t)1 << WR_ADDRESS_ROOT_BITS];
static wr_lock lock = WR_LOCK_INITIALIZER(WR_RANK_ADDRESS, "address map");

/* The pages of a segment. A segment is no smaller than a page, so of each page at the ends it has one part. */
typedef struct span {
    uintptr_t start, end;
    uintptr_t first, last; /* whole pages; none when first > last */
    bool begins_inside, ends_inside;
    uintptr_t head, tail; /* the pages inside which it begins and ends */
} span;

static span span_of(const void *base, size_t bytes)
{
    span s = { .start = (uintptr_t)base, .end = (uintptr_t)base + bytes };
    s.head = s.start >> WR_SEGMENT_UNIT_LOG2;
    s.tail = s.end >> WR_SEGMENT_UNIT_LOG2;
    s.begins_inside = s.start % WR_SEGMENT_UNIT != 0;
    s.ends_inside = s.end % WR_SEGMENT_UNIT != 0;
    s.first = s.head + s.begins_inside;
    s.last = s.tail - 1;
    return s;
}

static leaf *leaf_of(uintptr_t page)
{
    return atomic_load_explicit(&wr_address_root[page >> WR_ADDRESS_LEAF_BITS], memory_order_acquire);
}

static _Atomic(void *) *entry_of(uintptr_t page)
{
    return &leaf_of(page)->owner[page & (WR_ADDRESS_LEAF_ENTRIES - 1)];
}

static edges *edges_of(uintptr_t page)
{
    return &atomic_load_explicit(&leaf_of(page)->edges, memory_order_acquire)[page & (WR_ADDRESS_LEAF_ENTRIES - 1)];
}

static weir_status make_leaves_locked(uintptr_t first, uintptr_t last)
{
    for (uintptr_t r = first >> WR_ADDRESS_LEAF_BITS; r <= last >> WR_ADDRESS_LEAF_BITS; r++) {
        if (atomic_load_explicit(&wr_address_root[r], memory_order_relaxed)) continue;
        void *made = NULL;
        WR_TRY(wr_meta_alloc(sizeof(leaf), "address map", &made));
        atomic_store_explicit(&wr_address_root[r], made, memory_order_release);
    }
    return WEIR_OK;
}

static weir_status make_edges_locked(uintptr_t page)
{
    leaf *l = leaf_of(page);
    void *made = NULL;
    if (atomic_load_explicit(&l->edges, memory_order_relaxed)) return WEIR_OK;
    WR_TRY(wr_meta_alloc(WR_ADDRESS_LEAF_ENTRIES * sizeof(edges), "address map", &made));
    atomic_store_explicit(&l->edges, made, memory_order_release);
    return WEIR_OK;
}

static weir_status make_room_locked(const span *s)
{
    WR_TRY(make_leaves_locked(s->head, s->tail - !s->ends_inside));
    if (s->begins_inside) WR_TRY(make_edges_locked(s->head));
    if (s->ends_inside) WR_TRY(make_edges_locked(s->tail));
    return WEIR_OK;
}

/* Whether the bytes of a page from `start` to `end` are nobody's. */
static bool is_free_locked(uintptr_t page, uintptr_t start, uintptr_t end)
{
    const void *owner = atomic_load_explicit(entry_of(page), memory_order_relaxed);
    if (owner != &wr_address_partly) return owner == NULL;
    const edges *e = edges_of(page);
    return (!atomic_load_explicit(&e->low, memory_order_relaxed) || e->low_end <= start) &&
           (!atomic_load_explicit(&e->high, memory_order_relaxed) || e->high_start >= end);
}

static weir_status check_free_locked(const span *s)
{
    bool free = true;
    if (s->begins_inside) free = is_free_locked(s->head, s->start, (s->head + 1) << WR_SEGMENT_UNIT_LOG2);
    if (s->ends_inside && free) free = is_free_locked(s->tail, s->tail << WR_SEGMENT_UNIT_LOG2, s->end);
    for (uintptr_t page = s->first; free && page <= s->last; page++)
        free = atomic_load_explicit(entry_of(page), memory_order_relaxed) == NULL;
    WR_ENSURE(free, WEIR_ERR_DRIVER,
              "the driver or a segment source gave memory at %p (%zu bytes) that weir already holds, at least in part",
              (void *)s->start, (size_t)(s->end - s->start));
    return WEIR_OK;
}

static void set_whole_locked(const span *s, void *owner)
{
    for (uintptr_t page = s->first; page <= s->last; page++)
        atomic_store_explicit(entry_of(page), owner, memory_order_release);
}

static weir_status prepare_locked(const span *s)
{
    const size_t bytes = s->end - s->start;
    WR_ENSURE(
        bytes != 0 && bytes % WR_SEGMENT_UNIT == 0 && s->start < s->end && s->end >> 48 == 0, WEIR_ERR_DRIVER,
        "the driver or a segment source gave memory at %p (%zu bytes); the size must be a multiple of 2 MiB, and the "
        "end below 2^48",
        (void *)s->start, bytes);
    WR_TRY(make_room_locked(s));
    return check_free_locked(s);
}

weir_status wr_address_check(const void *base, size_t bytes)
{
    const span s = span_of(base, bytes);
    wr_lock_acquire(&lock);
    const weir_status status = prepare_locked(&s);
    wr_lock_release(&lock);
    return status;
}

weir_status wr_address_insert(const void *base, size_t bytes, void *owner)
{
    const span s = span_of(base, bytes);
    wr_lock_acquire(&lock);
    const weir_status status = prepare_locked(&s);
    if (status == WEIR_OK) {
        set_whole_locked(&s, owner);
        if (s.begins_inside) {
            edges *e = edges_of(s.head);
            atomic_store_explicit(&e->high_start, s.start, memory_order_relaxed);
            atomic_store_explicit(&e->high, owner, memory_order_release);
            atomic_store_explicit(entry_of(s.head), &wr_address_partly, memory_order_release);
        }
        if (s.ends_inside) {
            edges *e = edges_of(s.tail);
            atomic_store_explicit(&e->low_end, s.end, memory_order_relaxed);
            atomic_store_explicit(&e->low, owner, memory_order_release);
            atomic_store_explicit(entry_of(s.tail), &wr_address_partly, memory_order_release);
        }
    }
    wr_lock_release(&lock);
    return status;
}

/* A page without parts is nobody's; a whole segment may come there next. */
static void leave_page_locked(uintptr_t page)
{
    const edges *e = edges_of(page);
    if (atomic_load_explicit(&e->low, memory_order_relaxed) || atomic_load_explicit(&e->high, memory_order_relaxed))
        return;
    atomic_store_explicit(entry_of(page), NULL, memory_order_release);
}

void wr_address_remove(const void *base, size_t bytes)
{
    const span s = span_of(base, bytes);
    wr_lock_acquire(&lock);
    set_whole_locked(&s, NULL);
    if (s.begins_inside) {
        atomic_store_explicit(&edges_of(s.head)->high, NULL, memory_order_release);
        leave_page_locked(s.head);
    }
    if (s.ends_inside) {
        atomic_store_explicit(&edges_of(s.tail)->low, NULL, memory_order_release);
        leave_page_locked(s.tail);
    }
    wr_lock_release(&lock);
}

/* The bounds of a part do not change while its owner is there, so the answer for an address in use is right. For any
 * other address it may be an owner that was there a moment ago, as with whole pages. */
void *wr_address_find_part(const wr_address_leaf *l, const void *pointer)
{
    const uintptr_t address = (uintptr_t)pointer, page = address >> WR_SEGMENT_UNIT_LOG2;
    const edges *e = &atomic_load_explicit(&l->edges, memory_order_acquire)[page & (WR_ADDRESS_LEAF_ENTRIES - 1)];
    void *low = atomic_load_explicit(&e->low, memory_order_acquire);
    if (low && address < atomic_load_explicit(&e->low_end, memory_order_relaxed)) return low;
    void *high = atomic_load_explicit(&e->high, memory_order_acquire);
    return high && address >= atomic_load_explicit(&e->high_start, memory_order_relaxed) ? high : NULL;
}

void wr_address_release(void)
{
    wr_lock_acquire(&lock);
    for (size_t r = 0; r < sizeof wr_address_root / sizeof wr_address_root[0]; r++) {
        leaf *l = atomic_exchange_explicit(&wr_address_root[r], NULL, memory_order_acq_rel);
        if (l) wr_meta_free(atomic_load_explicit(&l->edges, memory_order_relaxed));
        wr_meta_free(l);
    }
    wr_lock_release(&lock);
}
