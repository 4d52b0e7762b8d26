// The plain form of every row operation: scalar, sums in double, the standard library's functions.

#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "kernels/row_ops_tables.h"

namespace deepinfer::kernels::ref {
namespace {

void rms_norm(const float* x, const float* weight, float eps, float* out, size_t n) {
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double mean = sum / static_cast<double>(n);
  const double factor = 1.0 / std::sqrt(mean + static_cast<double>(eps));
  for (size_t i = 0; i < n; ++i) {
    out[i] = static_cast<float>(static_cast<double>(x[i]) * factor) * weight[i];
  }
}

void silu_mul(const float* gate, const float* up, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const double g = static_cast<double>(gate[i]);
    out[i] = static_cast<float>(g / (1.0 + std::exp(-g))) * up[i];
  }
}

void add(float* acc, const float* x, size_t n) {
  for (size_t i = 0; i < n; ++i) acc[i] += x[i];
}

void rope(float* x, const float* cosine, const float* sine, size_t pairs, RopePairing pairing) {
  const bool interleaved = pairing == RopePairing::interleaved;
  for (size_t i = 0; i < pairs; ++i) {
    float& first = x[interleaved ? 2 * i : i];
    float& second = x[interleaved ? 2 * i + 1 : pairs + i];
    const double a = static_cast<double>(first), b = static_cast<double>(second);
    const double c = static_cast<double>(cosine[i]), s = static_cast<double>(sine[i]);
    first = static_cast<float>(a * c - b * s);
    second = static_cast<float>(a * s + b * c);
  }
}

size_t argmax(const float* x, size_t n) {
  size_t best = 0;
  for (size_t i = 0; i < n; ++i) {
    if (std::isnan(x[i])) return n;
    if (x[i] > x[best]) best = i;
  }
  return best;
}

double log_sum_exp(const float* x, size_t n) {
  const size_t at = argmax(x, n);
  if (at == n) return std::numeric_limits<double>::quiet_NaN();
  const double highest = static_cast<double>(x[at]);
  if (std::isinf(highest)) return highest;
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(x[i]) - highest);
  return std::log(sum) + highest;
}

bool all_finite(const float* x, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return false;
  }
  return true;
}

}  // namespace

const RowOps& row_ops_table() {
  static constexpr RowOps table = {.rms_norm = rms_norm,
                                   .silu_mul = silu_mul,
                                   .add = add,
                                   .rope = rope,
                                   .argmax = argmax,
                                   .log_sum_exp = log_sum_exp,
                                   .all_finite = all_finite};
  return table;
}

}  // namespace deepinfer::kernels::ref
