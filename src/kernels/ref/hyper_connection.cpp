// The plain form of hyper-connections: scalar, sums in double.

#include "kernels/hyper_connection_kernel.h"

namespace deepinfer::kernels::ref {
namespace {

float dot(const float* a, const float* b, size_t n) {
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return static_cast<float>(sum);
}

void products(const HyperTile& tile) {
  for (size_t r = 0; r < tile.row_count; ++r) {
    const float* row = tile.rows + r * tile.width;
    for (size_t o = 0; o < tile.outputs; ++o) {
      tile.sums[r * tile.stride + o] = dot(tile.fn + o * tile.width, row, tile.width);
    }
    if (tile.squares != nullptr) tile.squares[r * tile.stride] = dot(row, row, tile.width);
  }
}

void collapse(const float* streams, const float* pre, size_t n, size_t hidden, float* out) {
  for (size_t i = 0; i < hidden; ++i) {
    double sum = 0.0;
    for (size_t j = 0; j < n; ++j) {
      sum += static_cast<double>(pre[j]) * static_cast<double>(streams[j * hidden + i]);
    }
    out[i] = static_cast<float>(sum);
  }
}

void expand(float* streams, const float* f, const HyperMix& mix, size_t n, size_t hidden) {
  for (size_t i = 0; i < hidden; ++i) {
    double sums[kMaxStreams];
    for (size_t k = 0; k < n; ++k) {
      sums[k] = static_cast<double>(mix.post[k]) * static_cast<double>(f[i]);
      for (size_t j = 0; j < n; ++j) {
        sums[k] +=
            static_cast<double>(mix.comb[j * n + k]) * static_cast<double>(streams[j * hidden + i]);
      }
    }
    for (size_t k = 0; k < n; ++k) streams[k * hidden + i] = static_cast<float>(sums[k]);
  }
}

}  // namespace

const HyperKernel& hyper_kernel() {
  static constexpr HyperKernel kernel = {.products = products,
                                         .row_ops = {.collapse = collapse, .expand = expand}};
  return kernel;
}

}  // namespace deepinfer::kernels::ref
