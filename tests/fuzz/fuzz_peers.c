/*
 * Bytes become requests to one of the modelled allocators of weir replay. The first byte chooses it, the second how
 * much memory the device has. Every block must be aligned, mapped, and share no byte of physical memory with another.
 */
#include "replay/peers/peer.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB ((uint64_t)1 << 20)
#define BLOCKS 48
#define EXTENTS 4096
#define STREAMS 3

#define must(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "fuzz_peers.c:%d: %s: %s\n", __LINE__, choice.peer->name, #condition);                     \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef struct input {
    const uint8_t *data;
    size_t size, at;
} input;

typedef struct block {
    peer_block at;
    uint64_t bytes; /* 0: none here */
    uint32_t stream;
    bool later;
} block;

typedef struct extent {
    uint64_t begin, end;
} extent;

static driver device;
static peer_choice choice;
static void *self;
static block blocks[BLOCKS];

static uint8_t next_byte(input *in)
{
    return in->at < in->size ? in->data[in->at++] : 0;
}

static uint64_t next_size(input *in)
{
    const uint8_t kind = next_byte(in);
    const uint64_t fine = (uint64_t)next_byte(in) << 8 | next_byte(in);
    switch (kind % 5) {
    case 0: return 1 + fine;
    case 1: return MIB - 600 + fine % 1200;
    case 2: return 1 + fine * 512;
    case 3: return (1 + fine % 64) * 2 * MIB;
    default: return (1 + fine % 2048) * 4096;
    }
}

static int by_begin(const void *left, const void *right)
{
    const extent *a = left, *b = right;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

static void check(void)
{
    static extent extents[EXTENTS];
    size_t count = 0;
    for (const block *b = blocks; b < blocks + BLOCKS; b++) {
        uint64_t address = b->at.address;
        for (uint64_t left = b->bytes; left;) {
            const driver_map *m = driver_find(&device, address);
            must(m && count < EXTENTS);
            const uint64_t offset = address - m->address, there = m->bytes - offset, part = there < left ? there : left;
            extents[count++] = (extent){ m->physical + offset, m->physical + offset + part };
            address += part;
            left -= part;
        }
    }
    qsort(extents, count, sizeof *extents, by_begin);
    for (size_t i = 1; i < count; i++) must(extents[i - 1].end <= extents[i].begin);
    must(device.used <= device.limit && device.used <= device.peak);
}

static void give(block *b)
{
    (b->later ? choice.peer->end_use : choice.peer->free)(self, &b->at, b->stream);
    b->bytes = 0;
    b->later = false;
}

static void step(input *in)
{
    const uint8_t what = next_byte(in);
    block *b = &blocks[next_byte(in) % BLOCKS];
    if (what % 32 == 0) {
        if (choice.peer->empty) choice.peer->empty(self);
    } else if (b->bytes == 0) {
        const uint64_t bytes = next_size(in);
        b->stream = what % STREAMS;
        if (bytes > device.limit || !choice.peer->alloc(self, bytes, b->stream, &b->at)) return;
        must(b->at.address % 256 == 0);
        b->bytes = bytes;
    } else if (what % 8 == 1 && choice.peer->begin_use && !b->later) {
        choice.peer->begin_use(self, &b->at, b->stream);
        b->later = true;
    } else {
        give(b);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[400];
    input in = { .data = data, .size = size };
    const peer *chosen = peer_at(next_byte(&in) % peer_count());
    if (!peer_choose(chosen->name, &choice, error, sizeof error)) abort();
    driver_init(&device, 16 * MIB << next_byte(&in) % 12);
    self = choice.peer->open(&device, choice.values);
    for (unsigned i = 0; in.at < in.size; i++) {
        step(&in);
        if (i % 8 == 0) check();
    }
    check();
    for (block *b = blocks; b < blocks + BLOCKS; b++) {
        if (b->bytes && size % 2) give(b); /* half of the runs close with everything in use */
        *b = (block){ 0 };
    }
    choice.peer->close(self);
    driver_release(&device);
    return 0;
}
