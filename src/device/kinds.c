#include "device/kinds.h"

#include "backend/library.h"
#include "base/meta.h"
#include "base/utf8.h"
#include "device/debug.h"
#include "device/ladder.h"
#include "pool/address.h"
#include "pool/checkpoint.h"
#include "pool/pending.h"

#include <stdio.h>
#include <string.h>

static wr_lock lock = WR_LOCK_INITIALIZER(WR_RANK_KINDS, "kinds of handles");

/* ---- registered kinds -------------------------------------------------------------------------------------------- */

typedef struct user_kind {
    wr_kind kind;
    weir_handle_ops ops;
    char name[32];
} user_kind;

enum { USER_KINDS = WEIR_HANDLE_KIND_MAX - WEIR_HANDLE_KIND_FIRST_USER };
#define KNOWN_FLAGS                                                                                                    \
    (WEIR_HANDLE_DESTROY_SYNCS | WEIR_HANDLE_FIRST_ALONE | WEIR_HANDLE_BIND_ALWAYS | WEIR_HANDLE_CREATE_SYNCS)
static user_kind user_kinds[USER_KINDS];
static atomic_int user_kind_count;

static int user_create(void *self, int device, const weir_device_caps *caps, void **handle)
{
    const user_kind *u = self;
    (void)caps;
    return u->ops.create(u->ops.user, device, handle);
}

static int user_destroy(void *self, void *handle)
{
    const user_kind *u = self;
    return u->ops.destroy(u->ops.user, handle);
}

static int user_bind(void *self, void *handle, void *native_stream)
{
    const user_kind *u = self;
    return u->ops.bind(u->ops.user, handle, native_stream);
}

static int user_reset(void *self, void *handle)
{
    const user_kind *u = self;
    return u->ops.reset(u->ops.user, handle);
}

static const char *user_error_text(void *self, int code)
{
    static WR_THREAD_LOCAL char text[24];
    const user_kind *u = self;
    const char *said = u->ops.error_text ? u->ops.error_text(u->ops.user, code) : NULL;
    if (said) return said;
    snprintf(text, sizeof text, "code %d", code);
    return text;
}

static bool name_taken_locked(const char *name, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(user_kinds[i].name, name) == 0) return true;
    for (size_t i = 0; i < wr_cuda_kind_count; i++)
        if (strcmp(wr_cuda_kinds[i].name, name) == 0) return true;
    for (size_t i = 0; i < wr_hip_kind_count; i++)
        if (strcmp(wr_hip_kinds[i].name, name) == 0) return true;
    return false;
}

static weir_status check_ops_locked(const weir_handle_ops *ops, int count)
{
    WR_ENSURE(ops->name && ops->name[0] && strlen(ops->name) < sizeof user_kinds[0].name, WEIR_ERR_INVALID_ARGUMENT,
              "weir_handle_kind_register: the name must have 1 to %zu characters", sizeof user_kinds[0].name - 1);
    WR_ENSURE(wr_utf8_bytes(ops->name, strlen(ops->name)) == strlen(ops->name), WEIR_ERR_INVALID_ARGUMENT,
              "weir_handle_kind_register: the name is not UTF-8, so that in texts it could not be told from others");
    WR_ENSURE(ops->create && ops->destroy, WEIR_ERR_INVALID_ARGUMENT, "weir_handle_kind_register: %s has no %s",
              ops->name, ops->create ? "destroy" : "create");
    WR_ENSURE(!(ops->flags & ~KNOWN_FLAGS), WEIR_ERR_INVALID_ARGUMENT,
              "weir_handle_kind_register: %s: flags %#x have bits that are not WEIR_HANDLE_* flags", ops->name,
              ops->flags);
    WR_ENSURE(ops->reserved == 0, WEIR_ERR_INVALID_ARGUMENT,
              "weir_handle_kind_register: %s: reserved is %u; leave it 0", ops->name, ops->reserved);
    WR_ENSURE(!name_taken_locked(ops->name, count), WEIR_ERR_INVALID_ARGUMENT,
              "weir_handle_kind_register: there is already a kind \"%s\"", ops->name);
    WR_ENSURE(count < USER_KINDS, WEIR_ERR_OUT_OF_HOST_MEMORY,
              "weir_handle_kind_register: %d kinds are registered, the most that weir can have", count);
    return WEIR_OK;
}

weir_status wr_kind_register(const weir_handle_ops *ops, weir_handle_kind *number)
{
    WR_TRY(wr_runtime_check_fork());
    wr_lock_acquire(&lock);
    const int count = atomic_load_explicit(&user_kind_count, memory_order_relaxed);
    weir_status status = check_ops_locked(ops, count);
    if (status == WEIR_OK) {
        user_kind *u = &user_kinds[count];
        u->ops = *ops;
        snprintf(u->name, sizeof u->name, "%s", ops->name);
        u->kind = (wr_kind){ .name = u->name,
                             .flags = ops->flags,
                             .self = u,
                             .create = user_create,
                             .destroy = user_destroy,
                             .bind = ops->bind ? user_bind : NULL,
                             .reset = ops->reset ? user_reset : NULL,
                             .error_text = user_error_text };
        atomic_store_explicit(&user_kind_count, count + 1, memory_order_release);
        *number = WEIR_HANDLE_KIND_FIRST_USER + count;
    }
    wr_lock_release(&lock);
    return status;
}

bool wr_kinds_at_rest(void)
{
    return wr_lock_is_free(&lock) && wr_library_at_rest();
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

static const wr_library_row *row_of(weir_handle_kind number)
{
    for (size_t i = 0; i < wr_cuda_kind_count; i++)
        if (wr_cuda_kinds[i].kind == number) return &wr_cuda_kinds[i];
    for (size_t i = 0; i < wr_hip_kind_count; i++)
        if (wr_hip_kinds[i].kind == number) return &wr_hip_kinds[i];
    return NULL;
}

weir_status wr_kind_find(weir_handle_kind number, wr_kind **kind)
{
    const int count = atomic_load_explicit(&user_kind_count, memory_order_acquire);
    if (number >= WEIR_HANDLE_KIND_FIRST_USER && number < WEIR_HANDLE_KIND_FIRST_USER + count) {
        *kind = &user_kinds[number - WEIR_HANDLE_KIND_FIRST_USER].kind;
        return WEIR_OK;
    }
    const wr_library_row *row = row_of(number);
    WR_ENSURE(row, WEIR_ERR_INVALID_ARGUMENT, "there is no kind of handle %d", number);
    return wr_library_kind(row, kind);
}

/* ---- a device's pools -------------------------------------------------------------------------------------------- */

static weir_status site_alloc(void *device, wr_stream *stream, size_t bytes, bool routed, void **out)
{
    wr_device *d = device;
    wr_route route = { .pool = d->cache.pools };
    if (routed) WR_TRY(wr_capture_choose(d, stream, &route));
    WR_TRY(wr_device_alloc(d, route.pool, route.name, stream, atomic_load(&stream->id), bytes, out));
    if (route.name != 0) wr_checkpoint_set_library(*out, true);
    if (WR_UNLIKELY(d->cache.debug != NULL)) wr_debug_unpoison(d, NULL, *out);
    return WEIR_OK;
}

static weir_status site_free(void *device, void *pointer, const wr_stream *last_used_on)
{
    wr_device *d = device;
    const wr_segment *segment = wr_address_find(pointer);
    WR_ENSURE(segment, WEIR_ERR_UNKNOWN_POINTER, "%p was not allocated by weir", pointer);
    if (last_used_on) WR_TRY(wr_pending_record(segment, pointer, last_used_on, &d->events));
    wr_checkpoint_set_library(pointer, false);
    return wr_device_free(segment, pointer);
}

/* The workspaces of handles go to the cache, and from there to the driver. */
static void site_make_room(void *device)
{
    wr_device *d = device;
    uint64_t destroyed = 0;
    wr_clean_up(wr_device_trim_handles(d, 0, &destroyed));
    wr_clean_up(wr_device_empty_cache(d));
}

static uint64_t site_held(void *device)
{
    wr_cache *cache = &((wr_device *)device)->cache;
    wr_cache_lock(cache);
    const uint64_t held = wr_cache_counted_locked(cache);
    wr_cache_unlock(cache);
    return held;
}

static weir_status make_pool(wr_device *device, weir_handle_kind number, wr_kind *kind, wr_handle_pool **out)
{
    void *memory = NULL;
    const wr_handle_site site = { .backend = device->backend,
                                  .device = device->ordinal,
                                  .caps = &device->caps,
                                  .streams = &device->streams,
                                  .events = &device->events,
                                  .creates = &device->creates,
                                  .alloc = site_alloc,
                                  .free = site_free,
                                  .make_room = site_make_room,
                                  .held = site_held,
                                  .device_context = device };
    WR_TRY(wr_meta_alloc(sizeof(wr_handle_pool), "handle pool", &memory));
    weir_status status = wr_handle_pool_init(memory, kind, &site);
    if (status != WEIR_OK) {
        wr_meta_free(memory);
        return status;
    }
    atomic_store_explicit(&device->handles[number], (wr_handle_pool *)memory, memory_order_release);
    *out = memory;
    return WEIR_OK;
}

weir_status wr_device_handles_slow(wr_device *device, weir_handle_kind number, wr_handle_pool **pool)
{
    wr_kind *kind = NULL;
    WR_TRY(wr_kind_find(number, &kind));
    if (kind->load) WR_TRY(kind->load(kind->self));
    weir_status status = WEIR_OK;
    wr_lock_acquire(&lock);
    *pool = atomic_load_explicit(&device->handles[number], memory_order_relaxed);
    if (!*pool) status = make_pool(device, number, kind, pool);
    wr_lock_release(&lock);
    return status;
}

bool wr_device_has_handles(const wr_device *device)
{
    bool some = false;
    for (int kind = 0; kind < WEIR_HANDLE_KIND_MAX && !some; kind++)
        some = atomic_load_explicit(&device->handles[kind], memory_order_acquire) != NULL;
    return some;
}

weir_status wr_device_trim_handles(wr_device *device, weir_handle_kind number, uint64_t *destroyed)
{
    weir_status first = WEIR_OK;
    for (int kind = 0; kind < WEIR_HANDLE_KIND_MAX; kind++) {
        wr_handle_pool *pool = atomic_load_explicit(&device->handles[kind], memory_order_acquire);
        if (pool && (number == 0 || number == kind)) wr_keep_first(&first, wr_handle_pool_trim(pool, destroyed));
    }
    return first;
}

void wr_device_reset_handles(wr_device *device, weir_handle_kind number, bool peaks, bool totals)
{
    for (int kind = 0; kind < WEIR_HANDLE_KIND_MAX; kind++) {
        wr_handle_pool *pool = atomic_load_explicit(&device->handles[kind], memory_order_acquire);
        if (pool && (number == 0 || number == kind)) wr_handle_pool_stats_reset(pool, peaks, totals);
    }
}

weir_status wr_device_sample_handles(wr_device *device, wr_rows *rows)
{
    for (int kind = 0; kind < WEIR_HANDLE_KIND_MAX; kind++) {
        wr_row *row = NULL;
        wr_handle_pool *pool = atomic_load_explicit(&device->handles[kind], memory_order_acquire);
        if (!pool) continue;
        WR_TRY(wr_rows_add(rows, WR_SCOPE_HANDLES, device->ordinal, &row));
        snprintf(row->name, sizeof row->name, "%s", pool->kind->name);
        wr_handle_pool_stats(pool, &row->of.handles);
    }
    return WEIR_OK;
}

weir_status wr_device_release_handles(wr_device *device)
{
    weir_status first = WEIR_OK;
    for (int kind = 0; kind < WEIR_HANDLE_KIND_MAX; kind++) {
        wr_handle_pool *pool = atomic_exchange_explicit(&device->handles[kind], NULL, memory_order_acq_rel);
        if (!pool) continue;
        wr_keep_first(&first, wr_handle_pool_release(pool));
        wr_meta_free(pool);
    }
    return first;
}
