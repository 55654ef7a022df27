#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/input_support.h"

#include <unistd.h>
#include <zlib.h>

static const char csv_log[] = "Thread,Time,Action,Pointer,Size,Stream\n"
                              "1,00:00:01.000000,allocate,0x1000,512,0\n"
                              "1,00:00:02.000000,free,0x1000,512,0\n";

static size_t gzip(const void *bytes, size_t count, uint8_t *to, size_t capacity)
{
    z_stream z = { 0 };
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)bytes;
    z.avail_in = (uInt)count;
    z.next_out = to;
    z.avail_out = (uInt)capacity;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return capacity - z.avail_out;
}

static void check_log(const void *bytes, size_t count)
{
    trace t;
    trace_error e;
    if (!read_exact(bytes, count, NULL, &t, &e)) fail_msg("%s", e.text);
    assert_int_equal(t.count, 3);
    assert_int_equal(t.events[2].size, 512);
    trace_release(&t);
}

static void gzip_is_read_like_the_plain_file(void **state)
{
    (void)state;
    uint8_t zipped[1024];
    check_log(csv_log, sizeof csv_log - 1);
    check_log(zipped, gzip(csv_log, sizeof csv_log - 1, zipped, sizeof zipped));
}

static void members_in_a_row_and_padding_are_read(void **state)
{
    (void)state;
    uint8_t zipped[2048];
    size_t at = gzip(csv_log, 50, zipped, sizeof zipped);
    at += gzip("", 0, zipped + at, sizeof zipped - at);
    at += gzip(csv_log + 50, sizeof csv_log - 1 - 50, zipped + at, sizeof zipped - at);
    check_log(zipped, at);
    memset(zipped + at, 0, 100);
    check_log(zipped, at + 100);
    zipped[at + 99] = 'x';
    refused(zipped, at + 100, NULL, "followed by something else");
}

static void gzip_cut_anywhere_is_refused(void **state)
{
    (void)state;
    uint8_t zipped[1024];
    size_t count = gzip(csv_log, sizeof csv_log - 1, zipped, sizeof zipped);
    for (size_t cut = 2; cut < count; cut++) assert_true(refused(zipped, cut, NULL, "cut off") <= sizeof csv_log - 1);
}

static void damaged_gzip_is_refused(void **state)
{
    (void)state;
    uint8_t zipped[1024];
    size_t count = gzip(csv_log, sizeof csv_log - 1, zipped, sizeof zipped);
    zipped[count - 5] ^= 1; /* the checksum */
    refused(zipped, count, NULL, "incorrect data check");
    zipped[count - 5] ^= 1;
    zipped[3] = 0xff;
    refused(zipped, count, NULL, "the gzip data is damaged");
}

static void a_checksum_after_the_last_event_still_counts(void **state)
{
    (void)state;
    uint8_t zipped[256];
    size_t count = gzip("\x80\x02]."
                        "left over",
                        13, zipped, sizeof zipped);
    zipped[count - 5] ^= 1;
    refused(zipped, count, NULL, "incorrect data check");
}

static void a_window_boundary_does_not_show(void **state)
{
    (void)state;
    enum { ROWS = 40000 };
    size_t capacity = 64 + (size_t)ROWS * 64, at;
    char *text = malloc(capacity);
    assert_non_null(text);
    at = (size_t)snprintf(text, capacity, "Thread,Time,Action,Pointer,Size,Stream\n");
    for (int i = 0; i < ROWS; i++)
        at += (size_t)snprintf(text + at, capacity - at, "1,00:00:01.000000,allocate,0x%x,%d,0\n", i, i + 1);
    uint8_t *zipped = malloc(capacity);
    assert_non_null(zipped);
    size_t count = gzip(text, at, zipped, capacity);
    trace t;
    assert_true(read_exact(zipped, count, NULL, &t, NULL));
    assert_int_equal(t.count, ROWS);
    for (int i = 0; i < ROWS; i++) assert_int_equal(t.events[i].size, i + 1);
    trace_release(&t);
    free(zipped);
    free(text);
}

static void files_that_cannot_be_read_say_why(void **state)
{
    (void)state;
    trace t;
    trace_error e;
    assert_false(trace_read("/nowhere/trace.pickle", &t, &e, NULL, NULL));
    assert_string_equal(e.text, "cannot be opened: No such file or directory");
    assert_false(trace_read("/", &t, &e, NULL, NULL));
    assert_string_equal(e.text, "cannot be read: Is a directory");
    assert_null(t.name);
}

static void inputs_of_no_format_are_refused(void **state)
{
    (void)state;
    REFUSED("", "the file is empty");
    REFUSED("hello", "neither a PyTorch memory snapshot");
    REFUSED("PK\3\4", "a ZIP archive, which is not read, only gzip is: unpack it with 'unzip -p FILE | weir ... -'");
    REFUSED("\x28\xb5\x2f\xfd rest", "compressed with zstd, which is not read");
    REFUSED("\xfd\x37zXZ", "compressed with xz, which is not read");
    REFUSED("BZh9", "compressed with bzip2, which is not read");
    REFUSED("\x04\x22\x4d\x18", "compressed with lz4, which is not read");
    REFUSED("\x1f\x8b", "cut off");
}

static void names_lose_folders_and_extensions(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        { "gpt2.v1.csv.gz", "gpt2.v1" },
        { "log.dev0.csv", "log.dev0" },
        { ".csv", ".csv" },
        { "plain", "plain" },
        { "a.pkl", "a" },
        { "a.weirtrace", "a" },
    };
    char folder[] = "/tmp/weir_namesXXXXXX";
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, names[i][0]);
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        fputs(csv_log, file);
        fclose(file);
        trace t;
        assert_true(trace_read(path, &t, NULL, NULL, NULL));
        assert_string_equal(t.name, names[i][1]);
        trace_release(&t);
        unlink(path);
    }
    rmdir(folder);
}

static void hardly_anything_but_traces_is_named_so(void **state)
{
    (void)state;
    static const char *const named[] = { "a.pickle", "b/a.pickle.gz", "a.pkl", "a.weirtrace" };
    static const char *const others[] = { "a.csv", "a.gz", "pickle", ".pickle", "a.pickle.html", "" };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) assert_true(trace_is_named(named[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(trace_is_named(others[i]));
}

static void a_released_trace_is_empty(void **state)
{
    (void)state;
    trace t;
    assert_true(read_exact(csv_log, sizeof csv_log - 1, NULL, &t, NULL));
    trace_release(&t);
    assert_null(t.events);
    assert_int_equal(t.count, 0);
    trace_release(&t);
    trace_release(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gzip_is_read_like_the_plain_file),
        cmocka_unit_test(members_in_a_row_and_padding_are_read),
        cmocka_unit_test(gzip_cut_anywhere_is_refused),
        cmocka_unit_test(damaged_gzip_is_refused),
        cmocka_unit_test(a_checksum_after_the_last_event_still_counts),
        cmocka_unit_test(a_window_boundary_does_not_show),
        cmocka_unit_test(files_that_cannot_be_read_say_why),
        cmocka_unit_test(inputs_of_no_format_are_refused),
        cmocka_unit_test(names_lose_folders_and_extensions),
        cmocka_unit_test(hardly_anything_but_traces_is_named_so),
        cmocka_unit_test(a_released_trace_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
