#include "image/fault.h"

#include <array>
#include <utility>

namespace deepinfer::image {
namespace {

// In the order of ImageFault.
constexpr std::array<std::string_view, 9> kNames = {
    "UnsupportedMediaType",    "EmptyImage",    "Decode",
    "ImageDimensionsTooLarge", "TooManyImages", "ImageTooLarge",
    "TotalSizeTooLarge",       "TokenBudget",   "ImageCountMismatch"};

}  // namespace

std::string_view fault_name(ImageFault fault) { return kNames[static_cast<size_t>(fault)]; }

Error image_error(ImageFault fault, std::string thing, std::string_view what) {
  const ErrorKind kind =
      fault == ImageFault::token_budget ? ErrorKind::internal : ErrorKind::invalid;
  std::string text(fault_name(fault));
  text.append(": ").append(what);
  return {kind, std::move(thing), std::move(text), ""};
}

std::optional<ImageFault> fault_of(const Error& error) {
  const std::string_view what = error.what;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (what.starts_with(kNames[i]) && what.substr(kNames[i].size()).starts_with(": ")) {
      return static_cast<ImageFault>(i);
    }
  }
  return std::nullopt;
}

}  // namespace deepinfer::image
