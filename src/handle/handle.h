/*
 * handle: the handles of one kind on one device. A handle is owned by a thread or by a lease, or is idle; it never has
 * two owners.
 * Owner: the device; made at first use, destroyed with the device. Lock: `lock` (WR_RANK_HANDLES) for the lists,
 * budgets and counters; never held across a call of the library or driver. What a handle is bound to belongs to its
 * present owner and needs no lock.
 */
#ifndef WR_HANDLE_HANDLE_H
#define WR_HANDLE_HANDLE_H

#include "backend/kind.h"
#include "stream/event.h"
#include "stream/stream.h"

typedef struct wr_handle wr_handle;
typedef struct wr_handle_pool wr_handle_pool;

/* Creates in progress on a device, of all kinds. How much device memory a create took can be told only if it ran
 * alone. */
typedef struct wr_creates {
    /* In progress and, from bit 32 on, ever begun: in one word, so that none is seen in the one and not in the other */
    atomic_uint_fast64_t count;
} wr_creates;

/* What a pool needs of its device; all of it outlives the pool. */
typedef struct wr_handle_site {
    const weir_backend *backend;
    int device;
    const weir_device_caps *caps;
    wr_stream_table *streams;
    wr_event_pool *events;
    wr_creates *creates;
    /* Takes device memory in stream order, from weir's own allocator. `routed`: inside a capture, from the graph's
     * pool; what is given back while the graph lives must come from there. */
    weir_status (*alloc)(void *device_context, wr_stream *stream, size_t bytes, bool routed, void **out);
    /* Gives it back. `last_used_on` may be another stream than the one it was taken on; NULL: it is the same. */
    weir_status (*free)(void *device_context, void *pointer, const wr_stream *last_used_on);
    /* Makes room in device memory. A create that fails for lack of memory is tried again after it. */
    void (*make_room)(void *device_context);
    /* Bytes of the device's memory that weir has, or is asking for. */
    uint64_t (*held)(void *device_context);
    void *device_context;
} wr_handle_site;

typedef enum wr_handle_owner { WR_HANDLE_OF_THREAD, WR_HANDLE_LEASED } wr_handle_owner;

/* Memory of weir's that the library works in, one piece per stream that the handle was used on: work queued or captured
 * there may still use it. */
typedef struct wr_workspace {
    uint64_t stream_id;
    void *memory;
    size_t bytes;
    bool captured; /* a graph that does not hold the handle has its address: it stays until the library is closed */
} wr_workspace;

/* More debts than this are refused. It takes as many streams that the handle has work on and that are capturing by
 * now. */
#define WR_HANDLE_DEBTS 8

/* Ids of streams that have work with the handle for which its next user could not wait, because of a capture. */
typedef struct wr_handle_debts {
    uint64_t ids[WR_HANDLE_DEBTS];
    uint32_t count;
} wr_handle_debts;

struct wr_handle {
    void *native;
    wr_handle_pool *pool;
    uint64_t served_id;        /* it serves a get on this stream as it is; 0: every get must bind */
    uint64_t served_ways;      /* while the library's count of ways is this, such a get is a hit; 0: it is none */
    uint64_t stream_id;        /* last used on, and bound to unless that failed; 0: none yet */
    void *native_stream;       /* that one's, also once it has ended */
    uint64_t capture_id;       /* while this capture goes on, all its work on that stream is in it; 0: none is known */
    atomic_uint_fast64_t hits; /* written by the owner only */
    wr_handle_debts owed;      /* in addition to stream_id; while there are any, every get must bind */
    wr_workspace *workspaces;
    uint32_t workspace_count, workspace_capacity;
    wr_kind_memory memory; /* handed to libraries that take their memory from weir */
    uint64_t bytes;        /* what creating it took of the device's memory */
    uint64_t lease;        /* the id of its lease; 0: none */
    wr_handle_owner owner; /* the last one, while it is idle */
    uint32_t graphs;       /* graphs that hold it: while any does, it is not destroyed, idle or not */
    wr_handle *next_idle;
    wr_handle *next; /* all of the pool */
};

typedef struct wr_handle_waiter wr_handle_waiter;

struct wr_handle_pool {
    wr_kind *kind;
    wr_handle_site site;
    wr_lock lock;
    wr_handle *all, *idle; /* idle: last in, first out */
    wr_handle *doomed;     /* idle, to be destroyed when no capture is underway, unless they are needed before */
    uint64_t underway;     /* creations and destructions in progress, which count against the budget */
    bool created_first;
    pthread_cond_t first_created;
    uint64_t budget_count, budget_bytes; /* 0: none */
    uint64_t typical_bytes;              /* what the last create took, and the next one is expected to take */
    wr_handle_waiter *first_waiter, *last_waiter;
    weir_handle_stats stats; /* hits: without those of existing handles, less theirs at the last reset */
};

WR_CHECKED weir_status wr_handle_pool_init(wr_handle_pool *pool, wr_kind *kind, const wr_handle_site *site);

/* For weir_close: destroys all handles, whoever owns them. Returns the first failure. */
weir_status wr_handle_pool_release(wr_handle_pool *pool);

typedef struct wr_handle_want {
    wr_handle_owner owner;
    uint64_t stream_id;  /* that it will be bound to */
    uint64_t timeout_ns; /* 0 for a thread's own */
} wr_handle_want;

/* Gets an idle handle, if possible one last used on the stream, or a new one, for an owner; it is not bound yet. Beyond
 * the budget: WEIR_ERR_BUSY when `timeout_ns` is 0, else queues for that long (WEIR_ERR_TIMEOUT). */
WR_CHECKED weir_status wr_handle_acquire(wr_handle_pool *pool, const wr_handle_want *want, wr_handle **out);

/* Gives it back to the pool, or straight to the first in the queue. Calls neither library nor driver, so it is safe at
 * thread exit. */
void wr_handle_give_back(wr_handle *handle);

/* The owner is the only writer, so the sum needs no atomic read-modify-write. */
static inline void wr_handle_count_hit(wr_handle *handle)
{
    const uint64_t hits = atomic_load_explicit(&handle->hits, memory_order_relaxed);
    atomic_store_explicit(&handle->hits, hits + 1, memory_order_relaxed);
}

/* A graph holds the handle, with its workspaces. */
void wr_handle_hold(wr_handle *handle);
void wr_handle_let_go(wr_handle *handle);

/* Binds to a stream, which waits for the handle's last use elsewhere. The caller owns the handle. After a failure the
 * next get must bind, even on the same stream. `for_graph`: the stream captures, and the graph holds the handle. */
WR_CHECKED weir_status wr_handle_bind(wr_handle *handle, wr_stream *stream, bool for_graph);

/* Frees the workspaces of streams that have ended: only graphs still use them. The caller owns the handle. Binding does
 * the same. */
void wr_handle_drop_orphans(wr_handle *handle);

/* Destroys as many handles as are idle now. Those whose destruction would end a capture underway wait in `doomed`. */
WR_CHECKED weir_status wr_handle_pool_trim(wr_handle_pool *pool, uint64_t *destroyed);

/* 0: no limit. Those in the queue that have room now go on. */
void wr_handle_pool_budget(wr_handle_pool *pool, uint64_t count, uint64_t bytes);

/* Leases: a borrowed handle gets an id and is found by it, until exactly one caller ends the lease. */
void wr_handle_lend(wr_handle *handle, uint64_t lease);
void *wr_handle_leased(wr_handle_pool *pool, uint64_t lease);
wr_handle *wr_handle_end_lease(wr_handle_pool *pool, uint64_t lease);

void wr_handle_pool_stats(wr_handle_pool *pool, weir_handle_stats *out);

/* The peak becomes the number that exist; counters become zero. */
void wr_handle_pool_stats_reset(wr_handle_pool *pool, bool peaks, bool totals);

#endif
