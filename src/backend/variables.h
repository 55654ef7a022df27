/*
 * variables: the environment variables that name files of drivers and libraries, WEIR_LIB_<NAME>. Checked, because with
 * a misspelt one the library would silently be found elsewhere. No state.
 */
#ifndef WR_BACKEND_VARIABLES_H
#define WR_BACKEND_VARIABLES_H

#include "base/status.h"

/* WEIR_ERR_OPTION names the first variable that belongs to no driver and no kind of handle, and the nearest known one.
 * `environment`: strings "NAME=value", NULL-terminated; NULL: none. */
WR_CHECKED weir_status wr_variables_check(const char *const *environment);

#endif
