#pragma once

// The dense families: Llama (also SmolLM2 and the R1 distills), Qwen2 (biases on q, k, v) and Qwen3
// (an RMSNorm on every query and key head, head_dim apart from hidden / heads).
// Sources: Touvron et al. 2023; the Qwen2 and Qwen3 reports; Hugging Face's modeling_{llama,qwen2,
// qwen3}.
//
//   x = embedding[id]
//   per layer: x += Wo attention(rope(norm_q(Wq n + bq)), rope(norm_k(Wk n + bk)), Wv n + bv),
//                   n = rms_norm(x)
//              x += Wdown (silu(Wgate m) * (Wup m)),  m = rms_norm(x)
//   logits = Woutput rms_norm(x)
//
// Cache: one growing stream per layer, as kernels/attention/attention.h lays it out. In the last
// layer the rows whose logits nobody reads stop after their keys and values are written.

#include <memory>

#include "base/result.h"
#include "cache/layout.h"
#include "models/model.h"

namespace deepinfer::models {

// A model's cache; for plans of models that are not there too.
cache::CacheLayout llama_cache(const weights::LlamaConfig& config, KvMode kv);

// Contract of open_model() in models/model.h.
Result<std::unique_ptr<Model>> open_llama(const weights::Checkpoint& checkpoint,
                                          weights::LlamaConfig config, const ModelOptions& options,
                                          ThreadPool& pool, const Progress& progress);

}  // namespace deepinfer::models
