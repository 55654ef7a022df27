#include "torch/scopes.h"

#include "shared/streams.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct scope {
    struct scope *next; /* of the pool, the one opened last first */
    wa_filter filter;   /* while open */
    weir_graph graph;   /* {0}: weir was told of no capture */
    bool open;
} scope;

typedef struct pool {
    struct pool *next; /* the one opened last first */
    int device;
    weir_mempool torchs, ours;
    scope *scopes; /* one per reference */
} pool;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pool *pools;
static atomic_uint unknown; /* open scopes whose capture weir was not told of */

static void keep_first(weir_status *first, weir_status status)
{
    if (*first == WEIR_OK) *first = status;
}

static pool *find_locked(int device, weir_mempool torchs)
{
    pool *p = pools;
    while (p && (p->device != device || p->torchs.capture != torchs.capture || p->torchs.user != torchs.user))
        p = p->next;
    return p;
}

static weir_status add_locked(int device, weir_mempool torchs, pool **out)
{
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.device = device;
    pool *p = calloc(1, sizeof *p);
    if (!p) return WEIR_ERR_OUT_OF_HOST_MEMORY;
    const weir_status status = weir_mempool_create(&options, &p->ours);
    if (status != WEIR_OK) {
        free(p);
        return status;
    }
    p->device = device;
    p->torchs = torchs;
    p->next = pools;
    pools = p;
    *out = p;
    return WEIR_OK;
}

static weir_status remove_locked(pool *p)
{
    pool **link = &pools;
    while (*link != p) link = &(*link)->next;
    *link = p->next;
    const weir_status status = weir_mempool_unref(p->ours);
    free(p);
    return status;
}

weir_status wa_scope_begin(int device, weir_mempool torchs, wa_filter filter)
{
    weir_status status = WEIR_OK;
    scope *s = calloc(1, sizeof *s);
    pthread_mutex_lock(&lock);
    pool *p = find_locked(device, torchs);
    if (!s) status = WEIR_ERR_OUT_OF_HOST_MEMORY;
    if (status == WEIR_OK && !p) status = add_locked(device, torchs, &p);
    if (status == WEIR_OK) {
        *s = (scope){ .next = p->scopes, .filter = filter, .open = true };
        p->scopes = s;
        atomic_fetch_add(&unknown, 1);
    }
    pthread_mutex_unlock(&lock);
    if (status != WEIR_OK) {
        filter.drop(filter.object);
        free(s);
    }
    return status;
}

/* From here on PyTorch may destroy what the filter asks. */
static void close_locked(scope *s)
{
    s->open = false;
    if (s->graph.id == 0) atomic_fetch_sub(&unknown, 1);
    s->filter.drop(s->filter.object);
}

weir_status wa_scope_end(int device, weir_mempool torchs)
{
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&lock);
    const pool *p = find_locked(device, torchs);
    scope *s = p ? p->scopes : NULL;
    while (s && !s->open) s = s->next;
    if (s) close_locked(s);
    if (s && s->graph.id != 0) status = weir_graph_end(s->graph);
    pthread_mutex_unlock(&lock);
    return status;
}

/* Graphs that share a pool are released without being told apart: all of them keep the same pool, and nothing else. */
weir_status wa_scope_release(int device, weir_mempool torchs)
{
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&lock);
    pool *p = find_locked(device, torchs);
    scope **link = p ? &p->scopes : NULL;
    while (link && *link && (*link)->open && (*link)->next) link = &(*link)->next;
    scope *s = link ? *link : NULL;
    if (s) {
        *link = s->next;
        if (s->open) close_locked(s);
        if (s->graph.id != 0) status = weir_graph_destroy(s->graph);
        free(s);
    }
    if (p && !p->scopes) keep_first(&status, remove_locked(p));
    pthread_mutex_unlock(&lock);
    return status;
}

static scope *in_scope_locked(const pool *p, void *native)
{
    scope *s = p->scopes;
    while (s && !(s->open && s->graph.id == 0 && s->filter.call(s->filter.object, native))) s = s->next;
    return s;
}

/* A stream that captures is weir's business once it knows of the capture; any other gets memory of the pool by name. */
static weir_status serve_locked(const pool *p, scope *s, weir_stream stream, size_t bytes, void **out, bool *served)
{
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    options.pool = p->ours;
    options.mode = WEIR_CAPTURE_RELAXED;
    const weir_status status = weir_graph_adopt(stream, &options, &s->graph);
    if (status == WEIR_OK) atomic_fetch_sub(&unknown, 1);
    if (status != WEIR_ERR_CAPTURE && status != WEIR_ERR_INVALID_ARGUMENT) return status;
    *served = true;
    return weir_alloc_from(p->ours, bytes, stream, out);
}

weir_status wa_scope_alloc(size_t bytes, int device, void *native, void **out, bool *served)
{
    weir_status status = WEIR_OK;
    weir_stream stream = { 0 };
    scope *s = NULL;
    if (atomic_load_explicit(&unknown, memory_order_relaxed) == 0 || bytes == 0) return WEIR_OK;
    status = wa_stream_of(device, native, &stream);
    if (status != WEIR_OK) return status;
    pthread_mutex_lock(&lock);
    const pool *p = pools;
    while (p && (p->device != device || !(s = in_scope_locked(p, native)))) p = p->next;
    if (s) status = serve_locked(p, s, stream, bytes, out, served);
    pthread_mutex_unlock(&lock);
    return status;
}
