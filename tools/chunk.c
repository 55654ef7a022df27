#include "chunk.h"

#include "grow.h"

#include <assert.h>
#include <stdlib.h>

enum { BLOCK = 256 }; /* chunks made at a time */

static int by_size(const chunk *left, const chunk *right)
{
    if (left->bytes != right->bytes) return left->bytes < right->bytes ? -1 : 1;
    return (left->rank > right->rank) - (left->rank < right->rank);
}

/* The header's macro for static functions says __unused, which glibc does not have. */
RB_GENERATE_INTERNAL(chunk_tree, chunk, link, by_size, __attribute__((unused)) static)

chunk *chunk_new(chunks *from, uint64_t address, uint64_t bytes, void *owner)
{
    if (!from->idle) {
        chunk *block = grow_new(BLOCK, sizeof *block);
        from->blocks = grow_array(from->blocks, from->count + 1, &from->capacity, sizeof *from->blocks);
        from->blocks[from->count++] = block;
        for (int i = 0; i < BLOCK; i++) chunk_drop(from, &block[i]);
    }
    chunk *c = from->idle;
    from->idle = c->after;
    *c = (chunk){ .address = address, .bytes = bytes, .owner = owner };
    return c;
}

chunk *chunk_cut(chunks *from, chunk *c, uint64_t bytes)
{
    assert(bytes > 0 && bytes < c->bytes);
    chunk *rest = chunk_new(from, c->address + bytes, c->bytes - bytes, c->owner);
    rest->unmapped = c->unmapped;
    rest->before = c;
    rest->after = c->after;
    if (rest->after) rest->after->before = rest;
    c->after = rest;
    c->bytes = bytes;
    return rest;
}

void chunk_swallow(chunks *from, chunk *c)
{
    chunk *gone = c->after;
    assert(c->address + c->bytes == gone->address && c->unmapped == gone->unmapped);
    c->bytes += gone->bytes;
    c->after = gone->after;
    if (c->after) c->after->before = c;
    gone->before = gone->after = NULL;
    chunk_drop(from, gone);
}

void chunk_drop(chunks *from, chunk *c)
{
    assert(!c->before && !c->after);
    c->after = from->idle;
    from->idle = c;
}

void chunks_release(chunks *from)
{
    for (size_t i = 0; i < from->count; i++) free(from->blocks[i]);
    free(from->blocks);
    *from = (chunks){ 0 };
}

void chunk_put(struct chunk_tree *tree, chunk *c)
{
    chunk_put_ranked(tree, c, c->address);
}

void chunk_put_ranked(struct chunk_tree *tree, chunk *c, uint64_t rank)
{
    c->rank = rank;
    const chunk *same = RB_INSERT(chunk_tree, tree, c);
    assert(!same);
    (void)same;
    c->free = true;
}

void chunk_take(struct chunk_tree *tree, chunk *c)
{
    assert(c->free);
    RB_REMOVE(chunk_tree, tree, c);
    c->free = false;
}

void chunk_take_front(chunks *from, struct chunk_tree *tree, chunk *c, uint64_t bytes)
{
    chunk_take(tree, c);
    if (c->bytes > bytes) chunk_put(tree, chunk_cut(from, c, bytes));
}

chunk *chunk_best(struct chunk_tree *tree, uint64_t bytes)
{
    chunk key = { .bytes = bytes };
    return RB_NFIND(chunk_tree, tree, &key);
}

chunk *chunk_next(chunk *c)
{
    return RB_NEXT(chunk_tree, NULL, c);
}

chunk *chunk_previous(chunk *c)
{
    return RB_PREV(chunk_tree, NULL, c);
}

chunk *chunk_largest(struct chunk_tree *tree)
{
    return RB_MAX(chunk_tree, tree);
}

static chunk *merge(chunks *from, struct chunk_tree *tree, chunk *c, bool after, bool before)
{
    if (after) {
        chunk_take(tree, c->after);
        chunk_swallow(from, c);
    }
    if (before) {
        c = c->before;
        chunk_take(tree, c);
        chunk_swallow(from, c);
    }
    chunk_put(tree, c);
    return c;
}

chunk *chunk_give(chunks *from, struct chunk_tree *tree, chunk *c)
{
    return merge(from, tree, c, c->after && c->after->free && c->after->unmapped == c->unmapped,
                 c->before && c->before->free && c->before->unmapped == c->unmapped);
}

chunk *chunk_give_owned(chunks *from, struct chunk_tree *tree, chunk *c)
{
    return merge(from, tree, c, c->after && c->after->free && c->after->owner == c->owner,
                 c->before && c->before->free && c->before->owner == c->owner);
}
