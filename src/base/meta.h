/*
 * meta: memory for weir's own records, from malloc. Every allocation goes through here so that tests can make the
 * n-th one fail and can see that nothing leaked. Any thread; no lock of weir's.
 */
#ifndef WR_BASE_META_H
#define WR_BASE_META_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Zeroed memory. On failure *out is untouched and the text says how many bytes for what. */
WR_CHECKED weir_status wr_meta_alloc(size_t bytes, const char *what, void **out);

/* As realloc: new bytes are not zeroed; on failure the old memory stands. */
WR_CHECKED weir_status wr_meta_resize(void **memory, size_t bytes, const char *what);

/* Room for `need` items of an array: `items` points to its pointer. It at least doubles; what is new is zeroed. As wr_meta_resize
 * on failure. */
WR_CHECKED weir_status wr_meta_grow(void *items, uint32_t *capacity, size_t need, size_t item_bytes, const char *what);

/* NULL is fine. */
void wr_meta_free(void *memory);

/* A copy of a string. */
WR_CHECKED weir_status wr_meta_strdup(const char *text, char **out);

/* Lazily backed zeroed address space for big sparse tables; `bytes` as given to the release. */
WR_CHECKED weir_status wr_meta_reserve(size_t bytes, const char *what, void **out);
void wr_meta_release(void *memory, size_t bytes);

/* Tests: the nth next allocation fails (1: the very next; 0: none), and how many are live. */
void wr_meta_fail_nth(uint64_t nth);
uint64_t wr_meta_live(void);

#endif
