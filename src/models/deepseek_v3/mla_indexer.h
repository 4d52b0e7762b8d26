#pragma once

// MlaIndexer: which tokens a row of V3.2 attends to.
//
//   key_t = rope(layer_norm(Wk n_t))             rope on the first dims, half-split pairs
//   q     = rope(Wq qr)      w = Wp n * heads^-1/2 * dim^-1/2
//   score_t = sum_h w_h relu(q_h . key_t);   the topk best of all t <= position, all when fewer
//
// Source: DeepSeek-V3.2's inference code and Hugging Face's modeling_deepseek_v32, without the
// Hadamard rotation and the FP8 rounding of the former. Keys lie in a growing stream of their own.
//
// Threads: from the thread of forward(), on the pool; finish_key() and fill_query() from workers.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/attention/indexer.h"
#include "kernels/matmul.h"
#include "models/deepseek_v3/mla_layer.h"
#include "models/profile.h"
#include "models/rope_rows.h"
#include "models/row_work.h"

namespace deepinfer::models {

class MlaIndexer {
 public:
  MlaIndexer(const MlaShape& shape, kernels::Isa isa, RowWork& work, Profile& profile)
      : shape_(shape), isa_(isa), work_(work), profile_(profile) {}
  // block_rows: rows that select() sees at most.
  Result<void> create(size_t max_rows, size_t block_rows);
  size_t bytes() const;

  // Where the products of a row of the step go: [index_dim], [index_heads].
  float* key(size_t row) { return keys_.as<float>() + row * shape_.index_dim; }
  float* weights(size_t row) { return weights_.as<float>() + row * shape_.index_heads; }
  // From the products to the entry of the cache and the scaled weights.
  void finish_key(const MlaIndexLayer& layer, const RopeRows& rope, size_t row, std::byte* entry);

  // Queries of a block: [index_heads][index_dim], as the product leaves them.
  float* query(size_t slot) {
    return queries_.as<float>() + slot * shape_.index_heads * shape_.index_dim;
  }
  void finish_query(const RopeRows& rope, size_t row, size_t slot);

  struct Row {
    size_t row = 0;  // of the step
    const std::byte* const* pages = nullptr;
    size_t visible = 0;
  };
  // rows[slot], then selected(slot) [selected_count(slot)] ascending; null: all visible ones.
  Result<void> select(std::span<const Row> rows, const std::string& where);
  const uint32_t* selected(size_t slot) const {
    return counts_[slot] > 0 ? selected_.as<uint32_t>() + slot * shape_.index_topk : nullptr;
  }
  size_t selected_count(size_t slot) const { return counts_[slot]; }

 private:
  const MlaShape shape_;
  const kernels::Isa isa_;
  RowWork& work_;
  Profile& profile_;
  Buffer keys_;                                     // [max_rows][index_dim]
  Buffer weights_;                                  // [max_rows][index_heads]
  Buffer queries_;                                  // [block_rows][index_heads][index_dim]
  Buffer selected_;                                 // [block_rows][index_topk] uint32_t
  Buffer scores_;                                   // of the rows that must choose, [visible] each
  std::vector<size_t> counts_;                      // [block_rows]; 0: everything is selected
  std::vector<size_t> choosing_;                    // slots
  std::vector<kernels::IndexQuery> index_queries_;  // of choosing_
};

}  // namespace deepinfer::models
