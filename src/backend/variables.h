/*
 * variables: the environment variables that name files of drivers and libraries, WEIR_LIB_<NAME>. One that is misspelt
 * would leave the library to be found elsewhere, without a word. No state.
 */
#ifndef WR_BACKEND_VARIABLES_H
#define WR_BACKEND_VARIABLES_H

#include "base/status.h"

/* WEIR_ERR_OPTION names the first that is of no driver and no kind of handles, and the nearest that is. `environment`: of
 * "NAME=value", NULL-terminated; NULL: none. */
WR_CHECKED weir_status wr_variables_check(const char *const *environment);

#endif
