/*
 * dl: finding a shared library at run time. The only place that calls dlopen. Thread safe; libraries stay loaded
 * until wr_dl_close.
 */
#ifndef WR_BASE_DL_H
#define WR_BASE_DL_H

#include "base/status.h"

/*
 * Loads the library `name` ("cuda"): the path in the environment variable WEIR_LIB_<NAME> if set (and then nothing
 * else), otherwise the first of `sonames` (NULL-terminated, best first) that loads. WEIR_ERR_NO_LIBRARY lists what
 * was tried with the loader's reasons and names the variable.
 */
WR_CHECKED weir_status wr_dl_open(const char *name, const char *const *sonames, void **library);

/* WEIR_ERR_INCOMPATIBLE names the symbol and the library's file. */
WR_CHECKED weir_status wr_dl_symbol(void *library, const char *name, const char *symbol, void **address);

/* NULL is fine. */
void wr_dl_close(void *library);

#endif
