#include "pool/address.h"

#include "base/lock.h"
#include "base/meta.h"

#define PAGE_BITS 21
#define LEAF_BITS 13
#define ROOT_BITS (48 - PAGE_BITS - LEAF_BITS)
#define LEAF_ENTRIES ((size_t)1 << LEAF_BITS)

typedef struct leaf {
    _Atomic(void *) owner[LEAF_ENTRIES];
} leaf;

static _Atomic(leaf *) root[(size_t)1 << ROOT_BITS];
static wr_lock lock = WR_LOCK_INITIALIZER(WR_RANK_ADDRESS, "address map");

static leaf *leaf_of(uintptr_t page)
{
    return atomic_load_explicit(&root[page >> LEAF_BITS], memory_order_acquire);
}

static weir_status make_leaves_locked(uintptr_t first, uintptr_t last)
{
    for (uintptr_t r = first >> LEAF_BITS; r <= last >> LEAF_BITS; r++) {
        if (atomic_load_explicit(&root[r], memory_order_relaxed)) continue;
        void *made = NULL;
        WR_TRY(wr_meta_alloc(sizeof(leaf), "address map", &made));
        atomic_store_explicit(&root[r], made, memory_order_release);
    }
    return WEIR_OK;
}

weir_status wr_address_insert(const void *base, size_t bytes, void *owner)
{
    uintptr_t start = (uintptr_t)base;
    WR_ENSURE(start % WR_SEGMENT_UNIT == 0 && bytes % WR_SEGMENT_UNIT == 0 && (start + bytes) >> 48 == 0,
              WEIR_ERR_DRIVER, "the driver gave memory at %p, %zu bytes, which is not 2 MiB aligned below 2^48", base,
              bytes);
    uintptr_t first = start >> PAGE_BITS, last = (start + bytes - 1) >> PAGE_BITS;
    wr_lock_acquire(&lock);
    weir_status status = make_leaves_locked(first, last);
    for (uintptr_t page = first; status == WEIR_OK && page <= last; page++)
        atomic_store_explicit(&leaf_of(page)->owner[page & (LEAF_ENTRIES - 1)], owner, memory_order_release);
    wr_lock_release(&lock);
    return status;
}

void wr_address_remove(const void *base, size_t bytes)
{
    uintptr_t first = (uintptr_t)base >> PAGE_BITS, last = ((uintptr_t)base + bytes - 1) >> PAGE_BITS;
    wr_lock_acquire(&lock);
    for (uintptr_t page = first; page <= last; page++)
        atomic_store_explicit(&leaf_of(page)->owner[page & (LEAF_ENTRIES - 1)], NULL, memory_order_release);
    wr_lock_release(&lock);
}

void *wr_address_find(const void *address)
{
    uintptr_t page = (uintptr_t)address >> PAGE_BITS;
    if (page >> (LEAF_BITS + ROOT_BITS)) return NULL;
    leaf *l = leaf_of(page);
    return l ? atomic_load_explicit(&l->owner[page & (LEAF_ENTRIES - 1)], memory_order_acquire) : NULL;
}

void wr_address_release(void)
{
    wr_lock_acquire(&lock);
    for (size_t r = 0; r < sizeof root / sizeof root[0]; r++) {
        leaf *l = atomic_exchange_explicit(&root[r], NULL, memory_order_acq_rel);
        wr_meta_free(l);
    }
    wr_lock_release(&lock);
}
