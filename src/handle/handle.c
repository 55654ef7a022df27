#include "handle/handle.h"

#include "base/meta.h"
#include "base/size.h"
#include "handle/handle_bind.h"
#include "handle/handle_measure.h"
#include "handle/handle_native.h"
#include "observe/metrics.h"
#include "stream/quiet.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <time.h>

/* One borrower in the queue of a pool that is at its budget; threads do not queue for handles of their own. */
struct wr_handle_waiter {
    wr_handle_waiter *next;
    pthread_cond_t turn;
    wr_handle *handle; /* the handle it was given */
    bool may_create;   /* instead: the budget now has room for a new one */
};

weir_status wr_handle_pool_init(wr_handle_pool *pool, wr_kind *kind, const wr_handle_site *site)
{
    *pool = (wr_handle_pool){ .kind = kind, .site = *site };
    wr_lock_init(&pool->lock, WR_RANK_HANDLES, kind->name);
    WR_ENSURE(pthread_cond_init(&pool->first_created, NULL) == 0, WEIR_ERR_OUT_OF_HOST_MEMORY,
              "no condition variable for %s handles", kind->name);
    return WEIR_OK;
}

/* ---- creating ---------------------------------------------------------------------------------------------------- */

/* Makes a handle and its record. The pool's lock is not held; `underway` counts the creation. */
static weir_status create_handle(wr_handle_pool *pool, wr_handle **out)
{
    void *memory = NULL, *native = NULL;
    WR_TRY(wr_meta_alloc(sizeof(wr_handle), "handle", &memory));
    wr_handle_measure measure = wr_handle_measure_begin(pool);
    weir_status status = wr_handle_native_create(pool, &native, &measure);
    const uint64_t bytes = wr_handle_measure_end(pool, &measure);
    if (status != WEIR_OK) {
        wr_meta_free(memory);
        return status;
    }
    wr_handle *h = memory;
    h->native = native;
    h->pool = pool;
    h->bytes = bytes;
    status = wr_handle_feed(h);
    if (status != WEIR_OK) {
        wr_clean_up(wr_handle_native_destroy(pool, native));
        wr_meta_free(h);
        return status;
    }
    *out = h;
    return WEIR_OK;
}

/* Creates that the calling thread is in the middle of: they may call the program. */
static WR_THREAD_LOCAL uint8_t own_creates;

static void note_create_ended_locked(wr_handle_pool *pool, bool created)
{
    if (created) pool->created_first = true;
    pthread_cond_broadcast(&pool->first_created);
}

static bool first_is_underway_locked(const wr_handle_pool *pool)
{
    return !pool->created_first && pool->underway != 0;
}

/* The budget's number of handles is reached. */
static bool is_full_locked(const wr_handle_pool *pool)
{
    return pool->budget_count && pool->stats.live + pool->underway >= pool->budget_count;
}

/* Others wait for the first handle where the library's first create on a device must run alone, and in a budget of
 * bytes, since nobody knows what one takes. */
static bool all_wait_for_first_locked(const wr_handle_pool *pool)
{
    return first_is_underway_locked(pool) && !is_full_locked(pool) &&
           (pool->kind->flags & WEIR_HANDLE_FIRST_ALONE || pool->budget_bytes);
}

/* The first is allowed in any budget of bytes: what the last one took may have been something else, and nobody could
 * give one back. */
static bool room_locked(const wr_handle_pool *pool)
{
    if (is_full_locked(pool) || all_wait_for_first_locked(pool)) return false;
    if (!pool->budget_bytes || pool->stats.live + pool->underway == 0) return true;
    return pool->stats.bytes + (pool->underway + 1) * pool->typical_bytes <= pool->budget_bytes;
}

/* A thread that is making a handle might wait for itself here, or for one that waits for it. */
static weir_status check_may_wait_for_first_locked(const wr_handle_pool *pool)
{
    const bool waits = first_is_underway_locked(pool) && !room_locked(pool);
    WR_ENSURE(
        own_creates == 0 || !waits, WEIR_ERR_BUSY,
        "%s: the first handle of device %d is just being made, and others have to wait for that; this thread must "
        "not, since it is making a handle itself, which has called the program",
        pool->kind->name, pool->site.device);
    return WEIR_OK;
}

/* The first in the queue that has not been served. */
static wr_handle_waiter *next_waiter_locked(const wr_handle_pool *pool)
{
    wr_handle_waiter *w = pool->first_waiter;
    while (w && (w->handle || w->may_create)) w = w->next;
    return w;
}

/* Lets as many in the queue continue as there is room to create for. */
static void wake_creator_locked(wr_handle_pool *pool)
{
    for (wr_handle_waiter *w; room_locked(pool) && (w = next_waiter_locked(pool));) {
        w->may_create = true;
        pool->underway++;
        pthread_cond_signal(&w->turn);
    }
}

/* The caller has counted it in `underway` under the lock. */
static weir_status create_counted(wr_handle_pool *pool, wr_handle_owner owner, wr_handle **out)
{
    wr_handle *h = NULL;
    own_creates++;
    weir_status status = create_handle(pool, &h);
    own_creates--;
    wr_lock_acquire(&pool->lock);
    pool->underway--;
    note_create_ended_locked(pool, status == WEIR_OK);
    weir_handle_stats *s = &pool->stats;
    if (status == WEIR_OK) {
        h->owner = owner;
        h->next = pool->all;
        pool->all = h;
        pool->typical_bytes = h->bytes;
        s->created++;
        s->live++;
        s->bytes += h->bytes;
        if (s->live > s->peak) s->peak = s->live;
        if (owner == WR_HANDLE_LEASED) s->borrowed++;
        *out = h;
    } else {
        s->failed_creates++;
    }
    wake_creator_locked(pool); /* it failed, or took less than expected */
    wr_lock_release(&pool->lock);
    return status;
}

/* ---- taking and giving back -------------------------------------------------------------------------------------- */

static void join_queue_locked(wr_handle_pool *pool, wr_handle_waiter *w)
{
    if (pool->last_waiter)
        pool->last_waiter->next = w;
    else
        pool->first_waiter = w;
    pool->last_waiter = w;
}

static void leave_queue_locked(wr_handle_pool *pool, const wr_handle_waiter *w)
{
    wr_handle_waiter **link = &pool->first_waiter, *before = NULL;
    while (*link != w) {
        before = *link;
        link = &(*link)->next;
    }
    *link = w->next;
    if (pool->last_waiter == w) pool->last_waiter = before;
}

enum { BUDGET_TEXT = 96 };

/* "2 handles", "64.00 MiB", "2 handles and 64.00 MiB" */
static const char *budget_text(const wr_handle_pool *pool, char text[BUDGET_TEXT])
{
    const unsigned long long count = pool->budget_count;
    char bytes[WR_SIZE_TEXT];
    wr_size_format(pool->budget_bytes, bytes);
    if (count == 0)
        snprintf(text, BUDGET_TEXT, "%s", bytes);
    else
        snprintf(text, BUDGET_TEXT, "%llu handles%s%s", count, pool->budget_bytes ? " and " : "",
                 pool->budget_bytes ? bytes : "");
    return text;
}

/* Waits for a turn. On return the waiter has a handle, may create, or has waited long enough. */
static weir_status queue_locked(wr_handle_pool *pool, wr_handle_waiter *w, uint64_t timeout_ns)
{
    const struct timespec deadline = wr_lock_deadline(timeout_ns);
    const int failed = wr_lock_condition_init(&w->turn);
    WR_ENSURE(failed == 0, WEIR_ERR_OUT_OF_HOST_MEMORY, "no condition variable to wait for a %s handle",
              pool->kind->name);
    pool->stats.waits++;
    join_queue_locked(pool, w);
    int late = 0;
    while (!w->handle && !w->may_create && late != ETIMEDOUT)
        late = wr_lock_wait_until(&pool->lock, &w->turn, timeout_ns == WEIR_FOREVER ? NULL : &deadline);
    leave_queue_locked(pool, w);
    pthread_cond_destroy(&w->turn);
    if (w->handle || w->may_create) return WEIR_OK;
    pool->stats.timeouts++;
    char budget[BUDGET_TEXT];
    WR_ENSURE(!all_wait_for_first_locked(pool), WEIR_ERR_TIMEOUT,
              "the first %s handle of device %d was not made within %llu ns, and others have to wait for that; wait "
              "longer",
              pool->kind->name, pool->site.device, (unsigned long long)timeout_ns);
    return wr_fail(WEIR_ERR_TIMEOUT,
                   "no %s handle on device %d became free within %llu ns; %llu exist, and the budget is %s; wait "
                   "longer, or raise the budget with weir_handle_budget_set()",
                   pool->kind->name, pool->site.device, (unsigned long long)timeout_ns,
                   (unsigned long long)pool->stats.live, budget_text(pool, budget));
}

static wr_handle *take_first_locked(wr_handle **list, uint64_t *count)
{
    wr_handle *h = *list;
    if (!h) return NULL;
    *list = h->next_idle;
    --*count;
    return h;
}

/* The first that no graph holds. */
static wr_handle *take_unheld_locked(wr_handle **list, uint64_t *count)
{
    while (*list && (*list)->graphs != 0) list = &(*list)->next_idle;
    return take_first_locked(list, count);
}

/* How many idle handles are looked at for one that suits. */
enum { LOOKED_AT = 64 };

/* One last used on the stream has its workspace there, and waits for nobody. Handles that went around among streams
 * would each come to have a workspace on every one of them. */
static wr_handle *take_used_on_locked(wr_handle **list, uint64_t *count, uint64_t stream_id)
{
    for (int i = 0; *list && i < LOOKED_AT; i++, list = &(*list)->next_idle)
        if ((*list)->stream_id == stream_id && (*list)->graphs == 0) return take_first_locked(list, count);
    return NULL;
}

/* An idle handle, or room for a new one, means that nobody queues: whoever frees one serves the queue first. Doomed
 * handles will do. One that a graph holds may be in use by a launch that its next owner knows nothing of. */
static wr_handle *pop_idle_locked(wr_handle_pool *pool, const wr_handle_want *want)
{
    wr_handle *h = take_used_on_locked(&pool->idle, &pool->stats.idle, want->stream_id);
    if (!h) h = take_unheld_locked(&pool->idle, &pool->stats.idle);
    if (!h) h = take_unheld_locked(&pool->doomed, &pool->stats.doomed);
    if (!h) h = take_first_locked(&pool->idle, &pool->stats.idle);
    if (!h) return NULL;
    if (want->owner == WR_HANDLE_LEASED) pool->stats.borrowed++;
    h->owner = want->owner;
    return h;
}

static weir_status busy_locked(const wr_handle_pool *pool)
{
    char budget[BUDGET_TEXT];
    WR_ENSURE(!all_wait_for_first_locked(pool), WEIR_ERR_BUSY,
              "the first %s handle of device %d is just being made, and others have to wait for that; wait for one "
              "with weir_handle_borrow() and a timeout",
              pool->kind->name, pool->site.device);
    return wr_fail(WEIR_ERR_BUSY,
                   "all %llu %s handles of device %d are in use or being created or destroyed, and the budget (%s) "
                   "allows no more; wait for one with weir_handle_borrow() and a timeout, or raise the budget with "
                   "weir_handle_budget_set()",
                   (unsigned long long)(pool->stats.live + pool->underway), pool->kind->name, pool->site.device,
                   budget_text(pool, budget));
}

static weir_status reset_state(const wr_handle *handle)
{
    const wr_kind *kind = handle->pool->kind;
    weir_backend_scope scope;
    if (!kind->reset) return WEIR_OK;
    WR_TRY(wr_handle_scope_enter(handle->pool, &scope));
    const int code = kind->reset(kind->self, handle->native);
    wr_handle_scope_leave(handle->pool, &scope);
    return code == 0 ? WEIR_OK : wr_handle_refused(kind, "resetting a handle", code);
}

/* An owner gets the handle as if new: what the last owner changed is reset, another allocator, too. */
static weir_status reset(wr_handle *handle)
{
    weir_status status = reset_state(handle);
    if (status == WEIR_OK) status = wr_handle_feed(handle);
    if (status != WEIR_OK) wr_handle_give_back(handle);
    return status;
}

/* *h: a handle that is there; NULL: *create, which is counted in `underway`. */
static weir_status find_locked(wr_handle_pool *pool, const wr_handle_want *want, wr_handle **h, bool *create)
{
    wr_handle_waiter waiter = { 0 };
    *h = pop_idle_locked(pool, want);
    if (*h) return WEIR_OK;
    WR_TRY(check_may_wait_for_first_locked(pool));
    while (!*h && want->owner == WR_HANDLE_OF_THREAD && all_wait_for_first_locked(pool)) {
        wr_lock_wait(&pool->lock, &pool->first_created);
        *h = pop_idle_locked(pool, want);
    }
    *create = !*h && room_locked(pool);
    pool->underway += *create;
    if (*h || *create) return WEIR_OK;
    if (want->timeout_ns == 0) return busy_locked(pool);
    WR_TRY(queue_locked(pool, &waiter, want->timeout_ns));
    *h = waiter.handle;
    *create = waiter.may_create;
    return WEIR_OK;
}

weir_status wr_handle_acquire(wr_handle_pool *pool, const wr_handle_want *want, wr_handle **out)
{
    wr_handle *h = NULL;
    bool create = false;
    wr_lock_acquire(&pool->lock);
    const weir_status status = find_locked(pool, want, &h, &create);
    wr_lock_release(&pool->lock);
    if (status != WEIR_OK) return status;
    if (create) return create_counted(pool, want->owner, out);
    assert(h); /* no error and nothing to create: there is one */
    WR_TRY(reset(h));
    wr_lock_acquire(&pool->lock);
    pool->stats.reuses++;
    wr_lock_release(&pool->lock);
    *out = h;
    return WEIR_OK;
}

void wr_handle_give_back(wr_handle *handle)
{
    wr_handle_pool *pool = handle->pool;
    wr_lock_acquire(&pool->lock);
    if (handle->owner == WR_HANDLE_LEASED) pool->stats.borrowed--;
    wr_handle_waiter *w = next_waiter_locked(pool);
    if (w) {
        handle->owner = WR_HANDLE_LEASED;
        pool->stats.borrowed++;
        w->handle = handle;
        pthread_cond_signal(&w->turn);
    } else {
        handle->next_idle = pool->idle;
        pool->idle = handle;
        pool->stats.idle++;
    }
    wr_lock_release(&pool->lock);
}

void wr_handle_pool_budget(wr_handle_pool *pool, uint64_t count, uint64_t bytes)
{
    wr_lock_acquire(&pool->lock);
    pool->budget_count = count;
    pool->budget_bytes = bytes;
    pthread_cond_broadcast(&pool->first_created);
    wake_creator_locked(pool);
    wr_lock_release(&pool->lock);
}

void wr_handle_lend(wr_handle *handle, uint64_t lease)
{
    wr_lock_acquire(&handle->pool->lock);
    handle->lease = lease;
    wr_lock_release(&handle->pool->lock);
}

static wr_handle *find_lease_locked(const wr_handle_pool *pool, uint64_t lease)
{
    wr_handle *h = pool->all;
    while (h && h->lease != lease) h = h->next;
    return h;
}

void *wr_handle_leased(wr_handle_pool *pool, uint64_t lease)
{
    wr_lock_acquire(&pool->lock);
    const wr_handle *h = find_lease_locked(pool, lease);
    void *native = h ? h->native : NULL;
    wr_lock_release(&pool->lock);
    return native;
}

wr_handle *wr_handle_end_lease(wr_handle_pool *pool, uint64_t lease)
{
    wr_lock_acquire(&pool->lock);
    wr_handle *h = find_lease_locked(pool, lease);
    if (h) h->lease = 0;
    wr_lock_release(&pool->lock);
    return h;
}

/* ---- destroying -------------------------------------------------------------------------------------------------- */

static void unlink_locked(wr_handle_pool *pool, const wr_handle *handle)
{
    wr_handle **link = &pool->all;
    while (*link != handle) link = &(*link)->next;
    *link = handle->next;
    pool->stats.live--;
    pool->stats.bytes -= handle->bytes;
    pool->stats.destroyed++;
    pool->stats.hits += atomic_load_explicit(&handle->hits, memory_order_relaxed);
}

static void forget_handle(wr_handle *handle)
{
    wr_handle_drop_workspaces(handle);
    wr_meta_free(handle);
}

void wr_handle_hold(wr_handle *handle)
{
    wr_lock_acquire(&handle->pool->lock);
    handle->graphs++;
    wr_lock_release(&handle->pool->lock);
}

void wr_handle_let_go(wr_handle *handle)
{
    wr_handle_pool *pool = handle->pool;
    wr_lock_acquire(&pool->lock);
    assert(handle->graphs > 0);
    handle->graphs--;
    wr_lock_release(&pool->lock);
}

static uint64_t count_unheld(const wr_handle *list)
{
    uint64_t count = 0;
    for (; list; list = list->next_idle) count += list->graphs == 0;
    return count;
}

static uint64_t count_to_destroy(wr_handle_pool *pool)
{
    wr_lock_acquire(&pool->lock);
    const uint64_t count = count_unheld(pool->idle) + count_unheld(pool->doomed);
    wr_lock_release(&pool->lock);
    return count;
}

/* NULL: the last of them has been taken for use meanwhile. Its place in the budget is free once it is gone
 * (note_gone). */
static wr_handle *take_out(wr_handle_pool *pool)
{
    wr_lock_acquire(&pool->lock);
    wr_handle *h = take_unheld_locked(&pool->idle, &pool->stats.idle);
    if (!h) h = take_unheld_locked(&pool->doomed, &pool->stats.doomed);
    if (h) {
        unlink_locked(pool, h);
        pool->underway++;
    }
    wr_lock_release(&pool->lock);
    return h;
}

static void note_gone(wr_handle_pool *pool)
{
    wr_lock_acquire(&pool->lock);
    pool->underway--;
    wake_creator_locked(pool);
    wr_lock_release(&pool->lock);
}

static void doom_idle(wr_handle_pool *pool)
{
    wr_lock_acquire(&pool->lock);
    for (wr_handle *h; (h = take_unheld_locked(&pool->idle, &pool->stats.idle));) {
        h->next_idle = pool->doomed;
        pool->doomed = h;
        pool->stats.doomed++;
    }
    wr_lock_release(&pool->lock);
}

/* *may: a handle can be destroyed now. Where that is harmful, no stream captures, and none begins to before
 * wr_quiet_end(). */
static weir_status begin_destroying(wr_handle_pool *pool, bool *may)
{
    const weir_status quiet =
        wr_handle_destroy_is_harmful(pool) ? wr_quiet_begin(pool->site.events, pool->site.streams) : WEIR_OK;
    *may = quiet == WEIR_OK;
    if (quiet == WEIR_ERR_CAPTURE) doom_idle(pool);
    return quiet == WEIR_ERR_CAPTURE ? WEIR_OK : quiet;
}

/* Where destroying is harmful, looks for captures before each destruction: one that began since the last counts. Ends
 * after as many as there were, since threads that give handles back and get new ones might keep it going for ever. */
weir_status wr_handle_pool_trim(wr_handle_pool *pool, uint64_t *destroyed)
{
    weir_status first = WEIR_OK;
    bool may = true;
    for (uint64_t left = count_to_destroy(pool); left > 0; left--) {
        wr_keep_first(&first, begin_destroying(pool, &may));
        if (!may) break;
        wr_handle *h = take_out(pool);
        if (h) wr_keep_first(&first, wr_handle_native_destroy(pool, h->native)); /* one attempt, whatever the result */
        if (wr_handle_destroy_is_harmful(pool)) wr_quiet_end();
        if (!h) break;
        forget_handle(h);
        note_gone(pool);
        ++*destroyed;
    }
    return first;
}

weir_status wr_handle_pool_release(wr_handle_pool *pool)
{
    weir_status first = WEIR_OK;
    while (pool->all) {
        wr_handle *h = pool->all;
        pool->all = h->next;
        wr_keep_first(&first, wr_handle_native_destroy(pool, h->native));
        forget_handle(h);
    }
    pthread_cond_destroy(&pool->first_created);
    wr_lock_destroy(&pool->lock);
    return first;
}

static uint64_t hits_locked(const wr_handle_pool *pool)
{
    uint64_t hits = 0;
    for (const wr_handle *h = pool->all; h; h = h->next) hits += atomic_load_explicit(&h->hits, memory_order_relaxed);
    return hits;
}

void wr_handle_pool_stats(wr_handle_pool *pool, weir_handle_stats *out)
{
    wr_lock_acquire(&pool->lock);
    *out = pool->stats;
    out->hits += hits_locked(pool);
    wr_lock_release(&pool->lock);
}

void wr_handle_pool_stats_reset(wr_handle_pool *pool, bool peaks, bool totals)
{
    wr_lock_acquire(&pool->lock);
    wr_metrics_reset(WR_SCOPE_HANDLES, &pool->stats, peaks, totals);
    if (peaks) pool->stats.peak = pool->stats.live;
    if (totals) pool->stats.hits -= hits_locked(pool); /* owners go on counting; the sum is right modulo 2^64 */
    wr_lock_release(&pool->lock);
}
