#pragma once

// DeepSeek V3, R1 and V3.1 (deepseek_v3), and V3.2 with its sparse indexer (deepseek_v32).
// Sources: DeepSeek-V3 technical report (arXiv 2412.19437), DeepSeek-V3.2's inference code, Hugging
// Face's modeling_deepseek_{v3,v32}.
//
//   x = embedding[id]
//   per layer: x += attention(x)                            models/deepseek_v3/mla_block.h
//              x += ffn(rms_norm(x))                        dense in the first layers, then experts
//   logits = Woutput rms_norm(x)                            (models/moe.h, sigmoid router)
//
// Cache: per layer one growing stream of latent rows [kv_lora | rope], and in V3.2 one of index
// keys; official: bf16. `faithful` computes what `exact` does: no activation is rounded. In the
// last layer the rows whose logits nobody reads stop after their cache entries are written.

#include <memory>

#include "base/result.h"
#include "models/model.h"
#include "weights/deepseek/deepseek_config.h"

namespace deepinfer::models {

// Contract of open_model() in models/model.h.
Result<std::unique_ptr<Model>> open_deepseek_v3(const weights::Checkpoint& checkpoint,
                                                weights::DeepseekV3Config config,
                                                const ModelOptions& options, ThreadPool& pool,
                                                const Progress& progress);

}  // namespace deepinfer::models
