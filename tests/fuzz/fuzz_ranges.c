/*
 * Bytes become a sequence of operations on pools of all kinds of memory on a small host device: pools that are told
 * when memory comes and goes, paused and resumed, put back to checkpoints, exported and imported, beside pinned memory
 * and limits. It is compared with a model of who has which bytes, and which ranges each pool has been told of. Between
 * operations the structures are checked.
 */
#include "fuzz/fuzz_support.h"
#include "weir/host.h"

#include <string.h>
#include <unistd.h>

enum { STREAMS = 3, BLOCKS = 40, POOLS = 5, RANGES = 64, CHECKPOINTS = 3, IMPORTS = 4, PARTS = 64, OPERATIONS = 800 };

typedef struct range {
    char *base; /* NULL: none here */
    size_t bytes;
} range;

typedef struct pool {
    weir_mempool id; /* {0, 0}: none here */
    weir_memory_kind memory;
    char tag[4]; /* empty: cannot be paused */
    bool lends, told, paused;
    range ranges[RANGES]; /* of which it was told that they came, and not that they go */
} pool;

typedef struct block {
    unsigned char *memory; /* NULL: none here */
    size_t bytes;
    unsigned char value;
    bool known, pinned; /* known: that is what it has, once all work has run */
    int pool;           /* 1 + its number; 0: none of these */
} block;

typedef struct checkpoint {
    weir_checkpoint *taken; /* NULL: none here */
    int pool;
    block blocks[BLOCKS]; /* of the pool, then */
} checkpoint;

typedef struct import {
    char *base, *at; /* NULL: none here; where the block is */
    int block;       /* -1: it has gone, or may have */
} import;

static struct {
    weir_stream streams[STREAMS];
    pool pools[POOLS];
    block blocks[BLOCKS];
    checkpoint checkpoints[CHECKPOINTS];
import imports[IMPORTS];
    unsigned char value;
} m;

/* ---- the model --------------------------------------------------------------------------------------------------- */

static bool range_changed(void *user, weir_range_change change, void *base, size_t bytes, int device)
{
    pool *p = user;
    range *at = NULL;
    must(device == 0);
    for (range *r = p->ranges; r < p->ranges + RANGES; r++) {
        if (change == WEIR_RANGE_LEAVING && r->base == base) at = r;
        if (change == WEIR_RANGE_ADDED && !r->base && !at) at = r;
        if (change == WEIR_RANGE_ADDED && r->base) must(are_apart(base, bytes, r->base, r->bytes));
    }
    if (change == WEIR_RANGE_ADDED && !at) return false;
    must(at);
    *at = change == WEIR_RANGE_ADDED ? (range){ base, bytes } : (range){ NULL, 0 };
    return true;
}

static bool has_ranges(const pool *p)
{
    for (const range *r = p->ranges; r < p->ranges + RANGES; r++)
        if (r->base) return true;
    return false;
}

static bool is_usable(const block *b)
{
    return b->pool == 0 || !m.pools[b->pool - 1].paused;
}

static size_t next_size(void)
{
    const size_t fine = next_number(65536);
    switch (next_byte() % 4) {
    case 0: return 1 + fine % 3000;
    case 1: return 1 + fine * 16;
    case 2: return (size_t)512 << fine % 12;
    default: return (1 + fine % 6) * MIB;
    }
}

static weir_stream some_stream(void)
{
    return m.streams[next_byte() % STREAMS];
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

static void run_all(void)
{
    must(weir_device_synchronize(0) == WEIR_OK);
}

static void check_block(const block *b)
{
    if (b->memory && b->known && is_usable(b)) must(is_filled(b->memory, b->bytes, b->value));
}

/* What an import shows is the block's memory. */
static void check_all(void)
{
    run_all();
    for (const block *b = m.blocks; b < m.blocks + BLOCKS; b++) check_block(b);
    for (const import *i = m.imports; i < m.imports + IMPORTS; i++) {
        if (!i->base || i->block < 0) continue;
        const block *b = &m.blocks[i->block];
        if (b->known && is_usable(b)) must((unsigned char)*i->at == b->value && !memcmp(i->at, b->memory, b->bytes));
    }
}

static void check_apart(const block *fresh)
{
    for (const block *b = m.blocks; b < m.blocks + BLOCKS; b++)
        must(b == fresh || !b->memory || are_apart(b->memory, b->bytes, fresh->memory, fresh->bytes));
}

static void forget_imports_of(int at)
{
    for (import *i = m.imports; i < m.imports + IMPORTS; i++)
        if (i->block == at) i->block = -1;
}

/* Through a stream that nothing else uses it on. */
static void write_block(block *b, weir_stream stream)
{
    b->value = m.value = value_after(m.value);
    b->known = true;
    if (b->pinned)
        memset(b->memory, b->value, b->bytes);
    else
        must(weir_fill(b->memory, b->value, b->bytes, stream) == WEIR_OK);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* A pool that lends may have served it. */
static int pool_of(const void *memory)
{
    weir_pointer_info info = { .size = sizeof info };
    must(weir_pointer_info_get(memory, &info) == WEIR_OK);
    for (int i = 0; i < POOLS; i++)
        if (m.pools[i].id.user && m.pools[i].id.user == info.pool.user) return 1 + i;
    must(info.pool.user == 0);
    return 0;
}

static void allocate(void)
{
    const int at = find_block(false), p = next_byte() % (2 * POOLS);
    const size_t bytes = next_size();
    const weir_stream stream = some_stream();
    const pool *from = p < POOLS && m.pools[p].id.user ? &m.pools[p] : NULL;
    void *memory = NULL;
    if (at < 0) return;
    weir_status status =
        from ? weir_alloc_from(from->id, bytes, stream, &memory) : weir_alloc_on(bytes, stream, &memory);
    if (from && from->paused) {
        must(status == WEIR_ERR_BUSY);
        return;
    }
    /* BUSY: a pool's range_changed had no room */
    must(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY || (status == WEIR_ERR_BUSY && from && from->told));
    if (status != WEIR_OK) return;
    block *b = &m.blocks[at];
    *b = (block){ .memory = memory, .bytes = bytes, .pool = pool_of(memory) };
    must(b->pool == (from ? 1 + p : 0) || m.pools[b->pool - 1].lends);
    check_apart(b);
    write_block(b, stream);
}

static void allocate_pinned(void)
{
    const int at = find_block(false);
    const size_t bytes = next_size();
    void *memory = NULL;
    if (at < 0) return;
    const weir_status status = weir_pinned_alloc(bytes, WEIR_NUMA_ANY, &memory);
    must(status == WEIR_OK || status == WEIR_ERR_OUT_OF_HOST_MEMORY);
    if (status != WEIR_OK) return;
    m.blocks[at] = (block){ .memory = memory, .bytes = bytes, .pinned = true };
    check_apart(&m.blocks[at]);
    write_block(&m.blocks[at], (weir_stream){ 0 });
}

static void release_block(int at)
{
    block *b = &m.blocks[at];
    must((b->pinned ? weir_pinned_free(b->memory) : weir_free(b->memory)) == WEIR_OK);
    b->memory = NULL;
    forget_imports_of(at);
}

static void release(void)
{
    const int at = find_block(true);
    if (at >= 0) release_block(at);
}

static void record(void)
{
    const int at = find_block(true);
    const weir_stream stream = some_stream();
    if (at < 0) return;
    const block *b = &m.blocks[at];
    must((b->pinned ? weir_pinned_record(b->memory, stream) : weir_record_stream(b->memory, stream)) == WEIR_OK);
}

/* ---- pools ------------------------------------------------------------------------------------------------------- */

static void make_pool(pool *p)
{
    static const weir_memory_kind kinds[] = { WEIR_MEMORY_MAPPED, WEIR_MEMORY_EXPORTABLE, WEIR_MEMORY_DEVICE,
                                              WEIR_MEMORY_MANAGED };
    const uint8_t choice = next_byte();
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    if (has_ranges(p)) return; /* memory of the one before is still there */
    *p = (pool){ .memory = kinds[choice % 4], .told = choice & 4 };
    const bool maps = p->memory == WEIR_MEMORY_MAPPED || p->memory == WEIR_MEMORY_EXPORTABLE;
    options.device = 0;
    options.memory = p->memory;
    options.range_changed = p->told ? range_changed : NULL;
    options.range_user = p;
    options.cap = choice & 8 ? 12 * MIB : 0;
    options.no_split = (choice & 48) == 16;
    options.deterministic = (choice & 48) == 32;
    p->lends = options.use_on_oom = (choice & 48) == 48 && p->memory != WEIR_MEMORY_MANAGED;
    if (maps && !p->lends) p->tag[0] = choice & 64 ? 'a' : 'b';
    snprintf(options.tag, sizeof options.tag, "%s", p->tag);
    must(weir_mempool_create(&options, &p->id) == WEIR_OK);
}

static void forget_checkpoint(checkpoint *c)
{
    weir_checkpoint_destroy(c->taken);
    c->taken = NULL;
}

static void end_pool(int at)
{
    must(weir_mempool_unref(m.pools[at].id) == WEIR_OK);
    m.pools[at].id = (weir_mempool){ 0, 0 };
    for (checkpoint *c = m.checkpoints; c < m.checkpoints + CHECKPOINTS; c++)
        if (c->pool == at) forget_checkpoint(c);
}

/* A pool whose blocks are in use, or that is paused, stays: no other takes its place in the model. */
static void change_pool(void)
{
    const int at = next_byte() % POOLS;
    if (!m.pools[at].id.user) {
        make_pool(&m.pools[at]);
        return;
    }
    for (const block *b = m.blocks; b < m.blocks + BLOCKS; b++)
        if (b->memory && b->pool == 1 + at) return;
    if (!m.pools[at].paused) end_pool(at);
}

/* "" names all that can be paused. */
static const char *some_tag(void)
{
    static const char *const tags[] = { "a", "b", "" };
    return tags[next_byte() % 3];
}

static bool is_named(const pool *p, const char *tag)
{
    return p->id.user && p->tag[0] && (!tag[0] || p->tag[0] == tag[0]);
}

static bool any_named(const char *tag)
{
    for (const pool *p = m.pools; p < m.pools + POOLS; p++)
        if (is_named(p, tag)) return true;
    return false;
}

static void pause_some(void)
{
    const char *tag = some_tag();
    const bool drop = next_byte() % 3 == 0;
    const weir_status status = weir_pause(0, tag[0] ? tag : NULL, drop ? WEIR_PAUSE_DROP : WEIR_PAUSE_KEEP);
    must(status == (any_named(tag) || !tag[0] ? WEIR_OK : WEIR_ERR_INVALID_ARGUMENT));
    for (int at = 0; at < POOLS; at++) {
        pool *p = &m.pools[at];
        if (!is_named(p, tag) || p->paused) continue;
        p->paused = true;
        must(!has_ranges(p));
        for (int i = 0; i < BLOCKS; i++) {
            if (!m.blocks[i].memory || m.blocks[i].pool != 1 + at) continue;
            if (drop) m.blocks[i].known = false;
            forget_imports_of(i);
        }
    }
}

static weir_status resume(const char *tag)
{
    const weir_status status = weir_resume(0, tag[0] ? tag : NULL);
    for (pool *p = m.pools; status == WEIR_OK && p < m.pools + POOLS; p++)
        if (is_named(p, tag)) p->paused = false;
    return status;
}

static void resume_some(void)
{
    const char *tag = some_tag();
    const weir_status status = resume(tag);
    must(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY || status == WEIR_ERR_BUSY ||
         (status == WEIR_ERR_INVALID_ARGUMENT && !any_named(tag) && tag[0]));
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

static void take_checkpoint(void)
{
    checkpoint *c = &m.checkpoints[next_byte() % CHECKPOINTS];
    const int at = next_byte() % POOLS;
    const pool *p = &m.pools[at];
    if (!p->id.user) return;
    if (c->taken) forget_checkpoint(c);
    const weir_status status = weir_mempool_checkpoint(p->id, &c->taken);
    must(status == (p->paused ? WEIR_ERR_BUSY : p->lends ? WEIR_ERR_INVALID_ARGUMENT : WEIR_OK));
    c->pool = at;
    for (int i = 0; i < BLOCKS; i++)
        c->blocks[i] = m.blocks[i].pool == 1 + at ? m.blocks[i] : (block){ .memory = NULL };
}

static void put_back(const checkpoint *c)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (!m.blocks[i].memory || m.blocks[i].pool != 1 + c->pool) continue;
        m.blocks[i].memory = NULL;
        forget_imports_of(i);
    }
    for (const block *b = c->blocks; b < c->blocks + BLOCKS; b++) {
        if (!b->memory) continue;
        const int at = find_block(false);
        must(at >= 0);
        m.blocks[at] = *b;
        check_apart(&m.blocks[at]);
        write_block(&m.blocks[at], m.streams[0]); /* all work was waited for */
    }
}

static void restore(void)
{
    const checkpoint *c = &m.checkpoints[next_byte() % CHECKPOINTS];
    int room = 0;
    if (!c->taken) return;
    for (int i = 0; i < BLOCKS; i++)
        room += (!m.blocks[i].memory || m.blocks[i].pool == 1 + c->pool) - (c->blocks[i].memory != NULL);
    if (room < 0) return;
    run_all();
    const weir_status status = weir_mempool_restore(m.pools[c->pool].id, c->taken, NULL, NULL, NULL);
    if (m.pools[c->pool].paused) must(status == WEIR_ERR_BUSY);
    must(status == WEIR_OK || status == WEIR_ERR_BUSY || status == WEIR_ERR_POOL_MISMATCH);
    if (status == WEIR_OK) put_back(c);
}

/* ---- sharing ----------------------------------------------------------------------------------------------------- */

static void share(void)
{
    import *to = &m.imports[next_byte() % IMPORTS];
    const int at = find_block(true);
    weir_export_part parts[PARTS];
    size_t count = 0;
    uint64_t offset = 0;
    void *base = NULL;
    if (to->base || at < 0 || m.blocks[at].pinned) return;
    const block *b = &m.blocks[at];
    const bool can = b->pool && m.pools[b->pool - 1].memory == WEIR_MEMORY_EXPORTABLE;
    weir_status status = weir_export(b->memory, parts, PARTS, &count, &offset);
    must(status == WEIR_OK || (status == WEIR_ERR_BUSY && !is_usable(b)) || (status == WEIR_ERR_NOT_SUPPORTED && !can));
    if (status != WEIR_OK) return;
    status = weir_import(0, parts, count, &base);
    for (size_t i = 0; i < count; i++) close(parts[i].descriptor);
    must(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
    if (status == WEIR_OK) *to = (import){ .base = base, .at = (char *)base + offset, .block = at };
}

static void end_import(import *i)
{
    if (i->base) must(weir_import_close(i->base) == WEIR_OK);
    *i = (import){ .base = NULL, .block = -1 };
}

static void unshare(void)
{
    end_import(&m.imports[next_byte() % IMPORTS]);
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static void set_limit(void)
{
    const size_t bytes = (next_byte() % 6) * 16 * MIB;
    must((next_byte() % 2 ? weir_memory_limit_set(0, bytes) : weir_pinned_limit_set(bytes)) == WEIR_OK);
}

static void give_back(void)
{
    const pool *p = &m.pools[next_byte() % POOLS];
    switch (next_byte() % 3) {
    case 0: must(weir_empty_cache(0) == WEIR_OK); break;
    case 1: must(weir_pinned_trim(next_byte() * MIB) == WEIR_OK); break;
    default:
        if (p->id.user) must(weir_mempool_empty_cache(p->id) == (p->paused ? WEIR_ERR_BUSY : WEIR_OK));
    }
}

static void (*const operations[])(void) = {
    allocate, allocate, allocate,    allocate,    allocate,   allocate_pinned, release,     release,
    release,  record,   change_pool, change_pool, pause_some, resume_some,     resume_some, take_checkpoint,
    restore,  share,    share,       unshare,     set_limit,  give_back,       check_all,
};

static void start(const uint8_t *data, size_t size)
{
    static const char *const policies[] = { "weir", "segments", "torch", "weir" };
    weir_settings settings = WEIR_SETTINGS_INIT;
    input_begin(data, size);
    memset(&m, 0, sizeof m);
    for (import *i = m.imports; i < m.imports + IMPORTS; i++) i->block = -1;
    const uint8_t choice = next_byte();
    settings.backend = "host";
    settings.policy = policies[choice % 4];
    settings.host_memory = (choice & 4 ? 64 : 256) * MIB;
    settings.debug = choice & 8 ? "redzone,poison" : NULL;
    must(weir_open(&settings) == WEIR_OK);
    for (int i = 0; i < STREAMS; i++)
        must((i == 0 ? weir_stream_default(0, &m.streams[i]) : weir_stream_create(0, 0, &m.streams[i])) == WEIR_OK);
}

/* Everything comes back and can be freed, and then nothing is left, and every range has been told to leave. */
static void finish(void)
{
    weir_memory_stats stats = { .size = sizeof stats };
    must(weir_memory_limit_set(0, 0) == WEIR_OK);
    for (import *i = m.imports; i < m.imports + IMPORTS; i++) end_import(i);
    check_all();
    for (int i = 0; i < BLOCKS; i++)
        if (m.blocks[i].memory) release_block(i);
    for (int i = 0; i < POOLS; i++)
        if (m.pools[i].id.user) end_pool(i);
    run_all();
    must(weir_empty_cache(0) == WEIR_OK);
    must(weir_validate(0) == WEIR_OK);
    must(weir_stats_get(0, &stats) == WEIR_OK);
    must(stats.reserved_bytes[WEIR_STAT_ALL].current == 0 && stats.pending_frees == 0 && stats.paused_bytes == 0);
    for (const pool *p = m.pools; p < m.pools + POOLS; p++) must(!has_ranges(p));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    start(data, size);
    for (int i = 1; i <= OPERATIONS && input_is_left(); i++) {
        operations[next_byte() % (sizeof operations / sizeof operations[0])]();
        if (i % 8 == 0) must(weir_validate(0) == WEIR_OK);
    }
    /* Half of the runs close with everything still in use. */
    if (size % 2 == 0) finish();
    must(weir_close() == WEIR_OK);
    for (const pool *p = m.pools; p < m.pools + POOLS; p++) must(!has_ranges(p));
    for (checkpoint *c = m.checkpoints; c < m.checkpoints + CHECKPOINTS; c++) forget_checkpoint(c);
    return 0;
}
