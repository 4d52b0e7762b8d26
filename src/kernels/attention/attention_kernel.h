#pragma once

// What the driver of attention (attention.cpp) and the bodies (cpu/attention.inc) share.
//
// A pair is one query row with one of the heads that read the same key/value head:
// pair = row * group + head within the group, group = heads / kv_heads. A tile is up to kTilePairs
// consecutive pairs; its position in the list of pairs does not change anyone's result.
//
// Threads: kernels are pure functions of their arguments; scratch belongs to one worker.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention.h"

namespace deepinfer::kernels {

// 72 pairs read each widened column of a page twelve times from L1, in blocks of six; their scores
// take 150 KB of L2.
inline constexpr size_t kTilePairs = 72;
// Rows of scores; 16 more than a span so that rows do not fall into the same cache sets.
inline constexpr size_t kScoreStride = kSpan + 16;

// Head dimensions in whole vectors of the widest instruction set.
inline size_t padded_dims(const AttentionShape& shape) { return (shape.head_dim + 15) / 16 * 16; }

// One span of one pair: weighted values [padded], then the maximum and the sum.
inline size_t block_stride(const AttentionShape& shape) { return padded_dims(shape) + 16; }

inline uint64_t last_token(const AttentionSequence& sequence, size_t row) {
  return sequence.first_position + (sequence.bidirectional ? sequence.rows - 1 : row);
}

struct AttentionTile {
  const AttentionShape* shape = nullptr;
  const AttentionSequence* sequence = nullptr;
  size_t query_stride = 0;
  size_t out_stride = 0;
  size_t kv_head = 0;
  size_t first_pair = 0;
  size_t pairs = 0;

  size_t group() const { return shape->heads / shape->kv_heads; }
  size_t row(size_t pair) const { return (first_pair + pair) / group(); }
  // Offset of the pair's head within a row of queries or results.
  size_t head_offset(size_t pair) const {
    return (kv_head * group() + (first_pair + pair) % group()) * shape->head_dim;
  }
  // The last token that the pair sees.
  uint64_t last(size_t pair) const { return last_token(*sequence, row(pair)); }
  size_t span_count() const { return static_cast<size_t>(last(pairs - 1)) / kSpan + 1; }
  // Tokens of the span that the pair sees.
  size_t visible(size_t pair, size_t span) const {
    const uint64_t end = last(pair) + 1, begin = uint64_t{span} * kSpan;
    return end <= begin ? 0 : static_cast<size_t>(std::min<uint64_t>(end - begin, kSpan));
  }
};

// Floats that whole() and span() need of scratch, 64-byte aligned.
inline size_t attention_scratch_floats(const AttentionShape& shape) {
  return kTilePairs * (padded_dims(shape) + kScoreStride + 2 * block_stride(shape)) +
         kPageTokens * padded_dims(shape);
}

struct AttentionKernel {
  // All spans of the tile, result written.
  void (*whole)(const AttentionTile& tile, float* scratch) noexcept;
  // One span to partial [pairs][block_stride].
  void (*span)(const AttentionTile& tile, size_t span, float* partial, float* scratch) noexcept;
  // partials [span_count][pairs][block_stride], overwritten; writes the result.
  void (*combine)(const AttentionTile& tile, float* partials) noexcept;
};

namespace avx2 {
const AttentionKernel& attention_kernel();
}
namespace avx512 {
const AttentionKernel& attention_kernel();
}
namespace emulated512 {
const AttentionKernel& attention_kernel();
}
namespace ref {
// One row of one head with double sums; scores: room for every token that the row sees.
void attention_row(const AttentionShape& shape, const AttentionSequence& sequence, size_t row,
                   size_t head, const float* query, float* out, double* scores) noexcept;
}  // namespace ref

}  // namespace deepinfer::kernels
