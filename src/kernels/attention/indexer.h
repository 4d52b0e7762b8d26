#pragma once

// The sparse-attention indexer of V3.2, V4 and V4.1: scores of all visible entries, and the best.
//
//   score_j = sum_h weights[h] * relu(q_h . key_j)          h ascending
// faithful (V4.1's official arithmetic is bf16 there; the reference sums in float32): none; what
// rounds is the queries and keys, before they come here.
//
// With keys in q4u the queries must hold values that q4u represents exactly (rounded by
// LatentRowOps::round), so that products of codes are exact integers.
//
// Bits: a score depends on its query, weights and key only. Threads: uses the pool.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/attention/latent_rows.h"
#include "kernels/isa.h"

namespace deepinfer::kernels {

struct IndexShape {
  size_t heads = 0;
  LatentFormat keys;  // f32, bf16 or q4u
  size_t entries_per_page = 0;
};

struct IndexQuery {
  const float* query = nullptr;    // [heads][width]
  const float* weights = nullptr;  // [heads]
  const std::byte* const* pages = nullptr;
  size_t visible = 0;
  float* scores = nullptr;  // [visible], written
};

void index_scores(ThreadPool& pool, Isa isa, const IndexShape& shape,
                  std::span<const IndexQuery> queries);

// out: the indices of the min(k, count) largest scores, ascending; of equal scores the lower index
// wins. NaN counts as the smallest. Returns how many. O(count) expected.
size_t select_top(const float* scores, size_t count, size_t k, uint32_t* out);

// V4.1's candidate level: entries [0, visible) cut into blocks of `block` entries; a block's score
// is its largest entry, capped at the largest finite bf16; the block of the newest visible entry
// counts as +infinity. out: the best `blocks` block numbers, ascending (all when there are no
// more).
size_t select_blocks(const float* scores, size_t visible, size_t block, size_t blocks,
                     uint32_t* out);

// select_top among the entries of the candidate blocks that are visible: never filled from outside.
size_t select_top_in_blocks(const float* scores, size_t visible, size_t k, size_t block,
                            std::span<const uint32_t> candidates, uint32_t* out);

}  // namespace deepinfer::kernels
