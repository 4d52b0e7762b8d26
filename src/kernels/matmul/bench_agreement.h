#pragma once

// What the benchmarks of products share: rows of activations, and contenders that agree before
// they are timed.

#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/bench_machine.h"
#include "kernels/matmul.h"

namespace deepinfer::kernels {

inline std::vector<float> bench_rows(size_t rows, size_t inputs) {
  std::vector<float> x(rows * inputs);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i % 65521) * 0.37f);
  return x;
}

// x [acts.rows()][acts.inputs()]
inline void fill_rows(Activations& acts, const std::vector<float>& x) {
  for (size_t r = 0; r < acts.rows(); ++r) acts.fill_row(r, x.data() + r * acts.inputs());
}

// Whether one row of the product has the reference's bits. Its time grows with the outputs: a slice
// of them is enough.
inline bool agrees_with_reference(const ScaledView& matrix, Isa isa) {
  const size_t outputs = matrix.outputs(), inputs = matrix.inputs();
  const std::vector<float> x = bench_rows(1, inputs);
  std::vector<float> results[2];
  const Isa contenders[2] = {Isa::ref, isa};
  for (size_t i = 0; i < 2; ++i) {
    const Target target{contenders[i], Numerics::fast};
    const PackedMatrix w = PackedMatrix::pack(matrix, target, bench_pool()).value();
    Activations acts;
    acts.begin(target, 1, inputs, w.form());
    fill_rows(acts, x);
    results[i].resize(outputs);
    matmul(bench_pool(), acts, {{.weights = &w, .out = results[i].data(), .stride = outputs}});
  }
  return results[0] == results[1];
}

}  // namespace deepinfer::kernels
