#pragma once

// StepPlan: which sequences contribute how many rows to a step, and the StepBatch that says so.
//
// Threads: the engine's.

#include <cstdint>
#include <vector>

#include "engine/sequence.h"
#include "models/model.h"

namespace deepinfer::engine {

class StepPlan {
 public:
  void clear();
  // The next `rows` pending ids of `sequence`, whose cache is reserved for them.
  void add(Sequence& sequence, size_t rows);

  // How many of the next `rows` pending ids can run when `logits` more rows may have logits.
  static size_t rows_within(const Sequence& sequence, size_t rows, size_t logits);

  bool empty() const { return sequences_.empty(); }
  size_t rows() const { return ids_.size(); }
  size_t wanted() const { return wanted_; }
  const std::vector<Sequence*>& sequences() const { return sequences_; }
  size_t first_row(size_t index) const { return row_start_[index]; }
  size_t row_count(size_t index) const { return row_start_[index + 1] - row_start_[index]; }
  bool wants(size_t row) const { return want_logits_[row] != 0; }
  models::StepBatch batch() const;

 private:
  std::vector<Sequence*> sequences_;
  std::vector<int32_t> ids_;                   // [rows]
  std::vector<uint64_t> positions_;            // [rows]
  std::vector<uint32_t> row_start_ = {0};      // [sequences + 1]
  std::vector<uint8_t> want_logits_;           // [rows]
  std::vector<cache::SequenceCache*> caches_;  // [sequences]
  std::vector<models::SequenceStart> starts_;  // [sequences]
  std::vector<const float*> embeddings_;       // [rows], null where the id counts
  bool has_images_ = false;
  size_t wanted_ = 0;
};

}  // namespace deepinfer::engine
