#pragma once

#include <string>

namespace deepinfer::apps {

// "deepinfer 0.1.0 (commit abc1234, clang 19.1, isa: ref avx2 ...)".
std::string version_text();

}  // namespace deepinfer::apps
