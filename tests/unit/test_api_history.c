/*
 * Recorded events: read, cleared, saved.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "observe/output.h"
#include "pool_support.h"
#include "weir/observe.h"
#include "weir/trace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/weir-history-XXXXXX";
static char path[sizeof folder + 16];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/trace", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static int open_recording(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_devices = 2, .host_memory = 64 * MIB, .history = 100 });
    return 0;
}

static size_t read_events(int device, weir_event *events, size_t capacity)
{
    size_t count = 0;
    assert_ok(weir_history_read(device, events, capacity, &count, NULL));
    return count;
}

static void the_life_of_a_block_is_recorded(void **state)
{
    (void)state;
    weir_stream home = new_stream(0), other = new_stream(0);
    void *block = alloc_on(1000, home);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    assert_ok(weir_empty_cache(0));

    weir_event events[8];
    static const weir_event_kind kinds[] = { WEIR_EVENT_SEGMENT_ALLOC,  WEIR_EVENT_ALLOC,
                                             WEIR_EVENT_DECISION,       WEIR_EVENT_RECORD_STREAM,
                                             WEIR_EVENT_FREE_REQUESTED, WEIR_EVENT_FREE_COMPLETED,
                                             WEIR_EVENT_SEGMENT_FREE };
    assert_int_equal(read_events(0, events, 8), 7);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(events[i].kind, kinds[i]);
        if (events[i].kind != WEIR_EVENT_DECISION) assert_int_equal(events[i].address, (uintptr_t)block);
        assert_int_equal(events[i].device, 0);
        assert_int_not_equal(events[i].thread, 0);
        assert_true(i == 0 || events[i].time_ns >= events[i - 1].time_ns);
    }
    assert_int_equal(events[0].size, 2 * MIB);
    assert_int_equal(events[1].size, 1000); /* as asked */
    assert_int_equal(events[1].stream, (uintptr_t)native_of(home));
    assert_int_equal(weir_decision_served(&events[2]), WEIR_STEP_GROW);
    assert_true(weir_decision_tried(&events[2], WEIR_STEP_FINISHED) &&
                !weir_decision_tried(&events[2], WEIR_STEP_TRIM));
    assert_int_equal(events[2].size, 1000);
    assert_int_equal(events[3].stream, (uintptr_t)native_of(other));
    assert_int_equal(events[5].stream, (uintptr_t)native_of(home));
}

static void old_events_are_dropped_and_counted(void **state)
{
    (void)state;
    weir_event events[200];
    size_t count = 0;
    uint64_t dropped = 0;
    for (int i = 0; i < 60; i++) assert_ok(weir_free(alloc(512))); /* 3 each, the segment, and why it was taken */
    assert_ok(weir_history_read(0, events, 200, &count, &dropped));
    assert_int_equal(count, 100);
    assert_int_equal(dropped, 82);
}

static void clearing_forgets_one_device(void **state)
{
    (void)state;
    weir_event event;
    assert_ok(weir_free(alloc(512)));
    alloc_on(512, default_stream(1));
    assert_ok(weir_history_clear(0));
    assert_int_equal(read_events(0, &event, 1), 0);
    assert_int_equal(read_events(1, &event, 1), 1);
}

static void reading_needs_a_buffer(void **state)
{
    (void)state;
    size_t count = 5;
    weir_event event;
    assert_status(weir_history_read(0, NULL, 1, &count, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_history_read(0, &event, 1, NULL, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(count, 5);
    assert_ok(weir_history_read(0, NULL, 0, &count, NULL));
    assert_int_equal(count, 0);
}

static int open_recording_segments(void **state)
{
    (void)state;
    open_host((weir_settings){ .policy = "segments", .host_devices = 2, .host_memory = 64 * MIB, .history = 100 });
    return 0;
}

/* ---- labels ------------------------------------------------------------------------------------------------------ */

static void check_label(const weir_event *event, const char *text)
{
    size_t length = 0;
    assert_int_equal(event->kind, WEIR_EVENT_LABEL);
    const char *label = weir_event_label(event, &length);
    assert_int_equal(length, strlen(text));
    assert_memory_equal(label, text, length);
}

static void events_under_a_label_follow_it(void **state)
{
    (void)state;
    weir_event events[16];
    void *block = alloc(512);
    assert_ok(weir_history_clear(0));
    assert_ok(weir_history_label_push("outer"));
    assert_ok(weir_history_label_push("forty bytes are as many as there can be."));
    assert_ok(weir_free(block));
    assert_ok(weir_history_label_pop());
    assert_ok(weir_free(alloc(512)));
    assert_ok(weir_history_label_pop());
    assert_ok(weir_free(alloc(512)));
    assert_int_equal(read_events(0, events, 16), 11);
    check_label(&events[0], "forty bytes are as many as there can be.");
    check_label(&events[3], "outer");
    check_label(&events[7], "");
    assert_int_equal(events[10].kind, WEIR_EVENT_FREE_COMPLETED);
}

static void invalid_labels_are_refused(void **state)
{
    (void)state;
    assert_status(weir_history_label_pop(), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_history_label_push(NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_history_label_push(""), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_history_label_push("forty-one bytes are more than there can be"), WEIR_ERR_INVALID_ARGUMENT);
    for (int i = 0; i < 32; i++) assert_ok(weir_history_label_push("deep"));
    assert_status(weir_history_label_push("deeper"), WEIR_ERR_INVALID_ARGUMENT);
    for (int i = 0; i < 32; i++) assert_ok(weir_history_label_pop());
    assert_status(weir_history_label_pop(), WEIR_ERR_INVALID_ARGUMENT);
}

static int open_recording_much(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 64 * MIB, .history = 2000 });
    return 0;
}

/* The event that first named the label is gone, so the history names it again now and then. */
static void a_label_is_repeated_in_the_history(void **state)
{
    (void)state;
    static weir_event events[2000];
    int said = 0;
    assert_ok(weir_history_label_push("step"));
    for (int i = 0; i < 2000; i++) assert_ok(weir_free(alloc(512)));
    assert_ok(weir_history_label_pop());
    assert_int_equal(read_events(0, events, 2000), 2000);
    for (int i = 0; i < 2000; i++) {
        if (events[i].kind != WEIR_EVENT_LABEL) continue;
        check_label(&events[i], "step");
        said++;
    }
    assert_in_range(said, 3, 5);
}

/* The ways to allocate, each with a fast path of its own. */
typedef enum form { IMPLICIT, EXPLICIT, ENTERED, NAMED, FORMS } form;

static void *alloc_by(form how, weir_mempool pool)
{
    void *block = NULL;
    if (how == NAMED)
        assert_ok(weir_alloc_from(pool, 512, default_stream(0), &block));
    else
        assert_ok(how == EXPLICIT ? weir_alloc_on(512, default_stream(0), &block) : weir_alloc(512, &block));
    return block;
}

static void assert_recorded(const weir_event *events, size_t count, weir_event_kind kind, weir_mempool pool, int times)
{
    for (size_t i = 0; i < count; i++) {
        if (events[i].kind != kind) continue;
        assert_int_equal(events[i].pool[1], pool.user);
        times--;
    }
    assert_int_equal(times, 0);
}

enum { PAIRS = 500 };

static void do_pairs(form how, weir_mempool pool)
{
    if (how == ENTERED) assert_ok(weir_mempool_enter(pool));
    for (int i = 0; i < PAIRS; i++) assert_ok(weir_free(alloc_by(how, pool)));
    if (how == ENTERED) assert_ok(weir_mempool_leave(pool));
}

static weir_mempool pool_of(form how, weir_mempool made)
{
    return how == ENTERED || how == NAMED ? made : (weir_mempool){ 0, 0 };
}

static void assert_pairs_are_recorded(weir_mempool made)
{
    static weir_event events[2000];
    for (form how = 0; how < FORMS; how++) {
        const weir_mempool pool = pool_of(how, made);
        assert_ok(weir_history_clear(0));
        do_pairs(how, pool);
        const size_t count = read_events(0, events, sizeof events / sizeof events[0]);
        assert_recorded(events, count, WEIR_EVENT_ALLOC, pool, PAIRS);
        assert_recorded(events, count, WEIR_EVENT_FREE_REQUESTED, pool, PAIRS);
        assert_recorded(events, count, WEIR_EVENT_FREE_COMPLETED, pool, PAIRS);
    }
}

static void a_block_that_was_parked_is_recorded_like_any_other(void **state)
{
    (void)state;
    assert_pairs_are_recorded(make_pool(pool_options(WEIR_MEMORY_DEVICE, "")));
}

static void without_recording_there_is_nothing_to_read(void **state)
{
    (void)state;
    size_t count = 5;
    assert_status(weir_history_save(path), WEIR_ERR_NOT_SUPPORTED); /* also before a device was used */
    alloc(512);
    assert_status(weir_history_read(0, NULL, 0, &count, NULL), WEIR_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(weir_error_text(), "WEIR_HISTORY"));
    assert_status(weir_history_save(path), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(access(path, F_OK), -1);
}

static void recording_can_be_started_at_any_time(void **state)
{
    (void)state;
    weir_memory_stats stats = { .size = sizeof stats };
    weir_event events[8];
    size_t count = 0;
    uint64_t dropped = 0;
    void *before = alloc(512), *gone = alloc(512);
    assert_ok(weir_free(gone));
    assert_ok(weir_stats_get(0, &stats));
    assert_ok(weir_history_start(100, 0));
    void *after = alloc(1000);
    assert_ok(weir_free(before));
    assert_ok(weir_history_read(0, events, 8, &count, &dropped));
    assert_int_equal(dropped, 1 + stats.segment[WEIR_STAT_ALL].current); /* of the block that was live, and segments */
    assert_int_equal(count, 3);
    assert_int_equal(events[0].kind, WEIR_EVENT_ALLOC);
    assert_int_equal(events[0].address, (uintptr_t)after);
    assert_int_equal(events[1].kind, WEIR_EVENT_FREE_REQUESTED);
    assert_int_equal(events[2].kind, WEIR_EVENT_FREE_COMPLETED);
    assert_int_equal(events[2].address, (uintptr_t)before);
    assert_ok(weir_free(after));
}

/* Whose pairs were hits while nothing was recorded. */
static void blocks_parked_before_it_was_started_are_recorded_like_any_other(void **state)
{
    (void)state;
    const weir_mempool made = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    for (form how = 0; how < FORMS; how++) do_pairs(how, pool_of(how, made));
    assert_ok(weir_history_start(100000, 0));
    assert_pairs_are_recorded(made);
}

static void devices_that_are_opened_later_record_too(void **state)
{
    (void)state;
    weir_event events[8];
    alloc(512);
    assert_ok(weir_history_start(100, 0));
    void *other = alloc_on(512, default_stream(1));
    const size_t count = read_events(1, events, 8);
    size_t i = 0;
    while (i < count && events[i].kind != WEIR_EVENT_ALLOC) i++;
    assert_true(i < count);
    assert_int_equal(events[i].address, (uintptr_t)other);
}

static void starting_again_changes_how_many_events_are_kept(void **state)
{
    (void)state;
    weir_event events[100];
    size_t count = 0;
    uint64_t dropped = 0;
    assert_ok(weir_history_start(100, 0));
    for (int i = 0; i < 20; i++) assert_ok(weir_free(alloc(512)));
    assert_ok(weir_history_read(0, events, 100, &count, &dropped));
    const weir_event last = events[count - 1];
    assert_int_equal(count, 62);
    assert_ok(weir_history_start(5, 0));
    assert_ok(weir_history_read(0, events, 100, &count, &dropped));
    assert_int_equal(count, 5);
    assert_int_equal(dropped, 57);
    assert_memory_equal(&events[4], &last, sizeof last);
}

static void keeping_fewer_events_frees_their_memory(void **state)
{
    (void)state;
    uint64_t dropped = 0;
    weir_event events[1000];
    size_t count = 0;
    assert_ok(weir_history_start(100000, 0));
    for (int i = 0; i < 30000; i++) assert_ok(weir_free(alloc(512)));
    const uint64_t full = wr_meta_live();
    assert_ok(weir_history_start(1000, 0));
    assert_true(wr_meta_live() < full - 150);
    assert_ok(weir_history_read(0, events, 1000, &count, &dropped));
    assert_int_equal(count, 1000);
    assert_int_equal(dropped, 90002 - 1000);
}

static void stopping_forgets_what_was_recorded(void **state)
{
    (void)state;
    size_t count = 0;
    uint64_t dropped = 0;
    weir_event events[8];
    weir_memory_stats stats = { .size = sizeof stats };
    void *kept = alloc(1000);
    alloc_on(512, default_stream(1));
    assert_ok(weir_history_stop());
    for (int device = 0; device < 2; device++)
        assert_status(weir_history_read(device, events, 8, &count, NULL), WEIR_ERR_NOT_SUPPORTED);
    assert_ok(weir_free(alloc(512)));
    assert_ok(weir_history_stop()); /* nothing happens */
    assert_ok(weir_stats_get(0, &stats));
    assert_ok(weir_history_start(100, 0));
    assert_ok(weir_free(kept));
    assert_ok(weir_history_read(0, events, 8, &count, &dropped));
    assert_int_equal(count, 2);
    assert_int_equal(events[0].kind, WEIR_EVENT_FREE_REQUESTED);
    assert_int_equal(events[0].address, (uintptr_t)kept);
    assert_int_equal(dropped, 1 + stats.segment[WEIR_STAT_ALL].current);
}

static void without_memory_for_stacks_recording_does_not_start(void **state)
{
    (void)state;
    size_t count = 0;
    alloc(512);
    wr_meta_fail_nth(1);
    assert_status(weir_history_start(100, 16), WEIR_ERR_OUT_OF_HOST_MEMORY);
    wr_meta_fail_nth(0);
    assert_status(weir_history_read(0, NULL, 0, &count, NULL), WEIR_ERR_NOT_SUPPORTED);
    assert_ok(weir_history_start(100, 16));
}

/* All but the page that this thread has. */
static void stopping_gives_the_memory_back(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc(512)));
    const uint64_t before = wr_meta_live();
    assert_ok(weir_history_start(100000, 0));
    for (int i = 0; i < 30000; i++) assert_ok(weir_free(alloc(512)));
    assert_true(wr_meta_live() > before + 100);
    assert_ok(weir_history_stop());
    assert_in_range(wr_meta_live(), before, before + 2);
}

static void labels_outlast_a_stop(void **state)
{
    (void)state;
    size_t length = 0;
    weir_event events[8];
    assert_ok(weir_history_label_push("outer"));
    assert_ok(weir_free(alloc(512)));
    assert_ok(weir_history_stop());
    assert_ok(weir_history_start(100, 0));
    assert_ok(weir_free(alloc(512)));
    assert_int_equal(read_events(0, events, 8), 4);
    assert_int_equal(events[0].kind, WEIR_EVENT_LABEL);
    assert_memory_equal(weir_event_label(&events[0], &length), "outer", 5);
    assert_int_equal(length, 5);
    assert_ok(weir_history_label_pop());
}

static void what_plans_are_made_of_cannot_be_stopped(void **state)
{
    (void)state;
    assert_ok(weir_close());
    open_host((weir_settings){ .host_memory = 64 * MIB, .history = 100, .plan = "auto" });
    alloc(512);
    assert_status(weir_history_stop(), WEIR_ERR_BUSY);
    assert_non_null(strstr(weir_error_text(), "plan=auto"));
    weir_event events[100];
    for (int i = 0; i < 40; i++) assert_ok(weir_free(alloc(512)));
    assert_ok(weir_history_start(1, 0)); /* nor cut short */
    assert_int_equal(read_events(0, events, 100), 100);
}

static void stopping_does_not_open_the_library(void **state)
{
    (void)state;
    assert_ok(weir_history_stop());
    open_host((weir_settings){ .host_memory = 64 * MIB });
}

static void a_history_of_no_events_or_too_many_is_refused(void **state)
{
    (void)state;
    size_t count = 0;
    assert_status(weir_history_start(0, 0), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_history_start(1000000001, 0), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "1000000000"));
    assert_status(weir_history_start(1, 65), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "65 frames"));
    alloc(512);
    assert_status(weir_history_read(0, NULL, 0, &count, NULL), WEIR_ERR_NOT_SUPPORTED);
}

/* ---- saving ------------------------------------------------------------------------------------------------------ */

static size_t load(weir_trace_header *header, weir_event *events, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(header, sizeof *header, 1, file), 1);
    assert_true(header->events <= capacity);
    const size_t count = fread(events, sizeof *events, header->events, file);
    fclose(file);
    return count;
}

static void a_saved_history_reads_back_the_same(void **state)
{
    (void)state;
    weir_event live[100], saved[100];
    weir_trace_header header;
    for (int i = 1; i < 10; i++) assert_ok(weir_free(alloc((size_t)i * 1000)));
    assert_ok(weir_history_save(path));
    size_t count = read_events(0, live, 100);
    assert_int_equal(load(&header, saved, 100), count);
    assert_memory_equal(saved, live, count * sizeof live[0]);
    assert_memory_equal(header.magic, WEIR_TRACE_MAGIC, 8);
    assert_int_equal(header.version_major, WEIR_TRACE_VERSION_MAJOR);
    assert_int_equal(header.header_bytes, 64);
    assert_int_equal(header.event_bytes, 56);
    assert_int_equal(header.events, count);
    assert_int_equal(header.dropped, 0);
    assert_int_equal(header.flags, 0);
}

static void devices_are_merged_by_time(void **state)
{
    (void)state;
    weir_event events[100];
    weir_trace_header header;
    weir_stream far = default_stream(1), near_stream = default_stream(0);
    for (int i = 0; i < 8; i++) alloc_on(512, i % 2 ? far : near_stream);
    assert_ok(weir_history_save(path));
    size_t count = load(&header, events, 100);
    assert_int_equal(count, 12);
    int of_device_1 = 0;
    for (size_t i = 0; i < count; i++) {
        assert_true(i == 0 || events[i].time_ns >= events[i - 1].time_ns);
        of_device_1 += events[i].device == 1;
    }
    assert_int_equal(of_device_1, 6);
}

static void the_file_counts_dropped_events(void **state)
{
    (void)state;
    weir_event events[200];
    weir_trace_header header;
    for (int i = 0; i < 60; i++) assert_ok(weir_free(alloc(512)));
    assert_ok(weir_history_save(path));
    assert_int_equal(load(&header, events, 200), 100);
    assert_int_equal(header.dropped, 82);
}

static void an_existing_file_is_replaced_whole(void **state)
{
    (void)state;
    weir_event events[8];
    weir_trace_header header;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i < 100000; i++) fputc('x', file);
    fclose(file);
    alloc(512);
    assert_ok(weir_history_save(path));
    assert_int_equal(load(&header, events, 8), 3);
}

/* With "." and "..". */
static int count_in(const char *directory)
{
    int entries = 0;
    DIR *listing = opendir(directory);
    assert_non_null(listing);
    while (readdir(listing)) entries++;
    closedir(listing);
    return entries;
}

static int count_entries(void)
{
    return count_in(folder);
}

static int count_open(void)
{
    return count_in("/proc/self/fd");
}

static void nothing_is_left_beside_the_file(void **state)
{
    (void)state;
    alloc(512);
    assert_ok(weir_history_save(path));
    assert_int_equal(count_entries(), 3);
}

static void a_file_that_is_replaced_keeps_its_mode(void **state)
{
    (void)state;
    struct stat now;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(chmod(path, 0600), 0);
    assert_ok(weir_history_save(path));
    assert_int_equal(stat(path, &now), 0);
    assert_int_equal(now.st_mode & 0777, 0600);
    assert_true(now.st_size > 0);
}

static void a_link_stays_and_its_target_is_written(void **state)
{
    (void)state;
    char link[sizeof path + 8];
    struct stat now;
    weir_event events[8];
    weir_trace_header header;
    alloc(512);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fclose(file);
    snprintf(link, sizeof link, "%s.link", path);
    assert_int_equal(symlink(path, link), 0);
    assert_ok(weir_history_save(link));
    assert_int_equal(lstat(link, &now), 0);
    assert_true(S_ISLNK(now.st_mode));
    assert_int_equal(unlink(link), 0);
    assert_int_equal(load(&header, events, 8), 3);
}

static void a_snapshot_that_fails_leaves_nothing_beside_the_file(void **state)
{
    (void)state;
    alloc(512);
    assert_int_equal(unlink(path) == 0 || errno == ENOENT, 1);
    const int open_before = count_open();
    weir_status status = WEIR_ERR_OUT_OF_HOST_MEMORY;
    for (uint64_t nth = 1; status != WEIR_OK; nth++) {
        wr_meta_fail_nth(nth);
        status = weir_snapshot_save(path, NULL);
        wr_meta_fail_nth(0);
        if (status != WEIR_OK) assert_int_equal(count_entries(), 2);
    }
    assert_int_equal(count_entries(), 3);
    assert_int_equal(count_open(), open_before);
    assert_int_equal(unlink(path), 0);
}

/* A file that cannot be written whole, as on a full disk, leaves the old file and nothing else. */
static void behind_links_a_file_is_replaced_whole_or_not_at_all(void **state)
{
    (void)state;
    char first[sizeof path + 8], second[sizeof path + 8], text[8] = { 0 };
    weir_event events[8];
    weir_trace_header header;
    struct rlimit old, none;
    alloc(512);
    snprintf(first, sizeof first, "%s.first", path);
    snprintf(second, sizeof second, "%s.second", path);
    assert_int_equal(unlink(path) == 0 || errno == ENOENT, 1);
    assert_int_equal(symlink(strrchr(second, '/') + 1, first) | symlink(path, second), 0);
    assert_ok(weir_history_save(first));
    assert_int_equal(load(&header, events, 8), 3);

    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs("old", file) >= 0);
    fclose(file);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    none = (struct rlimit){ .rlim_cur = 16, .rlim_max = old.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    const weir_status status = weir_history_save(first);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_status(status, WEIR_ERR_IO);
    assert_int_equal(unlink(first) | unlink(second), 0);
    file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof text, file), 3);
    fclose(file);
    assert_string_equal(text, "old");
    nothing_is_left_beside_the_file(state);
}

/* A reader with the file open sees what is written, which it would not if another file took its name. */
static void a_file_named_by_its_descriptor_is_not_replaced(void **state)
{
    (void)state;
    char name[32];
    weir_event events[8];
    weir_trace_header header;
    struct stat before, now;
    alloc(512);
    const int descriptor = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(descriptor >= 0);
    assert_int_equal(fstat(descriptor, &before), 0);
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    assert_ok(weir_history_save(name));
    assert_int_equal(stat(path, &now), 0);
    assert_int_equal(now.st_ino, before.st_ino);
    close(descriptor);
    assert_int_equal(load(&header, events, 8), 3);
}

/* As where stdout is a file: what the program writes itself, before and after, stays. */
static void a_trace_is_written_where_the_descriptor_named_is(void **state)
{
    (void)state;
    char name[32], text[8] = { 0 };
    struct stat alone;
    alloc(512);
    assert_ok(weir_history_save(path));
    assert_int_equal(stat(path, &alone), 0);
    const int descriptor = open(path, O_RDWR | O_TRUNC, 0600);
    assert_true(descriptor >= 0);
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    assert_int_equal(write(descriptor, "early", 5), 5);
    assert_ok(weir_history_save(name));
    assert_int_equal(write(descriptor, "late", 4), 4);
    assert_int_equal(lseek(descriptor, 0, SEEK_END), alone.st_size + 9);
    assert_int_equal(pread(descriptor, text, 5, 0), 5);
    assert_string_equal(text, "early");
    assert_int_equal(pread(descriptor, text, 5, alone.st_size + 5), 4);
    assert_memory_equal(text, "late", 4);
    close(descriptor);
    assert_int_equal(unlink(path), 0);
}

static void a_pipe_is_written_and_not_replaced(void **state)
{
    (void)state;
    struct stat now;
    unsigned char first[8] = { 0 };
    assert_int_equal(unlink(path) == 0 || errno == ENOENT, 1);
    assert_int_equal(mkfifo(path, 0600), 0);
    const int reader = open(path, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    alloc(512);
    assert_ok(weir_history_save(path));
    assert_int_equal(lstat(path, &now), 0);
    assert_true(S_ISFIFO(now.st_mode));
    assert_int_equal(read(reader, first, sizeof first), sizeof first);
    close(reader);
    assert_int_equal(unlink(path), 0);
}

static void a_path_that_cannot_be_written_is_refused_with_the_reason(void **state)
{
    (void)state;
    char longer[5000];
    alloc(512);
    assert_status(weir_history_save("/nonexistent/folder/trace"), WEIR_ERR_IO);
    assert_non_null(strstr(weir_error_text(), "No such file"));
    assert_status(weir_history_save(folder), WEIR_ERR_IO); /* a folder cannot be replaced */
    memset(longer, 'a', sizeof longer);
    longer[sizeof longer - 1] = 0;
    assert_status(weir_history_save(longer), WEIR_ERR_IO);
    assert_status(weir_history_save(NULL), WEIR_ERR_INVALID_ARGUMENT);
}

static int open_vast(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 64 * MIB, .history = 1000000000 });
    return 0;
}

/* A ring of 52 GiB costs what is in it, and so does saving it. */
static void saving_takes_memory_for_recorded_events_only(void **state)
{
    (void)state;
    struct rlimit old, low;
    size_t pages = 0;
    alloc(512);
    FILE *statm = fopen("/proc/self/statm", "re");
    assert_non_null(statm);
    assert_int_equal(fscanf(statm, "%zu", &pages), 1);
    fclose(statm);
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    low = old;
    low.rlim_cur = pages * (size_t)sysconf(_SC_PAGESIZE) + 1024 * MIB;
    assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
    weir_status saved = weir_history_save(path);
    assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
    assert_int_equal(saved, WEIR_OK);
    assert_int_equal(unlink(path), 0);
}

/* What another thread writes to an error output that is closed must not land in the file. */
static void a_file_takes_no_standard_descriptor(void **state)
{
    (void)state;
    wr_output *out = NULL;
    const int error_output = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    close(STDERR_FILENO);
    const weir_status opened = wr_output_open("test", path, &out);
    const bool taken = fcntl(STDERR_FILENO, F_GETFD) >= 0;
    const weir_status closed = opened == WEIR_OK ? wr_output_close(out, "test", path) : opened;
    dup2(error_output, STDERR_FILENO);
    close(error_output);
    assert_ok(opened);
    assert_ok(closed);
    assert_false(taken);
    assert_int_equal(unlink(path), 0);
}

#define RECORDING(test) cmocka_unit_test_setup_teardown(test, open_recording, close_host)
#define SILENT(test) cmocka_unit_test_setup_teardown(test, open_two_small_hosts, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(stopping_does_not_open_the_library, close_host), /* which nothing has opened yet */
        cmocka_unit_test_setup_teardown(the_life_of_a_block_is_recorded, open_recording_segments, close_host),
        RECORDING(old_events_are_dropped_and_counted),
        RECORDING(clearing_forgets_one_device),
        RECORDING(events_under_a_label_follow_it),
        RECORDING(invalid_labels_are_refused),
        cmocka_unit_test_setup_teardown(a_label_is_repeated_in_the_history, open_recording_much, close_host),
        cmocka_unit_test_setup_teardown(a_block_that_was_parked_is_recorded_like_any_other, open_recording_much,
                                        close_host),
        RECORDING(reading_needs_a_buffer),
        cmocka_unit_test_setup_teardown(saving_takes_memory_for_recorded_events_only, open_vast, close_host),
        cmocka_unit_test(a_file_takes_no_standard_descriptor),
        SILENT(without_recording_there_is_nothing_to_read),
        SILENT(recording_can_be_started_at_any_time),
        SILENT(blocks_parked_before_it_was_started_are_recorded_like_any_other),
        SILENT(devices_that_are_opened_later_record_too),
        SILENT(starting_again_changes_how_many_events_are_kept),
        RECORDING(stopping_forgets_what_was_recorded),
        SILENT(keeping_fewer_events_frees_their_memory),
        SILENT(without_memory_for_stacks_recording_does_not_start),
        SILENT(stopping_gives_the_memory_back),
        RECORDING(labels_outlast_a_stop),
        SILENT(what_plans_are_made_of_cannot_be_stopped),
        SILENT(a_history_of_no_events_or_too_many_is_refused),
        RECORDING(a_saved_history_reads_back_the_same),
        RECORDING(devices_are_merged_by_time),
        RECORDING(the_file_counts_dropped_events),
        RECORDING(an_existing_file_is_replaced_whole),
        RECORDING(nothing_is_left_beside_the_file),
        RECORDING(a_snapshot_that_fails_leaves_nothing_beside_the_file),
        RECORDING(a_file_that_is_replaced_keeps_its_mode),
        RECORDING(a_link_stays_and_its_target_is_written),
        RECORDING(behind_links_a_file_is_replaced_whole_or_not_at_all),
        RECORDING(a_file_named_by_its_descriptor_is_not_replaced),
        RECORDING(a_trace_is_written_where_the_descriptor_named_is),
        RECORDING(a_pipe_is_written_and_not_replaced),
        RECORDING(a_path_that_cannot_be_written_is_refused_with_the_reason),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
