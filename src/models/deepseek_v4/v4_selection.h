#pragma once

// V4Selection: the indexer of a CSA layer over the rows of a step: which entries each row attends
// to (source: spec v4.md 4.4).
//
//   iq = rope(q_b qr)     w = (weights h) * dim^-1/2 * heads^-1/2
//   score_k = sum_h w_h relu(iq_h . ik_k) over the visible k; the topk largest are kept
// A row that sees topk entries or fewer keeps them all, and nothing is computed for it.
//
// Keys in q4u: queries take the same Hadamard transform and rounding. faithful: products' outputs,
// rotated and transformed rows are bf16.
//
// Bits: a row's selection depends on the row and the keys only. Threads: from the thread of
// forward(), on the pool.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/attention/indexer.h"
#include "models/deepseek_v4/deepseek_v4_cache.h"
#include "models/profile.h"
#include "models/rope_rows.h"
#include "models/rounding.h"
#include "models/row_work.h"
#include "models/step_runs.h"
#include "weights/deepseek/deepseek_config.h"

namespace deepinfer::models {

class V4Selection {
 public:
  V4Selection(const weights::IndexerConfig& config, kernels::Target target, Rounding rounding,
              RowWork& work, Profile& profile);
  Result<void> create(size_t max_rows);
  size_t bytes() const;

  // Forgets the last layer's; tells whether scores are needed at all.
  bool begin(std::span<const uint64_t> positions);
  // Products write here when they are: q_b qr [rows][heads * dim] and weights h [rows][heads].
  float* queries() { return queries_.as<float>(); }
  float* weights() { return weights_.as<float>(); }

  // After the products and the step's index keys: chooses for every row. `where` names the layer.
  Result<void> choose(std::span<const StepRun> runs, std::span<const uint64_t> positions,
                      const RopeRows& rope, const PageLists& pages, const EntryStore& store,
                      const std::string& where);

  size_t count(size_t row) const { return counts_[row]; }
  // [count] ascending; null: all visible entries.
  const uint32_t* selected(size_t row) const {
    return all_[row] != 0 ? nullptr : selected_.data() + row * config_.topk;
  }

 private:
  void prepare(const RopeRows& rope, const EntryStore& store, size_t row);
  void score(std::span<kernels::IndexQuery> queries, std::span<const size_t> rows,
             const EntryStore& store);

  const weights::IndexerConfig config_;
  const kernels::Target target_;
  const Rounding rounding_;
  RowWork& work_;
  Profile& profile_;
  float scale_;
  Buffer queries_;                  // [max_rows][heads][dim]
  Buffer weights_;                  // [max_rows][heads]
  Buffer scores_;                   // of some rows, [visible] each
  std::vector<uint32_t> selected_;  // [max_rows][topk]
  std::vector<size_t> counts_;      // [rows]
  std::vector<uint8_t> all_;        // [rows]
};

}  // namespace deepinfer::models
