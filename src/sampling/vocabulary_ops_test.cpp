#include "sampling/vocabulary_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

namespace deepinfer::sampling {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// Around whole vectors, whole quadruples of them and whole blocks.
constexpr size_t kLengths[] = {1,  2,  7,   8,    9,    15,   16,   17,   31,   33,  63,
                               64, 65, 100, 1023, 1024, 1025, 1030, 2047, 3000, 5000};

std::vector<kernels::Isa> isas() {
  std::vector<kernels::Isa> all;
  if (kernels::cpu_features().avx2) {
    all.push_back(kernels::Isa::avx2);
    all.push_back(kernels::Isa::emulated512);
  }
  if (kernels::cpu_features().avx512_vnni) all.push_back(kernels::Isa::avx512);
  return all;
}

std::vector<float> random_row(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> values(-400, 100);  // many equal ones
  std::vector<float> row(n);
  for (float& x : row) x = static_cast<float>(values(random)) * 0.05f;
  if (n > 3) row[random() % n] = -kInfinity;
  return row;
}

TEST(VocabularyOps, HighestIsTheFirstOfEquals) {
  for (kernels::Isa isa : isas()) {
    for (size_t n : kLengths) {
      const std::vector<float> row = random_row(n, static_cast<uint32_t>(n));
      EXPECT_EQ(vocabulary_ops(isa).highest(row.data(), n),
                ref::vocabulary_table().highest(row.data(), n))
          << kernels::isa_name(isa) << ' ' << n;
      const std::vector<float> none(n, -kInfinity);
      EXPECT_EQ(vocabulary_ops(isa).highest(none.data(), n), 0u);
    }
  }
}

TEST(VocabularyOps, HighestFindsNansAndInfinitiesAnywhere) {
  for (kernels::Isa isa : isas()) {
    for (size_t n : kLengths) {
      for (size_t at = 0; at < n; at += std::max<size_t>(1, n / 37)) {
        std::vector<float> row = random_row(n, 3);
        row[at] = kNan;
        EXPECT_EQ(vocabulary_ops(isa).highest(row.data(), n), n) << n << ' ' << at;
        row[at] = kInfinity;  // beside it may stand its opposite
        if (n > 8) row[(at + n / 2) % n] = -kInfinity;
        EXPECT_EQ(vocabulary_ops(isa).highest(row.data(), n), at) << n << ' ' << at;
      }
    }
  }
}

TEST(VocabularyOps, WeightsAndTheirSumsAgree) {
  for (kernels::Isa isa : isas()) {
    for (size_t n : kLengths) {
      const std::vector<float> row = random_row(n, 5);
      const float top = *std::max_element(row.begin(), row.end());
      std::vector<float> weights(n + 1, -7.0f), plain(n);
      vocabulary_ops(isa).weights(row.data(), n, top, 0.7f, weights.data());
      ref::vocabulary_table().weights(row.data(), n, top, 0.7f, plain.data());
      EXPECT_EQ(weights[n], -7.0f);
      std::vector<double> sums((n + kSumBlock - 1) / kSumBlock + 1, -7.0);
      vocabulary_ops(isa).exp_sums(row.data(), n, top, 0.7f, sums.data());
      EXPECT_EQ(sums.back(), -7.0);
      for (size_t start = 0; start < n; start += kSumBlock) {
        double sum = 0;
        for (size_t i = start; i < std::min(n, start + kSumBlock); ++i) {
          EXPECT_NEAR(weights[i], plain[i], 4e-6f * plain[i] + 1e-38f);
          sum += static_cast<double>(weights[i]);
        }
        EXPECT_NEAR(sums[start / kSumBlock], sum, 1e-12 * sum);
      }
    }
  }
}

TEST(VocabularyOps, EmulationGivesTheBitsOfAvx512) {
  if (!kernels::cpu_features().avx512_vnni) return;  // nothing to compare with
  const std::vector<float> row = random_row(5003, 6);
  std::vector<float> weights[2];
  std::vector<double> sums[2];
  for (int i = 0; i < 2; ++i) {
    const VocabularyOps& ops =
        vocabulary_ops(i == 0 ? kernels::Isa::avx512 : kernels::Isa::emulated512);
    weights[i].resize(row.size());
    sums[i].resize(5);
    ops.weights(row.data(), row.size(), 5.0f, 0.9f, weights[i].data());
    ops.exp_sums(row.data(), row.size(), 5.0f, 0.9f, sums[i].data());
  }
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(sums[0], sums[1]);
}

TEST(VocabularyOps, AtLeastListsInOrder) {
  for (kernels::Isa isa : isas()) {
    for (size_t n : kLengths) {
      const std::vector<float> row = random_row(n, 9);
      for (float threshold :
           {-30.0f, 0.0f, 1.5f, 4.95f, 100.0f, std::numeric_limits<float>::lowest(), -kInfinity}) {
        std::vector<int32_t> ids(n), plain(n);
        ids.resize(vocabulary_ops(isa).at_least(row.data(), n, threshold, ids.data()));
        plain.resize(ref::vocabulary_table().at_least(row.data(), n, threshold, plain.data()));
        EXPECT_EQ(ids, plain) << kernels::isa_name(isa) << ' ' << n << ' ' << threshold;
      }
    }
  }
}

TEST(VocabularyOps, MaskedKeepsTheBitsThatAreSet) {
  std::mt19937 random(4);
  for (kernels::Isa isa : isas()) {
    for (size_t n : kLengths) {
      const std::vector<float> row = random_row(n, 2);
      std::vector<uint32_t> mask((n + 31) / 32);
      for (uint32_t& word : mask) word = random();
      std::vector<float> out(n + 1, 7.0f), plain(n);
      vocabulary_ops(isa).masked(row.data(), mask.data(), n, out.data());
      ref::vocabulary_table().masked(row.data(), mask.data(), n, plain.data());
      EXPECT_EQ(out.back(), 7.0f);
      out.resize(n);
      EXPECT_EQ(out, plain);
    }
  }
}

}  // namespace
}  // namespace deepinfer::sampling
