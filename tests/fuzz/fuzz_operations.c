/*
 * Bytes become a sequence of operations on two small host devices, compared with a simple model: which blocks are live,
 * where, in which pool, and with which contents. The first byte chooses the policy. Between operations the structures
 * are checked.
 */
#include "detach_support.h"
#include "fuzz/fuzz_support.h"
#include "weir/host.h"

#include <string.h>

#define DEVICES 2
#define BLOCKS 64
#define STREAMS 6
#define POOLS 4
#define ROUTES 4
#define OPERATIONS 400

/* ---- input ------------------------------------------------------------------------------------------------------- */

static size_t next_size(void)
{
    const uint8_t kind = next_byte();
    const size_t fine = next_number(65536);
    switch (kind % 8) {
    case 0: return fine % 4;                        /* none and nearly none */
    case 1: return 512 * (fine % 5) + fine / 5 % 3; /* about multiples of 512 */
    case 2: return fine;
    case 3: return MIB - 2 + fine % 5; /* about the border between small and large */
    case 4: return MIB + fine * 64;
    case 5: return 10 * MIB - 2 + fine % 5; /* about the border to segments made to measure */
    case 6: return (10 + fine % 20) * MIB;
    default: return fine % 16 ? 16 * (1 + fine % 64) : SIZE_MAX - fine; /* small, or absurd */
    }
}

/* ---- model ------------------------------------------------------------------------------------------------------- */

typedef struct block {
    unsigned char *memory; /* NULL: none here */
    size_t bytes;
    uint64_t mark;
    int device;
} block;

typedef struct pool {
    weir_mempool id; /* {0, 0}: none here */
    weir_mempool_options rules;
} pool;

typedef struct route {
    const pool *to;
    uint64_t opened;
} route;

typedef struct model {
    bool failing; /* a driver failure is scripted: calls may fail, but not break anything */
    uint64_t last_mark;
    block blocks[BLOCKS];
    void *gone[BLOCKS]; /* pointers that were freed */
    weir_stream streams[STREAMS];
    pool pools[POOLS];
    route entered[ROUTES]; /* innermost last */
    int entered_count;
    route routed[STREAMS];
    uint64_t opened; /* routes, ever */
} model;

static model m;

static block *some_block(void)
{
    return &m.blocks[next_number(BLOCKS)];
}

static weir_stream some_stream(void)
{
    return m.streams[next_byte() % STREAMS];
}

static int device_of(weir_stream stream)
{
    int device = -1;
    must(weir_stream_device(stream, &device) == WEIR_OK);
    return device;
}

/* What a call may return when the driver was told to fail. If the driver cannot say whether a stream captures, weir
 * assumes that it does. */
static bool excused(weir_status status)
{
    return m.failing && (status == WEIR_ERR_DRIVER || status == WEIR_ERR_OUT_OF_MEMORY || status == WEIR_ERR_CAPTURE);
}

static void put_mark(block *b)
{
    const size_t length = b->bytes < 8 ? b->bytes : 8;
    b->mark = ++m.last_mark;
    memcpy(b->memory, &b->mark, length);
    memcpy(b->memory + b->bytes - length, &b->mark, length);
}

static void check_mark(const block *b)
{
    const size_t length = b->bytes < 8 ? b->bytes : 8;
    must(b->bytes < 16 || memcmp(b->memory, &b->mark, length) == 0);
    must(memcmp(b->memory + b->bytes - length, &b->mark, length) == 0);
}

static void check_apart(const block *fresh)
{
    for (const block *b = m.blocks; b < m.blocks + BLOCKS; b++)
        must(b == fresh || !b->memory || are_apart(b->memory, b->bytes, fresh->memory, fresh->bytes));
}

static pool *some_pool(void)
{
    return &m.pools[next_byte() % POOLS];
}

/* The pool that the routes choose; NULL is the default one. */
static const pool *expected_pool(int stream)
{
    const int device = stream < DEVICES ? stream : stream % DEVICES;
    route best = m.routed[stream];
    for (int i = m.entered_count; i-- > 0;)
        if (m.entered[i].to->rules.device == device) {
            if (m.entered[i].opened > best.opened) best = m.entered[i];
            break;
        }
    return best.to;
}

/* The block lies in the pool that was chosen, or another pool lent it. */
static void check_pool(const block *b, const pool *expected)
{
    const weir_mempool wanted = expected ? expected->id : (weir_mempool){ 0, 0 };
    weir_pointer_info info = { .size = sizeof info };
    must(weir_pointer_info_get(b->memory, &info) == WEIR_OK);
    if (info.pool.user == wanted.user) return;
    bool lent = false;
    for (const pool *p = m.pools; p < m.pools + POOLS; p++)
        lent = lent || (p->id.user == info.pool.user && p->rules.use_on_oom && p->rules.device == b->device);
    must(lent);
}

static bool is_routed(const pool *p)
{
    for (int i = 0; i < m.entered_count; i++)
        if (m.entered[i].to == p) return true;
    for (int i = 0; i < STREAMS; i++)
        if (m.routed[i].to == p) return true;
    return false;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static void free_block(block *b)
{
    check_mark(b);
    must(weir_free(b->memory) == WEIR_OK);
    m.gone[b - m.blocks] = b->memory;
    b->memory = NULL;
}

static void allocate_in(const pool *named)
{
    block *b = some_block();
    const int index = next_byte() % STREAMS;
    const weir_stream stream = m.streams[index];
    const size_t bytes = next_size();
    void *memory = &m;
    if (named && named->rules.device != device_of(stream)) return;
    if (b->memory) free_block(b);
    weir_status status =
        named ? weir_alloc_from(named->id, bytes, stream, &memory) : weir_alloc_on(bytes, stream, &memory);
    if (status != WEIR_OK) {
        must(memory == &m);
        must(status == WEIR_ERR_OUT_OF_MEMORY || excused(status));
        return;
    }
    must((memory == NULL) == (bytes == 0));
    if (bytes == 0) return;
    must((uintptr_t)memory % 512 == 0);
    *b = (block){ .memory = memory, .bytes = bytes, .device = device_of(stream) };
    check_apart(b);
    check_pool(b, named ? named : expected_pool(index));
    put_mark(b);
}

static void allocate(void)
{
    allocate_in(NULL);
}

static void allocate_from(void)
{
    const pool *p = some_pool();
    if (p->id.user) allocate_in(p);
}

static void make_pool(void)
{
    pool *p = some_pool();
    const uint8_t choice = next_byte();
    if (p->id.user) return;
    p->rules = (weir_mempool_options)WEIR_MEMPOOL_OPTIONS_INIT;
    p->rules.device = choice % DEVICES;
    p->rules.memory = choice & 2 ? WEIR_MEMORY_MAPPED : WEIR_MEMORY_DEVICE;
    p->rules.use_on_oom = choice & 4;
    p->rules.no_split = choice & 8;
    p->rules.deterministic = (choice & 16) && !p->rules.use_on_oom;
    p->rules.alignment = choice & 32 ? (size_t)512 << choice % 13 : 0;
    p->rules.cap = choice & 64 ? 24 * MIB : 0;
    weir_status status = weir_mempool_create(&p->rules, &p->id);
    must(status == WEIR_OK || excused(status));
}

/* Blocks of the pool stay. */
static void drop_pool(void)
{
    pool *p = some_pool();
    if (!p->id.user || is_routed(p)) return;
    must(weir_mempool_unref(p->id) == WEIR_OK);
    p->id = (weir_mempool){ 0, 0 };
}

static void enter_pool(void)
{
    const pool *p = some_pool();
    if (!p->id.user || m.entered_count == ROUTES) return;
    must(weir_mempool_enter(p->id) == WEIR_OK);
    m.entered[m.entered_count++] = (route){ p, ++m.opened };
}

static void leave_pool(void)
{
    if (m.entered_count == 0) return;
    must(weir_mempool_leave(m.entered[--m.entered_count].to->id) == WEIR_OK);
}

static void route_stream(void)
{
    const int index = next_byte() % STREAMS;
    const pool *p = some_pool();
    if (p->id.user && p->rules.device != device_of(m.streams[index])) return;
    must(weir_mempool_route_stream(p->id, m.streams[index]) == WEIR_OK);
    m.routed[index] = p->id.user ? (route){ p, ++m.opened } : (route){ NULL, 0 };
}

static void empty_pool(void)
{
    const pool *p = some_pool();
    if (!p->id.user) return;
    weir_status status = weir_mempool_empty_cache(p->id);
    must(status == WEIR_OK || excused(status));
}

static void release(void)
{
    block *b = some_block();
    if (b->memory) free_block(b);
}

/* A freed pointer has no owner, or lies in a block that was allocated since. */
static void free_again(void)
{
    char *pointer = m.gone[next_number(BLOCKS)];
    for (const block *b = m.blocks; b < m.blocks + BLOCKS; b++)
        if (b->memory && (char *)b->memory <= pointer && pointer < (char *)b->memory + b->bytes) return;
    weir_pointer_info info = { .size = sizeof info };
    if (!pointer || weir_pointer_info_get(pointer, &info) == WEIR_OK) return; /* in the rounding of a live block */
    weir_status status = weir_free(pointer);
    must(status == WEIR_ERR_DOUBLE_FREE || status == WEIR_ERR_UNKNOWN_POINTER);
}

static void free_inside(void)
{
    const block *b = some_block();
    const size_t offset = 1 + next_number(65535);
    if (b->memory && offset < b->bytes) must(weir_free(b->memory + offset) == WEIR_ERR_INVALID_ARGUMENT);
}

static void look_up(void)
{
    const block *b = some_block();
    const size_t offset = next_number(65536);
    weir_pointer_info info = { .size = sizeof info };
    if (!b->memory || offset >= b->bytes) return;
    must(weir_pointer_info_get(b->memory + offset, &info) == WEIR_OK);
    must(info.base == b->memory && info.requested == b->bytes && info.bytes >= b->bytes && info.device == b->device);
}

static void record(void)
{
    const block *b = some_block();
    const weir_stream stream = some_stream();
    const size_t offset = next_number(65536);
    if (b->memory && offset < b->bytes) must(weir_record_stream(b->memory + offset, stream) == WEIR_OK);
}

/* Queued work on a held stream sees memory as it is when the work runs, so it only reads. */
static void use(void)
{
    static unsigned char sink[16];
    const block *b = some_block();
    const weir_stream stream = some_stream();
    if (!b->memory) return;
    weir_status status = weir_record_stream(b->memory, stream);
    must(status == WEIR_OK);
    status = weir_copy(sink, b->memory, b->bytes < sizeof sink ? b->bytes : sizeof sink, stream);
    must(status == WEIR_OK || excused(status));
}

static void hold_stream(void)
{
    const weir_stream stream = some_stream();
    must(weir_host_stream_hold(device_of(stream), native_of(stream)) == WEIR_OK);
}

static void step_stream(void)
{
    const weir_stream stream = some_stream();
    uint64_t ran = 0;
    (void)weir_host_stream_step(device_of(stream), native_of(stream), next_byte(), &ran);
}

static void release_stream(void)
{
    const weir_stream stream = some_stream();
    must(weir_host_stream_release(device_of(stream), native_of(stream)) == WEIR_OK);
}

static void wait_for_stream(void)
{
    const weir_stream stream = some_stream(), other = some_stream();
    weir_status status = next_byte() % 2 ? weir_stream_synchronize(stream) : weir_stream_wait(stream, other);
    must(status == WEIR_OK || excused(status));
}

/* Detaches the front, as many threads would (pool/front/detach.h), until something looks at the whole cache. */
static void detach_front(void)
{
    const block *b = some_block();
    wr_front *front = b->memory ? front_of(b->memory) : NULL;
    if (front) must(try_detach(front) == WEIR_OK);
}

/* The first stream of each device stays its default stream. */
static void replace_stream(void)
{
    const int index = DEVICES + next_byte() % (STREAMS - DEVICES);
    weir_stream stream = { 0 };
    weir_status status = weir_stream_create(index % DEVICES, next_byte() % 8 - 6, &stream);
    must(status == WEIR_OK || excused(status));
    if (status != WEIR_OK) return;
    status = weir_stream_destroy(m.streams[index]);
    must(status == WEIR_OK || excused(status));
    weir_status gone = weir_stream_query(m.streams[index]);
    if (status == WEIR_OK) must(gone == WEIR_ERR_INVALID_STREAM);
    /* A stream that could not be destroyed may still exist. */
    if (gone != WEIR_ERR_INVALID_STREAM) {
        status = weir_mempool_route_stream((weir_mempool){ 0, 0 }, m.streams[index]);
        must(status == WEIR_OK);
    }
    m.streams[index] = stream; /* one that could not be destroyed is left to weir_close */
    m.routed[index] = (route){ NULL, 0 };
}

static void empty_cache(void)
{
    const int device = next_byte() % DEVICES;
    weir_status status = weir_empty_cache(device);
    must(status == WEIR_OK || excused(status));
    weir_memory_stats stats = { .size = sizeof stats };
    must(weir_stats_get(device, &stats) == WEIR_OK);
    /* A stream whose idleness cannot be checked is left alone. */
    if (status == WEIR_OK && !m.failing) must(stats.pending_frees == 0);
}

static void set_limit(void)
{
    must(weir_memory_limit_set(next_byte() % DEVICES, (next_byte() % 8) * 10 * MIB) == WEIR_OK);
}

static void script_failure(void)
{
    static const weir_status statuses[] = { WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_DRIVER };
    must(weir_host_fail_any(1 + next_byte() % 16, statuses[next_byte() % 2]) == WEIR_OK);
    m.failing = true;
}

static void end_failures(void)
{
    must(weir_host_fail_clear() == WEIR_OK);
    m.failing = false;
}

static void check_all(void)
{
    for (int device = 0; device < DEVICES; device++) must(weir_validate(device) == WEIR_OK);
    for (const block *b = m.blocks; b < m.blocks + BLOCKS; b++)
        if (b->memory) check_mark(b);
}

static void (*const operations[])(void) = {
    allocate,    allocate,    allocate,       allocate,       allocate,        release,
    release,     release,     free_again,     free_inside,    look_up,         record,
    use,         hold_stream, step_stream,    release_stream, wait_for_stream, replace_stream,
    empty_cache, set_limit,   script_failure, end_failures,   make_pool,       drop_pool,
    enter_pool,  leave_pool,  route_stream,   empty_pool,     allocate_from,   detach_front,
};

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static void start(const uint8_t *data, size_t size)
{
    weir_settings settings = WEIR_SETTINGS_INIT;
    m = (model){ 0 };
    input_begin(data, size);
    const uint8_t choice = next_byte();
    settings.backend = "host";
    settings.policy = choice & 1 ? "torch" : "weir";
    settings.host_devices = DEVICES;
    settings.host_memory = 64 * MIB;
    settings.max_split_size = choice & 2 ? 24 * MIB : 0;
    settings.gc_threshold = choice & 4 ? 0.5 : 0;
    settings.memory_limit = choice & 4 ? 48 * MIB : 0;
    settings.roundup_power2_divisions = choice & 8 ? "4" : NULL;
    settings.history = choice & 16 ? 64 : 0;
    must(weir_open(&settings) == WEIR_OK);
    for (int i = 0; i < STREAMS; i++)
        must((i < DEVICES ? weir_stream_default(i, &m.streams[i])
                          : weir_stream_create(i % DEVICES, 0, &m.streams[i])) == WEIR_OK);
}

/* Everything that was allocated can be freed, and then nothing is left. */
static void finish(void)
{
    end_failures();
    for (block *b = m.blocks; b < m.blocks + BLOCKS; b++)
        if (b->memory) free_block(b);
    while (m.entered_count) leave_pool();
    for (int i = 0; i < STREAMS; i++) must(weir_mempool_route_stream((weir_mempool){ 0, 0 }, m.streams[i]) == WEIR_OK);
    for (const pool *p = m.pools; p < m.pools + POOLS; p++)
        if (p->id.user) must(weir_mempool_unref(p->id) == WEIR_OK);
    for (int device = 0; device < DEVICES; device++) {
        weir_memory_stats stats = { .size = sizeof stats };
        must(weir_empty_cache(device) == WEIR_OK);
        must(weir_validate(device) == WEIR_OK);
        must(weir_stats_get(device, &stats) == WEIR_OK);
        must(stats.pending_frees == 0 && stats.active_bytes[WEIR_STAT_ALL].current == 0);
        must(stats.reserved_bytes[WEIR_STAT_ALL].current == 0);
    }
    must(weir_close() == WEIR_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    start(data, size);
    for (int i = 0; i < OPERATIONS && input_is_left(); i++) {
        operations[next_byte() % (sizeof operations / sizeof operations[0])]();
        if (i % 4 == 3) check_all();
    }
    check_all();
    /* Half of the runs close with everything still in use. */
    if (size % 2) {
        end_failures();
        must(weir_close() == WEIR_OK);
    } else {
        finish();
    }
    return 0;
}
