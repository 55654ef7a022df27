/*
 * host: the device that is always there. Memory is address space that costs RAM when touched; a stream is an ordered
 * queue whose items run in the calling thread when nothing is before them, else on the stream's own thread.
 *
 * Owner: the open back end; one set per process. Locks, none of which is held while work runs or a thread sleeps: each
 * device has one for its memory and one for its lists of objects; each stream, event and executable graph has its own;
 * all captures share one, all registrations one, the script has one (all WR_RANK_BACKEND, never two at once); and
 * threads that wait for progress share one (WR_RANK_LEAF).
 *
 * Files: host.c the table and devices; script.c the gate that every entry passes, and what tests can script; memory.c
 * segments, managed, pinned and registered memory; vm.c virtual memory; queue.c how work is ordered and run; stream.c,
 * event.c, graph.c the entries of those names; cost.c what calls cost on a measured machine; space.c which ranges are
 * taken.
 */
#ifndef WR_BACKEND_HOST_INTERNAL_H
#define WR_BACKEND_HOST_INTERNAL_H

#include "backend/host/space.h"
#include "base/lock.h"
#include "base/status.h"
#include "weir/backend.h"
#include "weir/host.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define WR_HOST_DEVICES_MAX 64
#define WR_HOST_GRANULARITY ((uint64_t)2 << 20)

/* Stream priorities, as on an H200. They are kept but have no effect. */
#define WR_HOST_PRIORITY_LEAST 0
#define WR_HOST_PRIORITY_GREATEST (-5)

typedef struct wr_host_stream wr_host_stream;
typedef struct wr_host_capture wr_host_capture;
typedef struct wr_host_exec wr_host_exec;

/* ---- work and its order (queue.c) -------------------------------------------------------------------------------- */

/* The moment when the first `count` items of a stream have completed; always past when stream is NULL. Holds a
 * reference to the stream, which its user may have destroyed long ago. */
typedef struct wr_host_fence {
    wr_host_stream *stream;
    uint64_t count;
} wr_host_fence;

typedef enum wr_host_work_kind {
    WR_HOST_NOTHING, /* an event's record; in a capture, a join */
    WR_HOST_CALL,
    WR_HOST_COPY,
    WR_HOST_FILL,
    WR_HOST_WAIT,
    WR_HOST_GRAPH
} wr_host_work_kind;

typedef struct wr_host_work {
    wr_host_work_kind kind;
    union {
        struct {
            void (*function)(void *);
            void *argument;
        } call;
        struct {
            void *destination;
            const void *source; /* copies */
            size_t bytes;
            unsigned char value; /* fills */
        } memory;
        wr_host_fence fence; /* waits; owned */
        wr_host_exec *exec;  /* graphs; owned */
    };
} wr_host_work;

typedef struct wr_host_item {
    STAILQ_ENTRY(wr_host_item) link;
    wr_host_work work;
} wr_host_item;

typedef enum wr_host_worker { WR_HOST_NO_WORKER, WR_HOST_WORKER_RUNS, WR_HOST_WORKER_ENDED } wr_host_worker;

/* Lives until its user has destroyed it (or the device has closed), its worker has been joined and no fence needs
 * it. */
struct wr_host_stream {
    uint32_t magic; /* 0 once destroyed */
    int device, priority;
    uint64_t serial; /* rising in the order of creation */
    atomic_uint references;
    TAILQ_ENTRY(wr_host_stream) link; /* this and the next: under the device's list lock */
    bool leaving;                     /* destroyed by its user, its worker still to be joined */

    wr_lock lock; /* guards the members from here to `thread` */
    pthread_cond_t wake;
    STAILQ_HEAD(, wr_host_item) items;
    bool running;          /* an item is being run, by whichever thread */
    bool destroyed;        /* by its user: the worker ends with the queue */
    pthread_t thread;      /* while `worker` is not WR_HOST_NO_WORKER */
    atomic_bool held;      /* these five are written under the lock and read without */
    atomic_bool discarded; /* the device is lost or closing: nothing more will run */
    atomic_int worker;     /* of wr_host_worker */
    atomic_uint_fast64_t queued, done;

    _Atomic(wr_host_capture *) capture; /* written and followed under the capture lock only */
    int64_t tip;                        /* last node of this stream in the capture; capture lock */
    LIST_ENTRY(wr_host_stream) captured_link;
};

WR_CHECKED weir_status wr_host_stream_new(int device, int priority, wr_host_stream **out);
void wr_host_stream_ref(wr_host_stream *stream);
void wr_host_stream_unref(wr_host_stream *stream);
bool wr_host_stream_idle(wr_host_stream *stream);

/* Runs or queues `work`, whose references pass to the stream on success. `position` may be NULL. */
WR_CHECKED weir_status wr_host_submit(wr_host_stream *stream, const wr_host_work *work, uint64_t *position);

/* The fence that passes when everything now on the stream has completed. */
WR_CHECKED weir_status wr_host_mark(wr_host_stream *stream, wr_host_fence *fence);

/* From now on the stream's worker runs nothing. */
void wr_host_stream_hold(wr_host_stream *stream);

/* Runs items of a held stream in the calling thread until one cannot run, `limit` have run, or none is left. */
uint64_t wr_host_stream_run(wr_host_stream *stream, uint64_t limit);

/* Ends a hold, or the stream's use, so that a worker takes over what is queued. */
WR_CHECKED weir_status wr_host_stream_unhold(wr_host_stream *stream, bool destroy);

/* Drops what has not begun. Waiters see it as completed. */
void wr_host_stream_discard(wr_host_stream *stream);

/* Waits until the worker has ended. */
void wr_host_stream_join(wr_host_stream *stream);

bool wr_host_fence_passed(const wr_host_fence *fence);
wr_host_fence wr_host_fence_copy(const wr_host_fence *fence);
void wr_host_fence_drop(wr_host_fence *fence);

/* For threads that synchronise: returns when the fence has passed. Runs the items of held streams that the fence needs,
 * since the thread that would step them may be the one that waits. */
void wr_host_fence_reach(const wr_host_fence *fence);

/* What WR_HOST_CALL, _COPY and _FILL do. */
void wr_host_work_run(const wr_host_work *work);

/* ---- devices (host.c) -------------------------------------------------------------------------------------------- */

/* What a user gets pointers to. Except in streams, a wr_host_object is the object's first member. */
typedef enum wr_host_kind {
    WR_HOST_IS_STREAM = 0x57535452,
    WR_HOST_IS_EVENT = 0x57455654,
    WR_HOST_IS_GRAPH = 0x57475246,
    WR_HOST_IS_EXEC = 0x57455845
} wr_host_kind;

typedef struct wr_host_object {
    uint32_t magic; /* of wr_host_kind; 0 once destroyed */
    int device;
    LIST_ENTRY(wr_host_object) link;
} wr_host_object;

/* A span of address space, ranges of which are made accessible. */
typedef struct wr_host_arena {
    char *start;
    uint64_t bytes;
    wr_host_space space;
    bool hollow;   /* its ranges are never accessible (weir_host_omit_contents) */
    uint64_t page; /* ranges begin and end at multiples of it */
} wr_host_arena;

typedef struct wr_host_device {
    atomic_bool open;
    atomic_bool lost;           /* until the back end closes */
    atomic_uint_fast64_t peers; /* bit per device */

    wr_lock memory_lock; /* from here to place_next */
    wr_host_arena memory, pinned;
    uint64_t used;        /* bytes of segments and chunks */
    int file;             /* the chunks' memory; -1 until there is a chunk */
    wr_host_space chunks; /* of the file */
    weir_host_place *places;
    size_t place_count, place_next;

    wr_lock list_lock;
    TAILQ_HEAD(, wr_host_stream) streams; /* by rising serial */
    LIST_HEAD(, wr_host_object) objects;
    uint64_t next_serial;
    atomic_uint leaving;            /* how many streams are `leaving` */
    wr_host_stream *default_stream; /* immutable while the device is open */
} wr_host_device;

typedef struct wr_host_state {
    atomic_bool open;
    int count;
    uint64_t memory;    /* per device */
    atomic_bool hollow; /* devices are opened with hollow memory */
    wr_host_device devices[WR_HOST_DEVICES_MAX];
} wr_host_state;

extern wr_host_state wr_host;

/* Every entry about a device begins with this: passes the gate, then finds the device, which must be open and not
 * lost. */
WR_CHECKED weir_status wr_host_enter(enum weir_backend_entry entry, int device, wr_host_device **out);

/* The device must be open, but may be lost. */
WR_CHECKED weir_status wr_host_device_find(int device, wr_host_device **out);

/* The first stream with a higher serial (`busy`: that is busy), with a reference; NULL when there is none. */
wr_host_stream *wr_host_stream_after(wr_host_device *device, uint64_t serial, bool busy);

WR_CHECKED weir_status wr_host_object_check(const void *object, wr_host_kind kind, int device);
void wr_host_object_add(wr_host_object *object, wr_host_kind kind, int device);
void wr_host_object_remove(wr_host_object *object);

/* The functions of weir/host.h begin with this. */
WR_CHECKED weir_status wr_host_check_open(const char *call);

/* ---- the gate (script.c) ----------------------------------------------------------------------------------------- */

/* Counts the call, lets it take the scripted time, and fails it if a failure was scripted. */
WR_CHECKED weir_status wr_host_gate(enum weir_backend_entry entry);
const char *wr_host_entry_name(enum weir_backend_entry entry);
void wr_host_script_clear(void);
/* Adds the cost of a completed call that depends on `bytes` to the driver time; the gate counts the others. */
void wr_host_spend(enum weir_backend_entry entry, uint64_t bytes);
weir_status wr_host_clock_ns(uint64_t *now);

/* ---- the measured machine (cost.c) ------------------------------------------------------------------------------- */

/* Nanoseconds of one call, for one mapped handle of `bytes`. Entries that nobody has measured cost 0. */
uint64_t wr_host_cost(enum weir_backend_entry entry, uint64_t bytes);
bool wr_host_cost_has_size(enum weir_backend_entry entry);

/* ---- memory.c, vm.c ---------------------------------------------------------------------------------------------- */

WR_CHECKED weir_status wr_host_memory_open(wr_host_device *device);
void wr_host_memory_close(wr_host_device *device);
/* Forgets what was registered through the device. */
void wr_host_registrations_close(int device);

/* The error text gives errno. */
WR_CHECKED weir_status wr_host_fail_mapping(const char *call, const void *base, uint64_t bytes);
/* Replaces what is mapped there by address space that costs nothing and cannot be touched. */
WR_CHECKED weir_status wr_host_decommit(const wr_host_arena *arena, void *base, uint64_t bytes);
/* Counts `bytes` against the device's memory. Memory lock held. */
WR_CHECKED weir_status wr_host_charge(wr_host_device *device, uint64_t bytes);
void wr_host_vm_close(wr_host_device *device);

weir_status wr_host_segment_alloc(int device, size_t bytes, void **base);
weir_status wr_host_segment_free(int device, void *base, size_t bytes);
weir_status wr_host_pinned_alloc(int device, size_t bytes, void **base);
weir_status wr_host_pinned_free(int device, void *base, size_t bytes);
weir_status wr_host_register(int device, void *base, size_t bytes);
weir_status wr_host_unregister(int device, void *base, size_t bytes);
weir_status wr_host_managed_alloc(int device, size_t bytes, void **base);
weir_status wr_host_managed_free(int device, void *base, size_t bytes);
weir_status wr_host_vm_reserve(int device, size_t bytes, uint64_t hint, void **base);
weir_status wr_host_vm_release(int device, void *base, size_t bytes);
weir_status wr_host_vm_create(int device, size_t bytes, weir_chunk *chunk);
weir_status wr_host_vm_destroy(int device, weir_chunk chunk, size_t bytes);
weir_status wr_host_vm_map(int device, void *base, size_t bytes, weir_chunk chunk);
weir_status wr_host_vm_unmap(int device, void *base, size_t bytes);
weir_status wr_host_vm_access(int device, void *base, size_t bytes, int accessor);
weir_status wr_host_vm_create_exportable(int device, size_t bytes, weir_chunk *chunk);
weir_status wr_host_vm_export(int device, weir_chunk chunk, int *descriptor);
weir_status wr_host_vm_import(int device, int descriptor, size_t bytes, weir_chunk *chunk);

/* ---- stream.c ---------------------------------------------------------------------------------------------------- */

/* The stream behind a native handle (NULL: the default stream), which must be of `device`. */
WR_CHECKED weir_status wr_host_stream_find(int device, void *native, wr_host_stream **out);

/* Entries on a stream begin with this: wr_host_enter(), then wr_host_stream_find(). */
WR_CHECKED weir_status wr_host_stream_enter(enum weir_backend_entry entry, int device, void *native,
                                            wr_host_stream **out);

weir_status wr_host_stream_create(int device, int priority, void **stream);
weir_status wr_host_stream_destroy(int device, void *stream);
weir_status wr_host_stream_check(int device, void *stream);
weir_status wr_host_stream_query(int device, void *stream);
weir_status wr_host_stream_synchronize(int device, void *stream);
weir_status wr_host_stream_wait(int device, void *stream, void *event);
weir_status wr_host_stream_callback(int device, void *stream, void (*function)(void *), void *argument);
weir_status wr_host_copy(int device, void *stream, void *destination, const void *source, size_t bytes);
weir_status wr_host_fill(int device, void *stream, void *destination, unsigned char value, size_t bytes);
weir_status wr_host_device_synchronize(int device);

/* ---- event.c ----------------------------------------------------------------------------------------------------- */

/* What an event's last record stands for. */
typedef struct wr_host_target {
    bool recorded;
    wr_host_fence fence;
    uint64_t capture; /* the capture it was recorded in; 0: none */
    int64_t node;     /* the last node before it in that capture; -1: none */
} wr_host_target;

/* The target, with its own reference to the fence's stream. `event` has been checked. */
wr_host_target wr_host_event_target(void *event);
void wr_host_event_close(wr_host_object *object);

weir_status wr_host_event_create(int device, void **event);
weir_status wr_host_event_destroy(int device, void *event);
weir_status wr_host_event_record(int device, void *event, void *stream);
weir_status wr_host_event_query(int device, void *event);
weir_status wr_host_event_synchronize(int device, void *event);

/* ---- graph.c ----------------------------------------------------------------------------------------------------- */

/* For calls that CUDA forbids while a capture is underway: WEIR_ERR_CAPTURE, and the captures concerned (the stream's,
 * the target's, those with a stream of the device) are invalidated; WEIR_OK when there are none. `call` must be a
 * literal. */
WR_CHECKED weir_status wr_host_capture_refuse_stream(wr_host_stream *stream, const char *call);
WR_CHECKED weir_status wr_host_capture_refuse_event(const wr_host_target *target, const char *call);
WR_CHECKED weir_status wr_host_capture_refuse_device(int device, const char *call);

WR_CHECKED weir_status wr_host_capture_add(wr_host_stream *stream, const wr_host_work *work);
/* Orders the stream behind a target, when either of them is in a capture. */
WR_CHECKED weir_status wr_host_capture_wait(wr_host_stream *stream, const wr_host_target *target);
WR_CHECKED weir_status wr_host_capture_tip(wr_host_stream *stream, wr_host_target *target);
/* Forgets captures that have a stream of the device. */
void wr_host_capture_abandon(int device);

void wr_host_exec_unref(wr_host_exec *exec);
void wr_host_exec_run(const wr_host_exec *exec);
/* Whether it has callbacks, which must not run in a caller's thread. */
bool wr_host_exec_calls(const wr_host_exec *exec);
void wr_host_graph_close(wr_host_object *object);

weir_status wr_host_capture_begin(int device, void *stream, weir_capture_mode mode);
weir_status wr_host_capture_end(int device, void *stream, void **graph);
weir_status wr_host_capture_status(int device, void *stream, weir_capture_state *state, uint64_t *id);
weir_status wr_host_capture_tips(int device, void *stream, void **nodes, size_t capacity, size_t *count);
weir_status wr_host_node_dependencies(int device, void *node, void **nodes, size_t capacity, size_t *count);
weir_status wr_host_graph_instantiate(int device, void *graph, void **exec);
weir_status wr_host_graph_launch(int device, void *exec, void *stream);
weir_status wr_host_graph_exec_destroy(int device, void *exec);
weir_status wr_host_graph_destroy(int device, void *graph);

#endif
