// Latent attention as its formula reads: all scores, one softmax, one weighted sum, in double.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/attention/latent_attention_kernel.h"
#include "kernels/attention/latent_row_tables.h"
#include "tensor/dtype.h"

namespace deepinfer::kernels::ref {
namespace {

void decode_row(const LatentShape& shape, const LatentList& list, size_t i, float* row) {
  const LatentRowOps& ops = latent_row_ops_table();
  if (i < list.window_count()) return ops.decode(shape.window, list.window_row(i), row);
  ops.decode(shape.entries, list.entry_row(i - list.window_count()), row);
}

}  // namespace

void latent_attention_head(const LatentShape& shape, const LatentQuery& query, size_t head,
                           double* scratch) noexcept {
  const LatentList list(shape, query);
  const size_t rows = list.size();
  double* scores = scratch;                                       // [rows]
  double* sums = scores + rows;                                   // [value_dim]
  float* row = reinterpret_cast<float*>(sums + shape.value_dim);  // [dim]
  const float* q = query.query + head * shape.dim;
  float* out = query.out + head * shape.value_dim;
  double highest = -std::numeric_limits<double>::infinity();
  for (size_t n = 0; n < rows; ++n) {
    decode_row(shape, list, n, row);
    double dot = 0.0;
    for (size_t k = 0; k < shape.dim; ++k) {
      dot += static_cast<double>(q[k]) * static_cast<double>(row[k]);
    }
    scores[n] = dot * static_cast<double>(shape.scale);
    highest = std::max(highest, scores[n]);
  }
  std::fill_n(sums, shape.value_dim, 0.0);
  double total = 0.0;
  for (size_t n = 0; n < rows; ++n) {
    double weight = std::exp(scores[n] - highest);
    total += weight;
    if (shape.faithful) {
      weight = static_cast<double>(bf16_to_f32(f32_to_bf16(static_cast<float>(weight))));
    }
    decode_row(shape, list, n, row);
    for (size_t d = 0; d < shape.value_dim; ++d) sums[d] += weight * static_cast<double>(row[d]);
  }
  if (rows > 0 && shape.sink != nullptr) {
    total += std::exp(static_cast<double>(shape.sink[head]) - highest);
  }
  for (size_t d = 0; d < shape.value_dim; ++d) {
    out[d] = rows == 0 ? 0.0f : static_cast<float>(sums[d] / total);
  }
}

}  // namespace deepinfer::kernels::ref
