/*
 * dl: finding a shared library at run time. The only place that calls dlopen. Thread safe; libraries stay loaded
 * until wr_dl_close.
 */
#ifndef WR_BASE_DL_H
#define WR_BASE_DL_H

#include "base/status.h"

#include <stddef.h>

/*
 * Loads the library `name` ("cuda"): the path in the environment variable WEIR_LIB_<NAME> if set (and then nothing
 * else); otherwise the first of `sonames` (NULL-terminated, best first) that is in the process already; otherwise the
 * first that loads. WEIR_ERR_NO_LIBRARY lists what was tried with the loader's reasons and names the variable.
 */
WR_CHECKED weir_status wr_dl_open(const char *name, const char *const *sonames, void **library);

/* That variable's name. */
#define WR_DL_VARIABLE 48
void wr_dl_variable(const char *name, char variable[WR_DL_VARIABLE]);

/* WEIR_ERR_INCOMPATIBLE names the symbol and the library's file. */
WR_CHECKED weir_status wr_dl_symbol(void *library, const char *name, const char *symbol, void **address);

/* The same for a symbol that may be absent: NULL then, and no error text. */
void *wr_dl_find(void *library, const char *symbol);

/* The path of the library's file; empty when the loader does not tell. */
void wr_dl_file(void *library, char *file, size_t size);

/* A library that is in the process already, by its soname; NULL when it is not. Close it with wr_dl_close(), like one
 * from wr_dl_open(). */
void *wr_dl_present(const char *soname);

/* NULL is fine. */
void wr_dl_close(void *library);

#endif
