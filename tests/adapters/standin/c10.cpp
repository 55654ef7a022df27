#include "c10.h"

#include <atomic>

namespace
{

std::atomic<int> alive;

} // namespace

c10::Error::Error(SourceLocation where, std::string message)
    : message_(std::move(message)), what_(message_ + " (in " + where.function + ")")
{
    context_.push_back(where.file);
    alive++;
}

c10::Error::~Error()
{
    alive--;
}

const char *c10::Error::what() const noexcept
{
    return what_.c_str();
}

int c10::errors_alive()
{
    return alive;
}
