#pragma once

// The drafters that V4 files carry: the MTP layer of the preview releases, and the DSpark stages of
// the later ones. Source: spec v4.md 5 and 7. They propose; verifying is a step of the model.
//
// Both run on the model's own memory between its steps, and keep their window rows in the
// sequence's frontier: a snapshot holds them, and forgetting rows (SequenceCache::set_length) is
// all that a rejected draft asks for. They do not change the length of a cache.
//
// Bits: a row's result depends on its own sequence only. Errors: internal, naming stage and
// operation, when a value is NaN or infinite. Threads: the thread of forward(); it uses the pool.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cache/page_pool.h"
#include "models/deepseek_v4/deepseek_v4.h"
#include "models/dspark.h"

namespace deepinfer::models {

// MTP. Row t: streams of position t after the last layer (V4Taps::streams), the id at t + 1,
// rotated by position t; its logits are about the id at t + 2.
//   Y_j = e_proj rms_norm(embedding[next]) + h_proj rms_norm(X_j);  Y = block(Y)
class V4MtpDrafter {
 public:
  // Requires: the model has an MTP layer. The model must outlive the drafter.
  explicit V4MtpDrafter(DeepseekV4& model);

  struct Run {
    cache::SequenceCache* cache = nullptr;
    uint64_t first_position = 0;
    std::span<const float> streams;     // [rows][n][hidden]
    std::span<const int32_t> next_ids;  // [rows]
  };
  struct Output {
    std::vector<float> streams;  // [rows][n][hidden], what a further depth would take
    std::vector<float> logits;   // [rows][vocab]
  };
  // Consecutive positions of a sequence, from its first one or after those of earlier calls; the
  // layer's window rows of all rows are kept. Requires: at most max_rows rows in all.
  Result<void> forward(std::span<const Run> runs, Output& output);

 private:
  Result<void> join(std::span<const Run> runs);

  DeepseekV4& model_;
  kernels::Activations activations_;
  std::vector<StepRun> runs_;
  std::vector<uint64_t> positions_;
  std::vector<int32_t> ids_;
};

// DSpark: a block of ids at once.
class V4DsparkDrafter {
 public:
  // Requires: the model has DSpark stages. The model must outlive the drafter.
  explicit V4DsparkDrafter(DeepseekV4& model);

  // Rows that the target computed: V4Taps::means of consecutive positions.
  struct Feed {
    cache::SequenceCache* cache = nullptr;
    uint64_t first_position = 0;
    std::span<const float> means;  // [rows][targets * hidden]
  };
  // Puts a window row of every fed position into the ring of every stage:
  //   main = rms_norm(main_proj means);  row = rope(rms_norm(kv main))
  // main_x, when not null: [rows][hidden]. Requires: at most max_rows rows in all.
  Result<void> feed(std::span<const Feed> feeds, std::vector<float>* main_x = nullptr);

  struct Anchor {
    cache::SequenceCache* cache = nullptr;
    uint64_t position = 0;  // the last one that the target computed and that was fed
    int32_t id = 0;         // at position + 1
  };
  struct Draft {
    size_t block = 0;
    std::vector<int32_t> ids;       // [anchors][block], for position + 2 and on
    std::vector<float> confidence;  // [anchors][block], before the sigmoid
    std::vector<float> logits;      // [anchors][block][vocab], with the Markov part
    std::vector<float> collapsed;   // [anchors][block][hidden], before the norm
  };
  // pick empty: the largest logit. Requires: anchors * block <= max_rows.
  Result<void> draft(std::span<const Anchor> anchors, Draft& draft, const DraftPick& pick = {});

 private:
  Result<void> run_stages(std::span<const Anchor> anchors);

  DeepseekV4& model_;
  size_t block_;
  DsparkRows rows_;
  std::vector<StepRun> runs_;
  std::vector<uint64_t> positions_;
  std::vector<int32_t> ids_;
};

}  // namespace deepinfer::models
