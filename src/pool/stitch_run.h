/*
 * stitch_run: addresses that can be used again for a request without any call of the driver, because what is mapped there is free
 * by now. Lock: both locks, after a survey.
 */
#ifndef WR_POOL_STITCH_RUN_H
#define WR_POOL_STITCH_RUN_H

#include "pool/stitch_plan.h"

/* Neighbouring addresses that are free, or could be. */
typedef struct wr_stitch_run {
    const wr_segment *region; /* NULL: there are none */
    size_t from, to;
    uint64_t mark; /* of the chunks in it: none may be in it twice */
} wr_stitch_run;

/* The shortest that is long enough. Takes as long as wholly free chunks have slots. */
wr_stitch_run wr_stitch_run_find(const wr_stitch_plan *plan);

/* The slots at the beginning of the run get their chunks, as far as the request needs it. */
WR_CHECKED weir_status wr_stitch_run_use(const wr_stitch_plan *plan, const wr_stitch_run *run);

#endif
