/*
 * Variables that name files of drivers and libraries, and the messages about those that name none.
 */
#include "unit/library_support.h"

#include "backend/variables.h"

#define REFUSED(variable, meant)                                                                                       \
    do {                                                                                                               \
        const char *const environment_[] = { "PATH=/bin", "WEIR_LIB_CUDA=", variable, NULL };                          \
        assert_int_equal(wr_variables_check(environment_), WEIR_ERR_OPTION);                                           \
        assert_non_null(strstr(weir_error_text(), "the nearest is " meant ";"));                                       \
    } while (0)

static void variables_of_drivers_and_kinds_are_accepted(void **state)
{
    (void)state;
    char variable[64];
    const char *const drivers[] = { "WEIR_LIB_CUDA=/lib/libcuda.so.1", "WEIR_LIB_HIP=", "WEIR_LIBRARY=x", NULL };
    assert_int_equal(wr_variables_check(NULL), WEIR_OK);
    assert_int_equal(wr_variables_check(drivers), WEIR_OK);
    for (int i = 0; i < KINDS; i++) {
        const char *const environment[] = { variable, NULL };
        variable_of(row_of(kinds[i]), variable);
        assert_int_equal(wr_variables_check(environment), WEIR_OK);
    }
}

static void unknown_variables_are_refused_with_the_nearest_name(void **state)
{
    (void)state;
    REFUSED("WEIR_LIB_CUSPRASE=/opt/libcusparse.so", "WEIR_LIB_CUSPARSE");
    REFUSED("WEIR_LIB_CUSOLVER_DN=/opt/libcusolver.so", "WEIR_LIB_CUSOLVER");
    REFUSED("WEIR_LIB_ROCBLASS", "WEIR_LIB_ROCBLAS");
    REFUSED("WEIR_LIB_=x", "WEIR_LIB_HIP");
}

static void opening_refuses_an_unknown_variable(void **state)
{
    (void)state;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "host";
    assert_int_equal(setenv("WEIR_LIB_CUDNNN", "/opt/libcudnn.so", 1), 0);
    assert_int_equal(weir_open(&settings), WEIR_ERR_OPTION);
    assert_non_null(strstr(weir_error_text(), "WEIR_LIB_CUDNNN does not name a library that weir loads; the nearest is "
                                              "WEIR_LIB_CUDNN;"));
    assert_int_equal(unsetenv("WEIR_LIB_CUDNNN"), 0);
    assert_int_equal(weir_open(&settings), WEIR_OK);
    assert_int_equal(weir_close(), WEIR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_of_drivers_and_kinds_are_accepted),
        cmocka_unit_test(unknown_variables_are_refused_with_the_nearest_name),
        cmocka_unit_test(opening_refuses_an_unknown_variable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
