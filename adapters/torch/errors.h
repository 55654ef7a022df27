/*
 * errors: weir's failures as the exceptions that PyTorch's Python side understands. Nothing of PyTorch is needed to build
 * this: what its OutOfMemoryError is made of is looked for, by name, in the library that the process has loaded.
 */
#ifndef WEIR_ADAPTERS_TORCH_ERRORS_H
#define WEIR_ADAPTERS_TORCH_ERRORS_H

#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether running out of memory is PyTorch's own OutOfMemoryError here; else it is a std::bad_alloc with weir's text. */
WEIR_API bool weir_torch_raises_its_own(void);

#ifdef __cplusplus
}

/* Throws for what went wrong; a good status returns. Statuses that no call of weir gave come with their own text. */
void wa_torch_check(weir_status status, const char *text = nullptr);
#endif
#endif
