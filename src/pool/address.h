/*
 * address: which segment an address lies in. The map has one entry per 2 MiB page of the address space, in two levels.
 * A segment is a multiple of a page in size and mostly begins with one. Where it does not (memory of the program's,
 * pinned memory), the pages at its ends have an entry for each of the two segments that may share them.
 * Owner: the process; all devices share it. Readers take no lock; writers hold the map's own (WR_RANK_ADDRESS).
 */
#ifndef WR_POOL_ADDRESS_H
#define WR_POOL_ADDRESS_H

#include "pool/block.h"

/* WEIR_ERR_OUT_OF_HOST_MEMORY, or WEIR_ERR_DRIVER for memory beyond 48 bits, of a size that is not a multiple of a
 * page, or that somebody owns already; then nothing is inserted. wr_address_find returns `owner`. */
WR_CHECKED weir_status wr_address_insert(const void *base, size_t bytes, void *owner);

/* The same errors, now; inserts nothing. */
WR_CHECKED weir_status wr_address_check(const void *base, size_t bytes);

/* Removes what was inserted. Inserting the same again cannot fail, unless somebody else has inserted there. */
void wr_address_remove(const void *base, size_t bytes);

#define WR_ADDRESS_LEAF_BITS 13
#define WR_ADDRESS_LEAF_ENTRIES ((size_t)1 << WR_ADDRESS_LEAF_BITS)
#define WR_ADDRESS_ROOT_BITS (48 - WR_SEGMENT_UNIT_LOG2 - WR_ADDRESS_LEAF_BITS)

/* `edges` has an entry per page. It is made for the first page that segments fill only partly, and never accessed for
 * whole pages. */
typedef struct wr_address_leaf {
    _Atomic(void *) owner[WR_ADDRESS_LEAF_ENTRIES];
    _Atomic(struct wr_address_edges *) edges;
} wr_address_leaf;

extern _Atomic(wr_address_leaf *) wr_address_root[(size_t)1 << WR_ADDRESS_ROOT_BITS];
extern char wr_address_partly; /* a page whose owner is its address has its owners in `edges` */

void *wr_address_find_part(const wr_address_leaf *leaf, const void *address);

/* NULL: no segment of weir's. Lock-free. */
static inline void *wr_address_find(const void *address)
{
    const uintptr_t page = (uintptr_t)address >> WR_SEGMENT_UNIT_LOG2;
    if (WR_UNLIKELY(page >> (WR_ADDRESS_LEAF_BITS + WR_ADDRESS_ROOT_BITS))) return NULL;
    wr_address_leaf *leaf = atomic_load_explicit(&wr_address_root[page >> WR_ADDRESS_LEAF_BITS], memory_order_acquire);
    if (WR_UNLIKELY(!leaf)) return NULL;
    void *owner = atomic_load_explicit(&leaf->owner[page & (WR_ADDRESS_LEAF_ENTRIES - 1)], memory_order_acquire);
    return WR_LIKELY(owner != &wr_address_partly) ? owner : wr_address_find_part(leaf, address);
}

/* Frees the tables. Nothing is in the map any more. */
void wr_address_release(void);

#endif
