#pragma once

// V41Drafter: the DSpark stages of V4.1, which propose a block of ids at once. Source: spec v41.md
// 6. Verifying is a step of the model, forgetting what was rejected is SequenceCache::set_length.
//
//   tap_L = mean of the streams entering layer L, L of the target layers
//   main = rms_norm(main_proj concat(taps));  row_i = rope(rms_norm(kv_i main))     every position
//   draft: rows of [anchor, noise, ..] through the stages; every row sees the last window of fed
//   positions and the whole block;  logits_k = head rms_norm(h_k) + markov_head markov_embed[id
//   before];  confidence_k = sigmoid(confidence . [h_k | markov_embed[id before]])
//
// While a drafter lives, every step of the model feeds it. Its window rows lie in the sequence's
// frontier, so snapshots hold them. draft() uses the model's memory between steps, and changes no
// cache.
//
// Bits: a draft depends on its own sequence only. Errors: internal, naming stage and operation,
// when a value is NaN or infinite. Threads: the thread of forward(); it uses the pool.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "cache/page_pool.h"
#include "models/deepseek_v41/deepseek_v41_model.h"
#include "models/dspark.h"

namespace deepinfer::models {

class V41Drafter {
 public:
  // Requires: the model has DSpark stages, outlives the drafter and has no other. Fails (exhausted)
  // when there is no memory.
  static Result<std::unique_ptr<V41Drafter>> create(DeepseekV41& model);
  ~V41Drafter();
  V41Drafter(const V41Drafter&) = delete;
  V41Drafter& operator=(const V41Drafter&) = delete;

  size_t block() const { return block_; }

  struct Anchor {
    cache::SequenceCache* cache = nullptr;
    uint64_t position = 0;  // of the anchor: the positions below were computed and fed
    int32_t id = 0;         // at that position, not computed yet
    SequenceStart start = {};
  };
  struct Draft {
    std::vector<int32_t> ids;       // [anchors][block], for position + 1 and on
    std::vector<float> confidence;  // [anchors][block], of each id given the earlier ones
    std::vector<float> logits;      // [anchors][block][vocab]
  };
  // pick empty: the largest logit. Requires: anchors * block <= max_rows.
  Result<void> draft(std::span<const Anchor> anchors, Draft& draft, const DraftPick& pick = {});

 private:
  friend class DeepseekV41;
  explicit V41Drafter(DeepseekV41& model);

  // Called by the model's step: before a layer, and after the last one.
  void tap(size_t layer);
  Result<void> feed();

  void begin(std::span<const Anchor> anchors);
  Result<void> run_stage(size_t stage, std::span<const Anchor> anchors);
  Result<void> base_logits(Draft& draft);
  Result<void> choose(std::span<const Anchor> anchors, Draft& draft, const DraftPick& pick);

  DeepseekV41& model_;
  const V41Dspark& dspark_;
  const std::vector<uint32_t>& targets_;
  const size_t block_, hidden_;
  DsparkRows rows_;
  kernels::Activations activations_;
  Buffer taps_;  // [max_rows][targets][hidden]
  Buffer main_;  // [max_rows][hidden]
  Buffer kv_;    // [max_rows][head_dim]
};

}  // namespace deepinfer::models
