/*
 * size: numbers of bytes, and their text.
 */
#ifndef WR_BASE_SIZE_H
#define WR_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WR_KIB ((uint64_t)1 << 10)
#define WR_MIB ((uint64_t)1 << 20)
#define WR_GIB ((uint64_t)1 << 30)

/* To the next multiple of `unit`. */
static inline size_t wr_round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* "80GiB", "80 GB", "512m", "1.5g", "4096": K, M, G, T are powers of 1024 with or without i, in any case, B optional.
 * False, *bytes untouched: not a number, negative, trailing garbage, or over UINT64_MAX. */
bool wr_size_parse(const char *text, uint64_t *bytes);

/* "512 bytes", "4.00 KiB", "20.00 MiB": PyTorch's format. Returns `buffer`. */
#define WR_SIZE_TEXT 32
const char *wr_size_format(uint64_t bytes, char buffer[WR_SIZE_TEXT]);

#endif
