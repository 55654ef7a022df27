/**
 * @file backend.h
 * @brief What a driver must provide: one narrow table. For people adding a back end, and for the tests.
 *
 * Rules that hold for every entry
 * - A device is its ordinal. A stream, event or graph is the driver's own object as a `void *`; stream NULL is the
 *   device's default stream. The entry makes the device current for the driver if the driver needs that, and leaves
 *   the caller's current device or context as it found it (device_set_current excepted).
 * - Out-parameters are untouched on failure. A failed entry leaves nothing behind.
 * - Any thread may call any entry at any time. Entries on one stream are ordered by the caller.
 * - No entry may invalidate a stream capture that is underway on any thread, unless it is about that very stream:
 *   back ends whose driver is touchy wrap the call (CUDA: the relaxed capture-mode exchange).
 * - Failure detail is kept per thread, by wr_fail_native() in the library.
 * - Entries are in a fixed order; only the tail grows. Those marked optional may be NULL; a group is all or nothing.
 */
#ifndef WEIR_BACKEND_H
#define WEIR_BACKEND_H

#include "weir/weir.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The options that a back end gets, from weir_settings and the environment. */
typedef struct weir_backend_config {
    size_t size;
    uint64_t host_devices; /**< host only */
    uint64_t host_memory;  /**< host only: bytes per device */
} weir_backend_config;

/** What a device is; device_open reports it once. */
typedef struct weir_device_caps {
    char name[64];
    uint64_t total_memory;
    uint64_t granularity;      /**< of vm_create and vm_map; 0: no virtual memory */
    int32_t priority_least;    /**< numerically largest */
    int32_t priority_greatest; /**< numerically smallest */
    uint32_t compute_major, compute_minor;
    uint32_t chunk_aliases; /**< not 0: a chunk may be mapped at several addresses, and kernels see the same memory */
    uint64_t mappings_most; /**< weir keeps no more mappings of chunks than it needs beyond that many; 0: no bound */
} weir_device_caps;

/** CUDA's capture states, same values, and one more: IMPLICIT is the state of the default stream while a stream that
 *  synchronises with it is capturing. The default stream captures nothing itself, but work queued on it would
 *  invalidate that capture (CUDA's error 906, which cuStreamIsCapturing reports). */
typedef enum weir_capture_state {
    WEIR_CAPTURE_NONE = 0,
    WEIR_CAPTURE_ACTIVE = 1,
    WEIR_CAPTURE_INVALIDATED = 2,
    WEIR_CAPTURE_IMPLICIT = 3
} weir_capture_state;

/** A physical chunk of device memory made by vm_create. */
typedef uint64_t weir_chunk;

/** What scope_enter replaced; the back end's own business. */
typedef struct weir_backend_scope {
    uint64_t saved[4];
} weir_backend_scope;

/** Every entry of the table once, in order: the names in counters, scripted failures and messages. */
/* clang-format off */
#define WEIR_BACKEND_ENTRIES(X)                                                                                        \
    X(open) X(close) X(device_count) X(device_open) X(device_close) X(device_get_current) X(device_set_current)        \
    X(device_memory) X(device_synchronize) X(peer_enable)                                                              \
    X(segment_alloc) X(segment_free)                                                                                   \
    X(vm_reserve) X(vm_release) X(vm_create) X(vm_destroy) X(vm_map) X(vm_unmap) X(vm_access)                          \
    X(pinned_alloc) X(pinned_free)                                                                                     \
    X(stream_create) X(stream_destroy) X(stream_query) X(stream_synchronize) X(stream_wait) X(stream_callback)         \
    X(event_create) X(event_destroy) X(event_record) X(event_query) X(event_synchronize)                               \
    X(copy) X(fill)                                                                                                    \
    X(capture_begin) X(capture_end) X(capture_status) X(graph_instantiate) X(graph_launch) X(graph_exec_destroy)       \
    X(graph_destroy)                                                                                                   \
    X(clock_ns) X(scope_enter) X(scope_leave)                                                                          \
    X(host_register) X(host_unregister) X(managed_alloc) X(managed_free)                                               \
    X(vm_create_exportable) X(vm_export) X(vm_import) X(capture_tips) X(node_dependencies) X(stream_check)

enum weir_backend_entry {
#define WEIR_BACKEND_ENTRY(name) WEIR_BACKEND_##name,
    WEIR_BACKEND_ENTRIES(WEIR_BACKEND_ENTRY)
#undef WEIR_BACKEND_ENTRY
    WEIR_BACKEND_ENTRY_COUNT
};
/* clang-format on */

/** The table. */
typedef struct weir_backend {
    size_t size;               /**< sizeof(weir_backend) the back end was compiled with */
    const char *name;          /**< "cuda", "hip", "host" */
    bool forks;                /**< a child of fork() may go on with it while no device is open; not so with drivers */
    bool synchronize_ends_all; /**< device_synchronize ends captures of every device (HIP), not only of its own */

    /** Finds and initialises the driver; no context is created. @return WEIR_ERR_NO_LIBRARY naming what was looked
     *  for. Called once before anything else. */
    weir_status (*open)(const weir_backend_config *config);
    /** Undoes open. Every device has been closed. */
    weir_status (*close)(void);

    weir_status (*device_count)(int *count);
    /** Prepares a device for use (CUDA: retains the primary context). Called once per device and open. */
    weir_status (*device_open)(int device, weir_device_caps *caps);
    weir_status (*device_close)(int device);
    /** The driver's current device of this thread. Optional: NULL where the driver has no such notion. */
    weir_status (*device_get_current)(int *device);
    /** Makes a device current for this thread, until it is changed again. It may be a device that is not open, if that
     *  was current before; it is not opened. Optional, with the entry above. */
    weir_status (*device_set_current)(int device);
    weir_status (*device_memory)(int device, uint64_t *free_bytes, uint64_t *total_bytes);
    weir_status (*device_synchronize)(int device);
    /** Lets `device` access memory of `peer`; success when it could already. WEIR_ERR_NOT_SUPPORTED when it cannot. */
    weir_status (*peer_enable)(int device, int peer);

    /** Plain device memory, aligned to at least 512 bytes (2 MiB when `bytes` is a multiple of 2 MiB). */
    weir_status (*segment_alloc)(int device, size_t bytes, void **base);
    /** `bytes` as given to segment_alloc. The caller makes sure that no queued work uses the memory. */
    weir_status (*segment_free)(int device, void *base, size_t bytes);

    /* Virtual memory: optional group; caps.granularity says whether the device has it. Sizes and addresses are
     * multiples of the granularity. None of these waits for running work. */
    /** Reserves addresses. `hint` is a wish, 0 for none. */
    weir_status (*vm_reserve)(int device, size_t bytes, uint64_t hint, void **base);
    weir_status (*vm_release)(int device, void *base, size_t bytes);
    /** Creates physical memory; it counts against the device until vm_destroy and the last vm_unmap. No two chunks of a
     *  device have the same value at a time. */
    weir_status (*vm_create)(int device, size_t bytes, weir_chunk *chunk);
    weir_status (*vm_destroy)(int device, weir_chunk chunk, size_t bytes);
    /** Maps a whole chunk; the same chunk may be mapped at several addresses (aliases see each other's writes). */
    weir_status (*vm_map)(int device, void *base, size_t bytes, weir_chunk chunk);
    weir_status (*vm_unmap)(int device, void *base, size_t bytes);
    /** Gives `accessor` read and write access to a mapped range. Without it, touching the range is an error.
     *  WEIR_ERR_DEVICE_LOST when either device is lost. */
    weir_status (*vm_access)(int device, void *base, size_t bytes, int accessor);

    /** Page-locked host memory that every device can reach. `device` is the one it is meant for. */
    weir_status (*pinned_alloc)(int device, size_t bytes, void **base);
    weir_status (*pinned_free)(int device, void *base, size_t bytes);

    /** A stream that does not synchronise with the default stream. `priority` is within the device's range. */
    weir_status (*stream_create)(int device, int priority, void **stream);
    /** Work already queued still completes. */
    weir_status (*stream_destroy)(int device, void *stream);
    /** WEIR_OK: idle. WEIR_ERR_NOT_READY: busy. */
    weir_status (*stream_query)(int device, void *stream);
    weir_status (*stream_synchronize)(int device, void *stream);
    /** Later work on the stream waits for the event's last record; an event never recorded does not wait. */
    weir_status (*stream_wait)(int device, void *stream, void *event);
    /** Runs function(argument) on some thread, in stream order. It must not call the driver. */
    weir_status (*stream_callback)(int device, void *stream, void (*function)(void *), void *argument);

    /** An event without timing. Belongs to the device. */
    weir_status (*event_create)(int device, void **event);
    /** Legal while the recorded work is still pending. */
    weir_status (*event_destroy)(int device, void *event);
    weir_status (*event_record)(int device, void *event, void *stream);
    /** WEIR_OK: the last record completed, or there was none. WEIR_ERR_NOT_READY: it has not. */
    weir_status (*event_query)(int device, void *event);
    weir_status (*event_synchronize)(int device, void *event);

    /** Queues a copy; either side may be device, pinned or plain host memory. */
    weir_status (*copy)(int device, void *stream, void *destination, const void *source, size_t bytes);
    weir_status (*fill)(int device, void *stream, void *destination, unsigned char value, size_t bytes);

    /* Capture: what is queued on a capturing stream is recorded, not run; a capture spreads to other streams through
     * events, as in CUDA. Optional group. */
    weir_status (*capture_begin)(int device, void *stream, weir_capture_mode mode);
    /** Ends the capture and gives the graph. A capture that was invalidated gives WEIR_ERR_CAPTURE and no graph, and
     *  the stream is usable again. */
    weir_status (*capture_end)(int device, void *stream, void **graph);
    /** `id` is unique to a capture in the process; set when the state is ACTIVE. Legal at any time. */
    weir_status (*capture_status)(int device, void *stream, weir_capture_state *state, uint64_t *id);
    weir_status (*graph_instantiate)(int device, void *graph, void **exec);
    weir_status (*graph_launch)(int device, void *exec, void *stream);
    weir_status (*graph_exec_destroy)(int device, void *exec);
    weir_status (*graph_destroy)(int device, void *graph);

    /** Monotonic time in nanoseconds, from which weir tells what share of a program's time mapping takes. Called
     *  without a lock; makes no driver call. */
    weir_status (*clock_ns)(uint64_t *now);

    /** For calls into foreign code (a vendor library's create): until scope_leave, the device is current for this
     *  thread, and driver calls made by that code do not invalidate a capture where that can be helped (CUDA: the
     *  relaxed capture mode exchange). Nests. Optional, together. */
    weir_status (*scope_enter)(int device, weir_backend_scope *scope);
    /** Puts back what scope_enter replaced. Cannot fail. */
    void (*scope_leave)(weir_backend_scope *scope);

    /** Page-locks the caller's host memory, whole pages, for every device, at the same address. Optional, with the
     *  next. */
    weir_status (*host_register)(int device, void *base, size_t bytes);
    weir_status (*host_unregister)(int device, void *base, size_t bytes);

    /** Memory that the driver moves between host and device; aligned as segment_alloc's. Optional, with the next. */
    weir_status (*managed_alloc)(int device, size_t bytes, void **base);
    weir_status (*managed_free)(int device, void *base, size_t bytes);

    /* Sharing physical memory between processes: optional group. */
    /** As vm_create, for a chunk that vm_export accepts. vm_export may accept vm_create's, too, or refuse them with
     *  WEIR_ERR_NOT_SUPPORTED. */
    weir_status (*vm_create_exportable)(int device, size_t bytes, weir_chunk *chunk);
    /** A file descriptor for the chunk, the caller's to close. */
    weir_status (*vm_export)(int device, weir_chunk chunk, int *descriptor);
    /** The chunk behind such a descriptor, which stays the caller's; `bytes` is the chunk's size. It takes no further
     *  memory of the device. End it with vm_destroy. */
    weir_status (*vm_import)(int device, int descriptor, size_t bytes, weir_chunk *chunk);

    /* The order inside a capture: optional, together. Both write at most `capacity` nodes, and set *count to how many
     * there are. WEIR_ERR_NOT_SUPPORTED when a node is not waited for as a whole (CUDA: programmatic launches). */
    /** The nodes that the next work queued on a capturing stream would depend on. WEIR_ERR_CAPTURE when it does not
     *  capture. */
    weir_status (*capture_tips)(int device, void *stream, void **nodes, size_t capacity, size_t *count);
    /** The nodes that a node of a capture underway depends on directly. */
    weir_status (*node_dependencies)(int device, void *node, void **nodes, size_t capacity, size_t *count);

    /** Asked once about a stream that somebody else made: WEIR_OK when the device's other entries can work with it,
     *  WEIR_ERR_INVALID_STREAM when not (CUDA: it is neither of the primary context nor of a green one). Optional;
     *  NULL: any will do. */
    weir_status (*stream_check)(int device, void *stream);
} weir_backend;

#ifdef __cplusplus
}
#endif
#endif
