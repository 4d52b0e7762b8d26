#pragma once

// What the readers of the DeepSeek configurations share. Every function reads the fields it names
// and refuses what this program does not compute. Internal to the folder.
//
// Threads: any; pure functions.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/json_fields.h"

namespace deepinfer::weights {

inline constexpr uint64_t kExpertLimit = 1024;
inline constexpr uint64_t kAllExpertLimit = 1u << 17;  // of all layers
inline constexpr uint64_t kRatioLimit = 4096;
inline constexpr uint64_t kTopkLimit = 1u << 20;
inline constexpr uint32_t kStreamLimit = 8;    // hc_mult
inline constexpr uint32_t kStageLimit = 16;    // DSpark stages, MTP layers
inline constexpr uint32_t kDraftLimit = 64;    // ids of a drafted block
inline constexpr double kLargestFactor = 1e6;  // of any scaling factor

// Everything of ModelConfig but the family; token ids come from `root`, the rest from `text`.
Result<void> read_model_fields(const Fields& root, const Fields& text, ModelConfig& config);
// Token ids and the norm's epsilon of a model lie in their ranges.
Result<void> check_model_config(const ModelConfig& config, const std::string& source);

// expert_dtype is a field of its own in V4's files and part of quantization_config in V4.1's.
// storage: what fp8 means in this family.
Result<QuantizationConfig> read_quantization(const Fields& root, MatrixStorage storage);

// hidden_act, attention_bias, scoring_func, topk_method ...: those with one known value.
Result<void> refuse_deepseek_options(const Fields& text, const char* scoring);

// layers * experts is within kAllExpertLimit, so that a list of their tensors stays small.
Result<void> check_expert_count(uint64_t layers, uint64_t experts, const std::string& source);

// Experts of V4 and V4.1: one shared expert as wide as a routed one, no groups.
Result<MoeConfig> read_ungrouped_moe(const Fields& text);

Result<HyperConfig> read_hyper(const Fields& text);
Result<IndexerConfig> read_indexer(const Fields& text, uint32_t rope_dim);

// rope: theta alone. compress_rope: compress_rope_theta with the YaRN of rope_scaling and no
// magnitude factor.
struct TwoRopes {
  RopeConfig rope;
  RopeConfig compress_rope;
};
Result<TwoRopes> read_two_ropes(const Fields& text, uint32_t rope_dim);

// theta, factor, original length and the betas of YaRN lie in their ranges.
Result<void> check_yarn(const RopeConfig& rope, const Fields& scaling);

// The attention both have: fields of `config` from heads to window.
template <class Config>
Result<void> read_latent_attention(const Fields& text, Config& config);

// `key` is an ascending list of layers below `layers`, without repeats.
Result<std::vector<uint32_t>> read_layer_list(const Fields& text, const char* key, uint32_t layers);

// dspark_* but the number of stages and experts; block, noise id, targets, rank.
Result<DsparkConfig> read_dspark(const Fields& text, const ModelConfig& config);

// The text config.json of a safetensors directory, with its path.
struct ConfigText {
  std::string text;
  std::string source;
};
ConfigText config_text(const Checkpoint& checkpoint);
// Adds the end ids of generation_config.json.
Result<void> add_generation_ids(const Checkpoint& checkpoint, ModelConfig& config);

}  // namespace deepinfer::weights
