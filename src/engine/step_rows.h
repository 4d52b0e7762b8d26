#pragma once

// StepRows: the ragged rows of a step as the model takes them, and which of them are read.
//
// Threads: see engine_core.h; while a step computes nobody changes them.

#include <cstdint>
#include <vector>

#include "engine/sequence.h"
#include "models/model.h"

namespace deepinfer::engine {

class StepRows {
 public:
  struct Member {
    Sequence* sequence = nullptr;
    uint64_t first = 0;  // position of its first row
    size_t rows = 0;     // drafts included
    size_t drafts = 0;
    size_t first_row = 0;     // of the step
    size_t first_logits = 0;  // row of the output that is its first one with logits
  };

  void clear();
  // The next `rows` pending ids of a running sequence whose cache is reserved, then its drafts.
  void add(Sequence& sequence, size_t rows);

  bool empty() const { return members_.empty(); }
  size_t rows() const { return ids_.size(); }
  size_t wanted() const { return wanted_; }
  const std::vector<Member>& members() const { return members_; }
  bool wants(size_t row) const { return want_logits_[row] != 0; }
  // Sum over the rows of the tokens that each one reads.
  double context_tokens() const { return context_tokens_; }
  models::StepBatch batch() const;
  // Those of one member only. The same rows as in the step.
  models::StepBatch batch_of(size_t member) const;

 private:
  std::vector<Member> members_;
  std::vector<int32_t> ids_;                   // [rows]
  std::vector<uint64_t> positions_;            // [rows]
  std::vector<uint32_t> row_start_ = {0};      // [members + 1]
  std::vector<uint8_t> want_logits_;           // [rows]
  std::vector<cache::SequenceCache*> caches_;  // [members]
  std::vector<models::SequenceStart> starts_;  // [members]
  std::vector<const float*> embeddings_;       // [rows], null where the id counts
  mutable std::vector<uint32_t> alone_start_;  // [2], of batch_of()
  bool has_images_ = false;
  size_t wanted_ = 0;
  double context_tokens_ = 0;
};

}  // namespace deepinfer::engine
