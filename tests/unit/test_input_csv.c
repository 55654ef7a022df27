#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/input_support.h"

#define HEADER "Thread,Time,Action,Pointer,Size,Stream\n"

static void read_log(const char *text, trace *t)
{
    trace_error e;
    if (!read_exact(text, strlen(text), NULL, t, &e)) fail_msg("at %llu: %s", (unsigned long long)e.offset, e.text);
    assert_string_equal(t->format, "rmm-csv");
}

static void check(const weir_event *e, weir_event_kind kind, uint64_t time_ns, uint64_t address, uint64_t size,
                  uint64_t stream, uint32_t thread)
{
    assert_int_equal(e->kind, kind);
    assert_int_equal(e->time_ns, time_ns);
    assert_int_equal(e->address, address);
    assert_int_equal(e->size, size);
    assert_int_equal(e->stream, stream);
    assert_int_equal(e->thread, thread);
    assert_int_equal(e->device, 0);
}

static void rows_become_events(void **state)
{
    (void)state;
    trace t;
    read_log(HEADER "2342727,15:47:02.841961,allocate,0x10012400000,1048576,0x7f8a38001020\n"
                    "99,15:47:02.841970,allocate failure,(nil),77,0\n"
                    "2342727,15:47:02.841977,free,0x10012400000,1048576,0x7f8a38001020\n",
             &t);
    uint64_t second = UINT64_C(1000000000), start = (15 * 3600 + 47 * 60 + 2) * second;
    assert_int_equal(t.count, 4);
    check(&t.events[0], WEIR_EVENT_ALLOC, start + 841961000, 0x10012400000, 1048576, 0x7f8a38001020, 1);
    check(&t.events[1], WEIR_EVENT_OOM, start + 841970000, 0, 77, 0, 2);
    check(&t.events[2], WEIR_EVENT_FREE_REQUESTED, start + 841977000, 0x10012400000, 1048576, 0x7f8a38001020, 1);
    check(&t.events[3], WEIR_EVENT_FREE_COMPLETED, start + 841977000, 0x10012400000, 1048576, 0x7f8a38001020, 1);
    trace_release(&t);
}

static void a_failure_tells_nothing_of_the_devices_free_memory(void **state)
{
    (void)state;
    trace t;
    read_log(HEADER "1,00:00:00.0,allocate failure,0x1000,77,0\n", &t);
    assert_int_equal(t.count, 1);
    check(&t.events[0], WEIR_EVENT_OOM, 0, 0, 77, 0, 1);
    trace_release(&t);
}

static void a_mark_of_utf_8_is_passed_over(void **state)
{
    (void)state;
    trace t;
    read_log("\xEF\xBB\xBF" HEADER "2342727,15:47:02.841961,allocate,0x10012400000,1048576,0x7f8a38001020\n", &t);
    assert_int_equal(t.count, 1);
    assert_int_equal(t.events[0].thread, 1);
    trace_release(&t);
}

static void rows_without_bytes_are_passed_over(void **state)
{
    (void)state;
    trace t;
    read_log(HEADER "1,00:00:00.0,allocate,0x1000,512,0\n1,00:00:00.0,allocate,0x1200,0,0\n"
                    "1,00:00:00.0,allocate,0x1200,0,0\n1,00:00:00.0,free,0x1200,0,0\n1,00:00:00.0,free,0x1200,0,0\n"
                    "1,00:00:00.0,free,0x1000,0,0\n1,00:00:00.0,allocate failure,(nil),0,0\n",
             &t);
    assert_int_equal(t.count, 4);
    assert_int_equal(t.events[0].size, 512);
    assert_int_equal(t.events[1].kind, WEIR_EVENT_FREE_REQUESTED);
    assert_int_equal(t.events[1].address, 0x1000);
    assert_int_equal(t.events[3].kind, WEIR_EVENT_OOM);
    trace_release(&t);
}

/* A free without a size is that of the block, even when an allocation of 0 bytes is live elsewhere. */
static void a_free_without_a_size_is_of_its_address(void **state)
{
    (void)state;
    trace t;
    read_log(HEADER "1,00:00:00.0,allocate,(nil),0,0\n1,00:00:00.0,allocate,0x1000,512,0\n"
                    "1,00:00:00.0,free,0x1000,0,0\n1,00:00:00.0,free,(nil),0,0\n",
             &t);
    assert_int_equal(t.count, 3);
    assert_int_equal(t.events[1].kind, WEIR_EVENT_FREE_REQUESTED);
    assert_int_equal(t.events[1].address, 0x1000);
    trace_release(&t);
}

static void times_of_old_logs_and_of_other_tools_are_read(void **state)
{
    (void)state;
    trace t;
    read_log(HEADER "1,00:00:01:500000,allocate,0x1,1,0\n1,00:00:02,allocate,0x1,1,0\n"
                    "1,1634567890.123456,allocate,0x1,1,0\n",
             &t);
    assert_int_equal(t.events[0].time_ns, 1500000000);
    assert_int_equal(t.events[1].time_ns, 2000000000);
    assert_int_equal(t.events[2].time_ns, UINT64_C(1634567890123456000));
    trace_release(&t);
}

static void times_go_on_after_midnight(void **state)
{
    (void)state;
    trace t;
    read_log(HEADER "1,23:59:59.000000,allocate,0x1,1,0\n1,00:00:01.000000,allocate,0x2,1,0\n"
                    "1,00:00:00.500000,allocate,0x3,1,0\n",
             &t);
    assert_int_equal(t.events[1].time_ns - t.events[0].time_ns, 2000000000);
    assert_int_equal(t.events[1].time_ns - t.events[2].time_ns, 500000000); /* a late row, not a day */
    trace_release(&t);
}

static void a_clock_that_goes_back_by_less_than_half_a_day_is_of_the_same_day(void **state)
{
    (void)state;
    trace t;
    read_log(HEADER "1,21:00:00.0,allocate,0x1,1,0\n1,10:00:00.0,allocate,0x2,1,0\n", &t);
    assert_int_equal(t.events[0].time_ns - t.events[1].time_ns, UINT64_C(11) * 3600 * 1000000000);
    trace_release(&t);
}

static void a_row_late_at_midnight_is_of_the_day_before(void **state)
{
    (void)state;
    trace t;
    read_log(HEADER "1,23:59:59.990000,allocate,0x1,1,0\n1,00:00:00.010000,allocate,0x2,1,0\n"
                    "1,23:59:59.980000,allocate,0x3,1,0\n1,00:00:00.020000,allocate,0x4,1,0\n",
             &t);
    assert_int_equal(t.events[1].time_ns - t.events[2].time_ns, 30000000);
    assert_int_equal(t.events[3].time_ns - t.events[0].time_ns, 30000000);
    trace_release(&t);
}

static void half_a_day_without_rows_after_midnight_goes_on(void **state)
{
    (void)state;
    trace t;
    read_log(HEADER "1,23:59:59.000000,allocate,0x1,1,0\n1,00:00:01.000000,allocate,0x2,1,0\n"
                    "1,20:00:01.000000,allocate,0x3,1,0\n",
             &t);
    assert_int_equal(t.events[2].time_ns - t.events[1].time_ns, UINT64_C(72000) * 1000000000);
    trace_release(&t);
}

static void the_afternoon_of_the_second_day_is_not_that_of_the_first(void **state)
{
    (void)state;
    trace t;
    read_log(HEADER "1,23:59:59.0,allocate,0x1,1,0\n1,00:00:01.0,allocate,0x2,1,0\n1,13:00:01.0,allocate,0x3,1,0\n"
                    "1,14:00:01.0,allocate,0x4,1,0\n",
             &t);
    assert_int_equal(t.events[3].time_ns - t.events[2].time_ns, UINT64_C(3600) * 1000000000);
    trace_release(&t);
}

static void pointers_are_hexadecimal_and_streams_either(void **state)
{
    (void)state;
    trace t;
    read_log(HEADER "1,00:00:00.0,allocate,10,16,10\n1,00:00:00.0,allocate,0X1F,16,7f8a\n", &t);
    assert_int_equal(t.events[0].address, 0x10);
    assert_int_equal(t.events[0].stream, 10);
    assert_int_equal(t.events[1].address, 0x1f);
    assert_int_equal(t.events[1].stream, 0x7f8a);
    trace_release(&t);
}

static void columns_are_found_by_name(void **state)
{
    (void)state;
    trace t;
    read_log("Size,Pointer,Note,Action\r\n16,0x1,\"a\",allocate\r\n\r\n", &t);
    assert_int_equal(t.count, 1);
    check(&t.events[0], WEIR_EVENT_ALLOC, 0, 1, 16, 0, 0);
    trace_release(&t);
}

static void zeros_before_a_number_change_nothing(void **state)
{
    (void)state;
    trace t;
    read_log(HEADER "01,00:00:00.0,allocate,0012,0100,00\n01,00:00:00.0,allocate,0x0012,00,00\n", &t);
    assert_int_equal(t.count, 1);
    check(&t.events[0], WEIR_EVENT_ALLOC, 0, 0x12, 100, 0, 1);
    trace_release(&t);
}

static void an_empty_allocation_is_freed_once(void **state)
{
    (void)state;
    trace t;
    read_log(HEADER "1,00:00:00.0,allocate,0x1200,0,0\n1,00:00:00.0,free,0x1200,0,0\n1,00:00:00.0,free,0x1200,0,0\n",
             &t);
    assert_int_equal(t.count, 2);
    assert_int_equal(t.events[0].kind, WEIR_EVENT_FREE_REQUESTED);
    assert_int_equal(t.events[0].address, 0x1200);
    trace_release(&t);
}

static void columns_may_be_in_any_order(void **state)
{
    (void)state;
    static const char *const texts[] = { "Pointer,Action,Size\n0x1,allocate,16\n",
                                         "Action,Size,Pointer\nallocate,16,0x1\n",
                                         "Size,Pointer,Action\n16,0x1,allocate\n" };
    for (size_t i = 0; i < 3; i++) {
        trace t;
        read_log(texts[i], &t);
        assert_int_equal(t.count, 1);
        check(&t.events[0], WEIR_EVENT_ALLOC, 0, 1, 16, 0, 0);
        trace_release(&t);
    }
}

static void fields_may_have_quotes_and_spaces_around_them(void **state)
{
    (void)state;
    trace t;
    read_log("\"Action\", Pointer ,\" Size\"\n \"allocate\",\"0x1\" ,  16\n", &t);
    assert_int_equal(t.count, 1);
    check(&t.events[0], WEIR_EVENT_ALLOC, 0, 1, 16, 0, 0);
    trace_release(&t);
}

static void many_threads_get_small_numbers(void **state)
{
    (void)state;
    enum { THREADS = 1000 };
    size_t capacity = sizeof HEADER + THREADS * 2 * 64, at;
    char *text = malloc(capacity);
    assert_non_null(text);
    at = (size_t)snprintf(text, capacity, HEADER);
    for (int i = 0; i < THREADS * 2; i++)
        at += (size_t)snprintf(text + at, capacity - at, "%llu,00:00:00.0,allocate,0x1,1,0\n",
                               140573312345856ull + (unsigned)(i % THREADS) * 4096ull);
    trace t;
    read_log(text, &t);
    assert_int_equal(t.count, THREADS * 2);
    for (unsigned i = 0; i < THREADS * 2; i++) assert_int_equal(t.events[i].thread, i % THREADS + 1);
    trace_release(&t);
    free(text);
}

static void bad_fields_are_refused_with_line_and_offset(void **state)
{
    (void)state;
    static const char first[] = HEADER "1,00:00:00.0,allocate,0x1,1,0\n";
    assert_int_equal(REFUSED(HEADER "1,00:00:00.0,allocate,0x1,1,0\n1,00:00:00.0,allocate,0x1,huge,0\n",
                             "line 3: Size \"huge\" is not valid"),
                     sizeof first - 1);
    REFUSED(HEADER "1,00:00:00.0,reallocate,0x1,1,0\n", "line 2: Action \"reallocate\"");
    REFUSED(HEADER "1,24:00:00.0,allocate,0x1,1,0\n", "line 2: Time \"24:00:00.0\"");
    REFUSED(HEADER "1,10:60:00.0,allocate,0x1,1,0\n", "line 2: Time \"10:60:00.0\"");
    REFUSED(HEADER "1,10:00,allocate,0x1,1,0\n", "Time \"10:00\"");
    REFUSED(HEADER "1,00:00:00.1234567890,allocate,0x1,1,0\n", "Time");
    REFUSED(HEADER "1,00:00:00.0,allocate,pointer,1,0\n", "Pointer \"pointer\"");
    REFUSED(HEADER "1,00:00:00.0,allocate,0x,1,0\n", "Pointer \"0x\"");
    REFUSED(HEADER "1,00:00:00.0,allocate,0x1,-1,0\n", "Size \"-1\"");
    REFUSED(HEADER "1,00:00:00.0,allocate,0x1,99999999999999999999,0\n", "Size");
    REFUSED(HEADER "1,00:00:00.0,allocate,0x1,,0\n", "Size \"\"");
    REFUSED(HEADER "1,00:00:00.0,allocate,0x1,1\n", "line 2: the line has 5 fields, but the header has 6");
    REFUSED(HEADER "\nallocate\n", "line 3: the line has 1 fields, but the header has 6");
}

static void a_column_named_twice_is_refused(void **state)
{
    (void)state;
    REFUSED("Action,Pointer,Size,Size\nallocate,0x1,1,2\n", "names the column Size twice");
    REFUSED("\xEF\xBB\xBFSize,Action,Pointer,Size\n1,allocate,0x1,2\n", "names the column Size twice");
}

static void lines_without_newlines_are_refused(void **state)
{
    (void)state;
    REFUSED("Action,Pointer,Size\rallocate,0x1,1\rallocate,0x2,1\r", "lines end with a carriage return alone");
}

static void a_cut_log_says_so(void **state)
{
    (void)state;
    REFUSED(HEADER "1,00:00:00.0,allocate,0x1,1,0\n1,00:00:0",
            "the line has no newline: remove it if the log was cut off");
}

static void a_line_without_end_is_refused(void **state)
{
    (void)state;
    enum { LONG = 200000 };
    char *text = malloc(LONG);
    assert_non_null(text);
    memset(text, '1', LONG);
    memcpy(text, HEADER, sizeof HEADER - 1);
    refused(text, LONG, NULL, "a line of more than 65536 bytes");
    free(text);
}

static void too_many_events_are_refused(void **state)
{
    (void)state;
    trace_limits one = trace_limits_default;
    one.events = 1;
    static const char text[] = HEADER "1,00:00:00.0,free,0x1,1,0\n";
    refused(text, sizeof text - 1, &one, "more than 1 events");
}

static void sizes_whose_sum_exceeds_64_bits_are_refused(void **state)
{
    (void)state;
    static const char text[] = "Thread,Time,Action,Pointer,Size,Stream\n"
                               "1,10:00:00.1,allocate,0x10,9223372036854775808,0\n"
                               "1,10:00:00.2,allocate failure,0x0,18446744073709551615,0\n"
                               "1,10:00:00.3,allocate,0x20,9223372036854775808,0\n";
    refused(text, sizeof text - 1, NULL, "its sizes add up to 16 EiB or more, which no program allocates");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_become_events),
        cmocka_unit_test(a_failure_tells_nothing_of_the_devices_free_memory),
        cmocka_unit_test(a_mark_of_utf_8_is_passed_over),
        cmocka_unit_test(rows_without_bytes_are_passed_over),
        cmocka_unit_test(a_free_without_a_size_is_of_its_address),
        cmocka_unit_test(times_of_old_logs_and_of_other_tools_are_read),
        cmocka_unit_test(times_go_on_after_midnight),
        cmocka_unit_test(a_clock_that_goes_back_by_less_than_half_a_day_is_of_the_same_day),
        cmocka_unit_test(a_row_late_at_midnight_is_of_the_day_before),
        cmocka_unit_test(half_a_day_without_rows_after_midnight_goes_on),
        cmocka_unit_test(the_afternoon_of_the_second_day_is_not_that_of_the_first),
        cmocka_unit_test(pointers_are_hexadecimal_and_streams_either),
        cmocka_unit_test(columns_are_found_by_name),
        cmocka_unit_test(zeros_before_a_number_change_nothing),
        cmocka_unit_test(an_empty_allocation_is_freed_once),
        cmocka_unit_test(columns_may_be_in_any_order),
        cmocka_unit_test(fields_may_have_quotes_and_spaces_around_them),
        cmocka_unit_test(many_threads_get_small_numbers),
        cmocka_unit_test(bad_fields_are_refused_with_line_and_offset),
        cmocka_unit_test(a_column_named_twice_is_refused),
        cmocka_unit_test(lines_without_newlines_are_refused),
        cmocka_unit_test(a_cut_log_says_so),
        cmocka_unit_test(a_line_without_end_is_refused),
        cmocka_unit_test(too_many_events_are_refused),
        cmocka_unit_test(sizes_whose_sum_exceeds_64_bits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
