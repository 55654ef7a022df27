/*
 * Prints the layout of the structs that the Python package declares for itself, "STRUCT MEMBER OFFSET" and "STRUCT
 * sizeof BYTES", and the limits, "NAME NUMBER".
 */
#include <weir/observe.h>
#include <weir/trace.h>
#include <weir/weir.h>

#include <stddef.h>
#include <stdio.h>

#define MEMBER(type, member) printf("%s %s %zu\n", #type, #member, offsetof(type, member));
#define LIMIT(name) printf("%s %d\n", #name, name);
#define SIZE(type) printf("%s sizeof %zu\n", #type, sizeof(type));

int main(void)
{
    SIZE(weir_memory_stats)
    MEMBER(weir_memory_stats, size)
    MEMBER(weir_memory_stats, allocation)
    MEMBER(weir_memory_stats, allocated_bytes)
    MEMBER(weir_memory_stats, active)
    MEMBER(weir_memory_stats, active_bytes)
    MEMBER(weir_memory_stats, requested_bytes)
    MEMBER(weir_memory_stats, segment)
    MEMBER(weir_memory_stats, reserved_bytes)
    MEMBER(weir_memory_stats, inactive_split)
    MEMBER(weir_memory_stats, inactive_split_bytes)
    MEMBER(weir_memory_stats, hits)
    MEMBER(weir_memory_stats, driver_allocs)
    MEMBER(weir_memory_stats, driver_frees)
    MEMBER(weir_memory_stats, alloc_retries)
    MEMBER(weir_memory_stats, ooms)
    MEMBER(weir_memory_stats, syncs)
    MEMBER(weir_memory_stats, pending_frees)
    MEMBER(weir_memory_stats, rehomed)
    MEMBER(weir_memory_stats, collected)
    MEMBER(weir_memory_stats, lent)
    MEMBER(weir_memory_stats, paused_bytes)
    MEMBER(weir_memory_stats, stream_misuses)
    MEMBER(weir_memory_stats, plan_served)
    MEMBER(weir_memory_stats, plan_late)
    MEMBER(weir_memory_stats, plan_missed)
    MEMBER(weir_memory_stats, plan_resyncs)
    MEMBER(weir_memory_stats, plan_missed_bytes)
    SIZE(weir_stat)
    MEMBER(weir_stat, current)
    MEMBER(weir_stat, peak)
    MEMBER(weir_stat, added)
    MEMBER(weir_stat, removed)
    SIZE(weir_snapshot_options)
    MEMBER(weir_snapshot_options, size)
    MEMBER(weir_snapshot_options, format)
    MEMBER(weir_snapshot_options, device)
    MEMBER(weir_snapshot_options, pool)
    MEMBER(weir_snapshot_options, without_history)
    SIZE(weir_settings)
    MEMBER(weir_settings, size)
    MEMBER(weir_settings, backend)
    MEMBER(weir_settings, policy)
    MEMBER(weir_settings, memory_limit)
    MEMBER(weir_settings, host_devices)
    MEMBER(weir_settings, host_memory)
    MEMBER(weir_settings, max_split_size)
    MEMBER(weir_settings, large_segment)
    MEMBER(weir_settings, roundup_power2_divisions)
    MEMBER(weir_settings, gc_threshold)
    MEMBER(weir_settings, history)
    MEMBER(weir_settings, log)
    MEMBER(weir_settings, debug)
    MEMBER(weir_settings, history_stacks)
    MEMBER(weir_settings, history_stacks_kept)
    MEMBER(weir_settings, plan)
    MEMBER(weir_settings, plan_share)
    MEMBER(weir_settings, max_non_split_rounding)
    SIZE(weir_error)
    MEMBER(weir_error, size)
    MEMBER(weir_error, status)
    MEMBER(weir_error, native_code)
    MEMBER(weir_error, library)
    MEMBER(weir_error, text)
    SIZE(weir_stream)
    MEMBER(weir_stream, id)
    SIZE(weir_graph)
    MEMBER(weir_graph, id)
    LIMIT(WEIR_HISTORY_EVENTS_MAX)
    LIMIT(WEIR_HISTORY_FRAMES_MAX)
    return 0;
}
