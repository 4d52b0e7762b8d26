#include "engine/step_rows.h"

namespace deepinfer::engine {

void StepRows::clear() {
  members_.clear();
  ids_.clear();
  positions_.clear();
  row_start_.assign(1, 0);
  want_logits_.clear();
  caches_.clear();
  starts_.clear();
  embeddings_.clear();
  has_images_ = false;
  wanted_ = 0;
  context_tokens_ = 0;
}

void StepRows::add(Sequence& sequence, size_t rows) {
  check(rows > 0 && rows <= sequence.pending(), "rows of a sequence");
  const size_t drafts = sequence.draft.ids.size();
  check(drafts == 0 || rows == sequence.pending(), "drafts after ids that are not computed");
  const size_t first = sequence.cached();
  members_.push_back({.sequence = &sequence,
                      .first = first,
                      .rows = rows + drafts,
                      .drafts = drafts,
                      .first_row = ids_.size(),
                      .first_logits = wanted_});
  for (size_t position = first; position < first + rows + drafts; ++position) {
    const size_t known = sequence.ids.size();
    const bool wanted = sequence.wants_logits(position);
    ids_.push_back(position < known ? sequence.ids[position]
                                    : sequence.draft.ids[position - known]);
    positions_.push_back(position);
    embeddings_.push_back(sequence.embedding(position));
    has_images_ = has_images_ || embeddings_.back() != nullptr;
    want_logits_.push_back(wanted ? 1 : 0);
    wanted_ += wanted ? 1 : 0;
    context_tokens_ += static_cast<double>(position + 1);
  }
  row_start_.push_back(static_cast<uint32_t>(ids_.size()));
  caches_.push_back(&*sequence.cache);
  starts_.push_back(sequence.start);
}

models::StepBatch StepRows::batch() const {
  models::StepBatch batch = {.ids = ids_,
                             .positions = positions_,
                             .row_start = row_start_,
                             .want_logits = want_logits_,
                             .caches = caches_,
                             .starts = starts_};
  if (has_images_) batch.embeddings = embeddings_;
  return batch;
}

models::StepBatch StepRows::batch_of(size_t member) const {
  const size_t first = members_[member].first_row;
  const size_t rows = members_[member].rows;
  alone_start_ = {0, static_cast<uint32_t>(rows)};
  models::StepBatch batch = {.ids = std::span(ids_).subspan(first, rows),
                             .positions = std::span(positions_).subspan(first, rows),
                             .row_start = alone_start_,
                             .want_logits = std::span(want_logits_).subspan(first, rows),
                             .caches = std::span(caches_).subspan(member, 1),
                             .starts = std::span(starts_).subspan(member, 1)};
  if (has_images_) batch.embeddings = std::span(embeddings_).subspan(first, rows);
  return batch;
}

}  // namespace deepinfer::engine
