#pragma once

// prepare_image(): the bytes of a picture file to what the model and the prompt need, as plain
// data.
//
//   const Geometry geometry = {.patch = config.patch, ...};  // of vision_config
//   PreparedImage image = TRY(prepare_image(file, geometry, {}, "image 0"));
//   // image.patches to the encoder, image.layout to the prompt, image.digest to the prefix cache
//
// Source: spec vision.md section 2. Errors: image/fault.h, or exhausted. Threads: pure functions.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "image/decode.h"
#include "image/layout.h"

namespace deepinfer::image {

// Whose layout and resampling.
enum class Profile : uint8_t {
  native,  // the engine's: one pass, antialiased
  api,     // the hosted service's front end: stable layout, four taps
};
enum class Detail : uint8_t { high, low };

struct PrepareOptions {
  DecodeOptions decode = {};
  Profile profile = Profile::native;
  Detail detail = Detail::high;
};

struct PreparedImage {
  Size source;  // as decoded
  Layout layout;
  Sha256Digest digest{};
  std::vector<uint16_t> patches;  // bf16 [vit_h * vit_w][3 * patch * patch]
};

// thing: the place that errors name.
Result<PreparedImage> prepare_image(std::span<const std::byte> file, const Geometry& geometry,
                                    const PrepareOptions& options, const std::string& thing);

// A decoded picture resized for its layout, not padded yet.
struct FittedPicture {
  Layout layout;
  Picture picture;
};
Result<FittedPicture> fit_picture(Picture picture, const Geometry& geometry, Profile profile,
                                  const std::string& thing);

}  // namespace deepinfer::image
