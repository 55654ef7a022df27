#include "backend/host/host_internal.h"
#include "base/meta.h"
#include "base/worker.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define WORKER_IDLE_NS 200000000 /* a worker without work for this long ends; the next item starts another */

/* All threads that wait for the progress of any stream wait here, because it is not known which stream's items will be
 * waited for. Completing an item costs one load when nobody waits. */
static wr_lock progress_lock = WR_LOCK_INITIALIZER(WR_RANK_LEAF, "host progress");
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static atomic_uint waiters;
static atomic_uint holds; /* how often a stream was held: what its worker would have done is up to its waiters then */

/* ---- fences ------------------------------------------------------------------------------------------------------ */

bool wr_host_fence_passed(const wr_host_fence *fence)
{
    return fence->stream == NULL || atomic_load(&fence->stream->done) >= fence->count;
}

wr_host_fence wr_host_fence_copy(const wr_host_fence *fence)
{
    if (fence->stream != NULL) wr_host_stream_ref(fence->stream);
    return *fence;
}

void wr_host_fence_drop(wr_host_fence *fence)
{
    if (fence->stream != NULL) wr_host_stream_unref(fence->stream);
    *fence = (wr_host_fence){ NULL, 0 };
}

/* A waiter raises the count of waiters before it checks the fence; the other side reads that count after it has counted
 * an item as done. Both are sequentially consistent, so one side sees the other. */
static void wait_while(const wr_host_fence *fence, bool (*goes_on)(const void *argument), const void *argument)
{
    if (wr_host_fence_passed(fence)) return;
    atomic_fetch_add(&waiters, 1);
    wr_lock_acquire(&progress_lock);
    while (!wr_host_fence_passed(fence) && goes_on(argument)) wr_lock_wait(&progress_lock, &progress);
    wr_lock_release(&progress_lock);
    atomic_fetch_sub(&waiters, 1);
}

/* Has those look again who wait. */
static void announce(void)
{
    if (atomic_load(&waiters) == 0) return;
    wr_lock_acquire(&progress_lock);
    pthread_cond_broadcast(&progress);
    wr_lock_release(&progress_lock);
}

static bool is_not_stopped(const void *stop)
{
    return stop == NULL || !atomic_load((const atomic_bool *)stop);
}

/* Returns when the fence has passed, or `*stop` (may be NULL) is set and announced. */
static void await(const wr_host_fence *fence, const atomic_bool *stop)
{
    wait_while(fence, is_not_stopped, stop);
}

/* *seen: `holds` before the stream was looked at. */
static bool none_was_held(const void *seen)
{
    return atomic_load(&holds) == *(const unsigned *)seen;
}

void wr_host_stream_hold(wr_host_stream *stream)
{
    wr_lock_acquire(&stream->lock);
    atomic_store(&stream->held, true);
    wr_lock_release(&stream->lock);
    atomic_fetch_add(&holds, 1);
    announce();
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

void wr_host_work_run(const wr_host_work *work)
{
    switch (work->kind) {
    case WR_HOST_NOTHING:
    case WR_HOST_WAIT: break; /* does not begin before its fence has passed */
    case WR_HOST_CALL: work->call.function(work->call.argument); break;
    case WR_HOST_COPY: memmove(work->memory.destination, work->memory.source, work->memory.bytes); break;
    case WR_HOST_FILL: memset(work->memory.destination, work->memory.value, work->memory.bytes); break;
    case WR_HOST_GRAPH: wr_host_exec_run(work->exec); break;
    }
}

static void release_work(wr_host_work *work)
{
    if (work->kind == WR_HOST_WAIT) wr_host_fence_drop(&work->fence);
    if (work->kind == WR_HOST_GRAPH) wr_host_exec_unref(work->exec);
}

static bool blocked(const wr_host_work *work)
{
    return work->kind == WR_HOST_WAIT && !wr_host_fence_passed(&work->fence);
}

/* Callbacks never run in the thread that queues them, which may hold locks that they take. */
static bool runs_in_caller(const wr_host_work *work)
{
    if (work->kind == WR_HOST_GRAPH) return !wr_host_exec_calls(work->exec);
    return work->kind != WR_HOST_CALL && !blocked(work);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

weir_status wr_host_stream_new(int ordinal, int priority, wr_host_stream **out)
{
    wr_host_device *device = &wr_host.devices[ordinal];
    void *memory;
    WR_TRY(wr_meta_alloc(sizeof(wr_host_stream), "a stream of the host back end", &memory));
    wr_host_stream *stream = memory;
    stream->magic = WR_HOST_IS_STREAM;
    stream->device = ordinal;
    stream->priority = priority;
    stream->tip = -1;
    atomic_init(&stream->references, 1); /* the device's list has it */
    wr_lock_init(&stream->lock, WR_RANK_BACKEND, "host stream");
    STAILQ_INIT(&stream->items);

    if (wr_lock_condition_init(&stream->wake) != 0) {
        wr_lock_destroy(&stream->lock);
        wr_meta_free(stream);
        return wr_fail(WEIR_ERR_OUT_OF_HOST_MEMORY, "host: no condition variable for a stream");
    }
    wr_lock_acquire(&device->list_lock);
    stream->serial = device->next_serial++;
    TAILQ_INSERT_TAIL(&device->streams, stream, link);
    wr_lock_release(&device->list_lock);
    *out = stream;
    return WEIR_OK;
}

void wr_host_stream_ref(wr_host_stream *stream)
{
    atomic_fetch_add_explicit(&stream->references, 1, memory_order_relaxed);
}

void wr_host_stream_unref(wr_host_stream *stream)
{
    if (atomic_fetch_sub_explicit(&stream->references, 1, memory_order_acq_rel) > 1) return;
    pthread_cond_destroy(&stream->wake);
    wr_lock_destroy(&stream->lock);
    wr_meta_free(stream);
}

bool wr_host_stream_idle(wr_host_stream *stream)
{
    return atomic_load(&stream->queued) == atomic_load(&stream->done);
}

/* Runs `work` without the lock, which is held before and after. */
static void run_unlocked(wr_host_stream *stream, wr_host_work *work)
{
    stream->running = true;
    wr_lock_release(&stream->lock);
    wr_host_work_run(work);
    release_work(work);
    wr_lock_acquire(&stream->lock);
    stream->running = false;
    atomic_fetch_add(&stream->done, 1);
    if (!STAILQ_EMPTY(&stream->items)) pthread_cond_signal(&stream->wake);
    announce();
}

/* Runs the first item unless it must wait or there is none. Lock held, nothing running. */
static bool run_first(wr_host_stream *stream)
{
    wr_host_item *item = STAILQ_FIRST(&stream->items);
    if (item == NULL || blocked(&item->work)) return false;
    STAILQ_REMOVE_HEAD(&stream->items, link);
    run_unlocked(stream, &item->work);
    wr_meta_free(item);
    return true;
}

/* Makes the progress on the stream that is up to the caller: runs the first item if the stream is held. If the first
 * item waits for another stream, *obstacle is what it waits for, with a reference. False: another thread is running the
 * stream. */
static bool advance(wr_host_stream *stream, wr_host_fence *obstacle)
{
    bool advanced = false;
    wr_lock_acquire(&stream->lock);
    wr_host_item *first = STAILQ_FIRST(&stream->items);
    if (first != NULL && !stream->running) {
        if (blocked(&first->work))
            *obstacle = wr_host_fence_copy(&first->work.fence);
        else if (atomic_load(&stream->held))
            advanced = run_first(stream);
    }
    wr_lock_release(&stream->lock);
    return advanced || obstacle->stream != NULL;
}

/* Work waits only for work that was queued before it, so the recursion ends. */
void wr_host_fence_reach(const wr_host_fence *fence)
{
    while (!wr_host_fence_passed(fence)) {
        wr_host_fence obstacle = { NULL, 0 }, next = { fence->stream, atomic_load(&fence->stream->done) + 1 };
        const unsigned seen = atomic_load(&holds);
        if (next.count > fence->count) return;
        if (!advance(fence->stream, &obstacle)) {
            wait_while(&next, none_was_held, &seen);
        } else {
            wr_host_fence_reach(&obstacle);
            wr_host_fence_drop(&obstacle);
        }
    }
}

/* ---- workers ----------------------------------------------------------------------------------------------------- */

/* False: there was nothing to do for WORKER_IDLE_NS. */
static bool sleep_until_woken(wr_host_stream *stream)
{
    const struct timespec until = wr_lock_deadline(WORKER_IDLE_NS);
    const int error = wr_lock_wait_until(&stream->lock, &stream->wake, &until);
    return error != ETIMEDOUT || !STAILQ_EMPTY(&stream->items);
}

/* Waits for what the first item waits for. Afterwards that item may be gone, or its stream held. */
static void await_first(wr_host_stream *stream)
{
    wr_host_fence fence = wr_host_fence_copy(&STAILQ_FIRST(&stream->items)->work.fence);
    wr_lock_release(&stream->lock);
    await(&fence, &stream->discarded);
    wr_host_fence_drop(&fence);
    wr_lock_acquire(&stream->lock);
}

static void *worker_main(void *argument)
{
    wr_host_stream *stream = argument;
    wr_lock_acquire(&stream->lock);
    for (;;) {
        if (STAILQ_EMPTY(&stream->items) && (stream->destroyed || atomic_load(&stream->discarded))) break;
        if (STAILQ_EMPTY(&stream->items) || atomic_load(&stream->held) || stream->running) {
            if (!sleep_until_woken(stream)) break;
        } else if (!run_first(stream)) {
            await_first(stream);
        }
    }
    atomic_store(&stream->worker, WR_HOST_WORKER_ENDED);
    wr_lock_release(&stream->lock);
    return NULL;
}

void wr_host_stream_join(wr_host_stream *stream)
{
    if (atomic_load(&stream->worker) == WR_HOST_NO_WORKER) return;
    pthread_join(stream->thread, NULL);
    atomic_store(&stream->worker, WR_HOST_NO_WORKER);
}

/* Lock held. */
static weir_status ensure_worker(wr_host_stream *stream)
{
    if (atomic_load(&stream->worker) == WR_HOST_WORKER_RUNS) return WEIR_OK;
    wr_host_stream_join(stream); /* a worker that has ended takes no lock any more */

    const int error = wr_worker_start(&stream->thread, worker_main, stream);
    if (error != 0)
        return wr_fail_native(WEIR_ERR_OUT_OF_HOST_MEMORY, "host", error,
                              "host: cannot start a thread for stream %p: %s; the process may have too many",
                              (void *)stream, strerror(error));
    atomic_store(&stream->worker, WR_HOST_WORKER_RUNS);
    return WEIR_OK;
}

/* ---- queueing ---------------------------------------------------------------------------------------------------- */

static weir_status append(wr_host_stream *stream, const wr_host_work *work)
{
    void *memory;
    WR_TRY(wr_meta_alloc(sizeof(wr_host_item), "queued work", &memory));
    wr_host_item *item = memory;
    item->work = *work;
    if (!atomic_load(&stream->held)) {
        weir_status status = ensure_worker(stream);
        if (status != WEIR_OK) {
            wr_meta_free(item);
            return status;
        }
    }
    STAILQ_INSERT_TAIL(&stream->items, item, link);
    atomic_fetch_add(&stream->queued, 1);
    pthread_cond_signal(&stream->wake);
    return WEIR_OK;
}

static weir_status submit_locked(wr_host_stream *stream, const wr_host_work *work, uint64_t *position)
{
    WR_ENSURE(!atomic_load(&stream->discarded), WEIR_ERR_DEVICE_LOST, "host: device %d is lost or closed",
              stream->device);
    *position = atomic_load(&stream->queued) + 1;
    bool at_once = !atomic_load(&stream->held) && wr_host_stream_idle(stream) && runs_in_caller(work);
    if (!at_once) return append(stream, work);
    wr_host_work own = *work;
    atomic_fetch_add(&stream->queued, 1);
    run_unlocked(stream, &own);
    return WEIR_OK;
}

weir_status wr_host_submit(wr_host_stream *stream, const wr_host_work *work, uint64_t *position)
{
    uint64_t ignored;
    wr_lock_acquire(&stream->lock);
    weir_status status = submit_locked(stream, work, position != NULL ? position : &ignored);
    wr_lock_release(&stream->lock);
    return status;
}

/* Takes no lock in the common case: the stream is idle and not held. */
weir_status wr_host_mark(wr_host_stream *stream, wr_host_fence *fence)
{
    if (wr_host_stream_idle(stream) && !atomic_load(&stream->held)) {
        *fence = (wr_host_fence){ NULL, 0 };
        return WEIR_OK;
    }
    wr_host_work mark = { .kind = WR_HOST_NOTHING };
    uint64_t position;
    WR_TRY(wr_host_submit(stream, &mark, &position));
    wr_host_stream_ref(stream);
    *fence = (wr_host_fence){ stream, position };
    return WEIR_OK;
}

uint64_t wr_host_stream_run(wr_host_stream *stream, uint64_t limit)
{
    uint64_t ran = 0;
    wr_lock_acquire(&stream->lock);
    while (ran < limit) {
        if (!stream->running) {
            if (!run_first(stream)) break;
            ran++;
            continue;
        }
        wr_host_fence current = { stream, atomic_load(&stream->done) + 1 }; /* the item that began before the hold */
        wr_lock_release(&stream->lock);
        await(&current, NULL);
        wr_lock_acquire(&stream->lock);
    }
    wr_lock_release(&stream->lock);
    return ran;
}

weir_status wr_host_stream_unhold(wr_host_stream *stream, bool destroy)
{
    weir_status status = WEIR_OK;
    wr_lock_acquire(&stream->lock);
    if (!STAILQ_EMPTY(&stream->items)) status = ensure_worker(stream);
    if (status == WEIR_OK) {
        atomic_store(&stream->held, false);
        stream->destroyed = destroy;
        if (destroy) stream->magic = 0;
        pthread_cond_signal(&stream->wake);
    }
    wr_lock_release(&stream->lock);
    return status;
}

void wr_host_stream_discard(wr_host_stream *stream)
{
    STAILQ_HEAD(, wr_host_item) dropped = STAILQ_HEAD_INITIALIZER(dropped);
    wr_lock_acquire(&stream->lock);
    atomic_store(&stream->discarded, true);
    STAILQ_CONCAT(&dropped, &stream->items);
    atomic_store(&stream->done, atomic_load(&stream->queued) - (stream->running ? 1 : 0));
    pthread_cond_signal(&stream->wake);
    wr_lock_release(&stream->lock);
    announce();

    wr_host_item *item;
    while ((item = STAILQ_FIRST(&dropped)) != NULL) {
        STAILQ_REMOVE_HEAD(&dropped, link);
        release_work(&item->work);
        wr_meta_free(item);
    }
}
