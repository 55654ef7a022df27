/*
 * stitch_run: addresses that can be used again for a request without a driver call, because what is mapped there has
 * become free. Lock: both locks, after a survey.
 */
#ifndef WR_POOL_CHUNK_STITCH_RUN_H
#define WR_POOL_CHUNK_STITCH_RUN_H

#include "pool/chunk/stitch_plan.h"

/* Adjacent addresses that are free, or could be. */
typedef struct wr_stitch_run {
    wr_segment *region; /* NULL: none */
    size_t from, to;
} wr_stitch_run;

/* The shortest run that is long enough. */
wr_stitch_run wr_stitch_run_find(const wr_stitch_plan *plan);

/* Gives the slots at the run's beginning their chunks, as far as the request needs them. */
WR_CHECKED weir_status wr_stitch_run_use(const wr_stitch_plan *plan, const wr_stitch_run *run);

/* The shortest one in the request's bin with chunks of the stream and of others, which have to be asked whether they
 * have work queued. None with chunks of the stream alone was found. */
wr_stitch_run wr_stitch_run_across(const wr_stitch_plan *plan);

/* Whether a slot of a run still lacks some of its chunk. */
bool wr_stitch_run_lacks(const wr_stitch_plan *plan, const wr_slot *slot);

#endif
