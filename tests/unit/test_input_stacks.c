/*
 * Recorded events with the stacks of their calls (option history_stacks), from the program to the readers of tools/.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/meta.h"
#include "host_support.h"
#include "input_support.h"
#include "python_support.h"
#include "weir/observe.h"

#include <stdio.h>
#include <unistd.h>

static const char path[] = "stacks";

static void open_with(uint64_t history, uint64_t frames, uint64_t kept)
{
    open_host((weir_settings){
        .host_memory = 256 * MIB, .history = history, .history_stacks = frames, .history_stacks_kept = kept });
}

static WR_NOINLINE void *one_site(size_t bytes)
{
    void *block = NULL;
    assert_ok(weir_alloc(bytes, &block));
    return block;
}

static WR_NOINLINE void *other_site(size_t bytes)
{
    void *block = NULL;
    assert_ok(weir_alloc_on(bytes, default_stream(0), &block));
    return block;
}

static void read_back(trace *t)
{
    trace_error error;
    if (!trace_read(path, t, &error, NULL, NULL)) fail_msg("%s", error.text);
    assert_int_equal(unlink(path), 0);
}

static void save_and_read(trace *t)
{
    assert_ok(weir_history_save(path));
    read_back(t);
}

static void snap_and_read(trace *t, weir_snapshot_format format)
{
    weir_snapshot_options o = WEIR_SNAPSHOT_OPTIONS_INIT;
    o.format = format;
    assert_ok(weir_snapshot_save(path, &o));
    read_back(t);
}

/* The stack of the nth event of a kind, counted from 0. */
static uint32_t stack_of(const trace *t, weir_event_kind kind, int nth)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->events[i].kind == kind && nth-- == 0) return t->stacks.of ? t->stacks.of[i] : 0;
    fail_msg("there are not so many events of kind %d", (int)kind);
    return 0;
}

static const char *innermost(const trace *t, uint32_t stack)
{
    assert_in_range(stack, 1, t->stacks.count - 1);
    assert_true(t->stacks.first[stack] < t->stacks.first[stack + 1]);
    return t->stacks.frames[t->stacks.items[t->stacks.first[stack]]];
}

static size_t depth(const trace *t, uint32_t stack)
{
    return t->stacks.first[stack + 1] - t->stacks.first[stack];
}

/* The allocations are a miss, a hit in a fresh segment, and a hit on a parked block. No frame of weir's own is in their
 * stacks. */
static void each_call_of_the_program_is_one_stack(void **state)
{
    (void)state;
    trace t;
    open_with(1000, 16, 100);
    for (volatile int i = 0; i < 3; i++) assert_ok(weir_free(one_site(1000))); /* not unrolled: one place */
    assert_ok(weir_free(other_site(1000)));
    save_and_read(&t);
    const uint32_t one = stack_of(&t, WEIR_EVENT_ALLOC, 0), freed = stack_of(&t, WEIR_EVENT_FREE_REQUESTED, 0);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(stack_of(&t, WEIR_EVENT_ALLOC, i), one);
        assert_int_equal(stack_of(&t, WEIR_EVENT_FREE_REQUESTED, i), freed);
        assert_int_equal(stack_of(&t, WEIR_EVENT_FREE_COMPLETED, i), freed);
    }
    assert_int_equal(stack_of(&t, WEIR_EVENT_SEGMENT_MAP, 0), one); /* the segment that the call needed */
    assert_int_equal(stack_of(&t, WEIR_EVENT_DECISION, 0), one);
    const uint32_t other = stack_of(&t, WEIR_EVENT_ALLOC, 3);
    assert_int_not_equal(other, one);
    assert_string_not_equal(innermost(&t, one), innermost(&t, other)); /* of the program, not of weir, */
    assert_int_equal(depth(&t, other), depth(&t, one));                /* also when nothing is inlined */
    assert_int_not_equal(freed, one);
    assert_non_null(strstr(innermost(&t, one), "unit_input_stacks"));
    assert_int_equal(t.stacks.count, 1 + 4); /* two frees, at two places */
    trace_release(&t);
}

static WR_NOINLINE void *far_site(size_t bytes)
{
    void *block = NULL;
    assert_ok(weir_alloc_on(bytes, default_stream(1), &block));
    return block;
}

/* In the file the events of the two devices take turns. */
static void events_of_several_devices_keep_their_stacks(void **state)
{
    (void)state;
    enum { ROUNDS = 20 };
    trace t;
    uint32_t stacks[2][2] = { { 0 } };
    int found[2][2] = { { 0 } };
    open_host((weir_settings){ .host_devices = 2,
                               .host_memory = 256 * MIB,
                               .history = 1000,
                               .history_stacks = 16,
                               .history_stacks_kept = 100 });
    for (volatile int i = 0; i < ROUNDS; i++) {
        assert_ok(weir_free(one_site(1000)));
        assert_ok(weir_free(far_site(1000)));
    }
    save_and_read(&t);
    for (size_t i = 0; i < t.count; i++) {
        const weir_event *e = &t.events[i];
        const int freed = e->kind == WEIR_EVENT_FREE_REQUESTED;
        if (!freed && e->kind != WEIR_EVENT_ALLOC) continue;
        if (found[e->device][freed]++ == 0) stacks[e->device][freed] = t.stacks.of[i];
        assert_int_equal(t.stacks.of[i], stacks[e->device][freed]);
    }
    for (int device = 0; device < 2; device++) {
        assert_int_equal(found[device][0], ROUNDS);
        assert_int_equal(found[device][1], ROUNDS);
        assert_int_not_equal(stacks[device][0], stacks[device][1]);
    }
    assert_int_not_equal(stacks[0][0], stacks[1][0]);
    trace_release(&t);
}

static void calls_other_than_allocations_have_stacks(void **state)
{
    (void)state;
    trace t;
    open_with(1000, 16, 100);
    weir_mempool pool;
    weir_mempool_options o = WEIR_MEMPOOL_OPTIONS_INIT;
    o.device = 0;
    assert_ok(weir_mempool_create(&o, &pool));
    void *block = NULL;
    assert_status(weir_alloc(1000 * MIB, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_ok(weir_alloc_from(pool, 1000, default_stream(0), &block));
    assert_ok(weir_record_stream(block, new_stream(0)));
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(pool));
    assert_ok(weir_empty_cache(0));
    save_and_read(&t);
    static const weir_event_kind kinds[] = { WEIR_EVENT_OOM, WEIR_EVENT_ALLOC, WEIR_EVENT_RECORD_STREAM,
                                             WEIR_EVENT_FREE_REQUESTED, WEIR_EVENT_SEGMENT_UNMAP };
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < i; k++) assert_int_not_equal(stack_of(&t, kinds[i], 0), stack_of(&t, kinds[k], 0));
    for (int i = 0; i < 5; i++) assert_non_null(strstr(innermost(&t, stack_of(&t, kinds[i], 0)), "unit_input_stacks"));
    trace_release(&t);
}

/* The stacks of the allocation and of the free are known anyway. */
static void the_stack_of_an_unrecorded_use_is_that_of_the_use(void **state)
{
    (void)state;
    trace t;
    char host[64];
    open_host((weir_settings){ .host_memory = 256 * MIB, .history = 1000, .debug = "streams" });
    weir_stream other = new_stream(0);
    void *block = one_site(1000);
    assert_ok(weir_copy(host, block, sizeof host, other));
    assert_ok(weir_free(block));
    snap_and_read(&t, WEIR_SNAPSHOT_PICKLE); /* a snapshot has no such event */
    for (size_t i = 0; i < t.count; i++) assert_in_range(t.events[i].kind, WEIR_EVENT_ALLOC, WEIR_EVENT_SNAPSHOT);
    trace_release(&t);
    save_and_read(&t);
    const uint32_t used = stack_of(&t, WEIR_EVENT_UNRECORDED_USE, 0);
    assert_int_not_equal(used, stack_of(&t, WEIR_EVENT_ALLOC, 0));
    assert_int_not_equal(used, stack_of(&t, WEIR_EVENT_FREE_REQUESTED, 0));
    assert_non_null(strstr(innermost(&t, used), "unit_input_stacks"));
    trace_release(&t);
}

static void *spare;
static bool free_the_spare(void *user, int device, size_t needed)
{
    (void)user, (void)device, (void)needed;
    const bool helped = spare != NULL;
    if (spare) (void)!weir_free(spare);
    spare = NULL;
    return helped;
}

/* One call runs within another: each event has the stack of the call that it happened in. */
static void a_callback_that_frees_has_a_stack_of_its_own(void **state)
{
    (void)state;
    trace t;
    open_with(1000, 16, 100);
    spare = other_site(200 * MIB);
    assert_ok(weir_reclaim_add(free_the_spare, NULL));
    one_site(100 * MIB);
    save_and_read(&t);
    const uint32_t outer = stack_of(&t, WEIR_EVENT_ALLOC, 1), inner = stack_of(&t, WEIR_EVENT_FREE_REQUESTED, 0);
    assert_int_equal(stack_of(&t, WEIR_EVENT_DECISION, 1), outer);
    assert_int_not_equal(inner, outer);
    assert_int_not_equal(inner, 0);
    trace_release(&t);
}

static void without_the_option_no_event_has_a_stack(void **state)
{
    (void)state;
    trace t;
    open_with(1000, 0, 0);
    one_site(1000);
    assert_ok(weir_history_save(path));
    FILE *file = fopen(path, "rb");
    weir_trace_header header;
    assert_non_null(file);
    assert_int_equal(fread(&header, sizeof header, 1, file), 1);
    fclose(file);
    assert_int_equal(header.event_bytes, sizeof(weir_event));
    assert_int_equal(header.stacks + header.frames, 0);
    read_back(&t);
    assert_int_equal(t.stacks.count, 0);
    trace_release(&t);
    snap_and_read(&t, WEIR_SNAPSHOT_PICKLE);
    assert_int_equal(t.stacks.count, 0);
    trace_release(&t);
}

static void a_full_table_is_reported_in_the_file(void **state)
{
    (void)state;
    trace t;
    open_with(1000, 16, 1);
    void *first = one_site(1000);
    assert_ok(weir_free(first));
    other_site(1000);
    save_and_read(&t);
    assert_int_not_equal(stack_of(&t, WEIR_EVENT_ALLOC, 0), 0);
    assert_int_equal(stack_of(&t, WEIR_EVENT_ALLOC, 1), 0);
    assert_int_equal(t.stacks.count, 2);
    assert_int_equal(t.stacks.lost, 2); /* those of the free and of the other site */
    trace_release(&t);
}

/* Also of calls that were hits before; what was recorded without a stack stays so. */
static void stacks_can_be_switched_on_and_off(void **state)
{
    (void)state;
    trace t;
    open_with(1000, 0, 0);
    for (volatile int i = 0; i < 3; i++) assert_ok(weir_free(one_site(1000)));
    assert_ok(weir_history_start(1000, 16));
    for (volatile int i = 0; i < 2; i++) assert_ok(weir_free(one_site(1000)));
    assert_ok(weir_free(other_site(1000)));
    assert_ok(weir_history_start(1000, 0));
    for (volatile int i = 0; i < 2; i++) assert_ok(weir_free(one_site(1000)));
    save_and_read(&t);
    const uint32_t one = stack_of(&t, WEIR_EVENT_ALLOC, 3), other = stack_of(&t, WEIR_EVENT_ALLOC, 5);
    assert_int_equal(stack_of(&t, WEIR_EVENT_ALLOC, 4), one);
    assert_int_not_equal(other, one);
    assert_non_null(strstr(innermost(&t, one), "unit_input_stacks"));
    assert_string_not_equal(innermost(&t, one), innermost(&t, other)); /* of the program, not of weir */
    assert_int_equal(depth(&t, other), depth(&t, one));
    assert_int_not_equal(stack_of(&t, WEIR_EVENT_FREE_REQUESTED, 3), 0);
    static const int without[] = { 0, 1, 2, 6, 7 };
    for (int i = 0; i < 5; i++) {
        assert_int_equal(stack_of(&t, WEIR_EVENT_ALLOC, without[i]), 0);
        assert_int_equal(stack_of(&t, WEIR_EVENT_FREE_REQUESTED, without[i]), 0);
    }
    trace_release(&t);
}

static void stopping_forgets_the_stacks_of_blocks(void **state)
{
    (void)state;
    trace t;
    open_with(1000, 16, 100);
    void *kept = one_site(1000);
    assert_ok(weir_free(other_site(5000)));
    assert_ok(weir_history_stop());
    other_site(5000); /* in the place of the other */
    snap_and_read(&t, WEIR_SNAPSHOT_TRACE);
    assert_int_equal(t.stacks.count, 0);
    trace_release(&t);
    assert_ok(weir_history_start(1000, 16));
    assert_ok(weir_free(kept));
    save_and_read(&t);
    assert_int_not_equal(stack_of(&t, WEIR_EVENT_FREE_REQUESTED, 0), 0);
    trace_release(&t);
}

/* ---- a source of the program's ----------------------------------------------------------------------------------- */

static bool speaking, within;
static int asked;
static const char file[] = "train.py", step[] = "step";
static const weir_frame odd[2] = {
    { .file = "caf\xE9.py", .function = "st\xFFp", .line = 7 }
}; /* and one that says nothing */
static bool oddly;

static size_t take_places(void *user, const void **frames, size_t capacity)
{
    assert_ptr_equal(user, &speaking);
    asked++;
    if (!speaking || within || capacity < 2) return 0;
    within = true;
    assert_ok(weir_free(other_site(100))); /* as a language that collects its garbage may */
    within = false;
    frames[0] = oddly ? (const void *)&odd[0] : &file[3];
    frames[1] = oddly ? (const void *)&odd[1] : &file[7];
    return 2;
}

/* The place in `file` is the line. */
static bool describe_place(void *user, const void *frame, weir_frame *out)
{
    assert_ptr_equal(user, &speaking);
    if (frame == &odd[0] || frame == &odd[1]) {
        *out = *(const weir_frame *)frame;
        return true;
    }
    if ((const char *)frame < file || (const char *)frame >= file + sizeof file) return false;
    *out = (weir_frame){ .file = file, .function = step, .line = (uint64_t)((const char *)frame - file) };
    return true;
}

static weir_stack_source places = { sizeof places, take_places, describe_place, &speaking };

static void closing_leaves_no_stacks(void **state)
{
    (void)state;
    uint64_t closed[3];
    for (int i = 0; i < 3; i++) {
        open_with(1000, 16, 100);
        assert_ok(weir_free(one_site(1000)));
        assert_ok(weir_close());
        closed[i] = wr_meta_live();
    }
    assert_int_equal(closed[2], closed[0]);
    open_with(1000, 16, 100);
}

static void stacks_come_from_the_programs_source_where_it_has_any(void **state)
{
    (void)state;
    trace t;
    weir_stack_source another = places;
    assert_ok(weir_history_stacks_from(&places)); /* before the library is open */
    assert_ok(weir_history_stacks_from(&places));
    assert_status(weir_history_stacks_from(&another), WEIR_ERR_BUSY);
    open_with(1000, 16, 100);
    speaking = true;
    assert_ok(weir_free(one_site(1000)));
    speaking = false;
    one_site(2000);
    for (int form = 0; form < 2; form++) {
        if (form == 0)
            save_and_read(&t);
        else
            snap_and_read(&t, WEIR_SNAPSHOT_PICKLE);
        const uint32_t own = stack_of(&t, WEIR_EVENT_ALLOC, 1), native = stack_of(&t, WEIR_EVENT_ALLOC, 3);
        assert_string_equal(innermost(&t, own), "train.py:3:step");
        assert_string_equal(t.stacks.frames[t.stacks.items[t.stacks.first[own] + 1]], "train.py:7:step");
        assert_int_equal(depth(&t, own), 2);
        assert_non_null(strstr(innermost(&t, native), "unit_input_stacks"));
        const uint32_t within = stack_of(&t, WEIR_EVENT_ALLOC, 0); /* the source's own call */
        assert_non_null(strstr(innermost(&t, within), "unit_input_stacks"));
        trace_release(&t);
    }
}

/* Names that are no UTF-8 are longer as written, since each wrong byte becomes a character of three. */
static void whatever_the_source_says_of_a_place_files_stay_readable(void **state)
{
    (void)state;
    trace t;
    assert_ok(weir_history_stacks_from(&places));
    open_with(1000, 16, 100);
    speaking = oddly = true;
    one_site(1000);
    speaking = oddly = false;
    for (int form = 0; form < 2; form++) {
        if (form == 0)
            save_and_read(&t);
        else
            snap_and_read(&t, WEIR_SNAPSHOT_PICKLE);
        const uint32_t own = stack_of(&t, WEIR_EVENT_ALLOC, 1);
        assert_string_equal(innermost(&t, own), "caf\xEF\xBF\xBD.py:7:st\xEF\xBF\xBDp");
        assert_string_equal(t.stacks.frames[t.stacks.items[t.stacks.first[own] + 1]], "??");
        assert_int_equal(depth(&t, own), 2);
        trace_release(&t);
    }
}

static void a_stack_of_the_source_without_room_is_lost_once(void **state)
{
    (void)state;
    trace t;
    assert_ok(weir_history_stacks_from(&places));
    open_with(1000, 16, 1);
    one_site(500); /* has the room */
    speaking = true;
    one_site(1000);
    speaking = false;
    save_and_read(&t);
    assert_int_equal(stack_of(&t, WEIR_EVENT_ALLOC, 2), 0);
    assert_int_equal(t.stacks.lost, 3); /* with the two of the source's own calls */
    trace_release(&t);
}

static void without_anybody_who_wants_stacks_none_are_taken(void **state)
{
    (void)state;
    trace t;
    assert_ok(weir_history_stacks_from(&places));
    open_host((weir_settings){ .host_memory = 256 * MIB, .debug = "leaks" });
    assert_ok(weir_history_start(1000, 16));
    assert_ok(weir_history_start(1000, 0));
    asked = 0;
    speaking = true;
    assert_ok(weir_free(one_site(1000)));
    speaking = false;
    assert_int_equal(asked, 0);
    save_and_read(&t);
    assert_int_equal(t.stacks.count, 0);
    trace_release(&t);
}

static void messages_name_places_of_the_source(void **state)
{
    (void)state;
    assert_ok(weir_history_stacks_from(&places));
    open_host((weir_settings){ .host_memory = 256 * MIB, .debug = "stacks" });
    speaking = true;
    void *block = one_site(1000);
    assert_ok(weir_free(block));
    speaking = false;
    assert_status(weir_free(block), WEIR_ERR_DOUBLE_FREE);
    assert_non_null(strstr(weir_error_text(), "step (train.py:3), step (train.py:7)"));
}

static void a_source_without_functions_is_refused(void **state)
{
    (void)state;
    weir_stack_source s = WEIR_STACK_SOURCE_INIT;
    assert_status(weir_history_stacks_from(NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_history_stacks_from(&s), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "take is NULL"));
    s.take = take_places;
    assert_status(weir_history_stacks_from(&s), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "describe is NULL"));
}

/* ---- refused ----------------------------------------------------------------------------------------------------- */

static void stacks_need_events(void **state)
{
    (void)state;
    weir_settings s = WEIR_SETTINGS_INIT;
    s.backend = "host";
    s.history_stacks = 8;
    assert_status(weir_open(&s), WEIR_ERR_OPTION);
    assert_non_null(strstr(weir_error_text(), "WEIR_HISTORY"));
    open_with(1, 1, 1); /* the library can be opened all the same */
}

/* ---- snapshots --------------------------------------------------------------------------------------------------- */

/* Stacks belong to blocks: the events that allocated them are long gone. */
static void a_snapshot_has_the_stacks_of_live_blocks(void **state)
{
    (void)state;
    trace t;
    open_with(10, 16, 0);
    void *one = one_site(1000), *other = other_site(1000);
    for (int i = 0; i < 2000; i++) assert_ok(weir_free(one_site(5000)));
    snap_and_read(&t, WEIR_SNAPSHOT_TRACE);
    uint32_t stacks[2] = { 0 };
    for (size_t i = 0; i < t.count; i++)
        if (t.events[i].kind == WEIR_EVENT_ALLOC && t.events[i].address == (uintptr_t)one) stacks[0] = t.stacks.of[i];
    for (size_t i = 0; i < t.count; i++)
        if (t.events[i].kind == WEIR_EVENT_ALLOC && t.events[i].address == (uintptr_t)other) stacks[1] = t.stacks.of[i];
    assert_int_not_equal(stacks[0], stacks[1]);
    for (int i = 0; i < 2; i++) assert_non_null(strstr(innermost(&t, stacks[i]), "unit_input_stacks"));
    trace_release(&t);
}

static void snapshots_and_traces_name_frames_alike(void **state)
{
    (void)state;
    trace saved, t;
    open_with(1000, 16, 100);
    one_site(1000);
    assert_ok(weir_free(other_site(2000)));
    save_and_read(&saved);
    snap_and_read(&t, WEIR_SNAPSHOT_PICKLE);
    for (int i = 0; i < 2; i++) {
        const uint32_t a = stack_of(&saved, WEIR_EVENT_ALLOC, i), b = stack_of(&t, WEIR_EVENT_ALLOC, i);
        assert_string_equal(innermost(&saved, a), innermost(&t, b));
        assert_int_equal(saved.stacks.first[a + 1] - saved.stacks.first[a], t.stacks.first[b + 1] - t.stacks.first[b]);
    }
    assert_int_equal(stack_of(&t, WEIR_EVENT_SNAPSHOT, 0), 0);
    trace_release(&saved);
    trace_release(&t);
}

static void events_of_one_pool_keep_their_stacks(void **state)
{
    (void)state;
    trace all, part;
    open_with(1000, 16, 100);
    weir_mempool pool;
    weir_mempool_options in_pool = WEIR_MEMPOOL_OPTIONS_INIT;
    weir_snapshot_options o = WEIR_SNAPSHOT_OPTIONS_INIT;
    in_pool.device = 0;
    assert_ok(weir_mempool_create(&in_pool, &pool));
    one_site(1000);
    assert_ok(weir_mempool_enter(pool));
    other_site(1000);
    assert_ok(weir_mempool_leave(pool));
    snap_and_read(&all, WEIR_SNAPSHOT_PICKLE);
    o.device = 0;
    o.pool = &pool;
    assert_ok(weir_snapshot_save(path, &o));
    read_back(&part);
    const uint32_t other = stack_of(&all, WEIR_EVENT_ALLOC, 1), kept = stack_of(&part, WEIR_EVENT_ALLOC, 0);
    assert_int_not_equal(other, stack_of(&all, WEIR_EVENT_ALLOC, 0));
    assert_string_equal(innermost(&part, kept), innermost(&all, other));
    assert_int_equal(depth(&part, kept), depth(&all, other));
    trace_release(&all);
    trace_release(&part);
}

/* Each allocation that writing makes fails in turn. */
static void lack_of_memory_is_reported(void **state)
{
    (void)state;
    open_with(1000, 16, 100);
    one_site(1000);
    const uint64_t live = wr_meta_live();
    for (int form = 0; form < 3; form++) {
        weir_snapshot_options o = WEIR_SNAPSHOT_OPTIONS_INIT;
        o.format = form == 1 ? WEIR_SNAPSHOT_TRACE : WEIR_SNAPSHOT_PICKLE;
        weir_status status = WEIR_ERR_OUT_OF_HOST_MEMORY;
        int failures = -1;
        for (uint64_t nth = 1; status != WEIR_OK; nth++, failures++) {
            wr_meta_fail_nth(nth);
            status = form == 2 ? weir_history_save(path) : weir_snapshot_save(path, &o);
            wr_meta_fail_nth(0);
            assert_true(status == WEIR_OK || status == WEIR_ERR_OUT_OF_HOST_MEMORY);
            assert_int_equal(wr_meta_live(), live);
        }
        assert_in_range(failures, 5, 20);
        assert_int_equal(unlink(path), 0);
    }
}

static void python_reads_the_frames(void **state)
{
    (void)state;
    open_with(1000, 16, 100);
    need_python();
    void *kept = one_site(1000);
    for (volatile int i = 0; i < 3; i++) assert_ok(weir_free(one_site(2000)));
    assert_ok(weir_snapshot_save(path, NULL));
    assert_int_equal(system("python3 " WEIR_SOURCE_DIR "/tests/torch_snapshot.py --frames unit_input_stacks stacks"),
                     0);
    assert_ok(weir_free(kept));
    assert_int_equal(unlink(path), 0);
}

#define STACKS(test) cmocka_unit_test_teardown(test, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STACKS(each_call_of_the_program_is_one_stack),
        STACKS(events_of_several_devices_keep_their_stacks),
        STACKS(calls_other_than_allocations_have_stacks),
        STACKS(the_stack_of_an_unrecorded_use_is_that_of_the_use),
        STACKS(a_callback_that_frees_has_a_stack_of_its_own),
        STACKS(without_the_option_no_event_has_a_stack),
        STACKS(a_full_table_is_reported_in_the_file),
        STACKS(stacks_can_be_switched_on_and_off),
        STACKS(stopping_forgets_the_stacks_of_blocks),
        STACKS(closing_leaves_no_stacks),
        STACKS(stacks_come_from_the_programs_source_where_it_has_any),
        STACKS(whatever_the_source_says_of_a_place_files_stay_readable),
        STACKS(a_stack_of_the_source_without_room_is_lost_once),
        STACKS(without_anybody_who_wants_stacks_none_are_taken),
        STACKS(messages_name_places_of_the_source),
        cmocka_unit_test(a_source_without_functions_is_refused),
        STACKS(stacks_need_events),
        STACKS(a_snapshot_has_the_stacks_of_live_blocks),
        STACKS(snapshots_and_traces_name_frames_alike),
        STACKS(events_of_one_pool_keep_their_stacks),
        STACKS(lack_of_memory_is_reported),
        STACKS(python_reads_the_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
