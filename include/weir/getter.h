/**
 * @file getter.h
 * @brief Makes typed forms of weir_handle_get() and weir_handle_get_on(). weir/cuda.h and weir/hip.h use it for the
 *        built-in kinds; a program may use it for kinds that it registered.
 */
#ifndef WEIR_GETTER_H
#define WEIR_GETTER_H

#include "weir/weir.h"

/**
 * Defines
 *     weir_status name(type *handle);                        as weir_handle_get(kind, ...)
 *     weir_status name_on(weir_stream stream, type *handle); as weir_handle_get_on(kind, stream, ...)
 * where `type` is a pointer type. Both pass a `void *` of their own, since a `type *` must not alias a `void **`.
 */
#define WEIR_HANDLE_GETTER(name, type, kind)                                                                           \
    static inline weir_status name(type *handle)                                                                       \
    {                                                                                                                  \
        void *found = NULL;                                                                                            \
        weir_status status = weir_handle_get(kind, handle ? &found : NULL);                                            \
        if (status == WEIR_OK) *handle = WEIR_CAST(static_cast, type, found);                                          \
        return status;                                                                                                 \
    }                                                                                                                  \
    static inline weir_status name##_on(weir_stream stream, type *handle)                                              \
    {                                                                                                                  \
        void *found = NULL;                                                                                            \
        weir_status status = weir_handle_get_on(kind, stream, handle ? &found : NULL);                                 \
        if (status == WEIR_OK) *handle = WEIR_CAST(static_cast, type, found);                                          \
        return status;                                                                                                 \
    }

#endif
