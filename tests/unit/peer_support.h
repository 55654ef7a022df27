/*
 * peer_support: a peer on a simulated driver, for the test_peer_*.c files. Every block is checked when it is handed
 * out: it must be aligned, mapped, and share no byte of physical memory with another block in use.
 */
#ifndef WEIR_TESTS_UNIT_PEER_SUPPORT_H
#define WEIR_TESTS_UNIT_PEER_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "replay/peers/peer.h"

#include <stdlib.h>
#include <string.h>

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define PEER_ALIGN 256
#define PEER_BLOCKS 4096

typedef struct peer_held {
    peer_block at;
    uint64_t bytes;
    uint32_t stream;
    bool used, later;
} peer_held;

typedef struct peer_fixture {
    driver driver;
    peer_choice choice;
    void *self;
    peer_held held[PEER_BLOCKS];
} peer_fixture;

static peer_fixture f;

static inline void peer_open(const char *text, uint64_t memory)
{
    char error[400];
    if (!peer_choose(text, &f.choice, error, sizeof error)) fail_msg("%s", error);
    memset(f.held, 0, sizeof f.held);
    driver_init(&f.driver, memory);
    f.self = f.choice.peer->open(&f.driver, f.choice.values);
}

static inline void peer_close(void)
{
    f.choice.peer->close(f.self);
    driver_release(&f.driver);
}

typedef struct peer_extent {
    uint64_t begin, end;
} peer_extent;

static inline int peer_by_begin(const void *left, const void *right)
{
    const peer_extent *a = left, *b = right;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* Checks that all blocks in use are mapped and share no physical memory. */
static inline void peer_check(void)
{
    static peer_extent *extents;
    static size_t capacity;
    size_t count = 0;
    for (const peer_held *h = f.held; h < f.held + PEER_BLOCKS; h++) {
        if (!h->used) continue;
        uint64_t address = h->at.address;
        for (uint64_t left = h->bytes; left;) {
            const driver_map *m = driver_find(&f.driver, address);
            assert_non_null(m);
            const uint64_t offset = address - m->address, there = m->bytes - offset, part = there < left ? there : left;
            if (count == capacity) {
                capacity = 2 * capacity + 64;
                extents = realloc(extents, capacity * sizeof *extents);
                assert_non_null(extents);
            }
            extents[count++] = (peer_extent){ m->physical + offset, m->physical + offset + part };
            address += part;
            left -= part;
        }
    }
    if (count) qsort(extents, count, sizeof *extents, peer_by_begin);
    for (size_t i = 1; i < count; i++) assert_true(extents[i - 1].end <= extents[i].begin);
    assert_true(f.driver.used <= f.driver.limit && f.driver.used <= f.driver.peak);
}

/* False: there was no memory. */
static inline bool peer_take(size_t slot, uint64_t bytes, uint32_t stream)
{
    peer_held *h = &f.held[slot];
    assert_false(h->used);
    *h = (peer_held){ .bytes = bytes, .stream = stream };
    h->used = f.choice.peer->alloc(f.self, bytes, stream, &h->at);
    if (h->used) assert_int_equal(h->at.address % PEER_ALIGN, 0);
    return h->used;
}

/* Takes a block, which must succeed; returns its address. */
static inline uint64_t peer_get(size_t slot, uint64_t bytes, uint32_t stream)
{
    assert_true(peer_take(slot, bytes, stream));
    return f.held[slot].at.address;
}

static inline uint64_t peer_cost(enum weir_backend_entry entry, uint64_t bytes)
{
    uint64_t nanoseconds;
    assert_int_equal(weir_host_cost(entry, bytes, &nanoseconds), WEIR_OK);
    return nanoseconds;
}

static inline void peer_give(size_t slot)
{
    peer_held *h = &f.held[slot];
    assert_true(h->used);
    h->used = false;
    (h->later ? f.choice.peer->end_use : f.choice.peer->free)(f.self, &h->at, h->stream);
}

#endif
