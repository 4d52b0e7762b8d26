#pragma once

// V41Selection: which compressed entries each row of a step attends to. Index source layers choose
// them, the layers up to the next one reuse them. Source: spec v41.md 4.5.
//
//   score_j = sum_heads relu(iq_head . key_j) * w_head
//   selected = the topk visible entries of largest score (equal ones: the lower), ascending
//
// The candidate source layer also keeps the best blocks of entries; index source layers after it
// consider, and score, the entries of those blocks only. A row that sees no more than topk entries
// takes them all, without scores.
//
// Threads: from the thread of forward(), on the pool.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/attention/indexer.h"
#include "models/deepseek_v41/deepseek_v41_weights.h"
#include "models/deepseek_v41/v41_entries.h"
#include "models/profile.h"
#include "models/rope_rows.h"
#include "models/rounding.h"
#include "models/row_work.h"
#include "models/step_runs.h"

namespace deepinfer::models {

class V41Selection {
 public:
  V41Selection(const weights::DeepseekV41Config& config, kernels::LatentFormat keys,
               kernels::Target target, Rounding rounding, RowWork& work, Profile& profile);
  Result<void> create(size_t max_rows);
  size_t bytes() const;

  // Whether any row must be scored in an index source layer; else its products are not needed.
  bool needs_scores(size_t layer, size_t ratio, std::span<const StepRun> runs) const;
  // The layer's queries as the product leaves them: [rows][heads * dim].
  float* queries() { return queries_.as<float>(); }

  // Chooses for every row of the runs. h [rows][hidden], normed; queries() holds the layer's
  // product when needs_scores().
  Result<void> select(size_t layer, const V41Indexer& weights, const V41EntryStreams& streams,
                      const float* h, std::span<const StepRun> runs, const RopeRows& rope,
                      const std::string& where);

  // [count(row)] ascending, of the last select().
  uint32_t* selected(size_t row) { return selected_.data() + row * topk_; }
  uint32_t& count(size_t row) { return counts_[row]; }
  // Block numbers, ascending; of the candidate source layer.
  uint32_t* candidates(size_t row) { return candidates_.data() + row * blocks_; }
  uint32_t& candidate_count(size_t row) { return candidate_counts_[row]; }
  size_t topk() const { return topk_; }
  size_t candidate_blocks() const { return blocks_; }

 private:
  enum class Level : uint8_t { plain, source, inside };  // of candidates
  Level level(size_t layer) const;
  bool takes_all(Level level, size_t visible) const;
  Result<void> prepare(const V41Indexer& weights, const float* h, size_t rows, const RopeRows& rope,
                       const std::string& where);
  size_t candidate_entries(size_t row, size_t visible);
  void list_blocks(size_t row, const std::byte* const* pages, size_t per_page,
                   const std::byte** blocks);
  void take_best_of_blocks(size_t row, size_t entries, const float* scores);
  Result<void> reserve_scores(size_t floats);
  void take_all(Level level, size_t row, size_t visible);
  void take_best(Level level, size_t row, size_t visible, const float* scores);

  const size_t hidden_, heads_, dim_, topk_, blocks_, block_;
  const std::optional<uint32_t> candidate_source_;
  const kernels::LatentFormat keys_;
  const kernels::Target target_;
  const Rounding rounding_;
  const kernels::LatentRowOps& latent_ops_;
  RowWork& work_;
  Profile& profile_;
  PageLists pages_;
  kernels::Activations activations_;
  Buffer queries_;                                   // [max_rows][heads][dim]
  Buffer weights_;                                   // [max_rows][heads]
  Buffer scores_;                                    // of some rows at a time
  std::vector<const std::byte*> block_pages_;        // [some rows][blocks]
  std::vector<uint32_t> selected_;                   // [max_rows][topk]
  std::vector<uint32_t> counts_, candidate_counts_;  // [max_rows]
  std::vector<uint32_t> candidates_;                 // [max_rows][blocks]
};

}  // namespace deepinfer::models
