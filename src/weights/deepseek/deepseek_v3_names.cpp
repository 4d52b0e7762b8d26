// Tensors of DeepSeek-V3, R1 and V3.2 by the names of their public releases.

#include <fmt/format.h>

#include "weights/deepseek/deepseek_roles.h"
#include "weights/deepseek/deepseek_tensors.h"
#include "weights/gguf/gguf_deepseek.h"

namespace deepinfer::weights {
namespace {

constexpr ExpertNames kExpertNames = {"gate_proj", "up_proj", "down_proj"};

Result<V3IndexerTensors> read_v3_indexer(DeepseekRoles& roles, const std::string& prefix,
                                         const DeepseekV3Config& config) {
  const uint64_t heads = config.index_heads, dim = config.index_dim;
  V3IndexerTensors tensors;
  tensors.q_b =
      TRY(roles.matrix(prefix + "wq_b", heads * dim, config.q_lora, Storage::either_quantised));
  tensors.key = TRY(roles.matrix(prefix + "wk", dim, config.hidden, Storage::either_quantised));
  tensors.key_norm = TRY(roles.norm(prefix + "k_norm.weight", dim));
  tensors.key_bias = TRY(roles.norm(prefix + "k_norm.bias", dim));
  tensors.weights =
      TRY(roles.matrix(prefix + "weights_proj", heads, config.hidden, Storage::plain));
  return tensors;
}

// GGUF files hold kv_b either whole or, turned for the absorbed form, as two tensors per head.
Result<void> read_kv_b(DeepseekRoles& roles, const std::string& attn,
                       const DeepseekV3Config& config, V3LayerTensors& layer) {
  const uint64_t heads = config.heads, rank = config.kv_lora;
  const uint64_t nope = config.nope_dim, value = config.value_dim;
  const std::string whole = attn + "kv_b_proj";
  if (roles.gguf() && !roles.has(whole + ".weight")) {
    layer.k_b = TRY(roles.stacked(attn + "k_b.weight", heads, rank, nope));
    layer.v_b = TRY(roles.stacked(attn + "v_b.weight", heads, value, rank));
    return {};
  }
  layer.kv_b = TRY(roles.matrix(whole, heads * (nope + value), rank));
  return {};
}

Result<void> read_attention(DeepseekRoles& roles, const std::string& prefix,
                            const DeepseekV3Config& config, V3LayerTensors& layer) {
  const uint64_t hidden = config.hidden, heads = config.heads;
  const uint64_t queries = heads * (config.nope_dim + config.rope_dim);
  const std::string attn = prefix + "self_attn.";
  if (config.q_lora > 0) {
    layer.q_a = TRY(roles.matrix(attn + "q_a_proj", config.q_lora, hidden));
    layer.q_norm = TRY(roles.norm(attn + "q_a_layernorm.weight", config.q_lora));
    layer.q_b = TRY(roles.matrix(attn + "q_b_proj", queries, config.q_lora));
  } else {
    layer.q_b = TRY(roles.matrix(attn + "q_proj", queries, hidden));
  }
  const uint64_t latent = uint64_t{config.kv_lora} + config.rope_dim;
  layer.kv_a = TRY(roles.matrix(attn + "kv_a_proj_with_mqa", latent, hidden));
  layer.kv_norm = TRY(roles.norm(attn + "kv_a_layernorm.weight", config.kv_lora));
  TRY(read_kv_b(roles, attn, config, layer));
  layer.o = TRY(roles.matrix(attn + "o_proj", hidden, heads * config.value_dim));
  if (config.index_heads > 0) {
    layer.indexer = TRY(read_v3_indexer(roles, attn + "indexer.", config));
  }
  return {};
}

Result<MoeTensors> read_moe(DeepseekRoles& roles, const std::string& mlp,
                            const DeepseekV3Config& config, bool draft) {
  const MoeConfig& moe = config.moe;
  MoeTensors tensors;
  if (!draft) roles.enter(Part::router);
  tensors.router = TRY(roles.plain(mlp + "gate.weight", {moe.experts, config.hidden}, DType::bf16));
  if (!config.softmax_router) {
    tensors.bias =
        TRY(roles.plain(mlp + "gate.e_score_correction_bias", {moe.experts}, DType::f32));
  }
  tensors.experts = TRY(
      read_experts(roles, mlp + "experts", kExpertNames, moe.experts, config.hidden, moe.width));
  if (moe.shared == 0) return tensors;
  if (!draft) roles.enter(Part::shared_experts);
  tensors.shared = TRY(read_feed_forward(roles, mlp + "shared_experts", kExpertNames, config.hidden,
                                         moe.shared_width));
  return tensors;
}

Result<V3LayerTensors> read_layer(DeepseekRoles& roles, uint32_t n, const DeepseekV3Config& config,
                                  bool draft) {
  const std::string prefix = fmt::format("model.layers.{}.", n);
  V3LayerTensors layer;
  if (!draft) roles.enter(Part::attention);
  layer.attn_norm = TRY(roles.norm(prefix + "input_layernorm.weight", config.hidden));
  layer.ffn_norm = TRY(roles.norm(prefix + "post_attention_layernorm.weight", config.hidden));
  TRY(read_attention(roles, prefix, config, layer));
  if (n < config.dense_layers) {
    if (!draft) roles.enter(Part::dense);
    layer.dense = TRY(
        read_feed_forward(roles, prefix + "mlp", kExpertNames, config.hidden, config.dense_width));
  } else {
    layer.moe = TRY(read_moe(roles, prefix + "mlp.", config, draft));
  }
  return layer;
}

Result<V3MtpTensors> read_mtp(DeepseekRoles& roles, uint32_t n, const DeepseekV3Config& config) {
  const std::string prefix = fmt::format("model.layers.{}.", n);
  const uint64_t hidden = config.hidden;
  const Shape vocabulary = {config.vocab, hidden};
  V3MtpTensors mtp;
  mtp.layer = TRY(read_layer(roles, n, config, true));
  mtp.e_norm = TRY(roles.norm(prefix + "enorm.weight", hidden));
  mtp.h_norm = TRY(roles.norm(prefix + "hnorm.weight", hidden));
  mtp.norm = TRY(roles.norm(prefix + "shared_head.norm.weight", hidden));
  mtp.eh_proj = TRY(roles.matrix(prefix + "eh_proj", hidden, 2 * hidden, Storage::either));
  TRY(roles.copy(prefix + "embed_tokens.weight", vocabulary));
  TRY(roles.copy(prefix + "shared_head.head.weight", vocabulary));
  return mtp;
}

Result<DeepseekV3Tensors> read_all(DeepseekRoles& roles, const DeepseekV3Config& config) {
  const uint64_t vocab = config.vocab, hidden = config.hidden;
  DeepseekV3Tensors tensors;
  roles.enter(Part::embedding);
  tensors.embedding = TRY(roles.matrix("model.embed_tokens", vocab, hidden, Storage::plain)).codes;
  roles.enter(Part::head);
  tensors.norm = TRY(roles.norm("model.norm.weight", hidden));
  if (config.tied_embeddings) {
    tensors.output.codes = tensors.embedding;
  } else {
    tensors.output = TRY(roles.matrix("lm_head", vocab, hidden, Storage::plain));
  }
  tensors.layers.reserve(config.layers);
  for (uint32_t n = 0; n < config.layers; ++n) {
    tensors.layers.push_back(TRY(read_layer(roles, n, config, false)));
  }
  roles.enter(Part::draft);
  roles.enter_experts(Part::draft_experts);
  for (uint32_t n = 0; n < config.next_layers; ++n) {
    tensors.mtp.push_back(TRY(read_mtp(roles, config.layers + n, config)));
  }
  return tensors;
}

bool is_harmless(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

DeepseekRoles roles_of(const Checkpoint& checkpoint, const DeepseekV3Config& config) {
  Translation gguf;
  if (checkpoint.container() == Container::gguf) gguf = gguf_v3_name;
  return DeepseekRoles(checkpoint, config.quantization, gguf);
}

}  // namespace

Result<DeepseekV3Tensors> read_deepseek_v3_tensors(const Checkpoint& checkpoint,
                                                   const DeepseekV3Config& config) {
  DeepseekRoles roles = roles_of(checkpoint, config);
  DeepseekV3Tensors tensors = TRY(read_all(roles, config));
  TRY(roles.check_all_used(is_harmless));
  return tensors;
}

Result<std::vector<TensorSpec>> deepseek_v3_specs(const DeepseekV3Config& config) {
  DeepseekRoles roles(config.quantization);
  TRY(read_all(roles, config));
  return std::move(roles).specs();
}

Result<std::vector<TensorSpec>> found_v3_specs(const Checkpoint& checkpoint,
                                               const DeepseekV3Config& config) {
  DeepseekRoles roles = roles_of(checkpoint, config);
  TRY(read_all(roles, config));
  TRY(roles.check_all_used(is_harmless));
  return std::move(roles).specs();
}

}  // namespace deepinfer::weights
