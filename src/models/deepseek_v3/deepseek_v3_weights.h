#pragma once

// DeepseekV3Weights: the tensors of a V3 or V3.2 model in the form that forward() reads. Layers of
// multi-token prediction (num_nextn_predict_layers) are known to the reader of names and not
// loaded.
//
// Threads: read-only after load.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/matmul.h"
#include "models/deepseek_v3/mla_layer.h"
#include "models/experts/expert_source.h"
#include "models/model.h"
#include "models/moe.h"
#include "tensor/arena.h"
#include "weights/checkpoint.h"
#include "weights/deepseek/deepseek_config.h"

namespace deepinfer::models {

struct V3Layer {
  MlaLayer attention;
  std::vector<float> ffn_norm;          // [hidden]
  std::optional<ExpertMatrices> dense;  // the first layers
  std::optional<MoeLayer> moe;          // the others

  size_t bytes_without_experts() const;
};

struct DeepseekV3Weights {
  std::unique_ptr<Arena> arena;  // of the packed matrices
  std::unique_ptr<ExpertSource> experts;
  std::vector<V3Layer> layers;
  std::vector<float> norm;               // [hidden]
  kernels::PackedMatrix output;          // [vocab, hidden]
  TensorView embedding;                  // [vocab, hidden] in the file
  std::vector<kernels::Choice> choices;  // one per kind of product
  size_t resident = 0;                   // bytes of all that was loaded
  size_t bytes_per_step = 0;             // read for one decoded token

  // out [hidden]: the embedding of `id`, exactly what the file's codes mean.
  void embed(size_t id, float* out) const {
    decode_row(embedding.dtype, embedding.row(id), out, embedding.row_elements());
  }
};

// An error names the tensor by its role ("layer 3 attention q_b").
Result<DeepseekV3Weights> load_deepseek_v3_weights(const weights::Checkpoint& checkpoint,
                                                   const weights::DeepseekV3Config& config,
                                                   const MlaShape& shape,
                                                   const ModelOptions& options, ThreadPool& pool,
                                                   const Progress& progress);

}  // namespace deepinfer::models
