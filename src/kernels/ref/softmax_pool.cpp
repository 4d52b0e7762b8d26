// The plain form of softmax_pool: sums in double, the standard library's exponential.

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/softmax_pool.h"

namespace deepinfer::kernels::ref {
namespace {

void pool(const float* const* scores, const float* const* values, size_t slots, size_t width,
          float* out) {
  for (size_t c = 0; c < width; ++c) {
    float highest = scores[0][c];
    for (size_t i = 1; i < slots; ++i) highest = std::max(highest, scores[i][c]);
    double sum = 0, total = 0;
    for (size_t i = 0; i < slots; ++i) {
      const double weight =
          std::exp(static_cast<double>(scores[i][c]) - static_cast<double>(highest));
      sum += weight * static_cast<double>(values[i][c]);
      total += weight;
    }
    out[c] = static_cast<float>(sum / total);
  }
}

}  // namespace

SoftmaxPool softmax_pool_body() { return pool; }

}  // namespace deepinfer::kernels::ref
