/*
 * runtime: the open library: its state, its back end, its options, its devices.
 * Owner: the process; there is one. Lock: WR_RANK_OPEN for opening and closing the library and its devices, held across
 * driver calls and taken on no hit path. What is open is read without a lock.
 */
#ifndef WR_DEVICE_RUNTIME_H
#define WR_DEVICE_RUNTIME_H

#include "backend/backend.h"
#include "base/lock.h"
#include "base/options.h"
#include "pool/policy.h"

#include <stdatomic.h>

#define WR_DEVICE_MAX 64

typedef struct wr_device wr_device;
typedef struct wr_pinned wr_pinned;

typedef enum wr_runtime_state {
    WR_UNOPENED, /* the next call opens it */
    WR_OPEN,
    WR_CLOSED, /* by weir_close: only weir_open opens it again */
    WR_FORKED  /* for ever: in a child whose parent had a device open or a driver started, or was changing state */
} wr_runtime_state;

typedef struct wr_reclaimer {
    weir_reclaim_fn function;
    void *user;
    uint64_t serial; /* in the order added */
} wr_reclaimer;

typedef struct wr_runtime {
    atomic_int state;
    atomic_bool driver_started; /* a driver that does not survive fork; for ever, since closing does not unload it */
    /* Changes when everything that threads remember of the library becomes void: on close and fork. Never 0. */
    atomic_uint_fast64_t epoch;
    /* Counts changes of the ways: of which front (pool/front/front.h) serves a stream, which tables of blocks exist,
     * and whether a thread's handle serves a stream as it is. What a thread remembers of those (thread/thread.h) is
     * valid only while this stays the same. Changes with the epoch, when a stream ends, and when a route, a capture or
     * a served plan is added. Never 0. */
    atomic_uint_fast64_t ways;
    wr_lock lock;
    atomic_int changing; /* threads that have or want `lock`; if not 0 in a child of fork, it may never be released */
    wr_lock exit_lock;   /* WR_RANK_EXIT: held by an ending thread while it gives its handles back */

    /* constants while open */
    const weir_backend *backend;
    const wr_policy *policy;
    wr_policy_options policy_options;
    wr_options options;
    unsigned debug; /* of wr_debug_flag */
    int device_count;

    atomic_uint_fast64_t history; /* events that each device keeps; 0: recording is off. Changes under the lock, as the
                                     next */
    bool stacks;                  /* the events have call stacks */
    _Atomic(wr_device *) devices[WR_DEVICE_MAX]; /* NULL until first use */
    _Atomic(wr_pinned *) pinned;                 /* the same */

    wr_lock reclaim_lock;
    wr_reclaimer *reclaimers;
    uint32_t reclaimer_count, reclaimer_capacity;
    uint64_t reclaimers_ever;
} wr_runtime;

extern wr_runtime wr_runtime_global;

/* Opens with settings; for weir_open. */
WR_CHECKED weir_status wr_runtime_open(const weir_settings *settings);

/* For weir_close. */
WR_CHECKED weir_status wr_runtime_close(void);

/* What every call does first. Opens the library if it was never opened; WEIR_OK when it is open. */
WR_CHECKED weir_status wr_runtime_enter_slow(void);
WR_CHECKED static inline weir_status wr_runtime_enter(void)
{
    if (WR_LIKELY(atomic_load_explicit(&wr_runtime_global.state, memory_order_acquire) == WR_OPEN)) return WEIR_OK;
    return wr_runtime_enter_slow();
}

/* WEIR_ERR_FORKED in a child of fork that must not go on. For calls that take a lock without opening the library. */
WR_CHECKED weir_status wr_runtime_check_fork(void);

/* Call it after the change that makes remembered ways void. */
static inline void wr_runtime_change_ways(void)
{
    atomic_fetch_add(&wr_runtime_global.ways, 1);
}

/* The device of that ordinal, which is below WR_DEVICE_MAX; NULL: it was never used. */
static inline wr_device *wr_runtime_opened(int ordinal)
{
    return atomic_load_explicit(&wr_runtime_global.devices[ordinal], memory_order_acquire);
}

/* The device of that ordinal, opened at its first use. The library must be open. */
WR_CHECKED weir_status wr_runtime_device_slow(int ordinal, wr_device **device);
WR_CHECKED static inline weir_status wr_runtime_device(int ordinal, wr_device **device)
{
    if (WR_LIKELY((unsigned)ordinal < WR_DEVICE_MAX)) {
        wr_device *d = wr_runtime_opened(ordinal);
        if (WR_LIKELY(d != NULL)) {
            *device = d;
            return WEIR_OK;
        }
    }
    return wr_runtime_device_slow(ordinal, device);
}

/* The same without opening the device. NULL: it was never used. */
WR_CHECKED weir_status wr_runtime_device_there(int ordinal, wr_device **device);

/* Whether plans are made of recorded events (option `plan`). Constant while open. */
bool wr_runtime_learns(void);

/* Records events from now on, with up to so many frames of their call stacks, on the devices there are and those to
 * come. */
WR_CHECKED weir_status wr_runtime_start_history(uint64_t events, uint32_t frames);
void wr_runtime_stop_history(void);

/* The cache of pinned host memory, made through `home` at its first use. */
WR_CHECKED weir_status wr_runtime_pinned(const wr_device *home, wr_pinned **out);

WR_CHECKED weir_status wr_runtime_reclaimer_add(weir_reclaim_fn function, void *user);
WR_CHECKED weir_status wr_runtime_reclaimer_remove(weir_reclaim_fn function, void *user);
bool wr_runtime_has_reclaimers(void);

/* Serials of callbacks: of the last one that a request has asked, and of the newest that it may ask, because a callback
 * that adds itself anew would be asked for ever. All zero: none was asked yet. */
typedef struct wr_asked {
    uint64_t last, newest;
} wr_asked;

/* Asks the callbacks in order, with no lock held, until one says that it freed something. Repeated calls for a request
 * ask each callback once. */
bool wr_runtime_reclaim(int device, size_t needed, wr_asked *asked);

#endif
