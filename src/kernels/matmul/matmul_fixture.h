#pragma once

// What the tests of products share: rows of activations, pools, the sets that run here, and bits.

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/isa.h"

namespace deepinfer::kernels {

// Normal values, an outlier in every row, a block of zeros in the first.
inline std::vector<float> random_rows(size_t rows, size_t inputs, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> x(rows * inputs);
  for (float& v : x) v = normal(rng);
  for (size_t r = 0; r < rows; ++r) x[r * inputs + rng() % inputs] = 37.5f;
  for (size_t k = 0; k < 32 && k < inputs; ++k) x[k] = 0;  // a zero block
  return x;
}

inline std::unique_ptr<ThreadPool> pool_of(size_t threads) {
  return ThreadPool::create({.threads = threads}).value();
}

inline std::vector<Isa> vector_isas() {
  std::vector<Isa> isas;
  if (cpu_features().avx2) isas = {Isa::avx2, Isa::emulated512};
  if (cpu_features().avx512_vnni) isas.push_back(Isa::avx512);
  return isas;
}

inline void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b,
                             const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i]))
        << what << ": output " << i << " is " << a[i] << " and " << b[i];
  }
}

}  // namespace deepinfer::kernels
