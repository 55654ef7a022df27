/*
 * handle_support: a fictitious library whose handles are pooled. It counts calls, fails and blocks when told to, and
 * may take device memory as real libraries do. Include after the cmocka headers.
 */
#ifndef WEIR_TESTS_HANDLE_SUPPORT_H
#define WEIR_TESTS_HANDLE_SUPPORT_H

#include "device/kinds.h"
#include "host_support.h"
#include "sanitized.h"
#include "thread_support.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

/* A handle of the library. */
typedef struct thing {
    int device;
    void *stream, *workspace, *memory;
    size_t bytes;
    int workspaces;               /* how often a workspace was set */
    const wr_kind_memory *feeder; /* for kinds that take memory from weir */
    void *fed;
} thing;

enum { LIBRARY_NO_MEMORY = 2, LIBRARY_BROKEN = 7 };

typedef struct library {
    const char *name;
    weir_handle_kind kind;
    atomic_int creates, destroys, binds, resets;
    atomic_int creating, most_creating;                              /* threads inside create: now, and at most */
    atomic_int fail_creates, fail_destroys, fail_binds, fail_resets; /* how many of the next calls fail */
    atomic_bool gives_nothing; /* create reports success without giving a handle */
    atomic_size_t bytes;       /* device memory that each create takes */
    atomic_int slow_creates;   /* how many of the next creates wait at the gate */
    atomic_int slow_destroys;  /* the same for destroys */
    void (*on_create)(void);   /* called by each create */
    void (*on_destroy)(void);  /* called by each destroy */
    sem_t arrived, gate;
} library;

/* Uses up one of the calls that are to behave specially; false when none is left. */
static inline bool take_one(atomic_int *number)
{
    int left = atomic_load(number);
    while (left > 0)
        if (atomic_compare_exchange_weak(number, &left, left - 1)) return true;
    return false;
}

static inline void dawdle(library *l, atomic_int *number)
{
    if (!take_one(number)) return;
    sem_post(&l->arrived);
    wait_for(&l->gate);
}

static inline void enter_create(library *l)
{
    int inside = atomic_fetch_add(&l->creating, 1) + 1, most = atomic_load(&l->most_creating);
    while (inside > most && !atomic_compare_exchange_weak(&l->most_creating, &most, inside)) continue;
    dawdle(l, &l->slow_creates);
}

static inline int library_create(void *user, int device, void **handle)
{
    library *l = user;
    int code = 0;
    void *memory = NULL;
    const size_t bytes = atomic_load(&l->bytes);
    enter_create(l);
    if (l->on_create) l->on_create();
    if (take_one(&l->fail_creates)) code = LIBRARY_BROKEN;
    if (code == 0 && bytes && wr_runtime_global.backend->segment_alloc(device, bytes, &memory) != WEIR_OK)
        code = LIBRARY_NO_MEMORY;
    if (code == 0 && !atomic_load(&l->gives_nothing)) {
        thing *t = calloc(1, sizeof *t);
        *t = (thing){ .device = device, .memory = memory, .bytes = bytes };
        *handle = t;
        atomic_fetch_add(&l->creates, 1);
    }
    atomic_fetch_sub(&l->creating, 1);
    return code;
}

/* The handle is gone whatever this returns: destroying it twice is a double free. */
static inline int library_destroy(void *user, void *handle)
{
    library *l = user;
    thing *t = handle;
    atomic_fetch_add(&l->destroys, 1);
    dawdle(l, &l->slow_destroys);
    if (l->on_destroy) l->on_destroy();
    if (t->memory) (void)wr_runtime_global.backend->segment_free(t->device, t->memory, t->bytes);
    if (t->fed) t->feeder->free(t->feeder->context, t->fed, NULL, true);
    free(t);
    return take_one(&l->fail_destroys) ? LIBRARY_BROKEN : 0;
}

static inline int library_bind(void *user, void *handle, void *native_stream)
{
    library *l = user;
    thing *t = handle;
    atomic_fetch_add(&l->binds, 1);
    if (take_one(&l->fail_binds)) return LIBRARY_BROKEN;
    t->stream = native_stream;
    t->workspace = NULL; /* as in cuBLAS */
    return 0;
}

static inline int library_reset(void *user, void *handle)
{
    library *l = user;
    (void)handle;
    atomic_fetch_add(&l->resets, 1);
    return take_one(&l->fail_resets) ? LIBRARY_BROKEN : 0;
}

static inline const char *library_error_text(void *user, int code)
{
    (void)user;
    return code == LIBRARY_BROKEN ? "7 broken" : NULL;
}

static inline void library_register(library *l, uint32_t flags)
{
    const weir_handle_ops ops = {
        WEIR_HANDLE_OPS_INIT, .name = l->name,        .create = library_create,         .destroy = library_destroy,
        .bind = library_bind, .reset = library_reset, .error_text = library_error_text, .user = l,
        .flags = flags
    };
    assert_ok(weir_handle_kind_register(&ops, &l->kind));
}

/* Features of vendor libraries that registered kinds cannot have, set in the registry's own record of the kind. */
enum { WORKSPACE_BYTES = 1 << 20 };

static inline size_t library_workspace_bytes(void *self, const weir_device_caps *caps)
{
    (void)self;
    return caps->total_memory > 0 ? WORKSPACE_BYTES : 0;
}

static inline int library_set_workspace(void *self, void *handle, void *workspace, size_t bytes)
{
    thing *t = handle;
    (void)self;
    t->workspaces++;
    t->workspace = workspace;
    return bytes == WORKSPACE_BYTES ? 0 : LIBRARY_BROKEN;
}

static inline int library_set_memory(void *self, void *handle, const wr_kind_memory *memory)
{
    thing *t = handle;
    (void)self;
    t->feeder = memory;
    return 0;
}

static inline bool library_is_out_of_memory(void *self, int code)
{
    (void)self;
    return code == LIBRARY_NO_MEMORY;
}

static inline wr_kind *kind_of(const library *l)
{
    wr_kind *kind = NULL;
    assert_ok(wr_kind_find(l->kind, &kind));
    return kind;
}

static inline void library_works_in_memory_of_weirs(const library *l)
{
    kind_of(l)->workspace_bytes = library_workspace_bytes;
    kind_of(l)->set_workspace = library_set_workspace;
}

/* Resets the library to its state before first use. */
static inline void library_start(library *l)
{
    library fresh = { .name = l->name, .kind = l->kind };
    memcpy(l, &fresh, sizeof fresh);
    sem_init(&l->arrived, 0, 0);
    sem_init(&l->gate, 0, 0);
}

/* Called after weir_close: asserts that every handle was destroyed once. */
static inline void library_end(library *l)
{
    assert_int_equal(atomic_load(&l->destroys), atomic_load(&l->creates));
    sem_destroy(&l->arrived);
    sem_destroy(&l->gate);
}

static inline thing *get_on(const library *l, weir_stream stream)
{
    void *handle = NULL;
    assert_ok(weir_handle_get_on(l->kind, stream, &handle));
    assert_non_null(handle);
    return handle;
}

static inline thing *get(const library *l)
{
    return get_on(l, WEIR_STREAM_CURRENT);
}

static inline weir_lease borrow(const library *l, weir_stream stream)
{
    weir_lease lease = { 0 };
    assert_ok(weir_handle_borrow(l->kind, stream, 0, &lease));
    assert_int_not_equal(lease.id, 0);
    return lease;
}

static inline weir_handle_stats numbers_of(const library *l, int device)
{
    weir_handle_stats stats = { .size = sizeof stats };
    assert_ok(weir_handle_stats_get(l->kind, device, &stats));
    return stats;
}

static inline uint64_t trim(const library *l, int device)
{
    uint64_t destroyed = 0;
    assert_ok(weir_handles_trim(l->kind, device, &destroyed));
    return destroyed;
}

static inline wr_device *open_device(int device)
{
    wr_device *d = NULL;
    assert_ok(wr_runtime_device(device, &d));
    return d;
}

/* ---- threads, which must not assert ------------------------------------------------------------------------------ */

/* A thread that gets its handle and keeps it until holder_end. */
typedef struct holder {
    const library *library;
    weir_stream stream; /* {0}: the current one */
    pthread_t thread;
    sem_t has, leave;
    void *handle;
    weir_status status;
} holder;

static inline void *hold_handle(void *argument)
{
    holder *h = argument;
    h->status = weir_handle_get_on(h->library->kind, h->stream, &h->handle);
    sem_post(&h->has);
    wait_for(&h->leave);
    return NULL;
}

static inline void holder_start(holder *h, const library *l, weir_stream stream)
{
    *h = (holder){ .library = l, .stream = stream };
    sem_init(&h->has, 0, 0);
    sem_init(&h->leave, 0, 0);
    assert_int_equal(pthread_create(&h->thread, NULL, hold_handle, h), 0);
}

/* NULL when the get failed. */
static inline thing *holder_handle(holder *h)
{
    wait_for(&h->has);
    sem_post(&h->has);
    return h->status == WEIR_OK ? h->handle : NULL;
}

static inline bool holder_waits(holder *h)
{
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += 50000000;
    soon.tv_sec += soon.tv_nsec / 1000000000;
    soon.tv_nsec %= 1000000000;
    int failed = sem_timedwait(&h->has, &soon);
    if (failed == 0) sem_post(&h->has);
    return failed != 0;
}

static inline void holder_end(holder *h)
{
    sem_post(&h->leave);
    pthread_join(h->thread, NULL);
    sem_destroy(&h->has);
    sem_destroy(&h->leave);
}

#endif
