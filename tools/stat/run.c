#include "stat/run.h"

#include "grow.h"

#include <math.h>
#include <stdlib.h>

const char *const stat_kinds[SUMMARY_KINDS] = { [WEIR_EVENT_ALLOC] = "alloc",
                                                [WEIR_EVENT_FREE_REQUESTED] = "free_requested",
                                                [WEIR_EVENT_FREE_COMPLETED] = "free_completed",
                                                [WEIR_EVENT_SEGMENT_ALLOC] = "segment_alloc",
                                                [WEIR_EVENT_SEGMENT_FREE] = "segment_free",
                                                [WEIR_EVENT_SEGMENT_MAP] = "segment_map",
                                                [WEIR_EVENT_SEGMENT_UNMAP] = "segment_unmap",
                                                [WEIR_EVENT_OOM] = "oom",
                                                [WEIR_EVENT_SNAPSHOT] = "snapshot",
                                                [WEIR_EVENT_RECORD_STREAM] = "record_stream",
                                                [WEIR_EVENT_LABEL] = "label",
                                                [WEIR_EVENT_DECISION] = "decision",
                                                [WEIR_EVENT_UNRECORDED_USE] = "unrecorded_use",
                                                [WEIR_EVENT_UNORDERED_USE] = "unordered_use",
                                                [WEIR_EVENT_LATE_WRITE] = "late_write",
                                                [WEIR_EVENT_SUSPECT_FREE] = "suspect_free" };
_Static_assert(sizeof stat_kinds / sizeof *stat_kinds == WEIR_EVENT_SUSPECT_FREE + 1, "every kind has a name");

void stat_find_holders(stat_run *r, size_t shown)
{
    const timeline *l = &r->l;
    r->shown = shown;
    r->at_peaks = grow_new(r->s.device_count, sizeof *r->at_peaks);
    for (size_t i = 0; i < r->s.device_count; i++) {
        if (!r->s.devices[i].peak_requested) continue; /* looking through all blocks takes time */
        const instant_point p = { r->s.devices[i].peak, TIMELINE_NEVER, (int)i };
        r->at_peaks[i] = holders_find(l, r->ranks, &p);
    }
    if (!l->oom_count) return;
    const instant_point p = instant_point_of_failure(l, &l->ooms[l->oom_count - 1]);
    r->at_failure = holders_find(l, r->ranks, &p);
}

void stat_release_holders(stat_run *r)
{
    for (size_t i = 0; i < r->s.device_count; i++) holders_release(&r->at_peaks[i]);
    free(r->at_peaks);
    holders_release(&r->at_failure);
}

double stat_seconds(const stat_run *r, uint32_t moment)
{
    const timeline *l = &r->l;
    return (double)l->times[moment < l->moments ? moment : l->moments - 1] / 1e9;
}

double stat_ratio(uint64_t reserved, uint64_t requested)
{
    return requested && reserved ? (double)reserved / (double)requested : NAN;
}
