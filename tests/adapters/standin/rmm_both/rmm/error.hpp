/* A stand-in for RMM's header of the same name: what weir/rmm.hpp uses of it. */
#ifndef STANDIN_RMM_ERROR_HPP
#define STANDIN_RMM_ERROR_HPP

#include <new>
#include <string>

namespace rmm
{

class bad_alloc : public std::bad_alloc
{
  public:
    bad_alloc(const std::string &text) : text_("std::bad_alloc: " + text) {}
    const char *what() const noexcept override
    {
        return text_.c_str();
    }

  private:
    std::string text_;
};

class out_of_memory : public bad_alloc
{
  public:
    out_of_memory(const std::string &text) : bad_alloc("out_of_memory: " + text) {}
};

} // namespace rmm

#endif
