/*
 * A stand-in for PyTorch's exceptions: c10::Error and its OutOfMemoryError, with the constructor that PyTorch 2.11
 * exports, and with members that a copy would carry along. Built as libc10.so and libc10_cuda.so.
 */
#ifndef WEIR_TESTS_ADAPTERS_C10_H
#define WEIR_TESTS_ADAPTERS_C10_H

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#define STANDIN_API __attribute__((visibility("default")))

namespace c10
{

struct SourceLocation {
    const char *function;
    const char *file;
    uint32_t line;
};

class STANDIN_API Error : public std::exception
{
  public:
    Error(SourceLocation where, std::string message);
    ~Error() override;
    const char *what() const noexcept override;

  private:
    std::string message_, what_;
    std::vector<std::string> context_;
};

class STANDIN_API OutOfMemoryError : public Error
{
    using Error::Error;
};

/* How many errors have not been destroyed. */
STANDIN_API int errors_alive();

/* Defined in libc10_cuda.so, so that the class lives there. */
STANDIN_API void throw_out_of_memory(const std::string &message);

} // namespace c10

#endif
