/*
 * What happened, as users see it: validation, recorded events.
 */
#include "base/meta.h"
#include "base/sized.h"
#include "device/pinned.h"
#include "observe/trace.h"
#include "pool/report/inspect.h"
#include "thread/thread.h"

weir_status weir_validate(int device)
{
    wr_device *d = NULL;
    WR_TRY(wr_thread_look_up_device(device, &d));
    if (d) WR_TRY(wr_inspect_validate(&d->cache));
    wr_pinned *pinned = wr_pinned_there();
    return pinned ? wr_inspect_validate(&pinned->cache) : WEIR_OK;
}

/* ---- history ----------------------------------------------------------------------------------------------------- */

static weir_status check_recording(const char *call)
{
    WR_ENSURE(
        atomic_load(&wr_runtime_global.history) != 0, WEIR_ERR_NOT_SUPPORTED,
        "%s: recording is off; call weir_history_start(), or set WEIR_HISTORY or weir_settings.history to a number "
        "of events",
        call);
    return WEIR_OK;
}

weir_status weir_history_start(uint64_t events, uint32_t frames)
{
    WR_ENSURE(events >= 1 && events <= WEIR_HISTORY_EVENTS_MAX, WEIR_ERR_INVALID_ARGUMENT,
              "weir_history_start: %llu events; it must be 1 to %d", (unsigned long long)events,
              WEIR_HISTORY_EVENTS_MAX);
    WR_ENSURE(frames <= WEIR_HISTORY_FRAMES_MAX, WEIR_ERR_INVALID_ARGUMENT,
              "weir_history_start: %u frames of each call stack; it must be 0 to %d", frames, WEIR_HISTORY_FRAMES_MAX);
    WR_TRY(wr_runtime_enter());
    return wr_runtime_start_history(events, frames);
}

weir_status weir_history_stop(void)
{
    if (atomic_load(&wr_runtime_global.state) == WR_UNOPENED) return WEIR_OK;
    WR_TRY(wr_runtime_enter());
    WR_ENSURE(!wr_runtime_learns(), WEIR_ERR_BUSY,
              "weir_history_stop: option plan=auto learns from recorded events; leave WEIR_PLAN and weir_settings.plan "
              "unset to stop recording");
    wr_runtime_stop_history();
    return WEIR_OK;
}

weir_status weir_history_stacks_from(const weir_stack_source *source)
{
    WR_TRY(wr_sized_check_in("weir_history_stacks_from", "source", "WEIR_STACK_SOURCE_INIT", source, sizeof *source));
    WR_ENSURE(source->take && source->describe, WEIR_ERR_INVALID_ARGUMENT, "weir_history_stacks_from: %s is NULL",
              source->take ? "describe" : "take");
    WR_ENSURE(wr_stacks_from(source), WEIR_ERR_BUSY,
              "weir_history_stacks_from: stacks come from another source already, and there can be one");
    return WEIR_OK;
}

weir_status weir_history_read(int device, weir_event *events, size_t capacity, size_t *count, uint64_t *dropped)
{
    wr_device *d = NULL;
    WR_ENSURE(count && (events || capacity == 0), WEIR_ERR_INVALID_ARGUMENT, "weir_history_read: %s is NULL",
              count ? "events" : "count");
    WR_TRY(wr_thread_look_up_device(device, &d));
    WR_TRY(check_recording("weir_history_read"));
    uint64_t copied = 0, lost = 0;
    if (d) wr_history_copy(&d->cache.history, events, NULL, capacity, &copied, &lost);
    *count = (size_t)copied;
    if (dropped) *dropped = lost;
    return WEIR_OK;
}

weir_status weir_history_clear(int device)
{
    wr_device *d = NULL;
    WR_TRY(wr_thread_look_up_device(device, &d));
    if (d) wr_history_clear(&d->cache.history);
    return WEIR_OK;
}

weir_status weir_history_label_push(const char *label)
{
    WR_ENSURE(label, WEIR_ERR_INVALID_ARGUMENT, "weir_history_label_push: label is NULL");
    return wr_history_push_label(label);
}

weir_status weir_history_label_pop(void)
{
    return wr_history_pop_label();
}

/* One device's recorded events, and how far writing them has come. */
typedef struct recorded {
    weir_event *events;
    uint32_t *stacks; /* NULL: they have none */
    size_t count, next;
} recorded;

static void release_all(recorded all[WR_DEVICE_MAX])
{
    for (int i = 0; i < WR_DEVICE_MAX; i++) {
        wr_meta_free(all[i].events);
        wr_meta_free(all[i].stacks);
    }
}

static weir_status copy_one(wr_history *history, recorded *r, uint64_t *dropped)
{
    void *memory = NULL;
    uint64_t copied = 0, lost = 0;
    const size_t capacity = (size_t)wr_history_held(history);
    WR_TRY(wr_meta_resize(&memory, capacity * sizeof *r->events, "history to save"));
    r->events = memory;
    if (wr_stacks_end() != 0) {
        memory = NULL;
        WR_TRY(wr_meta_resize(&memory, capacity * sizeof *r->stacks, "history to save"));
        r->stacks = memory;
    }
    wr_history_copy(history, r->events, r->stacks, capacity, &copied, &lost);
    r->count = (size_t)copied;
    *dropped += lost;
    return WEIR_OK;
}

static weir_status copy_all(recorded all[WR_DEVICE_MAX], uint64_t *dropped)
{
    for (int i = 0; i < wr_runtime_global.device_count; i++) {
        wr_device *device = wr_runtime_opened(i);
        /* One that was never opened has no events. */
        if (device) WR_TRY(copy_one(&device->cache.history, &all[i], dropped));
    }
    return WEIR_OK;
}

/* The device whose next event is the earliest; each device's events are in order. *until: the time of the earliest next
 * event of the other devices. */
static recorded *choose(recorded all[WR_DEVICE_MAX], uint64_t *until)
{
    recorded *first = NULL;
    *until = UINT64_MAX;
    for (int i = 0; i < WR_DEVICE_MAX; i++) {
        recorded *r = &all[i];
        if (r->next == r->count) continue;
        const uint64_t time = r->events[r->next].time_ns;
        const bool earlier = !first || time < first->events[first->next].time_ns;
        if (earlier && first) *until = first->events[first->next].time_ns;
        if (!earlier && time < *until) *until = time;
        if (earlier) first = r;
    }
    return first;
}

static void write_events(wr_output *out, recorded all[WR_DEVICE_MAX], const wr_stack_set *set)
{
    uint64_t until;
    for (recorded *r = choose(all, &until); r; r = choose(all, &until)) {
        const size_t from = r->next;
        if (r->events[r->count - 1].time_ns <= until) r->next = r->count;
        while (r->next < r->count && r->events[r->next].time_ns <= until) r->next++;
        wr_trace_write_events(out, &r->events[from], r->stacks ? &r->stacks[from] : NULL, r->next - from, set);
    }
}

static weir_status find_stacks(const recorded all[WR_DEVICE_MAX], wr_stack_set *set)
{
    WR_TRY(wr_stack_set_begin(set));
    for (int i = 0; i < WR_DEVICE_MAX; i++)
        for (size_t k = 0; all[i].stacks && k < all[i].count; k++) WR_TRY(wr_stack_set_mention(set, all[i].stacks[k]));
    return wr_stack_set_end(set);
}

static weir_status save(const char *path, recorded all[WR_DEVICE_MAX], uint64_t dropped, const wr_stack_set *set)
{
    wr_output *out;
    wr_settings settings;
    uint64_t events = 0;
    wr_settings_read(&wr_runtime_global.options, &settings);
    for (int i = 0; i < WR_DEVICE_MAX; i++) events += all[i].count;
    WR_TRY(wr_output_open("weir_history_save", path, &out));
    wr_trace_write_header(out, events, dropped, set);
    write_events(out, all, set);
    wr_trace_write_stacks(out, set);
    wr_trace_write_settings(out, &settings);
    return wr_output_close(out, "weir_history_save", path);
}

weir_status weir_history_save(const char *path)
{
    recorded all[WR_DEVICE_MAX] = { { 0 } };
    wr_stack_set set = { 0 };
    uint64_t dropped = 0;
    WR_ENSURE(path, WEIR_ERR_INVALID_ARGUMENT, "weir_history_save: path is NULL");
    WR_TRY(wr_runtime_enter());
    WR_TRY(check_recording("weir_history_save"));
    weir_status status = copy_all(all, &dropped);
    if (status == WEIR_OK) status = find_stacks(all, &set);
    if (status == WEIR_OK) status = save(path, all, dropped, &set);
    wr_stack_set_release(&set);
    release_all(all);
    return status;
}
