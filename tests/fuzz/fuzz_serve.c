/*
 * Bytes become a plan, right or wrong, perhaps one that lends places of one stream to another, and a program. The
 * program follows the plan, leaves requests out, adds others, begins again, frees in any order, lets other streams use
 * blocks, captures graphs and has a pool of its own. It is compared with a model: no two live or pending blocks share
 * an address, and each keeps its contents. Between operations the structures are checked.
 */
#include "device/plan.h"
#include "device/runtime.h"
#include "fuzz/fuzz_support.h"
#include "weir/host.h"
#include "weir/plan.h"

#include <string.h>

#define ENTRIES 96
#define ARENAS 2 /* arenas of the default pool; there are as many private ones with the same entries */
#define STREAMS 3
#define BLOCKS 96
#define OPERATIONS 300

typedef struct block {
    unsigned char *memory; /* NULL: none here */
    size_t bytes;
    weir_stream stream; /* the stream that asked for it */
    uint64_t mark;
    bool freed; /* freed, but another stream, which is held, may still use it */
} block;

static struct {
    bool failing; /* a failure of the driver is scripted */
    bool limited;
    weir_plan_entry entries[ENTRIES];
    weir_plan_arena arenas[2 * ARENAS];
    weir_plan plan;
    wr_arena_user users[ARENAS];
    bool lends;             /* the plan is for these users */
    uint64_t next[STREAMS]; /* where the program is in the plan of each stream */
    weir_stream streams[STREAMS];
    bool held[STREAMS];
    weir_graph graph; /* 0: none */
    bool capturing;   /* on streams[1] */
    weir_mempool pool;
    uint64_t next_in_pool;
    block blocks[BLOCKS];
    uint64_t last_mark;
} m;

static size_t next_size(void)
{
    static const size_t sizes[] = { 512,         512,     1024,    4096,    20 * KIB, 200 * KIB, 512 * KIB, MIB,
                                    3 * MIB / 2, 2 * MIB, 3 * MIB, 5 * MIB, 8 * MIB,  10 * MIB,  16 * MIB,  18 * MIB };
    return sizes[next_byte() % (sizeof sizes / sizeof sizes[0])];
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

/* Places lie one after another, or anywhere: plans may be wrong. */
static void make_plan(void)
{
    const bool wrong = next_byte() % 4 == 0;
    const uint64_t each = 1 + next_byte() % (ENTRIES / ARENAS);
    m.plan = (weir_plan){ .arena_count = 2 * ARENAS, .arenas = m.arenas, .entries = m.entries };
    for (int i = 0; i < ARENAS; i++) {
        weir_plan_arena *a = &m.arenas[i];
        *a = (weir_plan_arena){ .streams = 1, .first = m.plan.entry_count, .entries = each };
        for (uint64_t k = 0; k < each; k++) {
            weir_plan_entry *e = &m.entries[m.plan.entry_count++];
            *e = (weir_plan_entry){ .bytes = next_size() };
            e->offset = wrong || next_byte() % 8 == 0 ? next_byte() * 256 * KIB : a->bytes;
            if (e->offset + e->bytes > a->bytes) a->bytes = e->offset + e->bytes;
        }
        if (next_byte() % 2 == 0) continue;
        a->residents = next_byte() % (each + 1);
        if (a->residents == each || next_byte() % 2 == 0) continue;
        a->loop_first = a->residents + next_byte() % (each - a->residents);
        a->loop_entries = 1 + next_byte() % (each - a->loop_first);
        a->loop_times = 2;
    }
    for (int i = 0; i < ARENAS; i++) {
        m.arenas[ARENAS + i] = m.arenas[ARENAS - 1 - i];
        m.arenas[ARENAS + i].pool = 1 + (uint32_t)i;
    }
}

/* The last arena's stream is a guest of the first one's: some of its blocks lie there. */
static void make_guest(void)
{
    weir_plan_arena *host = &m.arenas[0], *guest = &m.arenas[ARENAS - 1];
    for (int i = 0; i < ARENAS; i++) {
        void *native = NULL;
        must(weir_stream_native(m.streams[i], &native) == WEIR_OK);
        m.users[i] = (wr_arena_user){ (uint64_t)(uintptr_t)native, m.arenas[i].bytes, WR_ARENA_ALONE };
    }
    m.users[ARENAS - 1].host = 0;
    for (uint64_t k = 0; k < guest->entries; k++) {
        weir_plan_entry *e = &m.entries[guest->first + k];
        const uint64_t at = next_byte() * 256 * KIB;
        if (next_byte() % 2 == 0 && at + e->bytes <= host->bytes) e->offset = m.users[ARENAS - 1].own + at;
    }
    guest->bytes += host->bytes;
}

static void serve(void)
{
    wr_device *device = NULL;
    if (next_byte() % 2 == 0) {
        make_plan();
        m.lends = next_byte() % 2 == 0;
        if (m.lends) make_guest();
    }
    must(wr_runtime_device(0, &device) == WEIR_OK);
    must(wr_device_serve(device, &m.plan, m.lends ? m.users : NULL) == WEIR_OK);
}

static void serve_none(void)
{
    must(weir_plan_serve(0, NULL) == WEIR_OK);
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

static bool overlap(const block *a, const block *b)
{
    return a->memory < b->memory + b->bytes && b->memory < a->memory + a->bytes;
}

static void write_mark(const block *b)
{
    memcpy(b->memory, &b->mark, sizeof b->mark);
    memcpy(b->memory + b->bytes - sizeof b->mark, &b->mark, sizeof b->mark);
}

static void check_mark(const block *b)
{
    must(memcmp(b->memory, &b->mark, sizeof b->mark) == 0);
    must(memcmp(b->memory + b->bytes - sizeof b->mark, &b->mark, sizeof b->mark) == 0);
}

static bool take(size_t bytes, weir_stream stream, bool in_pool)
{
    block *b = m.blocks;
    void *memory = NULL;
    while (b < m.blocks + BLOCKS && b->memory) b++;
    if (b == m.blocks + BLOCKS) return false;
    if ((in_pool ? weir_alloc_from(m.pool, bytes, stream, &memory) : weir_alloc_on(bytes, stream, &memory)) != WEIR_OK)
        return false;
    *b = (block){ memory, bytes, stream, ++m.last_mark, false };
    for (const block *other = m.blocks; other < m.blocks + BLOCKS; other++)
        must(other == b || !other->memory || !overlap(b, other));
    write_mark(b);
    return true;
}

static void give(block *b)
{
    if (!b->memory || b->freed) return;
    check_mark(b);
    must(weir_free(b->memory) == WEIR_OK);
    b->memory = NULL;
}

/* ---- what the program does --------------------------------------------------------------------------------------- */

/* Makes some of the plan's next allocations on a stream, while there is memory. */
static void follow(void)
{
    const unsigned stream = next_byte() % STREAMS;
    const weir_plan_arena *a = &m.arenas[stream % ARENAS];
    for (unsigned count = 1 + next_byte() % 32; count > 0; count--) {
        const weir_plan_entry *e = &m.entries[a->first + weir_plan_entry_of(a, m.next[stream]) % a->entries];
        m.next[stream]++;
        if (!take(e->bytes, m.streams[stream], false)) return;
    }
}

static void follow_in_pool(void)
{
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    const weir_plan_arena *a = &m.arenas[0];
    options.device = 0;
    options.memory = next_byte() % 2 ? WEIR_MEMORY_MAPPED : WEIR_MEMORY_DEVICE;
    if (!m.pool.user) must(weir_mempool_create(&options, &m.pool) == WEIR_OK);
    for (unsigned count = 1 + next_byte() % 32; count > 0; count--) {
        const weir_plan_entry *e = &m.entries[a->first + weir_plan_entry_of(a, m.next_in_pool) % a->entries];
        m.next_in_pool++;
        if (!take(e->bytes, m.streams[0], true)) return;
    }
}

static void let_go_of_pool(void)
{
    if (m.pool.user) must(weir_mempool_unref(m.pool) == WEIR_OK);
    m.pool = (weir_mempool){ 0, 0 };
    m.next_in_pool = 0;
}

static void begin_capture(void)
{
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    options.mode = WEIR_CAPTURE_RELAXED;
    if (m.graph.id) return;
    m.capturing = weir_graph_begin(m.streams[1], &options, &m.graph) == WEIR_OK;
    must(m.capturing || m.failing);
    m.next[1] = 0;
}

static void end_capture(void)
{
    if (m.capturing) must(weir_graph_end(m.graph) == WEIR_OK || m.failing);
    m.capturing = false;
}

static void destroy_graph(void)
{
    end_capture();
    if (m.graph.id) must(weir_graph_destroy(m.graph) == WEIR_OK || m.failing);
    m.graph.id = 0;
}

static void jump(void)
{
    m.next[next_byte() % STREAMS] = next_byte();
}

static void take_other(void)
{
    (void)take(next_size() + next_byte() % 2 * 512, m.streams[next_byte() % STREAMS], false);
}

static void give_one(void)
{
    give(&m.blocks[next_byte() % BLOCKS]);
}

static void give_many(void)
{
    const unsigned every = 1 + next_byte() % 4;
    for (unsigned i = 0; i < BLOCKS; i += every) give(&m.blocks[i]);
}

/* A block freed while another stream, which is held, uses it has no owner until that stream runs. A lent block is free
 * at once, because the stream that lent it waits on the device. */
static void give_later(void)
{
    block *b = &m.blocks[next_byte() % BLOCKS];
    if (!b->memory || b->freed || !m.held[STREAMS - 1] || m.failing) return;
    must(weir_record_stream(b->memory, m.streams[STREAMS - 1]) == WEIR_OK);
    weir_pointer_info info = { .size = sizeof info };
    must(weir_pointer_info_get(b->memory, &info) == WEIR_OK);
    const bool own = info.stream.id == m.streams[STREAMS - 1].id || info.stream.id != b->stream.id;
    must(weir_free(b->memory) == WEIR_OK);
    b->freed = true;
    if (own) b->memory = NULL;
}

static void hold(void)
{
    void *native = NULL;
    if (m.held[STREAMS - 1] || m.limited) return; /* short of memory, pending frees are waited for */
    must(weir_stream_native(m.streams[STREAMS - 1], &native) == WEIR_OK);
    must(weir_host_stream_hold(0, native) == WEIR_OK);
    m.held[STREAMS - 1] = true;
}

static void let_run(void)
{
    void *native = NULL;
    if (!m.held[STREAMS - 1]) return;
    must(weir_stream_native(m.streams[STREAMS - 1], &native) == WEIR_OK);
    must(weir_host_stream_release(0, native) == WEIR_OK);
    m.held[STREAMS - 1] = false;
    for (block *b = m.blocks; b < m.blocks + BLOCKS; b++)
        if (b->freed) *b = (block){ 0 };
}

static void empty_cache(void)
{
    let_run(); /* it waits for pending frees */
    must(weir_empty_cache(0) == WEIR_OK || m.failing);
}

static void set_limit(void)
{
    static const size_t limits[] = { 0, 16 * MIB, 64 * MIB, 200 * MIB };
    const size_t limit = limits[next_byte() % 4];
    let_run();
    m.limited = limit != 0;
    must(weir_memory_limit_set(0, limit) == WEIR_OK);
}

static void fail_driver(void)
{
    static const enum weir_backend_entry entries[] = { WEIR_BACKEND_vm_create, WEIR_BACKEND_vm_map,
                                                       WEIR_BACKEND_vm_reserve, WEIR_BACKEND_vm_access,
                                                       WEIR_BACKEND_segment_alloc };
    must(weir_host_fail(entries[next_byte() % 5], 1 + next_byte() % 3, WEIR_ERR_DRIVER) == WEIR_OK);
    m.failing = true;
}

static void end_stream(void)
{
    let_run();
    end_capture();
    for (block *b = m.blocks; b < m.blocks + BLOCKS; b++)
        if (b->memory) check_mark(b);
    if (weir_stream_destroy(m.streams[1]) != WEIR_OK) return;
    must(weir_stream_create(0, 0, &m.streams[1]) == WEIR_OK);
    m.next[1] = 0;
}

static void (*const operations[])(void) = { follow,         follow,         follow,        follow,      jump,
                                            take_other,     take_other,     give_one,      give_one,    give_many,
                                            give_many,      give_later,     hold,          let_run,     serve,
                                            serve_none,     empty_cache,    set_limit,     fail_driver, end_stream,
                                            follow_in_pool, let_go_of_pool, begin_capture, end_capture, destroy_graph };

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static void start(const uint8_t *data, size_t size)
{
    memset(&m, 0, sizeof m);
    input_begin(data, size);
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "host";
    settings.host_memory = 2048 * MIB;
    must(weir_open(&settings) == WEIR_OK);
    must(weir_stream_default(0, &m.streams[0]) == WEIR_OK);
    for (int i = 1; i < STREAMS; i++) must(weir_stream_create(0, 0, &m.streams[i]) == WEIR_OK);
    make_plan();
    must(weir_plan_serve(0, &m.plan) == WEIR_OK);
}

static void finish(void)
{
    weir_memory_stats stats = { .size = sizeof stats };
    must(weir_host_fail_clear() == WEIR_OK);
    let_run();
    destroy_graph();
    let_go_of_pool();
    for (block *b = m.blocks; b < m.blocks + BLOCKS; b++) give(b);
    must(weir_empty_cache(0) == WEIR_OK);
    must(weir_validate(0) == WEIR_OK);
    must(weir_stats_get(0, &stats) == WEIR_OK);
    must(stats.reserved_bytes[WEIR_STAT_ALL].current == 0 && stats.pending_frees == 0);
    must(weir_close() == WEIR_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    start(data, size);
    for (int i = 0; i < OPERATIONS && input_is_left(); i++) {
        operations[next_byte() % (sizeof operations / sizeof operations[0])]();
        if (i % 32 == 31) must(weir_validate(0) == WEIR_OK);
    }
    finish();
    return 0;
}
