#pragma once

// LlamaWeights: the tensors of a dense Llama-like model in the form that forward() reads: matrices
// packed for the instruction set, norms and biases as floats.
//
// Threads: read-only after load.

#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"
#include "kernels/row_ops.h"
#include "models/model.h"
#include "weights/checkpoint.h"
#include "weights/model_config.h"

namespace deepinfer::models {

// Widths, all in floats.
struct LlamaWidths {
  size_t hidden = 0;
  size_t query = 0;      // heads * head_dim
  size_t key_value = 0;  // kv_heads * head_dim
  size_t intermediate = 0;
  size_t qkv() const { return query + 2 * key_value; }
};
LlamaWidths llama_widths(const weights::LlamaConfig& config);

struct LlamaLayer {
  std::vector<float> attention_norm;  // [hidden]
  kernels::PackedMatrix q;            // [query, hidden]
  kernels::PackedMatrix k, v;         // [key_value, hidden]
  kernels::PackedMatrix o;            // [hidden, query]
  std::vector<float> q_bias;          // [query] or empty
  std::vector<float> k_bias, v_bias;  // [key_value] or empty
  std::vector<float> o_bias;          // [hidden] or empty
  std::vector<float> q_norm, k_norm;  // [head_dim] or empty
  std::vector<float> ffn_norm;        // [hidden]
  kernels::PackedMatrix gate, up;     // [intermediate, hidden]
  kernels::PackedMatrix down;         // [hidden, intermediate]

  size_t qkv_bytes() const { return q.bytes() + k.bytes() + v.bytes(); }
  size_t gate_up_bytes() const { return gate.bytes() + up.bytes(); }
  size_t bytes() const { return qkv_bytes() + o.bytes() + gate_up_bytes() + down.bytes(); }
};

struct LlamaWeights {
  Arena arena;  // of the packed matrices
  std::vector<LlamaLayer> layers;
  std::vector<float> output_norm;  // [hidden]
  kernels::PackedMatrix output;    // [vocab, hidden]
  TensorView embedding;            // [vocab, hidden] in the file; not read when tied
  bool tied = false;               // then `output` serves the look-up too
  kernels::RopePairing pairing = kernels::RopePairing::half_split;
  std::vector<kernels::Choice> choices;  // one per kind of product

  size_t bytes() const;  // of all packed matrices
  // out [hidden]: the embedding of `id`, exactly what the file's codes mean.
  void embed(size_t id, float* out) const;
};

// An error names the tensor by its role ("layer 3 attention q").
Result<LlamaWeights> load_llama_weights(const weights::Checkpoint& checkpoint,
                                        const weights::LlamaConfig& config, kernels::Target target,
                                        ThreadPool& pool, const Progress& progress);

}  // namespace deepinfer::models
