// Tensors of DeepSeek-V4.1 by their official names (spec v41.md, section 2).

#include <fmt/format.h>

#include <algorithm>

#include "weights/deepseek/deepseek_roles.h"
#include "weights/deepseek/deepseek_tensors.h"
#include "weights/deepseek/engram_primes.h"

namespace deepinfer::weights {
namespace {

constexpr ExpertNames kExpertNames = {"w1", "w3", "w2"};

bool contains(const std::vector<uint32_t>& layers, uint32_t layer) {
  return std::ranges::binary_search(layers, layer);
}

Result<V41CompressorTensors> read_compressor(DeepseekRoles& roles, const std::string& attn,
                                             bool gated, const DeepseekV41Config& config) {
  const uint64_t hidden = config.hidden, dim = config.head_dim;
  V41CompressorTensors tensors;
  tensors.kv = TRY(roles.matrix(attn + "compressor.wkv", dim, hidden, Storage::plain));
  if (gated) {
    tensors.gate = TRY(roles.matrix(attn + "compressor.wgate", dim, hidden, Storage::plain));
  }
  tensors.norm = TRY(roles.norm(attn + "compressor.norm.weight", dim));
  tensors.index_key =
      TRY(roles.matrix(attn + "indexer.wk", config.indexer.dim, dim, Storage::plain));
  tensors.index_key_norm = TRY(roles.norm(attn + "indexer.k_norm.weight", config.indexer.dim));
  return tensors;
}

Result<V41IndexerTensors> read_v41_indexer(DeepseekRoles& roles, const std::string& attn,
                                           const DeepseekV41Config& config) {
  const uint64_t heads = config.indexer.heads;
  V41IndexerTensors tensors;
  tensors.q_b = TRY(roles.matrix(attn + "indexer.wq_b", heads * config.indexer.dim, config.q_lora));
  tensors.weights =
      TRY(roles.matrix(attn + "indexer.weights_proj", heads, config.hidden, Storage::plain));
  return tensors;
}

Result<EngramTensors> read_engram(DeepseekRoles& roles, const std::string& prefix, uint64_t rows,
                                  const DeepseekV41Config& config) {
  const EngramConfig& engram = config.engram;
  const uint64_t hidden = config.hidden, streams = config.hyper.streams;
  const uint64_t inputs = uint64_t{engram.max_ngram - 1} * engram.heads * engram.head_dim;
  EngramTensors tensors;
  roles.enter(Part::engram_table);
  tensors.table = TRY(roles.matrix(prefix + "embed", rows, engram.head_dim, Storage::table));
  roles.enter(Part::engram);
  tensors.kv = TRY(roles.matrix(prefix + "wkv", (streams + 1) * hidden, inputs));
  tensors.q_weight = TRY(roles.plain(prefix + "q_weight", {streams, hidden}, DType::bf16));
  tensors.k_weight = TRY(roles.plain(prefix + "k_weight", {streams, hidden}, DType::bf16));
  return tensors;
}

Result<MoeTensors> read_moe(DeepseekRoles& roles, const std::string& prefix, uint64_t experts,
                            const DeepseekV41Config& config, bool draft) {
  const MoeConfig& moe = config.moe;
  MoeTensors tensors;
  if (!draft) roles.enter(Part::router);
  tensors.router = TRY(roles.plain(prefix + "gate.weight", {experts, config.hidden}, DType::bf16));
  tensors.bias = TRY(roles.plain(prefix + "gate.bias", {experts}, DType::f32));
  tensors.bias_vl = TRY(roles.plain(prefix + "gate.bias_vl", {experts}, DType::f32));
  tensors.experts =
      TRY(read_experts(roles, prefix + "experts", kExpertNames, experts, config.hidden, moe.width));
  if (!draft) roles.enter(Part::shared_experts);
  tensors.shared = TRY(read_feed_forward(roles, prefix + "shared_experts", kExpertNames,
                                         config.hidden, moe.shared_width));
  return tensors;
}

// What a layer and a draft stage have in common; prefix: "layers.3." or "mtp.0.".
Result<V41BlockTensors> read_block(DeepseekRoles& roles, const std::string& prefix,
                                   uint64_t experts, const DeepseekV41Config& config, bool draft) {
  const uint64_t hidden = config.hidden, streams = config.hyper.streams;
  V41BlockTensors block;
  if (!draft) roles.enter(Part::attention);
  block.attn_norm = TRY(roles.norm(prefix + "attn_norm.weight", hidden));
  block.ffn_norm = TRY(roles.norm(prefix + "ffn_norm.weight", hidden));
  block.hc_attn = TRY(read_hyper(roles, prefix + "hc_attn", streams, hidden));
  block.hc_ffn = TRY(read_hyper(roles, prefix + "hc_ffn", streams, hidden));
  block.attention = TRY(read_latent_tensors(roles, prefix, config));
  block.moe = TRY(read_moe(roles, prefix + "ffn.", experts, config, draft));
  return block;
}

Result<V41BlockTensors> read_layer(DeepseekRoles& roles, uint32_t layer,
                                   const std::vector<uint64_t>& table_rows,
                                   const DeepseekV41Config& config) {
  const std::string prefix = fmt::format("layers.{}.", layer);
  V41BlockTensors block = TRY(read_block(roles, prefix, config.moe.experts, config, false));
  roles.enter(Part::attention);
  if (contains(config.kv_sources, layer)) {
    const bool gated = config.ratios[layer] == 2;
    block.compressor = TRY(read_compressor(roles, prefix + "attn.", gated, config));
  }
  if (contains(config.index_sources, layer)) {
    block.indexer = TRY(read_v41_indexer(roles, prefix + "attn.", config));
  }
  const std::vector<uint32_t>& engrams = config.engram.layers;
  const auto engram = std::ranges::lower_bound(engrams, layer);
  if (engram != engrams.end() && *engram == layer) {
    const uint64_t rows = table_rows[static_cast<size_t>(engram - engrams.begin())];
    block.engram = TRY(read_engram(roles, prefix + "engram.", rows, config));
  }
  return block;
}

Result<void> read_drafter(DeepseekRoles& roles, const DeepseekV41Config& config,
                          DeepseekV41Tensors& tensors) {
  const uint64_t hidden = config.hidden, rank = config.dspark.markov_rank;
  roles.enter(Part::draft);
  roles.enter_experts(Part::draft_experts);
  for (uint32_t stage = 0; stage < config.dspark.stages; ++stage) {
    const std::string prefix = fmt::format("mtp.{}.", stage);
    tensors.dspark_stages.push_back(
        TRY(read_block(roles, prefix, config.dspark.experts, config, true)));
  }
  DsparkTensors dspark;
  const uint64_t taps = config.dspark.target_layers.size() * hidden;
  dspark.main_proj = TRY(roles.matrix("mtp.0.main_proj", hidden, taps));
  dspark.main_norm = TRY(roles.norm("mtp.0.main_norm.weight", hidden));
  const std::string last = fmt::format("mtp.{}.", config.dspark.stages - 1);
  dspark.norm = TRY(roles.norm(last + "norm.weight", hidden));
  dspark.markov_embed =
      TRY(roles.matrix(last + "markov_head.embed", config.vocab, rank, Storage::plain));
  dspark.markov_head =
      TRY(roles.matrix(last + "markov_head.head", config.vocab, rank, Storage::plain));
  dspark.confidence =
      TRY(roles.plain(last + "confidence_head.proj.weight", {1, hidden + rank}, DType::bf16));
  tensors.dspark = dspark;
  return {};
}

Result<DeepseekV41Tensors> read_all(DeepseekRoles& roles, const DeepseekV41Config& config) {
  const std::vector<uint64_t> table_rows = engram_rows(config.engram);
  DeepseekV41Tensors tensors;
  roles.enter(Part::embedding);
  tensors.embedding = TRY(roles.matrix("embed", config.vocab, config.hidden, Storage::plain)).codes;
  roles.enter(Part::head);
  tensors.output = TRY(roles.matrix("head", config.vocab, config.hidden, Storage::plain));
  tensors.norm = TRY(roles.norm("norm.weight", config.hidden));
  tensors.layers.reserve(config.layers);
  for (uint32_t n = 0; n < config.layers; ++n) {
    tensors.layers.push_back(TRY(read_layer(roles, n, table_rows, config)));
  }
  if (config.dspark.stages > 0) TRY(read_drafter(roles, config, tensors));
  if (config.vision) {
    tensors.vision = TRY(read_vision_roles(roles, *config.vision, config.hidden));
  }
  return tensors;
}

}  // namespace

Result<DeepseekV41Tensors> read_deepseek_v41_tensors(const Checkpoint& checkpoint,
                                                     const DeepseekV41Config& config) {
  DeepseekRoles roles(checkpoint, config.quantization);
  DeepseekV41Tensors tensors = TRY(read_all(roles, config));
  TRY(roles.check_all_used());
  return tensors;
}

Result<std::vector<TensorSpec>> deepseek_v41_specs(const DeepseekV41Config& config) {
  DeepseekRoles roles(config.quantization);
  TRY(read_all(roles, config));
  return std::move(roles).specs();
}

Result<std::vector<TensorSpec>> found_v41_specs(const Checkpoint& checkpoint,
                                                const DeepseekV41Config& config) {
  DeepseekRoles roles(checkpoint, config.quantization);
  TRY(read_all(roles, config));
  TRY(roles.check_all_used());
  return std::move(roles).specs();
}

}  // namespace deepinfer::weights
