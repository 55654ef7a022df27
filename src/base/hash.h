/*
 * hash: numbers spread over 64 bits, for tables.
 */
#ifndef WR_BASE_HASH_H
#define WR_BASE_HASH_H

#include <stdint.h>

/* The high bits are the good ones. */
static inline uint64_t wr_hash(uint64_t key)
{
    return key * UINT64_C(0x9E3779B97F4A7C15);
}

/* Hashes a sequence, number by number. */
static inline uint64_t wr_hash_add(uint64_t hash, uint64_t number)
{
    hash = wr_hash(hash ^ number);
    return hash ^ hash >> 29;
}

#endif
