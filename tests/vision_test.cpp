// From picture files to rows of the text stream: image/ prepares, models/ encodes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "image/prepare.h"
#include "image/span.h"
#include "llm/image_geometry.h"
#include "models/model_runner.h"
#include "models/vision/vision_encoder.h"
#include "tests/golden_error.h"
#include "tests/golden_file.h"
#include "weights/vision_config.h"

namespace deepinfer {
namespace {

using kernels::Numerics;
using models::value_or_die;

const std::string kFolder = std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/vision/";

const GoldenFile& golden() {
  static const GoldenFile file("vision/golden.safetensors");
  return file;
}

std::vector<float> floats_of(const std::string& name) {
  const GoldenTensor& tensor = golden()[name];
  if (tensor.dtype == "F32") {
    const auto values = tensor.as<float>();
    return {values.begin(), values.end()};
  }
  std::vector<float> values;
  for (const uint16_t code : tensor.as<uint16_t>()) values.push_back(bf16_to_f32(code));
  return values;
}

// The golden pictures, their checkpoint and an encoder.
class VisionPath : public testing::TestWithParam<Numerics> {
 protected:
  VisionPath()
      : checkpoint_(value_or_die(weights::Checkpoint::open(kFolder))),
        part_(value_or_die(weights::read_vision_part(checkpoint_))),
        pool_(value_or_die(ThreadPool::create({.threads = 2}))) {
    std::ifstream stream(kFolder + "golden.json");
    known_ = nlohmann::json::parse(stream);
    const auto tensors =
        value_or_die(weights::read_vision_tensors(checkpoint_, part_.vision, part_.text_hidden));
    const kernels::Target target = {value_or_die(kernels::choose_isa("auto")), GetParam()};
    encoder_ = value_or_die(
        models::VisionEncoder::create(tensors, part_.vision, part_.text_hidden, target, *pool_));
  }

  image::PreparedImage prepare(const std::string& name) const {
    const std::string file = known_["images"][name]["file"];
    std::ifstream stream(kFolder + "images/" + file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(stream),
                            std::istreambuf_iterator<char>()};
    return value_or_die(image::prepare_image(std::as_bytes(std::span(bytes)),
                                             llm::image_geometry(part_.vision), {}, file));
  }
  static models::PatchGrid grid_of(const image::PreparedImage& image) {
    return {.rows = image.layout.vit_h, .columns = image.layout.vit_w, .patches = image.patches};
  }
  std::vector<float> encode(const image::PreparedImage& image) {
    std::vector<float> rows(size_t{image.layout.cells()} * part_.text_hidden);
    EXPECT_EQ(encoder_->cells(grid_of(image)), image.layout.cells());
    const Result<void> done = encoder_->encode(grid_of(image), rows.data());
    EXPECT_TRUE(done.ok()) << done.error().text();
    return rows;
  }
  bool faithful() const { return GetParam() == Numerics::faithful; }
  std::string mode() const { return faithful() ? "bf16" : "f32"; }

  // Rows [.. / width][width] within the goldens' tolerance; `what` names them, `where` a part of
  // them.
  void expect_rows(const std::vector<float>& got, const std::vector<float>& expected,
                   const std::string& what, const std::string& where = "") const {
    ASSERT_EQ(got.size(), expected.size()) << what << " " << where;
    double difference = 0.0, size = 0.0, largest = 0.0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double apart = std::abs(double{got[i]} - double{expected[i]});
      ASSERT_TRUE(std::isfinite(apart)) << what << " " << where;
      difference += apart * apart;
      size += double{expected[i]} * double{expected[i]};
      largest = std::max(largest, apart);
    }
    if (faithful()) {
      expect_error("vision/bf16", what + ", relative rms", std::sqrt(difference / size), 2.5e-2,
                   where);
    } else {
      expect_error("vision/f32", what + ", largest", largest, 2e-4, where);
    }
  }

  weights::Checkpoint checkpoint_;
  weights::VisionPart part_;
  std::unique_ptr<ThreadPool> pool_;
  nlohmann::json known_;
  std::unique_ptr<models::VisionEncoder> encoder_;
};

TEST_P(VisionPath, EveryPictureGivesItsRows) {
  ASSERT_EQ(known_["images"].size(), 20u);
  for (const auto& [name, known] : known_["images"].items()) {
    expect_rows(encode(prepare(name)), floats_of(name + "." + mode() + ".aligner"), "20 pictures",
                name);
  }
}

// Text rows from the embedding, a picture's from its span.
TEST_P(VisionPath, PromptWithPicturesHasItsEmbeddings) {
  const auto& known = known_["prompt"];
  std::vector<image::PreparedImage> images;
  std::vector<image::Layout> layouts;
  for (const auto& name : known["images"]) {
    images.push_back(prepare(name.get<std::string>()));
    layouts.push_back(images.back().layout);
  }
  const std::span<const int32_t> ids = golden()["prompt.ids_in"].as<int32_t>();
  const image::ExpandedPrompt prompt = value_or_die(
      image::expand_prompt(ids, layouts, static_cast<int32_t>(part_.image_token),
                           static_cast<int32_t>(part_.vocab), image::Mismatch::allow, "prompt"));
  const TensorView* embedding = checkpoint_.find("embed.weight");
  ASSERT_NE(embedding, nullptr);
  const size_t width = part_.text_hidden;
  std::vector<float> rows(prompt.ids.size() * width);  // [positions][width]
  for (size_t at = 0; at < prompt.ids.size(); ++at) {
    if (prompt.types[at] != image::TokenType::undefined) continue;
    decode_row(embedding->dtype, embedding->row(static_cast<uint64_t>(prompt.ids[at])),
               &rows[at * width], width);
  }
  for (const image::ImageSpan& span : prompt.spans) {
    const std::vector<float> encoded = encode(images[span.image]);
    const auto positions = encoder_->span_embeddings(grid_of(images[span.image]), encoded.data());
    ASSERT_EQ(positions.size(), span.count);
    for (size_t i = 0; i < span.count; ++i) {
      std::copy_n(positions[i], width, &rows[(span.start + i) * width]);
    }
  }
  expect_rows(rows, floats_of("prompt." + mode() + ".embeds"), "prompt");
}

INSTANTIATE_TEST_SUITE_P(Numerics, VisionPath, testing::Values(Numerics::exact, Numerics::faithful),
                         [](const auto& info) {
                           return std::string(kernels::numerics_name(info.param));
                         });

}  // namespace
}  // namespace deepinfer
