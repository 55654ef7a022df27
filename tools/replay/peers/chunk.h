/*
 * chunk: what most allocators are made of: pieces of segments, linked to their neighbours by address, and while they are
 * free in a tree ordered by size, then address or what else the peer wants, in which the best fit is found.
 * Owner: the chunks that they were made from, until chunks_release.
 */
#ifndef WEIR_TOOLS_REPLAY_PEERS_CHUNK_H
#define WEIR_TOOLS_REPLAY_PEERS_CHUNK_H

#include "replay/peers/driver.h"

#include <stddef.h>
#include <sys/queue.h>

typedef struct chunk {
    RB_ENTRY(chunk) link;
    LIST_ENTRY(chunk) list; /* for peers that keep free ones in lists */
    uint64_t address, bytes;
    uint64_t rank;                /* order among free ones of a size */
    struct chunk *before, *after; /* neighbours in one segment; NULL at its ends */
    void *owner;                  /* the peer's: the segment, stream or list that it belongs to */
    uint32_t stream;              /* the peer's */
    bool free;                    /* and in a tree or list */
    bool unmapped;                /* addresses without memory */
} chunk;
LIST_HEAD(chunk_list_head, chunk);
RB_HEAD(chunk_tree, chunk);

typedef struct chunks {
    chunk *idle;    /* linked by `after` */
    chunk **blocks; /* memory */
    size_t count, capacity;
} chunks;

/* A segment of one chunk, not in a tree. */
chunk *chunk_new(chunks *from, uint64_t address, uint64_t bytes, void *owner);
/* The chunk keeps its first bytes; returns the others as its right neighbour, in no tree. */
chunk *chunk_cut(chunks *from, chunk *c, uint64_t bytes);
/* Adds the right neighbour's bytes to the chunk's; the neighbour is no more. Neither is in a tree. */
void chunk_swallow(chunks *from, chunk *c);
/* A chunk without neighbours is no more. */
void chunk_drop(chunks *from, chunk *c);
/* A segment of the device's memory; NULL: it has not so much. */
chunk *chunk_alloc(chunks *from, driver *d, uint64_t bytes, void *owner);
/* Gives back a whole segment, which is not in a tree. */
void chunk_free(chunks *from, driver *d, chunk *c);
void chunks_release(chunks *from);

/* Marks it free, too; chunk_take undoes that. */
void chunk_put(struct chunk_tree *tree, chunk *c);
void chunk_put_ranked(struct chunk_tree *tree, chunk *c, uint64_t rank);
void chunk_take(struct chunk_tree *tree, chunk *c);
/* Takes its first bytes; what is beyond stays in the tree. */
void chunk_take_front(chunks *from, struct chunk_tree *tree, chunk *c, uint64_t bytes);
/* The smallest of at least so many bytes; of several, the one of the lowest rank. NULL when there is none. */
chunk *chunk_best(struct chunk_tree *tree, uint64_t bytes);
chunk *chunk_next(chunk *c);
chunk *chunk_previous(chunk *c);
chunk *chunk_largest(struct chunk_tree *tree);

/* Puts it into the tree, merged with neighbours that are free and mapped or unmapped as it is; these must be in the same
 * tree. Returns what it has become. */
chunk *chunk_give(chunks *from, struct chunk_tree *tree, chunk *c);

/* The same, merged only with neighbours of its owner. */
chunk *chunk_give_owned(chunks *from, struct chunk_tree *tree, chunk *c);

/* Gives back to the driver the segments that are one free chunk of the tree. */
void chunk_release_idle(chunks *from, struct chunk_tree *tree, driver *d);

/* A tree per stream. */
typedef struct chunk_lists {
    struct chunk_tree **at;
    size_t count, capacity;
} chunk_lists;

/* The tree of that number, which stays where it is until chunk_lists_release. */
struct chunk_tree *chunk_list(chunk_lists *lists, uint32_t index);
void chunk_lists_release(chunk_lists *lists);

uint64_t round_up(uint64_t bytes, uint64_t multiple);

#endif
