#pragma once

// What the DSpark drafters of V4 and V4.1 share: the projection of the target's streams, window
// rows made of it, and the chain that chooses a block's ids. The blocks themselves are the
// family's. Source: spec v41.md section 6, v4.md section 7.
//
// Threads: the model's.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/matmul.h"
#include "models/latent_block.h"
#include "models/rope_rows.h"
#include "models/rounding.h"
#include "models/row_work.h"
#include "models/window_cache.h"
#include "tensor/scaled_view.h"
#include "weights/deepseek/deepseek_config.h"

namespace deepinfer::models {

// Rows that rings hold beyond those that are read: drafted ones, and the drafter's own block.
inline size_t spare_rows(const weights::DsparkConfig& config) {
  return std::max<size_t>(WindowCache::kSpareRows, config.block + 1);
}

// Weights of both families.
struct DsparkParts {
  kernels::PackedMatrix main_proj;     // [hidden, targets * hidden]
  std::vector<float> main_norm, norm;  // [hidden]
  ScaledView markov_embed;             // [vocab, rank] in the file
  kernels::PackedMatrix markov_head;   // [vocab, rank]
  std::vector<float> confidence;       // [hidden + rank]
};

// Picks the id of `anchor`'s row k from its logits; the next rows depend on it.
using DraftPick = std::function<int32_t(size_t anchor, size_t k, std::span<const float> logits)>;

class DsparkRows {
 public:
  // Everything outlives it.
  DsparkRows(const DsparkParts& parts, RowWork& work, const Rounding& rounding,
             kernels::Target target, float norm_eps)
      : parts_(parts), work_(work), rounding_(rounding), target_(target), norm_eps_(norm_eps) {}

  // main [rows][hidden] = rms_norm(main_proj taps). taps [rows][targets * hidden] are rounded.
  Result<void> project(float* taps, size_t rows, float* main);
  // The window rows of one stage, fresh in `ring`: rope(rms_norm(kv main)). main is rounded as the
  // stage's matrix wants its inputs; kv: scratch [rows][head_dim].
  Result<void> feed(const LatentLayer& layer, const LatentBlock& block, const RopeRows& rope,
                    float* main, size_t rows, float* kv, WindowCache& windows, size_t ring,
                    const std::string& stage);

  struct Block {
    std::span<const int32_t> anchors;  // ids
    size_t rows = 0;                   // of each anchor
    const float* collapsed = nullptr;  // [anchors][rows][hidden], before the norm
    float* logits = nullptr;           // [anchors][rows][vocab], the Markov part is added
    int32_t* ids = nullptr;            // [anchors][rows]
    float* confidence = nullptr;       // [anchors][rows], before the sigmoid
  };
  // pick empty: the largest logit.
  Result<void> choose(const Block& block, const DraftPick& pick);

 private:
  float confidence(const float* collapsed, const float* markov) const;

  const DsparkParts& parts_;
  RowWork& work_;
  const Rounding& rounding_;
  const kernels::Target target_;
  const float norm_eps_;
  kernels::Activations activations_;
};

}  // namespace deepinfer::models
