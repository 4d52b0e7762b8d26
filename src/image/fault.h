#pragma once

// ImageFault: why a picture was refused, in the words that clients of the hosted service know.
//
// The word stands first in the error's text, after the place that the caller named:
//   messages.0.content[1].image[0]: Decode: the PNG data are cut short
// Source: spec vision.md section 12. Threads: pure functions.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace deepinfer::image {

enum class ImageFault : uint8_t {
  unsupported_media_type,      // neither JPEG, PNG, GIF nor WebP
  empty_image,                 // no bytes
  decode,                      // damaged, cut short, or a side of zero
  image_dimensions_too_large,  // a side above the limit
  too_many_images,             // in a request
  image_too_large,             // encoded bytes
  total_size_too_large,        // encoded bytes of a request
  token_budget,                // the layout does not settle
  image_count_mismatch,        // placeholders of the prompt and images differ
};

// "UnsupportedMediaType", "EmptyImage", "Decode", ...
std::string_view fault_name(ImageFault fault);

Error image_error(ImageFault fault, std::string thing, std::string_view what);

// The fault of an error that image_error() made.
std::optional<ImageFault> fault_of(const Error& error);

}  // namespace deepinfer::image
