#pragma once

// Picture files to samples: JPEG, PNG, GIF and WebP, told apart by their first bytes.
//
//   Picture picture = TRY(decode(file, {.side_limit = 4096}, "image 0"));
//
// Sides are read from the header and refused before any memory for pixels exists; whatever is
// damaged or incomplete is refused, bytes after the end marker are fine. Orientation, colour
// profiles and gamma are ignored; of an animation the first frame counts. JPEG and WebP give the
// values of libjpeg-turbo (slow integer IDCT, triangle chroma upsampling) and libwebp.
// Source: spec vision.md section 3.
//
// Memory: 3 bytes a pixel for the result, and while decoding at most 4 more for interlaced and
// transparent files, 6 for progressive JPEG. Errors: image/fault.h, or exhausted.
// Threads: pure functions.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "image/picture.h"

namespace deepinfer::image {

enum class Format : uint8_t { jpeg, png, gif, webp };
std::optional<Format> recognise(std::span<const std::byte> file);

// What becomes of alpha and of 16 bits.
enum class SampleRule : uint8_t {
  blend,  // alpha onto 0xFDFDFD, v / 257 rounded
  strip,  // alpha dropped and the high byte; 16-bit grey clipped to 255 (Pillow's convert("RGB"))
};

struct DecodeOptions {
  uint32_t side_limit = 8192;
  SampleRule samples = SampleRule::blend;
};

// thing: the place that errors name.
Result<Picture> decode(std::span<const std::byte> file, const DecodeOptions& options,
                       const std::string& thing);

}  // namespace deepinfer::image
