/*
 * kind: what a pool of handles needs to know of one kind of handle. Vendor libraries (library.h) and registered kinds
 * look the same from above.
 * Owner: the registry of kinds (device/kinds.h), for the life of the process. The functions are called without any
 * lock and from any thread; they return the library's own code, 0 for success.
 */
#ifndef WR_BACKEND_KIND_H
#define WR_BACKEND_KIND_H

#include "base/status.h"
#include "weir/backend.h"

#include <stdbool.h>
#include <stddef.h>

/* Device memory for a library that accepts an allocator (cuDSS, MIOpen): from weir's cache, in stream order. A NULL
 * `native_stream` with `on_bound` means the stream that the handle is bound to. */
typedef struct wr_kind_memory {
    void *context;
    int (*alloc)(void *context, size_t bytes, void *native_stream, bool on_bound, void **out);
    int (*free)(void *context, void *pointer, void *native_stream, bool on_bound);
} wr_kind_memory;

typedef struct wr_kind wr_kind;

struct wr_kind {
    const char *name;
    uint32_t flags; /* WEIR_HANDLE_* */
    void *self;     /* first argument of the functions below */

    /* Finds the library, once; cheap afterwards. NULL: nothing to find. */
    weir_status (*load)(void *self);
    /* On the device, which is current; those are its capabilities. */
    int (*create)(void *self, int device, const weir_device_caps *caps, void **handle);
    bool keeps_failed; /* a create that fails may still give a handle, which must be destroyed */
    /* Whether WEIR_HANDLE_CREATE_SYNCS, among the flags, holds for such a device; NULL: it does. */
    bool (*create_syncs)(void *self, const weir_device_caps *caps);
    int (*destroy)(void *self, void *handle);
    int (*bind)(void *self, void *handle, void *native_stream); /* NULL: handles have no stream */
    int (*reset)(void *self, void *handle);                     /* NULL: nothing to reset */

    /* Bytes of workspace a handle wants from weir on such a device; NULL or 0: none. */
    size_t (*workspace_bytes)(void *self, const weir_device_caps *caps);
    int (*set_workspace)(void *self, void *handle, void *workspace, size_t bytes);
    /* Gives a fresh handle an allocator for device memory; `memory` outlives the handle. NULL: the library accepts
     * none. */
    int (*set_memory)(void *self, void *handle, const wr_kind_memory *memory);

    /* Whether a create failed for want of memory: it is then tried again after caches were emptied. */
    bool (*is_out_of_memory)(void *self, int code);
    /* The library's words for a code; never NULL. */
    const char *(*error_text)(void *self, int code);
    /* Writes the library's file and version, as far as known without a handle, into zeroed memory; after `load`. NULL:
     * nothing to say. */
    void (*describe)(void *self, weir_handle_kind_info *info);
};

#endif
