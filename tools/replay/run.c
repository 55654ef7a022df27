#include "replay/run.h"

#include "clock.h"
#include "grow.h"
#include "map.h"
#include "replay/environment.h"
#include "replay/place.h"
#include "replay/play.h"
#include "script/config.h"
#include "script/demand.h"
#include "weir/host.h"
#include "weir/observe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool session_refuse(session *s, const char *what, weir_status status)
{
    weir_error error = { .size = sizeof error };
    bool told = weir_last_error(&error) == WEIR_OK && error.status == status && error.text[0];
    snprintf(s->error, sizeof s->error, "%s: %s", what, told ? error.text : weir_status_text(status));
    return false;
}

/* The command line overrides the environment. */
static void override_environment(environment *e, const session_options *options)
{
    if (options->alone) environment_hide_options(e);
    environment_hide(e, "WEIR_POLICY");
    if (strcmp(options->policy, "weir") != 0) environment_hide(e, "WEIR_PLAN"); /* which the library refuses */
    environment_hide(e, "WEIR_HOST_DEVICES");
    environment_hide(e, "WEIR_BACKEND");
    if (options->device_memory) {
        environment_hide(e, "WEIR_HOST_MEMORY");
        environment_hide(e, "WEIR_MEMORY_LIMIT");
    }
    if (options->history) environment_hide(e, "WEIR_HISTORY");
}

/* A replay never touches the memory, but the library's debug checks do. */
static bool omit_contents(session *s, const session_options *options)
{
    const char *debug = options->alone ? NULL : getenv("WEIR_DEBUG");
    if (!s->host || (debug && debug[0])) return true;
    weir_status status = weir_host_omit_contents();
    return status == WEIR_OK || session_refuse(s, "cannot leave out the contents of memory", status);
}

static bool hold_clock(session *s)
{
    const weir_status status = play_moves_clock(s) ? weir_host_clock_hold(true) : WEIR_OK;
    return status == WEIR_OK || session_refuse(s, "cannot hold the clock", status);
}

/* `roundup` is a buffer that the settings will point to. */
static void set_as_recorded(const trace_settings *recorded, weir_settings *settings, char roundup[CONFIG_ROUNDUP])
{
    config c;
    config_read(recorded, &c);
    config_roundup(&c, roundup);
    settings->max_split_size = recorded->max_split_size;
    settings->gc_threshold = recorded->gc_threshold;
    settings->large_segment = c.large_segment;
    settings->max_non_split_rounding = c.non_split_rounding;
    settings->roundup_power2_divisions = c.divisions_unread ? recorded->roundup_power2_divisions : roundup;
}

/* Limits memory as the recorded allocator did, unless the environment sets a limit, which has precedence. */
static bool limit_as_recorded(session *s, const trace_settings *recorded, const session_options *options)
{
    config c;
    if (!s->torch || !recorded->known) return true;
    config_read(recorded, &c);
    for (int device = 0; c.memory_fraction < 1 && device < s->script->devices; device++) {
        weir_device_memory memory = { .size = sizeof memory };
        uint64_t limit = 0;
        weir_status status = weir_memory_limit_get(device, &limit);
        if (status == WEIR_OK && limit && !options->device_memory) continue;
        if (status == WEIR_OK) status = weir_device_memory_get(device, &memory);
        const uint64_t whole = options->device_memory ? options->device_memory + options->beside : memory.total_bytes;
        const uint64_t share = (uint64_t)(c.memory_fraction * (double)whole);
        if (status == WEIR_OK) status = weir_memory_limit_set(device, share ? share : 1); /* 0 would mean no limit */
        if (status != WEIR_OK) return session_refuse(s, "cannot limit memory as recorded", status);
    }
    return true;
}

/* PyTorch collects by age only below a limit. */
static bool note_collection(session *s, const trace_settings *recorded)
{
    uint64_t limit = 0;
    const bool may = s->torch && recorded->known && recorded->gc_threshold > 0 && s->script->devices > 0;
    const weir_status status = may ? weir_memory_limit_get(0, &limit) : WEIR_OK;
    s->collects = limit != 0;
    return status == WEIR_OK || session_refuse(s, "cannot read the memory limit", status);
}

static bool open_library(session *s, const trace_settings *recorded, const session_options *options)
{
    char roundup[CONFIG_ROUNDUP];
    weir_settings settings = WEIR_SETTINGS_INIT;
    if (!script_is_playable(s->script, s->error)) return false;
    settings.backend = options->backend;
    settings.policy = s->torch ? "torch-exact" : options->policy;
    settings.host_devices = (uint64_t)s->script->devices;
    settings.history = options->history;
    settings.plan_share = options->learn;
    if (strcmp(options->backend, "host") == 0)
        settings.host_memory = options->device_memory;
    else
        settings.memory_limit = options->device_memory;
    if (s->torch && recorded->known) set_as_recorded(recorded, &settings, roundup);
    environment hidden = { 0 };
    override_environment(&hidden, options);
    weir_status status = weir_open(&settings);
    environment_restore(&hidden);
    const bool as_recorded = s->torch && recorded->known && status == WEIR_ERR_OPTION &&
                             !strstr(weir_error_text(), "WEIR_"); /* names a variable of the environment */
    if (status != WEIR_OK)
        return session_refuse(s, as_recorded ? "the recorded settings cannot be replayed" : "cannot open the library",
                              status);

    status = weir_backend_name(&s->backend);
    if (status != WEIR_OK) return session_refuse(s, "cannot open the back end", status);
    s->host = strcmp(s->backend, "host") == 0;
    return omit_contents(s, options) && hold_clock(s) && limit_as_recorded(s, recorded, options) &&
           note_collection(s, recorded);
}

static int by_device_and_number(const void *left, const void *right)
{
    const script_stream *const *a = left, *const *b = right;
    if ((*a)->device != (*b)->device) return (*a)->device < (*b)->device ? -1 : 1;
    if ((*a)->number != (*b)->number) return (*a)->number < (*b)->number ? -1 : 1;
    return 0;
}

static weir_status make_stream(const script_stream *wanted, weir_stream *made)
{
    return wanted->number ? weir_stream_create(wanted->device, WEIR_PRIORITY_DEFAULT, made)
                          : weir_stream_default(wanted->device, made);
}

/* In the order of the recorded handles: PyTorch empties its cache in that order, the library in order of creation. The
 * script's streams of several pools may be the same one. */
static bool make_streams(session *s)
{
    const script *sc = s->script;
    weir_status status = WEIR_OK;
    weir_stream made = { 0 };
    s->streams = grow_new(sc->stream_count, sizeof *s->streams);
    const script_stream **sorted = grow_new(sc->stream_count, sizeof *sorted);
    for (size_t i = 0; i < sc->stream_count; i++) sorted[i] = &sc->streams[i];
    qsort(sorted, sc->stream_count, sizeof *sorted, by_device_and_number);

    for (size_t i = 0; status == WEIR_OK && i < sc->stream_count; i++) {
        if (i == 0 || by_device_and_number(&sorted[i - 1], &sorted[i]) != 0) status = make_stream(sorted[i], &made);
        s->streams[sorted[i] - sc->streams] = made;
    }
    free(sorted);
    return status == WEIR_OK || session_refuse(s, "cannot make a stream", status);
}

/* `made`: the first stream of each device and pool. */
static weir_status make_pool(session *s, map *made, size_t stream)
{
    const script_stream *of = &s->script->streams[stream];
    map_entry *first = map_put(made, (int16_t)of->device, of->pool);
    if (first->state) {
        s->pools[stream] = s->pools[first->value];
        return WEIR_OK;
    }
    first->state = 1;
    first->value = (uint32_t)stream;
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.device = of->device;
    return weir_mempool_create(&options, &s->pools[stream]);
}

/* A recorded graph's pool becomes a plain private pool here, since nothing is captured. */
static bool make_pools(session *s)
{
    weir_status status = WEIR_OK;
    map made = { 0 };
    s->pools = grow_new(s->script->stream_count, sizeof *s->pools);
    for (size_t i = 0; i < s->script->stream_count && status == WEIR_OK; i++)
        if (s->script->streams[i].pool) status = make_pool(s, &made, i);
    map_release(&made);
    return status == WEIR_OK || session_refuse(s, "cannot make a memory pool", status);
}

/* A device with segments that nothing was allocated from need not be open. */
static bool serves(const script *sc, int device)
{
    size_t i = 0;
    while (i < sc->stream_count && sc->streams[i].device != device) i++;
    return i < sc->stream_count;
}

static bool place_as_recorded(session *s)
{
    for (int device = 0; device < s->script->devices; device++) {
        if (!serves(s->script, device)) continue;
        weir_host_place *places;
        uint64_t span, range = 0;
        size_t count = place_segments(s->script, s->from_start, device, &places, &span);
        weir_status status = count ? weir_host_address_range(device, &range) : WEIR_OK;
        if (status == WEIR_OK && span > range)
            snprintf(s->note, sizeof s->note, "recorded segment addresses span too much to be repeated on device %d",
                     device);
        else if (status == WEIR_OK && count)
            status = weir_host_place_segments(device, places, count);
        free(places);
        if (status != WEIR_OK) return session_refuse(s, "cannot place segments as recorded", status);
    }
    return true;
}

/* Serves the plan on each device that it has arenas for. */
static bool serve_plan(session *s, const weir_plan *plan)
{
    for (int device = 0; device < s->script->devices; device++) {
        bool known = false;
        for (uint64_t i = 0; i < plan->arena_count; i++) known |= plan->arenas[i].device == device;
        weir_status status = known ? weir_plan_serve(device, plan) : WEIR_OK;
        if (status != WEIR_OK) return session_refuse(s, "cannot serve the plan", status);
    }
    return true;
}

bool session_open(session *s, const script *sc, const trace_settings *recorded, const session_options *options)
{
    *s = (session){ .script = sc,
                    .torch = strcmp(options->policy, "torch") == 0,
                    .refused = options->refused,
                    .until_oom = options->until_oom,
                    .from_start = options->from_start };
    if (!open_library(s, recorded, options) || !make_streams(s) || !make_pools(s)) goto fail;

    weir_status status = gates_open(&s->gates, sc->gates, sc->gate_count, s->host);
    if (status != WEIR_OK) {
        session_refuse(s, "cannot make streams for pending frees", status);
        goto fail;
    }
    /* Residents that do not lie where they lay take other segments than the recording lists. */
    const bool as_they_lay = !sc->residents || s->from_start;
    if (s->torch && s->host && as_they_lay && !sc->expandable && !place_as_recorded(s)) goto fail;
    if (options->plan && !serve_plan(s, options->plan)) goto fail;
    s->slots = grow_new(s->from_start ? sc->start.slots : sc->slots, sizeof *s->slots);
    return true;

fail:
    session_close(s);
    return false;
}

/* Driver calls so far, and the time that they would have taken. */
static bool read_driver(session *s, uint64_t *calls, uint64_t *ns)
{
    *ns = 0;
    weir_status status = weir_driver_calls(calls);
    if (status == WEIR_OK && s->host) status = weir_host_driver_time(ns);
    return status == WEIR_OK || session_refuse(s, "cannot count driver calls", status);
}

bool session_pass(session *s, pass *out)
{
    const script *sc = s->script;
    uint64_t calls_before, calls_after, ns_before, ns_after;
    s->oom = 0;

    /* Calls for residents were not recorded. */
    if (!play_ops(s, s->from_start ? &sc->start.ops : &sc->before) || !read_driver(s, &calls_before, &ns_before))
        return false;

    uint64_t start = clock_now_ns();
    if (!play_body(s)) return false;
    uint64_t end = clock_now_ns();

    if (!read_driver(s, &calls_after, &ns_after)) return false;
    *out = (pass){ end - start, calls_after - calls_before, s->oom, ns_after - ns_before };
    return play_ops(s, &sc->after);
}

/* Lets the library plan what repeats. */
static bool learn(session *s)
{
    for (int device = 0; device < s->script->devices; device++) {
        const weir_status status = weir_plan_learn(device);
        if (status != WEIR_OK && status != WEIR_ERR_NOT_READY)
            return session_refuse(s, "cannot plan what is repeated", status);
    }
    return true;
}

static bool read_stats(session *s, int device, weir_memory_stats *out)
{
    *out = (weir_memory_stats){ .size = sizeof *out };
    const weir_status status = weir_stats_get(device, out);
    return status == WEIR_OK || session_refuse(s, "cannot read statistics", status);
}

/* Most bytes reserved since the session was opened or peaks were reset. */
static bool read_peak(session *s, int device, uint64_t *reserved)
{
    weir_memory_stats stats;
    if (!read_stats(s, device, &stats)) return false;
    *reserved = (uint64_t)stats.reserved_bytes[WEIR_STAT_ALL].peak;
    return true;
}

static bool read_peaks(session *s, measurement *out)
{
    uint64_t *requested = grow_new((size_t)s->script->devices, sizeof *requested), reserved;
    bool good = true;
    (void)script_demand(s->script, s->refused, requested);
    for (int device = 0; good && device < s->script->devices; device++) {
        good = read_peak(s, device, &reserved);
        if (good) measurement_add(out, device, requested[device], reserved);
    }
    free(requested);
    return good;
}

static bool read_warm_peaks(session *s, uint64_t *sum)
{
    for (int device = 0; device < s->script->devices; device++) {
        uint64_t reserved;
        if (!read_peak(s, device, &reserved)) return false;
        *sum += reserved;
    }
    return true;
}

static bool reset_peaks(session *s)
{
    for (int device = 0; device < s->script->devices; device++) {
        const weir_status status = weir_stats_reset_peaks(device);
        if (status != WEIR_OK) return session_refuse(s, "cannot reset peaks", status);
    }
    return true;
}

/* Counts how many allocations plans have served so far. */
static bool count_served(session *s, measurement *out)
{
    for (int device = 0; device < s->script->devices; device++) {
        weir_memory_stats stats;
        if (!read_stats(s, device, &stats)) return false;
        out->plan.served += stats.plan_served;
        out->plan.late += stats.plan_late;
        out->plan.missed += stats.plan_missed;
        out->plan.resyncs += stats.plan_resyncs;
    }
    return true;
}

void session_close(session *s)
{
    gates_close(&s->gates);
    (void)weir_close();
    free(s->streams);
    free(s->pools);
    free(s->slots);
    s->streams = NULL;
    s->pools = NULL;
    s->slots = NULL;
}

static int by_time(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static double median(uint64_t *times, unsigned count)
{
    qsort(times, count, sizeof *times, by_time);
    unsigned middle = count / 2;
    return count % 2 ? (double)times[middle] : ((double)times[middle - 1] + (double)times[middle]) / 2;
}

void measurement_add(measurement *m, int device, uint64_t requested, uint64_t reserved)
{
    m->peak_requested += requested;
    m->peak_reserved += reserved;
    if (device == 0 || reserved > m->fullest.reserved) m->fullest = (fullest){ device, requested, reserved };
}

uint64_t measurement_waste(const measurement *m)
{
    return m->peak_reserved > m->peak_requested ? m->peak_reserved - m->peak_requested : 0;
}

double measurement_ratio(const measurement *m)
{
    return m->peak_requested ? (double)m->peak_reserved / (double)m->peak_requested : NAN;
}

double measurement_ratio_warm(const measurement *m)
{
    if (!m->peak_reserved_warm) return NAN;
    return m->peak_requested ? (double)m->peak_reserved_warm / (double)m->peak_requested : NAN;
}

/* A job that runs again makes its pools again: what a graph's pool has would not outlive the graph. */
static bool empty_pools(session *s)
{
    for (size_t i = 0; i < s->script->stream_count; i++) {
        if (s->pools[i].user == 0) continue;
        const weir_status status = weir_mempool_empty_cache(s->pools[i]);
        if (status != WEIR_OK) return session_refuse(s, "cannot empty a memory pool", status);
    }
    return true;
}

static bool measure_warm(session *s, const session_options *options, unsigned warm, measure_progress progress,
                         void *user, uint64_t *times, measurement *out)
{
    for (unsigned i = 0; i < warm; i++) {
        pass again;
        if (progress) progress(user, i + 1, warm + 1);
        if ((options->learn && !learn(s)) || !empty_pools(s)) return false;
        /* Peaks are of the last pass only: while below a peak, statistics cost less. */
        if (i == warm - 1 && !reset_peaks(s)) return false;
        if (!session_pass(s, &again)) return false;
        times[i] = again.ns;
        out->oom_warm += again.oom;
    }
    return warm == 0 || read_warm_peaks(s, &out->peak_reserved_warm);
}

static void note_uncounted(session *s, const measurement *m)
{
    if (m->peak_reserved || !m->peak_requested || m->oom) return;
    snprintf(s->note, sizeof s->note, "nothing was reserved: under WEIR_DEBUG=nosub no statistics count the memory");
}

bool measure(const script *sc, const trace_settings *recorded, const session_options *options, unsigned warm,
             measure_progress progress, void *user, measurement *out, char error[SCRIPT_ERROR])
{
    session s;
    pass cold = { 0 };
    uint64_t *times = grow_new(warm, sizeof *times);
    *out = (measurement){ .operations = sc->operations };

    bool good = session_open(&s, sc, recorded, options);
    if (good) {
        snprintf(out->backend, sizeof out->backend, "%s", s.backend);
        if (progress) progress(user, 0, warm + 1);
        good = session_pass(&s, &cold) && read_peaks(&s, out) && (options->learn || count_served(&s, out)) &&
               measure_warm(&s, options, warm, progress, user, times, out) &&
               (!options->learn || count_served(&s, out));
        session_close(&s);
    }
    if (good) {
        double operations = (double)sc->operations;
        out->driver_calls = cold.driver_calls;
        out->driver_ns = s.host ? (double)cold.driver_ns : NAN;
        out->oom = cold.oom;
        out->ns_per_op_cold = operations > 0 ? (double)cold.ns / operations : NAN;
        out->ns_per_op_warm = operations > 0 && warm > 0 ? median(times, warm) / operations : NAN;
    }
    if (good) note_uncounted(&s, out);
    out->oom_op = s.oom_op;
    memcpy(out->oom_text, s.oom_text, sizeof out->oom_text);
    memcpy(out->note, s.note, sizeof out->note);
    memcpy(error, s.error, sizeof s.error);
    free(times);
    return good;
}
