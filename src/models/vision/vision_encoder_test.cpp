#include "models/vision/vision_encoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "models/goldens_test.h"
#include "models/model_runner.h"
#include "weights/vision_config.h"

namespace deepinfer::models {
namespace {

using kernels::Isa;
using kernels::Numerics;

// The tiny checkpoint with an encoder of its own.
struct Opened {
  weights::Checkpoint checkpoint;
  weights::VisionPart part;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<VisionEncoder> encoder;
};

Opened open_tiny(Isa isa, Numerics numerics, size_t threads, uint32_t max_image_tokens = 26) {
  weights::Checkpoint checkpoint = value_or_die(
      weights::Checkpoint::open(std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/vision"));
  weights::VisionPart part = value_or_die(weights::read_vision_part(checkpoint));
  part.vision.max_image_tokens = max_image_tokens;
  auto pool = value_or_die(ThreadPool::create({.threads = threads}));
  const auto tensors =
      value_or_die(weights::read_vision_tensors(checkpoint, part.vision, part.text_hidden));
  auto encoder = value_or_die(
      VisionEncoder::create(tensors, part.vision, part.text_hidden, {isa, numerics}, *pool));
  return {std::move(checkpoint), part, std::move(pool), std::move(encoder)};
}

const GoldenFile& golden() {
  static const GoldenFile file("vision/golden.safetensors");
  return file;
}

PatchGrid grid_of(const std::string& picture) {
  const std::span<const int32_t> positions = golden()[picture + ".positions"].as<int32_t>();
  return {.rows = static_cast<uint32_t>(positions[positions.size() - 2]) + 1,
          .columns = static_cast<uint32_t>(positions.back()) + 1,
          .patches = golden()[picture + ".patches"].as<uint16_t>()};
}
constexpr const char* kBatch[] = {"very_wide", "exif_rotated", "one_pixel"};

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

// The three pictures one after another: all stages, and "aligner".
std::map<std::string, std::vector<float>> encode_batch(Opened& opened) {
  std::map<std::string, std::vector<float>> stages;
  for (const char* picture : kBatch) {
    const PatchGrid grid = grid_of(picture);
    std::vector<float> rows(opened.encoder->cells(grid) * opened.part.text_hidden);
    const Result<void> done = opened.encoder->encode(
        grid, rows.data(), [&](std::string_view stage, std::span<const float> values) {
          std::vector<float>& all = stages[std::string(stage)];
          all.insert(all.end(), values.begin(), values.end());
        });
    EXPECT_TRUE(done.ok()) << done.error().text();
    std::vector<float>& all = stages["aligner"];
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return stages;
}

std::vector<float> golden_stage(const std::string& mode, const std::string& stage) {
  if (stage != "aligner") return floats_of("batch." + mode + "." + stage);
  std::vector<float> all;
  for (const char* picture : kBatch) {
    const std::vector<float> rows = floats_of(std::string(picture) + "." + mode + ".aligner");
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}
constexpr const char* kStages[] = {"patch_embed", "block0", "block1", "block2",
                                   "block3",      "norm",   "aligner"};

TEST(VisionEncoder, ExactStagesAreThoseOfFp32) {
  for (const Isa isa : isas_of_this_machine()) {
    Opened opened = open_tiny(isa, Numerics::exact, 2);
    auto stages = encode_batch(opened);
    for (const char* stage : kStages) {
      const std::vector<float> expected = golden_stage("f32", stage);
      ASSERT_EQ(stages[stage].size(), expected.size()) << stage;
      expect_error("vision/f32", std::string(stage) + ", largest",
                   worst_of(stages[stage], expected), 2e-4f, std::string(isa_name(isa)));
    }
  }
}

double relative_rms(std::span<const float> got, std::span<const float> expected) {
  double difference = 0.0, size = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double e = static_cast<double>(expected[i]), g = static_cast<double>(got[i]);
    difference += (g - e) * (g - e);
    size += e * e;
  }
  return std::sqrt(difference / size);
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double ab = 0.0, aa = 0.0, bb = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return ab / std::sqrt(aa * bb);
}

TEST(VisionEncoder, FaithfulStagesAreThoseOfBf16) {
  for (const Isa isa : isas_of_this_machine()) {
    Opened opened = open_tiny(isa, Numerics::faithful, 2);
    auto stages = encode_batch(opened);
    for (const std::string stage : kStages) {
      const std::vector<float>& got = stages[stage];
      const std::vector<float> expected = golden_stage("bf16", stage);
      ASSERT_EQ(got.size(), expected.size()) << stage;
      const bool aligner = stage == "aligner";
      const size_t width = aligner ? opened.part.text_hidden : opened.part.vision.hidden;
      const double rms = relative_rms(got, expected);
      const std::string name(isa_name(isa));
      expect_error("vision/bf16", stage + ", relative rms", rms, aligner ? 2.5e-2 : 1.5e-2, name);
      for (size_t row = 0; row + width <= got.size(); row += width) {
        expect_agreement("vision/bf16", stage + " rows, cosine",
                         cosine({&got[row], width}, {&expected[row], width}), 0.9995,
                         name + " row " + std::to_string(row / width));
      }
      for (const float value : got) EXPECT_EQ(value, bf16_to_f32(f32_to_bf16(value)));
    }
  }
}

// A picture of several tiles of rows and spans of keys, random patches.
struct Large {
  std::vector<uint16_t> codes;
  PatchGrid grid;

  Large(uint32_t rows, uint32_t columns) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    codes.resize(size_t{rows} * columns * 588);
    for (uint16_t& code : codes) code = f32_to_bf16(normal(random));
    grid = {.rows = rows, .columns = columns, .patches = codes};
  }
};

std::vector<float> encode(Opened& opened, const PatchGrid& grid) {
  std::vector<float> rows(opened.encoder->cells(grid) * opened.part.text_hidden);
  const Result<void> done = opened.encoder->encode(grid, rows.data());
  EXPECT_TRUE(done.ok()) << done.error().text();
  return rows;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(VisionEncoder, LargePicturesAgreeWithTheReference) {
  const Large large(31, 37);  // 1147 patches
  Opened plain = open_tiny(Isa::ref, Numerics::exact, 2, 256);
  const std::vector<float> expected = encode(plain, large.grid);
  for (const Isa isa : isas_of_this_machine()) {
    Opened opened = open_tiny(isa, Numerics::exact, 2, 256);
    const std::vector<float> got = encode(opened, large.grid);
    EXPECT_LE(relative_rms(got, expected), 1e-5) << isa_name(isa);
  }
}

TEST(VisionEncoder, ThreadsAndCompanyDoNotChangeBits) {
  const Large large(31, 37);
  const PatchGrid small = grid_of("exif_rotated");
  for (const Isa isa : isas_of_this_machine()) {
    if (isa == Isa::ref) continue;
    for (const Numerics numerics : {Numerics::exact, Numerics::faithful}) {
      Opened one = open_tiny(isa, numerics, 1, 256), three = open_tiny(isa, numerics, 3, 256);
      const std::vector<float> alone = encode(one, small);
      EXPECT_TRUE(same_bits(encode(one, large.grid), encode(three, large.grid)));
      EXPECT_TRUE(same_bits(encode(one, small), alone)) << "after a larger one";
      EXPECT_TRUE(same_bits(encode(three, small), alone));
    }
  }
}

TEST(VisionEncoder, SpanTakesStartNewlinesAndEnd) {
  Opened opened = open_tiny(Isa::avx2, Numerics::exact, 1);
  const PatchGrid grid = grid_of("exif_rotated");  // 8 rows, 12 columns: 3 x 4 cells
  const std::vector<float> rows = encode(opened, grid);
  const std::vector<const float*> span = opened.encoder->span_embeddings(grid, rows.data());
  ASSERT_EQ(span.size(), 17u);
  size_t cell = 0;
  for (size_t at = 1; at < 16; ++at) {
    if ((at - 1) % 5 == 4) {
      EXPECT_EQ(span[at], span[5]);
      continue;
    }
    EXPECT_EQ(span[at], rows.data() + cell++ * opened.part.text_hidden);
  }
  EXPECT_EQ(cell, 12u);
  for (const auto& [at, name] :
       {std::pair{0, "image_start"}, {5, "image_newline"}, {16, "image_end"}}) {
    const TensorView* view = opened.checkpoint.find(name);
    ASSERT_NE(view, nullptr);
    for (size_t i = 0; i < opened.part.text_hidden; ++i) {
      uint16_t code = 0;
      std::memcpy(&code, view->data + 2 * i, 2);
      EXPECT_EQ(span[static_cast<size_t>(at)][i], bf16_to_f32(code)) << name;
    }
  }
}

TEST(VisionEncoder, RefusesGridsThatDoNotFit) {
  Opened opened = open_tiny(Isa::avx2, Numerics::exact, 1);
  std::vector<float> rows(64 * opened.part.text_hidden);
  const PatchGrid good = grid_of("one_pixel");
  const auto refusal = [&](const PatchGrid& grid) {
    const Result<void> done = opened.encoder->encode(grid, rows.data());
    return done.ok() ? std::string() : done.error().text();
  };
  EXPECT_EQ(refusal(good), "");
  EXPECT_EQ(refusal({.rows = 0, .columns = 6, .patches = {}}), "image: has no patches");
  EXPECT_EQ(refusal({.rows = 6, .columns = 5, .patches = good.patches}),
            "image: has 21168 patch values, its grid says 17640");
  EXPECT_EQ(refusal({.rows = 60, .columns = 60, .patches = good.patches}),
            "image: 60x60 patches take 422 tokens, max_image_tokens is 26");
}

TEST(VisionEncoder, NamesTheBlockThatIsNotFinite) {
  Opened opened = open_tiny(Isa::avx2, Numerics::exact, 1);
  PatchGrid grid = grid_of("one_pixel");
  std::vector<uint16_t> codes(grid.patches.begin(), grid.patches.end());
  codes[100] = 0x7FC0;
  grid.patches = codes;
  std::vector<float> rows(64 * opened.part.text_hidden);
  const Result<void> done = opened.encoder->encode(grid, rows.data());
  ASSERT_FALSE(done.ok());
  EXPECT_TRUE(done.error().text().starts_with("vision block 0: ")) << done.error().text();
}

}  // namespace
}  // namespace deepinfer::models
