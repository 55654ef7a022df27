/*
 * graph_scene: what tests of graphs begin with, two streams of a host device that has another beside it. Include after
 * cmocka.
 */
#ifndef WEIR_TESTS_UNIT_GRAPH_SCENE_H
#define WEIR_TESTS_UNIT_GRAPH_SCENE_H

#include "backend/backend.h"
#include "device_support.h"
#include "graph_support.h"

static weir_stream origin, side;

static inline int open_scene(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB, .host_devices = 2 });
    origin = new_stream(0);
    side = new_stream(0);
    return 0;
}

static const weir_backend *const b = &wr_backend_host;

/* When a test ends, no memory is held by anyone. */
static inline void expect_nothing_left(void)
{
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(stats_of(0).pending_frees, 0);
}

#define on_device(test) cmocka_unit_test_setup_teardown(test, open_scene, close_host)

#endif
