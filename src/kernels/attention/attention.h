#pragma once

// Grouped-query attention over keys and values kept in pages of 128 tokens: causal for text, or of
// all rows over all tokens for the patches of a picture.
//
// A page of one layer: per key/value head first the keys transposed, [head_dim][128], then the
// values, [128][head_dim], in the form's element type (f32, or bf16 rounded to nearest even). Keys
// are stored after rotation. The transposed keys make one lane one token: no horizontal sums.
//
//   out[row][head] = sum_t softmax_t(scale * q[row][head] . k[t]) v[t],  t = 0 .. last(row)
//   last(row) = position(row), or the last token of the sequence when it is bidirectional
//
// Bits: a row's result depends on its query, last(row) and the stored rows only. Keys are taken
// in spans of kSpan tokens, at fixed positions from 0; each span gives (max, sum, weighted values),
// with t ascending inside; spans are combined in ascending order. The same for prefill and decode,
// any chunking, thread count and company.
//
// Threads: append() for distinct (sequence, token) from any worker; attention() uses the pool.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/isa.h"
#include "tensor/tensor.h"

namespace deepinfer::kernels {

inline constexpr size_t kPageTokens = 128;
inline constexpr size_t kSpan = 4 * kPageTokens;

enum class KvForm : uint8_t { f32, bf16 };
size_t kv_element_bytes(KvForm form);

struct AttentionShape {
  size_t heads = 0;
  size_t kv_heads = 0;  // divides heads
  size_t head_dim = 0;  // multiple of 8
  KvForm form = KvForm::bf16;
  float scale = 0.0f;  // 1 / sqrt(head_dim) for the classic families
  // The weights exp(score - max of the span) are rounded to bf16 before they weigh values; their
  // sum is not. What kernels on bf16 units do.
  bool bf16_weights = false;

  size_t page_bytes() const {  // of one layer
    return 2 * kv_heads * head_dim * kPageTokens * kv_element_bytes(form);
  }
};

// Writes the key and value rows of one token (already rotated), keys, values [kv_heads * head_dim],
// into slot `token` (0..127) of a page.
void kv_append(const AttentionShape& shape, std::byte* page, size_t token, const float* keys,
               const float* values) noexcept;

// The rows of one sequence in a step: consecutive positions first_position .. + rows - 1.
struct AttentionSequence {
  const std::byte* const* pages = nullptr;  // [ceil((first_position + rows) / 128)], this layer's
  uint64_t first_position = 0;
  size_t rows = 0;
  bool bidirectional = false;      // every row sees all first_position + rows tokens
  const float* queries = nullptr;  // [rows][query_stride], heads * head_dim used, rotated
  float* out = nullptr;            // [rows][out_stride], heads * head_dim written
};

class AttentionWorkspace {
 public:
  void reserve(size_t threads, size_t bytes_per_thread, size_t shared_bytes);
  std::byte* thread(size_t worker) { return threads_.data() + worker * per_thread_; }
  std::byte* shared() { return shared_.data(); }

 private:
  Buffer threads_;
  Buffer shared_;
  size_t per_thread_ = 0;
};

// All sequences of a step in one or two regions of the pool.
void attention(ThreadPool& pool, Isa isa, const AttentionShape& shape,
               std::span<const AttentionSequence> sequences, size_t query_stride, size_t out_stride,
               AttentionWorkspace& workspace);

}  // namespace deepinfer::kernels
