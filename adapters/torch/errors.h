/*
 * errors: weir's failures as the exceptions that PyTorch's Python side understands. Building this needs nothing of
 * PyTorch: the parts of its OutOfMemoryError are found by symbol name in the library that the process has loaded.
 */
#ifndef WEIR_ADAPTERS_TORCH_ERRORS_H
#define WEIR_ADAPTERS_TORCH_ERRORS_H

#include <cstddef>
#include <string>
#include <weir/weir.h>

/* Whether running out of memory throws PyTorch's own OutOfMemoryError; else it throws a std::bad_alloc with weir's
 * text. */
extern "C" WEIR_API bool weir_torch_raises_its_own(void);

/* For a request of so many bytes. Programs tell the error by the sentences with which PyTorch's own text begins, and
 * take the numbers from them, so this one begins with them; `text` follows. */
[[noreturn]] void wa_torch_throw_out_of_memory(int device, size_t bytes, const std::string &text);

/* Throws unless the status is WEIR_OK, which a call in this thread has just returned. `text`: the reason, if it is not
 * weir_error_text(). */
void wa_torch_check(weir_status status, const char *text = nullptr);

#endif
