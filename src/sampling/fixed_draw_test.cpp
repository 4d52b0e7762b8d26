#include "sampling/fixed_draw.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace deepinfer::sampling {
namespace {

// spec deepinfer_engine.md 7.3
TEST(Stream, FirstValuesOfEachCase) {
  const struct {
    uint64_t seed, position;
    uint32_t values[3];
    float u;
  } cases[] = {
      {0, 0, {0x6627e8d5, 0x844515e1, 0x0661d677}, 0.0249303859f},
      {1234, 0, {0x2090b348, 0xd115a128, 0x8b438957}, 0.5439992547f},
      {1234, 1, {0xa8faf0a4, 0x45a57168, 0xf942741c}, 0.9736702442f},
      {1234, 7, {0xf233ac64, 0x51292561, 0xd53576b9}, 0.8328470588f},
      {0x9E3779B97F4A7C15, 100, {0xb996043a, 0x9c995d0a, 0x1dd79973}, 0.1165710390f},
  };
  for (const auto& c : cases) {
    for (uint64_t kind = 0; kind < 3; ++kind) {
      const StreamKey key = {c.seed, c.position, static_cast<StreamCase>(kind)};
      EXPECT_EQ(stream_value(key, 0), c.values[kind]) << c.seed << ' ' << c.position;
    }
    EXPECT_EQ(stream_uniform({c.seed, c.position, StreamCase::accept}), c.u);
  }
}

TEST(Stream, UniformIsTheMiddleOfItsInterval) {
  int small = 0;
  for (uint64_t position = 0; position < 200000; ++position) {
    const StreamKey key = {5, position, StreamCase::accept};
    const uint32_t x = stream_value(key, 0);
    if (x >= 1u << 20) continue;  // where a float shows the half
    ++small;
    EXPECT_EQ(stream_uniform(key), (static_cast<float>(x) + 0.5f) * 0x1p-32f);
  }
  EXPECT_GT(small, 10);
}

// Draws from weights in the order of columns.
class FixedDraw : public ::testing::Test {
 protected:
  size_t draw(const std::vector<float>& weights, uint64_t seed, uint64_t position) {
    std::vector<int32_t> ids(weights.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<uint32_t> fixed;
    for (float w : weights) fixed.push_back(fixed_point(w));
    return draw_fixed(ids, fixed, weights.size(), {seed, position, StreamCase::fresh}, lanes_);
  }
  std::vector<uint32_t> lanes_;
};

TEST_F(FixedDraw, VectorsOfTheSpecification) {
  const std::vector<float> weights = {0.1f, 0.2f, 0.3f, 0.4f};
  uint64_t total = 0;
  for (float w : weights) total += fixed_point(w);
  EXPECT_EQ(total, 2147483696u);
  const struct {
    uint64_t seed, position;
    size_t id, draft_id;
  } cases[] = {{0, 0, 3, 0},    {1234, 0, 1, 2}, {1234, 1, 3, 2},
               {1234, 2, 3, 2}, {1234, 3, 0, 3}, {42, 10, 1, 0}};
  for (const auto& c : cases) {
    EXPECT_EQ(draw(weights, c.seed, c.position), c.id) << c.seed << ' ' << c.position;
    EXPECT_EQ(draw(weights, c.seed + kDraftSeedOffset, c.position), c.draft_id)
        << c.seed << ' ' << c.position;
  }
}

TEST_F(FixedDraw, LanesComeBeforeColumns) {
  const std::vector<float> weights(16384, 0x1p-14f);
  EXPECT_EQ(draw(weights, 1234, 0), 521u);
  EXPECT_EQ(draw(weights, 1234, 1), 11895u);
  EXPECT_EQ(draw(weights, 1234, 2), 13886u);
  EXPECT_EQ(lane_count(8192), 2048u);
  EXPECT_EQ(lane_count(8191), 8192u);
  EXPECT_EQ(lane_count(5), 8u);
}

TEST_F(FixedDraw, ColumnsWithoutWeightMayBeLeftOut) {
  std::vector<float> weights(9000, 0.0f);
  weights[17] = 0.25f;
  weights[17 + 2048] = 0.5f;
  weights[8999] = 0.25f;
  const std::vector<int32_t> ids = {17, 17 + 2048, 8999};
  const std::vector<uint32_t> fixed = {1u << 29, 1u << 30, 1u << 29};
  for (uint64_t position = 0; position < 200; ++position) {
    const size_t i = draw_fixed(ids, fixed, 9000, {7, position, StreamCase::fresh}, lanes_);
    ASSERT_LT(i, ids.size());
    ASSERT_EQ(static_cast<size_t>(ids[i]), draw(weights, 7, position));
  }
}

TEST_F(FixedDraw, NothingToDraw) { EXPECT_EQ(draw({0.0f, 0x1p-32f}, 1, 1), 2u); }

TEST(FixedPoint, FloorsAt31Bits) {
  EXPECT_EQ(fixed_point(1.0f), 0x80000000u);
  EXPECT_EQ(fixed_point(0x1p-31f), 1u);
  EXPECT_EQ(fixed_point(0x1.fffffep-32f), 0u);
}

}  // namespace
}  // namespace deepinfer::sampling
