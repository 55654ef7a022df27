/*
 * Threads that share a stream, run for every n with the n-th driver call failing, then with the n-th of weir's own
 * records refused: sides are taken and left, blocks posted and collected, the front detached. A record that there is no
 * memory for costs speed, or fails a request for memory, and never a free.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "detach_support.h"
#include "fail_support.h"
#include "pool/front/side.h"
#include "told_support.h"

enum { THREADS = 2, ROUNDS = 300, BLOCKS = 140 };

typedef struct worker {
    told_thread on;
    weir_stream stream;
    weir_mempool pool; /* {0, 0}: the default one */
    size_t bytes;
    void *blocks[BLOCKS];
} worker;

static worker workers[THREADS];

static void begin(worker *w)
{
    *w = (worker){ .bytes = 65536 };
    told_begin(&w->on, w);
}

static void end(worker *w)
{
    told_end(&w->on);
}

static void tell(worker *w, void (*work)(worker *w))
{
    told_start(&w->on, work);
    wait_for(&w->on.done);
}

static void give(worker *w, int index)
{
    assert_ok(weir_free(w->blocks[index])); /* a free has no reason to fail */
    w->blocks[index] = NULL;
}

static void take(worker *w, int index)
{
    void *block = NULL;
    give(w, index);
    const weir_status status = w->pool.user ? weir_alloc_from(w->pool, w->bytes, w->stream, &block)
                                            : weir_alloc_on(w->bytes, w->stream, &block);
    if (as_told(status) != WEIR_OK) assert_null(block);
    w->blocks[index] = block;
}

static void take_and_give(worker *w)
{
    take(w, 0);
    give(w, 0);
}

static void take_all(worker *w)
{
    for (int i = 0; i < BLOCKS; i++) take(w, i);
}

static void give_all(worker *w)
{
    for (int i = 0; i < BLOCKS; i++) give(w, i);
}

static void own(worker *w)
{
    for (int i = 0; i < 1000; i++) take_and_give(w);
}

static void take_turns(void)
{
    for (int i = 0; i < ROUNDS * THREADS; i++) tell(&workers[i % THREADS], take_and_give);
}

static void trade(void)
{
    void *others[BLOCKS];
    memcpy(others, workers[0].blocks, sizeof others);
    memcpy(workers[0].blocks, workers[1].blocks, sizeof others);
    memcpy(workers[1].blocks, others, sizeof others);
}

/* One thread uses the stream, the other frees. */
static void post(void)
{
    tell(&workers[0], own);
    for (int i = 0; i < 3; i++) {
        tell(&workers[0], take_all);
        trade();
        tell(&workers[1], give_all);
    }
    tell(&workers[0], take_all);
    tell(&workers[0], give_all);
}

static void detach(worker *w)
{
    wr_front *front = NULL;
    take(w, 0);
    front = w->blocks[0] ? front_of(w->blocks[0]) : NULL;
    if (front) (void)!try_detach(front);
    give(w, 0);
}

static void cut(worker *w)
{
    for (int i = 0; i < BLOCKS; i++) {
        w->bytes = (size_t)(i % 37 + 1) * 5000;
        take(w, i);
    }
    give_all(w);
    w->bytes = 65536;
}

static void work_in(weir_mempool pool, weir_stream stream)
{
    for (int i = 0; i < THREADS; i++) {
        workers[i].pool = pool;
        workers[i].stream = stream;
    }
    post();
    take_turns();
    for (int i = 0; i < THREADS; i++) tell(&workers[i], take_all);
    trade();
    tell(&workers[0], detach);
    tell(&workers[1], cut);
    for (int i = 0; i < THREADS; i++) tell(&workers[i], give_all);
    for (int i = 0; i < THREADS; i++) tell(&workers[i], cut);
}

static void run_scenario(void)
{
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    weir_mempool pool = { 0, 0 };
    weir_stream stream = { 0 };
    options.device = 0;
    if (weir_stream_create(0, 0, &stream) != WEIR_OK) return;
    work_in(pool, stream);
    assert_ok(weir_validate(0));
    end(&workers[1]);
    begin(&workers[1]);
    if (weir_mempool_create(&options, &pool) == WEIR_OK) {
        work_in(pool, stream);
        assert_ok(weir_validate(0));
        assert_ok(weir_mempool_unref(pool));
    }
    workers[0].stream = workers[1].stream = stream;
    workers[0].pool = workers[1].pool = (weir_mempool){ 0, 0 };
    take_turns();
    (void)!weir_stream_destroy(stream);
}

static int warm_up(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 96 * MIB });
    assert_ok(weir_device_set_current(0));
    assert_ok(weir_close());
    return 0;
}

static void play(failing *f)
{
    const uint64_t before = wr_meta_live();
    open_host((weir_settings){ .host_memory = 128 * MIB, .policy = f->state });
    for (int i = 0; i < THREADS; i++) begin(&workers[i]);
    begin_failing(f);
    run_scenario();
    end_failing(f);
    assert_ok(weir_host_fail_clear());
    assert_ok(weir_validate(0));
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 0);
    for (int i = 0; i < THREADS; i++) end(&workers[i]);
    assert_ok(weir_validate(0));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
    assert_ok(weir_close());
    assert_records_but_pages(before, f);
}

FAIL_ALL_OF(play, 5, 20)

int main(void)
{
    const struct CMUnitTest tests[] = { FAIL_TESTS };
    return cmocka_run_group_tests(tests, warm_up, NULL);
}
