// Fuzzes picture files: whatever the bytes, a picture that is accepted keeps its limits, and its
// grid and patches agree.

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "image/prepare.h"

using namespace deepinfer;
using namespace deepinfer::image;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr uint32_t kSide = 640;  // of the seeds
  // Small grids: what is fuzzed are the decoders.
  const Geometry geometry = {.max_image_tokens = 26, .min_pixels = 7056};
  PrepareOptions options;
  options.decode.side_limit = kSide;
  if (size > 0 && (data[size - 1] & 1) != 0) options.decode.samples = SampleRule::strip;
  const Result<PreparedImage> prepared =
      prepare_image({reinterpret_cast<const std::byte*>(data), size}, geometry, options, "input");
  if (!prepared.ok()) {
    check(!prepared.error().text().empty());
    return 0;
  }
  const PreparedImage& image = prepared.value();
  check(image.source.width >= 1 && image.source.width <= kSide);
  check(image.source.height >= 1 && image.source.height <= kSide);
  check(image.layout.tokens <= geometry.max_image_tokens);
  check(image.patches.size() == size_t{3} * image.layout.grid.width * image.layout.grid.height);
  return 0;
}
