/*
 * Library handles as users see them.
 */
#include "base/sized.h"
#include "device/kinds.h"
#include "thread/handles.h"

#include <stdio.h>

/* Not a hit. The count of ways is read first, so that a change meanwhile shows at the next get. */
static WR_NOINLINE weir_status get_on(weir_handle_kind kind, weir_stream stream, void **handle)
{
    const uint64_t ways = atomic_load(&wr_runtime_global.ways);
    wr_device *d = NULL;
    wr_stream *s = NULL;
    WR_TRY(wr_thread_resolve_stream(stream, &d, &s));
    return wr_thread_handle(d, s, kind, ways, handle);
}

weir_status weir_handle_get(weir_handle_kind kind, void **handle)
{
    WR_ENSURE(handle, WEIR_ERR_INVALID_ARGUMENT, "weir_handle_get: handle is NULL");
    const wr_handle *hit = wr_thread_handle_hit(kind, wr_thread_current_id());
    if (WR_UNLIKELY(!hit)) return get_on(kind, (weir_stream){ 0 }, handle);
    *handle = hit->native;
    return WEIR_OK;
}

weir_status weir_handle_get_on(weir_handle_kind kind, weir_stream stream, void **handle)
{
    WR_ENSURE(handle, WEIR_ERR_INVALID_ARGUMENT, "weir_handle_get_on: handle is NULL");
    const wr_handle *hit = wr_thread_handle_hit(kind, stream.id);
    if (WR_UNLIKELY(!hit)) return get_on(kind, stream, handle);
    *handle = hit->native;
    return WEIR_OK;
}

weir_status weir_handle_release(weir_handle_kind kind, int device)
{
    wr_device *d = NULL;
    wr_kind *known = NULL;
    WR_TRY(wr_thread_look_up_device(device, &d));
    WR_TRY(wr_kind_find(kind, &known));
    return d ? wr_thread_handle_release(d, kind) : WEIR_OK;
}

/* ---- leases ------------------------------------------------------------------------------------------------------ */

/* A lease's id holds the device and the kind, so that its pool is found whatever device is current. */
enum { LEASE_KIND_BITS = 8, LEASE_DEVICE_BITS = 8 };

static uint64_t new_lease(const wr_device *device, weir_handle_kind kind)
{
    static atomic_uint_fast64_t last;
    const uint64_t serial = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    return serial << (LEASE_KIND_BITS + LEASE_DEVICE_BITS) | (uint64_t)device->ordinal << LEASE_KIND_BITS |
           (uint64_t)kind;
}

weir_status weir_handle_borrow(weir_handle_kind kind, weir_stream stream, uint64_t timeout_ns, weir_lease *lease)
{
    wr_device *d = NULL;
    wr_stream *s = NULL;
    wr_handle_pool *pool = NULL;
    wr_handle *h = NULL;
    WR_ENSURE(lease, WEIR_ERR_INVALID_ARGUMENT, "weir_handle_borrow: lease is NULL");
    WR_TRY(wr_thread_resolve_stream(stream, &d, &s));
    WR_TRY(wr_device_handles(d, kind, &pool));
    const uint64_t id = atomic_load_explicit(&s->id, memory_order_relaxed);
    WR_TRY(wr_handle_acquire(pool, &(wr_handle_want){ WR_HANDLE_LEASED, id, timeout_ns }, &h));
    weir_status status = wr_capture_bind(d, h, s, false);
    if (status != WEIR_OK) {
        wr_handle_give_back(h);
        return status;
    }
    lease->id = new_lease(d, kind);
    wr_handle_lend(h, lease->id);
    return WEIR_OK;
}

/* The pool of a lease's handle; NULL when there is no such pool now. */
static wr_handle_pool *pool_of(weir_lease lease)
{
    const uint64_t device = lease.id >> LEASE_KIND_BITS & ((1u << LEASE_DEVICE_BITS) - 1);
    const uint64_t kind = lease.id & ((1u << LEASE_KIND_BITS) - 1);
    wr_device *d = lease.id && device < WR_DEVICE_MAX ? wr_runtime_opened((int)device) : NULL;
    return d && kind < WEIR_HANDLE_KIND_MAX ? atomic_load(&d->handles[kind]) : NULL;
}

static weir_status over(const char *call, weir_lease lease)
{
    return wr_fail(WEIR_ERR_INVALID_ARGUMENT, "%s: lease %#llx is not valid: it was already returned, or never existed",
                   call, (unsigned long long)lease.id);
}

void *weir_lease_handle(weir_lease lease)
{
    if (wr_runtime_enter() != WEIR_OK) return NULL;
    wr_handle_pool *pool = pool_of(lease);
    void *native = pool ? wr_handle_leased(pool, lease.id) : NULL;
    if (native) return native;
    (void)!over("weir_lease_handle", lease); /* the answer is NULL; the text says why */
    return NULL;
}

weir_status weir_handle_return(weir_lease lease)
{
    WR_TRY(wr_runtime_enter());
    wr_handle_pool *pool = pool_of(lease);
    wr_handle *h = pool ? wr_handle_end_lease(pool, lease.id) : NULL;
    if (!h) return over("weir_handle_return", lease);
    wr_handle_give_back(h);
    return WEIR_OK;
}

/* ---- budgets, trimming, numbers ---------------------------------------------------------------------------------- */

weir_status weir_handle_budget_set(weir_handle_kind kind, int device, uint64_t count, uint64_t bytes)
{
    wr_device *d = NULL;
    wr_handle_pool *pool = NULL;
    WR_TRY(wr_thread_resolve_device(device, &d));
    WR_TRY(wr_device_handles(d, kind, &pool));
    wr_handle_pool_budget(pool, count, bytes);
    return WEIR_OK;
}

weir_status weir_handles_trim(weir_handle_kind kind, int device, uint64_t *destroyed)
{
    wr_device *d = NULL;
    wr_kind *known = NULL;
    uint64_t gone = 0;
    WR_TRY(wr_thread_look_up_device(device, &d));
    if (kind != 0) WR_TRY(wr_kind_find(kind, &known));
    weir_status status = d ? wr_device_trim_handles(d, kind, &gone) : WEIR_OK;
    if (destroyed) *destroyed = gone;
    return status;
}

weir_status weir_handle_stats_get(weir_handle_kind kind, int device, weir_handle_stats *out)
{
    wr_device *d = NULL;
    wr_kind *known = NULL;
    WR_TRY(wr_sized_check_out("weir_handle_stats_get", "weir_handle_stats", out, sizeof *out));
    WR_TRY(wr_thread_look_up_device(device, &d));
    WR_TRY(wr_kind_find(kind, &known));
    wr_handle_pool *pool = d ? atomic_load(&d->handles[kind]) : NULL;
    weir_handle_stats stats = { 0 };
    if (pool) wr_handle_pool_stats(pool, &stats);
    wr_sized_give(out, &stats, sizeof stats);
    return WEIR_OK;
}

weir_status weir_handle_kind_info_get(weir_handle_kind kind, weir_handle_kind_info *out)
{
    wr_kind *k = NULL;
    WR_TRY(wr_sized_check_out("weir_handle_kind_info_get", "weir_handle_kind_info", out, sizeof *out));
    WR_TRY(wr_runtime_check_fork());
    WR_TRY(wr_kind_find(kind, &k));
    if (k->load) WR_TRY(k->load(k->self));
    weir_handle_kind_info info = { 0 };
    snprintf(info.name, sizeof info.name, "%s", k->name);
    if (k->describe) k->describe(k->self, &info);
    wr_sized_give(out, &info, sizeof info);
    return WEIR_OK;
}

weir_status weir_handle_kind_register(const weir_handle_ops *ops, weir_handle_kind *kind)
{
    WR_ENSURE(kind, WEIR_ERR_INVALID_ARGUMENT, "weir_handle_kind_register: kind is NULL");
    WR_TRY(wr_sized_check_in("weir_handle_kind_register", "ops", "WEIR_HANDLE_OPS_INIT", ops, sizeof *ops));
    return wr_kind_register(ops, kind);
}
