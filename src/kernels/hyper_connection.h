#pragma once

// Hyper-connections of V4 and V4.1 (mHC): a row is n residual streams of `hidden` values,
// [n][hidden], stream 0 first. All arithmetic is float32. Source: spec v4.md 4.1, v41.md 4.2.
//
//   m = (fn . streams) / sqrt(mean(streams^2) + norm_eps)        2n + n*n values, one statistic
//   pre_j  = sigmoid(m_j * scale_0 + base_j) + eps
//   post_j = 2 sigmoid(m_{n+j} * scale_1 + base_{n+j})
//   C = softmax over k of (m_{2n+nj+k} * scale_2 + base_{2n+nj+k}) + eps;  C /= column sums + eps
//   iterations - 1 times: C /= row sums + eps; C /= column sums + eps    (column sum: over j)
//   collapse: u = sum_j pre_j X_j           expand: X'_k = post_k f + sum_j C_jk X_j
//   head: w_j = sigmoid(m_j * scale_0 + base_j) + eps, fn [n, n*hidden]
//
// Bits: a row's result depends on the row only. Threads: hyper_mix uses the pool; the row functions
// any thread.

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/isa.h"

namespace deepinfer::kernels {

inline constexpr size_t kMaxStreams = 8;

struct HyperShape {
  size_t streams = 4;  // n, 1 .. kMaxStreams
  size_t hidden = 0;
  size_t iterations = 20;
  float eps = 1e-6f;
  float norm_eps = 1e-6f;
};

// Weights of one sublayer, or of a head (then fn has n rows and mix only fills pre).
struct HyperWeights {
  const float* fn = nullptr;     // [2n + n*n][n * hidden]; head: [n][n * hidden]
  const float* base = nullptr;   // [2n + n*n]; head: [n]
  const float* scale = nullptr;  // [3]; head: [1]
  bool head = false;
};

struct HyperMix {
  std::array<float, kMaxStreams> pre{};
  std::array<float, kMaxStreams> post{};
  std::array<float, kMaxStreams * kMaxStreams> comb{};  // [j][k], n x n densely
};

// streams [rows][n * hidden] -> mixes [rows].
void hyper_mix(ThreadPool& pool, Isa isa, const HyperShape& shape, const HyperWeights& weights,
               const float* streams, size_t rows, HyperMix* mixes);

struct HyperRowOps {
  // out [hidden] = sum_j pre[j] * streams[j]
  void (*collapse)(const float* streams, const float* pre, size_t n, size_t hidden, float* out);
  // streams [n][hidden] in place; f [hidden] is the sublayer's output.
  void (*expand)(float* streams, const float* f, const HyperMix& mix, size_t n, size_t hidden);
};
const HyperRowOps& hyper_row_ops(Isa isa);

}  // namespace deepinfer::kernels
