// Attention as its formula reads: all scores, one softmax, one weighted sum, in double.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/attention/attention_kernel.h"

namespace deepinfer::kernels::ref {
namespace {

double element(KvForm form, const std::byte* page, size_t index) {
  if (form == KvForm::f32) return static_cast<double>(reinterpret_cast<const float*>(page)[index]);
  const uint32_t code = reinterpret_cast<const uint16_t*>(page)[index];
  return static_cast<double>(std::bit_cast<float>(code << 16));
}

}  // namespace

void attention_row(const AttentionShape& shape, const AttentionSequence& sequence, size_t row,
                   size_t head, const float* query, float* out, double* scores) noexcept {
  const size_t dims = shape.head_dim;
  const size_t kv_head = head / (shape.heads / shape.kv_heads);
  const size_t keys = kv_head * 2 * dims * kPageTokens;  // first element of the head in a page
  const size_t values = keys + dims * kPageTokens;
  const size_t tokens = static_cast<size_t>(last_token(sequence, row)) + 1;
  double highest = -std::numeric_limits<double>::infinity();
  for (size_t t = 0; t < tokens; ++t) {
    const std::byte* page = sequence.pages[t / kPageTokens];
    double dot = 0.0;
    for (size_t d = 0; d < dims; ++d) {
      dot += static_cast<double>(query[d]) *
             element(shape.form, page, keys + d * kPageTokens + t % kPageTokens);
    }
    scores[t] = dot * static_cast<double>(shape.scale);
    highest = std::max(highest, scores[t]);
  }
  double sum = 0.0;
  for (size_t t = 0; t < tokens; ++t) {
    scores[t] = std::exp(scores[t] - highest);
    sum += scores[t];
    if (shape.bf16_weights) {
      scores[t] = static_cast<double>(bf16_to_f32(f32_to_bf16(static_cast<float>(scores[t]))));
    }
  }
  for (size_t d = 0; d < dims; ++d) {
    double mean = 0.0;
    for (size_t t = 0; t < tokens; ++t) {
      const std::byte* page = sequence.pages[t / kPageTokens];
      mean += scores[t] * element(shape.form, page, values + t % kPageTokens * dims + d);
    }
    out[d] = static_cast<float>(mean / sum);
  }
}

}  // namespace deepinfer::kernels::ref
