#include "text/unicode_classes.h"

#include <cstddef>
#include <cstring>
#include <iterator>
#include <memory>

namespace deepinfer::text {
namespace {

// Runs of equal class: first code point << 8 | class.
constexpr uint32_t kRuns[] = {
#include "text/unicode_classes.inc"
};

std::unique_ptr<uint8_t[]> expand() {
  auto classes = std::make_unique<uint8_t[]>(kCodePoints);
  for (size_t i = 0; i < std::size(kRuns); ++i) {
    const uint32_t first = kRuns[i] >> 8;
    const uint32_t end = i + 1 < std::size(kRuns) ? kRuns[i + 1] >> 8 : kCodePoints;
    std::memset(classes.get() + first, static_cast<int>(kRuns[i] & 0xff), end - first);
  }
  return classes;
}

}  // namespace

const uint8_t* unicode_classes() {
  static const std::unique_ptr<uint8_t[]> classes = expand();
  return classes.get();
}

}  // namespace deepinfer::text
