/*
 * stitch_end: free ends of chunks in use. One may begin a range that is mapped together, and one may end it.
 * Lock: both locks, after a survey.
 */
#ifndef WR_POOL_CHUNK_STITCH_END_H
#define WR_POOL_CHUNK_STITCH_END_H

#include "pool/chunk/stitch_plan.h"

static inline size_t wr_piece_bytes(const wr_piece *piece)
{
    return piece->slot ? piece->to - piece->from : 0;
}

/* The stream's largest free end behind (`suffix`) or before the used part of its chunk, which is not `not_this`; empty:
 * none is worth it. When nothing else serves, ends of the other class count too. */
wr_piece wr_stitch_end_best(const wr_stitch_plan *plan, bool suffix, const wr_chunk *not_this);

#endif
