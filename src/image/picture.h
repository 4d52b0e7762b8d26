#pragma once

// Picture: decoded samples, 8 bits, red, green, blue, rows from the top.
//
// Threads: a plain value.

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "tensor/tensor.h"

namespace deepinfer::image {

struct Size {
  uint32_t width = 0;
  uint32_t height = 0;
  bool operator==(const Size&) const = default;
};

struct Picture {
  Size size;
  Buffer rgb;  // [height][width][3]

  // Samples zero. Fails (exhausted) when there is no memory. Requires: sides that were checked.
  static Result<Picture> create(Size size) {
    Picture picture;
    picture.size = size;
    picture.rgb = TRY(Buffer::create(size_t{size.width} * size.height * 3));
    return picture;
  }
  size_t stride() const { return size_t{size.width} * 3; }
  size_t bytes() const { return stride() * size.height; }
  uint8_t* row(size_t y) { return rgb.as<uint8_t>() + y * stride(); }
  const uint8_t* row(size_t y) const { return rgb.as<uint8_t>() + y * stride(); }
};

}  // namespace deepinfer::image
