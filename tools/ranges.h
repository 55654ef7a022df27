/*
 * ranges: disjoint address ranges, each with a number, ordered by device and address.
 * Owner: the caller, until ranges_release.
 */
#ifndef WEIR_TOOLS_RANGES_H
#define WEIR_TOOLS_RANGES_H

#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct range {
    uint64_t address, bytes;
    uint32_t number; /* the caller's */
    int16_t device;
    RB_ENTRY(range) link; /* private to the tree */
} range;

RB_HEAD(range_tree, range);

/* All zero: empty. */
typedef struct ranges {
    struct range_tree tree;
    size_t count;
} ranges;

/* The first range that ends behind the address; NULL: none. Valid until it is cut. */
range *ranges_find(const ranges *r, int16_t device, uint64_t address);

/* Iterate in order; NULL at the end. */
range *ranges_first(const ranges *r);
range *ranges_next(range *of);

/* The range that contains the address; NULL: none. */
const range *ranges_at(const ranges *r, int16_t device, uint64_t address);

/* Whatever overlaps it must have been cut before. */
void ranges_add(ranges *r, range added);

/* Called for each range that is cut, with what remains of it on the left and right. These may have 0 bytes; the
 * callback may change their numbers. */
typedef void (*ranges_on_cut)(void *user, const range *old, range *left, range *right);

/* Removes these bytes from all ranges. Returns how many of them were in a range. */
uint64_t ranges_cut(ranges *r, int16_t device, uint64_t address, uint64_t bytes, ranges_on_cut on_cut, void *user);

void ranges_release(ranges *r);

#endif
