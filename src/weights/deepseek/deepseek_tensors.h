#pragma once

// Roles of the tensors of the DeepSeek families, from the official safetensors names (and GGUF's
// for V3 and V4). Every tensor that the configuration asks for, of its shape and a dtype that
// decodes; scales beside what they scale; a tensor of the file without a role is an error that
// names the first such.
//
// D hidden, H heads, d head_dim, R rope_dim, E experts, I expert width, n hyper streams, V vocab.
// Ownership: views are into the checkpoint. Threads: plain values.

#include <optional>
#include <vector>

#include "base/result.h"
#include "tensor/scaled_view.h"
#include "weights/checkpoint.h"
#include "weights/deepseek/deepseek_config.h"

namespace deepinfer::weights {

// w1 = gate and w3 = up [I, D], w2 = down [D, I].
struct ExpertTensors {
  ScaledView gate, up, down;
  size_t bytes() const { return gate.bytes() + up.bytes() + down.bytes(); }  // as stored
};

struct MoeTensors {
  TensorView router;                  // [E, D]
  std::optional<TensorView> bias;     // [E]; absent in hash layers
  std::optional<TensorView> bias_vl;  // [E] V4.1, for image positions
  std::optional<TensorView> by_id;    // [V, per_token] V4 hash layers (tid2eid)
  std::vector<ExpertTensors> experts;
  ExpertTensors shared;
};

struct HyperTensors {
  TensorView fn;     // [2n + n*n, n*D]; a head: [n, n*D]
  TensorView base;   // [2n + n*n]; a head: [n]
  TensorView scale;  // [3]; a head: [1]
};

// The attention that V4 and V4.1 share.
struct LatentAttentionTensors {
  ScaledView q_a;      // [q_lora, D]
  TensorView q_norm;   // [q_lora]
  ScaledView q_b;      // [H*d, q_lora]
  ScaledView kv;       // [d, D]
  TensorView kv_norm;  // [d]
  TensorView sink;     // [H]
  ScaledView o_a;      // [o_groups * o_lora, H/o_groups * d]
  ScaledView o_b;      // [D, o_groups * o_lora]
};

// --------------------------------------------------------------------------- V4
// c = 2 for ratio 4, else 1; dim = d, or the indexer's.
struct CompressorTensors {
  TensorView ape;   // [ratio, c*dim]
  ScaledView kv;    // [c*dim, D]
  ScaledView gate;  // [c*dim, D]
  TensorView norm;  // [dim]
};
struct V4IndexerTensors {
  ScaledView q_b;      // [heads*dim, q_lora]
  ScaledView weights;  // [heads, D]
  CompressorTensors compressor;
};
struct V4BlockTensors {
  TensorView attn_norm, ffn_norm;  // [D]
  HyperTensors hc_attn, hc_ffn;
  LatentAttentionTensors attention;
  std::optional<CompressorTensors> compressor;
  std::optional<V4IndexerTensors> indexer;
  MoeTensors moe;
};
struct V4MtpTensors {
  V4BlockTensors block;
  ScaledView e_proj, h_proj;  // [D, D]
  std::optional<ScaledView>
      eh_proj;                      // [D, 2D] instead of both, in some GGUF files: e's inputs first
  TensorView e_norm, h_norm, norm;  // [D]
  HyperTensors head;
};
struct DsparkTensors {
  std::vector<V4BlockTensors> v4_stages;  // V4; empty in V4.1
  ScaledView main_proj;                   // [D, taps*D]
  TensorView main_norm;                   // [D]
  TensorView norm;                        // [D] before the head
  std::optional<HyperTensors> head;       // V4
  ScaledView markov_embed, markov_head;   // [V, rank]
  TensorView confidence;                  // [1, D + rank]
};
struct DeepseekV4Tensors {
  TensorView embedding;  // [V, D]
  ScaledView output;     // [V, D]
  TensorView norm;       // [D]
  HyperTensors head;
  std::vector<V4BlockTensors> layers;
  std::optional<V4MtpTensors> mtp;
  std::optional<DsparkTensors> dspark;
};
Result<DeepseekV4Tensors> read_deepseek_v4_tensors(const Checkpoint& checkpoint,
                                                   const DeepseekV4Config& config);

// --------------------------------------------------------------------------- V4.1
struct V41CompressorTensors {
  ScaledView kv;                   // [d, D]
  std::optional<ScaledView> gate;  // [d, D], ratio 2
  TensorView norm;                 // [d]
  ScaledView index_key;            // [index dim, d]
  TensorView index_key_norm;       // [index dim]
};
struct V41IndexerTensors {
  ScaledView q_b;      // [heads*dim, q_lora]
  ScaledView weights;  // [heads, D]
};
struct EngramTensors {
  ScaledView table;               // [rows, head_dim], scales per row and 32
  ScaledView kv;                  // [(n+1)*D, (max_ngram-1)*heads*head_dim]
  TensorView q_weight, k_weight;  // [n, D]
};
struct V41BlockTensors {
  TensorView attn_norm, ffn_norm;  // [D]
  HyperTensors hc_attn, hc_ffn;
  LatentAttentionTensors attention;
  std::optional<V41CompressorTensors> compressor;
  std::optional<V41IndexerTensors> indexer;
  std::optional<EngramTensors> engram;
  MoeTensors moe;
};
struct VisionTensors {
  struct Block {
    TensorView norm1, norm2;   // [C]
    TensorView qkv, qkv_bias;  // [3C, C], [3C]
    TensorView o, o_bias;      // [C, C], [C]
    TensorView w1;             // [2*I, C], gate first
    TensorView w2;             // [C, I]
  };
  TensorView patch, patch_bias;  // [C, 3*patch*patch], [C]
  std::vector<Block> blocks;
  TensorView norm;                                   // [C]
  TensorView aligner1, aligner1_bias;                // [D, C*downsample^2]
  TensorView aligner2, aligner2_bias;                // [D, D]
  TensorView image_start, image_end, image_newline;  // [D]
};
struct DeepseekV41Tensors {
  TensorView embedding;  // [V, D]
  ScaledView output;     // [V, D]
  TensorView norm;       // [D]
  std::vector<V41BlockTensors> layers;
  std::vector<V41BlockTensors> dspark_stages;
  std::optional<DsparkTensors> dspark;
  std::optional<VisionTensors> vision;
};
Result<DeepseekV41Tensors> read_deepseek_v41_tensors(const Checkpoint& checkpoint,
                                                     const DeepseekV41Config& config);
// The vision part by itself (a vision-only checkpoint: vision_config and the text width suffice).
Result<VisionTensors> read_vision_tensors(const Checkpoint& checkpoint, const VisionConfig& config,
                                          uint32_t text_hidden);

// --------------------------------------------------------------------------- V3, V3.2
struct V3IndexerTensors {
  ScaledView q_b;                 // [heads*dim, q_lora]
  ScaledView key;                 // [dim, D]
  TensorView key_norm, key_bias;  // [dim], a LayerNorm
  ScaledView weights;             // [heads, D]
};
struct V3LayerTensors {
  TensorView attn_norm, ffn_norm;  // [D]
  std::optional<ScaledView> q_a;   // [q_lora, D]
  std::optional<TensorView> q_norm;
  ScaledView q_b;      // [H*(nope+rope), q_lora or D]
  ScaledView kv_a;     // [kv_lora + rope, D]
  TensorView kv_norm;  // [kv_lora]
  ScaledView kv_b;     // [H*(nope+value), kv_lora]; no data when k_b and v_b are there (GGUF)
  std::optional<ScaledView> k_b;  // [H*kv_lora, nope]: of each head, kv_b's key rows transposed
  std::optional<ScaledView> v_b;  // [H*value, kv_lora]
  ScaledView o;                   // [D, H*value]
  std::optional<V3IndexerTensors> indexer;
  std::optional<ExpertTensors> dense;
  std::optional<MoeTensors> moe;
};
struct V3MtpTensors {
  V3LayerTensors layer;
  TensorView e_norm, h_norm, norm;  // [D]
  ScaledView eh_proj;               // [D, 2D]
};
struct DeepseekV3Tensors {
  TensorView embedding;  // [V, D]
  ScaledView output;     // [V, D]
  TensorView norm;       // [D]
  std::vector<V3LayerTensors> layers;
  std::vector<V3MtpTensors> mtp;
  // GGUF files pair rope rows as our kernels want them already; safetensors do too (interleaved).
};
Result<DeepseekV3Tensors> read_deepseek_v3_tensors(const Checkpoint& checkpoint,
                                                   const DeepseekV3Config& config);

}  // namespace deepinfer::weights
