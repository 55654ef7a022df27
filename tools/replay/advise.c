#include "replay/advise.h"

#include "grow.h"
#include "replay/model.h"
#include "script/config.h"
#include "script/part.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define SAME 1.01 /* peaks within this factor count as equal */

/* Memory sizes of cards on the market, in GiB. */
static const uint64_t cards[] = { 8, 12, 16, 24, 32, 40, 48, 80, 96, 141, 180 };
enum { CARDS = sizeof cards / sizeof *cards };

/* Simpler settings first. garbage_collection_threshold is left out: PyTorch collects only below a limit, which not all
 * of its releases accept in the same text. */
static const struct {
    const char *name, *policy;
    uint64_t max_split_size;
    const char *roundup;
} known[] = {
    { .name = "default", .policy = "torch" },
    { .name = "expandable_segments:True", .policy = "torch-expandable" },
    { .name = "max_split_size_mb:512", .policy = "torch", .max_split_size = 512 * MIB },
    { .name = "max_split_size_mb:256", .policy = "torch", .max_split_size = 256 * MIB },
    { .name = "max_split_size_mb:128", .policy = "torch", .max_split_size = 128 * MIB },
    { .name = "max_split_size_mb:64", .policy = "torch", .max_split_size = 64 * MIB },
    { .name = "roundup_power2_divisions:8", .policy = "torch", .roundup = "8" },
    { .name = "roundup_power2_divisions:4", .policy = "torch", .roundup = "4" },
    { .name = "backend:cudaMallocAsync", .policy = "async" },
};
enum { KNOWN = sizeof known / sizeof *known };
static_assert(KNOWN + 2 <= ADVISE_SETTINGS, "room for the recorded setting and weir");

/* Not truncated, and free of characters special to a shell or terminal: the text is offered as a line to paste. */
static bool is_plain(const char *text)
{
    const size_t length = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_:.,[]>- ");
    return text[length] == '\0' && length + 1 < sizeof((trace_settings *)0)->config;
}

/* Whether what the text says changes nothing, such as expandable_segments:False. */
static bool is_default(const trace_settings *recorded, const config *c)
{
    char roundup[CONFIG_ROUNDUP];
    config_roundup(c, roundup);
    return recorded->max_split_size == 0 && recorded->gc_threshold <= 0 && roundup[0] == '\0' && !c->divisions_unread &&
           c->large_segment == 0 && c->non_split_rounding == 0 && c->memory_fraction >= 1;
}

/* Whether the recorded setting is one of the native allocator's that is not in `known`. */
static bool recorded_is_another(const trace_settings *recorded)
{
    config c;
    if (!recorded->known || !recorded->config[0] || !is_plain(recorded->config)) return false;
    config_read(recorded, &c);
    if (c.expandable || c.other_backend || is_default(recorded, &c)) return false;
    for (size_t i = 0; i < KNOWN; i++)
        if (strcmp(recorded->config, known[i].name) == 0) return false;
    return true;
}

static void add(advice *to, setting s)
{
    to->at[to->count++] = (outcome){ .setting = s };
}

static void add_settings(advice *to, const trace_settings *recorded)
{
    for (size_t i = 0; i < KNOWN; i++) {
        setting s = { .name = known[i].name, .policy = known[i].policy };
        s.options.known = true;
        s.options.max_split_size = known[i].max_split_size;
        if (known[i].roundup)
            snprintf(s.options.roundup_power2_divisions, sizeof s.options.roundup_power2_divisions, "%s",
                     known[i].roundup);
        add(to, s);
    }
    if (recorded_is_another(recorded))
        add(to, (setting){ .name = recorded->config, .policy = "torch", .options = *recorded });
    add(to, (setting){ .name = "weir", .policy = "weir" });
}

static void leave_out(advice *from, size_t index)
{
    from->count--;
    for (size_t i = index; i < from->count; i++) from->at[i] = from->at[i + 1];
}

/* Replays on devices of `device` bytes. */
static bool play(const script *sc, const setting *s, uint64_t device, uint64_t context, measurement *out,
                 char error[SCRIPT_ERROR])
{
    peer_choice choice;
    char reason[400];
    if (peer_choose(s->policy, &choice, reason, sizeof reason)) {
        if (!script_is_playable(sc, error)) return false;
        model_measure(sc, NULL, &choice, device - context, true, out);
        return true;
    }
    session_options options = { .policy = s->policy,
                                .backend = "host",
                                .device_memory = device - context,
                                .beside = context,
                                .refused = true,
                                .alone = true,
                                .until_oom = true };
    return measure(sc, &s->options, &options, 0, NULL, NULL, out, error);
}

/* All cards have one size, so the fullest device decides: its peaks count as the job's. */
static bool run(const script *sc, const setting *s, uint64_t device, uint64_t context, measurement *out,
                char error[SCRIPT_ERROR])
{
    if (!play(sc, s, device, context, out, error)) return false;
    out->peak_requested = out->fullest.requested;
    out->peak_reserved = out->fullest.reserved;
    return true;
}

/* The number of the first failed operation, as measurement.operations counts; for an allocation that already failed
 * when recorded, that of the operation before it. */
static size_t failed_operation(const script *sc, const script_op *failed)
{
    size_t operation = 0;
    for (size_t i = 0; i < sc->body.count; i++) {
        operation += script_op_is_operation(&sc->body.at[i]);
        if (&sc->body.at[i] == failed) return operation;
    }
    return 0;
}

/* Replays even where the reserved peak does not fit: short of memory, an allocator gives its cache back and may go
 * on. */
static bool find_card(const script *sc, const advise_options *options, outcome *o, char error[SCRIPT_ERROR])
{
    const measurement *m = &o->whole;
    config c;
    config_read(&o->setting.options, &c);
    for (size_t i = 0; i < CARDS; i++) {
        const uint64_t card = cards[i] * GIB;
        if (card <= options->context || card - options->context < m->peak_requested) continue;
        const double room = fmin((double)(card - options->context), c.memory_fraction * (double)card);
        bool fits = !m->oom && (double)m->peak_reserved <= room;
        if (!fits) {
            measurement there;
            if (!run(sc, &o->setting, card, options->context, &there, error)) return false;
            fits = there.oom == 0;
        }
        if (fits) {
            o->card = card;
            break;
        }
    }
    return true;
}

uint64_t advise_device(const advise_options *options)
{
    return options->device_memory ? options->device_memory : cards[CARDS - 1] * GIB;
}

/* The job and its two halves. */
typedef struct scripts {
    script whole, first, second;
} scripts;

static bool try_setting(const scripts *sc, const advise_options *options, outcome *o, char error[SCRIPT_ERROR])
{
    const uint64_t device = advise_device(options);
    if (!run(&sc->whole, &o->setting, device, options->context, &o->whole, error) ||
        !run(&sc->first, &o->setting, device, options->context, &o->first, error) ||
        !run(&sc->second, &o->setting, device, options->context, &o->second, error))
        return false;
    if (o->whole.oom) {
        o->failed = failed_operation(&sc->whole, o->whole.oom_op);
        o->again = o->whole.oom_op->kind == SCRIPT_REFUSED;
    }
    return find_card(&sc->whole, options, o, error);
}

static const measurement *part_of(const outcome *o, size_t part)
{
    return (const measurement *const[]){ &o->whole, &o->first, &o->second }[part];
}

/* The least that any of PyTorch's settings that fit reserves for a part: 0 is the job, 1 and 2 are its halves. */
static double least_reserved(const advice *a, size_t part)
{
    double least = INFINITY;
    for (size_t i = 0; i < a->count - 1; i++) {
        const measurement *m = part_of(&a->at[i], part);
        if (!m->oom) least = fmin(least, (double)m->peak_reserved);
    }
    return least;
}

/* Of PyTorch's settings that fit, the one with the smallest peak; of those with equal peaks, the one with the least
 * time in the driver; then the simplest. */
static size_t choose(const advice *a, size_t part)
{
    const double least = least_reserved(a, part);
    size_t best = a->count;
    for (size_t i = 0; i < a->count - 1; i++) {
        const measurement *m = part_of(&a->at[i], part);
        if (m->oom || (double)m->peak_reserved > least * SAME) continue;
        if (best == a->count || m->driver_ns < part_of(&a->at[best], part)->driver_ns) best = i;
    }
    return best;
}

static bool allocates(const script *part)
{
    bool any = false;
    for (size_t i = 0; i < part->body.count && !any; i++)
        any = part->body.at[i].kind == SCRIPT_ALLOC && part->body.at[i].bytes != 0;
    return any;
}

/* `both`: both of them allocate something. */
static void check_halves(advice *a, bool both)
{
    a->chosen = choose(a, 1);
    a->better = choose(a, 2);
    a->checked = both && a->chosen < a->count;
    if (!a->checked || a->better == a->count) return;
    const measurement *chosen = &a->at[a->chosen].second;
    a->held = !chosen->oom && (double)chosen->peak_reserved <= least_reserved(a, 2) * SAME;
}

advice *advise(const script *sc, const trace_settings *recorded, const advise_options *options,
               advise_progress progress, void *user, char error[SCRIPT_ERROR])
{
    scripts parts;
    bool good = true;
    advice *out = grow_new(1, sizeof *out);
    add_settings(out, recorded);

    script_part(sc, 0, sc->body.count, &parts.whole);
    script_part(sc, 0, sc->body.count / 2, &parts.first);
    script_part(sc, sc->body.count / 2, sc->body.count, &parts.second);
    for (size_t i = 0; good && i < out->count; i++) {
        progress(user, i, out->count);
        good = try_setting(&parts, options, &out->at[i], error);
        /* The library may not know the recorded setting. The others are still worth comparing. */
        if (good || out->at[i].setting.name != recorded->config) continue;
        good = true;
        memcpy(out->left_out, error, sizeof out->left_out);
        leave_out(out, i--);
    }
    const bool both = allocates(&parts.first) && allocates(&parts.second);
    script_part_release(&parts.whole);
    script_part_release(&parts.first);
    script_part_release(&parts.second);
    if (!good) {
        free(out);
        return NULL;
    }
    out->best = choose(out, 0);
    check_halves(out, both);
    return out;
}
