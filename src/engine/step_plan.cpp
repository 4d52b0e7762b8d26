#include "engine/step_plan.h"

namespace deepinfer::engine {

void StepPlan::clear() {
  sequences_.clear();
  ids_.clear();
  positions_.clear();
  row_start_.assign(1, 0);
  want_logits_.clear();
  caches_.clear();
  starts_.clear();
  embeddings_.clear();
  has_images_ = false;
  wanted_ = 0;
}

void StepPlan::add(Sequence& sequence, size_t rows) {
  check(rows > 0 && rows <= sequence.pending(), "rows of a sequence");
  const size_t first = sequence.cached();
  for (size_t position = first; position < first + rows; ++position) {
    const bool wanted = sequence.wants_logits(position);
    ids_.push_back(sequence.ids[position]);
    positions_.push_back(position);
    embeddings_.push_back(sequence.embedding(position));
    has_images_ = has_images_ || embeddings_.back() != nullptr;
    want_logits_.push_back(wanted ? 1 : 0);
    wanted_ += wanted ? 1 : 0;
  }
  row_start_.push_back(static_cast<uint32_t>(ids_.size()));
  sequences_.push_back(&sequence);
  caches_.push_back(&*sequence.cache);
  starts_.push_back(sequence.start);
}

size_t StepPlan::rows_within(const Sequence& sequence, size_t rows, size_t logits) {
  const size_t first = sequence.cached();
  for (size_t i = 0; i < rows; ++i) {
    if (!sequence.wants_logits(first + i)) continue;
    if (logits == 0) return i;
    --logits;
  }
  return rows;
}

models::StepBatch StepPlan::batch() const {
  models::StepBatch batch = {.ids = ids_,
                             .positions = positions_,
                             .row_start = row_start_,
                             .want_logits = want_logits_,
                             .caches = caches_,
                             .starts = starts_};
  if (has_images_) batch.embeddings = embeddings_;
  return batch;
}

}  // namespace deepinfer::engine
