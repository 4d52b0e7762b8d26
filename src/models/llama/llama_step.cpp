#include "models/llama/llama_step.h"

#include <algorithm>

namespace deepinfer::models {

Result<void> LlamaStep::create(const LlamaWidths& widths, size_t rope_pairs, size_t max_rows,
                               size_t threads) {
  constexpr size_t kLineFloats = Buffer::kAlignment / sizeof(float);
  widths_ = widths;
  rope_pairs_ = rope_pairs;
  max_rows_ = max_rows;
  const size_t widest = std::max({widths.hidden, widths.query, widths.intermediate});
  scratch_stride_ = (widest + kLineFloats - 1) / kLineFloats * kLineFloats;
  residual_ = TRY(Buffer::create(max_rows * widths.hidden * sizeof(float)));
  qkv_ = TRY(Buffer::create(max_rows * widths.qkv() * sizeof(float)));
  attended_ = TRY(Buffer::create(max_rows * widths.query * sizeof(float)));
  gate_up_ = TRY(Buffer::create(max_rows * 2 * widths.intermediate * sizeof(float)));
  rope_ = TRY(Buffer::create(max_rows * 2 * rope_pairs * sizeof(float)));
  scratch_ = TRY(Buffer::create(threads * scratch_stride_ * sizeof(float)));
  return {};
}

size_t LlamaStep::bytes() const {
  return residual_.size() + qkv_.size() + attended_.size() + gate_up_.size() + rope_.size() +
         scratch_.size();
}

void LlamaStep::begin(const StepBatch& batch) {
  const size_t rows = batch.ids.size();
  check(rows > 0 && rows <= max_rows_, "rows of the step");
  check(batch.positions.size() == rows && batch.want_logits.size() == rows, "rows of the batch");
  check(batch.row_start.size() == batch.caches.size() + 1, "sequences of the batch");
  check(batch.row_start.front() == 0 && batch.row_start.back() == rows, "row_start");
  row_sequence_.resize(rows);
  first_page_.assign(1, 0);
  for (size_t s = 0; s < batch.caches.size(); ++s) {
    const size_t first = batch.row_start[s], end = batch.row_start[s + 1];
    check(first < end, "sequence without rows");
    for (size_t row = first; row < end; ++row) {
      check(batch.positions[row] == batch.positions[first] + (row - first), "positions");
      row_sequence_[row] = static_cast<uint32_t>(s);
    }
    const size_t pages = cache::pages_for(batch.positions[end - 1] + 1);
    check(pages <= batch.caches[s]->page_count(), "cache not reserved for the rows");
    first_page_.push_back(first_page_.back() + pages);
  }
  pages_.resize(first_page_.back());
  find_runs(batch);
}

void LlamaStep::find_runs(const StepBatch& batch) {
  all_runs_.clear();
  wanted_runs_.clear();
  wanted_rows_ = 0;
  for (size_t s = 0; s < batch.caches.size(); ++s) {
    const size_t first = batch.row_start[s], end = batch.row_start[s + 1];
    all_runs_.push_back({.sequence = s, .first_row = first, .rows = end - first, .out_row = first});
    bool open = false;
    for (size_t row = first; row < end; ++row) {
      const bool wanted = batch.want_logits[row] != 0;
      if (wanted && !open) {
        wanted_runs_.push_back({.sequence = s, .first_row = row, .out_row = wanted_rows_});
      }
      if (wanted) {
        ++wanted_runs_.back().rows;
        ++wanted_rows_;
      }
      open = wanted;
    }
  }
}

void LlamaStep::select_layer(const StepBatch& batch, size_t layer) {
  for (size_t s = 0; s < batch.caches.size(); ++s) {
    const size_t first = first_page_[s], count = first_page_[s + 1] - first;
    for (size_t i = 0; i < count; ++i) pages_[first + i] = batch.caches[s]->page(i, layer);
  }
}

const std::vector<kernels::AttentionSequence>& LlamaStep::attention_sequences(
    const StepBatch& batch, const std::vector<RowRun>& runs) {
  attention_.clear();
  for (const RowRun& run : runs) {
    attention_.push_back({.pages = pages_.data() + first_page_[run.sequence],
                          .first_position = batch.positions[run.first_row],
                          .rows = run.rows,
                          .queries = qkv(run.first_row),
                          .out = attended(run.out_row)});
  }
  return attention_;
}

}  // namespace deepinfer::models
