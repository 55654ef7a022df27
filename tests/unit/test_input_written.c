/*
 * Snapshots that the library writes, read back: by the readers of tools/, and by Python's own pickle.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "graph_support.h"
#include "host_support.h"
#include "input_support.h"
#include "observe/pickle.h"
#include "python_support.h"
#include "weir/observe.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static const char path[] = "snapshot";

static int open_recording(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_devices = 2, .host_memory = 512 * MIB, .history = 100000, .gc_threshold = 0 });
    return 0;
}

static int open_segments(void **state)
{
    (void)state;
    open_host((weir_settings){ .policy = "segments", .host_devices = 2, .host_memory = 512 * MIB, .history = 100000 });
    return 0;
}

static int open_silent(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_devices = 2, .host_memory = 512 * MIB });
    return 0;
}

/* What the test expects to find: all blocks of all pools. */
enum { BLOCKS_MAX = 4096 };
typedef struct scene {
    weir_mempool pool; /* private, on device 0 */
    weir_stream slow;  /* held: the block that it uses stays pending */
    weir_block_info blocks[2][BLOCKS_MAX];
    size_t count[2]; /* of the default pool of device 0 or 1, and on 0 of the private one behind it */
} scene;

static void list_blocks(scene *s, int device, weir_mempool pool)
{
    size_t found = 0;
    assert_ok(weir_device_set_current(device));
    assert_ok(weir_mempool_blocks(pool, s->blocks[device] + s->count[device], BLOCKS_MAX - s->count[device], &found));
    s->count[device] += found;
    assert_true(s->count[device] <= BLOCKS_MAX);
}

static void make_scene(scene *s)
{
    weir_mempool_options o = WEIR_MEMPOOL_OPTIONS_INIT;
    void *block = NULL;
    memset(s, 0, sizeof *s);
    o.device = 0;
    assert_ok(weir_mempool_create(&o, &s->pool));
    s->slow = new_stream(0);
    for (int i = 0; i < 1500; i++) {
        void *one = alloc_on((size_t)100 + (size_t)i * 7, i % 2 ? default_stream(0) : s->slow);
        if (i % 3 == 0) assert_ok(weir_free(one));
    }
    assert_ok(weir_alloc_from(s->pool, 3 * MIB, s->slow, &block));
    alloc_on(30 * MIB + 5, default_stream(1));
    block = alloc_on(12345, default_stream(0));
    hold(s->slow);
    static slow_work work;
    start_slow_work(s->slow, &work);
    assert_ok(weir_record_stream(block, s->slow));
    assert_ok(weir_free(block));
    list_blocks(s, 0, (weir_mempool){ 0, 0 });
    list_blocks(s, 0, s->pool);
    list_blocks(s, 1, (weir_mempool){ 0, 0 });
}

static void end_scene(const scene *s)
{
    let_run(s->slow);
    assert_int_equal(unlink(path), 0);
}

/* ---- what is read back ------------------------------------------------------------------------------------------- */

static void read_back(trace *t)
{
    trace_error error;
    if (!trace_read(path, t, &error, NULL, NULL)) fail_msg("%s", error.text);
}

static const trace_live *find_live(const trace *t, int device, const void *base)
{
    for (size_t i = 0; i < t->live_count; i++)
        if (t->live[i].device == device && t->live[i].address == (uintptr_t)base) return &t->live[i];
    return NULL;
}

static void check_live(const trace *t, const scene *s)
{
    size_t expected = 0;
    for (int device = 0; device < 2; device++)
        for (size_t i = 0; i < s->count[device]; i++) {
            const weir_block_info *b = &s->blocks[device][i];
            const trace_live *live = find_live(t, device, b->base);
            if (b->state == WEIR_BLOCK_FREE) {
                assert_null(live);
                continue;
            }
            expected++;
            assert_non_null(live);
            assert_int_equal(live->bytes, b->bytes);
            assert_int_equal(live->requested, b->requested);
            assert_int_equal(live->stream, (uintptr_t)native_of(b->stream));
            assert_int_equal(live->pending, b->state == WEIR_BLOCK_PENDING);
        }
    assert_int_equal(t->live_count, expected);
}

/* The blocks that are live by the events are those that the snapshot lists. */
static void check_events(const trace *t)
{
    size_t live = 0;
    for (size_t i = 0; i < t->count; i++) {
        live += t->events[i].kind == WEIR_EVENT_ALLOC;
        live -= t->events[i].kind == WEIR_EVENT_FREE_COMPLETED;
    }
    assert_int_equal(live, t->live_count);
}

static void a_snapshot_has_every_block(void **state)
{
    (void)state;
    static scene s;
    trace t;
    make_scene(&s);
    assert_ok(weir_snapshot_save(path, NULL));
    read_back(&t);
    assert_string_equal(t.format, "pytorch-snapshot");
    check_live(&t, &s);
    check_events(&t);
    assert_true(t.settings.known && !t.settings.expandable_segments && t.settings.max_split_size == 0);
    trace_release(&t);
    end_scene(&s);
}

static void without_recording_a_snapshot_has_blocks_only(void **state)
{
    (void)state;
    static scene s;
    trace t;
    make_scene(&s);
    assert_ok(weir_snapshot_save(path, NULL));
    read_back(&t);
    check_live(&t, &s);
    assert_int_equal(t.count, 0);
    trace_release(&t);
    end_scene(&s);
}

/* Of the block at the event's address. */
static void check_place(const scene *s, const weir_event *e)
{
    const int device = e->device;
    assert_in_range(device, 0, 1);
    for (size_t i = 0; i < s->count[device]; i++) {
        const weir_block_info *b = &s->blocks[device][i];
        if ((uintptr_t)b->base != e->address || b->state == WEIR_BLOCK_FREE) continue;
        assert_int_equal(e->stream, (uintptr_t)native_of(b->stream));
        if (b->state != WEIR_BLOCK_LIVE) return;
        const weir_mempool pool = info_of(b->base).pool;
        assert_true(e->pool[0] == pool.capture && e->pool[1] == pool.user);
        return;
    }
    fail_msg("an event is about no block");
}

static void the_blocks_can_be_written_as_a_trace(void **state)
{
    (void)state;
    static scene s;
    trace t;
    weir_snapshot_options o = WEIR_SNAPSHOT_OPTIONS_INIT;
    size_t segments = 0, live = 0, pending = 0, expected = 0, requested = 0, active = 0;
    make_scene(&s);
    o.format = WEIR_SNAPSHOT_TRACE;
    assert_ok(weir_snapshot_save(path, &o));
    read_back(&t);
    assert_string_equal(t.format, "weir");
    for (size_t i = 0; i < t.count; i++) {
        segments += t.events[i].kind == WEIR_EVENT_SEGMENT_ALLOC;
        live += t.events[i].kind == WEIR_EVENT_ALLOC;
        pending += t.events[i].kind == WEIR_EVENT_FREE_REQUESTED;
        if (t.events[i].kind == WEIR_EVENT_ALLOC) {
            requested += t.events[i].size;
            check_place(&s, &t.events[i]);
        }
        if (t.events[i].kind == WEIR_EVENT_SNAPSHOT) active += t.events[i].size;
    }
    for (int device = 0; device < 2; device++)
        for (size_t i = 0; i < s.count[device]; i++) {
            if (s.blocks[device][i].state == WEIR_BLOCK_FREE) continue;
            expected++;
            requested -= s.blocks[device][i].requested;
            active -= s.blocks[device][i].bytes;
        }
    assert_int_equal(requested, 0);
    assert_int_equal(active, 0);
    assert_int_equal(live, expected);
    assert_int_equal(pending, 1);
    assert_int_equal(segments, stats_of(0).segment[WEIR_STAT_ALL].current + stats_of(1).segment[WEIR_STAT_ALL].current);
    assert_int_equal(t.events[t.count - 1].kind, WEIR_EVENT_SNAPSHOT);
    trace_release(&t);
    end_scene(&s);
}

static size_t live_in(const weir_snapshot_options *o)
{
    trace t;
    assert_ok(weir_snapshot_save(path, o));
    read_back(&t);
    const size_t count = t.live_count;
    trace_release(&t);
    return count;
}

static void one_pool_or_one_device_can_be_asked_about(void **state)
{
    (void)state;
    static scene s;
    static const weir_mempool default_pool;
    weir_snapshot_options o = WEIR_SNAPSHOT_OPTIONS_INIT;
    make_scene(&s);
    o.pool = &s.pool;
    assert_int_equal(live_in(&o), 1);
    o.pool = &default_pool;
    assert_status(weir_snapshot_save(path, &o), WEIR_ERR_INVALID_ARGUMENT);
    o.device = 1;
    assert_int_equal(live_in(&o), 1);
    o.pool = NULL;
    assert_int_equal(live_in(&o), 1);
    o.device = WEIR_DEVICE_ALL;
    assert_int_equal(live_in(&o), 1000 + 3);
    const weir_mempool gone = { 0, 999999 };
    o.pool = &gone;
    assert_status(weir_snapshot_save(path, &o), WEIR_ERR_POOL_MISMATCH);
    end_scene(&s);
}

static void a_snapshot_of_a_pool_of_another_device_is_refused(void **state)
{
    (void)state;
    static scene s;
    weir_snapshot_options o = WEIR_SNAPSHOT_OPTIONS_INIT;
    make_scene(&s);
    o.pool = &s.pool;
    o.device = 0;
    assert_int_equal(live_in(&o), 1);
    o.device = 1;
    assert_status(weir_snapshot_save(path, &o), WEIR_ERR_WRONG_DEVICE);
    o.device = 77;
    assert_status(weir_snapshot_save(path, &o), WEIR_ERR_NO_DEVICE);
    end_scene(&s);
}

static void a_snapshot_goes_into_a_pipe(void **state)
{
    (void)state;
    int ends[2];
    uint8_t bytes[4096];
    alloc(512);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    weir_snapshot_options o = WEIR_SNAPSHOT_OPTIONS_INIT;
    assert_ok(weir_snapshot_write(ends[1], &o));
    const ssize_t count = read(ends[0], bytes, sizeof bytes);
    assert_in_range(count, 100, sizeof bytes - 1);
    trace t;
    assert_true(read_exact(bytes, (size_t)count, NULL, &t, NULL));
    assert_int_equal(t.live_count, 1);
    trace_release(&t);
    close(ends[0]);
    close(ends[1]);
}

typedef struct slow_reader {
    int from;
    size_t read;
} slow_reader;

static void *read_slowly(void *of_reader)
{
    slow_reader *r = of_reader;
    char bytes[1000];
    for (ssize_t count = 1; count > 0; r->read += (size_t)count) {
        usleep(100);
        count = read(r->from, bytes, sizeof bytes);
        assert_true(count >= 0);
    }
    return NULL;
}

static void a_slow_reader_is_waited_for_on_a_nonblocking_pipe_too(void **state)
{
    (void)state;
    int ends[2];
    pthread_t thread;
    for (int i = 0; i < 3000; i++) alloc(512);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
    slow_reader reader = { .from = ends[0] };
    assert_int_equal(pthread_create(&thread, NULL, read_slowly, &reader), 0);
    assert_ok(weir_snapshot_write(ends[1], NULL));
    close(ends[1]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_in_range(reader.read, 100000, 10000000);
    close(ends[0]);
}

/* The signal does not reach the program, now or later, and one that the program waits for stays pending. */
static void a_reader_that_is_gone_is_an_error(void **state)
{
    (void)state;
    int ends[2];
    sigset_t broken, waiting, mask;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    close(ends[0]);
    assert_status(weir_snapshot_write(ends[1], NULL), WEIR_ERR_IO);
    assert_non_null(strstr(weir_error_text(), "Broken pipe"));
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &broken, &mask), 0);
    assert_int_equal(sigismember(&mask, SIGPIPE), 0);
    assert_status(weir_snapshot_write(ends[1], NULL), WEIR_ERR_IO);
    assert_int_equal(sigpending(&waiting), 0);
    assert_int_equal(sigismember(&waiting, SIGPIPE), 0);
    assert_int_equal(pthread_kill(pthread_self(), SIGPIPE), 0);
    assert_status(weir_snapshot_write(ends[1], NULL), WEIR_ERR_IO);
    assert_int_equal(sigwaitinfo(&broken, NULL), SIGPIPE);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &mask, NULL), 0);
    close(ends[1]);
}

/* Killed processes with the same number leave such files; in a container the number is always 1. */
static void files_left_half_written_are_no_hindrance(void **state)
{
    (void)state;
    wr_output *left[3], *last;
    alloc(512);
    for (int i = 0; i < 3; i++) assert_int_equal(wr_output_open("test", path, &left[i]), WEIR_OK);
    assert_ok(weir_snapshot_save(path, NULL));
    assert_int_equal(wr_output_open("test", path, &last), WEIR_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(access(left[i]->beside, F_OK), 0);
        assert_string_not_equal(left[i]->beside, last->beside);
        wr_output_abandon(left[i]);
    }
    wr_output_abandon(last);
    assert_int_equal(unlink(path), 0);
}

static void a_path_that_cannot_be_written_is_refused_with_the_reason(void **state)
{
    (void)state;
    weir_snapshot_options o = WEIR_SNAPSHOT_OPTIONS_INIT;
    alloc(512);
    assert_status(weir_snapshot_save("/nonexistent/folder/snapshot", NULL), WEIR_ERR_IO);
    assert_non_null(strstr(weir_error_text(), "No such file"));
    assert_status(weir_snapshot_save(NULL, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_snapshot_write(-1, NULL), WEIR_ERR_INVALID_ARGUMENT);
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(full >= 0);
    assert_status(weir_snapshot_write(full, NULL), WEIR_ERR_IO);
    assert_non_null(strstr(weir_error_text(), "No space left"));
    close(full);
    o.format = (weir_snapshot_format)7;
    assert_status(weir_snapshot_save(path, &o), WEIR_ERR_INVALID_ARGUMENT);
    o = (weir_snapshot_options){ 0 };
    assert_status(weir_snapshot_save(path, &o), WEIR_ERR_INVALID_ARGUMENT);
}

/* Each allocation that a snapshot makes fails in turn: nothing is left, and nothing changes. */
static void lack_of_memory_is_reported(void **state)
{
    (void)state;
    alloc(512);
    assert_ok(weir_history_label_push("here"));
    alloc(512);
    const uint64_t live = wr_meta_live();
    weir_status status = WEIR_ERR_OUT_OF_HOST_MEMORY;
    int failures = -1;
    for (uint64_t nth = 1; status != WEIR_OK; nth++, failures++) {
        wr_meta_fail_nth(nth);
        status = weir_snapshot_save(path, NULL);
        wr_meta_fail_nth(0);
        assert_true(status == WEIR_OK || status == WEIR_ERR_OUT_OF_HOST_MEMORY);
        assert_int_equal(access(path, F_OK), status == WEIR_OK ? 0 : -1);
        assert_int_equal(wr_meta_live(), live);
    }
    assert_in_range(failures, 4, 20);
    assert_ok(weir_history_label_pop());
    assert_int_equal(unlink(path), 0);
}

/* ---- Python ------------------------------------------------------------------------------------------------------ */

static void run(const char *command)
{
    assert_int_equal(system(command), 0); /* NOLINT(concurrency-mt-unsafe): the test's one thread */
}

static void python_reads_what_pytorch_would_have_written(void **state)
{
    (void)state;
    static scene s;
    need_python();
    assert_ok(weir_history_label_push("first"));
    make_scene(&s);
    assert_ok(weir_history_label_pop());
    void *block = NULL;
    assert_status(weir_alloc_on(1000 * MIB, default_stream(0), &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_ok(weir_snapshot_save(path, NULL));
    run("python3 " WEIR_SOURCE_DIR "/tests/torch_snapshot.py snapshot");
    end_scene(&s);
}

/* There is one, since no memory was wanted that is waited for. */
static void a_block_that_waits_for_a_stream_is_active_in_its_segment(void **state)
{
    (void)state;
    static scene s;
    need_python();
    make_scene(&s);
    assert_ok(weir_snapshot_save(path, NULL));
    run("python3 -c '\n"
        "import pickle\n"
        "waiting = 0\n"
        "for s in pickle.load(open(\"snapshot\", \"rb\"))[\"segments\"]:\n"
        "    pending = sum(b[\"size\"] for b in s[\"blocks\"] if b[\"state\"] == \"active_pending_free\")\n"
        "    assert s[\"active_size\"] == s[\"allocated_size\"] + pending, s\n"
        "    waiting += pending != 0\n"
        "assert waiting == 1\n"
        "'");
    end_scene(&s);
}

/* `expandable`: as Python writes it. */
static void check_segments(const char *small, const char *expandable)
{
    char command[600];
    alloc(512);
    alloc(30 * MIB);
    assert_ok(weir_snapshot_save(path, NULL));
    snprintf(command, sizeof command,
             "python3 -c '\n"
             "import pickle\n"
             "segments = pickle.load(open(\"snapshot\", \"rb\"))[\"segments\"]\n"
             "classes = {s[\"blocks\"][0][\"requested_size\"]: s[\"segment_type\"] for s in segments}\n"
             "assert classes == {512: \"%s\", 30 << 20: \"large\"}, classes\n"
             "assert all(s[\"is_expandable\"] is %s for s in segments), segments\n"
             "'",
             small, expandable);
    run(command);
    assert_int_equal(unlink(path), 0);
}

static void segments_have_the_class_of_their_blocks(void **state)
{
    (void)state;
    need_python();
    check_segments("small", "False");
}

static void segments_of_chunks_are_of_one_class_and_expandable(void **state)
{
    (void)state;
    need_python();
    check_segments("large", "True");
}

static void *allocate_there(void *last)
{
    if (last) assert_ok(weir_history_label_push("there"));
    alloc(last ? 2048 : 512);
    if (last) assert_ok(weir_history_label_pop());
    return NULL;
}

static void events_have_the_label_of_their_thread_and_the_time_of_day(void **state)
{
    (void)state;
    enum { THREADS = 8 }; /* the last one's number falls on this one's place in the table of labels */
    pthread_t thread;
    need_python();
    assert_ok(weir_history_label_push("here"));
    alloc(1024);
    for (int i = 1; i <= THREADS; i++) {
        assert_int_equal(pthread_create(&thread, NULL, allocate_there, i == THREADS ? &thread : NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    alloc(4096);
    assert_ok(weir_history_label_pop());
    assert_ok(weir_snapshot_save(path, NULL));
    run("python3 -c '\n"
        "import pickle, time\n"
        "events = pickle.load(open(\"snapshot\", \"rb\"))[\"device_traces\"][0]\n"
        "labels = {e[\"size\"]: e[\"user_metadata\"] for e in events if e[\"action\"] == \"alloc\"}\n"
        "assert labels == {1024: \"here\", 512: \"\", 2048: \"there\", 4096: \"here\"}, labels\n"
        "assert all(abs(time.time() - e[\"time_us\"] / 1e6) < 86400 for e in events), events\n"
        "'");
    assert_int_equal(unlink(path), 0);
}

/* All blocks are on the default stream, and are mapped in parts that come and go. */
static void the_viewer_finds_its_way_back_through_mappings(void **state)
{
    (void)state;
    enum { SLOTS = 12 };
    void *slots[SLOTS] = { NULL };
    uint32_t random = 1;
    need_python();
    assert_ok(weir_history_label_push("first"));
    for (int i = 0; i < 600; i++) {
        random = random * 1664525 + 1013904223;
        void **slot = &slots[(random >> 8) % SLOTS];
        assert_ok(weir_free(*slot));
        *slot = alloc(1 + (random >> 4) % (40 * MIB));
    }
    assert_ok(weir_history_label_pop());
    void *block = NULL;
    assert_status(weir_alloc_on(1000 * MIB, default_stream(0), &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_ok(weir_snapshot_save(path, NULL));
    run("python3 " WEIR_SOURCE_DIR "/tests/torch_snapshot.py snapshot");
    assert_int_equal(unlink(path), 0);
}

/* Streams end while parts of what was mapped for them are elsewhere: the rest is another stream's from then on. */
static void the_viewer_finds_its_way_back_past_the_end_of_streams(void **state)
{
    (void)state;
    enum { SLOTS = 24, STREAMS = 4 };
    void *slots[SLOTS] = { NULL };
    weir_stream streams[STREAMS];
    uint32_t random = 1;
    need_python();
    for (int i = 0; i < STREAMS; i++) streams[i] = new_stream(0);
    assert_ok(weir_history_label_push("first"));
    assert_ok(weir_memory_limit_set(0, 48 * MIB));
    void *block = NULL;
    for (int i = 0; i < 2000; i++) {
        random = random * 1664525 + 1013904223;
        void **slot = &slots[(random >> 8) % SLOTS];
        weir_stream *stream = &streams[(random >> 20) % STREAMS];
        assert_ok(weir_free(*slot));
        *slot = NULL;
        (void)!weir_alloc_on(1 + (random >> 4) % (6 * MIB), *stream, slot);
        if (i % 50 != 49) continue;
        assert_ok(weir_stream_destroy(*stream));
        *stream = new_stream(0);
    }
    assert_ok(weir_history_label_pop());
    assert_status(weir_alloc_on(1000 * MIB, default_stream(0), &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_ok(weir_snapshot_save(path, NULL));
    run("python3 " WEIR_SOURCE_DIR "/tests/torch_snapshot.py snapshot");
    assert_int_equal(unlink(path), 0);
}

static void a_snapshot_says_when_older_events_are_gone(void **state)
{
    (void)state;
    const weir_stream streams[] = { new_stream(1), default_stream(0) }; /* either device says it for all */
    need_python();
    alloc(512);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 60000; i++) assert_ok(weir_free(alloc_on(512, streams[k])));
        assert_ok(weir_snapshot_save(path, NULL));
        run("python3 -c '\n"
            "import pickle\n"
            "s = pickle.load(open(\"snapshot\", \"rb\"))[\"allocator_settings\"]\n"
            "assert s[\"trace_alloc_overflowed\"] is True and s[\"trace_alloc_max_entries\"] == 100000, s\n"
            "'");
        assert_ok(weir_history_clear(1));
    }
    assert_int_equal(unlink(path), 0);
}

static void open_with_settings(void **state)
{
    (void)state;
    open_host((weir_settings){ .policy = "torch",
                               .host_memory = 512 * MIB,
                               .history = 100,
                               .max_split_size = 64 * MIB,
                               .large_segment = 31 * MIB,
                               .max_non_split_rounding = 39 * MIB + 1,
                               .roundup_power2_divisions = "[1:4,4:8,>:2]",
                               .gc_threshold = 0.3 });
}

static void check_settings(const char *config, bool set)
{
    trace t;
    read_back(&t);
    assert_true(t.settings.known && !t.settings.expandable_segments);
    assert_string_equal(t.settings.config, config);
    assert_int_equal(t.settings.max_split_size, set ? 64 * MIB : 0);
    assert_true(t.settings.gc_threshold == (set ? 0.3 : 0));
    assert_int_equal(strncmp(t.settings.roundup_power2_divisions, "[1:4,", 5) == 0, set);
    trace_release(&t);
    assert_int_equal(unlink(path), 0);
}

/* A replay needs the settings to repeat the recording. */
static void traces_and_snapshots_have_the_settings(void **state)
{
    static const char config[] =
        "large_segment_size_mb:32,max_split_size_mb:64,max_non_split_rounding_mb:40,roundup_power2_divisions:[1:4,4:8,>:2],"
        "garbage_collection_threshold:0.3";
    weir_snapshot_options as_trace = WEIR_SNAPSHOT_OPTIONS_INIT;
    as_trace.format = WEIR_SNAPSHOT_TRACE;
    for (int set = 0; set < 2; set++) {
        if (set)
            open_with_settings(state);
        else
            (void)open_recording(state);
        alloc(512);
        assert_ok(weir_snapshot_save(path, NULL));
        check_settings(set ? config : "", set);
        assert_ok(weir_snapshot_save(path, &as_trace));
        check_settings(set ? config : "", set);
        assert_ok(weir_history_save(path));
        check_settings(set ? config : "", set);
        assert_int_equal(close_host(state), 0);
    }
}

/* The id of a capture's pool is {n, 0}, that of a pool of the program's own {0, n}. */
static void the_pool_of_a_capture_is_told_from_others(void **state)
{
    (void)state;
    weir_graph graph;
    weir_snapshot_options o = WEIR_SNAPSHOT_OPTIONS_INIT;
    const weir_stream stream = new_stream(0);
    assert_ok(try_begin(stream, (weir_mempool){ 0, 0 }, &graph));
    alloc_on(1000, stream);
    assert_ok(weir_graph_end(graph));
    const weir_mempool pool = pool_of(graph);
    assert_true(pool.capture != 0 && pool.user == 0);
    for (int form = 0; form < 2; form++) {
        trace t;
        size_t found = 0;
        o.format = form == 0 ? WEIR_SNAPSHOT_PICKLE : WEIR_SNAPSHOT_TRACE;
        assert_ok(weir_snapshot_save(path, &o));
        read_back(&t);
        for (size_t i = 0; i < t.count; i++) {
            if (t.events[i].kind != WEIR_EVENT_ALLOC) continue;
            assert_true(t.events[i].pool[0] == pool.capture && t.events[i].pool[1] == 0);
            found++;
        }
        assert_int_equal(found, 1);
        trace_release(&t);
        assert_int_equal(unlink(path), 0);
    }
    assert_ok(weir_graph_destroy(graph));
}

/* A snapshot of one pool contains everything that its events are about. */
static void the_events_of_one_pool_are_its_own(void **state)
{
    (void)state;
    static scene s;
    need_python();
    assert_ok(weir_history_label_push("first"));
    make_scene(&s);
    assert_ok(weir_history_label_pop());
    weir_snapshot_options o = WEIR_SNAPSHOT_OPTIONS_INIT;
    o.pool = &s.pool;
    assert_ok(weir_snapshot_save(path, &o));
    run("python3 -c '\n"
        "import pickle\n"
        "s = pickle.load(open(\"snapshot\", \"rb\"))\n"
        "pool = s[\"segments\"][0][\"segment_pool_id\"]\n"
        "assert pool != (0, 0) and not s[\"device_traces\"][1]\n"
        "told = [(e[\"action\"], e[\"pool_id\"], e[\"user_metadata\"]) for e in s[\"device_traces\"][0]]\n"
        "assert told == [(\"segment_map\", pool, \"first\"), (\"alloc\", pool, \"first\"), (\"snapshot\", (0, 0), \"\")], told\n"
        "'");
    end_scene(&s);
}

static void bytes_that_are_no_utf8_leave_a_snapshot_readable(void **state)
{
    (void)state;
    trace t;
    need_python();
    assert_ok(weir_history_label_push("caf\xE9 \xED\xA0\x80\xC3\xA9"));
    alloc(512);
    assert_ok(weir_history_label_pop());
    assert_ok(weir_snapshot_save(path, NULL));
    run("python3 -c '\n"
        "import pickle\n"
        "events = pickle.load(open(\"snapshot\", \"rb\"))[\"device_traces\"][0]\n"
        "r = chr(0xfffd)\n"
        "assert events[1][\"user_metadata\"] == \"caf\" + r + \" \" + 3 * r + chr(0xe9), events\n"
        "'");
    read_back(&t);
    assert_int_equal(t.live_count, 1);
    trace_release(&t);
    assert_int_equal(unlink(path), 0);
}

static void python_reads_every_number_as_written(void **state)
{
    (void)state;
    static const uint64_t numbers[] = { 0,          1,         255,        256,        65535,      65536,
                                        INT32_MAX,  1u << 31u, UINT32_MAX, 1ull << 32, 1ull << 47, (1ull << 55) - 1,
                                        1ull << 55, INT64_MAX, 1ull << 63, UINT64_MAX };
    static const int64_t negative[] = { -1, -128, -129, INT32_MIN, (int64_t)INT32_MIN - 1, -(1ll << 55), INT64_MIN };
    wr_output *out;
    wr_pickle p;
    wr_pickle_list list;
    need_python();
    assert_int_equal(wr_output_open("test", path, &out), WEIR_OK);
    wr_pickle_begin(&p, out);
    wr_pickle_list_begin(&p, &list);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        wr_pickle_item(&p, &list);
        wr_pickle_unsigned(&p, numbers[i]);
    }
    for (size_t i = 0; i < sizeof negative / sizeof *negative; i++) {
        wr_pickle_item(&p, &list);
        wr_pickle_signed(&p, negative[i]);
    }
    wr_pickle_item(&p, &list);
    wr_pickle_real(&p, 0.8);
    wr_pickle_list_end(&p, &list);
    wr_pickle_end(&p);
    assert_int_equal(wr_output_close(out, "test", path), WEIR_OK);
    run("python3 -c '\n"
        "import pickle\n"
        "n = pickle.load(open(\"snapshot\", \"rb\"))\n"
        "assert n == [0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**47, 2**55 - 1, 2**55,\n"
        "             2**63 - 1, 2**63, 2**64 - 1, -1, -128, -129, -2**31, -2**31 - 1, -2**55, -2**63, 0.8], n\n"
        "'");
    assert_int_equal(unlink(path), 0);
}

#define RECORDING(test) cmocka_unit_test_setup_teardown(test, open_recording, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RECORDING(a_snapshot_has_every_block),
        cmocka_unit_test_setup_teardown(a_snapshot_has_every_block, open_segments, close_host),
        cmocka_unit_test_setup_teardown(without_recording_a_snapshot_has_blocks_only, open_silent, close_host),
        cmocka_unit_test_setup_teardown(the_blocks_can_be_written_as_a_trace, open_segments, close_host),
        RECORDING(one_pool_or_one_device_can_be_asked_about),
        RECORDING(a_snapshot_of_a_pool_of_another_device_is_refused),
        RECORDING(a_snapshot_goes_into_a_pipe),
        RECORDING(a_slow_reader_is_waited_for_on_a_nonblocking_pipe_too),
        RECORDING(a_reader_that_is_gone_is_an_error),
        RECORDING(files_left_half_written_are_no_hindrance),
        RECORDING(a_path_that_cannot_be_written_is_refused_with_the_reason),
        RECORDING(lack_of_memory_is_reported),
        RECORDING(python_reads_what_pytorch_would_have_written),
        RECORDING(a_block_that_waits_for_a_stream_is_active_in_its_segment),
        cmocka_unit_test_setup_teardown(segments_have_the_class_of_their_blocks, open_segments, close_host),
        RECORDING(segments_of_chunks_are_of_one_class_and_expandable),
        RECORDING(events_have_the_label_of_their_thread_and_the_time_of_day),
        RECORDING(the_viewer_finds_its_way_back_through_mappings),
        RECORDING(the_viewer_finds_its_way_back_past_the_end_of_streams),
        RECORDING(a_snapshot_says_when_older_events_are_gone),
        RECORDING(the_pool_of_a_capture_is_told_from_others),
        RECORDING(the_events_of_one_pool_are_its_own),
        RECORDING(bytes_that_are_no_utf8_leave_a_snapshot_readable),
        cmocka_unit_test(traces_and_snapshots_have_the_settings),
        cmocka_unit_test(python_reads_every_number_as_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
