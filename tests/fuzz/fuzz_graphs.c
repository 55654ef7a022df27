/*
 * Bytes become a sequence of operations on one small host device: streams that are held and go on, captures of one or
 * two streams into graphs, with pools of their own or of the program's, launches, pools that are paused and come back,
 * and handles that are got, borrowed and returned. It is compared with a model of what memory has once all work has
 * run. Between operations the structures are checked.
 */
#include "fuzz/fuzz_support.h"
#include "weir/host.h"

#include <string.h>

enum { STREAMS = 5, BLOCKS = 40, POOLS = 3, GRAPHS = 3, LEASES = 2, OPERATIONS = 1500 };

/* A handle of the fictitious library, with memory of its own that its work writes. */
typedef struct thing {
    struct thing *next; /* of all that were made */
    void *bound;        /* the stream, as the driver knows it */
    unsigned char own[16], value;
    bool known; /* since it was bound to its stream, that value is what its work leaves */
    bool taken; /* leased */
    bool gone;  /* destroyed; its own memory stays, since its last work may still write that */
} thing;

typedef struct stream {
    weir_stream id;
    bool held;
    int graph;   /* 1 + that of the capture underway; 0: none */
    bool behind; /* work from before its capture may not have run, and nobody may wait for it */
} stream;

typedef struct block {
    unsigned char *memory; /* NULL: none here */
    size_t bytes;
    unsigned char value;
    bool known; /* that is what it has, once all work has run */
    int stream; /* its own */
    int pool;   /* 1 + its number; 0: none of these */
    int graph;  /* 1 + the one whose launches write it; 0: none */
    bool recorded[STREAMS];
} block;

typedef struct pool {
    weir_mempool id; /* {0, 0}: none here */
    char tag[8];     /* empty: cannot be paused */
    bool paused, graphed;
} pool;

typedef struct graph {
    weir_graph id; /* {0}: none here */
    bool capturing;
    int first, second; /* its streams; -1: no second one */
    int pool;          /* 1 + that of the program's that it captures into; 0: its own */
} graph;

static struct {
    stream streams[STREAMS];
    block blocks[BLOCKS];
    pool pools[POOLS];
    graph graphs[GRAPHS];
    weir_lease leases[LEASES]; /* {0}: none here */
    int lease_streams[LEASES];
    size_t memory, limit; /* that there is; 0: no limit */
    unsigned tags;
    unsigned char value;
} m;

static thing *things;
static weir_handle_kind kind;

/* ---- the library ------------------------------------------------------------------------------------------------- */

static bool any_captures(void)
{
    for (int i = 0; i < STREAMS; i++)
        if (m.streams[i].graph) return true;
    return false;
}

static int thing_create(void *user, int device, void **handle)
{
    (void)user;
    thing *t = calloc(1, sizeof *t);
    if (!t || device != 0) return 1;
    t->next = things;
    things = t;
    *handle = t;
    return 0;
}

static int thing_destroy(void *user, void *handle)
{
    (void)user;
    thing *t = handle;
    must(!t->taken && !t->gone);
    t->gone = true;
    return 0;
}

/* Outside captures it is bound behind all its work so far; beside one the program has to order that
 * (docs/handles.md). */
static int thing_bind(void *user, void *handle, void *native_stream)
{
    (void)user;
    thing *t = handle;
    t->bound = native_stream;
    t->known = !any_captures();
    t->value = 0;
    return 0;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

static size_t next_size(void)
{
    const size_t fine = next_number(65536);
    switch (next_byte() % 5) {
    case 0: return 1 + fine % 3000;
    case 1: return 1 + fine * 3;
    case 2: return 1 + fine * 32;
    case 3: return 512 * (1 + fine % 8);
    default: return (1 + fine % 8) * MIB;
    }
}

static int some_stream(void)
{
    return next_byte() % STREAMS;
}

static int some_pool(void)
{
    return next_byte() % POOLS;
}

static bool has_block(int at)
{
    return m.blocks[at].memory != NULL;
}

/* -1: there is none. */
static int find_block(bool there)
{
    return next_index(BLOCKS, has_block, there);
}

static void let_go(int s)
{
    if (m.streams[s].held) must(weir_host_stream_release(0, native_of(m.streams[s].id)) == WEIR_OK);
    m.streams[s].held = false;
}

static void let_all_go(void)
{
    for (int s = 0; s < STREAMS; s++)
        if (!m.streams[s].graph) let_go(s);
}

/* Beside a capture weir waits up to a second for work that only this thread could run. */
static void let_go_where_short(size_t needed)
{
    weir_memory_stats stats = { .size = sizeof stats };
    must(weir_stats_get(0, &stats) == WEIR_OK);
    const size_t most = m.limit && m.limit < m.memory ? m.limit : m.memory;
    if (any_captures() && (size_t)stats.reserved_bytes[WEIR_STAT_ALL].current + needed > most) let_all_go();
}

static void run_all(void)
{
    let_all_go();
    for (int s = 0; s < STREAMS; s++)
        if (!m.streams[s].graph) must(weir_stream_synchronize(m.streams[s].id) == WEIR_OK);
}

/* A stream that is captured cannot be waited for. */
static bool may_not_have_run(void)
{
    for (int s = 0; s < STREAMS; s++)
        if (m.streams[s].graph && m.streams[s].behind) return true;
    return false;
}

static void check_contents(void)
{
    if (may_not_have_run()) return;
    run_all();
    for (const block *b = m.blocks; b < m.blocks + BLOCKS; b++) {
        if (!b->memory || !b->known || (b->pool && m.pools[b->pool - 1].paused)) continue;
        must(is_filled(b->memory, b->bytes, b->value));
    }
    for (const thing *t = things; t; t = t->next)
        must(!t->known || !t->value || t->gone || is_filled(t->own, sizeof t->own, t->value));
}

static void check_apart(const void *memory, size_t bytes)
{
    for (const block *b = m.blocks; b < m.blocks + BLOCKS; b++)
        must(!b->memory || are_apart(b->memory, b->bytes, memory, bytes));
}

static void write_block(block *b, int s)
{
    b->value = m.value = value_after(m.value);
    must(weir_fill(b->memory, b->value, b->bytes, m.streams[s].id) == WEIR_OK);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void allocate(void)
{
    const int s = some_stream(), at = find_block(false), p = next_byte() % (2 * POOLS);
    const size_t bytes = next_size();
    const pool *from = p < POOLS && m.pools[p].id.user ? &m.pools[p] : NULL;
    void *memory = NULL;
    if (at < 0 || m.streams[s].graph || (from && from->graphed)) return;
    let_go_where_short(bytes + 20 * MIB);
    weir_status status = from ? weir_alloc_from(from->id, bytes, m.streams[s].id, &memory)
                              : weir_alloc_on(bytes, m.streams[s].id, &memory);
    if (from && from->paused) {
        must(status == WEIR_ERR_BUSY);
        return;
    }
    must(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
    if (status != WEIR_OK) return;
    check_apart(memory, bytes);
    m.blocks[at] = (block){ .memory = memory, .bytes = bytes, .known = true, .stream = s, .pool = from ? 1 + p : 0 };
    write_block(&m.blocks[at], s);
}

/* Another stream writes it, behind all others that do. */
static void use(void)
{
    const int at = find_block(true), s = some_stream();
    block *b = &m.blocks[at < 0 ? 0 : at];
    if (at < 0 || b->graph || m.streams[s].graph || m.streams[b->stream].graph) return;
    if (b->pool && m.pools[b->pool - 1].paused) return;
    for (int i = 0; i < STREAMS; i++)
        if (b->recorded[i] && m.streams[i].graph) return;
    must(weir_stream_wait(m.streams[s].id, m.streams[b->stream].id) == WEIR_OK);
    for (int i = 0; i < STREAMS; i++)
        if (b->recorded[i]) must(weir_stream_wait(m.streams[s].id, m.streams[i].id) == WEIR_OK);
    if (s != b->stream) must(weir_record_stream(b->memory + next_number(b->bytes), m.streams[s].id) == WEIR_OK);
    b->recorded[s] = s != b->stream;
    b->known = true;
    write_block(b, s);
}

/* What a graph writes may be freed: its pool keeps the memory for it. */
static void release(void)
{
    const int at = find_block(true);
    block *b = &m.blocks[at < 0 ? 0 : at];
    if (at < 0 || (b->graph && (m.graphs[b->graph - 1].capturing || m.streams[b->stream].graph))) return;
    must(weir_free(b->memory) == WEIR_OK);
    b->memory = NULL;
}

static void give_back(void)
{
    const int p = some_pool();
    weir_status status;
    if (any_captures()) let_all_go();
    switch (next_byte() % 4) {
    case 0: must(weir_empty_cache(0) == WEIR_OK); break;
    case 1:
        if (!m.pools[p].id.user) break;
        status = weir_mempool_empty_cache(m.pools[p].id);
        must(status == WEIR_OK || (status == WEIR_ERR_BUSY && (m.pools[p].graphed || m.pools[p].paused)));
        break;
    case 2:
        m.limit = (next_byte() % 8) * 16 * MIB;
        must(weir_memory_limit_set(0, m.limit) == WEIR_OK);
        break;
    default:
        status = weir_device_synchronize(0);
        must(status == WEIR_OK || (status == WEIR_ERR_CAPTURE && any_captures()));
    }
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static void hold(void)
{
    const int s = some_stream();
    if (m.streams[s].graph) return;
    if (m.streams[s].held) {
        let_go(s);
        return;
    }
    must(weir_host_stream_hold(0, native_of(m.streams[s].id)) == WEIR_OK);
    m.streams[s].held = true;
}

static void step(void)
{
    const int s = some_stream();
    uint64_t ran = 0;
    if (m.streams[s].held && !m.streams[s].graph)
        must(weir_host_stream_step(0, native_of(m.streams[s].id), 1 + next_byte() % 4, &ran) == WEIR_OK);
}

/* The blocks of a stream that has ended are the default stream's in the model: nothing is queued on theirs any more. */
static void replace_stream(void)
{
    const int s = 1 + next_byte() % (STREAMS - 1);
    if (m.streams[s].graph) {
        must(weir_stream_destroy(m.streams[s].id) == WEIR_ERR_CAPTURE);
        return;
    }
    for (const graph *g = m.graphs; g < m.graphs + GRAPHS; g++)
        if (g->id.id && (g->first == s || g->second == s)) return;
    for (int i = 0; i < LEASES; i++)
        if (m.leases[i].id && m.lease_streams[i] == s) return;
    let_go(s);
    must(weir_stream_destroy(m.streams[s].id) == WEIR_OK);
    must(weir_stream_create(0, 0, &m.streams[s].id) == WEIR_OK);
    for (block *b = m.blocks; b < m.blocks + BLOCKS; b++) {
        b->recorded[s] = false;
        if (b->stream == s) b->stream = 0;
    }
}

/* ---- pools ------------------------------------------------------------------------------------------------------- */

static void make_pool(pool *p, uint8_t choice)
{
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.device = 0;
    *p = (pool){ { 0, 0 }, "", false, false };
    if (choice & 1) {
        options.memory = WEIR_MEMORY_MAPPED;
        snprintf(p->tag, sizeof p->tag, "t%u", ++m.tags);
        snprintf(options.tag, sizeof options.tag, "%s", p->tag);
    } else {
        options.deterministic = choice & 2;
        options.no_split = choice & 4;
    }
    must(weir_mempool_create(&options, &p->id) == WEIR_OK);
}

static void change_pool(void)
{
    const int at = some_pool();
    pool *p = &m.pools[at];
    const uint8_t choice = next_byte();
    if (!p->id.user) {
        make_pool(p, choice);
    } else if (!p->graphed && !p->paused) {
        must(weir_mempool_unref(p->id) == WEIR_OK);
        p->id = (weir_mempool){ 0, 0 };
        for (block *b = m.blocks; b < m.blocks + BLOCKS; b++)
            if (b->pool == 1 + at) b->pool = 0;
    }
}

static void pause_pool(void)
{
    const int at = some_pool();
    pool *p = &m.pools[at];
    const bool drop = next_byte() % 3 == 0;
    if (!p->id.user || !p->tag[0] || p->graphed) return;
    let_go_where_short(m.memory);
    weir_status status =
        p->paused ? weir_resume(0, p->tag) : weir_pause(0, p->tag, drop ? WEIR_PAUSE_DROP : WEIR_PAUSE_KEEP);
    if (p->paused) {
        must(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
        if (status == WEIR_OK) p->paused = false;
        return;
    }
    must(status == WEIR_OK || (status == WEIR_ERR_CAPTURE && any_captures()));
    if (status != WEIR_OK) return;
    p->paused = true;
    for (block *b = m.blocks; b < m.blocks + BLOCKS; b++)
        if (b->pool == 1 + at && drop) b->known = false;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

/* From here on nobody may wait for the stream's earlier work; in half of the cases there is none. */
static void prepare(int s)
{
    m.streams[s].behind = m.streams[s].held || next_byte() % 2;
    if (m.streams[s].behind) return;
    run_all();
    m.streams[s].behind = may_not_have_run();
}

static void begin_capture(void)
{
    const int at = next_byte() % GRAPHS, s = 1 + next_byte() % (STREAMS - 1), p = next_byte() % (2 * POOLS);
    graph *g = &m.graphs[at];
    if (g->id.id || m.streams[s].graph) return;
    pool *into = p < POOLS && m.pools[p].id.user && !m.pools[p].graphed && !m.pools[p].paused ? &m.pools[p] : NULL;
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    options.mode = WEIR_CAPTURE_RELAXED;
    if (into) options.pool = into->id;
    prepare(s);
    must(weir_graph_begin(m.streams[s].id, &options, &g->id) == WEIR_OK);
    *g = (graph){ .id = g->id, .capturing = true, .first = s, .second = -1, .pool = into ? 1 + p : 0 };
    m.streams[s].graph = 1 + at;
    if (into) into->graphed = true;
}

static void join(graph *g, int s)
{
    if (g->second >= 0 || m.streams[s].graph) return;
    prepare(s);
    must(weir_stream_wait(m.streams[s].id, m.streams[g->first].id) == WEIR_OK);
    m.streams[s].graph = m.streams[g->first].graph;
    g->second = s;
}

/* Memory in the graph, which both streams may write; it is freed in the capture, or stays for what comes after it. */
static void capture_block(const graph *g, int number)
{
    const bool swapped = g->second >= 0 && next_byte() % 2, kept = next_byte() % 2;
    const int s = swapped ? g->second : g->first, other = swapped ? g->first : g->second;
    const bool shared = other >= 0 && next_byte() % 2;
    const weir_stream own = m.streams[s].id, beside = shared ? m.streams[other].id : own;
    const size_t bytes = next_size();
    const int at = find_block(false);
    void *memory = NULL;
    let_go_where_short(bytes + 20 * MIB);
    weir_status status = weir_alloc_on(bytes, own, &memory);
    must(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
    if (status != WEIR_OK) return;
    check_apart(memory, bytes);
    must(weir_fill(memory, 0, bytes, own) == WEIR_OK);
    if (shared) {
        must(weir_stream_wait(beside, own) == WEIR_OK);
        must(weir_record_stream(memory, beside) == WEIR_OK);
        must(weir_fill(memory, 0, bytes, beside) == WEIR_OK);
    }
    if (!kept || at < 0) {
        must(weir_free(memory) == WEIR_OK);
        return;
    }
    if (shared) must(weir_stream_wait(own, beside) == WEIR_OK);
    m.blocks[at] = (block){ .memory = memory, .bytes = bytes, .stream = s, .pool = g->pool, .graph = number };
    if (shared) m.blocks[at].recorded[other] = true;
    write_block(&m.blocks[at], s);
}

static void leave_capture(graph *g)
{
    m.streams[g->first].graph = 0;
    if (g->second >= 0) m.streams[g->second].graph = 0;
    g->capturing = false;
}

static void end_capture(graph *g)
{
    if (g->second >= 0) must(weir_stream_wait(m.streams[g->first].id, m.streams[g->second].id) == WEIR_OK);
    must(weir_graph_end(g->id) == WEIR_OK);
    leave_capture(g);
}

/* Behind all uses of its memory on its streams, which then wait for it. */
static void launch(const graph *g, int number, int s)
{
    const bool two = g->second >= 0;
    if (m.streams[s].graph || m.streams[g->first].graph || (two && m.streams[g->second].graph)) return;
    must(weir_stream_wait(m.streams[s].id, m.streams[g->first].id) == WEIR_OK);
    if (two) must(weir_stream_wait(m.streams[s].id, m.streams[g->second].id) == WEIR_OK);
    must(weir_graph_launch(g->id, m.streams[s].id) == WEIR_OK);
    must(weir_stream_wait(m.streams[g->first].id, m.streams[s].id) == WEIR_OK);
    if (two) must(weir_stream_wait(m.streams[g->second].id, m.streams[s].id) == WEIR_OK);
    for (block *b = m.blocks; b < m.blocks + BLOCKS; b++)
        if (b->graph == number) b->known = true;
}

/* Its launches must be over. */
static void destroy(graph *g, int number)
{
    if (!g->capturing && may_not_have_run()) return;
    if (!g->capturing) run_all();
    must(weir_graph_destroy(g->id) == WEIR_OK);
    if (g->capturing) leave_capture(g);
    for (block *b = m.blocks; b < m.blocks + BLOCKS; b++)
        if (b->graph == number) b->graph = 0;
    if (g->pool) m.pools[g->pool - 1].graphed = false;
    g->id = (weir_graph){ 0 };
}

static void change_graph(void)
{
    const int at = next_byte() % GRAPHS, choice = next_byte() % 8;
    graph *g = &m.graphs[at];
    if (!g->id.id) return;
    if (choice == 0)
        destroy(g, 1 + at);
    else if (!g->capturing)
        launch(g, 1 + at, some_stream());
    else if (choice == 1)
        end_capture(g);
    else if (choice == 2)
        join(g, 1 + next_byte() % (STREAMS - 1));
    else
        capture_block(g, 1 + at);
}

/* ---- handles ----------------------------------------------------------------------------------------------------- */

/* What is captured runs at launches. */
static void work(thing *t, int s)
{
    must(t->bound == native_of(m.streams[s].id));
    if (m.streams[s].graph) return;
    t->value = m.value = value_after(m.value);
    must(weir_fill(t->own, t->value, sizeof t->own, m.streams[s].id) == WEIR_OK);
}

static void get_handle(void)
{
    const int s = some_stream();
    void *handle = NULL;
    weir_status status = weir_handle_get_on(kind, m.streams[s].id, &handle);
    must(status == WEIR_OK || (status == WEIR_ERR_CAPTURE && any_captures()));
    if (status != WEIR_OK) return;
    must(!((thing *)handle)->taken);
    work(handle, s);
}

static void borrow_handle(void)
{
    const int at = next_byte() % LEASES, s = some_stream();
    if (m.leases[at].id) {
        thing *t = weir_lease_handle(m.leases[at]);
        must(t && t->taken);
        work(t, m.lease_streams[at]);
        return;
    }
    weir_status status = weir_handle_borrow(kind, m.streams[s].id, 0, &m.leases[at]);
    must(status == WEIR_OK || (status == WEIR_ERR_CAPTURE && any_captures()));
    if (status != WEIR_OK) return;
    thing *t = weir_lease_handle(m.leases[at]);
    must(t && !t->taken);
    t->taken = true;
    m.lease_streams[at] = s;
    work(t, s);
}

static void return_handle(void)
{
    weir_lease *lease = &m.leases[next_byte() % LEASES];
    if (!lease->id) return;
    ((thing *)weir_lease_handle(*lease))->taken = false;
    must(weir_handle_return(*lease) == WEIR_OK);
    *lease = (weir_lease){ 0 };
}

static void trim_handles(void)
{
    uint64_t destroyed = 0;
    if (next_byte() % 2)
        must(weir_handles_trim(kind, 0, &destroyed) == WEIR_OK);
    else
        must(weir_handle_release(kind, 0) == WEIR_OK);
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static void (*const operations[])(void) = {
    allocate,      allocate,      allocate,      allocate,     use,          use,        release,
    release,       hold,          step,          change_pool,  pause_pool,   pause_pool, begin_capture,
    begin_capture, change_graph,  change_graph,  change_graph, change_graph, get_handle, get_handle,
    borrow_handle, borrow_handle, return_handle, trim_handles, give_back,    run_all,    replace_stream,
};

static void register_kind(void)
{
    const weir_handle_ops ops = { WEIR_HANDLE_OPS_INIT, .name = "thing", .create = thing_create,
                                  .destroy = thing_destroy, .bind = thing_bind };
    if (kind == 0) must(weir_handle_kind_register(&ops, &kind) == WEIR_OK);
}

static void start(const uint8_t *data, size_t size)
{
    weir_settings settings = WEIR_SETTINGS_INIT;
    input_begin(data, size);
    memset(&m, 0, sizeof m);
    const uint8_t choice = next_byte();
    settings.backend = "host";
    settings.policy = choice & 1 ? "torch" : "weir";
    m.memory = (choice & 2 ? 48 : 128) * MIB;
    settings.host_memory = m.memory;
    settings.debug = choice & 4 ? "poison,redzone,stacks" : choice & 8 ? "poison,streams" : NULL;
    settings.history = choice & 16 ? 64 : 0;
    must(weir_open(&settings) == WEIR_OK);
    register_kind();
    for (int s = 0; s < STREAMS; s++)
        must((s == 0 ? weir_stream_default(0, &m.streams[s].id) : weir_stream_create(0, 0, &m.streams[s].id)) ==
             WEIR_OK);
}

/* Everything can be ended and freed, and then nothing is left. */
static void finish(void)
{
    weir_memory_stats stats = { .size = sizeof stats };
    for (graph *g = m.graphs; g < m.graphs + GRAPHS; g++)
        if (g->id.id && g->capturing) end_capture(g);
    for (int i = 0; i < GRAPHS; i++)
        if (m.graphs[i].id.id) destroy(&m.graphs[i], 1 + i);
    check_contents();
    for (block *b = m.blocks; b < m.blocks + BLOCKS; b++)
        if (b->memory) must(weir_free(b->memory) == WEIR_OK);
    for (const pool *p = m.pools; p < m.pools + POOLS; p++)
        if (p->id.user) must(weir_mempool_unref(p->id) == WEIR_OK);
    must(weir_memory_limit_set(0, 0) == WEIR_OK);
    must(weir_empty_cache(0) == WEIR_OK);
    must(weir_validate(0) == WEIR_OK);
    must(weir_stats_get(0, &stats) == WEIR_OK);
    must(stats.pending_frees == 0 && stats.active_bytes[WEIR_STAT_ALL].current == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    start(data, size);
    for (int i = 1; i <= OPERATIONS && input_is_left(); i++) {
        operations[next_byte() % (sizeof operations / sizeof operations[0])]();
        if (i % 8 == 0) must(weir_validate(0) == WEIR_OK);
        if (i % 64 == 0) check_contents();
    }
    /* Half of the runs close with everything still in use. */
    if (size % 2 == 0) finish();
    for (thing *t = things; t; t = t->next) t->taken = false; /* leases end then, too */
    must(weir_close() == WEIR_OK);
    for (thing *t = things, *next; t; t = next) {
        must(t->gone);
        next = t->next;
        free(t);
    }
    things = NULL;
    return 0;
}
