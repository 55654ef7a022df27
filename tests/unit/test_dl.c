#include "base/dl.h"

#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log_support.h"

static const char *const math[] = { "libm.so.6", NULL };
static const char *const absent[] = { "libweir_absent.so.2", "libweir_absent.so", NULL };

static int forget_variable(void **state)
{
    (void)state;
    return unsetenv("WEIR_LIB_DL_TEST");
}

static void opens_a_library_and_finds_its_symbols(void **state)
{
    (void)state;
    void *library, *address;
    assert_int_equal(wr_dl_open("dl_test", math, &library), WEIR_OK);
    assert_int_equal(wr_dl_symbol(library, "dl_test", "cos", &address), WEIR_OK);
    double (*cosine)(double);
    memcpy(&cosine, &address, sizeof cosine);
    assert_true(cosine(0) == 1);
    wr_dl_close(library);
}

static void a_file_that_was_named_and_does_not_load_is_logged_and_one_that_is_absent_is_not(void **state)
{
    (void)state;
    void *library = NULL;
    atomic_store(&wr_log_threshold, WR_LOG_WARN);
    begin_log();
    assert_int_equal(wr_dl_open("dl_test", absent, &library), WEIR_ERR_NO_LIBRARY);
    assert_string_equal(end_log(), "");
    setenv("WEIR_LIB_DL_TEST", "/nonexistent/libdl_test.so", 1);
    begin_log();
    assert_int_equal(wr_dl_open("dl_test", math, &library), WEIR_ERR_NO_LIBRARY);
    assert_non_null(strstr(end_log(), "/nonexistent/libdl_test.so cannot be loaded: "));
    atomic_store(&wr_log_threshold, WR_LOG_OFF);
    assert_null(library);
}

static void a_file_that_lacks_another_is_logged(void **state)
{
    (void)state;
    static const char *const names[] = { "libincomplete.so", NULL };
    void *library = NULL;
    atomic_store(&wr_log_threshold, WR_LOG_WARN);
    begin_log();
    assert_int_equal(wr_dl_open("dl_test", names, &library), WEIR_ERR_NO_LIBRARY);
    assert_non_null(strstr(end_log(), "libincomplete.so cannot be loaded: liblacking.so"));
    atomic_store(&wr_log_threshold, WR_LOG_OFF);
    assert_non_null(strstr(weir_error_text(), "\n  libincomplete.so: liblacking.so"));
    assert_null(library);
}

static void takes_the_first_name_that_loads(void **state)
{
    (void)state;
    static const char *const names[] = { "libweir_absent.so", "libm.so.6", "libweir_absent_too.so", NULL };
    void *library, *address;
    assert_int_equal(wr_dl_open("dl_test", names, &library), WEIR_OK);
    assert_int_equal(wr_dl_symbol(library, "dl_test", "cos", &address), WEIR_OK);
    wr_dl_close(library);
}

static void prefers_a_library_in_the_process_to_an_earlier_name(void **state)
{
    (void)state;
    static const char *const names[] = { "libanl.so.1", "libc.so.6", NULL };
    void *library;
    char file[256];
    assert_int_equal(wr_dl_open("dl_test", names, &library), WEIR_OK);
    wr_dl_file(library, file, sizeof file);
    assert_non_null(strstr(file, "/libc.so.6"));
    wr_dl_close(library);
}

static void a_symbol_that_may_be_absent_leaves_no_error(void **state)
{
    (void)state;
    void *library;
    assert_int_equal(wr_dl_open("dl_test", math, &library), WEIR_OK);
    assert_int_equal(wr_dl_open("dl_test", absent, &(void *){ NULL }), WEIR_ERR_NO_LIBRARY);
    char text[1024];
    snprintf(text, sizeof text, "%s", weir_error_text());
    assert_null(wr_dl_find(library, "weir_no_such_symbol"));
    assert_string_equal(weir_error_text(), text);
    assert_non_null(wr_dl_find(library, "cos"));
    wr_dl_close(library);
}

static void failure_lists_each_candidate_and_names_the_variable(void **state)
{
    (void)state;
    int mark;
    void *library = &mark;
    assert_int_equal(wr_dl_open("dl_test", absent, &library), WEIR_ERR_NO_LIBRARY);
    assert_ptr_equal(library, &mark);
    const char *text = weir_error_text();
    assert_non_null(strstr(text, "library dl_test not found"));
    assert_non_null(strstr(text, "set WEIR_LIB_DL_TEST"));
    assert_non_null(strstr(text, "\n  libweir_absent.so.2: cannot open shared object file"));
    assert_non_null(strstr(text, "\n  libweir_absent.so: cannot open shared object file"));
}

static void the_variable_names_the_library(void **state)
{
    (void)state;
    void *library, *address;
    assert_int_equal(setenv("WEIR_LIB_DL_TEST", "libm.so.6", 1), 0);
    assert_int_equal(wr_dl_open("dl_test", absent, &library), WEIR_OK);
    assert_int_equal(wr_dl_symbol(library, "dl_test", "cos", &address), WEIR_OK);
    wr_dl_close(library);
}

static void no_other_name_is_tried_when_the_variable_is_set(void **state)
{
    (void)state;
    void *library = NULL;
    assert_int_equal(setenv("WEIR_LIB_DL_TEST", "/nowhere/libx.so", 1), 0);
    assert_int_equal(wr_dl_open("dl_test", math, &library), WEIR_ERR_NO_LIBRARY);
    assert_null(library);
    assert_non_null(strstr(weir_error_text(), "WEIR_LIB_DL_TEST"));
    assert_non_null(strstr(weir_error_text(), "/nowhere/libx.so: cannot open"));
    assert_null(strstr(weir_error_text(), "libm"));
}

static void an_empty_variable_is_refused(void **state)
{
    (void)state;
    void *library = NULL;
    assert_int_equal(setenv("WEIR_LIB_DL_TEST", "", 1), 0);
    assert_int_equal(wr_dl_open("dl_test", math, &library), WEIR_ERR_NO_LIBRARY);
    assert_null(library);
    assert_non_null(strstr(weir_error_text(), "no file name"));
}

static void overlong_reasons_are_cut(void **state)
{
    (void)state;
    char name[400];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    const char *const names[] = { name, name, name, name, NULL };
    void *library;
    assert_int_equal(wr_dl_open("dl_test", names, &library), WEIR_ERR_NO_LIBRARY);
    assert_true(strlen(weir_error_text()) > 700);
}

static void a_missing_symbol_names_itself_and_the_file(void **state)
{
    (void)state;
    int mark;
    void *library, *address = &mark;
    assert_int_equal(wr_dl_open("dl_test", math, &library), WEIR_OK);
    assert_int_equal(wr_dl_symbol(library, "dl_test", "weir_no_such_symbol", &address), WEIR_ERR_INCOMPATIBLE);
    assert_ptr_equal(address, &mark);
    assert_non_null(strstr(weir_error_text(), "weir_no_such_symbol"));
    assert_non_null(strstr(weir_error_text(), "/libm.so.6"));
    assert_non_null(strstr(weir_error_text(), "WEIR_LIB_DL_TEST"));
    wr_dl_close(library);
}

static void a_library_that_is_not_in_the_process_is_not_loaded(void **state)
{
    (void)state;
    void *library = NULL;
    assert_null(wr_dl_present("libweir_no_such_library.so.1"));
    assert_int_equal(wr_dl_open("dl_test", math, &library), WEIR_OK);
    void *present = wr_dl_present(math[0]);
    assert_ptr_equal(present, library);
    wr_dl_close(present);
    wr_dl_close(library);
}

static void close_takes_null(void **state)
{
    (void)state;
    wr_dl_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(opens_a_library_and_finds_its_symbols, forget_variable),
        cmocka_unit_test_teardown(a_file_that_was_named_and_does_not_load_is_logged_and_one_that_is_absent_is_not,
                                  forget_variable),
        cmocka_unit_test_teardown(a_file_that_lacks_another_is_logged, forget_variable),
        cmocka_unit_test_teardown(takes_the_first_name_that_loads, forget_variable),
        cmocka_unit_test_teardown(prefers_a_library_in_the_process_to_an_earlier_name, forget_variable),
        cmocka_unit_test_teardown(a_symbol_that_may_be_absent_leaves_no_error, forget_variable),
        cmocka_unit_test_teardown(failure_lists_each_candidate_and_names_the_variable, forget_variable),
        cmocka_unit_test_teardown(the_variable_names_the_library, forget_variable),
        cmocka_unit_test_teardown(no_other_name_is_tried_when_the_variable_is_set, forget_variable),
        cmocka_unit_test_teardown(an_empty_variable_is_refused, forget_variable),
        cmocka_unit_test_teardown(overlong_reasons_are_cut, forget_variable),
        cmocka_unit_test_teardown(a_missing_symbol_names_itself_and_the_file, forget_variable),
        cmocka_unit_test_teardown(a_library_that_is_not_in_the_process_is_not_loaded, forget_variable),
        cmocka_unit_test_teardown(close_takes_null, forget_variable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
