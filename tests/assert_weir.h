/*
 * assert_weir: calls of the library that must succeed, or must be refused with one status. Include after the cmocka
 * headers.
 */
#ifndef WEIR_TESTS_ASSERT_WEIR_H
#define WEIR_TESTS_ASSERT_WEIR_H

#include "weir/weir.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Shows the library's own explanation, not only a number. */
#define assert_ok(call)                                                                                                \
    do {                                                                                                               \
        weir_status status_ = (call);                                                                                  \
        if (status_ != WEIR_OK) fail_msg("%s: %s: %s", #call, weir_status_name(status_), weir_error_text());           \
    } while (0)

#define assert_status(call, expected)                                                                                  \
    do {                                                                                                               \
        weir_status status_ = (call);                                                                                  \
        if (status_ != (expected))                                                                                     \
            fail_msg("%s: %s, expected %s: %s", #call, weir_status_name(status_), #expected, weir_error_text());       \
    } while (0)

static inline void *alloc_on(size_t bytes, weir_stream stream)
{
    void *pointer = NULL;
    assert_ok(weir_alloc_on(bytes, stream, &pointer));
    assert_non_null(pointer);
    return pointer;
}

#endif
