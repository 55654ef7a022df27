/*
 * pools_model: what fuzz_pools compares two small host devices with: which blocks are live where, with which contents
 * and used by which streams; which pools there are, and in which state. The checks of that, and the driver's failures,
 * are here, too.
 */
#ifndef WEIR_TESTS_FUZZ_POOLS_MODEL_H
#define WEIR_TESTS_FUZZ_POOLS_MODEL_H

#include "device/device.h"
#include "device/runtime.h"
#include "fuzz/fuzz_support.h"
#include "weir/host.h"
#include "weir/observe.h"

#include <string.h>

enum { DEVICES = 2, STREAMS = 6, BLOCKS = 48, POOLS = 6, CHECKPOINTS = 4, FAILURES = 3, MARK = 256, OPERATIONS = 800 };

typedef struct block {
    unsigned char *memory; /* NULL: none here */
    size_t bytes, taken;   /* taken: with what it is larger than its request */
    unsigned char value;
    bool known;             /* that is what it has, once all work has run */
    int stream;             /* its own */
    int pool;               /* 1 + its number; 0: the default one */
    bool recorded[STREAMS]; /* on others that still exist */
    bool shared;            /* recorded on another stream, which may have ended */
} block;

typedef struct pool {
    weir_mempool id; /* {0, 0}: never one here; of one that is gone, when it is not there */
    weir_mempool_options rules;
    uint32_t references; /* 0: released */
    bool there, paused;
} pool;

typedef struct checkpoint {
    weir_checkpoint *taken; /* NULL: none here */
    weir_mempool id;
    int pool;
    uint64_t moves;       /* of memory that was given back or went to another stream, until then */
    block blocks[BLOCKS]; /* of the pool, then */
} checkpoint;

static struct {
    weir_stream streams[STREAMS];
    block blocks[BLOCKS], before[BLOCKS]; /* before: a restore */
    pool pools[POOLS];
    checkpoint checkpoints[CHECKPOINTS];
    struct {
        uint64_t nth;
        weir_status status;
    } failures[FAILURES]; /* that the next call of interest meets */
    int failure_count;
    bool failing;               /* the last such call met some */
    bool zoned;                 /* red zones, which count as requested once their blocks have been restored */
    size_t limit[DEVICES];      /* 0: none */
    uint64_t reserved[DEVICES]; /* when it was last looked at */
    uint64_t ended_streams[DEVICES];
    unsigned char value;
    int last_stream, last_pool, last_checkpoint;
} m;

/* ---- failures ---------------------------------------------------------------------------------------------------- */

static inline void begin_failing(void)
{
    for (int i = 0; i < m.failure_count; i++)
        must(weir_host_fail_any(m.failures[i].nth, m.failures[i].status) == WEIR_OK);
    m.failing = m.failure_count > 0;
    m.failure_count = 0;
}

static inline weir_status end_failing(weir_status status)
{
    if (m.failing) must(weir_host_fail_clear() == WEIR_OK);
    return status;
}

/* The result of a call of interest: nothing else that the fuzzer calls meets a failure of the driver. */
#define result_of(call) (begin_failing(), end_failing(call))

/* What it may return then. */
static inline bool excused(weir_status status)
{
    return m.failing && (status == WEIR_ERR_DRIVER || status == WEIR_ERR_OUT_OF_MEMORY);
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

static inline int device_of(int stream)
{
    return stream % DEVICES;
}

static inline bool has_block(int at)
{
    return m.blocks[at].memory != NULL;
}

/* NULL: there is none. */
static inline block *find_block(bool there)
{
    const int at = next_index(BLOCKS, has_block, there);
    return at < 0 ? NULL : &m.blocks[at];
}

static inline bool is_usable(const block *b)
{
    return b->pool == 0 || !m.pools[b->pool - 1].paused;
}

/* A pool that lends may have served it. */
static inline int pool_of(weir_mempool id)
{
    for (int i = 0; i < POOLS; i++)
        if (m.pools[i].there && m.pools[i].id.user == id.user) return 1 + i;
    must(id.user == 0);
    return 0;
}

static inline weir_memory_stats stats_of(int device)
{
    weir_memory_stats stats = { .size = sizeof stats };
    must(weir_stats_get(device, &stats) == WEIR_OK);
    return stats;
}

/* The stream comes after all others that use the block. */
static inline void order_behind_uses(const block *b, int stream)
{
    must(weir_stream_wait(m.streams[stream], m.streams[b->stream]) == WEIR_OK);
    for (int s = 0; s < STREAMS; s++)
        if (b->recorded[s]) must(weir_stream_wait(m.streams[stream], m.streams[s]) == WEIR_OK);
}

/* A block has marks of its value where it begins, at each MiB and where it ends: to fill all of it would take long. */
static inline size_t next_mark(const block *b, size_t at)
{
    const size_t last = b->bytes - (b->bytes - 1) % MARK - 1;
    return at == last ? b->bytes : at + MIB < last ? at + MIB : last;
}

static inline size_t mark_bytes(const block *b, size_t at)
{
    return b->bytes - at < MARK ? b->bytes - at : MARK;
}

static inline void write_block(block *b, int stream)
{
    b->value = m.value = value_after(m.value);
    b->known = true;
    order_behind_uses(b, stream);
    for (size_t at = 0; at < b->bytes; at = next_mark(b, at))
        must(weir_fill(b->memory + at, b->value, mark_bytes(b, at), m.streams[stream]) == WEIR_OK);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static inline void check_contents(void)
{
    for (int device = 0; device < DEVICES; device++) must(weir_device_synchronize(device) == WEIR_OK);
    for (const block *b = m.blocks; b < m.blocks + BLOCKS; b++) {
        weir_pointer_info info = { .size = sizeof info };
        if (!b->memory) continue;
        must(weir_pointer_info_get(b->memory, &info) == WEIR_OK && pool_of(info.pool) == b->pool);
        must(info.base == b->memory && info.bytes == b->taken && (info.requested == b->bytes || m.zoned));
        must(info.stream.id == m.streams[b->stream].id && info.device == device_of(b->stream));
        for (size_t at = 0; b->known && is_usable(b) && at < b->bytes; at = next_mark(b, at))
            must(is_filled(b->memory + at, mark_bytes(b, at), b->value));
    }
}

static inline void check_numbers(const weir_memory_stats *stats, int64_t live)
{
    const weir_stat *all = stats->allocation;
    for (size_t i = 0; i < (offsetof(weir_memory_stats, hits) - sizeof stats->size) / sizeof *all; i++) {
        must(all[i].added - all[i].removed == all[i].current);
        must(all[i].current >= 0 && all[i].peak >= all[i].current);
    }
    const int64_t active = stats->active_bytes[WEIR_STAT_ALL].current;
    must(stats->reserved_bytes[WEIR_STAT_ALL].current + (int64_t)stats->paused_bytes >= active);
    must(active >= stats->allocated_bytes[WEIR_STAT_ALL].current);
    must(stats->allocation[WEIR_STAT_ALL].current == live);
    must(stats->active[WEIR_STAT_ALL].current == live + (int64_t)stats->pending_frees);
    must(stats->stream_misuses == 0);
}

static inline int64_t live_in(const pool *p)
{
    int64_t live = 0;
    for (const block *b = m.blocks; b < m.blocks + BLOCKS; b++) live += b->memory && b->pool == 1 + (int)(p - m.pools);
    return live;
}

/* What reserved_bytes leaves out: what the driver did not take back, and managed memory, which the host back end takes
 * from the device. */
static inline uint64_t outside_of(int device)
{
    uint64_t bytes = atomic_load(&wr_runtime_opened(device)->cache.lost);
    for (const pool *p = m.pools; p < m.pools + POOLS; p++) {
        weir_memory_stats stats = { .size = sizeof stats };
        if (!p->there || p->rules.device != device || p->rules.memory != WEIR_MEMORY_MANAGED) continue;
        if (weir_mempool_stats_get(p->id, &stats) == WEIR_OK)
            bytes += (uint64_t)stats.reserved_bytes[WEIR_STAT_ALL].current;
    }
    return bytes;
}

static inline void check_device(int device)
{
    const weir_memory_stats stats = stats_of(device);
    weir_device_memory memory = { .size = sizeof memory };
    int64_t live = 0;
    for (const block *b = m.blocks; b < m.blocks + BLOCKS; b++) live += b->memory && device_of(b->stream) == device;
    check_numbers(&stats, live);
    must(weir_device_memory_get(device, &memory) == WEIR_OK);
    must(memory.outside_bytes == outside_of(device));
    const size_t limit = m.limit[device];
    must(limit == 0 || memory.reserved_bytes <= limit || memory.reserved_bytes <= m.reserved[device]);
    m.reserved[device] = memory.reserved_bytes;
}

/* The pools are as the model says; released ones may have gone. */
static inline void look_at_pools(void)
{
    for (pool *p = m.pools; p < m.pools + POOLS; p++) {
        weir_mempool_info info = { .size = sizeof info };
        if (!p->there) continue;
        const weir_status status = weir_mempool_info_get(p->id, &info);
        p->there = status == WEIR_OK;
        must(p->there || (status == WEIR_ERR_POOL_MISMATCH && p->references == 0 && live_in(p) == 0));
        if (!p->there) continue;
        must(info.references == p->references && info.paused == p->paused);
        must(info.device == p->rules.device && info.memory == p->rules.memory);
        must(strcmp(info.tag, p->rules.tag) == 0);
    }
}

static inline void check_pool(const pool *p)
{
    weir_memory_stats stats = { .size = sizeof stats };
    must(weir_mempool_stats_get(p->id, &stats) == WEIR_OK);
    check_numbers(&stats, live_in(p));
    must(p->rules.cap == 0 || stats.reserved_bytes[WEIR_STAT_ALL].current <= (int64_t)p->rules.cap);
    must(stats.paused_bytes == 0 || p->paused);
}

static inline void check_all(void)
{
    for (int device = 0; device < DEVICES; device++) {
        must(weir_validate(device) == WEIR_OK);
        check_device(device);
    }
    for (const pool *p = m.pools; p < m.pools + POOLS; p++)
        if (p->there) check_pool(p);
}

#endif
