#pragma once

// DeepSeek-V4.1-Flash, the text model. Source: spec v41.md.
//
//   X = n copies of the embedding, pre = (1, 0, ..)
//   per layer: X = engram(X) where the layer has one
//              h = rms_norm(sum_j pre_j X_j);  (pre, post, comb) = mix(X)
//              X = post * attention(h) + comb^T X           attention: models/latent_block.h
//              h = rms_norm(sum_j pre_j X_j);  (pre, post, comb) = mix(X)
//              X = post * moe(h) + comb^T X                                 models/moe.h
//   logits = output rms_norm(sum_j pre_j X_j)
// A sublayer's input is collapsed with the `pre` of the sublayer before it.
//
// Encoder and decoder: the layers from the first of ratio 1 on read one shared cache, which is a
// function of that layer's input. Rows below SequenceStart::decoder feed it and stop there.
//
// Cache: growing: entries and index keys of every kv source, classes of past ids. Frontier: rings
// of window rows per layer and of open compressor blocks, with spare rows for a rejected draft.
// A step that fails leaves the frontier as it was.

#include <memory>

#include "base/result.h"
#include "models/model.h"
#include "weights/deepseek/deepseek_config.h"

namespace deepinfer::models {

// Contract of open_model() in models/model.h.
Result<std::unique_ptr<Model>> open_deepseek_v41(const weights::Checkpoint& checkpoint,
                                                 weights::DeepseekV41Config config,
                                                 const ModelOptions& options, ThreadPool& pool,
                                                 const Progress& progress);

}  // namespace deepinfer::models
