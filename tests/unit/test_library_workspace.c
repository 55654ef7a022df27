/* The workspaces that the environment asks for: its texts, and what the libraries' rows make of it, on stand-ins. */
#include "unit/library_support.h"

#include "backend/workspace.h"
#include "base/size.h"

static void assert_asks_for(const char *value, size_t bytes)
{
    size_t found = 1;
    assert_true(wr_workspace_read(value, &found));
    assert_int_equal(found, bytes);
}

static void assert_asks_for_nothing(const char *value)
{
    size_t found;
    assert_false(wr_workspace_read(value, &found));
}

static void pairs_are_kibibytes_and_pieces(void **state)
{
    (void)state;
    assert_asks_for(":16:8", 128 * 1024);
    assert_asks_for(":4096:2:16:8", 8519680);
    assert_asks_for(":4096:8", 32 * WR_MIB);
    assert_asks_for(":0:0", 0);
    assert_asks_for("x:1:2 and :3:4", 14 * 1024);
    assert_asks_for("::5:6", 30 * 1024);
    assert_asks_for(":67108864:1", (size_t)64 << 30);
}

static void a_text_without_pairs_asks_for_nothing(void **state)
{
    (void)state;
    static const char *const texts[] = { "", ":", ":1", ":1:", "1:2", ":-1:2", ": 1:2", ":a:b", "4096" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) assert_asks_for_nothing(texts[i]);
}

static void more_than_any_device_has_is_not_asked_for(void **state)
{
    (void)state;
    assert_asks_for_nothing(":67108864:1:1:1");
    assert_asks_for_nothing(":18446744073709551615:1");
    assert_asks_for_nothing(":18014398509481984:1024");
    assert_asks_for_nothing(":99999999999999999999999:99999999999999999999999");
}

static size_t wanted(weir_handle_kind number)
{
    standin commands = { 0 };
    const weir_device_caps caps = { .compute_major = 9 };
    const wr_kind *kind = loaded(row_of(number), &commands);
    return kind->workspace_bytes(kind->self, &caps);
}

/* Each row reads its variables when it is first used, and never again. */
static void workspaces_are_as_large_as_the_environment_asks(void **state)
{
    (void)state;
    assert_int_equal(setenv("ROCBLAS_WORKSPACE_CONFIG", ":32:1", 1), 0);
    assert_int_equal(setenv("HIPBLAS_WORKSPACE_CONFIG", ":16:1", 1), 0);
    assert_int_equal(wanted(WEIR_ROCBLAS), 16 * 1024);
    assert_int_equal(setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:1", 1), 0);
    assert_int_equal(wanted(WEIR_CUBLAS), 4 * WR_MIB);
    assert_int_equal(setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:2", 1), 0);
    assert_int_equal(wanted(WEIR_CUBLAS), 4 * WR_MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_kibibytes_and_pieces),
        cmocka_unit_test(a_text_without_pairs_asks_for_nothing),
        cmocka_unit_test(more_than_any_device_has_is_not_asked_for),
        cmocka_unit_test(workspaces_are_as_large_as_the_environment_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
