#include "image/decode.h"

#include <fmt/format.h>

#include <cstring>

#include "image/decoders.h"

namespace deepinfer::image {
namespace {

bool starts_with(std::span<const std::byte> file, std::string_view magic, size_t at = 0) {
  return file.size() >= at + magic.size() &&
         std::memcmp(file.data() + at, magic.data(), magic.size()) == 0;
}

}  // namespace

std::optional<Format> recognise(std::span<const std::byte> file) {
  if (starts_with(file, "\xFF\xD8\xFF")) return Format::jpeg;
  if (starts_with(file, "\x89PNG\r\n\x1A\n")) return Format::png;
  if (starts_with(file, "GIF")) return Format::gif;
  if (starts_with(file, "RIFF") && starts_with(file, "WEBP", 8)) return Format::webp;
  return std::nullopt;
}

Result<void> DecodeJob::check_sides(uint64_t width, uint64_t height) const {
  if (width == 0 || height == 0) {
    return damaged(fmt::format("the header says {}x{}", width, height));
  }
  if (width > options.side_limit || height > options.side_limit) {
    return image_error(ImageFault::image_dimensions_too_large, thing,
                       fmt::format("the image is {}x{}, the limit of a side is {}", width, height,
                                   options.side_limit));
  }
  return {};
}

void to_rgb(const uint8_t* samples, size_t pixels, int channels, SampleRule rule, uint8_t* rgb) {
  const auto step = static_cast<size_t>(channels);
  const bool colour = channels >= 3;
  const bool blend = (channels == 2 || channels == 4) && rule == SampleRule::blend;
  for (size_t i = 0; i < pixels; ++i, samples += step, rgb += 3) {
    const uint32_t alpha = blend ? samples[step - 1] : 255;
    for (size_t c = 0; c < 3; ++c) {
      const uint32_t value = samples[colour ? c : 0];
      // alpha 255: (255 v + 127) / 255 = v
      rgb[c] = static_cast<uint8_t>((value * alpha + kBackground * (255 - alpha) + 127) / 255);
    }
  }
}

Result<Picture> decode(std::span<const std::byte> file, const DecodeOptions& options,
                       const std::string& thing) {
  const DecodeJob job = {.file = file, .options = options, .thing = thing};
  if (file.empty()) return image_error(ImageFault::empty_image, thing, "there are no bytes");
  const std::optional<Format> format = recognise(file);
  if (!format) {
    return image_error(ImageFault::unsupported_media_type, thing,
                       "the bytes are no image of a known format (known: webp, png, jpeg, gif)");
  }
  switch (*format) {
    case Format::jpeg:
      return decode_jpeg(job);
    case Format::png:
      return decode_png(job);
    case Format::gif:
      return decode_gif(job);
    case Format::webp:
      return decode_webp(job);
  }
  check(false, "format");
  return job.damaged("");
}

}  // namespace deepinfer::image
