/*
 * What happened, as users see it: validation, recorded events.
 */
#include "base/meta.h"
#include "device/pinned.h"
#include "observe/output.h"
#include "pool/inspect.h"
#include "thread/thread.h"
#include "weir/trace.h"

weir_status weir_validate(int device)
{
    wr_device *d = NULL;
    WR_TRY(wr_thread_resolve_device(device, &d));
    WR_TRY(wr_inspect_validate(&d->cache));
    wr_pinned *pinned = wr_pinned_there();
    return pinned ? wr_inspect_validate(&pinned->cache) : WEIR_OK;
}

/* ---- history ------------------------------------------------------------------------------------------------------ */

weir_status weir_history_read(int device, weir_event *events, size_t capacity, size_t *count, uint64_t *dropped)
{
    wr_device *d = NULL;
    WR_ENSURE(count && (events || capacity == 0), WEIR_ERR_INVALID_ARGUMENT, "weir_history_read: %s is NULL",
              count ? "events" : "count");
    WR_TRY(wr_thread_resolve_device(device, &d));
    WR_ENSURE(d->cache.history.capacity != 0, WEIR_ERR_NOT_SUPPORTED,
              "weir_history_read: recording is off; set WEIR_HISTORY or weir_settings.history to a number of events");
    uint64_t copied = 0, lost = 0;
    wr_history_copy(&d->cache.history, events, capacity, &copied, &lost);
    *count = (size_t)copied;
    if (dropped) *dropped = lost;
    return WEIR_OK;
}

weir_status weir_history_clear(int device)
{
    wr_device *d = NULL;
    WR_TRY(wr_thread_resolve_device(device, &d));
    wr_history_clear(&d->cache.history);
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
    size_t count, next;
} recorded;

static void release_all(recorded all[WR_DEVICE_MAX])
{
    for (int i = 0; i < WR_DEVICE_MAX; i++) wr_meta_free(all[i].events);
}

static weir_status copy_all(recorded all[WR_DEVICE_MAX], uint64_t *dropped)
{
    for (int i = 0; i < wr_runtime_global.device_count; i++) {
        void *memory = NULL;
        uint64_t lost = 0;
        wr_device *device = atomic_load(&wr_runtime_global.devices[i]);
        if (!device) continue; /* one that was never used has no history, and asking would open it */
        const size_t capacity = (size_t)wr_history_held(&device->cache.history);
        WR_TRY(wr_meta_resize(&memory, capacity * sizeof(weir_event), "history to save"));
        all[i].events = memory;
        WR_TRY(weir_history_read(i, memory, capacity, &all[i].count, &lost));
        *dropped += lost;
    }
    return WEIR_OK;
}

/* The device whose next event is the earliest; each device's are in order. *until: the time of the next one of another. */
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

static void write_events(wr_output *out, recorded all[WR_DEVICE_MAX])
{
    uint64_t until;
    for (recorded *r = choose(all, &until); r; r = choose(all, &until)) {
        const size_t from = r->next;
        if (r->events[r->count - 1].time_ns <= until) r->next = r->count;
        while (r->next < r->count && r->events[r->next].time_ns <= until) r->next++;
        wr_output_write(out, &r->events[from], (r->next - from) * sizeof *r->events);
    }
}

static weir_status save(const char *path, recorded all[WR_DEVICE_MAX], uint64_t dropped)
{
    wr_output out;
    uint64_t events = 0;
    for (int i = 0; i < WR_DEVICE_MAX; i++) events += all[i].count;
    const weir_trace_header header = wr_trace_header(events, dropped);
    WR_TRY(wr_output_open(&out, "weir_history_save", path));
    wr_output_write(&out, &header, sizeof header);
    write_events(&out, all);
    return wr_output_close(&out, "weir_history_save", path);
}

weir_status weir_history_save(const char *path)
{
    recorded all[WR_DEVICE_MAX] = { { 0 } };
    uint64_t dropped = 0;
    WR_ENSURE(path, WEIR_ERR_INVALID_ARGUMENT, "weir_history_save: path is NULL");
    WR_TRY(wr_runtime_enter());
    WR_ENSURE(wr_runtime_global.options.value[WR_OPTION_history].number != 0, WEIR_ERR_NOT_SUPPORTED,
              "weir_history_save: recording is off; set WEIR_HISTORY or weir_settings.history to a number of events");
    weir_status status = copy_all(all, &dropped);
    if (status == WEIR_OK) status = save(path, all, dropped);
    release_all(all);
    return status;
}
