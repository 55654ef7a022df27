/*
 * address: which segment an address lies in. One entry per 2 MiB page of the address space, in two levels. A segment is
 * as large as a number of pages and mostly begins with one; where it does not (memory of the program's, pinned memory),
 * the pages at its ends have an entry for each of the two segments that may share them.
 * Owner: the process; all devices share it. Readers take no lock; writers hold the map's own (WR_RANK_ADDRESS).
 */
#ifndef WR_POOL_ADDRESS_H
#define WR_POOL_ADDRESS_H

#include "pool/block.h"

/* WEIR_ERR_OUT_OF_HOST_MEMORY, or WEIR_ERR_DRIVER for memory beyond 48 bits, of a size that is no number of pages, or
 * that somebody owns already; then nothing is mapped. `owner` is what wr_address_find gives. */
WR_CHECKED weir_status wr_address_insert(const void *base, size_t bytes, void *owner);

/* What was inserted. Inserting the same again cannot fail while nobody else was. */
void wr_address_remove(const void *base, size_t bytes);

/* NULL: no segment of weir's. Lock-free. */
void *wr_address_find(const void *address);

/* Gives the tables back; nothing is mapped any more. */
void wr_address_release(void);

#endif
