#include "pool/chunk/stitch_end.h"

#include "pool/bin.h"

/* The smallest end that is worth a mapping of its own; when nothing else helps, all are. */
#define END_LEAST ((size_t)16 << 20)

/* Whether a free piece reaches the end (or else the beginning) of its chunk, and is not part of the free tail. */
static bool reaches(const wr_stitch_plan *p, const wr_piece *piece, bool suffix)
{
    const wr_slot *s = piece->slot;
    const bool there = suffix ? piece->to == s->at + s->chunk->bytes : piece->from == s->at;
    return there && !(p->tail && s->region == p->region && piece->to > p->region->region->end - p->tail);
}

/* Of the slot's part either nothing remains, or enough to be noticed once it is free. */
static wr_piece leave_enough(wr_piece end, bool suffix)
{
    const wr_slot *s = end.slot;
    const size_t left = suffix ? end.from - (s->at + s->from) : s->at + s->to - end.to;
    const size_t kept = left && left < WR_CHUNK_PART_LEAST ? WR_CHUNK_PART_LEAST - left : 0;
    if (wr_piece_bytes(&end) <= kept) return (wr_piece){ 0 };
    if (suffix)
        end.from += kept;
    else
        end.to -= kept;
    return end;
}

/* Keeps the larger one. `not_this`: a chunk that is taken already. */
static void keep_larger(const wr_stitch_plan *p, const wr_piece *piece, bool suffix, const wr_chunk *not_this,
                        wr_piece *best)
{
    const wr_chunk *chunk = piece->slot->chunk;
    if (wr_chunk_is_free(p->cache, chunk) || chunk == not_this) return;
    if (!reaches(p, piece, suffix)) return;
    const wr_piece end = leave_enough(*piece, suffix);
    if (wr_piece_bytes(&end) > wr_piece_bytes(best)) *best = end;
}

/* Largest blocks first, since no end is larger than its block. */
static void look_for_end(const wr_stitch_plan *p, wr_bin *bin, bool suffix, const wr_chunk *not_this, wr_piece *best)
{
    const size_t least = p->forced ? WR_CHUNK_LEAST : END_LEAST;
    wr_block *block = bin ? wr_bin_largest(bin) : NULL;
    wr_piece piece;
    for (; block && block->bytes >= least && block->bytes > wr_piece_bytes(best); block = wr_bin_smaller(bin, block)) {
        if (!block->segment->region) continue;
        for (uint32_t i = wr_block_first_slot(block); wr_block_piece(block, i, &piece); i++)
            keep_larger(p, &piece, suffix, not_this, best);
    }
    if (wr_piece_bytes(best) < least) *best = (wr_piece){ 0 };
}

wr_piece wr_stitch_end_best(const wr_stitch_plan *p, bool suffix, const wr_chunk *not_this)
{
    wr_piece best = { 0 };
    look_for_end(p, p->bin, suffix, not_this, &best);
    look_for_end(p, p->open, suffix, not_this, &best);
    if (p->forced) look_for_end(p, wr_stitch_other_bin(p), suffix, not_this, &best);
    return best;
}
