#pragma once

// DeepseekV4Weights: the tensors of a V4 model in the form that forward() reads: the backbone, and
// the MTP layer or the DSpark stages when the file has them.
//
// Threads: read-only after load.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/matmul.h"
#include "models/deepseek_v4/v4_compressor.h"
#include "models/dspark.h"
#include "models/experts/expert_source.h"
#include "models/hyper_streams.h"
#include "models/latent_block.h"
#include "models/matrix_loader.h"
#include "models/model.h"
#include "models/moe.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/deepseek/deepseek_tensors.h"

namespace deepinfer::models {

struct V4Indexer {
  kernels::PackedMatrix q_b;      // [heads * dim, q_lora]
  kernels::PackedMatrix weights;  // [heads, hidden]
  V4Compressor compressor;
};

// One block: attention and experts, each inside its hyper-connection.
struct V4Block {
  std::vector<float> attn_norm, ffn_norm;  // [hidden]
  HyperConnection hc_attn, hc_ffn;
  LatentLayer attention;
  std::optional<V4Compressor> compressor;  // CSA and HCA
  std::optional<V4Indexer> indexer;        // CSA
  MoeLayer moe;

  size_t bytes_without_experts() const;
};

struct V4Mtp {
  V4Block block;
  kernels::PackedMatrix e_proj, h_proj;     // [hidden, hidden]
  std::vector<float> e_norm, h_norm, norm;  // [hidden]
  HyperConnection head;
};

struct V4Dspark : DsparkParts {
  std::vector<V4Block> stages;
  HyperConnection head;
};

struct DeepseekV4Weights {
  std::unique_ptr<Arena> arena;  // of the packed matrices
  std::unique_ptr<ExpertSource> experts;
  TensorView embedding;  // [vocab, hidden] in the file
  std::vector<V4Block> layers;
  HyperConnection head;
  std::vector<float> norm;       // [hidden]
  kernels::PackedMatrix output;  // [vocab, hidden]
  std::optional<V4Mtp> mtp;
  std::optional<V4Dspark> dspark;
  std::vector<kernels::Choice> choices;  // one per kind of product
  size_t resident = 0;                   // bytes of all that was loaded
  size_t bytes_per_step = 0;             // read for one decoded token, without drafter

  // out [hidden]: the embedding of `id`, exactly what the file's codes mean.
  void embed(size_t id, float* out) const {
    decode_row(embedding.dtype, embedding.row(id), out, embedding.row_elements());
  }
};

LatentBlockShape v4_latent_shape(const weights::DeepseekV4Config& config,
                                 kernels::LatentFormat window);

// An error names the tensor by its role ("layer 3 attention q_b").
Result<DeepseekV4Weights> load_deepseek_v4_weights(const weights::Checkpoint& checkpoint,
                                                   const weights::DeepseekV4Config& config,
                                                   const LatentBlockShape& shape,
                                                   const ModelOptions& options, ThreadPool& pool,
                                                   const Progress& progress);

}  // namespace deepinfer::models
