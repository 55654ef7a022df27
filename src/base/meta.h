/*
 * meta: memory for weir's own records, from malloc. Every allocation goes through here so that tests can make the
 * n-th one fail and can see that nothing leaked. Any thread; no lock of weir's.
 */
#ifndef WR_BASE_META_H
#define WR_BASE_META_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Zeroed memory. On failure *out is untouched, and the error text says how many bytes were wanted for `what`. */
WR_CHECKED weir_status wr_meta_alloc(size_t bytes, const char *what, void **out);

/* As realloc: new bytes are not zeroed; on failure the old memory stays. */
WR_CHECKED weir_status wr_meta_resize(void **memory, size_t bytes, const char *what);

/* Makes room for `need` items in an array; `items` points to the array's pointer. The array at least doubles, and new
 * items are zeroed. On failure as wr_meta_resize. */
WR_CHECKED weir_status wr_meta_grow(void *items, uint32_t *capacity, size_t need, size_t item_bytes, const char *what);

/* NULL is fine. */
void wr_meta_free(void *memory);

/* A copy of a string. */
WR_CHECKED weir_status wr_meta_strdup(const char *text, char **out);

/* Lazily backed, zeroed address space for big sparse tables. The release takes the same `bytes`. */
WR_CHECKED weir_status wr_meta_reserve(size_t bytes, const char *what, void **out);
void wr_meta_release(void *memory, size_t bytes);

/* Tests: makes the nth allocation from now fail (1: the next; 0: none); how many allocations are live. */
void wr_meta_fail_nth(uint64_t nth);
uint64_t wr_meta_live(void);

#endif
