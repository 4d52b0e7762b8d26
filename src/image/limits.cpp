#include "image/limits.h"

#include <fmt/format.h>

#include "image/fault.h"

namespace deepinfer::image {
namespace {

constexpr double kMega = 1024.0 * 1024.0;

}  // namespace

Result<void> check_request(const ImageLimits& limits, std::span<const size_t> bytes,
                           const std::string& thing) {
  if (bytes.size() > limits.images) {
    return image_error(ImageFault::too_many_images, thing,
                       fmt::format("{} images, the limit is {}", bytes.size(), limits.images));
  }
  size_t total = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > limits.image_bytes) {
      return image_error(ImageFault::image_too_large, thing,
                         fmt::format("image {} has {:.2f} MB, the limit is {:.0f} MB", i,
                                     static_cast<double>(bytes[i]) / kMega,
                                     static_cast<double>(limits.image_bytes) / kMega));
    }
    total += bytes[i];
  }
  if (total > limits.request_bytes) {
    return image_error(ImageFault::total_size_too_large, thing,
                       fmt::format("the images have {:.2f} MB, the limit is {:.0f} MB",
                                   static_cast<double>(total) / kMega,
                                   static_cast<double>(limits.request_bytes) / kMega));
  }
  return {};
}

}  // namespace deepinfer::image
