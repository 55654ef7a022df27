#include "base/size.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct expected_size {
    const char *text;
    uint64_t bytes;
} expected_size;

static void check_all(const expected_size *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = 99;
        if (!wr_size_parse(rows[i].text, &bytes)) fail_msg("refused \"%s\"", rows[i].text);
        if (bytes != rows[i].bytes) fail_msg("\"%s\" is %llu", rows[i].text, (unsigned long long)bytes);
    }
}

#define CHECK_ALL(...)                                                                                                 \
    do {                                                                                                               \
        const expected_size rows[] = { __VA_ARGS__ };                                                                  \
        check_all(rows, sizeof rows / sizeof rows[0]);                                                                 \
    } while (0)

static void plain_numbers_are_bytes(void **state)
{
    (void)state;
    CHECK_ALL({ "0", 0 }, { "1", 1 }, { "4096", 4096 }, { "007", 7 }, { "512B", 512 }, { "512 b", 512 }, { " 64 ", 64 },
              { "18446744073709551615", UINT64_MAX });
}

static void units_are_powers_of_1024_however_written(void **state)
{
    (void)state;
    CHECK_ALL({ "80GiB", 80 * WR_GIB }, { "80 GB", 80 * WR_GIB }, { "80g", 80 * WR_GIB }, { "80Gi", 80 * WR_GIB },
              { "512m", 512 * WR_MIB }, { "512 mib", 512 * WR_MIB }, { "20MB", 20 * WR_MIB }, { "4k", 4096 },
              { "4KIB", 4096 }, { "2T", 2048 * WR_GIB }, { "16TiB", 16384 * WR_GIB });
}

static void fractions_need_a_unit_and_are_exact(void **state)
{
    (void)state;
    uint64_t bytes;
    CHECK_ALL({ "1.5g", 3 * WR_GIB / 2 }, { "0.5KiB", 512 }, { "1.25 MiB", 1310720 }, { "0.1k", 102 }, { "0.0009k", 0 },
              { "1.000000000000000000000000000000001T", 1024 * WR_GIB }, { "1.1g", 1181116006 });
    assert_false(wr_size_parse("1.5", &bytes));
    assert_false(wr_size_parse("1.5B", &bytes));
}

static void an_invalid_size_is_refused_and_out_untouched(void **state)
{
    (void)state;
    static const char *const texts[] = { "",    " ",     "x",     "-1",    "+1",  "k",   "1x",    "1.",   "1.k",
                                         ".5k", "1..5k", "1kk",   "1ib",   "1i",  "1bk", "1 k x", "0x10", "1e3",
                                         "nan", "1,5k",  "1kib2", "GiB 1", "--1", "1 2", "1.5.5g" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        uint64_t bytes = 99;
        if (wr_size_parse(texts[i], &bytes)) fail_msg("took \"%s\"", texts[i]);
        assert_int_equal(bytes, 99);
    }
}

static void sizes_beyond_64_bits_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = { "18446744073709551616", "16777216T", "17179869184G", "99999999999999999999999",
                                         "18014398509481984K" };
    uint64_t bytes = 99;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) assert_false(wr_size_parse(texts[i], &bytes));
    assert_int_equal(bytes, 99);
    CHECK_ALL({ "16777215.9999T", UINT64_MAX - 109951162 }, { "18014398509481983.9K", UINT64_MAX - 102 });
}

static void check_format(uint64_t bytes, const char *expected)
{
    char buffer[WR_SIZE_TEXT];
    assert_string_equal(wr_size_format(bytes, buffer), expected);
}

static void sizes_are_written_as_pytorch_does(void **state)
{
    (void)state;
    check_format(0, "0 bytes");
    check_format(512, "512 bytes");
    check_format(1024, "1024 bytes");
    check_format(1025, "1.00 KiB");
    check_format(4096, "4.00 KiB");
    check_format(WR_MIB, "1024.00 KiB");
    check_format(20 * WR_MIB, "20.00 MiB");
    check_format(WR_GIB, "1024.00 MiB");
    check_format(80 * WR_GIB, "80.00 GiB");
    check_format(3 * WR_GIB / 2, "1.50 GiB");
    check_format(UINT64_MAX, "17179869184.00 GiB");
}

static void rounding_is_half_to_even_and_carries(void **state)
{
    (void)state;
    check_format(1152, "1.12 KiB");           /* 1.125 */
    check_format(1408, "1.38 KiB");           /* 1.375 */
    check_format(2 * WR_MIB - 1, "2.00 MiB"); /* 1.999 */
    check_format(WR_MIB - 1, "1024.00 KiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_numbers_are_bytes),
        cmocka_unit_test(units_are_powers_of_1024_however_written),
        cmocka_unit_test(fractions_need_a_unit_and_are_exact),
        cmocka_unit_test(an_invalid_size_is_refused_and_out_untouched),
        cmocka_unit_test(sizes_beyond_64_bits_are_refused),
        cmocka_unit_test(sizes_are_written_as_pytorch_does),
        cmocka_unit_test(rounding_is_half_to_even_and_carries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
