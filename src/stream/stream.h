/*
 * stream: the streams that weir knows on one device, by number. Default, pooled, exclusive and foreign streams differ
 * only in their owner.
 * Owner: the device. Lock: the table's (WR_RANK_STREAMS) for changes; looking up takes none. Records are never unmapped
 * while the device is open, so a stale number meets a record whose id differs.
 */
#ifndef WR_STREAM_STREAM_H
#define WR_STREAM_STREAM_H

#include "backend/backend.h"
#include "base/lock.h"
#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* An id consists of a serial number that is never reused (not even after weir_close), the device, and the record's
 * index. */
#define WR_STREAM_INDEX_BITS 20
#define WR_STREAM_DEVICE_BITS 8
#define WR_STREAM_MAX ((uint32_t)1 << WR_STREAM_INDEX_BITS)

typedef enum wr_stream_owner {
    WR_STREAM_DEFAULT,
    WR_STREAM_POOLED,
    WR_STREAM_EXCLUSIVE,
    WR_STREAM_FOREIGN
} wr_stream_owner;

typedef struct wr_stream {
    _Atomic uint64_t id; /* 0: the record is unused */
    /* These three are atomic since a thread whose stream has ended may read the next one's */
    _Atomic(void *) native;
    _Atomic(int32_t) priority;
    _Atomic(wr_stream_owner) owner;
    uint32_t index; /* in the table: small, dense, reused. It and `device` belong to the record and never change */
    int32_t device;
    /* The pool that all allocations on it come from; NULL: no route. device/routes.h */
    _Atomic(struct wr_mempool *) routed;
    atomic_uint_fast64_t route_serial;
    _Atomic(struct wr_front *) front;  /* its front in the default pool; NULL: none yet. pool/front/front.h */
    _Atomic(struct wr_front *) fronts; /* of all pools, youngest first */
    /* How often weir has queued something of its own on it, counted once that is queued. Where its memory depends on
     * that, as on a wait for the stream that the memory comes from, under the move lock; read by anyone */
    atomic_uint_fast64_t queued;
    atomic_uint guests;  /* threads that use `native` though the program did not give them the stream */
    uint64_t found_busy; /* the last request that its work put off; under the move lock */
    /* The id of the record's last stream that left its memory to the default stream; 0: none has. Set under the
     * cache's lock, before that stream's id goes */
    atomic_uint_fast64_t left;
    bool ending; /* a thread has claimed it in order to end it; under the table's lock */
} wr_stream;

#define WR_STREAM_POOL_SIZE 32 /* per priority, as in PyTorch; created one by one */
#define WR_STREAM_PRIORITIES 16

typedef struct wr_stream_table {
    wr_lock lock;
    const weir_backend *backend;
    int32_t device, priority_least, priority_greatest;
    /* As wr_streams_captured, for all devices, where waiting for one device ends captures on all; else NULL.
     * Constant. */
    weir_status (*captured_anywhere)(bool *captured);
    wr_stream *records; /* WR_STREAM_MAX of them in lazily backed memory; record 0 is the default stream */
    uint32_t used;      /* records touched so far */
    uint32_t *free_indices;
    uint32_t free_count, free_capacity;
    /* Strays: graphs that are gone and that the program may have launched itself, also on streams that are not in the
     * table. `quiet`: how many of them went before a wait for the device, so that none of their launches still runs. */
    atomic_uint_fast64_t strays, quiet;
    struct {
        uint32_t count, next;
        uint64_t ids[WR_STREAM_POOL_SIZE];
    } pool[WR_STREAM_PRIORITIES];
} wr_stream_table;

WR_CHECKED weir_status wr_streams_init(wr_stream_table *table, const weir_backend *backend, int device,
                                       const weir_device_caps *caps);

/* Destroys pooled and exclusive streams. Returns the first driver failure; the table is released regardless. */
weir_status wr_streams_release(wr_stream_table *table);

static inline int wr_stream_id_device(uint64_t id)
{
    return (int)((id >> WR_STREAM_INDEX_BITS) & ((1u << WR_STREAM_DEVICE_BITS) - 1));
}

/* NULL when the id names no stream in this table now. */
static inline wr_stream *wr_stream_find(const wr_stream_table *table, uint64_t id)
{
    wr_stream *s = &table->records[id & (WR_STREAM_MAX - 1)];
    return WR_LIKELY(atomic_load_explicit(&s->id, memory_order_acquire) == id && id != 0) ? s : NULL;
}

/* The same, and the native stream lives until wr_stream_let_go. For those not given the stream by the program, which
 * may end it any time. NULL, which may be let go too: the stream has ended, and its work was waited for. */
wr_stream *wr_stream_hold(const wr_stream_table *table, uint64_t id);
void wr_stream_let_go(wr_stream *stream);

static inline wr_stream *wr_stream_default_of(const wr_stream_table *table)
{
    return &table->records[0];
}

/* weir has queued something of its own on the stream, ahead of what needs it. */
static inline void wr_stream_note_queued(wr_stream *stream)
{
    atomic_fetch_add_explicit(&stream->queued, 1, memory_order_release);
}

WR_CHECKED weir_status wr_stream_from_pool(wr_stream_table *table, int priority, wr_stream **out);
WR_CHECKED weir_status wr_stream_create(wr_stream_table *table, int priority, wr_stream **out);
/* The id of a native stream that the table has already, without a question to the driver; 0: it has none. */
uint64_t wr_stream_known(wr_stream_table *table, const void *native);
/* The id of a native stream, which other threads may be destroying: its record may soon be another's. */
WR_CHECKED weir_status wr_stream_adopt(wr_stream_table *table, void *native, uint64_t *id);

/* The capture of a native stream, which another thread may be ending: NVIDIA's driver (580.159) crashes if it is asked
 * at that moment. So no capture begins or ends meanwhile; a thread inside the gate (stream/gate.h) must not call this.
 * WEIR_CAPTURE_NONE where the back end has no captures. *id is set for an active one. */
WR_CHECKED weir_status wr_stream_ask_capture(const weir_backend *backend, int device, void *native,
                                             weir_capture_state *state, uint64_t *id);

/* The same, for threads inside the gate. */
WR_CHECKED weir_status wr_stream_capture(const weir_backend *backend, int device, void *native,
                                         weir_capture_state *state, uint64_t *id);

/* Whether work queued now on the native stream would be captured instead of run, or would end a capture of another
 * stream. For threads inside the gate. */
WR_CHECKED weir_status wr_stream_captured(const weir_backend *backend, int device, void *native, bool *captured);

/* The same, asked as wr_stream_ask_capture does. */
WR_CHECKED weir_status wr_stream_ask_captured(const weir_backend *backend, int device, void *native, bool *captured);

/* As wr_stream_captured; true when the driver cannot tell. */
bool wr_stream_capturing(const weir_backend *backend, int device, void *native);

/* Whether any stream that weir knows on the device is capturing. Foreign streams that weir was never told of are not
 * seen. */
WR_CHECKED weir_status wr_streams_captured(wr_stream_table *table, bool *captured);

/* Whether any of them has work. None may be capturing, or begin to. */
bool wr_streams_any_busy(wr_stream_table *table);

/* How many indices were ever used; all records are below. */
uint32_t wr_streams_used(wr_stream_table *table);

/* Claims the stream of that id in order to end it. False: it no longer exists, or another thread has claimed it. The
 * claimer retires it, or unclaims it. */
WR_CHECKED bool wr_stream_claim(wr_stream_table *table, wr_stream *stream, uint64_t id);
void wr_stream_unclaim(wr_stream_table *table, wr_stream *stream);

/* From now on nobody finds an exclusive or foreign stream, and all who held it have let go. */
void wr_stream_withdraw(wr_stream_table *table, wr_stream *stream);

/* Ends a stream that was withdrawn: its record can be reused, and an exclusive stream's native one is destroyed.
 * Nothing may refer to the record any more. */
WR_CHECKED weir_status wr_stream_retire(wr_stream_table *table, wr_stream *stream);

#endif
