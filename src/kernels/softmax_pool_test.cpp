#include "kernels/softmax_pool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/hadamard.h"

namespace deepinfer::kernels {
namespace {

std::vector<Isa> all_isas() {
  std::vector<Isa> out = {Isa::ref};
  if (cpu_features().avx2) out.insert(out.end(), {Isa::avx2, Isa::emulated512});
  if (cpu_features().avx512_vnni) out.push_back(Isa::avx512);
  return out;
}

struct Rows {
  Rows(size_t slots, size_t width, float spread) {
    std::mt19937 random(static_cast<uint32_t>(slots * 1000 + width));
    std::normal_distribution<float> normal(0.0f, 1.0f);
    for (size_t i = 0; i < slots; ++i) {
      for (auto* rows : {&scores, &values}) {
        std::vector<float>& row = rows->emplace_back(width);
        for (float& x : row) x = normal(random) * (rows == &scores ? spread : 1.0f);
      }
    }
    for (size_t i = 0; i < slots; ++i) {
      score_rows.push_back(scores[i].data());
      value_rows.push_back(values[i].data());
    }
  }
  std::vector<std::vector<float>> scores, values;
  std::vector<const float*> score_rows, value_rows;
};

TEST(SoftmaxPool, IsTheWeightedMeanOfTheRows) {
  for (const Isa isa : all_isas()) {
    for (const size_t slots : {1, 2, 4, 8, 127, 128}) {
      for (const size_t width : {1, 7, 8, 16, 33, 48, 512}) {
        // The large spread reaches scores whose exponentials flush to zero.
        for (const float spread : {1.0f, 60.0f}) {
          const Rows rows(slots, width, spread);
          std::vector<float> out(width + 1, -77.0f);
          softmax_pool(isa)(rows.score_rows.data(), rows.value_rows.data(), slots, width,
                            out.data());
          for (size_t c = 0; c < width; ++c) {
            double highest = -1e30, sum = 0, total = 0;
            for (const auto& row : rows.scores) highest = std::max(highest, double{row[c]});
            for (size_t i = 0; i < slots; ++i) {
              const double weight = std::exp(double{rows.scores[i][c]} - highest);
              sum += weight * double{rows.values[i][c]};
              total += weight;
            }
            ASSERT_NEAR(double{out[c]}, sum / total, 2e-6)
                << isa_name(isa) << " slots " << slots << " width " << width << " channel " << c;
          }
          ASSERT_EQ(out[width], -77.0f) << "past the end";
        }
      }
    }
  }
}

TEST(SoftmaxPool, EmulatedVectorsGiveTheBitsOfAvx512) {
  if (!cpu_features().avx512_vnni) return;  // nothing to compare with on this machine
  const Rows rows(128, 515, 3.0f);
  std::vector<float> native(515), emulated(515);
  softmax_pool(Isa::avx512)(rows.score_rows.data(), rows.value_rows.data(), 128, 515,
                            native.data());
  softmax_pool(Isa::emulated512)(rows.score_rows.data(), rows.value_rows.data(), 128, 515,
                                 emulated.data());
  EXPECT_EQ(native, emulated);
}

// Element (i, j) of the transform is n^-1/2 * (-1)^(bits that i and j share).
TEST(Hadamard, IsTheNaturallyOrderedTransform) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  for (const size_t n : {1, 2, 16, 32, 128}) {
    std::vector<float> x(n);
    for (float& value : x) value = normal(random);
    std::vector<float> y = x;
    hadamard(y.data(), n);
    for (size_t i = 0; i < n; ++i) {
      double sum = 0;
      for (size_t j = 0; j < n; ++j) {
        sum += (__builtin_popcountll(i & j) % 2 == 0 ? 1.0 : -1.0) * double{x[j]};
      }
      EXPECT_NEAR(double{y[i]}, sum / std::sqrt(static_cast<double>(n)), 1e-5) << n << " " << i;
    }
    hadamard(y.data(), n);
    for (size_t i = 0; i < n; ++i) EXPECT_NEAR(y[i], x[i], 1e-5f) << "twice";
  }
}

}  // namespace
}  // namespace deepinfer::kernels
