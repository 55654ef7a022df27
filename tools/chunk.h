/*
 * chunk: what most allocators are made of: pieces of segments, linked to their neighbours by address. Free chunks are
 * in a tree ordered by size, then by address or another rank of the user's choice, for best fit. Who uses them are the
 * models of other allocators (replay/peers/) and a planner (plan/online.h).
 * Owner: the chunks that they were made from, until chunks_release.
 */
#ifndef WEIR_TOOLS_CHUNK_H
#define WEIR_TOOLS_CHUNK_H

#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

typedef struct chunk {
    RB_ENTRY(chunk) link;
    LIST_ENTRY(chunk) list; /* for users that keep free ones in lists */
    uint64_t address, bytes;
    uint64_t rank;                /* order among free chunks of one size */
    struct chunk *before, *after; /* neighbours in one segment; NULL at its ends */
    void *owner;                  /* the user's: the segment, stream or list that it belongs to */
    uint32_t stream;              /* the user's */
    bool free;                    /* and so in a tree or list */
    bool unmapped;                /* an address range without memory */
} chunk;
LIST_HEAD(chunk_list_head, chunk);
RB_HEAD(chunk_tree, chunk);

typedef struct chunks {
    chunk *idle;    /* linked by `after` */
    chunk **blocks; /* memory */
    size_t count, capacity;
} chunks;

/* Makes a segment of one chunk, not in a tree. */
chunk *chunk_new(chunks *from, uint64_t address, uint64_t bytes, void *owner);
/* Splits a chunk: it keeps its first `bytes`; the rest is returned as its right neighbour, in no tree. */
chunk *chunk_cut(chunks *from, chunk *c, uint64_t bytes);
/* Merges the right neighbour into the chunk. Neither may be in a tree. */
void chunk_swallow(chunks *from, chunk *c);
/* Drops a chunk without neighbours. */
void chunk_drop(chunks *from, chunk *c);
void chunks_release(chunks *from);

/* Adds a chunk to a tree and marks it free; chunk_take undoes both. */
void chunk_put(struct chunk_tree *tree, chunk *c);
void chunk_put_ranked(struct chunk_tree *tree, chunk *c, uint64_t rank);
void chunk_take(struct chunk_tree *tree, chunk *c);
/* Takes the first `bytes` of a chunk; the rest stays in the tree. */
void chunk_take_front(chunks *from, struct chunk_tree *tree, chunk *c, uint64_t bytes);
/* The best fit: the smallest chunk of at least `bytes`; of several, the one with the lowest rank. NULL: none. */
chunk *chunk_best(struct chunk_tree *tree, uint64_t bytes);
chunk *chunk_next(chunk *c);
chunk *chunk_previous(chunk *c);
chunk *chunk_largest(struct chunk_tree *tree);

/* Adds a chunk to the tree, merged with free neighbours that are mapped or unmapped like it; these must be in the same
 * tree. Returns the merged chunk. */
chunk *chunk_give(chunks *from, struct chunk_tree *tree, chunk *c);

/* The same, but merges only with neighbours of the same owner. */
chunk *chunk_give_owned(chunks *from, struct chunk_tree *tree, chunk *c);

#endif
