#include "kernels/hyper_connection.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "kernels/hyper_connection_kernel.h"

namespace deepinfer::kernels {
namespace {

// A chunk of work: up to so many rows times so many outputs. While there are few rows the outputs
// are spread over the threads too, because fn is what costs.
constexpr size_t kChunkRows = 16;
constexpr size_t kChunkOutputs = 4;

const HyperKernel& kernel_of(Isa isa) {
  switch (isa) {
    case Isa::ref:
      break;
    case Isa::avx2:
      return avx2::hyper_kernel();
    case Isa::avx512:
      return avx512::hyper_kernel();
    case Isa::emulated512:
      return emulated512::hyper_kernel();
  }
  return ref::hyper_kernel();
}

float sigmoid(float v) { return 1.0f / (1.0f + std::exp(-v)); }

// One pass: every entry divided by its sum + eps, sums of rows ([j][.]) or of columns ([.][k]).
template <size_t N>
void divide_by_row_sums(float* comb, float eps) {
  for (size_t j = 0; j < N; ++j) {
    float sum = eps;
    for (size_t k = 0; k < N; ++k) sum += comb[j * N + k];
    for (size_t k = 0; k < N; ++k) comb[j * N + k] /= sum;
  }
}

template <size_t N>
void divide_by_column_sums(float* comb, float eps) {
  float sums[N];  // of the columns
  for (size_t k = 0; k < N; ++k) sums[k] = eps;
  for (size_t j = 0; j < N; ++j) {
    for (size_t k = 0; k < N; ++k) sums[k] += comb[j * N + k];
  }
  for (size_t j = 0; j < N; ++j) {
    for (size_t k = 0; k < N; ++k) comb[j * N + k] /= sums[k];
  }
}

template <size_t N>
void sinkhorn(float* comb, size_t iterations, float eps) {
  for (size_t j = 0; j < N; ++j) {
    float* row = comb + j * N;
    const float highest = *std::max_element(row, row + N);
    float sum = 0.0f;
    for (size_t k = 0; k < N; ++k) sum += row[k] = std::exp(row[k] - highest);
    for (size_t k = 0; k < N; ++k) row[k] = row[k] / sum + eps;
  }
  divide_by_column_sums<N>(comb, eps);
  for (size_t i = 1; i < iterations; ++i) {
    divide_by_row_sums<N>(comb, eps);
    divide_by_column_sums<N>(comb, eps);
  }
}

// products [outputs + 1]: the outputs of fn, then the sum of squares.
template <size_t N>
void coefficients(const HyperShape& shape, const HyperWeights& weights, const float* products,
                  size_t outputs, HyperMix& mix) {
  const float mean = products[outputs] / static_cast<float>(N * shape.hidden);
  const float factor = 1.0f / std::sqrt(mean + shape.norm_eps);
  const auto value = [&](size_t i, size_t scale) {
    return products[i] * factor * weights.scale[scale] + weights.base[i];
  };
  for (size_t j = 0; j < N; ++j) mix.pre[j] = sigmoid(value(j, 0)) + shape.eps;
  if (weights.head) return;
  for (size_t j = 0; j < N; ++j) mix.post[j] = 2.0f * sigmoid(value(N + j, 1));
  for (size_t i = 0; i < N * N; ++i) mix.comb[i] = value(2 * N + i, 2);
  sinkhorn<N>(mix.comb.data(), shape.iterations, shape.eps);
}

using Coefficients = void (*)(const HyperShape&, const HyperWeights&, const float*, size_t,
                              HyperMix&);
constexpr Coefficients kCoefficients[kMaxStreams] = {
    coefficients<1>, coefficients<2>, coefficients<3>, coefficients<4>,
    coefficients<5>, coefficients<6>, coefficients<7>, coefficients<8>};

}  // namespace

void hyper_mix(ThreadPool& pool, Isa isa, const HyperShape& shape, const HyperWeights& weights,
               const float* streams, size_t rows, HyperMix* mixes) {
  const size_t n = shape.streams;
  check(n >= 1 && n <= kMaxStreams, "hyper-connections of 1 to 8 streams");
  const size_t outputs = weights.head ? n : 2 * n + n * n, width = n * shape.hidden;
  const size_t stride = outputs + 1;
  const size_t row_blocks = (rows + kChunkRows - 1) / kChunkRows;
  const bool whole = row_blocks >= 2 * pool.thread_count();
  const size_t chunk_outputs = whole ? outputs : std::min(outputs, kChunkOutputs);
  const size_t output_blocks = (outputs + chunk_outputs - 1) / chunk_outputs;
  const HyperKernel& kernel = kernel_of(isa);
  std::vector<float> products(rows * stride);  // [rows][outputs + 1]
  pool.run(row_blocks * output_blocks, [&](size_t chunk, size_t) {
    const size_t row = chunk / output_blocks * kChunkRows;
    const size_t output = chunk % output_blocks * chunk_outputs;
    float* sums = products.data() + row * stride;
    kernel.products({.fn = weights.fn + output * width,
                     .rows = streams + row * width,
                     .outputs = std::min(chunk_outputs, outputs - output),
                     .row_count = std::min(kChunkRows, rows - row),
                     .width = width,
                     .sums = sums + output,
                     .squares = output == 0 ? sums + outputs : nullptr,
                     .stride = stride});
  });
  const auto finish = [&](size_t block, size_t) {
    for (size_t r = block * kChunkRows; r < std::min(rows, (block + 1) * kChunkRows); ++r) {
      kCoefficients[n - 1](shape, weights, products.data() + r * stride, outputs, mixes[r]);
    }
  };
  if (row_blocks == 1) return finish(0, 0);
  pool.run(row_blocks, finish);
}

const HyperRowOps& hyper_row_ops(Isa isa) { return kernel_of(isa).row_ops; }

}  // namespace deepinfer::kernels
