/*
 * Plan files: written plans can be read, and nothing else can.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "weir/plan.h"

#include <stdlib.h>
#include <string.h>

enum { ARENAS = 2, ENTRIES = 5, ARENA_AT = 64, ENTRY_AT = 64 + ARENAS * 88, FILE_BYTES = ENTRY_AT + ENTRIES * 24 };

static const weir_plan_entry entries[ENTRIES] = {
    { 0, 512, WEIR_PLAN_FOREVER, 0 }, { 512, 1024, 1, 1 }, { 1536, 512, 0, 0 }, { 0, 1 << 20, 7, 0 },
    { (uint64_t)1 << 40, 512, 0, 0 },
};
static const weir_plan_arena arenas[ARENAS] = {
    { .device = 0,
      .pool = 0,
      .streams = 2,
      .bytes = 2048,
      .bound = 2048,
      .waits = 3,
      .first = 0,
      .entries = 3,
      .loop_first = 1,
      .loop_entries = 2,
      .loop_times = 9,
      .residents = 1 },
    { .device = 7,
      .pool = 4,
      .flags = WEIR_PLAN_ONE_STREAM,
      .streams = 1,
      .bytes = ((uint64_t)1 << 40) + 512,
      .bound = 1 << 20,
      .first = 3,
      .entries = 2,
      .residents = 2 },
};
static const weir_plan sample = { 0x0123456789abcdef, ARENAS, ENTRIES, arenas, entries };

static void write_sample(uint8_t bytes[FILE_BYTES])
{
    size_t count = 0;
    assert_int_equal(weir_plan_encode(&sample, bytes, FILE_BYTES, &count), WEIR_OK);
    assert_int_equal(count, FILE_BYTES);
}

/* Decodes a copy of exactly the size, so that a sanitizer sees a read past the end. */
static weir_status decode(const uint8_t *bytes, size_t count, weir_plan **plan)
{
    uint8_t *copy = malloc(count ? count : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, count);
    weir_status status = weir_plan_decode(copy, count, plan);
    free(copy);
    return status;
}

static void refused(const uint8_t *bytes, size_t count, weir_status status, const char *part)
{
    weir_plan *plan = (weir_plan *)1;
    assert_int_equal(decode(bytes, count, &plan), status);
    assert_ptr_equal(plan, (weir_plan *)1);
    if (!strstr(weir_error_text(), part)) fail_msg("\"%s\" does not say \"%s\"", weir_error_text(), part);
    assert_int_equal(wr_meta_live(), 0);
}

static void a_written_plan_is_read_back(void **state)
{
    (void)state;
    uint8_t bytes[FILE_BYTES];
    write_sample(bytes);
    weir_plan *plan;
    assert_int_equal(decode(bytes, sizeof bytes, &plan), WEIR_OK);
    assert_true(plan->trace == sample.trace);
    assert_int_equal(plan->arena_count, ARENAS);
    assert_int_equal(plan->entry_count, ENTRIES);
    assert_memory_equal(plan->arenas, arenas, sizeof arenas);
    assert_memory_equal(plan->entries, entries, sizeof entries);
    weir_plan_destroy(plan);
    assert_int_equal(wr_meta_live(), 0);
}

static void bytes_are_where_the_format_says(void **state)
{
    (void)state;
    uint8_t bytes[FILE_BYTES];
    write_sample(bytes);
    static const uint8_t head[48] = { 'w', 'e', 'i', 'r', 'p',  'l',  'a',  'n',  1,    0,    1,    0,
                                      64,  0,   0,   0,   88,   0,    0,    0,    24,   0,    0,    0,
                                      2,   0,   0,   0,   0,    0,    0,    0,    5,    0,    0,    0,
                                      0,   0,   0,   0,   0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01 };
    assert_memory_equal(bytes, head, sizeof head);
    static const uint8_t second[24] = { 0, 2, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1 };
    assert_memory_equal(bytes + ENTRY_AT + 24, second, sizeof second);
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[FILE_BYTES];
    write_sample(bytes);
    for (size_t count = 0; count < FILE_BYTES; count++)
        refused(bytes, count, WEIR_ERR_FORMAT, count < 8 ? "this is not a plan" : "it is not complete");
}

static void bytes_behind_the_last_entry_are_ignored(void **state)
{
    (void)state;
    uint8_t bytes[FILE_BYTES + 3] = { 0 };
    write_sample(bytes);
    weir_plan *plan;
    assert_int_equal(decode(bytes, sizeof bytes, &plan), WEIR_OK);
    weir_plan_destroy(plan);
}

static void longer_records_of_a_newer_minor_version_are_read(void **state)
{
    (void)state;
    uint8_t bytes[FILE_BYTES], longer[72 + ARENAS * 96 + ENTRIES * 40] = { 0 };
    write_sample(bytes);
    memcpy(longer, bytes, 64);
    longer[10] = 3;
    longer[12] = 72;
    longer[16] = 96;
    longer[20] = 40;
    for (int i = 0; i < ARENAS; i++) memcpy(longer + 72 + i * 96, bytes + ARENA_AT + i * 88, 88);
    for (int i = 0; i < ENTRIES; i++) memcpy(longer + 72 + ARENAS * 96 + i * 40, bytes + ENTRY_AT + i * 24, 24);
    weir_plan *plan;
    assert_int_equal(decode(longer, sizeof longer, &plan), WEIR_OK);
    assert_memory_equal(plan->arenas, arenas, sizeof arenas);
    assert_memory_equal(plan->entries, entries, sizeof entries);
    weir_plan_destroy(plan);
}

/* Version 1.0 had reserved bytes there, which are ignored. */
static void plans_of_version_1_0_have_no_residents(void **state)
{
    (void)state;
    uint8_t bytes[FILE_BYTES];
    write_sample(bytes);
    bytes[10] = 0;
    bytes[ARENA_AT + 87] = 0xff;
    weir_plan *plan;
    assert_int_equal(decode(bytes, sizeof bytes, &plan), WEIR_OK);
    for (int i = 0; i < ARENAS; i++) assert_int_equal(plan->arenas[i].residents, 0);
    weir_plan_destroy(plan);
}

static void nonsense_is_refused_with_its_offset(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint8_t value;
        weir_status status;
        const char *part;
    } cases[] = {
        { 0, 'W', WEIR_ERR_FORMAT, "this is not a plan" },
        { 8, 2, WEIR_ERR_INCOMPATIBLE, "version 2.1" },
        { 8, 0, WEIR_ERR_FORMAT, "byte 8: plan format version 0.1 does not exist" },
        { 12, 63, WEIR_ERR_FORMAT, "byte 12: the header has 63 bytes" },
        { 16, 87, WEIR_ERR_FORMAT, "byte 16: arenas have 87 bytes" },
        { 18, 1, WEIR_ERR_FORMAT, "byte 16: arenas have" },
        { 20, 23, WEIR_ERR_FORMAT, "byte 20: entries have 23 bytes" },
        { 31, 1, WEIR_ERR_FORMAT, " arenas: it is not complete" },
        { 39, 1, WEIR_ERR_FORMAT, " entries: it is not complete" },
        { 24, 1, WEIR_ERR_FORMAT, "outside its arena of" }, /* the second arena is read as entries */
        { 32, 4, WEIR_ERR_FORMAT, "but the next entry is 3 of 4" },
        { ARENA_AT + 3, 0x80, WEIR_ERR_FORMAT, "byte 64: the arena is on device -" },
        { ARENA_AT + 8, 2, WEIR_ERR_FORMAT, "byte 64: unknown flags 0x2" },
        { ARENA_AT + 16, 1, WEIR_ERR_FORMAT, "byte 64: the arena has 2049 bytes, which is not a multiple of 512" },
        { ARENA_AT + 40, 1, WEIR_ERR_FORMAT, "byte 64: the arena begins at entry 1" },
        { ARENA_AT + 48, 2, WEIR_ERR_FORMAT,
          "the loop begins at entry 1, has 2 entries and runs 9 times, which does not fit "
          "an arena of 2 entries" },
        { ARENA_AT + 56, 2, WEIR_ERR_FORMAT, "byte 64: the loop begins at entry 2" },
        { ARENA_AT + 63, 0x80, WEIR_ERR_FORMAT, "byte 64: the loop begins at entry" },
        { ARENA_AT + 72, 1, WEIR_ERR_FORMAT, "byte 64: the loop begins at entry" },
        { ARENA_AT + 72, 0, WEIR_ERR_FORMAT, "byte 64: the loop begins at entry" },
        { ARENA_AT + 80, 2, WEIR_ERR_FORMAT,
          "byte 64: the arena has 2 residents, but only 1 entries before those "
          "that repeat" },
        { ARENA_AT + 87, 1, WEIR_ERR_FORMAT, "byte 64: the arena has 72057594037927937 residents" },
        { ARENA_AT + 88 + 80, 3, WEIR_ERR_FORMAT,
          "byte 152: the arena has 3 residents, but only 2 entries before "
          "those that repeat" },
        { ENTRY_AT + 0, 1, WEIR_ERR_FORMAT, "which is empty, misaligned or outside its arena of 2048" },
        { ENTRY_AT + 7, 1, WEIR_ERR_FORMAT, "which is empty, misaligned or outside its arena of 2048" },
        { ENTRY_AT + 9, 0, WEIR_ERR_FORMAT, "the entry has 0 bytes at offset 0, which is empty" },
        { ENTRY_AT + 9, 10, WEIR_ERR_FORMAT, "the entry has 2560 bytes at offset 0, which is empty" },
        { ENTRY_AT + 20, 2, WEIR_ERR_FORMAT, "stream 2 of an arena that has 2" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t bytes[FILE_BYTES];
        write_sample(bytes);
        bytes[cases[i].at] = cases[i].value;
        refused(bytes, sizeof bytes, cases[i].status, cases[i].part);
    }
}

/* With nothing behind it there is nothing else to miss. */
static void a_plan_that_ends_in_its_header_is_refused(void **state)
{
    (void)state;
    const weir_plan empty = { 7, 0, 0, NULL, NULL };
    uint8_t bytes[64] = { 0 };
    size_t count = 0;
    assert_int_equal(weir_plan_encode(&empty, bytes, sizeof bytes, &count), WEIR_OK);
    assert_int_equal(count, sizeof bytes);
    bytes[13] = 1; /* the header has 320 bytes */
    refused(bytes, sizeof bytes, WEIR_ERR_FORMAT, "byte 64: the plan ends inside its header of 320 bytes");
}

static void entries_outside_every_arena_are_refused(void **state)
{
    (void)state;
    uint8_t bytes[FILE_BYTES];
    write_sample(bytes);
    bytes[ARENA_AT + 88 + 48] = 1;
    bytes[ARENA_AT + 88 + 80] = 0;
    refused(bytes, sizeof bytes, WEIR_ERR_FORMAT, "5 entries, but its arenas have 4");
}

static void an_empty_plan_is_valid(void **state)
{
    (void)state;
    uint8_t bytes[64];
    size_t count;
    assert_int_equal(weir_plan_encode(&(weir_plan){ 0 }, bytes, sizeof bytes, &count), WEIR_OK);
    weir_plan *plan;
    assert_int_equal(decode(bytes, count, &plan), WEIR_OK);
    assert_int_equal(plan->arena_count + plan->entry_count, 0);
    weir_plan_destroy(plan);
}

static void encode_says_how_much_room_it_needs(void **state)
{
    (void)state;
    uint8_t bytes[FILE_BYTES];
    size_t count = 0;
    assert_int_equal(weir_plan_encode(&sample, NULL, 0, &count), WEIR_OK);
    assert_int_equal(count, FILE_BYTES);
    count = 0;
    assert_int_equal(weir_plan_encode(&sample, bytes, FILE_BYTES - 1, &count), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(count, FILE_BYTES);
}

static void null_is_refused(void **state)
{
    (void)state;
    weir_plan *plan;
    size_t count;
    uint8_t byte = 0;
    assert_int_equal(weir_plan_decode(NULL, 1, &plan), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(weir_plan_decode(&byte, 1, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(weir_plan_encode(NULL, &byte, 1, &count), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(weir_plan_encode(&sample, &byte, 1, NULL), WEIR_ERR_INVALID_ARGUMENT);
    weir_plan_destroy(NULL);
}

static void without_memory_nothing_is_read(void **state)
{
    (void)state;
    uint8_t bytes[FILE_BYTES];
    write_sample(bytes);
    wr_meta_fail_nth(1);
    refused(bytes, sizeof bytes, WEIR_ERR_OUT_OF_HOST_MEMORY, "a plan");
    wr_meta_fail_nth(0);
}

static void a_loop_repeats_for_ever(void **state)
{
    (void)state;
    static const uint64_t expected[] = { 0, 1, 2, 1, 2, 1, 2 };
    for (uint64_t i = 0; i < 7; i++) assert_int_equal(weir_plan_entry_of(&arenas[0], i), expected[i]);
    assert_int_equal(weir_plan_entry_of(&arenas[0], 1001), 1);
    assert_int_equal(weir_plan_entry_of(&arenas[1], 1), 1);
}

static void a_plan_without_the_arrays_that_it_counts_is_refused(void **state)
{
    (void)state;
    const weir_plan plans[] = {
        { 0, ARENAS, ENTRIES, NULL, entries },
        { 0, ARENAS, ENTRIES, arenas, NULL },
        { 0, UINT64_MAX / 88, ENTRIES, arenas, entries },
        { 0, ARENAS, UINT64_C(1) << 61, arenas, entries },
    };
    uint8_t bytes[FILE_BYTES];
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        size_t count = 0;
        assert_int_equal(weir_plan_encode(&plans[i], bytes, sizeof bytes, &count), WEIR_ERR_INVALID_ARGUMENT);
        assert_int_equal(weir_plan_serve(0, &plans[i]), WEIR_ERR_INVALID_ARGUMENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_without_the_arrays_that_it_counts_is_refused),
        cmocka_unit_test(a_written_plan_is_read_back),
        cmocka_unit_test(bytes_are_where_the_format_says),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(bytes_behind_the_last_entry_are_ignored),
        cmocka_unit_test(longer_records_of_a_newer_minor_version_are_read),
        cmocka_unit_test(plans_of_version_1_0_have_no_residents),
        cmocka_unit_test(nonsense_is_refused_with_its_offset),
        cmocka_unit_test(a_plan_that_ends_in_its_header_is_refused),
        cmocka_unit_test(entries_outside_every_arena_are_refused),
        cmocka_unit_test(an_empty_plan_is_valid),
        cmocka_unit_test(encode_says_how_much_room_it_needs),
        cmocka_unit_test(null_is_refused),
        cmocka_unit_test(without_memory_nothing_is_read),
        cmocka_unit_test(a_loop_repeats_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
