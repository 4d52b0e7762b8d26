#pragma once

// The decoders of the formats, and what they share. Internal to the folder.
//
// Threads: pure functions.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "image/decode.h"
#include "image/fault.h"
#include "image/picture.h"

namespace deepinfer::image {

struct DecodeJob {
  std::span<const std::byte> file;
  const DecodeOptions& options;
  const std::string& thing;

  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(file.data()); }
  bool strip() const { return options.samples == SampleRule::strip; }
  Error damaged(std::string_view what) const {
    return image_error(ImageFault::decode, thing, what);
  }
  // Neither side zero nor above the limit.
  Result<void> check_sides(uint64_t width, uint64_t height) const;
};

Result<Picture> decode_jpeg(const DecodeJob& job);
Result<Picture> decode_png(const DecodeJob& job);
Result<Picture> decode_gif(const DecodeJob& job);
Result<Picture> decode_webp(const DecodeJob& job);

// What shows through where nothing is opaque.
inline constexpr uint8_t kBackground = 0xFD;

// samples [pixels][channels] -> rgb [pixels][3]. channels: 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA.
void to_rgb(const uint8_t* samples, size_t pixels, int channels, SampleRule rule, uint8_t* rgb);

}  // namespace deepinfer::image
