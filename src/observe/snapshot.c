#include "observe/snapshot.h"

#include "base/clock.h"
#include "base/meta.h"
#include "observe/pickle.h"
#include "observe/stack_set.h"
#include "observe/trace.h"

#include <string.h>
#include <time.h>

void wr_snapshot_release(wr_snapshot *snapshot)
{
    for (int i = 0; snapshot->devices && i < snapshot->device_count; i++) {
        wr_meta_free(snapshot->devices[i].segments);
        wr_meta_free(snapshot->devices[i].blocks);
        wr_meta_free(snapshot->devices[i].events);
        wr_meta_free(snapshot->devices[i].event_stacks);
    }
    wr_meta_free(snapshot->devices);
    *snapshot = (wr_snapshot){ 0 };
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

typedef enum word {
#define X(name) WORD_##name,
#include "observe/snapshot_words.def"
#undef X
    WORD_none, /* "N/A": no compile context */
    WORD_empty,
    WORD_COUNT
} word;

static const char *const texts[WORD_COUNT] = {
#define X(name) [WORD_##name] = #name,
#include "observe/snapshot_words.def"
#undef X
    [WORD_none] = "N/A", [WORD_empty] = ""
};
_Static_assert(WORD_COUNT <= WR_PICKLE_WORDS, "every word can be written once");

static void put(wr_pickle *p, word w)
{
    wr_pickle_word(p, w, texts[w]);
}

static void put_count(wr_pickle *p, word key, uint64_t number)
{
    put(p, key);
    wr_pickle_unsigned(p, number);
}

static void put_word(wr_pickle *p, word key, word value)
{
    put(p, key);
    put(p, value);
}

static void put_empty_list(wr_pickle *p, word key)
{
    wr_pickle_list list;
    put(p, key);
    wr_pickle_list_begin(p, &list);
    wr_pickle_list_end(p, &list);
}

static void put_pool(wr_pickle *p, word key, uint64_t first, uint64_t second)
{
    put(p, key);
    wr_pickle_pair(p, first, second);
}

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

/* A pickle, and which stacks and frames are in it already: each is written once. */
typedef struct writer {
    wr_pickle pickle;
    wr_stack_set set;
    bool *written; /* by number: the stacks, then the frames */
} writer;

static bool has_event_stack(const wr_snapshot_device *d, size_t event)
{
    return d->event_stacks && d->event_stacks[event] != 0;
}

WR_CHECKED static weir_status mention_all(wr_stack_set *set, const wr_snapshot *snapshot)
{
    WR_TRY(wr_stack_set_begin(set));
    for (int i = 0; i < snapshot->device_count; i++) {
        const wr_snapshot_device *d = &snapshot->devices[i];
        for (size_t k = 0; k < d->block_count; k++) WR_TRY(wr_stack_set_mention(set, d->blocks[k].stack));
        for (size_t k = 0; k < d->event_count; k++)
            if (has_event_stack(d, k)) WR_TRY(wr_stack_set_mention(set, d->event_stacks[k]));
    }
    return wr_stack_set_end(set);
}

/* As PyTorch shows them; in compiled code no line is known. */
static void put_frame(writer *w, const void *address)
{
    char name[WR_FRAME_NAME];
    wr_pickle *p = &w->pickle;
    const wr_frame frame = wr_frame_of(address);
    const char *file = frame.object ? frame.object : "??";
    wr_frame_name(&frame, name);
    wr_pickle_dict_begin(p);
    put(p, WORD_filename);
    wr_pickle_string(p, file, strlen(file));
    put_count(p, WORD_line, frame.line);
    put(p, WORD_name);
    wr_pickle_string(p, name, strlen(name));
    wr_pickle_dict_end(p);
}

/* Whether the value is still to be written, and then kept under that number. */
static bool is_new(writer *w, uint32_t number)
{
    const bool again = w->written[number];
    w->written[number] = true;
    if (again) wr_pickle_again(&w->pickle, WR_PICKLE_WORDS + number);
    return !again;
}

static void put_frames(writer *w, uint32_t stack)
{
    wr_pickle_list list;
    const uint32_t number = wr_stack_set_number(&w->set, stack);
    if (number == 0) {
        put_empty_list(&w->pickle, WORD_frames);
        return;
    }
    put(&w->pickle, WORD_frames);
    if (!is_new(w, number)) return;
    const wr_stack *s = w->set.stacks[number - 1];
    wr_pickle_list_begin(&w->pickle, &list);
    for (uint32_t i = 0; i < s->count; i++) {
        const uint32_t frame = w->set.count + 1 + wr_stack_set_frame(&w->set, s->frames[i]);
        wr_pickle_item(&w->pickle, &list);
        if (!is_new(w, frame)) continue;
        put_frame(w, s->frames[i]);
        wr_pickle_keep(&w->pickle, WR_PICKLE_WORDS + frame);
    }
    wr_pickle_list_end(&w->pickle, &list);
    wr_pickle_keep(&w->pickle, WR_PICKLE_WORDS + number);
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

static void put_block(writer *w, const wr_snapshot_block *block)
{
    wr_pickle *p = &w->pickle;
    static const word states[] = { [WEIR_BLOCK_FREE] = WORD_inactive,
                                   [WEIR_BLOCK_LIVE] = WORD_active_allocated,
                                   [WEIR_BLOCK_PENDING] = WORD_active_pending_free };
    wr_pickle_dict_begin(p);
    put_count(p, WORD_address, block->address);
    put_count(p, WORD_size, block->bytes);
    put_count(p, WORD_requested_size, block->requested);
    put_word(p, WORD_state, states[block->state]);
    put_frames(w, block->stack);
    wr_pickle_dict_end(p);
}

static void put_segment(writer *w, int device, const wr_snapshot_segment *s)
{
    wr_pickle *p = &w->pickle;
    uint64_t live = 0, active = 0, requested = 0;
    for (const wr_snapshot_block *b = s->blocks; b < s->blocks + s->count; b++) {
        if (b->state == WEIR_BLOCK_LIVE) live += b->bytes;
        if (b->state != WEIR_BLOCK_FREE) active += b->bytes;
        requested += b->requested;
    }
    wr_pickle_dict_begin(p);
    put_count(p, WORD_device, (uint64_t)device);
    put_count(p, WORD_address, s->address);
    put_count(p, WORD_total_size, s->bytes);
    put_count(p, WORD_allocated_size, live);
    put_count(p, WORD_active_size, active);
    put_count(p, WORD_requested_size, requested);
    put_count(p, WORD_stream, s->stream);
    put_word(p, WORD_segment_type, s->is_small ? WORD_small : WORD_large);
    put_pool(p, WORD_segment_pool_id, s->pool.capture, s->pool.user);
    put(p, WORD_is_expandable);
    wr_pickle_bool(p, s->is_expandable);
    put_empty_list(p, WORD_frames);
    put(p, WORD_blocks);
    wr_pickle_list list;
    wr_pickle_list_begin(p, &list);
    for (const wr_snapshot_block *b = s->blocks; b < s->blocks + s->count; b++) {
        wr_pickle_item(p, &list);
        put_block(w, b);
    }
    wr_pickle_list_end(p, &list);
    wr_pickle_dict_end(p);
}

static void put_segments(writer *w, const wr_snapshot *snapshot)
{
    wr_pickle_list list;
    wr_pickle_list_begin(&w->pickle, &list);
    for (int i = 0; i < snapshot->device_count; i++)
        for (size_t k = 0; k < snapshot->devices[i].segment_count; k++) {
            wr_pickle_item(&w->pickle, &list);
            put_segment(w, i, &snapshot->devices[i].segments[k]);
        }
    wr_pickle_list_end(&w->pickle, &list);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

/* Which label each thread is under: by thread, with open addressing. Never more than half full. */
typedef struct labels {
    const weir_event **at;
    size_t mask;
} labels;

WR_CHECKED static weir_status make_labels(const wr_snapshot_device *device, labels *out)
{
    size_t said = 0, capacity = 2;
    void *memory = NULL;
    for (size_t i = 0; i < device->event_count; i++) said += device->events[i].kind == WEIR_EVENT_LABEL;
    while (capacity < 2 * said + 2) capacity *= 2;
    WR_TRY(wr_meta_alloc(capacity * sizeof(weir_event *), "labels of a snapshot", &memory));
    *out = (labels){ memory, capacity - 1 };
    return WEIR_OK;
}

static const weir_event **label_of(const labels *all, uint32_t thread)
{
    size_t at = (size_t)thread * 2654435761u & all->mask;
    while (all->at[at] && all->at[at]->thread != thread) at = (at + 1) & all->mask;
    return &all->at[at];
}

/* A snapshot is on none. And when all events say 0, PyTorch's viewer takes the streams of events away, but not those of
 * segments: then it cannot join what it maps to what is there, and fails to go back. */
enum { NO_STREAM = -1 };

static void put_event(writer *w, const weir_event *e, uint32_t stack, uint64_t epoch_ns, const weir_event *label)
{
    static const word actions[] = {
        [WEIR_EVENT_ALLOC] = WORD_alloc,
        [WEIR_EVENT_FREE_REQUESTED] = WORD_free_requested,
        [WEIR_EVENT_FREE_COMPLETED] = WORD_free_completed,
        [WEIR_EVENT_SEGMENT_ALLOC] = WORD_segment_alloc,
        [WEIR_EVENT_SEGMENT_FREE] = WORD_segment_free,
        [WEIR_EVENT_SEGMENT_MAP] = WORD_segment_map,
        [WEIR_EVENT_SEGMENT_UNMAP] = WORD_segment_unmap,
        [WEIR_EVENT_OOM] = WORD_oom,
        [WEIR_EVENT_SNAPSHOT] = WORD_snapshot,
    };
    wr_pickle *p = &w->pickle;
    wr_pickle_dict_begin(p);
    put_word(p, WORD_action, actions[e->kind]);
    put_count(p, e->kind == WEIR_EVENT_OOM ? WORD_device_free : WORD_addr, e->address);
    put_count(p, WORD_size, e->size);
    put(p, WORD_stream);
    if (e->kind == WEIR_EVENT_SNAPSHOT)
        wr_pickle_signed(p, NO_STREAM);
    else
        wr_pickle_unsigned(p, e->stream);
    put_pool(p, WORD_pool_id, e->pool[0], e->pool[1]);
    put_count(p, WORD_time_us, (e->time_ns + epoch_ns) / 1000);
    put_frames(w, stack);
    put_word(p, WORD_compile_context, WORD_none);
    if (label) {
        size_t length = 0;
        const char *text = weir_event_label(label, &length);
        put(p, WORD_user_metadata);
        wr_pickle_string(p, text, length);
    } else {
        put_word(p, WORD_user_metadata, WORD_empty);
    }
    wr_pickle_dict_end(p);
}

/* Leaves out kinds that PyTorch does not have; labels become what it calls metadata. */
WR_CHECKED static weir_status put_trace(writer *w, const wr_snapshot_device *device, uint64_t epoch_ns)
{
    labels all;
    wr_pickle_list list;
    WR_TRY(make_labels(device, &all));
    wr_pickle_list_begin(&w->pickle, &list);
    for (size_t i = 0; i < device->event_count; i++) {
        const weir_event *e = &device->events[i];
        const weir_event **label = label_of(&all, e->thread);
        if (e->kind == WEIR_EVENT_LABEL) *label = e;
        if (e->kind > WEIR_EVENT_SNAPSHOT) continue;
        wr_pickle_item(&w->pickle, &list);
        put_event(w, e, has_event_stack(device, i) ? device->event_stacks[i] : 0, epoch_ns, *label);
    }
    wr_pickle_list_end(&w->pickle, &list);
    wr_meta_free(all.at);
    return WEIR_OK;
}

WR_CHECKED static weir_status put_traces(writer *w, const wr_snapshot *snapshot)
{
    const uint64_t epoch_ns = wr_clock_ns(CLOCK_REALTIME) - wr_clock_ns(CLOCK_MONOTONIC);
    wr_pickle_list list;
    wr_pickle_list_begin(&w->pickle, &list);
    for (int i = 0; i < snapshot->device_count; i++) {
        wr_pickle_item(&w->pickle, &list);
        WR_TRY(put_trace(w, &snapshot->devices[i], epoch_ns));
    }
    wr_pickle_list_end(&w->pickle, &list);
    return WEIR_OK;
}

/* All devices keep the same number of events; PyTorch's tools tell from this when it was not enough. */
static void put_history(wr_pickle *p, const wr_snapshot *snapshot)
{
    uint64_t kept = 0;
    bool overflowed = false;
    for (int i = 0; i < snapshot->device_count; i++) {
        if (snapshot->devices[i].history) kept = snapshot->devices[i].history;
        overflowed |= snapshot->devices[i].overflowed;
    }
    put_count(p, WORD_trace_alloc_max_entries, kept);
    put(p, WORD_trace_alloc_overflowed);
    wr_pickle_bool(p, overflowed);
}

static void put_settings(wr_pickle *p, const wr_snapshot *snapshot)
{
    const wr_settings *settings = &snapshot->settings;
    static const char *const classes[] = { "1",   "2",   "4",    "8",    "16",   "32",   "64",    "128",
                                           "256", "512", "1024", "2048", "4096", "8192", "16384", "32768" };
    wr_pickle_dict_begin(p);
    put(p, WORD_PYTORCH_CUDA_ALLOC_CONF);
    wr_pickle_string(p, settings->config, strlen(settings->config));
    put(p, WORD_max_split_size);
    wr_pickle_signed(p, settings->max_split_size ? (int64_t)settings->max_split_size : -1);
    put(p, WORD_garbage_collection_threshold);
    wr_pickle_real(p, settings->gc_threshold);
    put(p, WORD_expandable_segments);
    wr_pickle_bool(p, false);
    put(p, WORD_roundup_power2_divisions);
    wr_pickle_dict_begin(p);
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        wr_pickle_string(p, classes[i], strlen(classes[i]));
        wr_pickle_unsigned(p, settings->roundup[i]);
    }
    wr_pickle_dict_end(p);
    put_history(p, snapshot);
    put(p, WORD_weir_policy);
    wr_pickle_string(p, settings->policy, strlen(settings->policy));
    put(p, WORD_weir_version);
    wr_pickle_string(p, weir_version(), strlen(weir_version()));
    wr_pickle_dict_end(p);
}

static weir_status write_pickle(writer *w, wr_output *out, const wr_snapshot *snapshot)
{
    void *memory = NULL;
    wr_pickle *p = &w->pickle;
    WR_TRY(mention_all(&w->set, snapshot));
    WR_TRY(wr_meta_alloc((size_t)w->set.count + 1 + w->set.frame_count, "stacks of a snapshot", &memory));
    w->written = memory;
    wr_pickle_begin(p, out);
    wr_pickle_dict_begin(p);
    put(p, WORD_segments);
    put_segments(w, snapshot);
    put(p, WORD_device_traces);
    WR_TRY(put_traces(w, snapshot));
    put(p, WORD_allocator_settings);
    put_settings(p, snapshot);
    put_empty_list(p, WORD_external_annotations);
    wr_pickle_dict_end(p);
    wr_pickle_end(p);
    return WEIR_OK;
}

weir_status wr_snapshot_write_pickle(wr_output *out, const wr_snapshot *snapshot)
{
    writer w = { 0 };
    weir_status status = write_pickle(&w, out, snapshot);
    wr_meta_free(w.written);
    wr_stack_set_release(&w.set);
    return status;
}

/* ---- as a trace -------------------------------------------------------------------------------------------------- */

static uint64_t count_events(const wr_snapshot *snapshot)
{
    uint64_t count = 0;
    for (int i = 0; i < snapshot->device_count; i++) {
        const wr_snapshot_device *d = &snapshot->devices[i];
        count += d->segment_count + (d->segment_count != 0);
        for (size_t k = 0; k < d->block_count; k++)
            count += d->blocks[k].state == WEIR_BLOCK_PENDING ? 2 : d->blocks[k].state == WEIR_BLOCK_LIVE;
    }
    return count;
}

static void write_segment(wr_output *out, const wr_stack_set *set, weir_event common, const wr_snapshot_segment *s,
                          uint64_t *active)
{
    weir_event e = common;
    e.stream = s->stream;
    e.pool[0] = s->pool.capture;
    e.pool[1] = s->pool.user;
    e.kind = WEIR_EVENT_SEGMENT_ALLOC;
    e.address = s->address;
    e.size = s->bytes;
    wr_trace_write_events(out, &e, NULL, 1, set);
    for (const wr_snapshot_block *b = s->blocks; b < s->blocks + s->count; b++) {
        if (b->state == WEIR_BLOCK_FREE) continue;
        *active += b->bytes;
        e.kind = WEIR_EVENT_ALLOC;
        e.address = b->address;
        e.size = b->requested;
        wr_trace_write_events(out, &e, &b->stack, 1, set);
        if (b->state != WEIR_BLOCK_PENDING) continue;
        e.kind = WEIR_EVENT_FREE_REQUESTED;
        wr_trace_write_events(out, &e, NULL, 1, set);
    }
}

static void write_devices(wr_output *out, const wr_stack_set *set, const wr_snapshot *snapshot)
{
    weir_event common = { .time_ns = wr_clock_ns(CLOCK_MONOTONIC) };
    for (int i = 0; i < snapshot->device_count; i++) {
        const wr_snapshot_device *d = &snapshot->devices[i];
        uint64_t active = 0;
        if (d->segment_count == 0) continue;
        common.device = (int16_t)i;
        for (size_t k = 0; k < d->segment_count; k++) write_segment(out, set, common, &d->segments[k], &active);
        weir_event end = common;
        end.kind = WEIR_EVENT_SNAPSHOT;
        end.size = active;
        wr_trace_write_events(out, &end, NULL, 1, set);
    }
}

weir_status wr_snapshot_write_trace(wr_output *out, const wr_snapshot *snapshot)
{
    wr_stack_set set = { 0 };
    weir_status status = mention_all(&set, snapshot);
    if (status == WEIR_OK) {
        wr_trace_write_header(out, count_events(snapshot), 0, &set);
        write_devices(out, &set, snapshot);
        wr_trace_write_stacks(out, &set);
        wr_trace_write_settings(out, &snapshot->settings);
    }
    wr_stack_set_release(&set);
    return status;
}
