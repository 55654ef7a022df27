/*
 * thread: a thread's own state: its current device and, per device, its current stream and library handles; and what it
 * remembers, to make its next hits fast, of the streams that it allocates on and the blocks that it frees.
 * Owner: the thread; nobody else reads it, so no lock. Made at the first call that changes something from the default,
 * freed at thread exit. The state is void once the library's epoch has moved on. What is remembered, the thread's ways,
 * is void once the library's count of changed ways has risen: with the epoch, when a stream has ended, or when a route,
 * capture or plan has come (docs/threading.md). A route of the thread's own does not raise it: the thread itself
 * forgets its ways when that begins and when it ends.
 */
#ifndef WR_THREAD_THREAD_H
#define WR_THREAD_THREAD_H

#include "device/device.h"
#include "handle/handle.h"
#include "pool/front/front.h"
#include "pool/starts.h"

/* How deep a thread may nest weir_mempool_enter(). */
#define WR_THREAD_ROUTES_MAX 32

#define WR_THREAD_SIDES_BITS 5
#define WR_THREAD_SIDES (1u << WR_THREAD_SIDES_BITS)

/* One weir_mempool_enter(). */
typedef struct wr_thread_route {
    wr_route route;
    int device;
} wr_thread_route;

typedef struct wr_thread {
    uint64_t epoch;
    int device;                         /* -1: none chosen */
    uint64_t stream_ids[WR_DEVICE_MAX]; /* 0: the default stream */
    wr_handle **handles[WR_DEVICE_MAX]; /* [device][kind]; NULL until the thread gets its first there */
    bool captures;                      /* it has begun some, whose graphs are told of its end */
    uint32_t route_count;
    wr_thread_route routes[WR_THREAD_ROUTES_MAX]; /* innermost last */
    wr_front *sides;                              /* thread/sides.h; linked by next_own */
    wr_front *sides_at_hand[WR_THREAD_SIDES];     /* some of them, by their main front */
} wr_thread;

/* Never NULL: a thread that changed nothing has a static empty context, which is always void. A pointer in static TLS,
 * so that a library loaded with dlopen reaches it with one instruction too (docs/decisions/0005). */
extern WR_THREAD_LOCAL __attribute__((tls_model("initial-exec"))) wr_thread *wr_thread_current;

/* What a thread remembers of streams that it allocated on, and of the block that it freed last: all that a hit needs,
 * until the ways change. Until then no table of blocks and no record is freed either. */
#define WR_THREAD_WAYS 4

typedef struct wr_thread_way {
    uint64_t stream_id;
    wr_front *front;
} wr_thread_way;

/* Where the current stream of a device led to, while that device is current. */
typedef struct wr_thread_here {
    wr_front *front;                  /* NULL: not known */
    weir_status (*ask)(int *ordinal); /* which device is current: other code sets it too; NULL: the thread alone does */
    int device;
} wr_thread_here;

typedef struct wr_thread_known {
    uint64_t ways;       /* the library's count of changes when all this was true; 0: nothing is known */
    wr_thread_here here; /* until the thread sets its device or stream */
    wr_thread_way of[WR_THREAD_WAYS];
    /* In pools that calls name. Such a pool may go, and its front become another pool's */
    wr_front *named[WR_THREAD_WAYS];
    const wr_starts *starts; /* the table that had the last freed block */
} wr_thread_known;

extern WR_THREAD_LOCAL __attribute__((tls_model("initial-exec"))) wr_thread_known wr_thread_knows;

/* By the stream's index and device, since programs with several devices have the same stream indices on each. */
static inline size_t wr_thread_way_at(uint64_t stream_id)
{
    return (stream_id + (stream_id >> WR_STREAM_INDEX_BITS)) % WR_THREAD_WAYS;
}

/* The front that the thread remembers for a user's stream id; NULL: none, or the ways have changed. */
static inline wr_front *wr_thread_front(uint64_t stream_id)
{
    const wr_thread_known *known = &wr_thread_knows;
    const wr_thread_way *way = &known->of[wr_thread_way_at(stream_id)];
    const uint64_t ways = atomic_load_explicit(&wr_runtime_global.ways, memory_order_acquire);
    return WR_LIKELY(way->stream_id == stream_id && known->ways == ways) ? way->front : NULL;
}

/* The front that the thread remembers for its current stream; NULL: none, or something has changed. The driver says
 * which device is current: the one call of it that a hit may make. */
static inline wr_front *wr_thread_front_here(void)
{
    const wr_thread_known *known = &wr_thread_knows;
    const uint64_t ways = atomic_load_explicit(&wr_runtime_global.ways, memory_order_acquire);
    if (WR_UNLIKELY(known->ways != ways || !known->here.front)) return NULL;
    int device = known->here.device;
    const bool good = !known->here.ask || known->here.ask(&device) == WEIR_OK;
    return WR_LIKELY(good && device == known->here.device) ? known->here.front : NULL;
}

static inline size_t wr_thread_named_way_at(uint64_t stream_id, wr_mempool_name name)
{
    return (wr_thread_way_at(stream_id) + (name >> 1)) % WR_THREAD_WAYS;
}

/* The same in a pool that the call names. Under the front's lock the caller checks again that it is still that
 * pool's. */
static inline wr_front *wr_thread_named_front(uint64_t stream_id, wr_mempool_name name)
{
    const wr_thread_known *known = &wr_thread_knows;
    wr_front *front = known->named[wr_thread_named_way_at(stream_id, name)];
    const uint64_t ways = atomic_load_explicit(&wr_runtime_global.ways, memory_order_acquire);
    if (WR_UNLIKELY(known->ways != ways || !front || stream_id == 0)) return NULL; /* a stream that ends has id 0 too */
    const bool same = atomic_load_explicit(&front->stream->id, memory_order_relaxed) == stream_id;
    /* The front's other data about the pool was written before its name. */
    const bool there = atomic_load_explicit(&front->name, memory_order_acquire) == name;
    return WR_LIKELY(same && there) ? front : NULL;
}

/* The block that began there a moment ago, if the thread knows. Whether it still does is checked under the lock of its
 * front. */
static inline wr_block *wr_thread_block(const void *pointer)
{
    const wr_thread_known *known = &wr_thread_knows;
    const uint64_t ways = atomic_load_explicit(&wr_runtime_global.ways, memory_order_acquire);
    return WR_LIKELY(known->ways == ways) ? wr_starts_find_in(known->starts, NULL, pointer) : NULL;
}

/* `ways` must have been read before the cache, or the front, was found. A cache has no table before its first block. */
static inline void wr_thread_remember_blocks(uint64_t ways, const wr_cache *cache)
{
    const wr_starts *starts = atomic_load_explicit(&cache->starts, memory_order_acquire);
    /* Without a table nothing is remembered, not even of before the library was closed. */
    if (wr_thread_knows.ways != ways) wr_thread_knows = (wr_thread_known){ .ways = starts ? ways : 0 };
    if (!starts) return;
    wr_thread_knows.starts = starts;
}

/* Until it looks them up again. */
static inline void wr_thread_forget_ways(void)
{
    wr_thread_knows.ways = 0;
}

/* Whether fronts of the cache can be remembered: not before it has a table, because the count is stored along with
 * one. */
static inline bool wr_thread_may_remember(uint64_t ways, const wr_cache *cache)
{
    if (wr_thread_knows.ways != ways) wr_thread_remember_blocks(ways, cache);
    return wr_thread_knows.ways == ways;
}

static inline void wr_thread_remember_front(uint64_t ways, uint64_t stream_id, wr_front *front)
{
    if (wr_thread_may_remember(ways, front->cache))
        wr_thread_knows.of[wr_thread_way_at(stream_id)] = (wr_thread_way){ stream_id, front };
}

static inline void wr_thread_remember_here(uint64_t ways, const wr_device *device, wr_front *front)
{
    if (wr_thread_may_remember(ways, front->cache))
        wr_thread_knows.here = (wr_thread_here){ front, device->backend->device_get_current, device->ordinal };
}

static inline void wr_thread_remember_named_front(uint64_t ways, uint64_t stream_id, wr_mempool_name name,
                                                  wr_front *front)
{
    if (wr_thread_may_remember(ways, front->cache))
        wr_thread_knows.named[wr_thread_named_way_at(stream_id, name)] = front;
}

/* Its state is of another epoch: the library has been closed since, or this is a child of fork. */
static inline bool wr_thread_is_void(const wr_thread *thread)
{
    return thread->epoch != atomic_load_explicit(&wr_runtime_global.epoch, memory_order_relaxed);
}

/* The calling thread's own context, made if necessary, valid for this epoch. */
WR_CHECKED weir_status wr_thread_own(wr_thread **out);

/* The calling thread's current device. */
WR_CHECKED weir_status wr_thread_device(int *ordinal);
WR_CHECKED weir_status wr_thread_set_device(int ordinal);

/* The device of a user's ordinal: resolves WEIR_DEVICE_CURRENT and opens the device. Enters the library. */
WR_CHECKED weir_status wr_thread_resolve_device(int ordinal, wr_device **device);

/* The same without opening the device, which would make a context, with memory: NULL if it was never used. */
WR_CHECKED weir_status wr_thread_look_up_device(int ordinal, wr_device **device);

/* The calling thread's current stream of an open device; the default one if that has ended. */
wr_stream *wr_thread_stream(wr_device *device);
/* The same; NULL if the thread never set one, or that has ended. */
wr_stream *wr_thread_chosen_stream(wr_device *device);
/* The id of wr_thread_stream(): its record's may change as soon as it is found, if other threads destroy streams. */
uint64_t wr_thread_stream_id(wr_device *device);
/* By id; 0: the default stream, which is also current once the other has ended. */
WR_CHECKED weir_status wr_thread_set_stream(const wr_device *device, uint64_t id);

/* The stream of a user's id: {0} is the current stream of the current device. Enters the library. */
WR_CHECKED weir_status wr_thread_resolve_stream(weir_stream stream, wr_device **device, wr_stream **out);

/* The id of the current stream of the current device, which may have ended; 0: unknown. For hits. */
static inline uint64_t wr_thread_current_id(void)
{
    const wr_thread *t = wr_thread_current;
    int ordinal = 0;
    if (WR_UNLIKELY(wr_thread_is_void(t) || wr_thread_device(&ordinal) != WEIR_OK)) return 0;
    if (WR_UNLIKELY((unsigned)ordinal >= WR_DEVICE_MAX)) return 0;
    if (t->stream_ids[ordinal]) return t->stream_ids[ordinal];
    const wr_device *d = wr_runtime_opened(ordinal);
    return d ? atomic_load_explicit(&wr_stream_default_of(&d->streams)->id, memory_order_relaxed) : 0;
}

/* The stream of that id, if its device and the library are open. */
static inline wr_stream *wr_thread_find_stream(uint64_t id, wr_device **device)
{
    const int ordinal = wr_stream_id_device(id);
    const bool open = atomic_load_explicit(&wr_runtime_global.state, memory_order_acquire) == WR_OPEN;
    if (WR_UNLIKELY(!open || ordinal >= WR_DEVICE_MAX)) return NULL;
    *device = wr_runtime_opened(ordinal);
    return WR_LIKELY(*device != NULL) ? wr_stream_find(&(*device)->streams, id) : NULL;
}

#endif
