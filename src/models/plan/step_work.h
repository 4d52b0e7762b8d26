#pragma once

// StepWork: the arithmetic and the memory reads that the rows of a step ask for, from the model's
// configuration alone, so that a measured time says how much of the machine was used.
//
//   const StepEstimator estimator(config);
//   StepWork work;
//   estimator.add({.first = 511, .rows = 1, .logits_rows = 1}, work);
//   double share = work.operations() / seconds / peak_operations;
//
// Counted are matrix products: projections, attention pairs, indexer, experts, router, hyper
// connections, Engram, logits. Not counted: norms, rotations, activations, sampling, drafters,
// vision. Multiply-adds are kept apart by the format that the official code runs them in, so that
// fp8_equivalent() is DeepInfer's unit. Source: spec deepinfer_engine.md 12.4 (V4.1; the other
// families by the same rules).
//
// Threads: any; pure functions.

#include <cstdint>

#include "models/plan/memory_plan.h"

namespace deepinfer::models {

// Multiply-adds by format.
struct StepWork {
  double fp4 = 0, fp8 = 0, bf16 = 0, f32 = 0;

  // A multiply-add counts as two, whatever its format.
  double operations() const { return 2 * (fp4 + fp8 + bf16 + f32); }
  // FP4 1, FP8 2, BF16 4, FP32 8.
  double fp8_equivalent() const { return fp4 + 2 * fp8 + 4 * bf16 + 8 * f32; }
};

// Rows of one sequence in a step: positions [first, first + rows).
struct RowRange {
  uint64_t first = 0;
  uint64_t rows = 0;
  uint64_t logits_rows = 0;
  cache::SequenceStart start = {};  // rows below start.decoder skip the decoder layers (V4.1)
  bool decodes = false;             // index keys are then computed for every row
};

class StepEstimator {
 public:
  explicit StepEstimator(const AnyConfig& config) : config_(config) {}
  void add(const RowRange& range, StepWork& work) const;
  // A prompt of `tokens` in chunks, with the logits of its last position.
  StepWork prompt(uint64_t tokens, uint64_t chunk) const;
  // The token after `context` others.
  StepWork token(uint64_t context) const;

 private:
  AnyConfig config_;
};

// Experts of `experts` that at least one of `rows` rows is routed to, when each row picks
// `per_token` of them at random: what a step reads of them.
double experts_touched(double experts, double per_token, double rows);

// Pairs of attention, of queries at positions [a, b); the query at position p sees p + 1 tokens.
//   floor((p + 1) / ratio) each
double compressed_pairs(uint64_t a, uint64_t b, uint64_t ratio);
//   min(floor((p + 1) / ratio), most) each
double capped_pairs(uint64_t a, uint64_t b, uint64_t ratio, uint64_t most);
//   min(p + 1 - start, window) each; start <= a
double window_pairs(uint64_t a, uint64_t b, uint64_t start, uint64_t window);
//   keys in blocks of `block` of the best `most` blocks, the open block included
double candidate_pairs(uint64_t a, uint64_t b, uint64_t ratio, uint64_t block, uint64_t most);

}  // namespace deepinfer::models
