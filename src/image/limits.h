#pragma once

// What a request's pictures may cost, checked before anything is decoded. Defaults: spec vision.md
// 3.1, the hosted service's.
//
// Threads: plain values, pure functions.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace deepinfer::image {

struct ImageLimits {
  size_t images = 600;                      // of a request
  size_t image_bytes = size_t{32} << 20;    // encoded; as many are allowed
  size_t request_bytes = size_t{64} << 20;  // encoded, all together
  uint32_t side = 8192;                     // of a picture
  size_t crowd = 15;                        // from so many pictures on
  uint32_t crowd_side = 4096;               // the side may be this at most

  uint32_t side_for(size_t images_of_request) const {
    return images_of_request < crowd ? side : crowd_side;
  }
};

// bytes: the encoded size of each image of a request. thing: the place the errors name.
Result<void> check_request(const ImageLimits& limits, std::span<const size_t> bytes,
                           const std::string& thing);

}  // namespace deepinfer::image
