#include "kernels/hadamard.h"

#include <bit>
#include <cmath>

#include "base/check.h"

namespace deepinfer::kernels {

void hadamard(float* x, size_t n) {
  check(std::has_single_bit(n), "hadamard of a size that is no power of two");
  for (size_t half = 1; half < n; half *= 2) {
    for (size_t first = 0; first < n; first += 2 * half) {
      float* low = x + first;
      float* high = low + half;
      for (size_t i = 0; i < half; ++i) {
        const float sum = low[i] + high[i];
        high[i] = low[i] - high[i];
        low[i] = sum;
      }
    }
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(n));
  for (size_t i = 0; i < n; ++i) x[i] *= scale;
}

}  // namespace deepinfer::kernels
