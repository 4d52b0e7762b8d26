#pragma once

// What a DeepSeek model is: V3 and V3.2, V4, V4.1, and the vision part of V4.1, from config.json or
// (V3, V4) from GGUF metadata. Names are those of config.json without their prefixes.
//
// Required fields that are missing, of the wrong type or contradictory are errors that name the
// field and both values; options that this program does not compute are refused.
// Sources: spec sections "config" of each family. Threads: plain values.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "weights/checkpoint.h"
#include "weights/model_config.h"

namespace deepinfer::weights {

// How matrices of a safetensors checkpoint are stored (quantization_config).
enum class MatrixStorage : uint8_t {
  plain,        // no quantization_config: BF16, F16 or F32
  fp8_32,       // E4M3, UE8M0 scales per 32x32 (V4.1)
  fp8_128,      // E4M3, UE8M0 scales per 128x128 (V4)
  fp8_128_f32,  // E4M3, F32 weight_scale_inv per 128x128 (V3, V3.2)
};

struct QuantizationConfig {
  MatrixStorage matrices = MatrixStorage::plain;
  bool fp4_experts = false;  // routed experts: E2M1, UE8M0 per row and 32 inputs; else as matrices
  bool operator==(const QuantizationConfig&) const = default;
};

struct MoeConfig {
  uint32_t experts = 0;       // routed
  uint32_t shared = 0;        // 0 or 1 unit of shared experts; its width is shared_width
  uint32_t per_token = 0;     // chosen per row
  uint32_t width = 0;         // of a routed expert
  uint32_t shared_width = 0;  // V3: n_shared_experts * width
  double scaling = 1.0;       // routed_scaling_factor
  bool normalize = true;      // norm_topk_prob
  double clamp = 0.0;         // swiglu_limit; 0: none
  uint32_t groups = 1;        // V3: n_group
  uint32_t groups_kept = 1;   // V3: topk_group
  bool operator==(const MoeConfig&) const = default;
};

// --------------------------------------------------------------------------- V3, R1, V3.2
struct DeepseekV3Config : ModelConfig {
  uint32_t heads = 0;
  uint32_t q_lora = 0;  // 0: q_proj straight from hidden
  uint32_t kv_lora = 0;
  uint32_t nope_dim = 0;  // of a query or key head, not rotated
  uint32_t rope_dim = 0;
  uint32_t value_dim = 0;
  uint32_t dense_layers = 0;  // first_k_dense_replace
  uint32_t dense_width = 0;   // intermediate_size
  MoeConfig moe;
  bool softmax_router = false;  // V2 (GGUF deepseek2): softmax scores without a bias, no groups
  RopeConfig rope;              // dims = rope_dim; attention_factor multiplies cos and sin
  double softmax_scale = 0;     // (nope + rope)^-1/2, times YaRN's mscale_all_dim factor squared
  // V3.2's indexer; 0: none.
  uint32_t index_heads = 0;
  uint32_t index_dim = 0;
  uint32_t index_topk = 0;
  uint32_t next_layers = 0;  // num_nextn_predict_layers
  bool tied_embeddings = false;
  QuantizationConfig quantization;
  bool operator==(const DeepseekV3Config&) const = default;
};

// --------------------------------------------------------------------------- shared by V4, V4.1
struct HyperConfig {
  uint32_t streams = 4;  // hc_mult
  uint32_t sinkhorn_iterations = 20;
  double eps = 1e-6;
  bool operator==(const HyperConfig&) const = default;
};

struct IndexerConfig {
  uint32_t heads = 0;
  uint32_t dim = 0;
  uint32_t topk = 0;
  bool operator==(const IndexerConfig&) const = default;
};

struct DsparkConfig {
  uint32_t stages = 0;  // 0: no DSpark drafter
  uint32_t block = 0;   // drafted ids a round
  uint32_t noise_id = 0;
  std::vector<uint32_t> target_layers;
  uint32_t markov_rank = 0;
  uint32_t experts = 0;  // V4.1: of a stage; V4: as the backbone
  uint32_t experts_per_token = 0;
  bool operator==(const DsparkConfig&) const = default;
};

struct DeepseekV4Config : ModelConfig {
  uint32_t heads = 0;
  uint32_t head_dim = 0;  // key = value = one row of it
  uint32_t rope_dim = 0;  // the last ones of a head
  uint32_t q_lora = 0;
  uint32_t o_lora = 0;
  uint32_t o_groups = 0;
  uint32_t window = 0;
  std::vector<uint32_t> ratios;  // [layers] of the backbone: 0, 4 (CSA) or another (HCA)
  MoeConfig moe;
  uint32_t hash_layers = 0;  // the first ones route by token id
  IndexerConfig indexer;
  HyperConfig hyper;
  RopeConfig rope;           // ratio 0, MTP, DSpark
  RopeConfig compress_rope;  // every other layer; YaRN with attention_factor 1
  bool mtp = false;          // preview releases: one MTP layer, mtp.0 with e_proj
  DsparkConfig dspark;       // 0813, 0731, DSpark releases
  QuantizationConfig quantization;
  bool operator==(const DeepseekV4Config&) const = default;
};

// --------------------------------------------------------------------------- V4.1
struct EngramConfig {
  std::vector<uint32_t> layers;
  uint32_t max_ngram = 0;
  uint64_t vocab = 0;  // where the primes start
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  uint32_t pad_id = 2;
  uint32_t compressed_vocab = 0;
  bool operator==(const EngramConfig&) const = default;
};

struct VisionConfig {
  uint32_t layers = 0;
  uint32_t hidden = 0;
  uint32_t heads = 0;
  uint32_t intermediate = 0;
  uint32_t patch = 0;
  uint32_t downsample = 0;
  uint32_t max_image_tokens = 0;
  uint64_t min_pixels = 0;
  std::optional<double> max_wh_ratio;
  double rope_theta = 10000.0;
  bool operator==(const VisionConfig&) const = default;
};

struct DeepseekV41Config : ModelConfig {
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  uint32_t rope_dim = 0;
  uint32_t q_lora = 0;
  uint32_t o_lora = 0;
  uint32_t o_groups = 0;
  uint32_t window = 0;
  std::vector<uint32_t> ratios;         // [layers]: 0, 2 or 1
  std::vector<uint32_t> kv_sources;     // layers with a compressor, ascending
  std::vector<uint32_t> index_sources;  // layers that run the indexer, ascending
  MoeConfig moe;
  IndexerConfig indexer;
  std::optional<uint32_t> candidate_source;
  uint32_t candidate_blocks = 0;
  uint32_t candidate_block = 0;  // entries of a block
  HyperConfig hyper;
  EngramConfig engram;  // layers empty: none
  RopeConfig rope;
  RopeConfig compress_rope;
  bool fp4_sparse_kv = true;
  DsparkConfig dspark;
  std::optional<uint32_t> image_token;
  std::optional<VisionConfig> vision;  // absent in text-only files
  QuantizationConfig quantization;

  uint32_t first_decoder_layer() const;  // first layer of ratio 1; `layers` when there is none
  // Last positions of a prompt that must run the decoder layers: a position's result needs
  // window - 1 earlier positions in each of them. 0: no decoder.
  uint64_t decoder_tail() const;
  // Index into kv_sources / index_sources of the source that layer `layer` reads; requires
  // ratios[layer] != 0.
  size_t kv_source_of(uint32_t layer) const;
  size_t index_source_of(uint32_t layer) const;
  bool operator==(const DeepseekV41Config&) const = default;
};

Result<DeepseekV3Config> read_deepseek_v3_config(const Checkpoint& checkpoint);  // and V3.2
Result<DeepseekV4Config> read_deepseek_v4_config(const Checkpoint& checkpoint);
Result<DeepseekV41Config> read_deepseek_v41_config(const Checkpoint& checkpoint);

// The readers of the text by themselves, for tests and `plan`. source is the file's path.
Result<Family> parse_hf_family(std::string_view json, const std::string& source);
Result<DeepseekV3Config> parse_deepseek_v3_config(std::string_view json, const std::string& source);
Result<DeepseekV4Config> parse_deepseek_v4_config(std::string_view json, const std::string& source);
Result<DeepseekV41Config> parse_deepseek_v41_config(std::string_view json,
                                                    const std::string& source);

}  // namespace deepinfer::weights
