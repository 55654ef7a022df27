/*
 * Statistics as text, and the documentation of every number.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "observe/emit.h"
#include "observe/metrics.h"
#include "pool_support.h"
#include "python_support.h"
#include "weir/observe.h"

#include <stdio.h>
#include <string.h>

static int open_two(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_devices = 2, .host_memory = 256 * MIB });
    return 0;
}

typedef weir_status (*text_of)(char *buffer, size_t capacity, size_t *length);

static char *text(text_of call)
{
    size_t length = 0, again = 0;
    assert_ok(call(NULL, 0, &length));
    char *buffer = malloc(length + 1);
    assert_non_null(buffer);
    assert_ok(call(buffer, length + 1, &again));
    assert_int_equal(again, length);
    assert_int_equal(strlen(buffer), length);
    return buffer;
}

/* Devices, a private pool, a stream, a kind of handles, pinned memory: a row of each scope. */
static int make_handle(void *user, int device, void **handle)
{
    (void)user, (void)device;
    *handle = &handle;
    return 0;
}

static int end_handle(void *user, void *handle)
{
    (void)user, (void)handle;
    return 0;
}

static weir_mempool use_everything(void)
{
    static weir_handle_kind kind;
    void *handle = NULL, *pinned = NULL, *block = NULL;
    weir_mempool_options o = WEIR_MEMPOOL_OPTIONS_INIT;
    weir_mempool pool;
    o.device = 0;
    snprintf(o.tag, sizeof o.tag, "a \"b\"\\c\nd");
    assert_ok(weir_mempool_create(&o, &pool));
    assert_ok(weir_alloc_from(pool, 3 * MIB, default_stream(0), &block));
    alloc_on(1000, new_stream(0));
    alloc_on(5000, default_stream(1));
    weir_handle_ops ops = { WEIR_HANDLE_OPS_INIT, .name = "texts", .create = make_handle, .destroy = end_handle };
    if (kind == 0) assert_ok(weir_handle_kind_register(&ops, &kind));
    assert_ok(weir_handle_get(kind, &handle));
    assert_ok(weir_pinned_alloc(100, WEIR_NUMA_ANY, &pinned));
    return pool;
}

static void openmetrics_is_read_by_a_strict_parser(void **state)
{
    (void)state;
    char command[2048];
    need_python();
    const weir_mempool pool = use_everything();
    snprintf(command, sizeof command,
             "python3 " WEIR_SOURCE_DIR "/tests/openmetrics.py /dev/stdin"
             " 'weir_backend_info{backend=\"host\"}=1'"
             " 'weir_memory_allocation{device=\"0\"}=2'"
             " 'weir_class_allocated_bytes{device=\"0\",class=\"large\"}=3145728'"
             " 'weir_pool_requested_peak_bytes{device=\"0\",pool=\"{0, %d}\",tag=\"a \\\"b\\\"\\\\c\\nd\"}=3145728'"
             " 'weir_memory_driver_allocs_total{device=\"1\"}=1'"
             " 'weir_stream_live_peak_bytes{device=\"0\",stream=\"0\"}=3145728'"
             " 'weir_handles_live{device=\"0\",kind=\"texts\"}=1'"
             " 'weir_pinned_requested_bytes{}=100'"
             " 'weir_device_total_bytes{device=\"0\",name=\"weir host device 0\"}=268435456'",
             (int)pool.user);
    run_on(command, text(weir_stats_openmetrics));
}

static void a_number_of_64_bits_is_written_whole(void **state)
{
    (void)state;
    static char buffer[1 << 16];
    size_t length = 0;
    alloc(1000);
    assert_ok(weir_memory_limit_set(0, UINT64_MAX));
    assert_ok(weir_stats_json(buffer, sizeof buffer, &length));
    assert_non_null(strstr(buffer, "\"limit_bytes\":18446744073709551615,"));
    assert_ok(weir_stats_openmetrics(buffer, sizeof buffer, &length));
    assert_non_null(strstr(buffer, "\nweir_device_limit_bytes{"));
    assert_non_null(strstr(buffer, "\"} 18446744073709551615\n"));
}

static void json_is_read_by_a_parser_and_agrees_with_the_calls(void **state)
{
    (void)state;
    need_python();
    (void)use_everything();
    run_on(
        "python3 -c '\n"
        "import json, sys\n"
        "s = json.load(sys.stdin)\n"
        "assert s[\"backend\"] == \"host\" and s[\"driver_calls\"] > 0\n"
        "d, e = s[\"devices\"]\n"
        "assert (d[\"device\"], e[\"device\"]) == (0, 1)\n"
        "assert d[\"memory\"][\"allocated_bytes\"][\"all\"][\"current\"] == 1024 + 3 * 2**20\n"
        "assert d[\"total_bytes\"] - d[\"free_bytes\"] - d[\"reserved_bytes\"] == d[\"outside_bytes\"]\n"
        "assert len(d[\"pools\"]) == 2 and d[\"pools\"][0][\"pool\"] == \"{0, 0}\"\n"
        "assert d[\"pools\"][1][\"tag\"] == chr(97) + \" \\\"b\\\"\\\\c\\nd\"\n"
        "assert sum(t[\"live_bytes\"] for t in d[\"streams\"]) == d[\"memory\"][\"allocated_bytes\"][\"all\"][\"current\"]\n"
        "assert d[\"handles\"][0][\"kind\"] == \"texts\"\n"
        "assert s[\"pinned\"][\"requested_bytes\"][\"all\"][\"current\"] == 100\n"
        "'",
        text(weir_stats_json));
}

static void bytes_that_are_no_utf8_are_replaced(void **state)
{
    (void)state;
    (void)make_pool(pool_options(WEIR_MEMORY_DEVICE, "caf\xE9\xE2\x82\"\xC3\xA9"));
    char *json = text(weir_stats_json), *metrics = text(weir_stats_openmetrics);
    assert_non_null(strstr(json, "\"tag\":\"caf\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\\\"\xC3\xA9\""));
    assert_non_null(strstr(metrics, "tag=\"caf\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\\\"\xC3\xA9\""));
    free(json);
    free(metrics);
}

static void control_characters_are_escaped(void **state)
{
    (void)state;
    char buffer[64];
    wr_emit e = { .buffer = buffer, .capacity = sizeof buffer };
    wr_json_string(&e, NULL, "\x01\n\x1F \x7F");
    wr_emit_finish(&e);
    assert_string_equal(buffer, "\"\\u0001\\u000a\\u001f \x7F\"");
}

static void a_negative_number_has_its_sign(void **state)
{
    (void)state;
    char buffer[64];
    wr_emit e = { .buffer = buffer, .capacity = sizeof buffer };
    wr_json_number(&e, "n", INT64_MIN);
    wr_emit_finish(&e);
    assert_string_equal(buffer, "\"n\":-9223372036854775808");
}

static void a_character_is_not_cut_in_two(void **state)
{
    (void)state;
    static const char whole[] = "\"ab\xE2\x82\xAC\"";
    static const size_t kept[] = { 0, 0, 1, 2, 3, 3, 3, 6, 7 }; /* by capacity */
    for (size_t capacity = 1; capacity < sizeof kept / sizeof *kept; capacity++) {
        char buffer[16] = "xxxxxxxxxxxxxxx";
        wr_emit e = { .buffer = buffer, .capacity = capacity };
        wr_json_string(&e, NULL, "ab\xE2\x82\xAC");
        wr_emit_finish(&e);
        assert_int_equal(e.length, sizeof whole - 1);
        assert_int_equal(strlen(buffer), kept[capacity]);
        assert_memory_equal(buffer, whole, kept[capacity]);
        assert_int_equal(buffer[capacity], 'x');
    }
}

static void a_short_buffer_is_filled_and_ended(void **state)
{
    (void)state;
    char buffer[33];
    size_t length = 0;
    char *whole = text(weir_stats_json);
    memset(buffer, 'x', sizeof buffer);
    assert_ok(weir_stats_json(buffer, 32, &length));
    assert_int_equal(length, strlen(whole));
    assert_memory_equal(buffer, whole, 31);
    assert_int_equal(buffer[31], 0);
    assert_int_equal(buffer[32], 'x');
    free(whole);
    assert_status(weir_stats_json(NULL, 1, &length), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_stats_openmetrics(buffer, 1, NULL), WEIR_ERR_INVALID_ARGUMENT);
}

static void without_any_use_there_is_text_too(void **state)
{
    (void)state;
    char *json = text(weir_stats_json), *metrics = text(weir_stats_openmetrics);
    assert_non_null(strstr(json, "\"devices\":[]"));
    assert_non_null(strstr(metrics, "# EOF\n"));
    free(json);
    free(metrics);
}

static void peaks_and_totals_are_reset_each_alone(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc(1000)));
    assert_ok(weir_stats_reset_totals(0));
    weir_memory_stats s = stats_of(0);
    assert_int_equal(s.allocation[WEIR_STAT_ALL].peak, 1);
    assert_int_equal(s.allocation[WEIR_STAT_SMALL].added, 0);
    assert_int_equal(s.driver_allocs, 0);
    alloc(1000);
    assert_ok(weir_free(alloc(5000)));
    assert_ok(weir_stats_reset_peaks(0));
    s = stats_of(0);
    assert_int_equal(s.allocation[WEIR_STAT_ALL].peak, 1);
    assert_int_equal(s.allocation[WEIR_STAT_ALL].added, 2);
    assert_int_equal(s.hits, 2);
}

static void a_streams_row_has_its_own_memory(void **state)
{
    (void)state;
    weir_stream home = new_stream(0), other = new_stream(0);
    weir_stream_stats stats = { .size = sizeof stats };
    alloc_on(1000, home);
    void *shared = alloc_on(2000, home);
    alloc_on(3000, other);
    hold(other);
    slow_work work = { .milliseconds = 0 };
    start_slow_work(other, &work);
    assert_ok(weir_record_stream(shared, other));
    assert_ok(weir_free(shared));
    assert_ok(weir_stream_stats_get(home, &stats));
    assert_int_equal(stats.live, 1);
    assert_int_equal(stats.live_bytes, 1024);
    assert_int_equal(stats.pending, 1);
    assert_int_equal(stats.pending_bytes, 2048);
    assert_int_equal(stats.free, 1);
    assert_int_equal(stats.largest_free_bytes, stats.free_bytes);
    assert_int_equal(stats.segments, 1);
    assert_int_equal(stats.reserved_bytes, stats.live_bytes + stats.pending_bytes + stats.free_bytes);
    let_run(other);
    stats.size = 8;
    assert_status(weir_stream_stats_get(home, &stats), WEIR_ERR_INVALID_ARGUMENT);
}

static bool has_row(weir_stream stream)
{
    char row[64], *all = text(weir_stats_openmetrics);
    snprintf(row, sizeof row, "{device=\"0\",stream=\"%p\"}", native_of(stream));
    const bool has = strstr(all, row) != NULL;
    free(all);
    return has;
}

static void a_stream_without_memory_has_no_row(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *block = alloc_on(1000, stream);
    assert_true(has_row(stream));
    assert_ok(weir_free(block));
    assert_ok(weir_empty_cache(0));
    assert_false(has_row(stream));
}

/* The row shows the stream's own memory, whatever other streams have, even when blocks come from memory freed
 * before. */
static void a_stream_has_a_peak_and_totals_of_its_own(void **state)
{
    (void)state;
    weir_stream first = new_stream(0), second = new_stream(0);
    weir_stream_stats stats = { .size = sizeof stats };
    for (int round = 0; round < 100; round++) {
        void *some[] = { alloc_on(1000, first), alloc_on(1000, first), alloc_on(3 * MIB, first) };
        void *other = alloc_on(MIB, second);
        for (int i = 0; i < 3; i++) assert_ok(weir_free(some[i]));
        assert_ok(weir_free(other));
    }
    assert_ok(weir_stream_stats_get(first, &stats));
    assert_int_equal(stats.live, 0);
    assert_int_equal(stats.live_peak, 3);
    assert_int_equal(stats.live_bytes_peak, 2 * 1024 + 3 * MIB);
    assert_int_equal(stats.allocations, 300);
    assert_int_equal(stats.allocations_bytes, 100 * (2 * 1024 + 3 * MIB));
    assert_ok(weir_stats_reset(0));
    void *kept = alloc_on(1000, first);
    assert_ok(weir_stream_stats_get(first, &stats));
    assert_int_equal(stats.live_peak, 1);
    assert_int_equal(stats.allocations, 1);
    assert_ok(weir_stream_stats_get(second, &stats));
    assert_int_equal(stats.live_peak, 0);
    assert_ok(weir_free(kept));
}

/* The default stream inherits the memory but did not ask for it. The next stream of the same number begins anew. */
static void totals_of_an_ended_stream_are_not_those_of_its_heir(void **state)
{
    (void)state;
    weir_stream gone = { 0 }, next = { 0 }, home = { 0 };
    weir_stream_stats stats = { .size = sizeof stats };
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &gone));
    void *left = alloc_on(1000, gone);
    assert_ok(weir_stream_destroy(gone));
    assert_ok(weir_stream_default(0, &home));
    assert_ok(weir_stream_stats_get(home, &stats));
    assert_int_equal(stats.live, 1);
    assert_int_equal(stats.live_peak, 1);
    assert_int_equal(stats.allocations, 0);
    assert_ok(weir_free(left));
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &next));
    assert_ok(weir_stream_stats_get(next, &stats));
    assert_int_equal(stats.live_peak, 0);
    assert_int_equal(stats.allocations, 0);
}

/* Memory that the driver gave to others. */
static void memory_taken_outside_weir_is_reported_apart(void **state)
{
    (void)state;
    weir_device_memory m = { .size = sizeof m };
    alloc(1000);
    assert_ok(weir_device_memory_get(0, &m));
    assert_int_equal(m.reserved_bytes, 2 * MIB);
    assert_int_equal(m.outside_bytes, 0);
    weir_mempool_options o = WEIR_MEMPOOL_OPTIONS_INIT;
    weir_mempool pool;
    void *block = NULL;
    o.device = 0;
    o.memory = WEIR_MEMORY_PINNED;
    assert_ok(weir_mempool_create(&o, &pool));
    assert_ok(weir_alloc_from(pool, 1000, default_stream(0), &block));
    assert_ok(weir_memory_limit_set(0, 100 * MIB));
    assert_ok(weir_device_memory_get(0, &m));
    assert_int_equal(m.reserved_bytes, 2 * MIB); /* host memory is not the device's */
    assert_int_equal(m.total_bytes, m.free_bytes + m.reserved_bytes + m.outside_bytes);
    assert_int_equal(m.limit_bytes, 100 * MIB);
}

/* Each allocation for a text fails in turn. */
static void a_text_that_cannot_be_made_reports_why_and_changes_nothing(void **state)
{
    (void)state;
    static char buffer[1 << 16];
    size_t length = 77;
    (void)use_everything();
    weir_status status = WEIR_ERR_OUT_OF_HOST_MEMORY;
    for (uint64_t nth = 1; status != WEIR_OK; nth++) {
        wr_meta_fail_nth(nth);
        status = weir_stats_json(buffer, sizeof buffer, &length);
        wr_meta_fail_nth(0);
        if (nth <= 3) assert_int_equal(status, WEIR_ERR_OUT_OF_HOST_MEMORY); /* the rows, and a list on each device */
        if (status != WEIR_OK) assert_int_equal(length, 77);
    }
}

/* The rest matters most then. */
static void a_lost_device_lacks_only_the_numbers_that_its_driver_would_say(void **state)
{
    (void)state;
    (void)use_everything();
    assert_ok(weir_host_lose_device(1));
    assert_status(weir_alloc_on(0, (weir_stream){ 0 }, NULL), WEIR_ERR_INVALID_ARGUMENT);
    char *before = strdup(weir_error_text());
    assert_non_null(before);
    char *json = text(weir_stats_json), *metrics = text(weir_stats_openmetrics);
    assert_string_equal(weir_error_text(), before);
    assert_non_null(strstr(json, "\"device\":0,\"name\":\"weir host device 0\",\"total_bytes\":268435456,"));
    assert_non_null(strstr(json, "\"device\":1,\"name\":\"weir host device 1\","
                                 "\"error\":\"host: device 1 is lost; close the library and open it again\","
                                 "\"memory\":{\"allocation\":{\"all\":{\"current\":1,"));
    assert_non_null(strstr(metrics, "\nweir_device_total_bytes{device=\"0\""));
    assert_null(strstr(metrics, "\nweir_device_total_bytes{device=\"1\""));
    assert_non_null(strstr(metrics, "\nweir_memory_allocation{device=\"1\"} 1\n"));
    free(before);
    assert_status(weir_close(), WEIR_ERR_DEVICE_LOST);
    open_host((weir_settings){ 0 }); /* to be closed */
    free(json);
    free(metrics);
}

/* ---- the documentation ------------------------------------------------------------------------------------------- */

static void put_table(wr_scope scope, char *to, size_t capacity)
{
    static const char *const types[] = { "stat", "counter", "gauge" };
    const wr_metrics all = wr_metrics_of(scope);
    size_t at = 0;
    to[0] = '\0';
    for (const wr_metric *m = all.metric; m < all.metric + all.count && at < capacity; m++)
        at += (size_t)snprintf(to + at, capacity - at, "| `%s` | %s | %s | %s |\n", m->member, types[m->type], m->unit,
                               m->help);
    assert_true(at < capacity);
}

static void every_number_is_documented(void **state)
{
    (void)state;
    static const wr_scope scopes[] = { WR_SCOPE_MEMORY, WR_SCOPE_DEVICE, WR_SCOPE_STREAM, WR_SCOPE_HANDLES };
    static char page[1 << 16], table[1 << 14];
    FILE *file = fopen(WEIR_SOURCE_DIR "/docs/statistics.md", "r");
    assert_non_null(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    for (size_t i = 0; i < sizeof scopes / sizeof scopes[0]; i++) {
        put_table(scopes[i], table, sizeof table);
        if (!strstr(page, table)) fail_msg("docs/statistics.md must have this table:\n%s", table);
    }
}

#define HOST(test) cmocka_unit_test_setup_teardown(test, open_two, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOST(openmetrics_is_read_by_a_strict_parser),
        HOST(a_number_of_64_bits_is_written_whole),
        HOST(json_is_read_by_a_parser_and_agrees_with_the_calls),
        HOST(bytes_that_are_no_utf8_are_replaced),
        cmocka_unit_test(a_character_is_not_cut_in_two),
        cmocka_unit_test(control_characters_are_escaped),
        cmocka_unit_test(a_negative_number_has_its_sign),
        HOST(a_short_buffer_is_filled_and_ended),
        HOST(without_any_use_there_is_text_too),
        HOST(peaks_and_totals_are_reset_each_alone),
        HOST(a_streams_row_has_its_own_memory),
        HOST(a_stream_without_memory_has_no_row),
        HOST(a_stream_has_a_peak_and_totals_of_its_own),
        HOST(totals_of_an_ended_stream_are_not_those_of_its_heir),
        HOST(a_text_that_cannot_be_made_reports_why_and_changes_nothing),
        HOST(a_lost_device_lacks_only_the_numbers_that_its_driver_would_say),
        HOST(memory_taken_outside_weir_is_reported_apart),
        cmocka_unit_test(every_number_is_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
