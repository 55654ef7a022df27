/*
 * handle_native: the library's own handle, from its create to its destroy.
 * Owner: the caller, who puts it into a record of the pool. Lock: none is held.
 */
#ifndef WR_HANDLE_HANDLE_NATIVE_H
#define WR_HANDLE_HANDLE_NATIVE_H

#include "handle/handle.h"
#include "handle/handle_measure.h"

static inline bool wr_handle_destroy_is_harmful(const wr_handle_pool *pool)
{
    return pool->kind->flags & WEIR_HANDLE_DESTROY_SYNCS;
}

/* WEIR_ERR_CAPTURE when the create would end a capture. A create that finds no memory is tried again once
 * caches were emptied, and `measure` begins again before it. */
WR_CHECKED weir_status wr_handle_native_create(const wr_handle_pool *pool, void **native, wr_handle_measure *measure);

/* The handle is gone, also on failure. */
WR_CHECKED weir_status wr_handle_native_destroy(const wr_handle_pool *pool, void *native);

#endif
