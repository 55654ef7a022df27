/**
 * @file trace.h
 * @brief Allocation events: weir's history and trace files hold the same records.
 *
 * A trace file (".weirtrace") is a weir_trace_header followed by header.events records of header.event_bytes bytes
 * each, little endian, oldest first. Readers must accept a larger event_bytes (and skip the tail of each record) and
 * must refuse a larger major version. docs/trace-format.md is the specification.
 */
#ifndef WEIR_TRACE_H
#define WEIR_TRACE_H

#include "weir/weir.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What happened. The values are in files and never change. */
typedef enum weir_event_kind {
    WEIR_EVENT_ALLOC = 1,          /**< block handed out; size as requested */
    WEIR_EVENT_FREE_REQUESTED = 2, /**< the user freed it; size as requested */
    WEIR_EVENT_FREE_COMPLETED = 3, /**< it became reusable */
    WEIR_EVENT_SEGMENT_ALLOC = 4,  /**< memory taken from the driver */
    WEIR_EVENT_SEGMENT_FREE = 5,   /**< memory given back to the driver */
    WEIR_EVENT_SEGMENT_MAP = 6,    /**< physical memory mapped into a growing segment */
    WEIR_EVENT_SEGMENT_UNMAP = 7,
    WEIR_EVENT_OOM = 8,            /**< an allocation failed; size as requested, address = free device bytes */
    WEIR_EVENT_SNAPSHOT = 9,       /**< a marker put there by a snapshot */
    WEIR_EVENT_RECORD_STREAM = 10, /**< block used on another stream; stream names that one */
    WEIR_EVENT_LABEL = 11,         /**< later events of this thread are under the label in the 40 bytes from `address`
                                        on, weir_event_label(); an empty one ends that. Since version 1.1 */
    WEIR_EVENT_DECISION = 12,      /**< what became of a request that no cached block served at once; size as requested;
                                        address: weir_decision_served(), weir_decision_tried(). It follows the ALLOC or
                                        the OOM. Since version 1.1 */

    /* What the word `streams` of the option `debug` finds, docs/debugging.md; size as requested. Since version 1.3 */
    WEIR_EVENT_UNRECORDED_USE = 13, /**< a block was freed that `stream` had used without being recorded on it */
    WEIR_EVENT_UNORDERED_USE = 14,  /**< `stream` used a block that another one may still have been using */
    WEIR_EVENT_LATE_WRITE = 15,     /**< a block of `stream` was written after it was freed; nobody knows by which */
    WEIR_EVENT_SUSPECT_FREE = 16    /**< a block was freed while `stream` was current: it may be an unrecorded use */
} weir_event_kind;

/** Grows in later versions. */
#define WEIR_EVENT_LAST WEIR_EVENT_SUSPECT_FREE

/** One event: 56 bytes, naturally aligned, no padding. */
typedef struct weir_event {
    uint64_t time_ns; /**< since the epoch of the recorder's clock; only differences mean anything */
    uint64_t address;
    uint64_t size;
    uint64_t stream;  /**< the native stream handle as a number; 0 is the default stream */
    uint64_t pool[2]; /**< {0,0}: the default pool */
    uint16_t kind;    /**< weir_event_kind */
    int16_t device;
    uint32_t thread; /**< a small number per thread; 0 when unknown */
} weir_event;

/** Most bytes of a label. */
#define WEIR_HISTORY_LABEL_MAX 40

/** Most events that a device can keep. */
#define WEIR_HISTORY_EVENTS_MAX 1000000000

/** Most frames of a recorded call stack. */
#define WEIR_HISTORY_FRAMES_MAX 64

/** The label of a WEIR_EVENT_LABEL: *length bytes, not necessarily followed by a NUL. Since 0.1. */
static inline const char *weir_event_label(const weir_event *event, size_t *length)
{
    const char *text = WEIR_CAST(reinterpret_cast, const char *, &event->address);
    size_t end = 0;
    while (end < WEIR_HISTORY_LABEL_MAX && text[end]) end++;
    *length = end;
    return text;
}

/** The steps of the out-of-memory ladder, in the order in which an allocation that no cached block serves tries them; a
 *  WEIR_EVENT_DECISION names them (docs/memory.md). Values are pinned. */
typedef enum weir_step {
    WEIR_STEP_REFUSED = 0,       /**< nothing helped: out of memory */
    WEIR_STEP_FINISHED = 1,      /**< pending frees whose streams had finished */
    WEIR_STEP_GROW = 2,          /**< a new segment, after collection by age */
    WEIR_STEP_REHOME = 3,        /**< an idle segment of another stream */
    WEIR_STEP_BORROW = 4,        /**< a block of a pool that lends */
    WEIR_STEP_TRIM_OVERSIZE = 5, /**< a new segment, after oversize ones were given back */
    WEIR_STEP_WAIT = 6,          /**< pending frees whose streams had to be waited for */
    WEIR_STEP_TRIM = 7,          /**< a new segment, after idle ones were given back */
    WEIR_STEP_HANDLES = 8,       /**< what idle library handles held */
    WEIR_STEP_PROGRAM = 9,       /**< what the program's callbacks freed */
    WEIR_STEPS = 10
} weir_step;

/** "a new segment". Never NULL. Since 0.1. */
WEIR_API const char *weir_step_name(weir_step step);

/** The step that served a request; WEIR_STEP_REFUSED: none did. Since 0.1. */
static inline weir_step weir_decision_served(const weir_event *decision)
{
    return WEIR_CAST(static_cast, weir_step, decision->address >> 56);
}

/** Whether a step was tried. Since 0.1. */
static inline bool weir_decision_tried(const weir_event *decision, weir_step step)
{
    return decision->address >> step & 1;
}

#define WEIR_TRACE_MAGIC "weirtrc\n"
#define WEIR_TRACE_VERSION_MAJOR 1
#define WEIR_TRACE_VERSION_MINOR 4

/** Head of a trace file: 64 bytes. */
typedef struct weir_trace_header {
    char magic[8];          /**< WEIR_TRACE_MAGIC, no terminator */
    uint16_t version_major; /**< readers refuse a larger one */
    uint16_t version_minor;
    uint32_t header_bytes; /**< where the events start; at least 64 */
    uint32_t event_bytes;  /**< at least 56; 60: each event is followed by the number of its stack */
    uint32_t flags;        /**< 0 */
    uint64_t events;       /**< how many follow; UINT64_MAX: up to the end of the file */
    uint64_t dropped;      /**< events lost before the first one (ring overwritten) */
    uint32_t frames;       /**< frames' texts behind the events. Since version 1.2, as the next two; 0 before */
    uint32_t stacks;       /**< call stacks, of these frames, behind the texts */
    uint64_t stacks_lost;  /**< times that a stack was left out because the table of stacks was full */
    uint32_t sections;     /**< parts behind the stacks with what a snapshot knows besides its events: live blocks,
                                segments, settings. Since version 1.4; 0 before */
    uint32_t reserved;     /**< 0 */
} weir_trace_header;

/**
 * Records events from now on, on all devices; the options `history` and `history_stacks` do the same from the library's
 * opening on. Each block that is live now or waits for streams, and each segment, counts as one event dropped, because
 * its allocation was not recorded. If recording is on, what was recorded stays, and only the two numbers change. Other
 * threads' allocations and frees wait for a moment. May be called at any time, by any thread. Since 0.1.
 * @param events kept per device, 1 to WEIR_HISTORY_EVENTS_MAX; memory is taken as events come. Under the option `plan`
 *        no fewer are kept than before.
 * @param frames of the call stack recorded with each event, the innermost ones, up to WEIR_HISTORY_FRAMES_MAX; 0: no
 *        stacks, which cost microseconds each (docs/history.md).
 * @return WEIR_ERR_INVALID_ARGUMENT; WEIR_ERR_OUT_OF_HOST_MEMORY
 */
WEIR_API weir_status weir_history_start(uint64_t events, uint32_t frames);

/**
 * Stops recording, whatever switched it on, forgets what was recorded, and frees its memory. Labels stay, and call
 * stacks until weir_close(). Does nothing when nothing is recorded; does not open the library. May be called at any
 * time, by any thread. Since 0.1.
 * @return WEIR_ERR_BUSY under the option `plan`, which needs recorded events.
 */
WEIR_API weir_status weir_history_stop(void);

/** A place in a program's source. Since 0.1. */
typedef struct weir_frame {
    const char *file;     /**< NULL: not known */
    const char *function; /**< NULL: not known */
    uint64_t line;        /**< 0: not known */
} weir_frame;

/** Call stacks of a language whose calls are not on the machine's stack, such as Python. Since 0.1. */
typedef struct weir_stack_source {
    size_t size; /**< of this structure; see WEIR_STACK_SOURCE_INIT */
    /**
     * Writes the calling thread's stack into `frames`, innermost call first, at most `capacity` of them, and returns
     * how many. A frame is any value, not NULL, that always stands for the same place and is no address of code. 0:
     * this thread runs nothing of the language now; then the stack of machine code is recorded.
     * Called by any thread, while it allocates, frees or records streams, and while weir holds no lock. It must not
     * throw or jump out. If it calls weir, it is called again within itself, where it must return 0.
     */
    size_t (*take)(void *user, const void **frames, size_t capacity);
    /**
     * Says what a frame stands for; false: it is not one of this source's. The texts that it gives must stay. Called
     * when files and messages are written, by any thread, also under locks of weir's: it must not call weir, nor wait
     * for a thread that may be doing so.
     */
    bool (*describe)(void *user, const void *frame, weir_frame *out);
    void *user;
} weir_stack_source;

#define WEIR_STACK_SOURCE_INIT { sizeof(weir_stack_source), NULL, NULL, NULL }

/**
 * Takes recorded stacks, and those that the option `debug` shows, from `source` wherever it has any. There can be one
 * source, for the rest of the process; the structure and its functions must stay. Does not open the library. May be
 * called at any time, by any thread. Since 0.1.
 * @return WEIR_ERR_INVALID_ARGUMENT; WEIR_ERR_BUSY when there is another one.
 */
WEIR_API weir_status weir_history_stacks_from(const weir_stack_source *source);

/**
 * Copies up to `capacity` of the device's recorded events, oldest first. Sets `*count` to how many it copied and
 * `*dropped` to how many had been overwritten before the first. The option `history` or weir_history_start() switches
 * recording on. Since 0.1.
 * @param dropped may be NULL.
 * @return WEIR_ERR_NOT_SUPPORTED when recording is off.
 */
WEIR_API weir_status weir_history_read(int device, weir_event *events, size_t capacity, size_t *count,
                                       uint64_t *dropped);

/** Forgets the device's recorded events. Labels stay: later events have their threads' labels. Since 0.1. */
WEIR_API weir_status weir_history_clear(int device);

/**
 * Labels what the calling thread does from now on with 1 to 40 bytes ("optimizer", "request 17"), until
 * weir_history_label_pop(). Labels nest, up to 32 deep; an event has the innermost. Labels set while recording is off
 * apply once it is on. @return WEIR_ERR_INVALID_ARGUMENT; WEIR_ERR_OUT_OF_HOST_MEMORY. Since 0.1.
 */
WEIR_API weir_status weir_history_label_push(const char *label);

/** Ends the calling thread's innermost label. @return WEIR_ERR_INVALID_ARGUMENT when there is none. Since 0.1. */
WEIR_API weir_status weir_history_label_pop(void);

/** Writes a trace file with the recorded events of all devices, by time. An existing file is replaced whole or not at
 *  all and keeps its mode; a symbolic link stays, and the file behind it is replaced. What is not a plain file (a
 *  device, a pipe) is written in place, and what is named by a descriptor of this process (/dev/stdout) where that
 *  descriptor is.
 *  @return WEIR_ERR_IO with the system's reason; WEIR_ERR_NOT_SUPPORTED when recording is off. Since 0.1. */
WEIR_API weir_status weir_history_save(const char *path);

#ifdef __cplusplus
}
#endif
#endif
