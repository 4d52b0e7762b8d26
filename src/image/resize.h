#pragma once

// Resampling, bit for bit that of the two official programs.
//
// Source: spec vision.md section 5. Errors: exhausted. Threads: pure functions.

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "image/picture.h"

namespace deepinfer::image {

// The engine's: Pillow's antialiased cubic, a = -0.5, weights of 22 bits, across first and then
// down, with 8 bits between. Requires: sides of at least 1.
Result<Picture> resize_native(const Picture& picture, Size size);

// The front end's: OpenCV's cubic of four taps, a = -0.75, weights of 11 bits, no antialiasing,
// edges repeated.
Result<Picture> resize_api(const Picture& picture, Size size);

// What one output sample reads along an axis.
struct Taps {
  std::vector<int32_t> first;    // [outputs], index of the first input; api: may lie outside
  std::vector<uint32_t> count;   // [outputs]
  std::vector<int32_t> weights;  // [outputs][stride]
  size_t stride = 0;
};
Taps native_taps(uint32_t inputs, uint32_t outputs);
Taps api_taps(uint32_t inputs, uint32_t outputs);

}  // namespace deepinfer::image
