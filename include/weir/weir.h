/**
 * @file weir.h
 * @brief weir: GPU resource management for any program. The user API, in the order of the data flow: status, library,
 *        devices, streams, memory, private pools, sharing, pausing, graphs, pinned memory, library handles, statistics.
 *        Recorded events, reports as text, plans, typed handle getters and back ends have headers of their own.
 *
 * Conventions
 * - Every function that can fail returns a weir_status: 0 is good, negative is an error. Out-parameters come last
 *   and are untouched on failure. What exactly happened is kept per thread: weir_error_text().
 * - All functions may be called from any thread at any time, unless one says otherwise. The library opens itself on
 *   first use, with options from the environment; weir_open() is for programs that want to choose.
 * - Sizes are bytes. A device is its ordinal in the back end; WEIR_DEVICE_CURRENT is the calling thread's current one.
 * - In a child of a process that had started a driver (host back end: had opened a device) before fork(), every call
 *   that would touch a device returns WEIR_ERR_FORKED. Fork before the first use of weir.
 * - Any function returns WEIR_ERR_INVALID_ARGUMENT for a NULL that its comment does not allow and for a `size` that was
 *   not set, and WEIR_ERR_NO_DEVICE for a device that does not exist. There are four exceptions. NULL as the address to
 *   look up is WEIR_ERR_UNKNOWN_POINTER, like any address that is not weir's (weir_record_stream(),
 *   weir_pointer_info_get(), weir_export(), weir_import_close(), weir_pinned_record()). A wrong weir_settings.size is
 *   WEIR_ERR_OPTION, like everything else that weir_open() refuses in the settings. weir_plan_decode() of zero bytes at
 *   NULL is WEIR_ERR_FORMAT. weir_copy() and weir_fill() of 0 bytes allow NULL.
 * - The `size` of a structure is set by its initialiser or by the program, so that a program compiled with a newer
 *   header can run with an older library. Where the program fills a structure in, members that the library does not
 *   know must be zero, or the call is refused; where the library fills it in, it sets them to zero.
 * - Besides the errors listed for it, any function may return WEIR_ERR_NO_LIBRARY or WEIR_ERR_NO_DEVICE (the driver or
 *   the device is not there), WEIR_ERR_DRIVER (it failed; weir_last_error() has its code), WEIR_ERR_DEVICE_LOST,
 *   WEIR_ERR_OUT_OF_HOST_MEMORY, and, if it opens the library with a bad option, WEIR_ERR_OPTION.
 * - A thread must not be cancelled (pthread_cancel()) inside a function of weir's: it could end with locks held, and
 *   other threads would block on them forever. In threads that may be cancelled, disable that around calls.
 * - No function may be called from a signal handler: what it interrupted may be weir itself, in the middle of a change.
 * - Nothing is printed unless asked for (WEIR_LOG); nothing is done at process exit.
 */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_VERSION_MAJOR 0
#define WEIR_VERSION_MINOR 1
#define WEIR_VERSION_PATCH 0

#if defined(__GNUC__)
#define WEIR_API __attribute__((visibility("default")))
#else
#define WEIR_API
#endif

/** A cast; in C++ a named one, such as static_cast, so that -Wold-style-cast does not warn of it. */
#ifdef __cplusplus
#define WEIR_CAST(kind, type, value) kind<type>(value)
#else
#define WEIR_CAST(kind, type, value) ((type)(value))
#endif

/* ---- status ------------------------------------------------------------------------------------------------------ */

/** Every status once: name, value (pinned for ever), meaning. */
#define WEIR_STATUS_MAP(X)                                                                                             \
    X(WEIR_OK, 0, "success")                                                                                           \
    X(WEIR_ERR_INVALID_ARGUMENT, -1, "invalid argument")                                                               \
    X(WEIR_ERR_OUT_OF_MEMORY, -2, "out of device memory")                                                              \
    X(WEIR_ERR_OUT_OF_HOST_MEMORY, -3, "out of host memory")                                                           \
    X(WEIR_ERR_NO_LIBRARY, -4, "library not found")                                                                    \
    X(WEIR_ERR_NO_DEVICE, -5, "no such device")                                                                        \
    X(WEIR_ERR_UNKNOWN_POINTER, -6, "pointer not allocated by weir")                                                   \
    X(WEIR_ERR_DOUBLE_FREE, -7, "pointer already freed")                                                               \
    X(WEIR_ERR_WRONG_DEVICE, -8, "object belongs to another device")                                                   \
    X(WEIR_ERR_POOL_MISMATCH, -9, "object belongs to another pool")                                                    \
    X(WEIR_ERR_WRONG_THREAD, -10, "object belongs to another thread")                                                  \
    X(WEIR_ERR_FORKED, -11, "process was forked after weir opened a device")                                           \
    X(WEIR_ERR_CLOSED, -12, "library was closed")                                                                      \
    X(WEIR_ERR_BUSY, -13, "object is in use")                                                                          \
    X(WEIR_ERR_TIMEOUT, -14, "timed out")                                                                              \
    X(WEIR_ERR_NOT_SUPPORTED, -15, "not supported here")                                                               \
    X(WEIR_ERR_NOT_READY, -16, "work has not completed yet")                                                           \
    X(WEIR_ERR_CAPTURE, -17, "not allowed while a capture is underway")                                                \
    X(WEIR_ERR_DRIVER, -18, "driver call failed")                                                                      \
    X(WEIR_ERR_DEVICE_LOST, -19, "device was lost or reset")                                                           \
    X(WEIR_ERR_LIBRARY, -20, "vendor library call failed")                                                             \
    X(WEIR_ERR_INCOMPATIBLE, -21, "incompatible version")                                                              \
    X(WEIR_ERR_OPTION, -22, "bad option")                                                                              \
    X(WEIR_ERR_IO, -23, "input or output failed")                                                                      \
    X(WEIR_ERR_FORMAT, -24, "malformed file")                                                                          \
    X(WEIR_ERR_INVALID_STREAM, -25, "no such stream")                                                                  \
    X(WEIR_ERR_INTERNAL, -26, "internal invariant broken")                                                             \
    X(WEIR_ERR_CORRUPT, -27, "memory was written that nobody may write")

/** Result of every fallible call; fits 32 bits. */
typedef enum weir_status {
#define WEIR_STATUS_ENUM(name, value, text) name = value,
    WEIR_STATUS_MAP(WEIR_STATUS_ENUM)
#undef WEIR_STATUS_ENUM
} weir_status;

/** Name of a status ("WEIR_ERR_BUSY"); "WEIR_ERR_UNKNOWN" for a value that is not a status. Never NULL. Since 0.1. */
WEIR_API const char *weir_status_name(weir_status status);

/** What a status means, in a few words. Never NULL. Since 0.1. */
WEIR_API const char *weir_status_text(weir_status status);

/**
 * What went wrong in the calling thread's last failed weir call, and what to do about it: one or more lines, no
 * trailing newline. Empty while no call has failed. The text belongs to the thread and is valid until its next call
 * that fails, or that succeeds only after something in it failed (an allocation that the driver refused at first).
 * WEIR_ERR_NOT_READY is an answer, not a failure, and does not replace the text. Since 0.1.
 */
WEIR_API const char *weir_error_text(void);

/** The parts of the calling thread's last error. `size` must be set to sizeof(weir_error) by the caller. Since 0.1. */
typedef struct weir_error {
    size_t size;
    weir_status status;
    int64_t native_code; /**< the driver's or vendor library's own code; 0 when none was involved */
    char library[32];    /**< which one ("cuda", "hip", "host", "cusparse"); empty when none was involved */
    char text[1024];     /**< as weir_error_text(), cut to fit */
} weir_error;

/** Copies the calling thread's last error. @return WEIR_ERR_INVALID_ARGUMENT when `out` is NULL or its size is wrong.
 *  Since 0.1. */
WEIR_API weir_status weir_last_error(weir_error *out);

/** Prints the failed call, its status and weir_error_text() to stderr, then calls exit(1). WEIR_CHECK calls it. Since
 *  0.1. */
WEIR_API void weir_check_failed(const char *call, weir_status status, const char *file, int line);

/** Ends the program if the call fails: for examples, and for programs that have no better answer to a failure. */
#define WEIR_CHECK(call)                                                                                               \
    do {                                                                                                               \
        weir_status weir_check_status_ = (call);                                                                       \
        if (weir_check_status_ != WEIR_OK) weir_check_failed(#call, weir_check_status_, __FILE__, __LINE__);           \
    } while (0)

/* ---- library ----------------------------------------------------------------------------------------------------- */

/**
 * What a program may choose when it opens the library. Initialise with WEIR_SETTINGS_INIT. A member left zero or NULL
 * keeps its default. An environment variable WEIR_<NAME> overrides the member, because the operator has the last word.
 * `weir info` prints the options in force and where each came from. Only the tail grows.
 *
 * weir_open() returns WEIR_ERR_OPTION for a value that is out of range or that needs another option which is not set,
 * and for an environment variable WEIR_<NAME> that is not an option. It ignores the ones that others set or read:
 * WEIR_LIBRARY (the Python package), WEIR_ROOT, WEIR_DIR, WEIR_HOME, and Kubernetes' WEIR_SERVICE_... and WEIR_PORT...
 */
typedef struct weir_settings {
    size_t size; /**< sizeof(weir_settings); set by WEIR_SETTINGS_INIT */
    /** "cuda", "hip", "host", or "auto" (default): the first driver that has a device, or "host" if none has. A driver
     *  that loads but fails for any other reason is an error; one that is there and does not load is logged (warn). */
    const char *backend;
    const char *policy;    /**< placement policy: "weir" (default), "segments", "torch" or "torch-exact" */
    uint64_t memory_limit; /**< bytes weir may reserve per device, up to 256 TiB; 0: no limit but the device's */
    uint64_t host_devices; /**< host back end: number of devices, 1 to 64 (default 1) */
    /** Host back end: memory per device, 2 MiB to 16 TiB (default 80 GiB; costs RAM only when touched). */
    uint64_t host_memory;
    /** Blocks of at least this size are never split (PyTorch's option). 0: always split. Must be larger than
     *  large_segment, or with the policies "torch" and "torch-exact" at least as large; up to 256 TiB. */
    uint64_t max_split_size;
    /** Segment size for requests of 1 to 10 MiB, 2 MiB to 64 GiB; default 20 MiB. Rounded up to a multiple of 2 MiB,
     *  also where max_split_size is compared with it. Ignored by the chunks of policy "weir". */
    uint64_t large_segment;
    const char *roundup_power2_divisions; /**< PyTorch's grammar: "4" or "[256:1,512:2,>:4]"; default off */
    /** Share, 0 to 1, of memory_limit (or of what weir_memory_limit_set() says) above which idle segments are collected
     *  by age; without a limit nothing is collected. 0: off. Any other value, with or without a limit, makes policy
     *  "weir" use segments instead of chunks (docs/memory.md). */
    double gc_threshold;
    uint64_t history; /**< events kept per device for weir_history_*, at most 1,000,000,000; 0: recording off */
    const char *log;  /**< "off" (default), "error", "warn", "info" or "debug"; to stderr */
    /** Checks, docs/debugging.md: "redzone,poison,stacks,leaks,streams,nosub"; "all" is all but the last two. */
    const char *debug;
    /** Frames of call stack recorded with each event, up to 64; 0: none. Needs `history`. */
    uint64_t history_stacks;
    uint64_t history_stacks_kept; /**< distinct call stacks of the whole process, at most 16,777,216; default 65536 */
    /** "off" (default), or "auto": a thread of weir's own does what weir_plan_learn() of weir/plan.h does. Needs
     *  `history`, and policy "weir" without max_split_size and gc_threshold. Where the device or `debug` allows no
     *  plan, that is logged (warn), and none is made. */
    const char *plan;
    uint64_t plan_share; /**< 1: in learned plans streams may share memory, and wait for each other; default 0 */
    /** A free block that is never split (max_split_size) serves a request only if it is less than this many bytes
     *  larger (PyTorch's max_non_split_rounding_mb); up to 256 TiB. 0 (default): large_segment. */
    uint64_t max_non_split_rounding;
} weir_settings;

#define WEIR_SETTINGS_INIT                                                                                             \
    { sizeof(weir_settings), NULL, NULL, 0, 0, 0, 0, 0, NULL, 0, 0, NULL, NULL, 0, 0, NULL, 0, 0 }

/**
 * Opens the library with chosen settings (NULL: defaults and environment). Optional: the first call that needs the
 * library opens it. Opening does not touch any device; a device is opened when first used.
 * @return WEIR_ERR_BUSY when the library is open already; WEIR_ERR_OPTION naming the bad option, its value and its
 *         range, or an unknown variable WEIR_... and the nearest known one; WEIR_ERR_NO_LIBRARY when the named back end
 *         is not there. Since 0.1.
 */
WEIR_API weir_status weir_open(const weir_settings *settings);

/**
 * Gives everything back, whichever part of the program has it: all device memory (blocks still allocated too), and
 * weir's own streams and events. A library or plug-in that shares the process should not call this. Nothing else frees
 * resources at shutdown: a process that just exits leaves that to the driver. Waits for queued work. Captures that the
 * program began itself should have ended, or the driver refuses to wait. No other weir call may run at the same time.
 *
 * Afterwards every call returns WEIR_ERR_CLOSED until weir_open() is called again. Exceptions are calls with an
 * argument that is bad in itself, and calls that need no device: weir_version(), names, texts and errors (also as
 * JSON), weir_free() and weir_pinned_free() of NULL, weir_handle_kind_register(), weir_handle_kind_info_get(), labels
 * of the history and weir_history_stacks_from(), weir_plan_decode() and weir_plan_encode(), and functions that destroy
 * the program's own objects (a plan, a checkpoint). weir/host.h says what its calls return.
 * @return WEIR_OK, also when the library was not open, which changes nothing: one that was never open is still opened
 *         by the first call that needs it; the first error of a driver call, with everything else released all the
 *         same; WEIR_ERR_FORKED in a forked child, with nothing touched. Since 0.1.
 */
WEIR_API weir_status weir_close(void);

/** "0.1.0". Since 0.1. */
WEIR_API const char *weir_version(void);

/** Name of the back end in use: "host", "cuda" or "hip". Opens the library if needed. Since 0.1. */
WEIR_API weir_status weir_backend_name(const char **name);

/** An option and its value in force, for programs that show them. Strings are static, or valid until weir_close(). */
typedef struct weir_option_info {
    size_t size;
    const char *name;        /**< "memory_limit" */
    const char *environment; /**< "WEIR_MEMORY_LIMIT" */
    const char *help;        /**< one line */
    const char *source;      /**< "default", "settings" or "environment" */
    char value[128];         /**< as text; sizes with a unit */
} weir_option_info;

/** The index-th option, from 0. @return WEIR_ERR_INVALID_ARGUMENT past the last. Since 0.1. */
WEIR_API weir_status weir_option_get(unsigned index, weir_option_info *out);

/* ---- devices ----------------------------------------------------------------------------------------------------- */

#define WEIR_DEVICE_CURRENT (-1)

/** Facts about a device. Set `size` first. */
typedef struct weir_device_info {
    size_t size;
    char name[64];
    char backend[16];
    uint64_t total_memory;
    uint64_t free_memory;        /**< as the driver sees it now */
    uint64_t memory_granularity; /**< of virtual memory mappings; 0 when the device has none */
    int32_t priority_least;      /**< stream priorities: the numerically largest, least urgent */
    int32_t priority_greatest;   /**< the numerically smallest, most urgent */
    uint32_t compute_major, compute_minor;
} weir_device_info;

/** Number of devices the back end sees, 64 at most: of more, the first are used. Does not open any. Since 0.1. */
WEIR_API weir_status weir_device_count(int *count);

/** Fills `out`. Opens the device. Since 0.1. */
WEIR_API weir_status weir_device_info_get(int device, weir_device_info *out);

/** The calling thread's current device: the one it set last, or the driver's current device where the back end has one,
 *  else 0. @return WEIR_ERR_NOT_SUPPORTED while a CUDA context other than a primary one (cuCtxCreate, a green context)
 *  is current; every call that uses the current device or stream returns the same. Since 0.1. */
WEIR_API weir_status weir_device_get_current(int *device);

/** Makes `device` current for the calling thread (and for the driver, where the back end has such a notion).
 *  Since 0.1. */
WEIR_API weir_status weir_device_set_current(int device);

/** Waits until all work on the device has completed. @return WEIR_ERR_CAPTURE while weir knows that a stream of the
 *  device (on AMD's devices, of any device) is capturing: waiting would invalidate that capture. Since 0.1. */
WEIR_API weir_status weir_device_synchronize(int device);

/** Lets kernels on `device` access the memory of `peer`, of any kind, present and future. Enabling twice is fine.
 *  @return WEIR_ERR_NOT_SUPPORTED. Since 0.1. */
WEIR_API weir_status weir_device_enable_peer(int device, int peer);

/* ---- streams ----------------------------------------------------------------------------------------------------- */

/** A stream. Passed by value; {0} is the calling thread's current stream of its current device. Stale ones (after
 *  weir_stream_destroy or weir_close) are recognised and refused with WEIR_ERR_INVALID_STREAM. */
typedef struct weir_stream {
    uint64_t id;
} weir_stream;

#ifdef __cplusplus
#define WEIR_STREAM_CURRENT (weir_stream{ 0 })
#else
#define WEIR_STREAM_CURRENT ((weir_stream){ 0 })
#endif

#define WEIR_PRIORITY_DEFAULT 0

/** The device's default stream (what a NULL stream means to the driver). Since 0.1. */
WEIR_API weir_status weir_stream_default(int device, weir_stream *out);

/**
 * A shared stream from the device's pool. Streams are created on demand, up to 32 per priority, and then handed out
 * round robin, so two users can get the same one. Not to be destroyed. Priority 0 is the default, smaller is more
 * urgent (as in CUDA); priorities outside the device's range are clamped. Since 0.1.
 */
WEIR_API weir_status weir_stream_from_pool(int device, int priority, weir_stream *out);

/** A stream of the caller's own, never handed to anybody else; give it back with weir_stream_destroy(). Since 0.1. */
WEIR_API weir_status weir_stream_create(int device, int priority, weir_stream *out);

/**
 * Names a stream that somebody else owns (a cudaStream_t). The same native stream gives the same weir_stream until
 * weir_stream_destroy(), which forgets it and leaves the native stream alone. Call weir_stream_destroy() before the
 * owner destroys the native stream: until then any weir call may ask the driver about it, and the driver crashes when
 * asked about a stream that no longer exists. Two calls are safe even then: weir_free() of memory that was allocated on
 * the stream and recorded on none, and weir_close() while the program captures nothing. Call it also before the owner
 * ends a green context that the stream is of; afterwards still works, as long as the stream itself was not destroyed.
 * NULL and the vendor's number for it (cudaStreamLegacy, 0x1) name the default stream.
 * @return WEIR_ERR_INVALID_ARGUMENT for cudaStreamPerThread (0x2), which is another stream in each thread;
 *         WEIR_ERR_INVALID_STREAM for one that weir cannot work with (CUDA: made in a context other than the device's
 *         primary one; streams of its green contexts will do from CUDA 12.5 on, whose driver can tell them). Since 0.1.
 */
WEIR_API weir_status weir_stream_from_native(int device, void *native, weir_stream *out);

/**
 * Ends a stream from weir_stream_create() or weir_stream_from_native(). Waits for the work on it. Memory that was
 * allocated on it stays valid and belongs to the default stream from then on, both for weir_pointer_info_get() and when
 * it is freed. Its free blocks become available to other streams. No other thread may be queueing work on the stream
 * meanwhile, since the driver would be given a stream that it does not have any more. An allocation there that is
 * underway may return WEIR_ERR_INVALID_STREAM. If the stream is of a green context that has ended, all work of the
 * device is waited for, which cannot be while any of its streams captures (WEIR_ERR_CAPTURE).
 * @return WEIR_ERR_INVALID_ARGUMENT for default and pooled streams; WEIR_ERR_BUSY when it is a current stream of the
 *         calling thread; WEIR_ERR_CAPTURE while it is capturing; WEIR_ERR_INVALID_STREAM when another thread is
 *         destroying it. In these cases the stream stays, as it does when waiting for its work fails. When the driver
 *         refuses to destroy it, the driver's error is returned, but the stream is gone: weir_stream_query() then
 *         returns WEIR_ERR_INVALID_STREAM. Since 0.1.
 */
WEIR_API weir_status weir_stream_destroy(weir_stream stream);

/** The calling thread's current stream of a device: the default stream until the thread sets another, and again once
 *  another thread has destroyed that one. Since 0.1. */
WEIR_API weir_status weir_stream_get_current(int device, weir_stream *out);

/** Makes `stream` the calling thread's current stream of the stream's device. Does not change the current device.
 *  Since 0.1. */
WEIR_API weir_status weir_stream_set_current(weir_stream stream);

/** What weir_stream_enter() replaced; for weir_stream_leave(). Opaque. */
typedef struct weir_stream_guard {
    weir_stream previous;
    uint32_t thread; /* the one that entered; 0: already left, or never entered */
    int16_t previous_device;
    uint16_t epoch; /* the library's, which ends with weir_close() */
} weir_stream_guard;

/** Makes the stream and its device current for the calling thread and remembers what was current before. Nests; leave
 *  in reverse order. Since 0.1. */
WEIR_API weir_status weir_stream_enter(weir_stream stream, weir_stream_guard *guard);

/** Restores what weir_stream_enter() replaced. A thread that had no CUDA context before is left with that of device 0,
 *  if there is one. @return WEIR_ERR_WRONG_THREAD, with nothing changed, on another thread than the one that entered;
 *  WEIR_ERR_INVALID_ARGUMENT for a guard that was left already, or entered before weir_close(). Since 0.1. */
WEIR_API weir_status weir_stream_leave(weir_stream_guard *guard);

/** The native stream (a cudaStream_t), for driver and vendor calls. Since 0.1. */
WEIR_API weir_status weir_stream_native(weir_stream stream, void **native);

/** The device the stream lives on. Since 0.1. */
WEIR_API weir_status weir_stream_device(weir_stream stream, int *device);

/** The priority the stream got, after clamping; 0 for one named with weir_stream_from_native(). Since 0.1. */
WEIR_API weir_status weir_stream_priority(weir_stream stream, int *priority);

/**
 * How many operations of its own weir has queued on the stream: waits for other streams whose memory it then hands out
 * here, fills in debug mode, and calls of a program's segment source. This is for programs that order other streams
 * behind this one without naming them to weir: if the count has changed by the time an allocation returns, they must
 * order those streams again before they use the memory. Takes no lock. Since 0.1.
 */
WEIR_API weir_status weir_stream_queued(weir_stream stream, uint64_t *count);

/** WEIR_OK when all work has completed, WEIR_ERR_NOT_READY when not. Never invalidates a capture: returns
 *  WEIR_ERR_CAPTURE while the stream is capturing. Since 0.1. */
WEIR_API weir_status weir_stream_query(weir_stream stream);

/** Waits for all work on the stream. @return WEIR_ERR_CAPTURE while it is capturing; the capture stays valid. Since
 *  0.1. */
WEIR_API weir_status weir_stream_synchronize(weir_stream stream);

/** Makes later work on `stream` wait for the work that is on `other` now. Same device or a peer. @return
 *  WEIR_ERR_CAPTURE when `stream` is capturing and `other` is not; when they are in two captures; when `other` is
 *  capturing and `stream` is a default stream, which cannot become part of a capture; and when one of them is the
 *  default stream while a stream that synchronises with it is capturing. The captures stay valid. Since 0.1. */
WEIR_API weir_status weir_stream_wait(weir_stream stream, weir_stream other);

/** Calls `function(argument)` from another thread when the work now on the stream has completed. The function must
 *  not call weir or the driver (cuLaunchHostFunc's rule). Since 0.1. */
WEIR_API weir_status weir_stream_callback(weir_stream stream, void (*function)(void *argument), void *argument);

/** Queues a copy; either side may be device memory, pinned or plain host memory. Since 0.1. */
WEIR_API weir_status weir_copy(void *destination, const void *source, size_t bytes, weir_stream stream);

/** Queues a fill of `bytes` bytes with `value`. Since 0.1. */
WEIR_API weir_status weir_fill(void *destination, unsigned char value, size_t bytes, weir_stream stream);

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/**
 * Allocates device memory on the calling thread's current device and stream. Work on that stream may use the memory at
 * once; other streams must wait for that stream first, as with any stream-ordered allocator. 512-byte aligned. Zero
 * bytes give NULL and WEIR_OK.
 * @return WEIR_ERR_OUT_OF_MEMORY after everything that can be reclaimed was; weir_error_text() then says what was asked
 *         for, where the bytes are and what would help. The library stays usable. A request for more than 1 EiB (such
 *         as a negative size) gets this error at once: nothing is reclaimed, and the text says only that.
 *         WEIR_ERR_CAPTURE if, while weir knows of a capture on the device, the stream's own capture was invalidated or
 *         is one that weir was not told of. Since 0.1.
 */
WEIR_API weir_status weir_alloc(size_t bytes, void **out);

/** As weir_alloc(), on a named stream of any device. Since 0.1. */
WEIR_API weir_status weir_alloc_on(size_t bytes, weir_stream stream, void **out);

/**
 * Frees memory from weir_alloc(), from any thread. Later allocations on the block's own stream may reuse it at once;
 * streams named with weir_record_stream() are waited for first. NULL is fine.
 * @return WEIR_ERR_UNKNOWN_POINTER, WEIR_ERR_DOUBLE_FREE or WEIR_ERR_INVALID_ARGUMENT (a pointer into the middle of a
 *         block), with nothing changed. Cached memory that was never handed out counts as freed, here and wherever a
 *         pointer is looked up. With the option `debug` also WEIR_ERR_CORRUPT: bytes behind the block were
 *         overwritten, and the block is freed. With its word `nosub` also WEIR_ERR_CAPTURE while a stream captures:
 *         nothing has changed; try again later. Since 0.1.
 */
WEIR_API weir_status weir_free(void *pointer);

/**
 * Records that `stream` uses the block too: once freed, the block is not reused before all work queued on `stream` up
 * to the free has completed (PyTorch's record_stream). `pointer` may point anywhere into a live block. Naming the
 * block's own stream does nothing. A stream of another device is allowed.
 * @return WEIR_ERR_UNKNOWN_POINTER; WEIR_ERR_DOUBLE_FREE when `pointer` points into memory that was freed. Since 0.1.
 */
WEIR_API weir_status weir_record_stream(const void *pointer, weir_stream stream);

/**
 * A private memory pool of one device: its segments and blocks serve nobody else. The value is its id, as PyTorch's
 * MempoolId_t: {0, n} for a pool made by a user, {n, 0} for one made for a graph capture; n counts from 1 and is never
 * used twice. Some 16 million of each kind can be in use at once. {0, 0} is the default pool. Stale ids are recognised
 * and refused with WEIR_ERR_POOL_MISMATCH.
 */
typedef struct weir_mempool {
    uint64_t capture, user;
} weir_mempool;

/** What weir knows of a pointer. Set `size` first. */
typedef struct weir_pointer_info {
    size_t size;
    void *base;         /**< start of the block */
    uint64_t bytes;     /**< size of the block */
    uint64_t requested; /**< size that was asked for */
    void *segment; /**< start of the driver allocation it lies in; of chunks: of its stream's region (docs/memory.md) */
    uint64_t segment_bytes; /**< of a region: as far as it has ever had memory, which it need not have everywhere now */
    weir_stream stream;     /**< whose it is: the stream it was allocated on, or the default one once that stream was
                             destroyed; {0} for pinned host memory */
    int32_t device;         /**< -1 for pinned host memory */
    weir_mempool pool;
} weir_pointer_info;

/** Looks up the live block that `pointer` points to or into. @return WEIR_ERR_UNKNOWN_POINTER; WEIR_ERR_DOUBLE_FREE
 *  when `pointer` points into memory that was freed. Since 0.1. */
WEIR_API weir_status weir_pointer_info_get(const void *pointer, weir_pointer_info *out);

/** Gives cached memory that nothing uses back to the driver: whole free segments and chunks, after waiting for pending
 *  frees. Private pools in use keep theirs; see weir_mempool_empty_cache().
 *  @return the driver's first error: memory that the driver did not take back stays cached, and the rest is given back
 *          all the same. Since 0.1. */
WEIR_API weir_status weir_empty_cache(int device);

/** Caps what weir may reserve on the device; 0 removes the cap. Memory held already stays; growth beyond the cap is
 *  refused with WEIR_ERR_OUT_OF_MEMORY after the usual reclaiming. Not counted: the driver's context, libraries, and
 *  pools of WEIR_MEMORY_MANAGED or WEIR_MEMORY_PINNED. Since 0.1. */
WEIR_API weir_status weir_memory_limit_set(int device, uint64_t bytes);

/** The cap in force; 0 when none. Since 0.1. */
WEIR_API weir_status weir_memory_limit_get(int device, uint64_t *bytes);

/**
 * Called when an allocation is about to fail: free what you can (weir_free() is allowed; no weir lock is held) and
 * return true if it is worth trying again. Several threads may call it at once. `needed` is the size of the segment
 * that the allocation would take: it may be several times the request, and part of it may be free. `device` is -1 for
 * pinned host memory.
 *
 * The thread may be inside weir_handle_get(), which is allocating a workspace. Then getting or releasing its own handle
 * of that kind returns WEIR_ERR_BUSY. It may borrow another handle if the budget has room for one, but should not wait
 * for one: it would wait forever for a handle that only this thread could give back.
 */
typedef bool (*weir_reclaim_fn)(void *user, int device, size_t needed);

/** Adds a reclaim callback for all devices, until weir_close(). Callbacks are called in the order added. Since 0.1. */
WEIR_API weir_status weir_reclaim_add(weir_reclaim_fn function, void *user);

/** Removes one; it may still be running on another thread when this returns. @return WEIR_ERR_INVALID_ARGUMENT if not
 *  added. Since 0.1. */
WEIR_API weir_status weir_reclaim_remove(weir_reclaim_fn function, void *user);

/* ---- memory pools ------------------------------------------------------------------------------------------------ */

/** For weir_mempool_options: no device has been named, which weir_mempool_create() refuses. */
#define WEIR_DEVICE_UNNAMED (-2)

/** What the segments of a pool are made of. */
typedef enum weir_memory_kind {
    WEIR_MEMORY_DEVICE = 0, /**< plain device memory; in chunks, like the default pool, where its rules allow it */
    WEIR_MEMORY_MAPPED = 1, /**< virtual memory mapped on physical chunks: can be paused (weir_pause()) */
    WEIR_MEMORY_EXPORTABLE =
        2, /**< as WEIR_MEMORY_MAPPED, and other processes can be given its segments, on any back end */
    WEIR_MEMORY_MANAGED = 3, /**< memory that the driver moves between host and device */
    WEIR_MEMORY_PINNED = 4   /**< page-locked host memory that the device can access */
} weir_memory_kind;

/**
 * Where a pool gets its segments, if not from weir. The functions are called from any thread. `free` and `release` must
 * not call weir, nor take a lock that any thread holds when it calls weir, because weir holds a lock of its own then.
 * While `alloc` and `free` run, `device` is the driver's current one, and allocating invalidates no capture of a stream
 * (CUDA: the thread's capture mode is relaxed). `native_stream` is the stream that the segment is for.
 *
 * `alloc` is asked for a multiple of 2 MiB. The address need not be page-aligned, but must be aligned to 512 bytes and
 * to the pool's alignment; otherwise the allocation fails with WEIR_ERR_INVALID_ARGUMENT. After
 * WEIR_ERR_OUT_OF_MEMORY, or NULL, the request goes on down the out-of-memory ladder; any other error is what the
 * allocation returns.
 *
 * `free` gets what `alloc` gave. If it fails, the pool keeps the memory, and the call that wanted the memory given back
 * returns the error. A request that is short of memory returns it only if nothing else helps, with WEIR_ERR_DRIVER in
 * place of WEIR_ERR_OUT_OF_MEMORY. Memory that no block can be made of (misaligned, refused by range_changed, or held
 * by weir already) is given back at once; if that fails, the memory is lost, which is logged. Memory for a stream that
 * another thread destroyed meanwhile is given back on the device's default stream, which a source that works in stream
 * order has to order behind what it queued on the other one.
 *
 * A status that is not an error of weir's, or that has another meaning inside weir (POOL_MISMATCH, NOT_READY, CAPTURE,
 * BUSY), becomes WEIR_ERR_DRIVER.
 *
 * The source is used until the last block of the pool is gone, which may be after weir_mempool_unref(). weir_free()
 * gives no segment back: the next weir_mempool_create(), weir_mempool_unref(), weir_graph_begin() or weir_empty_cache()
 * does, or an allocation when memory is short. Then `release` (if not NULL) is called once, and nothing after it.
 */
typedef struct weir_segment_source {
    weir_status (*alloc)(void *user, size_t bytes, int device, void *native_stream, void **base);
    weir_status (*free)(void *user, void *base, size_t bytes, int device, void *native_stream);
    void (*release)(void *user);
    void *user;
} weir_segment_source;

/** What happens to a mapped range of a pool's memory. */
typedef enum weir_range_change {
    WEIR_RANGE_ADDED = 1,   /**< mapped and usable: register it now */
    WEIR_RANGE_LEAVING = 2, /**< about to be unmapped or given back: deregister it now */
} weir_range_change;

/** Called for every change of a pool's ranges, in order. Must not call weir, nor take a lock that any thread holds when
 *  it calls weir, because weir holds a lock of its own when ranges leave. Returning false for WEIR_RANGE_ADDED refuses
 *  the memory: it goes back to its source, and the allocation fails with WEIR_ERR_BUSY. A range that could not be given
 *  back is added again; if it is refused then, it is lost to the pool, which is logged. */
typedef bool (*weir_range_fn)(void *user, weir_range_change change, void *base, size_t bytes, int device);

/** What a pool is like. Initialise with WEIR_MEMPOOL_OPTIONS_INIT. Only the tail grows. */
typedef struct weir_mempool_options {
    size_t size;
    int32_t device;                    /**< must be named; WEIR_DEVICE_CURRENT names the calling thread's current one */
    weir_memory_kind memory;           /**< what its segments are made of; WEIR_MEMORY_DEVICE if it has a source */
    const weir_segment_source *source; /**< copied; NULL: weir's own */
    weir_range_fn range_changed;       /**< called for each segment; NULL: none */
    void *range_user;
    uint64_t cap;       /**< bytes it may reserve; 0: no cap but the device's limit */
    uint64_t alignment; /**< of its blocks: a power of two up to 2 MiB; 0: 512 */
    /** While no graph holds the pool, its cached device memory serves requests of other pools on the same stream that
     *  would otherwise fail. Not for deterministic pools, nor for managed or pinned memory. */
    bool use_on_oom;
    bool no_split; /**< a segment holds one block: for memory that must not share a registration */
    /** Equal sequences of calls give equal offsets in equal segments, in any process: placement depends only on the
     *  calls, not on addresses or on when work completes. For that, freeing a block that other streams use makes the
     *  block's own stream wait for them; during a capture the block waits as in other pools. Running out of memory may
     *  still make a difference. */
    bool deterministic;
    char tag[21]; /**< for weir_pause(); several pools may have the same. Empty: none */
} weir_mempool_options;

#define WEIR_MEMPOOL_OPTIONS_INIT                                                                                      \
    { sizeof(weir_mempool_options), WEIR_DEVICE_UNNAMED, WEIR_MEMORY_DEVICE, NULL, NULL, NULL, 0, 0, 0, 0, 0, "" }

/** Creates a pool with one reference, the caller's. @return WEIR_ERR_INVALID_ARGUMENT naming the option;
 *  WEIR_ERR_NOT_SUPPORTED when the device has no memory of that kind. Since 0.1. */
WEIR_API weir_status weir_mempool_create(const weir_mempool_options *options, weir_mempool *out);

/**
 * Reserves an id for a pool that does not exist yet, so that captures can agree on a pool beforehand (PyTorch's
 * graph_pool_handle). The first capture that names it in weir_graph_options makes the pool, with default options, on
 * its device. The pool lives as long as graphs use it; weir_mempool_ref() keeps it longer. The id ends with the pool;
 * weir_mempool_unref() gives back an id that has none. Since 0.1.
 */
WEIR_API weir_status weir_mempool_reserve(weir_mempool *out);

/** Adds a reference. This reopens a pool that has lost its last reference but still has memory. The default pool is
 *  always there: for it neither this nor weir_mempool_unref() does anything.
 *  @return WEIR_ERR_POOL_MISMATCH when the pool is gone. Since 0.1. */
WEIR_API weir_status weir_mempool_ref(weir_mempool pool);

/**
 * Drops a reference, or gives back a reserved id that has no pool. Dropping the last one releases the pool: it no
 * longer lends, routes no longer lead to it, and its cached memory is available to all. Blocks in use stay valid. The
 * pool is gone when its last block has been freed and its memory given back: at once, if no block is live.
 * @return WEIR_ERR_POOL_MISMATCH when the program has no reference to it, or the pool is gone. Since 0.1.
 */
WEIR_API weir_status weir_mempool_unref(weir_mempool pool);

/**
 * Routes the calling thread's allocations on the pool's device to the pool, until weir_mempool_leave(). {0, 0} is the
 * default pool of the device that is current when it is entered. Nests. Other threads may enter the same pool at the
 * same time. Of all routes that apply to an allocation (threads, streams, filters, captures) the one opened last wins.
 * Holds a reference, as weir_mempool_route_stream() does. Routing changes nothing else: frees, trimming and the
 * out-of-memory ladder work as always.
 * @return WEIR_ERR_POOL_MISMATCH when the pool is gone, or is a reserved id for which no capture has made a pool;
 *         WEIR_ERR_BUSY when the thread has entered 32 pools without leaving one. Since 0.1.
 */
WEIR_API weir_status weir_mempool_enter(weir_mempool pool);

/** Ends the calling thread's innermost route, which must be to `pool`. A thread's routes end with the thread. @return
 *  WEIR_ERR_POOL_MISMATCH, with nothing changed, when the route is to another pool. Since 0.1. */
WEIR_API weir_status weir_mempool_leave(weir_mempool pool);

/** Routes allocations on a stream, from any thread, to a pool of the stream's device; {0, 0} ends that. The route holds
 *  a reference as long as it lasts, at most until the stream is destroyed. Like weir_mempool_ref(), it reopens a
 *  released pool that is not gone yet. @return WEIR_ERR_WRONG_DEVICE when the pool is another device's;
 *  WEIR_ERR_POOL_MISMATCH when it is gone. Since 0.1. */
WEIR_API weir_status weir_mempool_route_stream(weir_mempool pool, weir_stream stream);

/** Whether an allocation is routed to the filter's pool. Called from any thread that allocates on the device, with no
 *  lock held; must not call weir. */
typedef bool (*weir_route_fn)(void *user, weir_stream stream, size_t bytes);

/** Routes allocations, from any thread, for which `filter` returns true to the pool; {0, 0} is the current device's
 *  default pool. Holds a reference, as weir_mempool_route_stream() does. Since 0.1. */
WEIR_API weir_status weir_mempool_route_filter(weir_mempool pool, weir_route_fn filter, void *user);

/** Ends such a route; to {0, 0} that of the current device. The filter may still be running on another thread when this
 *  returns.
 *  @return WEIR_ERR_INVALID_ARGUMENT when there is no such route; WEIR_ERR_POOL_MISMATCH when the pool is gone.
 *          Since 0.1. */
WEIR_API weir_status weir_mempool_unroute_filter(weir_mempool pool, weir_route_fn filter, void *user);

/** The pool that an allocation of the calling thread on `stream` would come from now; filters are called with 0 bytes.
 *  @return WEIR_ERR_CAPTURE as weir_alloc(). Since 0.1. */
WEIR_API weir_status weir_mempool_current(weir_stream stream, weir_mempool *out);

/** As weir_alloc_on(), from a named pool whatever the routes are. @return WEIR_ERR_WRONG_DEVICE when the stream is
 *  another device's; WEIR_ERR_POOL_MISMATCH when the pool was released, or reserved and never made; WEIR_ERR_BUSY while
 *  the pool is paused. Since 0.1. */
WEIR_API weir_status weir_alloc_from(weir_mempool pool, size_t bytes, weir_stream stream, void **out);

/** Gives the pool's idle segments and free chunks back, after waiting for its pending frees. {0, 0}: as
 *  weir_empty_cache() of the current device. @return WEIR_ERR_BUSY while a graph holds the pool (its launches use the
 *  pool's free memory too) or while the pool is paused. Since 0.1. */
WEIR_API weir_status weir_mempool_empty_cache(weir_mempool pool);

/** A pool's present state. Set `size` first. */
typedef struct weir_mempool_info {
    size_t size;
    weir_mempool pool;
    int32_t device;
    weir_memory_kind memory;
    uint32_t references; /**< of users, routes and graphs; 0: released, but with memory in use */
    uint32_t graphs;     /**< of those, graphs */
    uint64_t lent;       /**< allocations that it has ever served for others (use_on_oom) */
    bool paused;
    char tag[23];
} weir_mempool_info;

/** Describes a pool; {0, 0}: the current device's default pool. Since 0.1. */
WEIR_API weir_status weir_mempool_info_get(weir_mempool pool, weir_mempool_info *out);

struct weir_memory_stats;

/** The statistics of one pool alone; {0, 0}: of the current device's default pool. Since 0.1. */
WEIR_API weir_status weir_mempool_stats_get(weir_mempool pool, struct weir_memory_stats *out);

typedef enum weir_block_state {
    WEIR_BLOCK_FREE = 0,   /**< cached */
    WEIR_BLOCK_LIVE = 1,   /**< handed out */
    WEIR_BLOCK_PENDING = 2 /**< freed, but other streams may still use it */
} weir_block_state;

/** A block of a pool. */
typedef struct weir_block_info {
    void *base;
    uint64_t bytes, requested; /**< requested: 0 when free */
    void *segment;             /**< start of the segment it lies in; of chunks: of its stream's region */
    uint64_t segment_bytes;    /**< of a region: as far as it has ever had memory, so regions may add up to more than
                                    reserved_bytes */
    weir_stream stream;
    weir_block_state state;
    bool paused; /**< its segment has no physical memory now */
} weir_block_info;

/** All blocks of a pool at one instant, by segment and address; {0, 0}: of the current device's default pool. Writes at
 *  most `capacity` of them, and sets `*count` to how many there are in all. Since 0.1. */
WEIR_API weir_status weir_mempool_blocks(weir_mempool pool, weir_block_info *blocks, size_t capacity, size_t *count);

/** A pool's blocks as they were. Opaque. */
typedef struct weir_checkpoint weir_checkpoint;

/**
 * Records every block of a private pool, after waiting for its pending frees. Takes time and memory in proportion to
 * the number of blocks. From the first checkpoint on, the pool's free memory is no longer mapped elsewhere (policy
 * weir), and it borrows no more from pools that lend (use_on_oom); blocks that it has borrowed are those pools' and are
 * not recorded. Destroy it with weir_checkpoint_destroy(); it may outlive the pool, and weir_close().
 * @return WEIR_ERR_BUSY while a capture holds up pending frees of the pool, while the pool is paused, or when other
 *         threads keep freeing blocks of it that other streams use; WEIR_ERR_INVALID_ARGUMENT for the default pool,
 *         which holds memory of weir's own too, and for a pool that lends; WEIR_ERR_POOL_MISMATCH when the pool was
 *         released. Since 0.1.
 */
WEIR_API weir_status weir_mempool_checkpoint(weir_mempool pool, weir_checkpoint **out);

/**
 * Puts a pool back to a checkpoint. Blocks that are live now are freed. Blocks that were live at the checkpoint are
 * live again at the same addresses, on the same streams, with whatever those addresses contain now. So pointers of that
 * time are valid again; pointers to blocks that this frees are not, unless a block of the checkpoint begins there.
 * Streams recorded on a block that is live both then and now stay recorded.
 *
 * The memory that the pool had then must still be there; memory that it got later is free afterwards. Nothing changes
 * on failure. After the change, without any lock, `freed` is called for each block that was live before, and `restored`
 * for each that is live now (either may be NULL). Nobody else may use the pool meanwhile.
 * @return WEIR_ERR_POOL_MISMATCH for a checkpoint of another pool, when the pool was released, or when memory of the
 *         checkpoint's blocks was given back and did not come again at the same addresses, or went to another stream or
 *         size class; WEIR_ERR_BUSY as weir_mempool_checkpoint(); WEIR_ERR_BUSY for a block that is live now, lies
 *         where the checkpoint has another one, and is recorded on a stream (weir_free() it first, so that the stream
 *         can be waited for); WEIR_ERR_BUSY while a vendor library has memory that it asked for in a capture since the
 *         checkpoint (only the library can free that). Since 0.1.
 */
WEIR_API weir_status weir_mempool_restore(weir_mempool pool, const weir_checkpoint *checkpoint,
                                          void (*freed)(void *user, void *pointer),
                                          void (*restored)(void *user, void *pointer), void *user);

/** NULL is fine. Since 0.1. */
WEIR_API void weir_checkpoint_destroy(weir_checkpoint *checkpoint);

/* ---- sharing between processes ----------------------------------------------------------------------------------- */

/** A piece of physical memory that another process can be given. Pieces are imported whole. */
typedef struct weir_export_part {
    uint64_t bytes;
    int descriptor; /**< a file descriptor, whoever has it must close it */
} weir_export_part;

/**
 * Exports the memory that a live block is in to another process: its segment, or the chunks that it lies in, in address
 * order, together with all other blocks there. Gives a file descriptor for each part, and the offset of `pointer` from
 * the start of the first. `*count` is the number of parts, which stays the same as long as the block lives; if it is
 * more than `capacity`, no part is given.
 *
 * The first export of a chunk takes the driver half a millisecond (CUDA 13, H100); up to 256 chunks of all devices keep
 * a descriptor for the next. The memory stays until weir has given it back and the other process has ended its import.
 * A pool that was paused and resumed has other memory, which must be exported again; until the other process ends its
 * import, pausing does not free the old memory.
 * @return WEIR_ERR_NOT_SUPPORTED for memory that is not mapped (docs/memory.md), and for mapped memory that the device
 *         shares only when its pool is WEIR_MEMORY_EXPORTABLE (the host back end); WEIR_ERR_BUSY while the pool is
 *         paused; WEIR_ERR_OUT_OF_HOST_MEMORY when the process may open no more files; WEIR_ERR_UNKNOWN_POINTER;
 *         WEIR_ERR_DOUBLE_FREE. Nothing is to be closed then. Since 0.1.
 */
WEIR_API weir_status weir_export(const void *pointer, weir_export_part *parts, size_t capacity, size_t *count,
                                 uint64_t *offset);

/** Maps the parts of a weir_export() in this process, one behind the other from `*base` on, for `device` and for the
 *  devices that weir_device_enable_peer() lets access it. The descriptors stay the caller's, and are not needed
 *  afterwards.
 *  @return WEIR_ERR_INVALID_ARGUMENT when a descriptor or a size is not one that weir_export() gave;
 *          WEIR_ERR_NOT_SUPPORTED for a device that cannot share memory; WEIR_ERR_OUT_OF_MEMORY when its addresses are
 *          used up. Since 0.1. */
WEIR_API weir_status weir_import(int device, const weir_export_part *parts, size_t count, void **base);

/** Undoes weir_import(). The caller must make sure that no queued work uses the memory. weir_close() ends the imports
 *  that are left.
 *  @return WEIR_ERR_UNKNOWN_POINTER for an address that weir_import() did not give, or whose import was ended already.
 *          Since 0.1. */
WEIR_API weir_status weir_import_close(void *base);

/* ---- pausing ----------------------------------------------------------------------------------------------------- */

/** What becomes of the contents of paused memory. */
typedef enum weir_pause_mode {
    WEIR_PAUSE_KEEP = 0, /**< copied to pinned host memory and back */
    WEIR_PAUSE_DROP = 1  /**< lost; what is there after resuming is undefined */
} weir_pause_mode;

/**
 * Gives the physical memory of all pools of a device that carry `tag` (NULL: of all pools that can be paused) back to
 * the driver; their addresses stay. Waits for the work on the device. Until weir_resume() nothing may touch
 * them, from whichever device. Allocating from such a pool returns WEIR_ERR_BUSY; freeing its blocks is allowed (their
 * contents are not brought back). Pools that are paused already are left alone.
 *
 * All or nothing: on failure no pool is paused. If the driver then also refuses to map their memory again, the pools
 * stay paused and keep all of their memory, and the text says so. Several threads may pause and resume: a call waits
 * for others that change one of its own pools, not for those that wait for the device on behalf of other pools.
 * @return WEIR_ERR_INVALID_ARGUMENT when no pool has the tag; WEIR_ERR_NOT_SUPPORTED for a pool whose memory is not
 *         weir's own WEIR_MEMORY_MAPPED or WEIR_MEMORY_EXPORTABLE, or that lends (use_on_oom); WEIR_ERR_CAPTURE while
 *         weir knows that a stream of the device is capturing (on AMD's devices, of any), if there is memory to pause;
 *         WEIR_ERR_OUT_OF_HOST_MEMORY when there is no room for the contents. Since 0.1.
 */
WEIR_API weir_status weir_pause(int device, const char *tag, weir_pause_mode mode);

/**
 * Puts memory behind the same addresses again and brings the contents back; graphs that use them may be launched again.
 * All or nothing: on failure (mostly for want of memory, after everything that can be reclaimed was) everything stays
 * paused and the contents are kept. Pools that are not paused are left alone.
 * @return WEIR_ERR_OUT_OF_MEMORY; WEIR_ERR_INVALID_ARGUMENT when no pool has the tag; WEIR_ERR_BUSY when a pool's
 *         range_changed refuses the memory. Since 0.1.
 */
WEIR_API weir_status weir_resume(int device, const char *tag);

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

/** CUDA's stream capture modes, same values. */
typedef enum weir_capture_mode {
    WEIR_CAPTURE_GLOBAL = 0,
    WEIR_CAPTURE_THREAD_LOCAL = 1,
    WEIR_CAPTURE_RELAXED = 2
} weir_capture_mode;

/** A captured graph, and what must live as long: its pools, and the library handles and workspaces that it used. Passed
 *  by value; stale ones are recognised and refused with WEIR_ERR_INVALID_ARGUMENT. */
typedef struct weir_graph {
    uint64_t id;
} weir_graph;

/** Initialise with WEIR_GRAPH_OPTIONS_INIT. Only the tail grows. */
typedef struct weir_graph_options {
    size_t size;
    /** What the capture allocates from; {0, 0}: a new pool of its own. Graphs that share a pool must be launched in the
     *  order captured and never at the same time. For a pool that had memory before the capture see
     *  weir_graph_launch(). */
    weir_mempool pool;
    weir_capture_mode mode;
} weir_graph_options;

#define WEIR_GRAPH_OPTIONS_INIT { sizeof(weir_graph_options), { 0, 0 }, WEIR_CAPTURE_GLOBAL }

/**
 * Begins a capture on a stream (not the default one). Until weir_graph_end(), allocations from any thread, on any
 * stream of the device that takes part in the capture, come from the graph's pool, unless a route opened later says
 * otherwise. Memory freed meanwhile is reused within the capture as soon as the captured order proves that nothing else
 * still uses it. Allocations on streams of other devices that have joined the capture come from elsewhere, and the
 * graph does not keep them. Allocations on a stream in a capture that weir was not told of are refused meanwhile, with
 * WEIR_ERR_CAPTURE.
 * @return WEIR_ERR_CAPTURE when the stream is capturing already; WEIR_ERR_INVALID_ARGUMENT when it is the default one;
 *         WEIR_ERR_POOL_MISMATCH when the options' pool is gone; WEIR_ERR_WRONG_DEVICE when the pool is not of the
 *         stream's device; WEIR_ERR_NOT_SUPPORTED by a back end without graphs. Since 0.1.
 */
WEIR_API weir_status weir_graph_begin(weir_stream stream, const weir_graph_options *options, weir_graph *out);

/**
 * Tells weir of a capture that the program began itself on `stream` and that is underway. It may be a capture into the
 * body of a conditional node (give it the pool of the graph around it). The program ends the capture itself and then
 * calls weir_graph_end(). @return WEIR_ERR_CAPTURE when the stream is not capturing, when its capture is no longer
 * valid, or when weir knows of it already; for the pool and the back end as weir_graph_begin(). Since 0.1.
 */
WEIR_API weir_status weir_graph_adopt(weir_stream stream, const weir_graph_options *options, weir_graph *out);

/** Ends the capture; one that is not relaxed must be ended by the thread that began it. @return WEIR_ERR_CAPTURE when
 *  it was invalidated: the graph is empty and only good for weir_graph_destroy(). WEIR_ERR_BUSY when an adopted capture
 *  is still underway; WEIR_ERR_WRONG_THREAD. After these two, and when the driver fails to report on the capture, it
 *  may be called again; once it has ended the capture, that gives WEIR_ERR_INVALID_ARGUMENT. Since 0.1. */
WEIR_API weir_status weir_graph_end(weir_graph graph);

/** Launches the graph on a stream of its device, instantiating it the first time. Adopted graphs are launched by their
 *  owner. Some memory of the graph may still be used by work queued earlier on the captured streams: what the capture
 *  got from a pool that had memory before, or as the workspace of a handle. So launch the graph behind that work, on
 *  one of those streams or on one that waits for them. A launch may overwrite what has been allocated from the graph's
 *  pools since its capture. Launched inside another capture, it becomes part of that graph, which keeps what this one
 *  keeps; of a capture that weir was not told of (weir_graph_adopt()) nothing does.
 *  @return WEIR_ERR_BUSY while one of its pools is paused; WEIR_ERR_WRONG_DEVICE when the stream is another device's;
 *          WEIR_ERR_INVALID_ARGUMENT when there is nothing to launch: its capture has not ended, has failed, or was
 *          adopted. Since 0.1. */
WEIR_API weir_status weir_graph_launch(weir_graph graph, weir_stream stream);

/** Ends the graph in any state; a capture underway is abandoned. Its hold on pools and handles ends; memory of it that
 *  is still allocated stays valid. The caller must make sure that no launch is running. (Of an adopted graph that keeps
 *  handles or pinned memory, launches are waited for, unless that would end a capture.)
 *  @return WEIR_ERR_WRONG_THREAD when the driver lets only another thread end the capture: nothing has changed, and
 *          that thread must end the capture or destroy the graph. If that thread itself has ended, this error is
 *          returned but the graph is gone, and its stream stays in a capture that cannot be ended. After any other
 *          error the graph is gone. Since 0.1. */
WEIR_API weir_status weir_graph_destroy(weir_graph graph);

/** The pool its capture allocates from. Since 0.1. */
WEIR_API weir_status weir_graph_pool(weir_graph graph, weir_mempool *pool);

/** Keeps another pool alive, and its memory in place, as long as the graph. Pools that its capture allocated from are
 *  kept anyway, except the default pool.
 *  @return WEIR_ERR_INVALID_ARGUMENT for the default pool, whose memory nothing keeps in place; WEIR_ERR_POOL_MISMATCH
 *          when the pool is gone, or is a reserved id for which no capture has made a pool. Since 0.1. */
WEIR_API weir_status weir_graph_retain_pool(weir_graph graph, weir_mempool pool);

/** The driver's graph and executable graph (cudaGraph_t, cudaGraphExec_t); NULL for one that does not exist (yet).
 *  Since 0.1. */
WEIR_API weir_status weir_graph_native(weir_graph graph, void **native, void **executable);

/* ---- pinned host memory ------------------------------------------------------------------------------------------ */

#define WEIR_NUMA_ANY (-1)

/**
 * Allocates page-locked host memory that every device can access, from a process-wide cache. `numa_node` names the node
 * that the memory must lie on, cached blocks included, or is WEIR_NUMA_ANY. 512-byte aligned. Zero bytes give NULL and
 * WEIR_OK. Host memory has no stream order: name every stream that uses the block with weir_pinned_record().
 * @return WEIR_ERR_OUT_OF_HOST_MEMORY after the cache was emptied and the reclaim callbacks were asked; the text says
 *         where the bytes are. WEIR_ERR_INVALID_ARGUMENT for a node that the machine does not have;
 *         WEIR_ERR_NOT_SUPPORTED when the system or the back end (HIP) does not let the process choose one. Since 0.1.
 */
WEIR_API weir_status weir_pinned_alloc(size_t bytes, int numa_node, void **out);

/** Records that `stream` uses the block, in work queued now or until the free: once freed, the block is not reused
 *  before that work is over. To keep it for work that becomes part of a graph (of the stream's device) until the graph
 *  is destroyed, record the block inside the capture, on a stream that takes part, even if it was recorded before the
 *  capture began. `pointer` may point anywhere into the block.
 *  @return WEIR_ERR_UNKNOWN_POINTER when it is not weir's pinned memory; WEIR_ERR_DOUBLE_FREE when it was freed. Since
 *          0.1. */
WEIR_API weir_status weir_pinned_record(const void *pointer, weir_stream stream);

/** Frees a block. Before it is reused, the streams recorded on it with weir_pinned_record() are waited for, but no
 *  others. NULL is fine. @return as weir_free(). Since 0.1. */
WEIR_API weir_status weir_pinned_free(void *pointer);

/** Allocates `bytes` for the cache ahead of need, in one piece on a node, and has several threads fault the pages in.
 *  Blocks above 1 MiB come from reserved pieces above 1 MiB, smaller blocks from smaller pieces. Gives back nothing
 *  that is cached already.
 *  @return WEIR_ERR_OUT_OF_HOST_MEMORY. Since 0.1. */
WEIR_API weir_status weir_pinned_reserve(size_t bytes, int numa_node);

/** Caps what the cache may hold; 0: no cap. Memory held already stays. Opens the current device if none is open. Since
 *  0.1. */
WEIR_API weir_status weir_pinned_limit_set(uint64_t bytes);

/** Gives idle segments back until the cache holds at most `keep` bytes; 0: as many as possible. Waits for no stream. It
 *  may keep less if the driver refuses to take one, or if threads do this at the same time. Since 0.1. */
WEIR_API weir_status weir_pinned_trim(uint64_t keep);

/** Statistics of the cache of pinned memory; all zero until it is used. Since 0.1. */
WEIR_API weir_status weir_pinned_stats_get(struct weir_memory_stats *out);

/** As weir_stats_reset(), for pinned memory; does nothing until that is used. Since 0.1. */
WEIR_API weir_status weir_pinned_stats_reset(void);

/* ---- library handles --------------------------------------------------------------------------------------------- */

/**
 * A kind of per-thread object of some library: a cuSPARSE handle, a CHOLMOD common. Built-in kinds are the constants
 * below (typed getters are in weir/cuda.h and weir/hip.h); others are registered. A library is looked for when its kind
 * is first used: a copy that the process has loaded already goes first, then the newest release. WEIR_LIB_<NAME> gives
 * the path of another. NAME is CUBLAS, CUBLASLT, CUSPARSE, CUSOLVER, CUDNN, CUDSS, CURAND, CUTENSOR, MIOPEN, ROCBLAS,
 * HIPBLAS, HIPBLASLT, ROCSPARSE, HIPSPARSE, HIPSOLVER or ROCRAND; for the drivers, CUDA or HIP. weir_open() refuses any
 * other.
 */
typedef int32_t weir_handle_kind;

/** Built-in kinds; values are pinned. */
enum {
    WEIR_CUBLAS = 1,
    WEIR_CUBLASLT = 2,
    WEIR_CUSPARSE = 3,
    WEIR_CUSOLVER_DN = 4,
    WEIR_CUSOLVER_SP = 5,
    WEIR_CUDNN = 6,
    WEIR_CUDSS = 7,
    WEIR_CURAND = 8, /**< a default pseudo-random generator; reseeded whenever it changes hands */
    WEIR_CUTENSOR = 9,
    WEIR_MIOPEN = 17,
    WEIR_ROCBLAS = 18,
    WEIR_HIPBLAS = 19,
    WEIR_HIPBLASLT = 20,
    WEIR_ROCSPARSE = 21,
    WEIR_HIPSPARSE = 22,
    WEIR_HIPSOLVER = 23,
    WEIR_ROCRAND = 24,
    WEIR_HANDLE_KIND_FIRST_USER = 32, /**< registered kinds count from here */
    WEIR_HANDLE_KIND_MAX = 64         /**< all kinds are below this */
};

/**
 * The calling thread's handle of a kind, on its current device, bound to its current stream there. The first call
 * creates the handle or takes over an idle one; later calls give the same handle, bound anew when the current stream
 * has changed. It stays the thread's own until the thread ends or weir_handle_release(). There is nothing to free: do
 * not destroy it, and do not call the library's own set-stream on it.
 * @return WEIR_ERR_NO_LIBRARY naming what was looked for; WEIR_ERR_LIBRARY with the library's code and text;
 *         WEIR_ERR_OUT_OF_MEMORY when there is no memory for its workspace; WEIR_ERR_CAPTURE when a capture keeps the
 *         default stream, or more than a few streams, from being waited for, or a handle from being created
 *         (WEIR_HANDLE_CREATE_SYNCS); WEIR_ERR_BUSY when the kind's budget is used up, or in a reclaim callback
 *         (weir_reclaim_fn) that runs inside the thread's own get of this kind, or inside its creation of any handle
 *         while the first handle of this kind is being created and others must wait for that
 *         (WEIR_HANDLE_FIRST_ALONE, a budget of bytes). Since 0.1.
 */
WEIR_API weir_status weir_handle_get(weir_handle_kind kind, void **handle);

/** As weir_handle_get(), on a named stream (and its device). The fastest form: it asks the driver for nothing.
 *  @return as weir_handle_get(). Since 0.1. */
WEIR_API weir_status weir_handle_get_on(weir_handle_kind kind, weir_stream stream, void **handle);

/** Gives the calling thread's handle of a kind on a device back before the thread ends. Having none is fine.
 *  @return WEIR_ERR_BUSY from a callback inside the thread's own weir_handle_get(). Since 0.1. */
WEIR_API weir_status weir_handle_release(weir_handle_kind kind, int device);

/** A borrowed handle. {0} is none. */
typedef struct weir_lease {
    uint64_t id;
} weir_lease;

#define WEIR_FOREVER UINT64_MAX

/**
 * Borrows a handle bound to a stream, for a task that moves between threads or must be bounded in number. The lease,
 * not the thread, owns the handle: any thread may use or return it. Within the budget of weir_handle_budget_set() it is
 * given at once; beyond it, and while others have to wait for the first create (WEIR_HANDLE_FIRST_ALONE), callers queue
 * in order of arrival. A `timeout_ns` of 0 does not wait (WEIR_ERR_BUSY); WEIR_FOREVER waits without limit.
 * @return WEIR_ERR_TIMEOUT; otherwise as weir_handle_get(). Since 0.1.
 */
WEIR_API weir_status weir_handle_borrow(weir_handle_kind kind, weir_stream stream, uint64_t timeout_ns,
                                        weir_lease *lease);

/** The handle of a lease; NULL (with an error text) when it was returned already or never was one. Since 0.1. */
WEIR_API void *weir_lease_handle(weir_lease lease);

/** Ends a lease, from any thread. The handle's next user waits for the work now on the lease's stream; if that stream
 *  is capturing by then, the first user after the capture does (docs/handles.md).
 *  @return WEIR_ERR_INVALID_ARGUMENT for a lease that was returned already or never was one. Since 0.1. */
WEIR_API weir_status weir_handle_return(weir_lease lease);

/** Limits how many handles of a kind exist on a device and how many bytes of device memory they may take; 0 is no
 *  limit. Handles that exist already stay. The byte limit never refuses the first handle, when none exists. Since
 *  0.1. */
WEIR_API weir_status weir_handle_budget_set(weir_handle_kind kind, int device, uint64_t count, uint64_t bytes);

/** Destroys idle handles of a kind (0: of all kinds) on a device and frees their workspaces. It destroys as many as are
 *  idle when it begins, so that threads which give handles back meanwhile cannot keep it from ending. Handles whose
 *  destruction would invalidate a stream capture are kept until a later call. `destroyed` may be NULL.
 *  @return WEIR_ERR_LIBRARY when a destroy failed; the others are destroyed all the same. After any error of a library
 *          or the driver, `*destroyed` says how many are gone. Since 0.1. */
WEIR_API weir_status weir_handles_trim(weir_handle_kind kind, int device, uint64_t *destroyed);

/** Numbers of one kind on one device. Set `size` first. */
typedef struct weir_handle_stats {
    size_t size;
    uint64_t live;     /**< handles that exist now */
    uint64_t idle;     /**< of those, owned by nobody */
    uint64_t borrowed; /**< of those, on lease */
    uint64_t peak;     /**< most that existed at once since the last reset; counters count from then too */
    uint64_t created, destroyed, failed_creates;
    uint64_t hits;    /**< served without touching library or driver */
    uint64_t reuses;  /**< idle ones taken over */
    uint64_t rebinds; /**< set-stream calls */
    uint64_t waits;   /**< borrows that had to queue */
    uint64_t timeouts;
    uint64_t bytes;           /**< device memory that creating them took, by the driver's figures */
    uint64_t workspace_bytes; /**< weir's memory attached to them */
    uint64_t doomed;          /**< to be destroyed when no capture is underway */
} weir_handle_stats;

/** Copies the numbers. Loads no library and opens no device: until they are used the numbers are 0. Since 0.1. */
WEIR_API weir_status weir_handle_stats_get(weir_handle_kind kind, int device, weir_handle_stats *out);

/** Sets the peak of a kind (0: of all kinds) on a device to what exists now, and its counters to zero. Since 0.1. */
WEIR_API weir_status weir_handle_stats_reset(weir_handle_kind kind, int device);

/** What is known of a kind. Set `size` first. */
typedef struct weir_handle_kind_info {
    size_t size;
    char name[32];     /**< "cusparse" */
    char library[256]; /**< file the library was loaded from; empty when not loaded (yet) or registered */
    char version[32];  /**< as the library tells; empty when it does not */
} weir_handle_kind_info;

/** Describes a kind, loading its library if it can be found. Needs no device. @return WEIR_ERR_NO_LIBRARY;
 *  WEIR_ERR_FORKED. Since 0.1. */
WEIR_API weir_status weir_handle_kind_info_get(weir_handle_kind kind, weir_handle_kind_info *out);

/**
 * How to create, bind and destroy handles of a registered kind. Only the tail grows. The functions are called from any
 * thread, without any lock of weir's, with the device current where the driver has such a notion. `create` and `bind`
 * must not call weir. They return 0 for success; any other value is reported as the library's code.
 */
typedef struct weir_handle_ops {
    size_t size;      /**< sizeof(weir_handle_ops); set by WEIR_HANDLE_OPS_INIT */
    const char *name; /**< "cholmod"; unique, UTF-8, copied */
    int (*create)(void *user, int device, void **handle);
    /** Not called again after an error. Work queued with the handle may still be pending: what it uses must stay until
     *  that is over. Vendor libraries see to it by freeing in stream order or by waiting for the device. */
    int (*destroy)(void *user, void *handle);
    int (*bind)(void *user, void *handle, void *native_stream); /**< NULL: handles have no stream */
    int (*reset)(void *user, void *handle);          /**< before another owner gets it; NULL: nothing to reset */
    const char *(*error_text)(void *user, int code); /**< NULL: codes are numbers */
    void *user;
    uint32_t flags;    /**< of WEIR_HANDLE_* below */
    uint32_t reserved; /**< 0 */
} weir_handle_ops;

/** For use inside the program's own braces. In C other members follow by name: `{ WEIR_HANDLE_OPS_INIT, .name =
 *  "cholmod" }`. In C++ (any standard), set them one by one: `weir_handle_ops ops = { WEIR_HANDLE_OPS_INIT }; ops.name
 *  = "cholmod";`. */
#ifdef __cplusplus
#define WEIR_HANDLE_OPS_INIT sizeof(weir_handle_ops), NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0
#else
#define WEIR_HANDLE_OPS_INIT .size = sizeof(weir_handle_ops)
#endif

/** Destroying such a handle synchronises the device, which would invalidate a stream capture, so it waits until no
 *  capture is underway. While one is destroyed, weir_graph_begin() waits in other threads, so `destroy` must not wait
 *  for those. */
#define WEIR_HANDLE_DESTROY_SYNCS 1u
/** The first create on a device must finish before others start. */
#define WEIR_HANDLE_FIRST_ALONE 2u
/** bind is called at every get, not only when the stream changed. */
#define WEIR_HANDLE_BIND_ALWAYS 4u
/** Creating such a handle synchronises the device, or copies or fills its memory synchronously, which would invalidate
 *  a stream capture (HIP: of any device). While a stream that weir knows captures, idle handles are given out, but none
 *  is created (WEIR_ERR_CAPTURE). While one is created, weir_graph_begin() waits in other threads, so `create` must not
 *  wait for those. */
#define WEIR_HANDLE_CREATE_SYNCS 8u

/** Registers a kind. Registering needs no device. @return WEIR_ERR_INVALID_ARGUMENT naming what is missing or taken;
 *  WEIR_ERR_OUT_OF_HOST_MEMORY when there are too many kinds; WEIR_ERR_FORKED. Since 0.1. */
WEIR_API weir_status weir_handle_kind_register(const weir_handle_ops *ops, weir_handle_kind *kind);

/* ---- statistics -------------------------------------------------------------------------------------------------- */

/**
 * A quantity over time. Peaks of live memory are exact while the program uses one stream in one pool, and threads do
 * not allocate there in turns or at once. Otherwise a peak may be off by as much as the following, because threads and
 * streams serve requests without asking each other (docs/threading.md). "Parked" are freed blocks that weir keeps whole
 * for requests of their size.
 * - Small or large blocks alone, in any case: too low by what is parked of that class.
 * - Several threads that allocate on one stream: too low by 64 blocks and 1 to 8 MiB for each of them and once more for
 *   all (Sides).
 * - Several streams, or one in several pools: too low by what other streams have parked.
 * - More than eight streams, each counted once for each pool that it allocates from: also too high by a 64th, or by
 *   64 blocks and 1 MiB if that is more. The peak of one pool may be too high by what is parked there.
 * - The peak of one stream: too high by what other threads have freed of it, less than 64 blocks and 1 MiB (Posts).
 * - Many threads that allocate sizes that hardly ever recur: the peaks of the device and of the pool are too low by
 *   another 8 MiB and 1,024 blocks for each of their streams, and meanwhile those of inactive_split and
 *   inactive_split_bytes are not tracked (Detached fronts).
 */
typedef struct weir_stat {
    int64_t current, peak;
    int64_t added, removed; /**< running totals since the last reset; they begin again at 0 after 2^63 - 1 */
} weir_stat;

/** Index into the arrays of weir_memory_stats: PyTorch's names. */
enum { WEIR_STAT_ALL = 0, WEIR_STAT_SMALL = 1, WEIR_STAT_LARGE = 2, WEIR_STAT_KINDS = 3 };

/** Memory statistics of a device, by PyTorch's definitions: reserved + paused >= active >= allocated >= 0. For small
 *  and large blocks alone that holds only of segments: chunks (policy weir) serve both, and all of them count as large.
 *  Set `size`. */
typedef struct weir_memory_stats {
    size_t size;
    weir_stat allocation[WEIR_STAT_KINDS];      /**< blocks handed out */
    weir_stat allocated_bytes[WEIR_STAT_KINDS]; /**< their sizes */
    weir_stat active[WEIR_STAT_KINDS];          /**< handed out, or freed and waiting for a stream */
    weir_stat active_bytes[WEIR_STAT_KINDS];
    weir_stat requested_bytes[WEIR_STAT_KINDS]; /**< what was asked for, of active blocks */
    weir_stat segment[WEIR_STAT_KINDS];         /**< driver allocations */
    weir_stat reserved_bytes[WEIR_STAT_KINDS];  /**< their sizes */
    /** Free blocks in segments that are partly in use; none in chunks, as in PyTorch's expandable segments. */
    weir_stat inactive_split[WEIR_STAT_KINDS];
    weir_stat inactive_split_bytes[WEIR_STAT_KINDS];
    uint64_t hits;           /**< allocations served without growing */
    uint64_t driver_allocs;  /**< segments taken from the driver */
    uint64_t driver_frees;   /**< segments given back */
    uint64_t alloc_retries;  /**< requests for which idle memory was to be given back, to grow again */
    uint64_t ooms;           /**< allocations that failed in the end */
    uint64_t syncs;          /**< times pending frees had to be waited for */
    uint64_t pending_frees;  /**< blocks freed and waiting for a stream, now */
    uint64_t rehomed;        /**< segments moved to another stream instead of growing */
    uint64_t collected;      /**< segments given back by age */
    uint64_t lent;           /**< allocations served from a private pool that lends (use_on_oom) */
    uint64_t paused_bytes;   /**< of paused pools, now: addresses without memory, not counted as reserved */
    uint64_t stream_misuses; /**< uses of blocks on streams that they are not ordered with, found by option `debug` */
    uint64_t plan_served;    /**< allocations that got their place in a served plan (weir/plan.h) */
    uint64_t plan_late;      /**< planned allocations that did not: the place was in use, or had no memory */
    uint64_t plan_missed;    /**< allocations that the served plan does not have at that point */
    uint64_t plan_resyncs;   /**< times that the program was found elsewhere in the plan */
    uint64_t plan_missed_bytes; /**< bytes of late and missed allocations */
} weir_memory_stats;

/** Copies the statistics of a device, consistent at one instant. A device that has not been used yet has zeros and is
 *  not opened, which would create a context of some hundred MiB. Since 0.1. */
WEIR_API weir_status weir_stats_get(int device, weir_memory_stats *out);

/** Sets peaks to current values and running totals and counters to zero. Since 0.1. */
WEIR_API weir_status weir_stats_reset(int device);

/** Calls made to the back end since the library was opened, on all devices, except reads of its clock and questions
 *  which device is current. A hit on a named stream makes no call at all; one on the current stream asks only which
 *  device that is of (CUDA, HIP). Since 0.1. */
WEIR_API weir_status weir_driver_calls(uint64_t *count);

/** Checks every structure of the device's allocator and of the pinned-memory cache; for tests and debugging, O(blocks).
 *  @return WEIR_OK, or WEIR_ERR_INTERNAL with a text that names the broken invariant. Since 0.1. */
WEIR_API weir_status weir_validate(int device);

#ifdef __cplusplus
}
#endif
#endif
