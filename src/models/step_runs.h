#pragma once

// StepRun: the rows of one sequence in a step, and the list of pages that they may read.
//
// Threads: derived by the thread of forward(), read by workers.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/model.h"

namespace deepinfer::models {

// Consecutive rows of one sequence. Rows of a step that no longer run (SequenceStart::decoder) make
// a run shorter at its front; first_row then counts the rows that still do.
struct StepRun {
  size_t sequence = 0;  // of the batch
  cache::SequenceCache* cache = nullptr;
  SequenceStart start;
  size_t first_row = 0;
  size_t rows = 0;
  uint64_t first_position = 0;

  uint64_t end_position() const { return first_position + rows; }
};

// Checks the batch against its own contract (model.h); one run per sequence.
std::vector<StepRun> step_runs(const StepBatch& batch, size_t max_rows);

// The pages of one growing stream, per sequence.
class PageLists {
 public:
  // Pages of all positions below each run's end.
  void begin(std::span<const StepRun> runs, size_t stream);
  // [pages] of a sequence of the batch.
  std::byte* const* of(size_t sequence) const { return pages_.data() + first_[sequence]; }

 private:
  std::vector<size_t> first_;  // [sequences + 1]
  std::vector<std::byte*> pages_;
};

}  // namespace deepinfer::models
