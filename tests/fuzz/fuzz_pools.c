/*
 * Bytes become a sequence of operations on private pools of every kind on two small host devices: blocks that several
 * streams use, pools that are paused, put back to checkpoints, emptied, released with blocks alive and opened again,
 * streams that end, limits, and a driver that fails in the midst of a call. It is compared with a model (pools_model.h)
 * of what each call has to return, what memory has once all work has run, and what the statistics say. Between
 * operations the structures are checked.
 */
#include "fuzz/pools_model.h"

/* ---- input ------------------------------------------------------------------------------------------------------- */

/* Mostly the last one again, since what goes wrong takes several operations on one pool. */
static int some(int count, int *last)
{
    const uint8_t choice = next_byte();
    if (choice % 4 == 0) *last = choice / 4 % count;
    return *last;
}

static int some_stream(void)
{
    return some(STREAMS, &m.last_stream);
}

/* Of an id that was ever a pool's. NULL: there was none here. */
static pool *some_pool(void)
{
    pool *p = &m.pools[some(POOLS, &m.last_pool)];
    return p->id.user ? p : NULL;
}

static checkpoint *some_checkpoint(void)
{
    return &m.checkpoints[some(CHECKPOINTS, &m.last_checkpoint)];
}

static size_t next_size(void)
{
    const size_t fine = next_number(65536);
    switch (next_byte() % 6) {
    case 0: return 512 * (1 + fine % 8);
    case 1: return 1 + fine % 3000;
    case 2: return 1 + fine * 4;
    case 3: return (1 + fine % 40) * 64 * KIB;
    case 4: return (1 + fine % 3) * MIB;
    default: return (fine % 4 ? 4 + fine % 3 : 8 + fine % 24) * MIB + fine % 5;
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Changes whenever memory is given back or goes to another stream. */
static uint64_t moves_on(int device)
{
    const weir_memory_stats stats = stats_of(device);
    return stats.driver_frees + stats.rehomed + m.ended_streams[device];
}

/* Whether it must be possible to have that much more. */
static bool has_room(int device, uint64_t bytes)
{
    weir_device_memory memory = { .size = sizeof memory };
    must(weir_device_memory_get(device, &memory) == WEIR_OK);
    return m.limit[device] == 0 && !m.failing && memory.free_bytes >= bytes;
}

/* What a call that needs an open pool has to return. */
static weir_status state_of(const pool *p)
{
    if (!p->there || p->references == 0) return WEIR_ERR_POOL_MISMATCH;
    return p->paused ? WEIR_ERR_BUSY : WEIR_OK;
}

static weir_status state_for(const pool *p, int stream)
{
    if (p->there && p->rules.device != device_of(stream)) return WEIR_ERR_WRONG_DEVICE;
    return state_of(p);
}

/* It lies in the pool that was named, as that one's rules say, or another pool lent it; and where nothing else is. */
static void check_place(const block *b, const pool *named, const weir_pointer_info *info)
{
    const pool *p = b->pool ? &m.pools[b->pool - 1] : NULL;
    must(p == named || (p && p->rules.use_on_oom && p->references > 0 && p->rules.device == device_of(b->stream)));
    must((uintptr_t)b->memory % (named && named->rules.alignment > 512 ? named->rules.alignment : 512) == 0);
    must(!p || !p->rules.no_split || info->segment == b->memory);
    for (const block *o = m.blocks; o < m.blocks + BLOCKS; o++)
        must(o == b || !o->memory || are_apart(o->memory, o->taken, b->memory, b->taken));
}

/* Mostly one of the pool's device. */
static int some_stream_for(const pool *p)
{
    const int stream = some_stream();
    return p && next_byte() % 8 ? stream / DEVICES * DEVICES + p->rules.device : stream;
}

static void allocate(void)
{
    block *b = find_block(false);
    const pool *from = next_byte() % 4 ? some_pool() : NULL;
    const int stream = some_stream_for(from);
    const size_t bytes = next_size();
    void *memory = NULL;
    if (!b) return;
    const weir_status expected = from ? state_for(from, stream) : WEIR_OK;
    const weir_status status = result_of(from ? weir_alloc_from(from->id, bytes, m.streams[stream], &memory)
                                              : weir_alloc_on(bytes, m.streams[stream], &memory));
    if (status != WEIR_OK || expected != WEIR_OK) {
        const bool full = (from && from->rules.cap) || !has_room(device_of(stream), bytes + 24 * MIB);
        must(status == expected || excused(status) || (status == WEIR_ERR_OUT_OF_MEMORY && full && !expected));
        must(!memory);
        return;
    }
    weir_pointer_info info = { .size = sizeof info };
    must(weir_pointer_info_get(memory, &info) == WEIR_OK);
    *b = (block){ .memory = memory, .bytes = bytes, .taken = info.bytes, .stream = stream, .pool = pool_of(info.pool) };
    check_place(b, from, &info);
    write_block(b, stream);
}

static void free_block(block *b)
{
    must(result_of(weir_free(b->memory)) == WEIR_OK);
    b->memory = NULL;
}

static void release(void)
{
    block *b = find_block(true);
    if (b) free_block(b);
}

/* Another stream, of either device, writes it behind all others that do. */
static void use(void)
{
    block *b = find_block(true);
    const int stream = some_stream();
    if (!b || !is_usable(b)) return;
    write_block(b, stream);
    if (stream == b->stream) return;
    must(result_of(weir_record_stream(b->memory + next_number(b->bytes), m.streams[stream])) == WEIR_OK);
    b->recorded[stream] = b->shared = true;
}

/* ---- pools ------------------------------------------------------------------------------------------------------- */

static weir_mempool_options next_options(void)
{
    static const char *const tags[] = { "", "a", "b", "a" };
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    const uint8_t kind = next_byte(), rules = next_byte();
    options.device = kind / 8 % DEVICES;
    options.memory = (weir_memory_kind)(kind % 8 < 5 ? kind % 8 : WEIR_MEMORY_MAPPED);
    options.deterministic = (rules & 3) == 1;
    options.use_on_oom = (rules & 3) == 2;
    options.no_split = (rules & 12) == 4;
    options.cap = (rules & 12) == 8 ? (1 + rules / 64) * 12 * MIB : 0;
    options.alignment = rules & 16 ? (size_t)1 << kind % 22 : 0;
    snprintf(options.tag, sizeof options.tag, "%s", tags[rules / 64]);
    if ((rules & 63) == 63) options.deterministic = options.use_on_oom = true;
    if ((rules & 63) == 31) options.alignment = 3 * KIB;
    return options;
}

static bool is_refused(const weir_mempool_options *o)
{
    const bool odd = (o->alignment & (o->alignment - 1)) != 0;
    const bool cannot_lend = o->deterministic || o->memory == WEIR_MEMORY_MANAGED || o->memory == WEIR_MEMORY_PINNED;
    return odd || (o->use_on_oom && cannot_lend);
}

static void make_pool(void)
{
    pool *p = &m.pools[some(POOLS, &m.last_pool)];
    const weir_mempool_options options = next_options();
    weir_mempool id = { 0, 0 };
    if (p->there) return;
    const weir_status status = result_of(weir_mempool_create(&options, &id));
    must(status == (is_refused(&options) ? WEIR_ERR_INVALID_ARGUMENT : WEIR_OK) || excused(status));
    if (status == WEIR_OK) *p = (pool){ .id = id, .rules = options, .references = 1, .there = true };
}

/* Its blocks stay. */
static void drop_reference(pool *p)
{
    const bool held = p->there && p->references > 0;
    must(result_of(weir_mempool_unref(p->id)) == (held ? WEIR_OK : WEIR_ERR_POOL_MISMATCH));
    p->references -= held;
}

static void change_references(void)
{
    const bool more = next_byte() % 2;
    pool *p = some_pool();
    if (!p) return;
    if (!more) {
        drop_reference(p);
        return;
    }
    must(weir_mempool_ref(p->id) == (p->there ? WEIR_OK : WEIR_ERR_POOL_MISMATCH));
    p->references += p->there;
}

static void empty_pool(void)
{
    const pool *p = some_pool();
    if (!p) return;
    weir_status expected = p->there ? WEIR_OK : WEIR_ERR_POOL_MISMATCH;
    if (p->there && p->paused) expected = WEIR_ERR_BUSY;
    const weir_status status = result_of(weir_mempool_empty_cache(p->id));
    must(status == expected || excused(status));
}

/* ---- pausing ----------------------------------------------------------------------------------------------------- */

static bool can_pause(const pool *p)
{
    const weir_memory_kind memory = p->rules.memory;
    return (memory == WEIR_MEMORY_MAPPED || memory == WEIR_MEMORY_EXPORTABLE) && !p->rules.use_on_oom;
}

/* NULL names all that can be paused. */
static bool is_named(const pool *p, int device, const char *tag)
{
    return p->there && p->rules.device == device && (tag ? strcmp(p->rules.tag, tag) == 0 : can_pause(p));
}

static weir_status state_of_tag(int device, const char *tag, bool pausing)
{
    bool any = !tag, can = true;
    for (const pool *p = m.pools; p < m.pools + POOLS; p++) {
        any |= is_named(p, device, tag);
        can &= !is_named(p, device, tag) || can_pause(p);
    }
    if (!any) return WEIR_ERR_INVALID_ARGUMENT;
    return pausing && !can ? WEIR_ERR_NOT_SUPPORTED : WEIR_OK;
}

static const char *next_tag(void)
{
    static const char *const tags[] = { "a", "b", NULL, "c" };
    return tags[next_byte() % 4];
}

static void forget_contents(int pool)
{
    for (block *b = m.blocks; b < m.blocks + BLOCKS; b++)
        if (b->pool == 1 + pool) b->known = false;
}

/* If the driver lets neither the pausing nor its undoing succeed, the pools are paused, but keep their contents. */
static void pause_some(void)
{
    const int device = next_byte() % DEVICES;
    const char *tag = next_tag();
    const bool drop = next_byte() % 3 == 0;
    for (int d = 0; d < DEVICES; d++)
        if (d != device) must(weir_device_synchronize(d) == WEIR_OK);
    const weir_status expected = state_of_tag(device, tag, true);
    const weir_status status = result_of(weir_pause(device, tag, drop ? WEIR_PAUSE_DROP : WEIR_PAUSE_KEEP));
    must(status == expected || excused(status));
    for (int i = 0; i < POOLS; i++) {
        pool *p = &m.pools[i];
        weir_mempool_info info = { .size = sizeof info };
        if (!is_named(p, device, tag) || p->paused || weir_mempool_info_get(p->id, &info) != WEIR_OK) continue;
        must(info.paused == (status == WEIR_OK) || (info.paused && m.failing));
        p->paused = info.paused;
        if (status == WEIR_OK && p->paused && drop) forget_contents(i);
    }
}

static void resume_some(void)
{
    const int device = next_byte() % DEVICES;
    const char *tag = next_tag();
    weir_status expected = state_of_tag(device, tag, false);
    const weir_status status = result_of(weir_resume(device, tag));
    if (status == WEIR_ERR_INVALID_ARGUMENT) { /* short of memory, it gave back that of released pools without blocks */
        look_at_pools();
        expected = state_of_tag(device, tag, false);
    }
    must(status == expected || excused(status) ||
         (expected == WEIR_OK && status == WEIR_ERR_OUT_OF_MEMORY && !has_room(device, stats_of(device).paused_bytes)));
    for (pool *p = m.pools; status == WEIR_OK && p < m.pools + POOLS; p++)
        if (is_named(p, device, tag)) p->paused = false;
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

static void take_checkpoint(void)
{
    checkpoint *c = some_checkpoint();
    const pool *p = some_pool();
    weir_checkpoint *taken = NULL;
    if (!p) return;
    weir_status expected = state_of(p);
    if (expected == WEIR_OK && p->rules.use_on_oom) expected = WEIR_ERR_INVALID_ARGUMENT;
    const weir_status status = result_of(weir_mempool_checkpoint(p->id, &taken));
    must(status == expected || excused(status));
    if (status != WEIR_OK) return;
    weir_checkpoint_destroy(c->taken);
    *c = (checkpoint){ taken, p->id, (int)(p - m.pools), moves_on(p->rules.device), { { .memory = NULL } } };
    for (int i = 0; i < BLOCKS; i++)
        if (m.blocks[i].pool == 1 + c->pool) c->blocks[i] = m.blocks[i];
}

static const block *find_at(const block *blocks, const void *memory, int pool)
{
    for (const block *b = blocks; b < blocks + BLOCKS; b++)
        if (b->memory == memory && b->pool == 1 + pool) return b;
    return NULL;
}

static void block_freed(void *user, void *pointer)
{
    const checkpoint *c = user;
    const block *b = find_at(m.blocks, pointer, c->pool);
    must(b);
    m.blocks[b - m.blocks].memory = NULL;
}

/* One that is live both then and now keeps what it has, and the streams that use it. */
static void block_restored(void *user, void *pointer)
{
    const checkpoint *c = user;
    const block *then = find_at(c->blocks, pointer, c->pool), *now = find_at(m.before, pointer, c->pool);
    block *b = find_block(false);
    must(then && b && !find_at(m.blocks, pointer, c->pool));
    *b = *then;
    b->shared = b->known = false;
    memset(b->recorded, 0, sizeof b->recorded);
    if (!now || now->taken != then->taken) return;
    b->value = now->value;
    b->known = now->known && now->bytes == then->bytes; /* the marks are where they were */
    b->shared = now->shared;
    memcpy(b->recorded, now->recorded, sizeof b->recorded);
}

static bool has_recorded(const block *b)
{
    for (int s = 0; s < STREAMS; s++)
        if (b->recorded[s] && s != b->stream) return true;
    return false;
}

/* Whether a block that other streams use lies where the checkpoint has another. `ended`: streams that have ended, and
 * the block's own, count, too. */
static bool is_in_the_way(const checkpoint *c, bool ended)
{
    for (const block *b = m.blocks; b < m.blocks + BLOCKS; b++) {
        if (!b->memory || b->pool != 1 + c->pool || !(ended ? b->shared : has_recorded(b))) continue;
        for (const block *t = c->blocks; t < c->blocks + BLOCKS; t++) {
            const bool same = t->memory == b->memory && t->taken == b->taken;
            if (t->memory && !same && t->memory < b->memory + b->taken && b->memory < t->memory + t->taken) return true;
        }
    }
    return false;
}

/* Memory that was neither given back nor went to another stream must serve the blocks again. */
static weir_status restored(const checkpoint *c, const pool *p)
{
    const bool moved = c->moves != moves_on(p->rules.device);
    const bool may_wait = is_in_the_way(c, true), waits = is_in_the_way(c, false);
    const weir_status state = c->id.user == p->id.user ? state_of(p) : WEIR_ERR_POOL_MISMATCH;
    const weir_status status = result_of(weir_mempool_restore(p->id, c->taken, block_freed, block_restored, (void *)c));
    if (excused(status)) return status;
    must(state == WEIR_OK || status == state);
    must(status != WEIR_OK || !waits);
    must(status == WEIR_OK || state != WEIR_OK || (status == WEIR_ERR_POOL_MISMATCH && moved) ||
         (status == WEIR_ERR_BUSY && may_wait));
    return status;
}

static void restore(void)
{
    const checkpoint *c = some_checkpoint();
    const pool *p = next_byte() % 8 ? &m.pools[c->pool] : some_pool();
    int room = 0;
    if (!c->taken || !p) return;
    for (int i = 0; i < BLOCKS; i++)
        room += (!m.blocks[i].memory || m.blocks[i].pool == 1 + c->pool) - (c->blocks[i].memory != NULL);
    if (room < 0) return;
    memcpy(m.before, m.blocks, sizeof m.before);
    if (restored(c, p) != WEIR_OK) {
        must(memcmp(m.before, m.blocks, sizeof m.before) == 0);
        return;
    }
    for (const block *t = c->blocks; t < c->blocks + BLOCKS; t++) {
        if (!t->memory) continue;
        const block *b = find_at(m.blocks, t->memory, c->pool);
        must(b);
        if (!b->known) write_block(&m.blocks[b - m.blocks], b->stream);
    }
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static void hold_or_go_on(void)
{
    const int stream = some_stream(), device = device_of(stream);
    uint64_t ran = 0;
    switch (next_byte() % 3) {
    case 0: must(weir_host_stream_hold(device, native_of(m.streams[stream])) == WEIR_OK); break;
    case 1: (void)weir_host_stream_step(device, native_of(m.streams[stream]), next_byte(), &ran); break;
    default: must(weir_host_stream_release(device, native_of(m.streams[stream])) == WEIR_OK);
    }
}

/* The first stream of each device is its default one, which gets what the others leave. */
static void end_stream(void)
{
    const int stream = DEVICES + next_byte() % (STREAMS - DEVICES), device = device_of(stream);
    const weir_status status = result_of(weir_stream_destroy(m.streams[stream]));
    must(status == WEIR_OK || excused(status));
    m.ended_streams[device]++;
    if (weir_stream_query(m.streams[stream]) != WEIR_ERR_INVALID_STREAM) {
        must(status != WEIR_OK);
        return;
    }
    must(weir_stream_create(device, 0, &m.streams[stream]) == WEIR_OK);
    for (block *b = m.blocks; b < m.blocks + BLOCKS; b++) {
        b->recorded[stream] = false;
        if (b->stream == stream) b->stream = device;
    }
}

static void empty_cache(void)
{
    const int device = next_byte() % DEVICES;
    const weir_status status = result_of(weir_empty_cache(device));
    must(status == WEIR_OK || excused(status));
    must(status != WEIR_OK || m.failing || stats_of(device).pending_frees == 0);
}

static void set_limit(void)
{
    const int device = next_byte() % DEVICES;
    m.limit[device] = (next_byte() % 6) * 16 * MIB;
    must(weir_memory_limit_set(device, m.limit[device]) == WEIR_OK);
    m.reserved[device] = (uint64_t)stats_of(device).reserved_bytes[WEIR_STAT_ALL].current;
}

/* The later ones come soon after the first, where it is being undone. */
static void script_failures(void)
{
    static const weir_status statuses[] = { WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_DRIVER };
    uint64_t nth = 0;
    m.failure_count = 1 + next_byte() % FAILURES;
    for (int i = 0; i < m.failure_count; i++) {
        const uint8_t choice = next_byte();
        nth += 1 + choice / 2 % (i == 0 ? 16 : 4);
        m.failures[i].nth = nth;
        m.failures[i].status = statuses[choice % 2];
    }
}

static void (*const operations[])(void) = {
    allocate,
    allocate,
    allocate,
    allocate,
    allocate,
    allocate,
    release,
    release,
    release,
    use,
    use,
    make_pool,
    make_pool,
    change_references,
    pause_some,
    pause_some,
    resume_some,
    resume_some,
    resume_some,
    empty_pool,
    take_checkpoint,
    restore,
    restore,
    hold_or_go_on,
    hold_or_go_on,
    end_stream,
    empty_cache,
    set_limit,
    script_failures,
    script_failures,
    check_contents,
};

static void start(const uint8_t *data, size_t size)
{
    static const char *const policies[] = { "weir", "segments", "torch", "weir" };
    static const char *const debugs[] = {
        NULL, "redzone,poison,stacks", "poison,streams", NULL, NULL, NULL, NULL, NULL
    };
    weir_settings settings = WEIR_SETTINGS_INIT;
    input_begin(data, size);
    memset(&m, 0, sizeof m);
    const uint8_t choice = next_byte();
    settings.backend = "host";
    settings.policy = policies[choice % 4];
    settings.host_devices = DEVICES;
    settings.host_memory = (choice & 4 ? 64 : 160) * MIB;
    settings.debug = debugs[choice / 8 % 8];
    m.zoned = settings.debug && strstr(settings.debug, "redzone");
    settings.history = choice & 64 ? 64 : 0;
    must(weir_open(&settings) == WEIR_OK);
    for (int s = 0; s < STREAMS; s++)
        must((s < DEVICES ? weir_stream_default(s, &m.streams[s])
                          : weir_stream_create(device_of(s), 0, &m.streams[s])) == WEIR_OK);
}

/* One of chunks keeps addresses where the driver did not unmap something. */
static bool may_stay(const pool *p)
{
    return p->there && atomic_load(&wr_runtime_opened(p->rules.device)->cache.lost) > 0;
}

/* Everything can be freed and released, and then nothing is left. */
static void finish(void)
{
    check_contents();
    for (block *b = m.blocks; b < m.blocks + BLOCKS; b++)
        if (b->memory) free_block(b);
    for (pool *p = m.pools; p < m.pools + POOLS; p++)
        while (p->there && p->references > 0) drop_reference(p);
    for (int device = 0; device < DEVICES; device++) {
        weir_device_memory memory = { .size = sizeof memory };
        must(weir_empty_cache(device) == WEIR_OK);
        must(weir_validate(device) == WEIR_OK);
        must(weir_device_memory_get(device, &memory) == WEIR_OK);
        must(memory.reserved_bytes == 0 && memory.free_bytes + outside_of(device) == memory.total_bytes);
        const weir_memory_stats stats = stats_of(device);
        check_numbers(&stats, 0);
        must(stats.reserved_bytes[WEIR_STAT_ALL].current == 0 && stats.pending_frees == 0 && stats.paused_bytes == 0);
    }
    for (const pool *p = m.pools; p < m.pools + POOLS; p++)
        must(p->id.user == 0 || may_stay(p) || weir_mempool_ref(p->id) == WEIR_ERR_POOL_MISMATCH);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    start(data, size);
    for (int i = 1; i <= OPERATIONS && input_is_left(); i++) {
        operations[next_byte() % (sizeof operations / sizeof operations[0])]();
        look_at_pools();
        if (i % 4 == 0) check_all();
    }
    check_contents();
    /* Half of the runs close with everything still in use. */
    if (size % 2 == 0) finish();
    must(weir_close() == WEIR_OK);
    for (checkpoint *c = m.checkpoints; c < m.checkpoints + CHECKPOINTS; c++) weir_checkpoint_destroy(c->taken);
    return 0;
}
