/*
 * contract: what every back end must do, whichever driver is behind it. Each test_*.c in this folder is one part of the
 * table; WEIR_CONTRACT_BACKEND names the back end to run it on (default "host"). Device memory is inspected only
 * through copies made with the table, because the host cannot touch it on most devices.
 */
#ifndef WEIR_TESTS_CONTRACT_H
#define WEIR_TESTS_CONTRACT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assert_weir.h"
#include "backend/backend.h"

#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ok(call) assert_int_equal(call, WEIR_OK)
#define refused(call) assert_int_not_equal(call, WEIR_OK)

#define CONTRACT_DEVICES 2

static const weir_backend *b;
static int devices; /* opened devices: 0 and, if there is one, 1 */
static weir_device_caps caps[CONTRACT_DEVICES];

static inline int contract_open(void **state)
{
    (void)state;
    const char *name = getenv("WEIR_CONTRACT_BACKEND");
    weir_backend_config config = { .size = sizeof config, .host_devices = CONTRACT_DEVICES, .host_memory = 512 * MIB };
    weir_status status = wr_backend_open(name != NULL ? name : "host", &config, &b);
    if (status == WEIR_ERR_NO_LIBRARY || status == WEIR_ERR_NO_DEVICE) {
        print_message("skipped: %s\n", weir_error_text());
        exit(77);
    }
    ok(status);
    ok(b->device_count(&devices));
    if (devices > CONTRACT_DEVICES) devices = CONTRACT_DEVICES;
    for (int i = 0; i < devices; i++) ok(b->device_open(i, &caps[i]));
    return 0;
}

static inline int contract_close(void **state)
{
    (void)state;
    for (int i = 0; i < devices; i++) ok(b->device_close(i));
    ok(wr_backend_close(b));
    return 0;
}

#define CONTRACT_MAIN(tests)                                                                                           \
    int main(void)                                                                                                     \
    {                                                                                                                  \
        return cmocka_run_group_tests(tests, contract_open, contract_close);                                           \
    }

static inline uint64_t free_memory(int device)
{
    uint64_t free_bytes, total;
    ok(b->device_memory(device, &free_bytes, &total));
    return free_bytes;
}

static inline void *new_stream(int device)
{
    void *stream;
    ok(b->stream_create(device, caps[device].priority_least, &stream));
    return stream;
}

static inline void *new_event(int device)
{
    void *event;
    ok(b->event_create(device, &event));
    return event;
}

static inline void *new_segment(int device, size_t bytes)
{
    void *base;
    ok(b->segment_alloc(device, bytes, &base));
    return base;
}

/* Fills device memory and waits. */
static inline void fill_now(int device, void *base, unsigned char value, size_t bytes)
{
    ok(b->fill(device, NULL, base, value, bytes));
    ok(b->stream_synchronize(device, NULL));
}

/* The byte at `offset` of device memory. */
static inline unsigned char byte_at(int device, const void *base, size_t offset)
{
    unsigned char byte = 0;
    ok(b->copy(device, NULL, &byte, (const char *)base + offset, 1));
    ok(b->stream_synchronize(device, NULL));
    return byte;
}

/* compute-sanitizer waits for a stream that is destroyed, even when a gate holds it. scripts/gpu tells. */
static inline bool destroying_waits(void)
{
    return getenv("GPU_TESTS_SANITIZED") != NULL;
}

/* Keeps a stream busy until opened, by a callback that waits. */
typedef struct gate {
    sem_t reached, open;
} gate;

static inline void gate_wait(void *argument)
{
    gate *g = argument;
    sem_post(&g->reached);
    while (sem_wait(&g->open) != 0) {}
}

static inline void gate_close(gate *g, int device, void *stream)
{
    sem_init(&g->reached, 0, 0);
    sem_init(&g->open, 0, 0);
    ok(b->stream_callback(device, stream, gate_wait, g));
    while (sem_wait(&g->reached) != 0) {}
}

static inline void gate_open(gate *g)
{
    sem_post(&g->open);
}

/* Call it after synchronising the stream. */
static inline void gate_end(gate *g)
{
    sem_destroy(&g->reached);
    sem_destroy(&g->open);
}

#endif
