/*
 * Where segments come from: the program's own sources, their possible faults, and the callbacks that are told of
 * ranges.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "log_support.h"
#include "pool_support.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

static int open_device(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB, .host_devices = 2, .log = "warn" });
    return 0;
}

/* ---- a source ---------------------------------------------------------------------------------------------------- */

#define GIVEN_MAX 64

/* Gives memory from one arena of its own, segment behind segment, `gap` bytes between them. */
typedef struct source {
    char *arena;
    size_t next, gap;
    weir_status answer; /* what alloc returns; with WEIR_OK and no arena: NULL */
    weir_status free_answer;
    int allocs, frees, releases;
    void *given[GIVEN_MAX];
    size_t bytes[GIVEN_MAX];
    bool after_release;
} source;

#define ARENA (160 * MIB)

static weir_status source_alloc(void *user, size_t bytes, int device, void *native_stream, void **base)
{
    source *s = user;
    (void)native_stream;
    assert_int_equal(device, 0);
    assert_int_equal(bytes % (2 * MIB), 0);
    s->after_release |= s->releases > 0;
    s->allocs++;
    if (s->answer != WEIR_OK) return s->answer;
    *base = s->arena ? s->arena + s->next : NULL;
    s->next += bytes + s->gap;
    if (s->allocs <= GIVEN_MAX) {
        s->given[s->allocs - 1] = *base;
        s->bytes[s->allocs - 1] = bytes;
    }
    return WEIR_OK;
}

static weir_status source_free(void *user, void *base, size_t bytes, int device, void *native_stream)
{
    source *s = user;
    (void)native_stream;
    assert_int_equal(device, 0);
    s->after_release |= s->releases > 0;
    if (s->free_answer != WEIR_OK) return s->free_answer;
    s->frees++;
    for (int i = 0; i < s->allocs && i < GIVEN_MAX; i++)
        if (s->given[i] == base) {
            assert_int_equal(s->bytes[i], bytes);
            s->given[i] = NULL;
            return WEIR_OK;
        }
    fail_msg("%p was not given, or given back before", base);
    return WEIR_ERR_INTERNAL;
}

static void source_release(void *user)
{
    ((source *)user)->releases++;
}

static source make_source(size_t offset, size_t gap)
{
    source s = { .next = offset, .gap = gap };
    s.arena = mmap(NULL, ARENA + 2 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(s.arena, MAP_FAILED);
    s.next += 2 * MIB - (uintptr_t)s.arena % (2 * MIB); /* offsets count from a page */
    return s;
}

static void end_source(source *s)
{
    assert_false(s->after_release);
    if (s->arena) munmap(s->arena, ARENA + 2 * MIB);
}

static weir_mempool pool_from(source *s, weir_mempool_options options)
{
    const weir_segment_source ops = { source_alloc, source_free, source_release, s };
    options.source = &ops;
    return make_pool(options);
}

static weir_mempool plain_pool_from(source *s)
{
    return pool_from(s, pool_options(WEIR_MEMORY_DEVICE, ""));
}

static void a_source_gives_one_piece_per_segment(void **state)
{
    (void)state;
    source s = make_source(0, 0);
    weir_mempool pool = plain_pool_from(&s);
    void *blocks[3];
    const int calls[3] = { 1, 1, 2 };
    for (int i = 0; i < 3; i++) {
        blocks[i] = alloc_from(pool, MIB, WEIR_STREAM_CURRENT);
        assert_int_equal(s.allocs, calls[i]);
    }
    for (int i = 0; i < 3; i++) assert_ok(weir_free(blocks[i]));
    assert_int_equal(s.frees, 0);
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(s.frees, 2);
    assert_int_equal(s.releases, 1);
    end_source(&s);
}

static void a_source_is_kept_until_the_last_block_dies_and_released_once(void **state)
{
    (void)state;
    source s = make_source(0, 0);
    weir_mempool pool = plain_pool_from(&s);
    void *small = alloc_from(pool, 1000, WEIR_STREAM_CURRENT), *large = alloc_from(pool, 30 * MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_mempool_unref(pool));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(s.releases, 0);
    assert_ok(weir_free(large));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(s.frees, 1);
    assert_int_equal(s.releases, 0);
    assert_ok(weir_free(small));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(s.frees, 2);
    assert_int_equal(s.releases, 1);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(s.releases, 1);
    end_source(&s);
}

static void closing_gives_everything_back_to_its_source(void **state)
{
    (void)state;
    source s = make_source(0, 0);
    weir_mempool pool = plain_pool_from(&s);
    for (int i = 0; i < 5; i++) alloc_from(pool, 3 * MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_close());
    assert_int_equal(s.frees, s.allocs);
    assert_int_equal(s.releases, 1);
    end_source(&s);
    assert_int_equal(open_device(NULL), 0);
}

static void segments_may_begin_anywhere(void **state)
{
    (void)state;
    source s = make_source(4096 + 512, 512);
    weir_mempool pool = plain_pool_from(&s);
    enum { N = 40 };
    void *blocks[N];
    for (int i = 0; i < N; i++) blocks[i] = alloc_from(pool, i % 2 ? 1000000 : 1500000, WEIR_STREAM_CURRENT);
    assert_true(s.allocs > 3);
    assert_int_not_equal((uintptr_t)s.given[1] % (2 * MIB), 0);
    for (int i = 0; i < N; i++) {
        assert_ptr_equal(info_of((char *)blocks[i] + 999999).base, blocks[i]);
        assert_int_equal(info_of(blocks[i]).pool.user, pool.user);
    }
    assert_ok(weir_validate(0));
    for (int i = 0; i < N; i++) assert_ok(weir_free(blocks[i]));
    assert_status(weir_free(blocks[0]), WEIR_ERR_DOUBLE_FREE);
    assert_ok(weir_mempool_empty_cache(pool));
    assert_status(weir_free(blocks[0]), WEIR_ERR_UNKNOWN_POINTER);
    assert_int_equal(s.frees, s.allocs);
    assert_ok(weir_mempool_unref(pool));
    end_source(&s);
}

static void a_source_may_refuse_to_take_back(void **state)
{
    (void)state;
    source s = make_source(512, 0);
    weir_mempool pool = plain_pool_from(&s);
    void *block = alloc_from(pool, 3 * MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_free(block));
    s.free_answer = WEIR_ERR_DRIVER;
    assert_status(weir_mempool_empty_cache(pool), WEIR_ERR_DRIVER);
    assert_ok(weir_validate(0));
    assert_ptr_equal(alloc_from(pool, 3 * MIB, WEIR_STREAM_CURRENT), block); /* it is still there */
    s.free_answer = WEIR_OK;
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(s.releases, 1);
    end_source(&s);
}

/* The source is asked for memory while its pool goes; it fails when told to. */
typedef struct slow_source {
    source source; /* first member: the other callbacks get a pointer to it */
    atomic_bool asked, answer;
    weir_mempool pool;
} slow_source;

static weir_status slow_alloc(void *user, size_t bytes, int device, void *native_stream, void **base)
{
    slow_source *s = user;
    atomic_store(&s->asked, true);
    while (!atomic_load(&s->answer)) sched_yield();
    return source_alloc(&s->source, bytes, device, native_stream, base);
}

static void *ask_slowly(void *user)
{
    void *block = NULL;
    return weir_alloc_from(((slow_source *)user)->pool, MIB, WEIR_STREAM_CURRENT, &block) == WEIR_ERR_IO ? user : NULL;
}

static void a_pool_that_was_released_goes_when_its_source_has_failed(void **state)
{
    (void)state;
    slow_source s = { .source.answer = WEIR_ERR_IO };
    const weir_segment_source ops = { slow_alloc, source_free, source_release, &s };
    pthread_t thread;
    void *failed = NULL;
    s.pool = make_pool_from(&ops);
    assert_int_equal(pthread_create(&thread, NULL, ask_slowly, &s), 0);
    while (!atomic_load(&s.asked)) sched_yield();
    assert_ok(weir_mempool_unref(s.pool));
    assert_int_equal(s.source.releases, 0);
    atomic_store(&s.answer, true);
    pthread_join(thread, &failed);
    assert_ptr_equal(failed, &s);
    assert_int_equal(s.source.releases, 1);
    end_source(&s.source);
}

/* Is asked for memory of a stream that ends meanwhile. */
typedef struct left_source {
    slow_source slow; /* first member, for slow_alloc */
    weir_stream stream;
    void *given_back_on;
} left_source;

static weir_status note_stream(void *user, void *base, size_t bytes, int device, void *native_stream)
{
    left_source *s = user;
    s->given_back_on = native_stream;
    return source_free(&s->slow.source, base, bytes, device, native_stream);
}

static void *ask_for_the_ending(void *user)
{
    const left_source *s = user;
    void *block = NULL;
    return weir_alloc_from(s->slow.pool, MIB, s->stream, &block) == WEIR_ERR_INVALID_STREAM ? user : NULL;
}

static void a_source_gets_memory_for_an_ended_stream_back_on_the_default_one(void **state)
{
    (void)state;
    left_source s = { .slow.source = make_source(0, 0), .stream = new_stream(0) };
    const weir_segment_source ops = { slow_alloc, note_stream, source_release, &s };
    pthread_t thread;
    void *refused = NULL;
    s.slow.pool = make_pool_from(&ops);
    assert_int_equal(pthread_create(&thread, NULL, ask_for_the_ending, &s), 0);
    while (!atomic_load(&s.slow.asked)) sched_yield();
    s.given_back_on = native_of(s.stream);
    assert_ok(weir_stream_destroy(s.stream));
    atomic_store(&s.slow.answer, true);
    pthread_join(thread, &refused);
    assert_ptr_equal(refused, &s);
    assert_ptr_equal(s.given_back_on, native_of(default_stream(0)));
    assert_ok(weir_mempool_unref(s.slow.pool));
    end_source(&s.slow.source);
}

/* ---- sources that do it wrong ------------------------------------------------------------------------------------ */

static void expect_refusal(source *s, weir_mempool_options options, weir_status expected, int given_back)
{
    void *block = NULL;
    weir_mempool pool = pool_from(s, options);
    assert_status(weir_alloc_from(pool, MIB, WEIR_STREAM_CURRENT, &block), expected);
    assert_null(block);
    assert_true(strlen(weir_error_text()) > 0);
    assert_int_equal(s->frees, given_back);
    assert_int_equal(pool_stats(pool).reserved_bytes[WEIR_STAT_ALL].current, 0);
    assert_ok(weir_validate(0));
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(s->releases, 1);
    end_source(s);
}

static void misaligned_memory_is_refused_and_given_back(void **state)
{
    (void)state;
    source s = make_source(256, 0);
    expect_refusal(&s, pool_options(WEIR_MEMORY_DEVICE, ""), WEIR_ERR_INVALID_ARGUMENT, 1);
}

static void memory_less_aligned_than_the_pool_is_refused(void **state)
{
    (void)state;
    source s = make_source(4096, 0);
    weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "");
    options.alignment = 65536;
    expect_refusal(&s, options, WEIR_ERR_INVALID_ARGUMENT, 1);
}

static void null_that_claims_success_is_no_memory(void **state)
{
    (void)state;
    source s = { .arena = NULL };
    expect_refusal(&s, pool_options(WEIR_MEMORY_DEVICE, ""), WEIR_ERR_OUT_OF_MEMORY, 0);
}

static void an_error_of_the_source_reaches_the_caller(void **state)
{
    (void)state;
    source s = { .answer = WEIR_ERR_IO };
    expect_refusal(&s, pool_options(WEIR_MEMORY_DEVICE, ""), WEIR_ERR_IO, 0);
}

static void what_a_source_did_not_give_leaves_the_cap_as_it_was(void **state)
{
    (void)state;
    source s = make_source(0, 0);
    void *block = NULL;
    weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "");
    options.cap = 4 * MIB;
    weir_mempool pool = pool_from(&s, options);
    s.answer = WEIR_ERR_IO;
    for (int i = 0; i < 3; i++) assert_status(weir_alloc_from(pool, 3 * MIB, WEIR_STREAM_CURRENT, &block), WEIR_ERR_IO);
    s.answer = WEIR_OK;
    alloc_from(pool, 3 * MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_close());
    end_source(&s);
    assert_int_equal(open_device(NULL), 0);
}

static void a_status_that_a_source_may_not_return_becomes_a_driver_error(void **state)
{
    static const int answers[] = {
        5, -77, WEIR_ERR_POOL_MISMATCH, WEIR_ERR_NOT_READY, WEIR_ERR_CAPTURE, WEIR_ERR_BUSY
    };
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        source s = { .answer = (weir_status)answers[i] };
        expect_refusal(&s, pool_options(WEIR_MEMORY_DEVICE, ""), WEIR_ERR_DRIVER, 0);
    }
}

static void a_source_that_does_not_take_back_is_named(void **state)
{
    static const int answers[] = {
        5, -77, WEIR_ERR_POOL_MISMATCH, WEIR_ERR_NOT_READY, WEIR_ERR_CAPTURE, WEIR_ERR_BUSY
    };
    (void)state;
    source s = make_source(512, 0);
    weir_mempool pool = plain_pool_from(&s);
    assert_ok(weir_free(alloc_from(pool, 3 * MIB, WEIR_STREAM_CURRENT)));
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        s.free_answer = (weir_status)answers[i];
        assert_status(weir_free(&s), WEIR_ERR_UNKNOWN_POINTER); /* an older text */
        assert_status(weir_mempool_empty_cache(pool), WEIR_ERR_DRIVER);
        assert_non_null(strstr(weir_error_text(), "did not take back"));
        assert_ok(weir_validate(0));
    }
    s.free_answer = WEIR_ERR_IO;
    assert_status(weir_mempool_empty_cache(pool), WEIR_ERR_IO);
    s.free_answer = WEIR_OK;
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(s.releases, 1);
    end_source(&s);
}

static bool frees_it(void *user, int device, size_t needed)
{
    void **block = user;
    (void)device;
    (void)needed;
    if (!*block) return false;
    assert_ok(weir_free(*block));
    *block = NULL;
    return true;
}

/* Its pool was released, so its memory is anybody's to trim, for good. */
static void a_source_that_does_not_take_back_keeps_no_request_from_being_helped(void **state)
{
    static const weir_status answers[] = { WEIR_ERR_DRIVER, WEIR_ERR_OUT_OF_MEMORY };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        source s = make_source(0, 0);
        weir_mempool pool = plain_pool_from(&s);
        assert_ok(weir_free(alloc_from(pool, MIB, WEIR_STREAM_CURRENT)));
        s.free_answer = answers[i];
        assert_ok(weir_mempool_unref(pool));
        void *of_program = alloc_on(200 * MIB, WEIR_STREAM_CURRENT), *block = NULL;
        assert_status(weir_alloc(100 * MIB, &block), WEIR_ERR_DRIVER); /* nobody helps */
        assert_non_null(strstr(weir_error_text(), "did not take back"));
        assert_ok(weir_reclaim_add(frees_it, &of_program));
        assert_ok(weir_alloc(100 * MIB, &block));
        assert_null(of_program);
        assert_ok(weir_reclaim_remove(frees_it, &of_program));
        assert_ok(weir_free(block));
        s.free_answer = WEIR_OK;
        assert_ok(weir_empty_cache(0));
        assert_int_equal(s.releases, 1);
        end_source(&s);
    }
}

static void a_source_that_does_not_take_back_keeps_no_pause_from_ending(void **state)
{
    (void)state;
    source s = make_source(0, 0);
    weir_mempool pool = plain_pool_from(&s), paused = make_pool(pool_options(WEIR_MEMORY_MAPPED, "paused"));
    (void)alloc_from(paused, 100 * MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_pause(0, "paused", WEIR_PAUSE_DROP));
    assert_ok(weir_free(alloc_from(pool, MIB, WEIR_STREAM_CURRENT)));
    s.free_answer = WEIR_ERR_DRIVER;
    assert_ok(weir_mempool_unref(pool));
    void *of_program = alloc_on(200 * MIB, WEIR_STREAM_CURRENT);
    assert_status(weir_resume(0, "paused"), WEIR_ERR_OUT_OF_MEMORY);
    assert_ok(weir_reclaim_add(frees_it, &of_program));
    assert_ok(weir_resume(0, "paused"));
    assert_ok(weir_reclaim_remove(frees_it, &of_program));
    s.free_answer = WEIR_OK;
    assert_ok(weir_empty_cache(0));
    end_source(&s);
}

/* No memory ends beyond 2^48, whatever the source. */
static void an_absurd_request_of_a_source_is_out_of_memory(void **state)
{
    (void)state;
    source s = make_source(0, 0);
    weir_mempool pool = plain_pool_from(&s);
    for (int log2 = 49; log2 <= 60; log2++) {
        void *block = NULL;
        assert_status(weir_alloc_from(pool, (size_t)1 << log2, WEIR_STREAM_CURRENT, &block), WEIR_ERR_OUT_OF_MEMORY);
    }
    assert_int_equal(s.allocs, 0);
    assert_ok(weir_mempool_unref(pool));
    end_source(&s);
}

static void a_source_without_memory_sends_the_request_down_the_ladder(void **state)
{
    (void)state;
    source s = make_source(0, 0);
    weir_mempool pool = plain_pool_from(&s);
    weir_stream other = new_stream(0);
    void *block = alloc_from(pool, 5 * MIB, other);
    assert_ok(weir_free(block));
    s.answer = WEIR_ERR_OUT_OF_MEMORY;
    assert_ptr_equal(alloc_from(pool, 5 * MIB, WEIR_STREAM_CURRENT), block); /* from the other stream */
    assert_int_equal(stats_of(0).rehomed, 1);
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(pool));
    end_source(&s);
}

/* Its second segment would begin in the middle of the first. */
static void memory_that_is_given_twice_is_refused(void **state)
{
    (void)state;
    source s = make_source(0, 0);
    void *block = NULL;
    weir_mempool pool = plain_pool_from(&s);
    void *first = alloc_from(pool, 30 * MIB, WEIR_STREAM_CURRENT);
    s.next -= 4 * MIB;
    assert_status(weir_alloc_from(pool, 30 * MIB, WEIR_STREAM_CURRENT, &block), WEIR_ERR_DRIVER);
    assert_int_equal(s.frees, 1);
    assert_ptr_equal(info_of((char *)first + 30 * MIB - 1).base, first);
    assert_ok(weir_validate(0));
    assert_ok(weir_free(first));
    assert_ok(weir_mempool_unref(pool));
    end_source(&s);
}

static void pinned_and_managed_pools_work(void **state)
{
    (void)state;
    const weir_memory_kind kinds[] = { WEIR_MEMORY_PINNED, WEIR_MEMORY_MANAGED };
    for (int i = 0; i < 2; i++) {
        weir_mempool pool = make_pool(pool_options(kinds[i], ""));
        void *small = alloc_from(pool, 5000, WEIR_STREAM_CURRENT),
             *large = alloc_from(pool, 5 * MIB, WEIR_STREAM_CURRENT);
        write_pattern(small, 5000, 1);
        write_pattern(large, 5 * MIB, 2);
        assert_true(has_pattern(small, 5000, 1));
        assert_ok(weir_validate(0));
        assert_ok(weir_free(small));
        assert_ok(weir_free(large));
        assert_ok(weir_mempool_unref(pool));
    }
}

/* ---- who is told of ranges --------------------------------------------------------------------------------------- */

#define TOLD_MAX 64

typedef struct listener {
    int count;
    weir_range_change change[TOLD_MAX];
    void *base[TOLD_MAX];
    size_t bytes[TOLD_MAX];
    uint64_t maps[TOLD_MAX], unmaps[TOLD_MAX]; /* calls of the driver by then */
    int refuse;                                /* which ADDED from now on; 0: none */
} listener;

static listener l; /* closing reports it, too */

static bool told(void *user, weir_range_change change, void *base, size_t bytes, int device)
{
    assert_ptr_equal(user, &l);
    assert_int_equal(device, 0);
    assert_in_range(l.count, 0, TOLD_MAX - 1);
    l.change[l.count] = change;
    l.base[l.count] = base;
    l.bytes[l.count] = bytes;
    l.maps[l.count] = calls_of(WEIR_BACKEND_vm_access);
    l.unmaps[l.count++] = calls_of(WEIR_BACKEND_vm_unmap);
    if (change != WEIR_RANGE_ADDED || l.refuse == 0) return true;
    return --l.refuse != 0;
}

static weir_mempool_options told_options(weir_memory_kind memory)
{
    weir_mempool_options options = pool_options(memory, "told");
    options.range_changed = told;
    options.range_user = &l;
    return options;
}

static weir_mempool told_pool(void)
{
    return make_pool(told_options(WEIR_MEMORY_MAPPED));
}

static void ranges_are_reported_when_they_come_and_before_they_go(void **state)
{
    (void)state;
    weir_mempool pool = told_pool();
    void *block = alloc_from(pool, 30 * MIB, WEIR_STREAM_CURRENT);
    assert_int_equal(l.count, 1);
    assert_int_equal(l.change[0], WEIR_RANGE_ADDED);
    assert_ptr_equal(l.base[0], block);
    assert_int_equal(l.bytes[0], 30 * MIB);
    assert_int_equal(l.maps[0], 1); /* mapped by then */
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(l.count, 2);
    assert_int_equal(l.change[1], WEIR_RANGE_LEAVING);
    assert_int_equal(l.unmaps[1], 0); /* still mapped */
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), 1);
}

/* Of memory that is in use the program is not told again. */
static void of_memory_that_is_given_twice_nobody_is_told(void **state)
{
    (void)state;
    void *block = NULL;
    source s = make_source(512, 0);
    weir_mempool pool = pool_from(&s, told_options(WEIR_MEMORY_DEVICE));
    void *first = alloc_from(pool, 30 * MIB, WEIR_STREAM_CURRENT);
    assert_int_equal(l.count, 1);
    s.next -= 4 * MIB;
    assert_status(weir_alloc_from(pool, 30 * MIB, WEIR_STREAM_CURRENT, &block), WEIR_ERR_DRIVER);
    assert_non_null(strstr(weir_error_text(), "already holds"));
    assert_int_equal(l.count, 1);
    assert_ok(weir_free(first));
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(l.count, 2);
    assert_int_equal(s.frees, 2);
    end_source(&s);
}

static void closing_ends_with_the_range_leaving(void **state)
{
    (void)state;
    source s = make_source(0, 0);
    (void)alloc_from(pool_from(&s, told_options(WEIR_MEMORY_DEVICE)), MIB, WEIR_STREAM_CURRENT);
    s.free_answer = WEIR_ERR_DRIVER;
    assert_status(weir_close(), WEIR_ERR_DRIVER);
    assert_int_equal(l.count, 2);
    assert_int_equal(l.change[1], WEIR_RANGE_LEAVING);
    assert_int_equal(s.releases, 1);
    end_source(&s);
    assert_int_equal(open_device(NULL), 0);
}

static void a_refused_range_goes_back(void **state)
{
    (void)state;
    void *block = NULL;
    l.refuse = 1;
    weir_mempool pool = told_pool();
    const uint64_t left = free_memory(0);
    assert_status(weir_alloc_from(pool, MIB, WEIR_STREAM_CURRENT, &block), WEIR_ERR_BUSY);
    assert_int_equal(l.count, 1);
    assert_int_equal(free_memory(0), left);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_release), calls_of(WEIR_BACKEND_vm_reserve));
    alloc_from(pool, MIB, WEIR_STREAM_CURRENT);
}

static void a_refused_range_that_is_not_taken_back_is_reported_as_lost(void **state)
{
    (void)state;
    void *block = NULL;
    source s = make_source(0, 0);
    weir_mempool pool = pool_from(&s, told_options(WEIR_MEMORY_DEVICE));
    l.refuse = 1;
    s.free_answer = WEIR_ERR_DRIVER;
    begin_log();
    assert_status(weir_alloc_from(pool, MIB, WEIR_STREAM_CURRENT, &block), WEIR_ERR_BUSY);
    assert_non_null(strstr(weir_error_text(), "the program refused"));
    assert_non_null(strstr(weir_error_text(), "are lost"));
    assert_non_null(strstr(end_log(), "are lost"));
    assert_int_equal(reserved_on(0), 0);
    s.free_answer = WEIR_OK;
    assert_ok(weir_free(alloc_from(pool, MIB, WEIR_STREAM_CURRENT)));
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(s.allocs, 2);
    assert_int_equal(s.frees, 1);
    end_source(&s);
}

static void a_range_that_is_refused_on_its_return_is_not_handed_out(void **state)
{
    (void)state;
    weir_mempool pool = told_pool();
    void *before = alloc_from(pool, MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_free(before));
    l.refuse = 1;
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, 1, WEIR_ERR_DRIVER));
    begin_log();
    assert_status(weir_mempool_empty_cache(pool), WEIR_ERR_DRIVER);
    assert_non_null(strstr(end_log(), "are lost"));
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(l.count, 3); /* added, leaving, and not added again */
    assert_ptr_not_equal(alloc_from(pool, MIB, WEIR_STREAM_CURRENT), before);
    assert_ok(weir_validate(0));
}

static void pausing_reports_all_ranges_before_the_first_is_unmapped(void **state)
{
    (void)state;
    weir_mempool pool = told_pool();
    void *one = alloc_from(pool, 30 * MIB, WEIR_STREAM_CURRENT), *two = alloc_from(pool, 20 * MIB, WEIR_STREAM_CURRENT);
    write_pattern(one, 30 * MIB, 1);
    write_pattern(two, 20 * MIB, 2);
    assert_ok(weir_pause(0, "told", WEIR_PAUSE_KEEP));
    assert_int_equal(l.count, 4);
    for (int i = 2; i < 4; i++) {
        assert_int_equal(l.change[i], WEIR_RANGE_LEAVING);
        assert_int_equal(l.unmaps[i], 0);
    }
    assert_ok(weir_resume(0, "told"));
    assert_int_equal(l.count, 6);
    for (int i = 4; i < 6; i++) {
        assert_int_equal(l.change[i], WEIR_RANGE_ADDED);
        assert_int_equal(l.maps[i], 4); /* both are mapped again */
    }
    assert_ptr_not_equal(l.base[4], l.base[5]);
    assert_true(has_pattern(one, 30 * MIB, 1) && has_pattern(two, 20 * MIB, 2));
}

static void refusing_to_resume_keeps_everything_paused(void **state)
{
    (void)state;
    weir_mempool pool = told_pool();
    void *one = alloc_from(pool, 30 * MIB, WEIR_STREAM_CURRENT), *two = alloc_from(pool, 20 * MIB, WEIR_STREAM_CURRENT);
    write_pattern(one, 30 * MIB, 1);
    write_pattern(two, 20 * MIB, 2);
    assert_ok(weir_pause(0, "told", WEIR_PAUSE_KEEP));
    l.refuse = 2;
    assert_status(weir_resume(0, "told"), WEIR_ERR_BUSY);
    assert_int_equal(l.count, 7);
    assert_int_equal(l.change[4], WEIR_RANGE_ADDED);
    assert_int_equal(l.change[5], WEIR_RANGE_ADDED);
    assert_int_equal(l.change[6], WEIR_RANGE_LEAVING); /* the one that was not refused */
    assert_ptr_equal(l.base[6], l.base[4]);
    assert_true(pool_info(pool).paused);
    assert_int_equal(reserved_on(0), 0);
    assert_ok(weir_validate(0));
    assert_ok(weir_resume(0, "told"));
    assert_true(has_pattern(one, 30 * MIB, 1) && has_pattern(two, 20 * MIB, 2));
}

static void ranges_that_die_while_paused_are_reported_once(void **state)
{
    (void)state;
    weir_mempool pool = told_pool();
    void *block = alloc_from(pool, 30 * MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_pause(0, "told", WEIR_PAUSE_KEEP));
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(l.count, 2);
    assert_int_equal(l.change[1], WEIR_RANGE_LEAVING);
}

/* As when an unmapping fails: those that were told that all leave are told that all are there again. */
static void a_pause_that_is_undone_reports_the_ranges_again(void **state)
{
    (void)state;
    weir_mempool pool = told_pool();
    for (int i = 0; i < 2; i++) alloc_from(pool, 12 * MIB, WEIR_STREAM_CURRENT);
    assert_int_equal(l.count, 2);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, 2, WEIR_ERR_DRIVER));
    assert_status(weir_pause(0, "told", WEIR_PAUSE_DROP), WEIR_ERR_DRIVER);
    assert_int_equal(l.count, 6);
    for (int i = 2; i < 6; i++) assert_int_equal(l.change[i], i < 4 ? WEIR_RANGE_LEAVING : WEIR_RANGE_ADDED);
}

static void addresses_that_are_not_taken_back_are_logged(void **state)
{
    (void)state;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, ""));
    assert_ok(weir_free(alloc_from(pool, 12 * MIB, WEIR_STREAM_CURRENT)));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_release, 1, WEIR_ERR_DRIVER));
    begin_log();
    assert_ok(weir_mempool_empty_cache(pool));
    assert_non_null(strstr(end_log(), "device 0: 12582912 bytes at "));
    assert_int_equal(reserved_on(0), 0);
}

/* It is as if it had never been there, also to a limit. */
static void memory_that_the_device_cannot_reach_goes_back(void **state)
{
    (void)state;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, ""));
    const uint64_t free = free_memory(0);
    void *block = NULL;
    assert_ok(weir_memory_limit_set(0, 12 * MIB));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_access, 1, WEIR_ERR_DRIVER));
    assert_status(weir_alloc_from(pool, 12 * MIB, WEIR_STREAM_CURRENT, &block), WEIR_ERR_DRIVER);
    assert_int_equal(free_memory(0), free);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), calls_of(WEIR_BACKEND_vm_map));
    assert_int_equal(calls_of(WEIR_BACKEND_vm_destroy), calls_of(WEIR_BACKEND_vm_create));
    assert_int_equal(calls_of(WEIR_BACKEND_vm_release), calls_of(WEIR_BACKEND_vm_reserve));
    assert_ok(weir_free(alloc_from(pool, 12 * MIB, WEIR_STREAM_CURRENT)));
}

/* A limit counts it as long as the library is open. */
static void memory_that_cannot_be_reached_is_lost_when(enum weir_backend_entry refuses)
{
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, ""));
    void *block = NULL;
    assert_ok(weir_memory_limit_set(0, 23 * MIB));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_access, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(refuses, 1, WEIR_ERR_DRIVER));
    assert_status(weir_alloc_from(pool, 12 * MIB, WEIR_STREAM_CURRENT, &block), WEIR_ERR_DRIVER);
    assert_status(weir_alloc_from(pool, 12 * MIB, WEIR_STREAM_CURRENT, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_ok(weir_memory_limit_set(0, 24 * MIB));
    assert_ok(weir_free(alloc_from(pool, 12 * MIB, WEIR_STREAM_CURRENT)));
}

static void memory_that_cannot_be_reached_nor_unmapped_is_lost_with_its_addresses(void **state)
{
    (void)state;
    memory_that_cannot_be_reached_is_lost_when(WEIR_BACKEND_vm_unmap);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_release), 0);
}

static void memory_that_cannot_be_reached_nor_destroyed_is_lost(void **state)
{
    (void)state;
    memory_that_cannot_be_reached_is_lost_when(WEIR_BACKEND_vm_destroy);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_release), 1);
}

static int open_and_listen(void **state)
{
    l = (listener){ 0 };
    return open_device(state);
}

#define SOURCE_TEST(test) cmocka_unit_test_setup_teardown(test, open_and_listen, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SOURCE_TEST(a_source_gives_one_piece_per_segment),
        SOURCE_TEST(a_source_is_kept_until_the_last_block_dies_and_released_once),
        SOURCE_TEST(closing_gives_everything_back_to_its_source),
        SOURCE_TEST(segments_may_begin_anywhere),
        SOURCE_TEST(a_source_may_refuse_to_take_back),
        SOURCE_TEST(a_pool_that_was_released_goes_when_its_source_has_failed),
        SOURCE_TEST(a_source_gets_memory_for_an_ended_stream_back_on_the_default_one),
        SOURCE_TEST(misaligned_memory_is_refused_and_given_back),
        SOURCE_TEST(memory_less_aligned_than_the_pool_is_refused),
        SOURCE_TEST(null_that_claims_success_is_no_memory),
        SOURCE_TEST(an_error_of_the_source_reaches_the_caller),
        SOURCE_TEST(what_a_source_did_not_give_leaves_the_cap_as_it_was),
        SOURCE_TEST(a_status_that_a_source_may_not_return_becomes_a_driver_error),
        SOURCE_TEST(a_source_that_does_not_take_back_is_named),
        SOURCE_TEST(a_source_that_does_not_take_back_keeps_no_request_from_being_helped),
        SOURCE_TEST(a_source_that_does_not_take_back_keeps_no_pause_from_ending),
        SOURCE_TEST(an_absurd_request_of_a_source_is_out_of_memory),
        SOURCE_TEST(a_source_without_memory_sends_the_request_down_the_ladder),
        SOURCE_TEST(memory_that_is_given_twice_is_refused),
        SOURCE_TEST(pinned_and_managed_pools_work),
        SOURCE_TEST(ranges_are_reported_when_they_come_and_before_they_go),
        SOURCE_TEST(of_memory_that_is_given_twice_nobody_is_told),
        SOURCE_TEST(closing_ends_with_the_range_leaving),
        SOURCE_TEST(a_refused_range_goes_back),
        SOURCE_TEST(a_refused_range_that_is_not_taken_back_is_reported_as_lost),
        SOURCE_TEST(a_range_that_is_refused_on_its_return_is_not_handed_out),
        SOURCE_TEST(pausing_reports_all_ranges_before_the_first_is_unmapped),
        SOURCE_TEST(refusing_to_resume_keeps_everything_paused),
        SOURCE_TEST(ranges_that_die_while_paused_are_reported_once),
        SOURCE_TEST(a_pause_that_is_undone_reports_the_ranges_again),
        SOURCE_TEST(addresses_that_are_not_taken_back_are_logged),
        SOURCE_TEST(memory_that_the_device_cannot_reach_goes_back),
        SOURCE_TEST(memory_that_cannot_be_reached_nor_unmapped_is_lost_with_its_addresses),
        SOURCE_TEST(memory_that_cannot_be_reached_nor_destroyed_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
