#include "script/relief.h"

#include "grow.h"
#include "output/caller.h"
#include "script/native.h"
#include "script/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Memory was given back, and other memory taken right after: either the driver had no more, or the program emptied the
 * cache. Where neither a stack nor a capture that begins says that it did, PyTorch's rules and the most that the
 * recorded allocator ever held tell which. */
struct relief {
    size_t first, last; /* with max_split_size PyTorch gives some back first; then it waits, and gives all back */
    size_t freed;       /* the device's last free before it */
    bool chosen;        /* what max_split_size chose went first */
    bool programs;      /* the program did it */
    weir_event taken;   /* or refused */
    double wanted;      /* bytes that would have been held if nothing had been given back */
    int device;
};

void reliefs_open(reliefs *r, const trace *t, script *s)
{
    *r = (reliefs){ .t = t, .s = s, .devices = grow_new((size_t)s->devices, sizeof *r->devices) };
}

void reliefs_release(reliefs *r)
{
    for (int device = 0; device < r->s->devices; device++) {
        free(r->devices[device].segments);
        free(r->devices[device].ended);
    }
    free(r->devices);
    free(r->at);
    *r = (reliefs){ 0 };
}

/* Whether the event happened in a call of the function. */
static bool is_within(const trace *t, const weir_event *event, const char *function)
{
    const trace_stacks *s = &t->stacks;
    const uint32_t stack = s->of ? s->of[event - t->events] : 0;
    if (stack == 0) return false;
    for (size_t i = s->first[stack]; i < s->first[stack + 1]; i++)
        if (strcmp(caller_function(s->frames[s->items[i]]), function) == 0) return true;
    return false;
}

/* Whether the recorded allocator has only waited for uses since it gave memory back last. */
static bool is_short_still(const script_ops *body, const giving *g)
{
    if (g->last == 0 || g->asked) return false;
    size_t count = body->count;
    while (count > 0 && body->at[count - 1].kind == SCRIPT_COMPLETE) count--;
    return g->last == count - 1;
}

static void begin(reliefs *r, giving *g, const weir_event *event)
{
    script_ops *body = &r->s->body;
    if (is_short_still(body, g)) {
        body->at[g->last].bytes = g->gone;
    } else {
        const uint64_t oversize = r->t->settings.max_split_size;
        g->first = body->count;
        g->count = 0;
        g->chosen = oversize != 0 && event->size >= oversize;
        g->held_before = g->held;
    }
    g->asked = is_within(r->t, event, "empty_cache");
    g->last = body->count;
    g->gone = 0;
    script_ops_add(body, (script_op){ .kind = SCRIPT_EMPTY, .where = (uint32_t)event->device });
}

/* Whether the segments are in the order in which PyTorch gives all back: by stream, size and address, and those of the
 * small pool last. What max_split_size chooses goes the largest first. */
static bool follows(const weir_event *after, const weir_event *before)
{
    if (after->size <= NATIVE_SMALL_SEGMENT) return true;
    if (after->stream != before->stream) return after->stream > before->stream;
    return after->size != before->size ? after->size > before->size : after->address > before->address;
}

/* After what max_split_size had chosen, all went: the driver had refused again. */
static bool is_beyond_chosen(const reliefs *r, const giving *g, const weir_event *event)
{
    return g->chosen && g->last == g->first && event->size < r->t->settings.max_split_size;
}

void reliefs_gave(reliefs *r, const weir_event *event, bool begins)
{
    giving *g = &r->devices[event->device];
    if (begins) g->in_run = false;
    const bool first = !g->in_run;
    g->in_run |= (event->pool[0] == 0 && event->pool[1] == 0) || is_within(r->t, event, "empty_cache");
    if (!g->in_run) {
        g->held -= (double)event->size;
        return;
    }
    if (!first && g->last == g->first && g->count == 1 && follows(event, &g->segments[0])) g->chosen = false;
    if (first || is_beyond_chosen(r, g, event)) begin(r, g, event);
    g->segments = grow_array(g->segments, g->count + 1, &g->capacity, sizeof *g->segments);
    g->segments[g->count++] = *event;
    g->gone += event->size;
    g->held -= (double)event->size;
}

void reliefs_freed(reliefs *r, int device)
{
    r->devices[device].ended_count = 0;
}

void reliefs_ended(reliefs *r, const weir_event *event)
{
    giving *g = &r->devices[event->device];
    g->ended = grow_array(g->ended, g->ended_count + 1, &g->ended_capacity, sizeof *g->ended);
    g->ended[g->ended_count++] = event->address;
}

/* Whether the segment, free as a whole, would have served a request of so many bytes in the other one's pool. PyTorch's
 * rules. */
static bool serves(const reliefs *r, const weir_event *gone, const weir_event *taken, uint64_t bytes)
{
    const uint64_t oversize = r->t->settings.max_split_size;
    if (gone->stream != taken->stream || gone->pool[0] != taken->pool[0] || gone->pool[1] != taken->pool[1])
        return false;
    if ((gone->size <= NATIVE_SMALL_SEGMENT) != (bytes <= NATIVE_SMALL_MOST) || gone->size < bytes) return false;
    if (oversize == 0) return true;
    return bytes < oversize ? gone->size < oversize : gone->size - bytes < NATIVE_NON_SPLIT_ROUNDING;
}

static int by_address(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;
    return *a < *b ? -1 : *a > *b;
}

static int by_range(const void *left, const void *right)
{
    const weir_event *gone = left;
    const uint64_t *ended = right;
    if (*ended < gone->address) return 1;
    return *ended - gone->address < gone->size ? 0 : -1;
}

/* Whether a use in the segment ended so late that the allocator may have waited for it. */
static bool was_in_use(const giving *g, const weir_event *gone)
{
    return g->ended_count && bsearch(gone, g->ended, g->ended_count, sizeof *g->ended, by_range);
}

/* Whether max_split_size chose what went first for this allocation. */
static bool was_chosen_for(const giving *g, const weir_event *event)
{
    return g->chosen && g->segments[0].stream == event->stream;
}

/* The same, and the allocation may have waited for uses since and given no more back. */
static bool has_chosen(const reliefs *r, const giving *g, const weir_event *event)
{
    return is_short_still(&r->s->body, g) && was_chosen_for(g, event);
}

/* `last`: the last operation of what was given back and waited for. */
static relief *add(reliefs *r, giving *g, const weir_event *event, size_t freed, size_t last)
{
    r->at = grow_array(r->at, r->count + 1, &r->capacity, sizeof *r->at);
    g->relief = r->count++;
    relief *of = &r->at[g->relief];
    *of = (relief){ .first = g->first,
                    .last = last,
                    .freed = freed,
                    .chosen = was_chosen_for(g, event),
                    .taken = *event,
                    .wanted = g->held_before + (double)event->size,
                    .device = event->device };
    return of;
}

void reliefs_took(reliefs *r, const weir_event *event, bool relieved, bool captures, size_t freed)
{
    giving *g = &r->devices[event->device];
    const bool chosen = has_chosen(r, g, event);
    g->relieved = !captures && !g->asked && ((relieved && g->in_run) || chosen);
    if (g->relieved) {
        (void)add(r, g, event, freed, chosen ? r->s->body.count - 1 : g->last);
        r->s->body.at[g->last].bytes = g->gone;
    }
    g->last = 0; /* what is given back from now on is for something else */
    g->held += (double)event->size;
    if (g->held > g->most) g->most = g->held;
}

/* Whether max_split_size would have chosen the segment before anything else went. */
static bool goes_first(const reliefs *r, const weir_event *gone, const weir_event *taken)
{
    const uint64_t oversize = r->t->settings.max_split_size;
    return oversize != 0 && gone->size >= oversize && gone->stream == taken->stream &&
           taken->size > NATIVE_SMALL_SEGMENT;
}

/* An allocator that is short of memory has looked for a free block first: what it gives back would not have served. If
 * it would have, or if max_split_size would have chosen it first, the program emptied the cache; or it was in use until
 * the allocator had waited, which it does not do before max_split_size chooses. */
static void judge(reliefs *r, giving *g, const weir_event *allocated)
{
    relief *of = &r->at[g->relief];
    const weir_event *taken = &of->taken;
    if (g->ended_count > 1) qsort(g->ended, g->ended_count, sizeof *g->ended, by_address);
    if (g->count > 0 && serves(r, &g->segments[0], taken, allocated->size)) of->chosen = false;
    for (size_t i = 0; i < g->count && !of->programs; i++) {
        const weir_event *gone = &g->segments[i];
        const bool before = serves(r, gone, taken, allocated->size) || (!of->chosen && goes_first(r, gone, taken));
        of->programs = before && !was_in_use(g, gone);
    }
}

void reliefs_allocated(reliefs *r, const weir_event *event)
{
    giving *g = &r->devices[event->device];
    if (g->relieved) judge(r, g, event);
    g->relieved = false;
    g->ended_count = 0;
}

bool reliefs_failed(reliefs *r, const weir_event *event, size_t freed)
{
    giving *g = &r->devices[event->device];
    const bool chosen = has_chosen(r, g, event);
    if (chosen) {
        add(r, g, event, freed, r->s->body.count - 1)->wanted = INFINITY;
        judge(r, g, event);
    }
    g->gone = 0; /* what went made no room for what comes next */
    return chosen;
}

/* ---- once all is known ------------------------------------------------------------------------------------------- */

/* Whether the recorded allocator gave memory back by age, which it does only below a limit. */
static bool collects(const trace_settings *recorded)
{
    return recorded->known && recorded->gc_threshold > 0 && strstr(recorded->config, "per_process_memory_fraction");
}

/* If the peak of held memory would have been exceeded, memory may have been short. Where memory was collected by age,
 * that may have been before it was short. */
static bool was_short(const reliefs *r, const relief *of)
{
    if (collects(&r->t->settings)) return true;
    return !of->programs && (of->chosen || of->wanted > r->devices[of->device].most);
}

/* Moves the device's completions and free right before operation `at`, down to operation `from`, behind it. Returns
 * where it is then. `aside`: the gate for the free; -1: none yet. */
static size_t put_before_uses(script *s, size_t from, size_t at, const relief *of, int *aside)
{
    script_op *body = s->body.at, moved = body[at];
    for (; at > from && body[at - 1].kind == SCRIPT_COMPLETE && s->gates[body[at - 1].where] == of->device; at--)
        body[at] = body[at - 1];
    if (at > from && of->freed == at - 1 && body[at - 1].kind == SCRIPT_FREE) {
        if (*aside < 0) {
            *aside = (int)s->gate_count;
            s->gates[s->gate_count++] = of->device;
        }
        body[at] = body[at - 1];
        body[at--].where = (uint32_t)*aside;
    }
    body[at] = moved;
    return at;
}

/* Of uses that ended just before all was given back it is unknown whether the allocator waited for them, and of a last
 * free whether it had a use at all. Had they been over before, the blocks would not have served the allocation either:
 * so all may have been waited for. Nothing is waited for before max_split_size chooses. */
static void settle(script *s, size_t from, const relief *of, int *aside)
{
    const size_t at = of->chosen ? of->first : put_before_uses(s, from, of->first, of, aside);
    for (size_t i = at; i <= of->last; i++)
        if (s->body.at[i].kind == SCRIPT_EMPTY) s->body.at[i].kind = SCRIPT_RELIEVE;
    s->body.at[at].slot = (uint32_t)(of->last - at);
}

void reliefs_settle(const reliefs *r)
{
    int *aside = grow_new((size_t)r->s->devices, sizeof *aside);
    size_t *from = grow_new((size_t)r->s->devices, sizeof *from); /* the operation after the relief before */
    r->s->held = grow_new((size_t)r->s->devices, sizeof *r->s->held);
    for (int device = 0; device < r->s->devices; device++) {
        r->s->held[device] = r->devices[device].most;
        aside[device] = -1;
    }
    for (size_t i = 0; i < r->count; i++) {
        const relief *of = &r->at[i];
        if (was_short(r, of)) settle(r->s, from[of->device], of, &aside[of->device]);
        from[of->device] = of->last + 1;
    }
    free(from);
    free(aside);
}
