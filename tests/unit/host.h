/*
 * host: the fixture of the test_host_*.c files: the host back end open with two small devices, through the registry.
 */
#ifndef WEIR_TESTS_UNIT_HOST_H
#define WEIR_TESTS_UNIT_HOST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assert_weir.h"
#include "backend/backend.h"
#include "base/meta.h"
#include "weir/host.h"

#include <stdlib.h>
#include <string.h>

#define HOST_MEMORY (256 * MIB)
#define ok(call) assert_int_equal(call, WEIR_OK)

static const weir_backend *b;

static inline int host_open(void **state)
{
    (void)state;
    weir_backend_config config = { .size = sizeof config, .host_devices = 2, .host_memory = HOST_MEMORY };
    weir_device_caps caps;
    ok(wr_backend_open("host", &config, &b));
    ok(b->device_open(0, &caps));
    ok(b->device_open(1, &caps));
    return 0;
}

/* Closing a lost device reports that it is lost, but closes it. Also closes whatever the test left open. */
static inline int host_close(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        weir_status status = b->device_close(i);
        assert_true(status == WEIR_OK || status == WEIR_ERR_DEVICE_LOST);
    }
    ok(wr_backend_close(b));
    assert_int_equal(wr_meta_live(), 0);
    return 0;
}

#define host_test(test) cmocka_unit_test_setup_teardown(test, host_open, host_close)

static inline void *new_stream(int device)
{
    void *stream;
    ok(b->stream_create(device, 0, &stream));
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

#endif
