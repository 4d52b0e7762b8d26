#include "sampling/vocabulary_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace deepinfer::sampling {
namespace ref {
namespace {

size_t highest(const float* x, size_t n) {
  size_t best = 0;
  for (size_t i = 0; i < n; ++i) {
    if (x[i] != x[i]) return n;
    if (x[i] > x[best]) best = i;
  }
  return best;
}

float weight(float x, float top, float temperature) {
  return static_cast<float>(
      std::exp((static_cast<double>(x) - static_cast<double>(top)) / temperature));
}

void exp_sums(const float* x, size_t n, float top, float temperature, double* sums) {
  for (size_t start = 0; start < n; start += kSumBlock) {
    double sum = 0;
    for (size_t i = start; i < std::min(n, start + kSumBlock); ++i) {
      sum += weight(x[i], top, temperature);
    }
    sums[start / kSumBlock] = sum;
  }
}

void weights(const float* x, size_t n, float top, float temperature, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = weight(x[i], top, temperature);
}

size_t at_least(const float* x, size_t n, float threshold, int32_t* ids) {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    if (x[i] >= threshold) ids[count++] = static_cast<int32_t>(i);
  }
  return count;
}

void masked(const float* x, const uint32_t* mask, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    const bool allowed = (mask[i / 32] >> (i % 32) & 1) != 0;
    out[i] = allowed ? x[i] : -std::numeric_limits<float>::infinity();
  }
}

}  // namespace

const VocabularyOps& vocabulary_table() {
  static constexpr VocabularyOps table = {.highest = highest,
                                          .exp_sums = exp_sums,
                                          .weights = weights,
                                          .at_least = at_least,
                                          .masked = masked};
  return table;
}

}  // namespace ref

const VocabularyOps& vocabulary_ops(kernels::Isa isa) {
  switch (isa) {
    case kernels::Isa::ref:
      break;
    case kernels::Isa::avx2:
      return avx2::vocabulary_table();
    case kernels::Isa::avx512:
      return avx512::vocabulary_table();
    case kernels::Isa::emulated512:
      return emulated512::vocabulary_table();
  }
  return ref::vocabulary_table();
}

}  // namespace deepinfer::sampling
