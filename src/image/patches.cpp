#include "image/patches.h"

#include <algorithm>
#include <new>
#include <span>
#include <string_view>

namespace deepinfer::image {
namespace {

constexpr uint8_t kPadValue = 127;
constexpr std::string_view kDigestTag("dsv-image-1\0", 12);

std::array<uint16_t, 256> make_table() {
  std::array<uint16_t, 256> table;
  for (size_t v = 0; v < table.size(); ++v) {
    const float scaled = static_cast<float>(v) / 255.0f;
    table[v] = f32_to_bf16((scaled - 0.5f) / 0.5f);
  }
  return table;
}

void put_word(std::array<std::byte, 8>& words, size_t at, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) words[at + i] = static_cast<std::byte>(value >> (8 * i) & 0xFF);
}

}  // namespace

const std::array<uint16_t, 256>& pixel_table() {
  static const std::array<uint16_t, 256> table = make_table();
  return table;
}

Result<Picture> pad_to_grid(const Picture& picture, Size grid) {
  check(picture.size.width <= grid.width && picture.size.height <= grid.height, "grid too small");
  Picture out = TRY(Picture::create(grid));
  std::fill_n(out.row(0), out.bytes(), kPadValue);
  const auto left = static_cast<size_t>(round_half_even((grid.width - picture.size.width) * 0.5));
  const auto top = static_cast<size_t>(round_half_even((grid.height - picture.size.height) * 0.5));
  for (uint32_t y = 0; y < picture.size.height; ++y) {
    std::copy_n(picture.row(y), picture.stride(), out.row(top + y) + 3 * left);
  }
  return out;
}

Result<std::vector<uint16_t>> make_patches(const Picture& grid, uint32_t patch) {
  check(patch > 0 && grid.size.width % patch == 0 && grid.size.height % patch == 0, "grid");
  const std::array<uint16_t, 256>& table = pixel_table();
  const uint32_t columns = grid.size.width / patch, rows = grid.size.height / patch;
  std::vector<uint16_t> patches;
  try {
    patches.resize(grid.bytes());
  } catch (const std::bad_alloc&) {
    return Error::exhausted("patches", "no memory");
  }
  uint16_t* out = patches.data();
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t column = 0; column < columns; ++column) {
      for (size_t channel = 0; channel < 3; ++channel) {
        for (uint32_t y = 0; y < patch; ++y) {
          const uint8_t* sample =
              grid.row(size_t{row} * patch + y) + size_t{column} * patch * 3 + channel;
          for (uint32_t x = 0; x < patch; ++x) *out++ = table[sample[size_t{x} * 3]];
        }
      }
    }
  }
  return patches;
}

Sha256Digest image_digest(const Picture& grid, const Layout& layout) {
  std::array<std::byte, 8> words;
  put_word(words, 0, layout.vit_w);
  put_word(words, 4, layout.vit_h);
  Sha256 hash;
  hash.update(std::as_bytes(std::span(kDigestTag)));
  hash.update(words);
  hash.update({grid.rgb.data(), grid.bytes()});
  return hash.finish();
}

}  // namespace deepinfer::image
