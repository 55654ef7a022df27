#include "torch/scopes.h"

#include "shared/streams.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct scope {
    struct scope *next; /* of the pool's; the last opened comes first */
    uint64_t serial;    /* in the order opened */
    wa_filter filter;   /* valid while open */
    weir_graph graph;   /* {0}: weir was told of no capture */
    pthread_t opener;
    bool open; /* false from the beginning: a reference alone */
    bool over; /* its capture is over, and weir knows */
} scope;

typedef struct pool {
    struct pool *next;
    int device;
    weir_mempool torchs, ours;
    scope *scopes;   /* one per reference */
    scope *released; /* released scopes with a graph, any of which may still be replayed */
} pool;

/* Guards the lists. Not held while weir may wait for work or call the program, which may come back here on any
 * thread. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pool *pools;
static pool *left; /* without references, which weir may still have: for their ids */
static uint64_t last_serial;
static atomic_uint unknown; /* open scopes whose capture weir was not told of */

/* Another thread may have held the lock, and changed the lists under it. */
static void forget_in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    pools = left = NULL;
    atomic_store(&unknown, 0);
}

static void watch_fork(void)
{
    (void)pthread_atfork(NULL, NULL, forget_in_child);
}

static void keep_first(weir_status *first, weir_status status)
{
    if (*first == WEIR_OK) *first = status;
}

static bool is_same(weir_mempool a, weir_mempool b)
{
    return a.capture == b.capture && a.user == b.user;
}

static pool *find_locked(int device, weir_mempool torchs)
{
    pool *p = pools;
    while (p && (p->device != device || !is_same(p->torchs, torchs))) p = p->next;
    return p;
}

static bool is_gone(const pool *p)
{
    weir_mempool_info info = { .size = sizeof info };
    return weir_mempool_info_get(p->ours, &info) == WEIR_ERR_POOL_MISMATCH;
}

static void forget_gone_locked(void)
{
    for (pool **link = &left; *link;) {
        pool *p = *link;
        if (is_gone(p)) {
            *link = p->next;
            free(p);
        } else {
            link = &p->next;
        }
    }
}

/* The pool has no reference any more. Leaves that to weir's pool to the caller. */
static void leave_locked(pool *p)
{
    pool **link = &pools;
    while (*link != p) link = &(*link)->next;
    *link = p->next;
    forget_gone_locked();
    p->next = left;
    left = p;
}

static void add_locked(pool *p, scope *s)
{
    s->serial = ++last_serial;
    s->next = p->scopes;
    p->scopes = s;
    if (s->open) atomic_fetch_add(&unknown, 1);
}

/* False: there is no pool of weir's for PyTorch's yet. */
static bool add_to_known(int device, weir_mempool torchs, scope *s)
{
    pthread_mutex_lock(&lock);
    pool *p = find_locked(device, torchs);
    if (p) add_locked(p, s);
    pthread_mutex_unlock(&lock);
    return p != NULL;
}

static weir_status add_to_new(weir_mempool torchs, const weir_mempool_options *options, scope *s)
{
    const int device = options->device;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_fork);
    pool *made = calloc(1, sizeof *made);
    weir_status status = made ? weir_mempool_create(options, &made->ours) : WEIR_ERR_OUT_OF_HOST_MEMORY;
    if (status != WEIR_OK) {
        free(made);
        return status;
    }
    made->device = device;
    made->torchs = torchs;
    pthread_mutex_lock(&lock);
    pool *known = find_locked(device, torchs); /* another thread may have made it meanwhile */
    if (!known) {
        made->next = pools;
        pools = made;
    }
    add_locked(known ? known : made, s);
    pthread_mutex_unlock(&lock);
    if (!known) return WEIR_OK;
    (void)weir_mempool_unref(made->ours); /* a failure does not matter: the reference is there */
    free(made);
    return WEIR_OK;
}

static weir_status add(weir_mempool torchs, const weir_mempool_options *options, scope like)
{
    scope *s = malloc(sizeof *s);
    if (!s) return WEIR_ERR_OUT_OF_HOST_MEMORY;
    *s = like;
    const weir_status status = add_to_known(options->device, torchs, s) ? WEIR_OK : add_to_new(torchs, options, s);
    if (status != WEIR_OK) free(s);
    return status;
}

static bool is_underway(const scope *s)
{
    return s->graph.id != 0 && !s->over && pthread_equal(s->opener, pthread_self());
}

static size_t list_underway(weir_graph *graphs, size_t most)
{
    size_t count = 0;
    pthread_mutex_lock(&lock);
    for (const pool *p = pools; p; p = p->next)
        for (const scope *s = p->scopes; s && count < most; s = s->next)
            if (is_underway(s)) graphs[count++] = s->graph;
    pthread_mutex_unlock(&lock);
    return count;
}

static void note_over(weir_graph graph)
{
    if (graph.id == 0) return;
    pthread_mutex_lock(&lock);
    for (const pool *p = pools; p; p = p->next)
        for (scope *s = p->scopes; s; s = s->next)
            if (s->graph.id == graph.id) s->over = true;
    pthread_mutex_unlock(&lock);
}

/* PyTorch does not close the scope of a capture that failed as it ended, and closes that of one which goes on around
 * the body of a conditional node. Weir would take those to be underway for ever, and keep the memory of all graphs that
 * are dropped from then on. A capture belongs to the thread that began it, which here begins another one, closes a
 * scope, or drops a graph. A scope that is open stays so, since PyTorch does not say which one it closes. */
static void end_those_over(void)
{
    enum { MOST = 16 };
    weir_graph graphs[MOST];
    const size_t count = list_underway(graphs, MOST);
    for (size_t i = 0; i < count; i++)
        if (weir_graph_end(graphs[i]) == WEIR_OK) note_over(graphs[i]); /* else it goes on */
}

weir_status wa_scope_begin(int device, weir_mempool torchs, wa_filter filter)
{
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.device = device;
    end_those_over();
    const weir_status status =
        add(torchs, &options, (scope){ .filter = filter, .opener = pthread_self(), .open = true });
    if (status != WEIR_OK) filter.drop(filter.object);
    return status;
}

weir_status wa_scope_hold(weir_mempool torchs, const weir_mempool_options *options)
{
    return add(torchs, options, (scope){ .open = false });
}

int wa_scope_references(int device, weir_mempool torchs, weir_mempool *ours)
{
    int references = 0;
    pthread_mutex_lock(&lock);
    const pool *p = find_locked(device, torchs);
    for (const scope *s = p ? p->scopes : NULL; s; s = s->next) references++;
    *ours = p ? p->ours : (weir_mempool){ 0, 0 };
    pthread_mutex_unlock(&lock);
    return references;
}

static const pool *find_ours(const pool *p, int device, weir_mempool ours)
{
    while (p && (p->device != device || !is_same(p->ours, ours))) p = p->next;
    return p;
}

weir_mempool wa_scope_torchs(int device, weir_mempool ours)
{
    pthread_mutex_lock(&lock);
    const pool *p = find_ours(pools, device, ours);
    if (!p) p = find_ours(left, device, ours);
    const weir_mempool torchs = p ? p->torchs : (weir_mempool){ 0, 0 };
    pthread_mutex_unlock(&lock);
    return torchs;
}

size_t wa_scope_pools(int device, weir_mempool *torchs, weir_mempool *ours, size_t capacity)
{
    size_t count = 0;
    pthread_mutex_lock(&lock);
    for (const pool *p = pools; p; p = p->next) {
        if (p->device != device) continue;
        if (count < capacity) {
            torchs[count] = p->torchs;
            ours[count] = p->ours;
        }
        count++;
    }
    pthread_mutex_unlock(&lock);
    return count;
}

/* Afterwards PyTorch may destroy what the filter asks. */
static void close_locked(scope *s)
{
    s->open = false;
    if (s->graph.id == 0) atomic_fetch_sub(&unknown, 1);
    s->filter.drop(s->filter.object);
}

/* Threads may be in scopes of one pool at once, and PyTorch does not say which of them ends. */
static scope *last_open_locked(const pool *p)
{
    scope *any = NULL;
    for (scope *s = p->scopes; s; s = s->next) {
        if (s->open && pthread_equal(s->opener, pthread_self())) return s;
        if (s->open && !any) any = s;
    }
    return any;
}

weir_status wa_scope_end(int device, weir_mempool torchs)
{
    weir_graph graph = { 0 };
    end_those_over();
    pthread_mutex_lock(&lock);
    const pool *p = find_locked(device, torchs);
    scope *s = p ? last_open_locked(p) : NULL;
    if (s) close_locked(s);
    if (s && !s->over) graph = s->graph;
    pthread_mutex_unlock(&lock);
    const weir_status status = graph.id != 0 ? weir_graph_end(graph) : WEIR_OK;
    if (status == WEIR_OK) note_over(graph);
    return status == WEIR_ERR_BUSY ? WEIR_OK : status; /* that of a conditional node around whose body it goes on */
}

/* The lock is not held. Returns the first failure. */
static weir_status destroy_graphs(scope *s)
{
    weir_status first = WEIR_OK;
    while (s) {
        scope *next = s->next;
        keep_first(&first, weir_graph_destroy(s->graph));
        free(s);
        s = next;
    }
    return first;
}

/* PyTorch does not say which of the graphs that share a pool is gone, and any of them may keep handles or pools that
 * the others do not. So weir's records of all of them, a few hundred bytes each, stay until the pool's last reference
 * is gone. */
weir_status wa_scope_release(int device, weir_mempool torchs)
{
    end_those_over();
    pthread_mutex_lock(&lock);
    pool *p = find_locked(device, torchs);
    scope **link = p ? &p->scopes : NULL;
    while (link && *link && (*link)->open && (*link)->next) link = &(*link)->next;
    scope *s = link ? *link : NULL;
    if (s) *link = s->next;
    if (s && s->open) close_locked(s);
    if (s && s->graph.id != 0) {
        s->next = p->released;
        p->released = s;
        s = NULL;
    }
    const bool last = p && !p->scopes;
    const weir_mempool ours = last ? p->ours : (weir_mempool){ 0, 0 };
    scope *released = last ? p->released : NULL;
    if (last) leave_locked(p); /* another thread may forget it then */
    pthread_mutex_unlock(&lock);
    free(s);
    if (!last) return WEIR_OK;
    weir_status status = destroy_graphs(released);
    keep_first(&status, weir_mempool_unref(ours));
    return status;
}

typedef enum which {
    UNKNOWN,          /* weir was told of no capture */
    UNKNOWN_CAPTURES, /* nor is it another kind of scope */
    KNOWN_CAPTURES
} which;

static bool is_one(const scope *s, which of)
{
    const bool known = s->graph.id != 0;
    switch (of) {
    case UNKNOWN: return !known;
    case UNKNOWN_CAPTURES: return !known && !s->filter.now;
    default: return known;
    }
}

/* The last scope of these, opened after `since`, that the stream is in, and its pool. A filter is asked only where it
 * matters: that of a capture which failed as it ended may ask what is gone, since PyTorch does not close the scope. */
static scope *find_scope_locked(int device, void *native, which of, uint64_t since, const pool **in)
{
    scope *found = NULL;
    uint64_t last = since;
    for (const pool *p = pools; p; p = p->next)
        for (scope *s = p->device == device ? p->scopes : NULL; s; s = s->next) {
            if (!s->open || s->serial < last || !is_one(s, of) || !s->filter.call(s->filter.object, native)) continue;
            found = s;
            last = s->serial;
            *in = p;
        }
    return found;
}

/* Tells weir of the capture of the scope's stream; from then on weir routes the capture itself. *captured: false if the
 * stream is not capturing, or weir knows its capture already. */
static weir_status adopt_locked(const pool *p, scope *s, weir_stream stream, bool *captured)
{
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    options.pool = p->ours;
    options.mode = WEIR_CAPTURE_RELAXED;
    const weir_status status = weir_graph_adopt(stream, &options, &s->graph);
    *captured = status == WEIR_OK;
    if (*captured) atomic_fetch_sub(&unknown, 1);
    return status == WEIR_ERR_CAPTURE || status == WEIR_ERR_INVALID_ARGUMENT ? WEIR_OK : status;
}

/* The scope is the one that counts. *named: the pool that memory comes from by name, with a reference; {0}: weir routes
 * the request itself. A capture that a named scope is part of is to keep what comes from it, so weir is told of it. */
static weir_status enter_locked(const pool *p, scope *s, weir_stream stream, void *native, weir_mempool *named)
{
    bool captured = false;
    const pool *of = p;
    scope *capture = s->filter.now ? find_scope_locked(p->device, native, UNKNOWN_CAPTURES, 0, &of) : s;
    if (!capture) capture = s; /* it may be that of a conditional node's body, opened once that is being captured */
    weir_status status = adopt_locked(of, capture, stream, &captured);
    if (status != WEIR_OK || (captured && capture == s)) return status;
    status = weir_mempool_ref(p->ours);
    if (status == WEIR_OK) *named = p->ours;
    return status;
}

static bool none_unknown(void)
{
    return atomic_load_explicit(&unknown, memory_order_relaxed) == 0;
}

/* What scopes have to say of a request on the stream, which it finds. */
static weir_status ask_scope(int device, void *native, weir_stream *stream, weir_mempool *named)
{
    const pool *p = NULL;
    *named = (weir_mempool){ 0, 0 };
    weir_status status = wa_stream_of(device, native, stream);
    if (status != WEIR_OK) return status;
    pthread_mutex_lock(&lock);
    scope *s = find_scope_locked(device, native, UNKNOWN, 0, &p);
    const pool *inner = NULL;
    const bool routed = s && s->filter.now && find_scope_locked(device, native, KNOWN_CAPTURES, s->serial, &inner);
    if (s && !routed) status = enter_locked(p, s, *stream, native, named);
    pthread_mutex_unlock(&lock);
    return status;
}

static bool is_named(weir_mempool id)
{
    return (id.capture | id.user) != 0;
}

weir_status wa_scope_alloc(size_t bytes, int device, void *native, void **out, bool *served)
{
    weir_stream stream = { 0 };
    weir_mempool named;
    if (bytes == 0 || none_unknown()) return WEIR_OK;
    weir_status status = ask_scope(device, native, &stream, &named);
    if (status != WEIR_OK || !is_named(named)) return status;
    *served = true;
    status = weir_alloc_from(named, bytes, stream, out);
    if (status == WEIR_OK) wa_note_served(device);
    (void)weir_mempool_unref(named); /* the release of the scope reports the same failure */
    return status;
}

weir_status wa_scope_tell(int device, void *native)
{
    weir_stream stream = { 0 };
    weir_mempool named;
    if (none_unknown()) return WEIR_OK;
    const weir_status status = ask_scope(device, native, &stream, &named);
    if (is_named(named)) (void)weir_mempool_unref(named);
    return status;
}
