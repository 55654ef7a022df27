/*
 * side_support: threads that share a stream until each has a side (pool/front/side.h). Include after the cmocka
 * headers.
 */
#ifndef WEIR_TESTS_SIDE_SUPPORT_H
#define WEIR_TESTS_SIDE_SUPPORT_H

#include "detach_support.h"
#include "device/device.h"
#include "host_support.h"
#include "pool/front/side.h"
#include "pool_support.h"
#include "slot_support.h"
#include "told_support.h"

#include <time.h>

enum { THREADS = 2, ROUNDS = 600 };

typedef struct worker {
    told_thread on;
    weir_stream stream;
    weir_mempool pool; /* {0, 0}: the default one */
    size_t bytes;
    void *block;
    unsigned count, sizes;
    weir_status status;
} worker;

static worker workers[THREADS];
static weir_stream stream;
static wr_front *main_front; /* the stream's */

static inline void begin(worker *w)
{
    *w = (worker){ .stream = stream, .bytes = 65536 };
    told_begin(&w->on, w);
}

static inline void end(worker *w)
{
    told_end(&w->on);
}

static inline void start(worker *w, void (*work)(worker *w))
{
    told_start(&w->on, work);
}

/* False: it has waited in vain for seconds. */
static inline bool finishes(worker *w)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    return sem_timedwait(&w->on.done, &until) == 0;
}

static inline void tell(worker *w, void (*work)(worker *w))
{
    start(w, work);
    assert_true(finishes(w));
}

static inline void take(worker *w)
{
    w->status = w->pool.user ? weir_alloc_from(w->pool, w->bytes, w->stream, &w->block)
                             : weir_alloc_on(w->bytes, w->stream, &w->block);
}

static inline void give(worker *w)
{
    w->status = weir_free(w->block);
}

static inline void take_and_give(worker *w)
{
    take(w);
    if (w->status == WEIR_OK) give(w);
}

static inline void take_and_give_many(worker *w)
{
    w->status = WEIR_OK;
    for (unsigned i = 0; i < w->count && w->status == WEIR_OK; i++) take_and_give(w);
}

static inline void take_turns(void)
{
    for (int i = 0; i < ROUNDS * THREADS; i++) {
        worker *w = &workers[i % THREADS];
        tell(w, take_and_give);
        assert_int_equal(w->status, WEIR_OK);
    }
}

static inline wr_cache *cache(void)
{
    return &atomic_load(&wr_runtime_global.devices[0])->cache;
}

/* Makes something else live on the stream, and so unsettles its fronts. */
static inline void find_main_front(void)
{
    worker w = { .stream = stream, .pool = workers[0].pool, .bytes = 65536 };
    take(&w);
    assert_int_equal(w.status, WEIR_OK);
    main_front = front_of(w.block);
    give(&w);
}

/* Those that are in use, or that no thread has. */
static inline unsigned sides(bool used)
{
    unsigned count = 0;
    for (const wr_front *f = used ? wr_front_beside(main_front) : main_front->idle; f;
         f = used ? wr_front_beside(f) : f->idle)
        count += f->main == main_front && f->listed == used;
    return count;
}

static inline int open_with(weir_settings settings)
{
    settings.host_memory = 512 * MIB;
    open_host(settings);
    stream = new_stream(0);
    for (int i = 0; i < THREADS; i++) begin(&workers[i]);
    return 0;
}

static inline int open_shared(void **state)
{
    (void)state;
    return open_with((weir_settings){ 0 });
}

static inline int open_segments(void **state)
{
    (void)state;
    return open_with((weir_settings){ .policy = "segments" });
}

static inline int close_shared(void **state)
{
    for (int i = 0; i < THREADS; i++) end(&workers[i]);
    return close_host(state);
}

/* Where locks cannot be biased there are no sides. */
static inline void share(void)
{
    if (!wr_bias_prepare_thread()) skip();
    find_main_front();
    take_turns();
    assert_int_equal(sides(true), THREADS);
}

static inline void work_while_all_shared_locks_are_held(void (*work)(worker *w))
{
    wr_front *main = main_front;
    wr_front_lock(main->cache, main);
    wr_lock_acquire(&main->posts.lock);
    bool finished = true;
    for (int i = 0; i < THREADS; i++) {
        workers[i].count = 1000;
        start(&workers[i], work);
    }
    for (int i = 0; i < THREADS; i++) finished &= finishes(&workers[i]);
    wr_lock_release(&main->posts.lock);
    wr_front_unlock(main->cache, main);
    assert_true(finished);
    for (int i = 0; i < THREADS; i++) assert_int_equal(workers[i].status, WEIR_OK);
    assert_ok(weir_validate(0));
}

static inline void hit_while_all_shared_locks_are_held(void)
{
    work_while_all_shared_locks_are_held(take_and_give_many);
}

#define SHARED(test) cmocka_unit_test_setup_teardown(test, open_shared, close_shared)

#endif
