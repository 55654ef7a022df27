/*
 * segment: segments of the modelled driver, made of chunks, and what else several peers have in common.
 */
#ifndef WEIR_TOOLS_REPLAY_PEERS_SEGMENT_H
#define WEIR_TOOLS_REPLAY_PEERS_SEGMENT_H

#include "chunk.h"
#include "replay/peers/driver.h"

/* Takes a segment of the device's memory; NULL: the device lacks that much. */
chunk *chunk_alloc(chunks *from, driver *d, uint64_t bytes, void *owner);
/* Gives back a whole segment, which is not in a tree. */
void chunk_free(chunks *from, driver *d, chunk *c);

/* Gives back to the driver the segments that consist of a single free chunk of the tree. */
void chunk_release_idle(chunks *from, struct chunk_tree *tree, driver *d);

/* A tree per stream. */
typedef struct chunk_lists {
    struct chunk_tree **at;
    size_t count, capacity;
} chunk_lists;

/* The tree of that index; its address is stable until chunk_lists_release. */
struct chunk_tree *chunk_list(chunk_lists *lists, uint32_t index);
void chunk_lists_release(chunk_lists *lists);

uint64_t round_up(uint64_t bytes, uint64_t multiple);

#endif
