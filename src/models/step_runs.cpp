#include "models/step_runs.h"

#include "base/check.h"

namespace deepinfer::models {

std::vector<StepRun> step_runs(const StepBatch& batch, size_t max_rows) {
  const size_t rows = batch.ids.size();
  check(rows > 0 && rows <= max_rows, "rows of the step");
  check(batch.positions.size() == rows && batch.want_logits.size() == rows, "rows of the batch");
  check(batch.row_start.size() == batch.caches.size() + 1, "sequences of the batch");
  check(batch.row_start.front() == 0 && batch.row_start.back() == rows, "row_start");
  check(batch.starts.empty() || batch.starts.size() == batch.caches.size(), "starts");
  check(batch.embeddings.empty() || batch.embeddings.size() == rows, "embeddings");
  std::vector<StepRun> runs;
  for (size_t s = 0; s < batch.caches.size(); ++s) {
    const size_t first = batch.row_start[s], end = batch.row_start[s + 1];
    check(first < end, "sequence without rows");
    const SequenceStart start = batch.starts.empty() ? SequenceStart{} : batch.starts[s];
    const uint64_t position = batch.positions[first];
    check(position >= start.window, "a row before the sequence's first window position");
    for (size_t row = first; row < end; ++row) {
      check(batch.positions[row] == position + (row - first), "positions");
      check(batch.want_logits[row] == 0 || batch.positions[row] >= start.decoder,
            "logits wanted of a row that does not run the decoder");
    }
    check(cache::pages_for(position + (end - first)) <= batch.caches[s]->page_count(),
          "cache not reserved for the rows");
    runs.push_back({.sequence = s,
                    .cache = batch.caches[s],
                    .start = start,
                    .first_row = first,
                    .rows = end - first,
                    .first_position = position});
  }
  return runs;
}

void PageLists::begin(std::span<const StepRun> runs, size_t stream) {
  first_.clear();
  pages_.clear();
  for (const StepRun& run : runs) {
    first_.resize(run.sequence + 1, pages_.size());
    const size_t count = cache::pages_for(run.end_position());
    for (size_t i = 0; i < count; ++i) pages_.push_back(run.cache->page(i, stream));
  }
}

}  // namespace deepinfer::models
