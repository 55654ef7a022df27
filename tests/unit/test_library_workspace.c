/* The workspaces that the environment asks for: its texts, and what the libraries' rows make of it, on stand-ins. */
#include "unit/library_support.h"

#include "backend/workspace.h"
#include "base/size.h"

#include <pthread.h>
#include <sched.h>

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

static void nothing_behind_a_text_is_read(void **state)
{
    (void)state;
    assert_asks_for_nothing(":4096\0"
                            "8");
}

static void more_than_any_device_has_is_not_asked_for(void **state)
{
    (void)state;
    assert_asks_for_nothing(":9007199254740992:1:9007199254740992:1");
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

static void a_workspace_that_no_device_has_is_one_of_the_usual_size(void **state)
{
    (void)state;
    standin commands = { 0 };
    const weir_device_caps caps = { .compute_major = 9 };
    assert_int_equal(setenv("CUBLAS_WORKSPACE_CONFIG", ":67108864:1:1:1", 1), 0);
    const wr_kind *kind = loaded(copy_of(WEIR_CUBLAS), &commands);
    assert_int_equal(kind->workspace_bytes(kind->self, &caps), row_of(WEIR_CUBLAS)->workspace_bytes(&caps));
}

static void *create_one(void *argument)
{
    const wr_kind *kind = argument;
    void *handle = NULL;
    return kind->create(kind->self, 0, &gfx950, &handle) == 0 ? handle : NULL;
}

/* Of a row that is first used while a create of cuBLAS has changed the variable. */
static size_t wanted_beside_a_create(weir_handle_kind number)
{
    pthread_t thread;
    void *handle = NULL;
    wr_kind *other = NULL;
    standin commands = { 0 };
    const weir_device_caps caps = { .compute_major = 9 };
    wr_kind *kind = loaded(row_of(WEIR_CUBLAS), &commands);
    commands.create_delay_ms(200);
    assert_int_equal(pthread_create(&thread, NULL, create_one, kind), 0);
    while (commands.most_creates() == 0) sched_yield();
    assert_int_equal(wr_library_kind(copy_of(number), &other), WEIR_OK);
    assert_int_equal(other->load(other->self), WEIR_OK);
    const size_t bytes = other->workspace_bytes(other->self, &caps);
    assert_int_equal(pthread_join(thread, &handle), 0);
    assert_non_null(handle);
    destroyed(kind, &commands, handle);
    return bytes;
}

static void what_the_program_asks_for_counts_also_beside_a_create(void **state)
{
    (void)state;
    assert_int_equal(setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:3", 1), 0);
    assert_int_equal(wanted_beside_a_create(WEIR_CUBLAS), 12 * WR_MIB);
    assert_int_equal(unsetenv("CUBLAS_WORKSPACE_CONFIG"), 0);
    assert_int_equal(setenv("HIPBLAS_WORKSPACE_CONFIG", ":32:1", 1), 0);
    assert_int_equal(wanted_beside_a_create(WEIR_ROCBLAS), 32 * WR_KIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_kibibytes_and_pieces),
        cmocka_unit_test(a_text_without_pairs_asks_for_nothing),
        cmocka_unit_test(more_than_any_device_has_is_not_asked_for),
        cmocka_unit_test(nothing_behind_a_text_is_read),
        cmocka_unit_test(workspaces_are_as_large_as_the_environment_asks),
        cmocka_unit_test(a_workspace_that_no_device_has_is_one_of_the_usual_size),
        cmocka_unit_test(what_the_program_asks_for_counts_also_beside_a_create),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
