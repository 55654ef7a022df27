/*
 * whole_library: a first use of the whole library on a real GPU, whichever back end it is. Include after the cmocka
 * headers.
 */
#ifndef WEIR_TESTS_GPU_WHOLE_LIBRARY_H
#define WEIR_TESTS_GPU_WHOLE_LIBRARY_H

#include "assert_weir.h"

static inline void run_whole_library(const char *backend)
{
    weir_settings settings = { .size = sizeof settings, .backend = backend };
    unsigned char sent[4096], received[4096] = { 0 };
    weir_stream stream;
    void *blocks[8];
    for (size_t i = 0; i < sizeof sent; i++) sent[i] = (unsigned char)(i * 13);

    assert_ok(weir_open(&settings));
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &stream));
    for (size_t i = 0; i < 8; i++) blocks[i] = alloc_on(4096 << i, stream);
    assert_ok(weir_copy(blocks[0], sent, sizeof sent, stream));
    for (size_t i = 1; i < 8; i++) assert_ok(weir_copy(blocks[i], blocks[i - 1], sizeof sent, stream));
    assert_ok(weir_copy(received, blocks[7], sizeof received, stream));
    assert_ok(weir_stream_synchronize(stream));
    assert_memory_equal(sent, received, sizeof sent);
    for (size_t i = 0; i < 8; i++) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_validate(0));
    assert_ok(weir_close());
}

#endif
