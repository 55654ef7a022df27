/*
 * errors: weir's failures as the exceptions that PyTorch's Python side understands. Building this needs nothing of
 * PyTorch: the parts of its OutOfMemoryError are found by symbol name in the library that the process has loaded.
 */
#ifndef WEIR_ADAPTERS_TORCH_ERRORS_H
#define WEIR_ADAPTERS_TORCH_ERRORS_H

#include <string>
#include <weir/weir.h>

/* Whether running out of memory throws PyTorch's own OutOfMemoryError; else it throws a std::bad_alloc with weir's
 * text. */
extern "C" WEIR_API bool weir_torch_raises_its_own(void);

/* `text`: the reason. */
[[noreturn]] void wa_torch_throw(weir_status status, const std::string &text);

/* Throws unless the status is WEIR_OK. `text`: the reason, if it is not weir_error_text(). */
void wa_torch_check(weir_status status, const char *text = nullptr);

#endif
