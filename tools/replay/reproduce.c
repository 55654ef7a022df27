#include "replay/reproduce.h"

#include "grow.h"
#include "replay/run.h"
#include "timeline/segments.h"
#include "weir/trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Segment events of one device. */
typedef struct sequence {
    script_segment *at;
    size_t count, capacity;
} sequence;

static void append(sequence *q, script_segment event)
{
    q->at = grow_array(q->at, q->count + 1, &q->capacity, sizeof *q->at);
    q->at[q->count++] = event;
}

static size_t count_first(const script *sc, int device)
{
    size_t count = 0;
    for (size_t i = 0; i < sc->start.count; i++) count += sc->start.segments[i].device == device;
    return count;
}

/* Those of the start come first. */
static sequence recorded_on(const script *sc, int device)
{
    sequence q = { 0 };
    for (size_t i = 0; i < sc->start.count; i++)
        if (sc->start.segments[i].device == device) append(&q, sc->start.segments[i]);
    for (size_t i = 0; i < sc->segment_count; i++)
        if (sc->segments[i].device == device) append(&q, sc->segments[i]);
    return q;
}

/* The stream's number in the recording; the handle itself for a stream that the script did not make. */
static uint64_t recorded_stream(const session *s, int device, uint64_t handle)
{
    if (handle == 0) return 0;
    for (size_t i = 0; i < s->script->stream_count; i++) {
        void *native = NULL;
        if (s->script->streams[i].device != device) continue;
        if (weir_stream_native(s->streams[i], &native) == WEIR_OK && (uintptr_t)native == handle)
            return s->script->streams[i].number;
    }
    return handle;
}

static bool replayed_on(const session *s, int device, size_t capacity, sequence *q, char error[SCRIPT_ERROR])
{
    size_t count = 0;
    uint64_t dropped = 0;
    weir_event *events = grow_new(capacity, sizeof *events);
    weir_status status = weir_history_read(device, events, capacity, &count, &dropped);
    bool good = status == WEIR_OK && dropped == 0;
    if (status != WEIR_OK)
        snprintf(error, SCRIPT_ERROR, "cannot read the history: %s", weir_error_text());
    else if (dropped)
        snprintf(error, SCRIPT_ERROR, "the library's history lost %" PRIu64 " events; this is a defect of weir",
                 dropped);

    for (size_t i = 0; good && i < count; i++) {
        const weir_event *e = &events[i];
        if (e->kind != WEIR_EVENT_SEGMENT_ALLOC && e->kind != WEIR_EVENT_SEGMENT_FREE) continue;
        append(q, (script_segment){ e->address, e->size, recorded_stream(s, device, e->stream),
                                    (weir_event_kind)e->kind, device });
    }
    free(events);
    return good;
}

static bool equal(const script_segment *a, const script_segment *b)
{
    return a->kind == b->kind && a->bytes == b->bytes && a->stream == b->stream;
}

static void describe(FILE *out, const char *who, const sequence *q, size_t index)
{
    if (index >= q->count) {
        fprintf(out, "  %8s %6zu: nothing more\n", who, index);
        return;
    }
    const script_segment *e = &q->at[index];
    const char *kind = e->kind == WEIR_EVENT_SEGMENT_ALLOC ? "SEGMENT_ALLOC" : "SEGMENT_FREE";
    fprintf(out, "  %8s %6zu: %-13s %12" PRIu64 " bytes, stream %#" PRIx64 "\n", who, index, kind, e->bytes, e->stream);
}

#define CONTEXT 3

static void describe_divergence(FILE *out, int device, const sequence *recorded, const sequence *replayed, size_t first)
{
    fprintf(out, "device %d diverges at its segment event %zu of %zu:\n", device, first, recorded->count);
    for (size_t i = first > CONTEXT ? first - CONTEXT : 0; i < first; i++) describe(out, "both", recorded, i);
    for (size_t i = first; i < first + CONTEXT && (i == first || i < recorded->count); i++)
        describe(out, "recorded", recorded, i);
    for (size_t i = first; i < first + CONTEXT && (i == first || i < replayed->count); i++)
        describe(out, "replayed", replayed, i);
}

static void describe_guesses(FILE *out, const script *sc)
{
    if (sc->start.guesses == 0) return;
    fprintf(out,
            "  of %zu blocks from before the first event it is unknown whether they have up to 1 MiB more than was "
            "asked for; that may be why\n",
            sc->start.guesses);
}

static bool refuse_start(const session *s, char error[SCRIPT_ERROR])
{
    const script_ops *start = &s->script->start.ops;
    const bool fits = !s->oom_op || s->oom_op < start->at || s->oom_op >= start->at + start->count;
    snprintf(error, SCRIPT_ERROR, "there is nothing to compare: %s",
             fits ? "by PyTorch's rules it cannot have begun with the segments that it must have had"
                  : "the device has less memory than the segments take that it must have begun with");
    return false;
}

static bool compare_device(const session *s, int device, size_t capacity, FILE *out, reproduction *result,
                           char error[SCRIPT_ERROR])
{
    sequence recorded = recorded_on(s->script, device), replayed = { 0 };
    const size_t first = count_first(s->script, device);
    bool good = replayed_on(s, device, capacity, &replayed, error);
    if (good) {
        size_t same = 0;
        while (same < recorded.count && same < replayed.count && equal(&recorded.at[same], &replayed.at[same])) same++;
        if (same < first) good = refuse_start(s, error);
        result->reproduced += good ? same - first : 0;
        if (good && (same < recorded.count || same < replayed.count)) {
            result->same = false;
            if (out) describe_divergence(out, device, &recorded, &replayed, same);
            if (out) describe_guesses(out, s->script);
        }
    }
    free(recorded.at);
    free(replayed.at);
    return good;
}

/* Whether kinds of events were left out, as PyTorch's recorder does with skip_actions. */
static bool lacks_events(const trace *t, const script *sc)
{
    segments *s = grow_new(1, sizeof *s);
    segments_init(s, t);
    bool lacks = sc->anomalies && !s->told[WEIR_EVENT_FREE_REQUESTED];
    for (size_t i = 0; i < t->count && !lacks; i++) lacks = segments_follow(s, &t->events[i]) == SEGMENTS_LEFT_OUT;
    segments_release(s);
    free(s);
    return lacks;
}

/* Why the state that it begins in cannot be made; NULL: it can, or there is nothing to make. */
static const char *unknown_start(const trace *t, const script *sc)
{
    if (sc->start.unknown || sc->start.count == 0) return sc->start.unknown;
    return t->settings.gc_threshold > 0 ? "garbage_collection_threshold goes by when its free blocks were freed" : NULL;
}

static bool is_comparable(const trace *t, const script *sc, char error[SCRIPT_ERROR])
{
    const char *why = NULL, *start = sc->expandable ? NULL : unknown_start(t, sc);
    if (sc->expandable)
        why =
            "its segments grow by mapping (PyTorch's expandable_segments, weir's chunks), and those of policy torch do "
            "not";
    else if (start)
        why = "it does not begin with the program, and ";
    else if (sc->segment_count == 0 && sc->residents == 0)
        why = "it has no segment events";
    else if (lacks_events(t, sc))
        why = "events were left out when it was recorded; 'weir check' says which";
    if (why) snprintf(error, SCRIPT_ERROR, "there is nothing to compare: %s%s", why, start ? start : "");
    return why == NULL;
}

/* Enough for a job that held more than the host back end's devices have; a recorded shortage is repeated otherwise. */
static uint64_t enough_memory(const script *sc)
{
    const uint64_t most = UINT64_C(16) << 40;
    double held = 0;
    for (int device = 0; device < sc->devices; device++)
        if (sc->held[device] > held) held = sc->held[device];
    if (held <= (double)SESSION_HOST_MEMORY || getenv("WEIR_HOST_MEMORY")) return 0;
    return 2 * held < (double)most ? (uint64_t)(2 * held) : most;
}

bool reproduce(const trace *t, const script *sc, uint64_t device_memory, FILE *out, reproduction *result,
               char error[SCRIPT_ERROR])
{
    if (!is_comparable(t, sc, error)) return false;

    /* The library may record more events per operation than the recorder did, and the script ends with frees of its
     * own. */
    session_options options = { .policy = "torch",
                                .backend = "host",
                                .device_memory = device_memory ? device_memory : enough_memory(sc),
                                .history = 4 * (uint64_t)(t->count + sc->start.ops.count) + 1024,
                                .from_start = sc->start.count != 0 };
    session s;
    pass cold;
    *result = (reproduction){ .recorded = sc->segment_count, .same = true };

    bool good = session_open(&s, sc, &t->settings, &options);
    if (good) {
        good = session_pass(&s, &cold);
        for (int device = 0; good && device < sc->devices; device++)
            good = compare_device(&s, device, options.history, out, result, s.error);
        session_close(&s);
    }
    memcpy(error, s.error, sizeof s.error);
    return good;
}
