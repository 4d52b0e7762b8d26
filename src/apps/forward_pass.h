#pragma once

// ForwardPass: a model run by hand, step by step, without engine: the caller says which sequences
// give how many rows. For raw logits (`score --logits-out`) and for comparing paths (`selftest`).
//
//   ForwardPass pass = TRY(ForwardPass::create(model, 2, 300));
//   TRY(pass.step({{0, ids_a}, {1, ids_b}}, [&](size_t sequence, uint64_t position,
//                                                std::span<const float> logits) { ... }));
//
// Ownership: refers to the model. Threads: those of the model's forward().

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "cache/page_pool.h"
#include "models/model.h"

namespace deepinfer::apps {

// Rows that one sequence gives to a step; they follow those it gave before.
struct Feed {
  size_t sequence = 0;
  std::span<const int32_t> ids;
};

class ForwardPass {
 public:
  using OnLogits =
      std::function<void(size_t sequence, uint64_t position, std::span<const float> logits)>;

  // tokens: the most that each of the sequences will hold.
  static Result<ForwardPass> create(models::Model& model, size_t sequences, size_t tokens);

  // Logits of every row. All rows together are at most the model's max_rows.
  Result<void> step(std::span<const Feed> feeds, const OnLogits& on_logits);

  // Gives an empty sequence `tokens` positions that nobody computed: its pages hold arbitrary
  // finite values, whatever their format, and its windows are empty. For timing only.
  Result<void> pretend(size_t sequence, uint64_t tokens);

 private:
  ForwardPass(models::Model& model, std::unique_ptr<cache::PagePool> pool)
      : model_(&model), pool_(std::move(pool)) {}

  models::Model* model_;
  std::unique_ptr<cache::PagePool> pool_;
  std::vector<cache::SequenceCache> caches_;  // [sequences]
  models::StepOutput output_;
};

// One sequence in chunks of `chunk` rows.
Result<void> run_chunks(models::Model& model, std::span<const int32_t> ids, size_t chunk,
                        const ForwardPass::OnLogits& on_logits);

// Fails (invalid) naming the first id that is not below the vocabulary, or when there are more ids
// than the model's context.
Result<void> check_ids(const weights::ModelConfig& config, std::span<const int32_t> ids,
                       const std::string& place);

}  // namespace deepinfer::apps
