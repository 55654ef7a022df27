/*
 * handle_bind: binds a handle to a stream, and manages the memory that it works in there.
 * Owner and lock: as in handle.h; the caller owns the handle.
 */
#ifndef WR_HANDLE_HANDLE_BIND_H
#define WR_HANDLE_HANDLE_BIND_H

#include "handle/handle.h"

/* Around every library call that takes a handle: the device is current for this thread, and what the library asks of
 * the driver ends no capture where that can be helped. */
WR_CHECKED weir_status wr_handle_scope_enter(const wr_handle_pool *pool, weir_backend_scope *scope);
void wr_handle_scope_leave(const wr_handle_pool *pool, weir_backend_scope *scope);

/* The error for a library function that did not return 0. */
WR_CHECKED weir_status wr_handle_refused(const wr_kind *kind, const char *what, int code);

/* Tells a fresh handle to take its device memory from weir, where its library can be told. */
WR_CHECKED weir_status wr_handle_feed(wr_handle *handle);

/* Frees all workspaces. The handle is destroyed, or must be bound again before it is used. */
void wr_handle_drop_workspaces(wr_handle *handle);

#endif
