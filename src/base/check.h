#pragma once

// check(condition) states what must hold if the code has no bug. When it does not, the process
// ends with the place and the detail on stderr, in every build. What the world may get wrong
// (files, network, user input) is a Result<T> instead, see base/result.h.
//
// Threads: any.

#include <source_location>

namespace deepinfer {

[[noreturn]] void check_failed(const char* detail, std::source_location where) noexcept;

inline void check(bool condition, const char* detail = "",
                  std::source_location where = std::source_location::current()) noexcept {
  if (!condition) [[unlikely]]
    check_failed(detail, where);
}

}  // namespace deepinfer
