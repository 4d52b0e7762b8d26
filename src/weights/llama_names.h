#pragma once

// Roles of the tensors of the dense families (llama, qwen2, qwen3), from the names of Hugging
// Face or of GGUF.
//
//   LlamaTensors tensors = TRY(read_llama_tensors(checkpoint, config));
//   const TensorView& q = tensors.layers[0].q;  // [heads * head_dim, hidden]
//
// Ownership: views are into the checkpoint and live as long as it does. Threads: plain values.

#include <optional>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"
#include "weights/checkpoint.h"
#include "weights/model_config.h"

namespace deepinfer::weights {

// H = heads, G = kv_heads, D = head_dim.
struct LlamaTensors {
  struct Layer {
    TensorView attn_norm;              // [hidden]
    TensorView q;                      // [H*D, hidden]
    TensorView k;                      // [G*D, hidden]
    TensorView v;                      // [G*D, hidden]
    TensorView o;                      // [hidden, H*D]
    std::optional<TensorView> q_bias;  // [H*D]
    std::optional<TensorView> k_bias;  // [G*D]
    std::optional<TensorView> v_bias;  // [G*D]
    std::optional<TensorView> o_bias;  // [hidden]
    std::optional<TensorView> q_norm;  // [D]
    std::optional<TensorView> k_norm;  // [D]
    TensorView ffn_norm;               // [hidden]
    TensorView gate;                   // [intermediate, hidden]
    TensorView up;                     // [intermediate, hidden]
    TensorView down;                   // [hidden, intermediate]
  };

  TensorView embedding;    // [vocab, hidden]
  TensorView output_norm;  // [hidden]
  TensorView output;       // [vocab, hidden]; the embedding when tied
  std::vector<Layer> layers;
  // How RoPE pairs the rows of a head of q and k (and of their biases). true: row 2i with 2i+1, the
  // order GGUF files of the llama family are permuted to; false: row i with i + D/2.
  bool qk_interleaved = false;
};

// Every tensor the config asks for, of the shape it says and of a dtype that decodes; a tensor of
// the file that has no role is an error that names the first such.
Result<LlamaTensors> read_llama_tensors(const Checkpoint& checkpoint, const LlamaConfig& config);

}  // namespace deepinfer::weights
