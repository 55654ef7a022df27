/*
 * stitch_end: free ends of chunks in use, of which one may begin a range that is mapped together, and one end it.
 * Lock: both locks, after a survey.
 */
#ifndef WR_POOL_STITCH_END_H
#define WR_POOL_STITCH_END_H

#include "pool/stitch_plan.h"

static inline size_t wr_piece_bytes(const wr_piece *piece)
{
    return piece->slot ? piece->to - piece->from : 0;
}

/* The largest of the stream, behind (`suffix`) or before what is in use, of another chunk than `not_this`; no bytes: there is
 * none that is worth it. Of the other class, too, when nothing else serves. */
wr_piece wr_stitch_end_best(const wr_stitch_plan *plan, bool suffix, const wr_chunk *not_this);

#endif
