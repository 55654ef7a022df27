#include "stat/run.h"

#include <math.h>

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

double stat_seconds(const stat_run *r, uint32_t moment)
{
    const timeline *l = &r->l;
    return (double)l->times[moment < l->moments ? moment : l->moments - 1] / 1e9;
}

double stat_ratio(uint64_t reserved, uint64_t requested)
{
    return requested && reserved ? (double)reserved / (double)requested : NAN;
}
