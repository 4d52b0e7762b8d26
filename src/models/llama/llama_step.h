#pragma once

// LlamaStep: what forward() derives from a StepBatch before it computes, and the memory for the
// rows of a step. Rows are [rows][width] floats, a width at a time.
//
// Threads: prepared by the thread of forward(); workers write distinct rows.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention/attention.h"
#include "models/llama/llama_weights.h"
#include "models/model.h"
#include "tensor/tensor.h"

namespace deepinfer::models {

// Consecutive rows of one sequence whose attention is computed.
struct RowRun {
  size_t sequence = 0;
  size_t first_row = 0;  // of the batch
  size_t rows = 0;
  size_t out_row = 0;  // where their results go
};

class LlamaStep {
 public:
  // Memory for max_rows rows, touched when first used. Fails (exhausted) when there is none.
  Result<void> create(const LlamaWidths& widths, size_t rope_pairs, size_t max_rows,
                      size_t threads);

  // Checks the batch against its own contract and derives runs and page lists.
  void begin(const StepBatch& batch);

  // The pages of one layer for all sequences: page(row) and attention_sequences() refer to it.
  void select_layer(const StepBatch& batch, size_t layer);
  std::byte* page_of(size_t row, uint64_t position) const {
    return pages_[first_page_[row_sequence_[row]] + position / kernels::kPageTokens];
  }
  // For the runs given, queries from qkv(row), results to attended(out_row).
  const std::vector<kernels::AttentionSequence>& attention_sequences(
      const StepBatch& batch, const std::vector<RowRun>& runs);

  // One run per sequence; and the runs of the rows whose logits are wanted, results packed densely.
  const std::vector<RowRun>& all_runs() const { return all_runs_; }
  const std::vector<RowRun>& wanted_runs() const { return wanted_runs_; }
  size_t wanted_rows() const { return wanted_rows_; }

  float* residual(size_t row) { return residual_.as<float>() + row * widths_.hidden; }
  float* qkv(size_t row) { return qkv_.as<float>() + row * widths_.qkv(); }
  float* attended(size_t row) { return attended_.as<float>() + row * widths_.query; }
  float* gate(size_t row) { return gate_up_.as<float>() + row * 2 * widths_.intermediate; }
  float* up(size_t row) { return gate(row) + widths_.intermediate; }
  float* cosine(size_t row) { return rope_.as<float>() + row * 2 * rope_pairs_; }
  float* sine(size_t row) { return cosine(row) + rope_pairs_; }
  // [max(hidden, query, intermediate)] of one worker.
  float* scratch(size_t worker) { return scratch_.as<float>() + worker * scratch_stride_; }

  size_t bytes() const;

 private:
  void find_runs(const StepBatch& batch);

  LlamaWidths widths_;
  size_t rope_pairs_ = 0;
  size_t max_rows_ = 0;
  size_t scratch_stride_ = 0;
  Buffer residual_;  // [max_rows][hidden]
  Buffer qkv_;       // [max_rows][query | key | value]
  Buffer attended_;  // [max_rows][query]
  Buffer gate_up_;   // [max_rows][gate | up]
  Buffer rope_;      // [max_rows][cosine | sine]
  Buffer scratch_;   // [threads][scratch_stride]

  std::vector<RowRun> all_runs_, wanted_runs_;
  size_t wanted_rows_ = 0;
  std::vector<uint32_t> row_sequence_;  // [rows]
  std::vector<size_t> first_page_;      // [sequences + 1], into pages_
  std::vector<std::byte*> pages_;       // of the selected layer
  std::vector<kernels::AttentionSequence> attention_;
};

}  // namespace deepinfer::models
