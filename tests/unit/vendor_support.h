/*
 * vendor_support: what tests of the cuda and hip back ends over a stand-in for the vendor's library have in common.
 * cuda_support.h and hip_support.h include it, after saying which back end `b` is.
 */
#ifndef WEIR_TESTS_VENDOR_SUPPORT_H
#define WEIR_TESTS_VENDOR_SUPPORT_H

#include "assert_weir.h"
#include "backend/backend.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define ok(call) assert_int_equal(call, WEIR_OK)

static const weir_backend_config vendor_config = { .size = sizeof vendor_config,
                                                   .host_devices = 1,
                                                   .host_memory = 1 << 24 };

static void (*standin_fail)(const char *name, unsigned long nth, int code);
static unsigned long (*standin_calls)(const char *name);

static inline void *standin_function(void *library, const char *name)
{
    void *found = dlsym(library, name);
    assert_non_null(found);
    return found;
}

/* `variable`: by which the back end finds it. */
static inline void *load_standin(const char *variable, const char *path)
{
    setenv(variable, path, 1);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never unloaded, as the back end's own handle */
    if (library == NULL) fail_msg("%s", dlerror());
    return library;
}

static inline void open_device_0(void)
{
    weir_device_caps caps;
    ok(b->open(&vendor_config));
    ok(b->device_open(0, &caps));
}

static inline int close_vendor(void **state)
{
    (void)state;
    weir_status status = b->close();
    assert_true(status == WEIR_OK || status == WEIR_ERR_DEVICE_LOST);
    return 0;
}

/* Leaves what is to be made as it was. */
static inline void refuse_what_cannot_be(void)
{
    void *base = &base;
    weir_chunk chunk;
    assert_int_equal(b->pinned_alloc(0, 0, &base), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->managed_alloc(0, 0, &base), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->segment_alloc(0, 0, &base), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->vm_create(0, 0, &chunk), WEIR_ERR_INVALID_ARGUMENT);
    assert_ptr_equal(base, &base);
}

static inline int64_t native_code(void)
{
    weir_error error = { .size = sizeof error };
    ok(weir_last_error(&error));
    assert_string_equal(error.library, b->name);
    return error.native_code;
}

static inline void *new_event(void)
{
    void *event;
    ok(b->event_create(0, &event));
    return event;
}

static inline void *new_stream(void)
{
    void *stream;
    ok(b->stream_create(0, 0, &stream));
    return stream;
}

#endif
