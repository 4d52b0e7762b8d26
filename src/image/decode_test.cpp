#include "image/decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "image/fault.h"
#include "image/golden_images.h"

namespace deepinfer::image {
namespace {

TEST(Decode, EveryGoldenPictureIsExact) {
  const nlohmann::json golden = golden_json("golden.json");
  ASSERT_EQ(golden["images"].size(), 20u);
  for (const auto& [name, known] : golden["images"].items()) {
    const std::string file = known["file"];
    const std::vector<std::byte> bytes = golden_bytes("images/" + file);
    for (const SampleRule rule : {SampleRule::blend, SampleRule::strip}) {
      const Result<Picture> picture = decode(bytes, {.samples = rule}, file);
      ASSERT_TRUE(picture.ok()) << picture.error().text();
      EXPECT_EQ(picture.value().size, (Size{known["size"][0], known["size"][1]})) << file;
      const char* key = rule == SampleRule::blend ? "rgb_sha256" : "strict_rgb_sha256";
      EXPECT_EQ(digest_of(picture.value()), known[key].get<std::string>()) << file << " " << key;
    }
  }
}

TEST(Decode, EveryBrokenFileHasItsFault) {
  const nlohmann::json golden = golden_json("golden.json");
  ASSERT_EQ(golden["broken"].size(), 18u);
  for (const auto& [file, known] : golden["broken"].items()) {
    const Result<Picture> picture = decode(golden_bytes("broken/" + file), {}, "image 3");
    const std::string expected = known["expect"];
    if (expected == "ok") {
      EXPECT_TRUE(picture.ok()) << file;
      continue;
    }
    ASSERT_FALSE(picture.ok()) << file;
    const Error& error = picture.error();
    ASSERT_TRUE(fault_of(error).has_value()) << error.text();
    EXPECT_EQ(fault_name(*fault_of(error)), expected) << file;
    EXPECT_TRUE(error.text().starts_with("image 3: " + expected + ": ")) << error.text();
  }
}

// A file that ends anywhere before its end is refused, and never read beyond.
TEST(Decode, EveryCutIsRefused) {
  for (const char* file : {"palette_alpha.png", "jpeg_grey_progressive.jpg", "gif_two_frames.gif",
                           "webp_lossless_alpha.webp", "bilevel.png"}) {
    const std::vector<std::byte> whole = golden_bytes(std::string("images/") + file);
    const size_t step = std::max<size_t>(1, whole.size() / 97);
    for (size_t length = 1; length < whole.size(); length += step) {
      const std::vector<std::byte> cut(whole.begin(), whole.begin() + std::ptrdiff_t(length));
      const Result<Picture> picture = decode(cut, {}, file);
      EXPECT_FALSE(picture.ok()) << file << " cut at " << length;
    }
    const std::vector<std::byte> last(whole.begin(), whole.end() - 1);
    EXPECT_FALSE(decode(last, {}, file).ok()) << file << " without its last byte";
  }
}

// A WebP file that says it is longer than it is was cut, even when its picture is whole.
TEST(Decode, WebPCutBehindItsPictureIsRefused) {
  std::vector<std::byte> bytes = golden_bytes("images/webp_lossy.webp");
  ASSERT_TRUE(decode(bytes, {}, "webp").ok());
  const size_t longer = bytes.size() - 8 + 2;
  for (size_t i = 0; i < 4; ++i) bytes[4 + i] = static_cast<std::byte>(longer >> (8 * i) & 0xFF);
  EXPECT_FALSE(decode(bytes, {}, "webp").ok());
}

TEST(Decode, BytesAfterTheEndDoNotMatter) {
  for (const char* file :
       {"palette.png", "jpeg_420.jpg", "gif_two_frames.gif", "webp_lossy.webp"}) {
    std::vector<std::byte> bytes = golden_bytes(std::string("images/") + file);
    const Picture plain = decode(bytes, {}, file).value();
    bytes.insert(bytes.end(), 100, std::byte{0x5A});
    const Result<Picture> longer = decode(bytes, {}, file);
    ASSERT_TRUE(longer.ok()) << longer.error().text();
    EXPECT_EQ(digest_of(plain), digest_of(longer.value())) << file;
  }
}

TEST(Decode, SidesAreRefusedByTheLimit) {
  for (const char* file :
       {"very_wide.png", "jpeg_420.jpg", "gif_two_frames.gif", "webp_lossy.webp"}) {
    const std::vector<std::byte> bytes = golden_bytes(std::string("images/") + file);
    const Picture picture = decode(bytes, {}, file).value();
    const uint32_t longest = std::max(picture.size.width, picture.size.height);
    EXPECT_TRUE(decode(bytes, {.side_limit = longest}, file).ok()) << file;
    const Result<Picture> refused = decode(bytes, {.side_limit = longest - 1}, file);
    ASSERT_FALSE(refused.ok()) << file;
    EXPECT_EQ(fault_of(refused.error()), ImageFault::image_dimensions_too_large) << file;
  }
}

// One column of four rows, interlaced, one colour each; codes of 3 bits, then of 4.
std::vector<std::byte> tiny_gif() {
  const std::vector<int> bytes = {
      'G',  'I',  'F',  '8',  '9',  'a', 5,  0,  4,  0,    0x81, 0, 0,  // 5x4, four colours
      10,   20,   30,   40,   50,   60,  70, 80, 90, 1,    2,    3,     // the table
      0x21, 0xF9, 4,    1,    0,    0,   1,  0,                         // index 1 is transparent
      0x2C, 1,    0,    0,    0,    1,   0,  4,  0,  0x40,              // 1x4 at (1, 0), interlaced
      2,    3,    0x84, 0x32, 0x05, 0,                                  // clear, 0, 2, 1, 3, end
      0x3B};
  std::vector<std::byte> out;
  for (const int byte : bytes) out.push_back(static_cast<std::byte>(byte));
  return out;
}

TEST(Decode, GifFrameLiesOnItsScreenInterlacedAndTransparent) {
  const std::vector<std::byte> file = tiny_gif();
  const Result<Picture> decoded = decode(file, {}, "gif");
  ASSERT_TRUE(decoded.ok()) << decoded.error().text();
  const Picture& picture = decoded.value();
  ASSERT_EQ(picture.size, (Size{5, 4}));
  const auto pixel = [&](size_t x, size_t y) {
    const uint8_t* p = picture.row(y) + 3 * x;
    return std::vector<int>{p[0], p[1], p[2]};
  };
  const std::vector<int> empty = {0xFD, 0xFD, 0xFD};
  // The file's rows go to 0, 2, 1, 3 of a frame of four.
  EXPECT_EQ(pixel(1, 0), (std::vector<int>{10, 20, 30}));
  EXPECT_EQ(pixel(1, 2), (std::vector<int>{70, 80, 90}));
  EXPECT_EQ(pixel(1, 1), empty);
  EXPECT_EQ(pixel(1, 3), (std::vector<int>{1, 2, 3}));
  for (size_t y = 0; y < 4; ++y) {
    for (size_t x : {0, 2, 3, 4}) EXPECT_EQ(pixel(x, y), empty) << x << " " << y;
  }
}

TEST(Fault, OnlyErrorsOfPicturesHaveOne) {
  EXPECT_EQ(fault_of(image_error(ImageFault::too_many_images, "x", "y")),
            ImageFault::too_many_images);
  EXPECT_EQ(fault_of(Error::invalid("x", "Decode")), std::nullopt);
  EXPECT_EQ(fault_of(Error::invalid("x", "")), std::nullopt);
}

}  // namespace
}  // namespace deepinfer::image
