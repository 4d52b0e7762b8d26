#include "image/prepare.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "image/fault.h"
#include "image/golden_images.h"
#include "image/limits.h"
#include "image/patches.h"
#include "image/resize.h"
#include "tests/golden_file.h"

namespace deepinfer::image {
namespace {

const GoldenFile& tensors() {
  static const GoldenFile file("vision/golden.safetensors");
  return file;
}

struct Case {
  const char* key;  // in golden.json
  Profile profile;
  Geometry geometry;
};
std::vector<Case> cases() {
  return {{"native", Profile::native, tiny_geometry()},
          {"api", Profile::api, tiny_geometry()},
          {"native_flash", Profile::native, Geometry()},
          {"api_flash", Profile::api, Geometry()}};
}

TEST(Resize, EveryGoldenPictureIsExact) {
  const nlohmann::json golden = golden_json("golden.json");
  ASSERT_EQ(golden["images"].size(), 20u);
  for (const auto& [name, known] : golden["images"].items()) {
    const std::string file = known["file"];
    const std::vector<std::byte> bytes = golden_bytes("images/" + file);
    for (const auto& [key, profile, geometry] : cases()) {
      FittedPicture fitted =
          fit_picture(decode(bytes, {}, file).value(), geometry, profile, file).value();
      const auto& one = known[key];
      EXPECT_EQ(fitted.layout, layout_of(one["layout"])) << file << " " << key;
      ASSERT_EQ(fitted.picture.size, (Size{one["inner"][0], one["inner"][1]}))
          << file << " " << key;
      if (one.contains("resized_sha256")) {
        EXPECT_EQ(digest_of(fitted.picture), one["resized_sha256"].get<std::string>())
            << file << " " << key;
      }
    }
  }
}

// The tiny pictures byte for byte, so that a failure says where.
TEST(Resize, SamplesOfTinyPictures) {
  const nlohmann::json golden = golden_json("golden.json");
  ASSERT_EQ(golden["images"].size(), 20u);
  for (const auto& [name, known] : golden["images"].items()) {
    const std::string file = known["file"];
    const std::vector<std::byte> bytes = golden_bytes("images/" + file);
    struct Kind {
      const char* suffix;
      Profile profile;
      SampleRule rule;
    };
    for (const auto& [suffix, profile, rule] :
         {Kind{".native.resized", Profile::native, SampleRule::blend},
          Kind{".api.resized", Profile::api, SampleRule::blend},
          Kind{".strict.resized", Profile::native, SampleRule::strip}}) {
      if (rule == SampleRule::strip && !known["strict_differs"].get<bool>()) continue;
      const Picture picture = fit_picture(decode(bytes, {.samples = rule}, file).value(),
                                          tiny_geometry(), profile, file)
                                  .value()
                                  .picture;
      const std::span<const uint8_t> expected = tensors()[name + suffix].as<uint8_t>();
      ASSERT_EQ(expected.size(), picture.bytes()) << name << suffix;
      size_t wrong = 0;
      for (size_t i = 0; i < expected.size(); ++i) wrong += picture.row(0)[i] != expected[i];
      EXPECT_EQ(wrong, 0u) << name << suffix;
    }
  }
}

TEST(Resize, WeightsOfTheSpecification) {
  const Taps shrink = native_taps(5, 3);
  EXPECT_EQ(shrink.count[0], 4u);
  EXPECT_EQ(std::vector<int32_t>(shrink.weights.begin(), shrink.weights.begin() + 4),
            (std::vector<int32_t>{2452055, 1871305, 0, -129056}));
  const Taps grow = native_taps(3, 5);
  const auto second = grow.weights.begin() + std::ptrdiff_t(grow.stride);
  EXPECT_EQ(std::vector<int32_t>(second, second + 3),
            (std::vector<int32_t>{2723168, 1658941, -187805}));
  const Taps api = api_taps(3, 5);
  EXPECT_EQ(std::vector<int32_t>(api.weights.begin() + 4, api.weights.begin() + 8),
            (std::vector<int32_t>{-221, 1475, 942, -147}));
}

TEST(Prepare, GridsPatchesAndDigests) {
  const nlohmann::json golden = golden_json("golden.json");
  ASSERT_EQ(golden["images"].size(), 20u);
  for (const auto& [name, known] : golden["images"].items()) {
    const std::string file = known["file"];
    const std::vector<std::byte> bytes = golden_bytes("images/" + file);
    for (const auto& [key, profile, geometry] : cases()) {
      const PreparedImage image =
          prepare_image(bytes, geometry, {.profile = profile}, file).value();
      const auto& one = known[key];
      EXPECT_EQ(hex(sha256(std::as_bytes(std::span(image.patches)))),
                one["patches_sha256"].get<std::string>())
          << file << " " << key;
      if (one.contains("digest")) {
        EXPECT_EQ(hex(image.digest), one["digest"].get<std::string>()) << file << " " << key;
      }
      const FittedPicture fitted =
          fit_picture(decode(bytes, {}, file).value(), geometry, profile, file).value();
      EXPECT_EQ(digest_of(pad_to_grid(fitted.picture, fitted.layout.grid).value()),
                one["grid_sha256"].get<std::string>())
          << file << " " << key;
    }
  }
}

TEST(Prepare, PatchesAndTableAsCodes) {
  const std::span<const uint16_t> table = tensors()["pixel_table"].as<uint16_t>();
  ASSERT_EQ(table.size(), 256u);
  for (size_t v = 0; v < 256; ++v) EXPECT_EQ(pixel_table()[v], table[v]) << v;
  for (const char* name : {"very_wide", "exif_rotated", "one_pixel"}) {
    const nlohmann::json known = golden_json("golden.json")["images"][name];
    const std::string file = known["file"];
    const PreparedImage image =
        prepare_image(golden_bytes("images/" + file), tiny_geometry(), {}, file).value();
    const std::span<const uint16_t> expected =
        tensors()[std::string(name) + ".patches"].as<uint16_t>();
    ASSERT_EQ(image.patches.size(), expected.size()) << name;
    EXPECT_EQ(std::memcmp(image.patches.data(), expected.data(), expected.size_bytes()), 0) << name;
  }
}

// The same picture as PNG twice: one identity; drawn by other rules: another.
TEST(Prepare, DigestFollowsWhatTheEncoderSees) {
  const std::vector<std::byte> bytes = golden_bytes("images/rgba.png");
  const auto digest = [&](const PrepareOptions& options) {
    return hex(prepare_image(bytes, Geometry(), options, "rgba").value().digest);
  };
  EXPECT_EQ(digest({}), digest({}));
  EXPECT_NE(digest({}), digest({.decode = {.samples = SampleRule::strip}}));
  EXPECT_NE(digest({}), digest({.profile = Profile::api}));
}

TEST(Prepare, LowDetailShrinksFirst) {
  const std::vector<std::byte> bytes = golden_bytes("images/huge.png");
  const PreparedImage high = prepare_image(bytes, Geometry(), {}, "huge").value();
  const PreparedImage low =
      prepare_image(bytes, Geometry(), {.detail = Detail::low}, "huge").value();
  EXPECT_GT(high.layout.tokens, 900u);
  EXPECT_LT(low.layout.tokens, 215u);
  EXPECT_EQ(low.source, (Size{2600, 1900}));
}

TEST(Limits, OfARequest) {
  const ImageLimits limits;
  EXPECT_EQ(limits.side_for(14), 8192u);
  EXPECT_EQ(limits.side_for(15), 4096u);
  const auto fault = [&](const std::vector<size_t>& sizes) {
    const Result<void> result = check_request(limits, sizes, "request");
    return result.ok() ? std::nullopt : fault_of(result.error());
  };
  const size_t mega = size_t{1} << 20;
  EXPECT_EQ(fault({32 * mega, 32 * mega}), std::nullopt);
  EXPECT_EQ(fault({32 * mega + 1}), ImageFault::image_too_large);
  EXPECT_EQ(fault({32 * mega, 32 * mega, 1}), ImageFault::total_size_too_large);
  EXPECT_EQ(fault(std::vector<size_t>(600, 1)), std::nullopt);
  EXPECT_EQ(fault(std::vector<size_t>(601, 1)), ImageFault::too_many_images);
}

}  // namespace
}  // namespace deepinfer::image
