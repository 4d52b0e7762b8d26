#pragma once

// DeepseekV41Weights: the tensors of V4.1 in the form that forward() reads: matrices packed for the
// instruction set, norms and hyper-connections as floats, Engram tables and the embedding where
// they lie in the file.
//
// D hidden, d head_dim, n hyper streams. Threads: read-only after load, but for the experts'
// source.

#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "models/deepseek_v41/engram.h"
#include "models/dspark.h"
#include "models/experts/expert_source.h"
#include "models/hyper_streams.h"
#include "models/latent_block.h"
#include "models/moe.h"
#include "tensor/arena.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/deepseek/deepseek_tensors.h"

namespace deepinfer::models {

// Of a kv source layer.
struct V41Compressor {
  kernels::PackedMatrix kv;           // [d, D]
  kernels::PackedMatrix gate;         // [d, D]; no outputs when the ratio is 1
  std::vector<float> norm;            // [d]
  kernels::PackedMatrix index_key;    // [index dim, d]
  std::vector<float> index_key_norm;  // [index dim]
};

// Of an index source layer.
struct V41Indexer {
  kernels::PackedMatrix q_b;      // [heads * dim, q_lora]
  kernels::PackedMatrix weights;  // [heads, D]
};

// A layer of the backbone, or a stage of the drafter.
struct V41Layer {
  std::vector<float> attn_norm, ffn_norm;  // [D]
  HyperConnection hc_attn, hc_ffn;
  LatentLayer attention;
  std::optional<V41Compressor> compressor;
  std::optional<V41Indexer> indexer;
  std::optional<EngramLayer> engram;
  MoeLayer moe;

  size_t bytes() const;  // without routed experts
};

struct V41Dspark : DsparkParts {
  std::vector<V41Layer> stages;
};

struct DeepseekV41Weights {
  Arena arena;  // of the packed matrices
  std::vector<V41Layer> layers;
  std::vector<float> norm;       // [D]
  kernels::PackedMatrix output;  // [V, D]
  TensorView embedding;          // [V, D] in the file
  std::optional<V41Dspark> dspark;
  std::unique_ptr<weights::DiskReader> engram_reader;  // null: no Engram layer
  std::unique_ptr<ExpertSource> experts;  // of the layers, then of the drafter's stages
  size_t resident = 0;                    // bytes of matrices in memory or mapped
  size_t bytes_per_step = 0;              // of matrices that one decoded token reads
  std::vector<kernels::Choice> choices;   // one per kind of product
};

LatentBlockShape v41_block_shape(const weights::DeepseekV41Config& config, KvMode kv);

// An error names the tensor by its role ("layer 3 attention q_a").
Result<DeepseekV41Weights> load_deepseek_v41_weights(const weights::Checkpoint& checkpoint,
                                                     const weights::DeepseekV41Config& config,
                                                     const ModelOptions& options, ThreadPool& pool,
                                                     const Progress& progress);

}  // namespace deepinfer::models
