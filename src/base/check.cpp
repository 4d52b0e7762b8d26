#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace deepinfer {

void check_failed(const char* detail, std::source_location where) noexcept {
  std::fprintf(stderr, "bug: %s:%u: %s: check failed%s%s\n", where.file_name(), where.line(),
               where.function_name(), detail[0] ? ": " : "", detail);
  std::abort();
}

}  // namespace deepinfer
