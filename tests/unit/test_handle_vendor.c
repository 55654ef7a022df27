/*
 * The built-in kinds in their pools: get, rebind, hand over, run out of memory, close, on stand-ins of the vendors'
 * libraries.
 */
#include "library_support.h"

#include "handle_support.h"

static standin commands[KINDS];

static int find_all(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) (void)loaded(row_of(kinds[i]), &commands[i]);
    return 0;
}

static standin *commands_of(weir_handle_kind kind)
{
    int i = 0;
    while (kinds[i] != kind) i++;
    return &commands[i];
}

static int start(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) commands[i].reset();
    open_host((weir_settings){ .host_memory = 512 * MIB });
    return 0;
}

static int end(void **state)
{
    close_host(state);
    for (int i = 0; i < KINDS; i++) {
        assert_int_equal(commands[i].live(), 0);
        assert_int_equal(commands[i].misuse(), 0);
    }
    return 0;
}

static void *get_kind(weir_handle_kind kind, weir_stream stream)
{
    void *handle = NULL;
    if (weir_handle_get_on(kind, stream, &handle) != WEIR_OK) fail_msg("%s: %s", row_of(kind)->name, weir_error_text());
    return handle;
}

static weir_handle_stats stats_of_kind(weir_handle_kind kind)
{
    weir_handle_stats stats = { .size = sizeof stats };
    assert_ok(weir_handle_stats_get(kind, 0, &stats));
    return stats;
}

static void every_kind_is_got_rebound_handed_over_and_trimmed(void **state)
{
    (void)state;
    weir_stream a = new_stream(0), b = new_stream(0);
    for (int i = 0; i < KINDS; i++) {
        const bool told = row_of(kinds[i])->set_stream != NULL, streams = told || row_of(kinds[i])->has_own_memory;
        holder h;
        library named = { .kind = kinds[i] };
        void *handle = get_kind(kinds[i], a);
        assert_ptr_equal(get_kind(kinds[i], b), handle);
        if (told) assert_ptr_equal(commands[i].handle_stream(handle), native_of(b));
        assert_int_equal(stats_of_kind(kinds[i]).rebinds, streams ? 2 : 0);
        assert_ok(weir_handle_release(kinds[i], 0));
        holder_start(&h, &named, a);
        assert_ptr_equal(holder_handle(&h), handle);
        holder_end(&h);
        assert_int_equal(commands[i].live(), 1);
        assert_int_equal(trim(&named, 0), 1);
        assert_int_equal(commands[i].live(), 0);
    }
}

static void cublas_works_in_memory_of_weirs_after_each_set_stream(void **state)
{
    (void)state;
    const standin *cublas = commands_of(WEIR_CUBLAS);
    weir_stream a = new_stream(0), b = new_stream(0);
    void *handle = get_kind(WEIR_CUBLAS, a), *on_a = cublas->handle_workspace(handle);
    assert_int_equal(info_of(on_a).stream.id, a.id);
    (void)get_kind(WEIR_CUBLAS, b);
    assert_int_equal(info_of(cublas->handle_workspace(handle)).stream.id, b.id);
    (void)get_kind(WEIR_CUBLAS, a);
    assert_ptr_equal(cublas->handle_workspace(handle), on_a);
    assert_int_equal(stats_of_kind(WEIR_CUBLAS).workspace_bytes, 2 * cublas->handle_workspace_bytes(handle));
    assert_int_equal(stats_of(0).requested_bytes[WEIR_STAT_ALL].current, stats_of_kind(WEIR_CUBLAS).workspace_bytes);
}

static void memory_that_libraries_take_comes_from_weir(void **state)
{
    (void)state;
    const weir_handle_kind fed[] = { WEIR_CUDSS, WEIR_MIOPEN };
    for (int i = 0; i < 2; i++) {
        const standin *library = commands_of(fed[i]);
        weir_stream a = new_stream(0);
        void *handle = get_kind(fed[i], a), *memory = library->use_memory(handle, 5 * MIB);
        assert_non_null(memory);
        assert_int_equal(info_of(memory).stream.id, a.id);
        (void)get_kind(fed[i], new_stream(0)); /* and is freed there, when the library is closed */
    }
}

static void a_create_without_device_memory_is_tried_again(void **state)
{
    (void)state;
    standin *cublas = commands_of(WEIR_CUBLAS);
    assert_ok(weir_free(alloc(100 * MIB)));
    cublas->refuse("cublasCreate_v2", 1, row_of(WEIR_CUBLAS)->out_of_memory[0]);
    (void)get_kind(WEIR_CUBLAS, WEIR_STREAM_CURRENT);
    assert_int_equal(cublas->count("cublasCreate_v2"), 2);
    assert_int_equal(stats_of_kind(WEIR_CUBLAS).failed_creates, 0);
}

static void a_librarys_refusal_is_reported_in_its_words(void **state)
{
    (void)state;
    void *handle = NULL;
    weir_error error = { .size = sizeof error };
    commands_of(WEIR_CUSPARSE)->refuse("cusparseCreate", 1, 6);
    assert_status(weir_handle_get(WEIR_CUSPARSE, &handle), WEIR_ERR_LIBRARY);
    assert_ok(weir_last_error(&error));
    assert_string_equal(error.library, "cusparse");
    assert_int_equal(error.native_code, 6);
    const char *backend = NULL;
    assert_ok(weir_backend_name(&backend));
    assert_int_equal(strstr(error.text, "the host back end is in use") != NULL, strcmp(backend, "host") == 0);
    assert_non_null(strstr(error.text, "cusparse: create failed with 6"));
    (void)get_kind(WEIR_CUSPARSE, WEIR_STREAM_CURRENT);
}

static void a_built_in_kind_is_described(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        weir_handle_kind_info info = { .size = sizeof info };
        assert_ok(weir_handle_kind_info_get(kinds[i], &info));
        assert_string_equal(info.name, row_of(kinds[i])->name);
        assert_non_null(strstr(info.library, WEIR_TEST_STANDINS));
    }
}

#define VENDOR_TEST(test) cmocka_unit_test_setup_teardown(test, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        VENDOR_TEST(every_kind_is_got_rebound_handed_over_and_trimmed),
        VENDOR_TEST(cublas_works_in_memory_of_weirs_after_each_set_stream),
        VENDOR_TEST(memory_that_libraries_take_comes_from_weir),
        VENDOR_TEST(a_create_without_device_memory_is_tried_again),
        VENDOR_TEST(a_librarys_refusal_is_reported_in_its_words),
        VENDOR_TEST(a_built_in_kind_is_described),
    };
    return cmocka_run_group_tests(tests, find_all, NULL);
}
