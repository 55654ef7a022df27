#include "backend/backend.h"
#include "backend/host/host_internal.h"
#include "base/clock.h"
#include "base/meta.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#define ANY_ENTRY WEIR_BACKEND_ENTRY_COUNT

/* One scripted failure, of the `left`-th call from now on. */
typedef struct failure {
    enum weir_backend_entry entry;
    weir_status status;
    uint64_t left;
} failure;

/* The lock guards all members but the atomics. */
static struct {
    wr_lock lock;
    atomic_uint_fast64_t calls[WEIR_BACKEND_ENTRY_COUNT];
    atomic_uint_fast64_t spent; /* nanoseconds of calls whose cost depends on size; the others follow from `calls` */
    atomic_bool armed;          /* a failure or a latency is scripted; otherwise calls take no lock */
    failure *failures;
    uint32_t failure_count, failure_room;
    uint64_t latency[WEIR_BACKEND_ENTRY_COUNT]; /* nanoseconds */
    bool latencies;                             /* any latency is not 0 */
    bool clock_held;
    uint64_t clock;      /* while held: its value */
    int64_t clock_shift; /* while not held: its difference from the system's clock, made by earlier holds */
} script = { .lock = WR_LOCK_INITIALIZER(WR_RANK_BACKEND, "host script") };

static void sleep_ns(uint64_t nanoseconds)
{
    struct timespec left = { (time_t)(nanoseconds / 1000000000u), (long)(nanoseconds % 1000000000u) };
    while (nanosleep(&left, &left) != 0 && errno == EINTR);
}

static void update_armed_locked(void)
{
    atomic_store_explicit(&script.armed, script.failure_count > 0 || script.latencies, memory_order_relaxed);
}

/* Counts the call for every scripted failure that it concerns; the first that is due decides. */
static weir_status take_failure_locked(enum weir_backend_entry entry)
{
    weir_status due = WEIR_OK;
    size_t kept = 0;
    for (size_t i = 0; i < script.failure_count; i++) {
        failure *f = &script.failures[i];
        bool concerned = f->entry == entry || f->entry == ANY_ENTRY;
        if (concerned && --f->left == 0) {
            wr_keep_first(&due, f->status);
            continue;
        }
        script.failures[kept++] = *f;
    }
    script.failure_count = kept;
    update_armed_locked();
    return due;
}

/* Repeated here because the drivers' stand-ins are built from this folder alone. */
const char *wr_host_entry_name(enum weir_backend_entry entry)
{
    static const char *const names[] = {
#define X(name) #name,
        WEIR_BACKEND_ENTRIES(X)
#undef X
    };
    return names[entry];
}

static void count_call(enum weir_backend_entry entry)
{
    atomic_fetch_add_explicit(&script.calls[entry], 1, memory_order_relaxed);
}

weir_status wr_host_gate(enum weir_backend_entry entry)
{
    if (WR_LIKELY(!atomic_load_explicit(&script.armed, memory_order_relaxed))) {
        count_call(entry);
        return WEIR_OK;
    }
    wr_lock_acquire(&script.lock);
    uint64_t latency = script.latency[entry];
    bool by_hand = script.clock_held;
    if (by_hand) script.clock += latency;
    weir_status status = take_failure_locked(entry);
    count_call(entry); /* whoever sees the call counted may change what is scripted for later ones */
    wr_lock_release(&script.lock);

    if (!by_hand && latency > 0) sleep_ns(latency);
    if (status == WEIR_OK || status == WEIR_ERR_NOT_READY) return status;
    return wr_fail_native(status, "host", 0, "host: %s was made to fail by weir_host_fail()",
                          wr_host_entry_name(entry));
}

void wr_host_spend(enum weir_backend_entry entry, uint64_t bytes)
{
    atomic_fetch_add_explicit(&script.spent, wr_host_cost(entry, bytes), memory_order_relaxed);
}

void wr_host_script_clear(void)
{
    wr_lock_acquire(&script.lock);
    wr_meta_free(script.failures);
    script.failures = NULL;
    script.failure_count = script.failure_room = 0;
    memset(script.latency, 0, sizeof script.latency);
    script.latencies = script.clock_held = false;
    script.clock_shift = 0;
    for (size_t i = 0; i < WEIR_BACKEND_ENTRY_COUNT; i++) atomic_store(&script.calls[i], 0);
    atomic_store(&script.spent, 0);
    update_armed_locked();
    wr_lock_release(&script.lock);
}

bool wr_host_at_rest(void)
{
    return wr_lock_is_free(&script.lock);
}

static uint64_t clock_locked(void)
{
    return script.clock_held ? script.clock : wr_clock_ns(CLOCK_MONOTONIC) + (uint64_t)script.clock_shift;
}

weir_status wr_host_clock_ns(uint64_t *now)
{
    WR_TRY(wr_host_gate(WEIR_BACKEND_clock_ns));
    WR_ENSURE(now != NULL, WEIR_ERR_INVALID_ARGUMENT, "host: clock_ns: now is NULL");
    wr_lock_acquire(&script.lock);
    *now = clock_locked();
    wr_lock_release(&script.lock);
    return WEIR_OK;
}

/* ---- weir/host.h ------------------------------------------------------------------------------------------------- */

#define ENSURE_ENTRY(call, entry)                                                                                      \
    WR_ENSURE((unsigned)(entry) < WEIR_BACKEND_ENTRY_COUNT, WEIR_ERR_INVALID_ARGUMENT,                                 \
              call ": entry %d is not a value of enum weir_backend_entry", (int)(entry))

static weir_status add_failure_locked(enum weir_backend_entry entry, uint64_t nth, weir_status status)
{
    WR_TRY(wr_meta_grow(&script.failures, &script.failure_room, script.failure_count + 1, sizeof *script.failures,
                        "scripted failures"));
    script.failures[script.failure_count++] = (failure){ entry, status, nth };
    update_armed_locked();
    return WEIR_OK;
}

static weir_status add_failure(const char *call, enum weir_backend_entry entry, uint64_t nth, weir_status status)
{
    WR_ENSURE(nth > 0, WEIR_ERR_INVALID_ARGUMENT, "%s: nth is 0; the next call is number 1", call);
    WR_ENSURE(status < 0, WEIR_ERR_INVALID_ARGUMENT, "%s: status %d is not an error", call, (int)status);
    wr_lock_acquire(&script.lock);
    weir_status result = add_failure_locked(entry, nth, status);
    wr_lock_release(&script.lock);
    return result;
}

weir_status weir_host_fail(enum weir_backend_entry entry, uint64_t nth, weir_status status)
{
    WR_TRY(wr_host_check_open("weir_host_fail"));
    ENSURE_ENTRY("weir_host_fail", entry);
    return add_failure("weir_host_fail", entry, nth, status);
}

weir_status weir_host_fail_any(uint64_t nth, weir_status status)
{
    WR_TRY(wr_host_check_open("weir_host_fail_any"));
    return add_failure("weir_host_fail_any", ANY_ENTRY, nth, status);
}

weir_status weir_host_fail_clear(void)
{
    WR_TRY(wr_host_check_open("weir_host_fail_clear"));
    wr_lock_acquire(&script.lock);
    script.failure_count = 0;
    update_armed_locked();
    wr_lock_release(&script.lock);
    return WEIR_OK;
}

weir_status weir_host_latency(enum weir_backend_entry entry, uint64_t nanoseconds)
{
    WR_TRY(wr_host_check_open("weir_host_latency"));
    ENSURE_ENTRY("weir_host_latency", entry);
    wr_lock_acquire(&script.lock);
    script.latency[entry] = nanoseconds;
    script.latencies = false;
    for (size_t i = 0; i < WEIR_BACKEND_ENTRY_COUNT; i++) script.latencies |= script.latency[i] > 0;
    update_armed_locked();
    wr_lock_release(&script.lock);
    return WEIR_OK;
}

weir_status weir_host_clock_hold(bool hold)
{
    WR_TRY(wr_host_check_open("weir_host_clock_hold"));
    wr_lock_acquire(&script.lock);
    uint64_t now = clock_locked();
    script.clock = now;
    /* Goes on from where it stood, so it never steps back. */
    script.clock_shift = (int64_t)(now - wr_clock_ns(CLOCK_MONOTONIC));
    script.clock_held = hold;
    wr_lock_release(&script.lock);
    return WEIR_OK;
}

weir_status weir_host_clock_advance(uint64_t nanoseconds)
{
    WR_TRY(wr_host_check_open("weir_host_clock_advance"));
    wr_lock_acquire(&script.lock);
    bool held = script.clock_held;
    if (held) script.clock += nanoseconds;
    wr_lock_release(&script.lock);
    WR_ENSURE(held, WEIR_ERR_INVALID_ARGUMENT,
              "weir_host_clock_advance: the clock is running; stop it with weir_host_clock_hold(true)");
    return WEIR_OK;
}

weir_status weir_host_calls(enum weir_backend_entry entry, uint64_t *count)
{
    WR_TRY(wr_host_check_open("weir_host_calls"));
    ENSURE_ENTRY("weir_host_calls", entry);
    WR_ENSURE(count != NULL, WEIR_ERR_INVALID_ARGUMENT, "weir_host_calls: count is NULL");
    *count = atomic_load_explicit(&script.calls[entry], memory_order_relaxed);
    return WEIR_OK;
}

weir_status weir_host_cost(enum weir_backend_entry entry, uint64_t bytes, uint64_t *nanoseconds)
{
    ENSURE_ENTRY("weir_host_cost", entry);
    WR_ENSURE(nanoseconds != NULL, WEIR_ERR_INVALID_ARGUMENT, "weir_host_cost: nanoseconds is NULL");
    *nanoseconds = wr_host_cost(entry, bytes);
    return WEIR_OK;
}

weir_status weir_host_driver_time(uint64_t *nanoseconds)
{
    WR_TRY(wr_host_check_open("weir_host_driver_time"));
    WR_ENSURE(nanoseconds != NULL, WEIR_ERR_INVALID_ARGUMENT, "weir_host_driver_time: nanoseconds is NULL");
    uint64_t sum = atomic_load_explicit(&script.spent, memory_order_relaxed);
    for (int i = 0; i < WEIR_BACKEND_ENTRY_COUNT; i++)
        if (!wr_host_cost_has_size(i))
            sum += atomic_load_explicit(&script.calls[i], memory_order_relaxed) * wr_host_cost(i, 0);
    *nanoseconds = sum;
    return WEIR_OK;
}
