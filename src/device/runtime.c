#include "device/runtime.h"

#include "backend/variables.h"
#include "base/bias.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/meta.h"
#include "device/debug.h"
#include "device/kinds.h"
#include "device/pinned.h"
#include "observe/stacks.h"
#include "pool/address.h"
#include "pool/report/recording.h"
#include "pool/share.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

wr_runtime wr_runtime_global = {
    .epoch = 1,
    .ways = 1,
    .lock = WR_LOCK_INITIALIZER(WR_RANK_OPEN, "open"),
    .exit_lock = WR_LOCK_INITIALIZER(WR_RANK_EXIT, "thread exit"),
    .reclaim_lock = WR_LOCK_INITIALIZER(WR_RANK_RECLAIM, "reclaim callbacks"),
};

static wr_runtime *const rt = &wr_runtime_global;

static void set_state(wr_runtime_state state)
{
    atomic_store_explicit(&rt->state, state, memory_order_release);
}

/* ---- fork -------------------------------------------------------------------------------------------------------- */

static bool any_device_open(void)
{
    for (int i = 0; i < WR_DEVICE_MAX; i++)
        if (atomic_load_explicit(&rt->devices[i], memory_order_relaxed)) return true;
    return false;
}

/* No thread was at work, when the process forked, in the parts that exist even without a device. */
static bool at_rest(void)
{
    return atomic_load(&rt->changing) == 0 && wr_lock_is_free(&rt->exit_lock) && wr_lock_is_free(&rt->reclaim_lock) &&
           wr_kinds_at_rest() && wr_host_at_rest() && wr_mempool_names_at_rest() && wr_histories_at_rest();
}

/* A driver does not survive fork, and locks may be held by threads that the child does not have: the library's own too,
 * by a thread that was opening it or its first device, or adding a callback. So the child only notes that it must
 * refuse calls. */
static void after_fork_in_child(void)
{
    atomic_fetch_add_explicit(&rt->epoch, 1, memory_order_relaxed);
    wr_runtime_change_ways();
    wr_share_forked();
    if (!any_device_open() && !atomic_load(&rt->driver_started) && at_rest()) return;
    atomic_store(&wr_forked, true);
    set_state(WR_FORKED);
}

static void start_watch(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

static void watch_fork(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_watch);
}

weir_status wr_runtime_check_fork(void)
{
    watch_fork();
    return wr_fork_check();
}

static void begin_change(void)
{
    watch_fork();
    atomic_fetch_add(&rt->changing, 1);
    wr_lock_acquire(&rt->lock);
}

static void end_change(void)
{
    wr_lock_release(&rt->lock);
    atomic_fetch_sub(&rt->changing, 1);
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static void apply_log_option(const wr_options *options)
{
    static const char *const words[] = { "off", "error", "warn", "info", "debug" };
    for (int level = 0; level < (int)(sizeof words / sizeof words[0]); level++)
        if (strcmp(options->value[WR_OPTION_log].text, words[level]) == 0) atomic_store(&wr_log_threshold, level);
}

/* Keeps so many frames of each call for recorded events, or more for what `debug` finds. */
static weir_status keep_stacks(uint32_t frames)
{
    if (rt->debug & (WR_DEBUG_STACKS | WR_DEBUG_STREAMS) && frames < WR_DEBUG_FRAMES) frames = WR_DEBUG_FRAMES;
    return wr_stacks_open(frames, rt->options.value[WR_OPTION_history_stacks_kept].number);
}

static weir_status check_stacks_option(const wr_options *options)
{
    WR_ENSURE(
        options->value[WR_OPTION_history_stacks].number == 0 || options->value[WR_OPTION_history].number != 0,
        WEIR_ERR_OPTION,
        "option history_stacks: call stacks belong to recorded events, and recording is off; also set WEIR_HISTORY or "
        "weir_settings.history to a number of events");
    return WEIR_OK;
}

bool wr_runtime_learns(void)
{
    return strcmp(rt->options.value[WR_OPTION_plan].text, "off") != 0;
}

static weir_status check_plan_option(const wr_options *options)
{
    WR_ENSURE(!wr_runtime_learns() || options->value[WR_OPTION_history].number != 0, WEIR_ERR_OPTION,
              "option plan: auto learns from recorded events, and recording is off; also set WEIR_HISTORY or "
              "weir_settings.history to at least three events for each allocation of two rounds");
    const bool chunks = strcmp(options->value[WR_OPTION_policy].text, "weir") == 0 &&
                        options->value[WR_OPTION_max_split_size].number == 0 &&
                        options->value[WR_OPTION_gc_threshold].share <= 0;
    WR_ENSURE(!wr_runtime_learns() || chunks, WEIR_ERR_OPTION,
              "option plan: auto serves plans, which needs policy weir without max_split_size and gc_threshold; unset "
              "those, or plan");
    return WEIR_OK;
}

static weir_status open_locked(const weir_settings *settings)
{
    WR_TRY(wr_options_read(&rt->options, settings));
    WR_TRY(wr_variables_check((const char *const *)environ));
    apply_log_option(&rt->options);
    WR_TRY(wr_policy_options_read(&rt->options, &rt->policy_options));
    WR_TRY(wr_debug_parse(&rt->options.value[WR_OPTION_debug], &rt->debug));
    const int told = rt->debug & WR_DEBUG_STREAMS ? WR_LOG_WARN : rt->debug ? WR_LOG_ERROR : WR_LOG_OFF;
    if (atomic_load(&wr_log_threshold) < told) atomic_store(&wr_log_threshold, told);
    WR_TRY(check_stacks_option(&rt->options));
    WR_TRY(check_plan_option(&rt->options));
    wr_bias_prepare();
    rt->policy = wr_policy_by_name(rt->options.value[WR_OPTION_policy].text);

    weir_backend_config config = { .size = sizeof config,
                                   .host_devices = rt->options.value[WR_OPTION_host_devices].number,
                                   .host_memory = rt->options.value[WR_OPTION_host_memory].number };
    WR_TRY(wr_backend_open(rt->options.value[WR_OPTION_backend].text, &config, &rt->backend));
    if (!rt->backend->forks) atomic_store(&rt->driver_started, true); /* even if a later step fails */
    weir_status status = wr_driver(rt->backend, device_count, &rt->device_count);
    const uint32_t frames = (uint32_t)rt->options.value[WR_OPTION_history_stacks].number;
    if (status == WEIR_OK) status = keep_stacks(frames);
    if (status != WEIR_OK) {
        wr_clean_up(wr_backend_close(rt->backend));
        return status;
    }
    if (rt->device_count > WR_DEVICE_MAX) {
        wr_log(WR_LOG_WARN, "%d devices found; only the first %d are used", rt->device_count, WR_DEVICE_MAX);
        rt->device_count = WR_DEVICE_MAX;
    }
    wr_log(WR_LOG_INFO, "opened: back end %s, %d devices, policy %s", rt->backend->name, rt->device_count,
           rt->policy->name);
    atomic_store(&rt->history, rt->options.value[WR_OPTION_history].number);
    rt->stacks = frames != 0;
    set_state(WR_OPEN);
    return WEIR_OK;
}

weir_status wr_runtime_open(const weir_settings *settings)
{
    if (atomic_load(&rt->state) == WR_FORKED) return wr_fork_refuse();
    weir_status status = WEIR_OK;
    begin_change();
    if (atomic_load(&rt->state) == WR_OPEN)
        status =
            wr_fail(WEIR_ERR_BUSY,
                    "the library is already open (an earlier call opened it with the defaults, or weir_open was called "
                    "twice); call weir_open before all other calls, or weir_close first");
    else
        status = open_locked(settings);
    end_change();
    return status;
}

weir_status wr_runtime_enter_slow(void)
{
    int state = atomic_load(&rt->state);
    if (state == WR_FORKED) return wr_fork_refuse();
    if (state == WR_CLOSED) return wr_fail(WEIR_ERR_CLOSED, "weir_close was called; weir_open opens the library again");
    weir_status status = WEIR_OK;
    begin_change();
    if (atomic_load(&rt->state) == WR_UNOPENED) status = open_locked(NULL);
    end_change();
    return status;
}

static void on_each_device(weir_status (*function)(wr_device *device), weir_status *first)
{
    for (int i = 0; i < WR_DEVICE_MAX; i++) {
        wr_device *d = atomic_load_explicit(&rt->devices[i], memory_order_relaxed);
        if (d) wr_keep_first(first, function(d));
    }
}

weir_status wr_runtime_close(void)
{
    if (atomic_load(&rt->state) == WR_FORKED) return wr_fork_refuse();
    weir_status first = WEIR_OK;
    begin_change();
    if (atomic_load(&rt->state) == WR_OPEN) {
        /* A thread that is ending has given its handles back by now, or will not do so any more. */
        wr_lock_acquire(&rt->exit_lock);
        set_state(WR_CLOSED);
        atomic_fetch_add_explicit(&rt->epoch, 1, memory_order_relaxed);
        wr_runtime_change_ways();
        wr_lock_release(&rt->exit_lock);
        on_each_device(wr_device_quiesce, &first);
        on_each_device(wr_device_wait, &first);
        on_each_device(wr_device_stop, &first);
        wr_pinned *pinned = atomic_exchange_explicit(&rt->pinned, NULL, memory_order_acq_rel);
        if (pinned) wr_keep_first(&first, wr_pinned_close(pinned));
        for (int i = 0; i < WR_DEVICE_MAX; i++) {
            wr_device *d = atomic_exchange_explicit(&rt->devices[i], NULL, memory_order_acq_rel);
            if (d) wr_keep_first(&first, wr_device_close(d));
        }
        wr_address_release();
        wr_mempool_names_release();
        wr_stacks_close();
        wr_keep_first(&first, wr_backend_close(rt->backend));
        rt->backend = NULL;
        wr_meta_free(rt->reclaimers);
        rt->reclaimers = NULL;
        rt->reclaimer_count = rt->reclaimer_capacity = 0;
    }
    end_change();
    return first;
}

static void record_locked(uint64_t events, bool stacks)
{
    atomic_store(&rt->history, events);
    rt->stacks = stacks;
    for (int i = 0; i < WR_DEVICE_MAX; i++) {
        wr_device *d = atomic_load_explicit(&rt->devices[i], memory_order_relaxed);
        if (!d) continue;
        wr_recording_watch(&d->cache, stacks);
        if (events != 0)
            wr_recording_start(&d->cache, events);
        else
            wr_recording_stop(&d->cache);
    }
}

weir_status wr_runtime_start_history(uint64_t events, uint32_t frames)
{
    begin_change();
    weir_status status = keep_stacks(frames);
    const uint64_t least = wr_runtime_learns() ? atomic_load(&rt->history) : 1; /* a plan needs what it needs */
    if (status == WEIR_OK) record_locked(events > least ? events : least, frames != 0);
    end_change();
    return status;
}

void wr_runtime_stop_history(void)
{
    begin_change();
    record_locked(0, false);
    end_change();
}

static weir_status check_ordinal(int ordinal)
{
    WR_ENSURE(ordinal >= 0 && ordinal < rt->device_count, WEIR_ERR_NO_DEVICE, "device %d: back end %s has %d device%s",
              ordinal, rt->backend->name, rt->device_count, rt->device_count == 1 ? "" : "s");
    return WEIR_OK;
}

weir_status wr_runtime_device_there(int ordinal, wr_device **device)
{
    WR_TRY(check_ordinal(ordinal));
    *device = wr_runtime_opened(ordinal);
    return WEIR_OK;
}

weir_status wr_runtime_device_slow(int ordinal, wr_device **device)
{
    weir_status status = WEIR_OK;
    WR_TRY(check_ordinal(ordinal));
    begin_change();
    wr_device *d = atomic_load_explicit(&rt->devices[ordinal], memory_order_relaxed);
    if (!d) {
        status = wr_device_open(rt, ordinal, &d);
        if (status == WEIR_OK) atomic_store_explicit(&rt->devices[ordinal], d, memory_order_release);
    }
    end_change();
    if (status == WEIR_OK) *device = d;
    return status;
}

weir_status wr_runtime_pinned(const wr_device *home, wr_pinned **out)
{
    weir_status status = WEIR_OK;
    begin_change();
    wr_pinned *p = atomic_load_explicit(&rt->pinned, memory_order_relaxed);
    if (!p) {
        status = wr_pinned_open(home, &p);
        if (status == WEIR_OK) atomic_store_explicit(&rt->pinned, p, memory_order_release);
    }
    end_change();
    if (status == WEIR_OK) *out = p;
    return status;
}

/* ---- reclaim callbacks ------------------------------------------------------------------------------------------- */

weir_status wr_runtime_reclaimer_add(weir_reclaim_fn function, void *user)
{
    wr_lock_acquire(&rt->reclaim_lock);
    weir_status status = wr_meta_grow(&rt->reclaimers, &rt->reclaimer_capacity, rt->reclaimer_count + 1,
                                      sizeof *rt->reclaimers, "reclaim callbacks");
    if (status == WEIR_OK)
        rt->reclaimers[rt->reclaimer_count++] = (wr_reclaimer){ function, user, ++rt->reclaimers_ever };
    wr_lock_release(&rt->reclaim_lock);
    return status;
}

weir_status wr_runtime_reclaimer_remove(weir_reclaim_fn function, void *user)
{
    wr_lock_acquire(&rt->reclaim_lock);
    uint32_t i = 0;
    while (i < rt->reclaimer_count && !(rt->reclaimers[i].function == function && rt->reclaimers[i].user == user)) i++;
    const bool found = i < rt->reclaimer_count;
    for (; i + 1 < rt->reclaimer_count; i++) rt->reclaimers[i] = rt->reclaimers[i + 1];
    if (found) rt->reclaimer_count--;
    wr_lock_release(&rt->reclaim_lock);
    WR_ENSURE(found, WEIR_ERR_INVALID_ARGUMENT,
              "weir_reclaim_remove: this function with this user pointer was not added");
    return WEIR_OK;
}

bool wr_runtime_has_reclaimers(void)
{
    wr_lock_acquire(&rt->reclaim_lock);
    const bool some = rt->reclaimer_count != 0;
    wr_lock_release(&rt->reclaim_lock);
    return some;
}

/* The first callback not asked yet. By serial, not index: callbacks may remove themselves and each other. */
static bool next_reclaimer(wr_asked *asked, wr_reclaimer *out)
{
    wr_lock_acquire(&rt->reclaim_lock);
    uint32_t i = 0;
    if (asked->newest == 0) asked->newest = rt->reclaimers_ever;
    while (i < rt->reclaimer_count && rt->reclaimers[i].serial <= asked->last) i++;
    const bool found = i < rt->reclaimer_count && rt->reclaimers[i].serial <= asked->newest;
    if (found) *out = rt->reclaimers[i];
    wr_lock_release(&rt->reclaim_lock);
    return found;
}

static bool ask_rest(int device, size_t needed, wr_asked *asked)
{
    for (wr_reclaimer one; next_reclaimer(asked, &one);) {
        asked->last = one.serial;
        if (one.function(one.user, device, needed)) return true;
    }
    return false;
}

bool wr_runtime_reclaim(int device, size_t needed, wr_asked *asked)
{
    /* A callback that allocates and finds no memory must not be asked to help itself. */
    static WR_THREAD_LOCAL bool asking;
    if (asking) return false;
    asking = true;
    const wr_saved_failure refusal = wr_fail_save(); /* calls of the callbacks may fail, too */
    const bool freed = ask_rest(device, needed, asked);
    wr_fail_restore(refusal);
    asking = false;
    return freed;
}
