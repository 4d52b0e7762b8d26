// Tensors of DeepSeek-V4 by their official names (spec v4.md, section 2).

#include <fmt/format.h>

#include "weights/deepseek/deepseek_roles.h"
#include "weights/deepseek/deepseek_tensors.h"
#include "weights/gguf/gguf_deepseek.h"

namespace deepinfer::weights {
namespace {

constexpr ExpertNames kExpertNames = {"w1", "w3", "w2"};
constexpr uint32_t kOverlapRatio = 4;  // compressors of this ratio pool two halves

Result<CompressorTensors> read_compressor(DeepseekRoles& roles, const std::string& prefix,
                                          uint64_t ratio, uint64_t dim, uint64_t hidden) {
  const uint64_t width = ratio == kOverlapRatio ? 2 * dim : dim;
  CompressorTensors tensors;
  tensors.ape = TRY(roles.plain(prefix + "ape", {ratio, width}, DType::f32));
  tensors.kv = TRY(roles.matrix(prefix + "wkv", width, hidden, Storage::plain));
  tensors.gate = TRY(roles.matrix(prefix + "wgate", width, hidden, Storage::plain));
  tensors.norm = TRY(roles.norm(prefix + "norm.weight", dim));
  return tensors;
}

Result<V4IndexerTensors> read_v4_indexer(DeepseekRoles& roles, const std::string& prefix,
                                         uint64_t ratio, const DeepseekV4Config& config) {
  const uint64_t heads = config.indexer.heads, dim = config.indexer.dim;
  V4IndexerTensors tensors;
  tensors.q_b = TRY(roles.matrix(prefix + "wq_b", heads * dim, config.q_lora));
  tensors.weights =
      TRY(roles.matrix(prefix + "weights_proj", heads, config.hidden, Storage::plain));
  tensors.compressor =
      TRY(read_compressor(roles, prefix + "compressor.", ratio, dim, config.hidden));
  return tensors;
}

Result<MoeTensors> read_moe(DeepseekRoles& roles, const std::string& prefix, bool by_id,
                            const DeepseekV4Config& config, bool draft) {
  const MoeConfig& moe = config.moe;
  const std::string gate = prefix + "gate.";
  MoeTensors tensors;
  if (!draft) roles.enter(Part::router);
  tensors.router = TRY(roles.plain(gate + "weight", {moe.experts, config.hidden}, DType::bf16));
  if (by_id) {
    tensors.by_id = TRY(roles.integers(gate + "tid2eid", {config.vocab, moe.per_token}));
  } else {
    tensors.bias = TRY(roles.plain(gate + "bias", {moe.experts}, DType::f32));
  }
  tensors.experts = TRY(
      read_experts(roles, prefix + "experts", kExpertNames, moe.experts, config.hidden, moe.width));
  if (!draft) roles.enter(Part::shared_experts);
  tensors.shared = TRY(read_feed_forward(roles, prefix + "shared_experts", kExpertNames,
                                         config.hidden, moe.shared_width));
  return tensors;
}

// prefix: "layers.3." or "mtp.0."; a draft's tensors stay in the part that was entered.
Result<V4BlockTensors> read_block(DeepseekRoles& roles, const std::string& prefix, uint32_t ratio,
                                  bool by_id, const DeepseekV4Config& config, bool draft) {
  const uint64_t hidden = config.hidden, streams = config.hyper.streams;
  V4BlockTensors block;
  if (!draft) roles.enter(Part::attention);
  block.attn_norm = TRY(roles.norm(prefix + "attn_norm.weight", hidden));
  block.ffn_norm = TRY(roles.norm(prefix + "ffn_norm.weight", hidden));
  block.hc_attn = TRY(read_hyper(roles, prefix + "hc_attn", streams, hidden));
  block.hc_ffn = TRY(read_hyper(roles, prefix + "hc_ffn", streams, hidden));
  block.attention = TRY(read_latent_tensors(roles, prefix, config));
  if (ratio != 0) {
    const std::string name = prefix + "attn.compressor.";
    block.compressor = TRY(read_compressor(roles, name, ratio, config.head_dim, hidden));
  }
  if (ratio == kOverlapRatio) {
    block.indexer = TRY(read_v4_indexer(roles, prefix + "attn.indexer.", ratio, config));
  }
  block.moe = TRY(read_moe(roles, prefix + "ffn.", by_id, config, draft));
  return block;
}

Result<V4MtpTensors> read_mtp(DeepseekRoles& roles, const DeepseekV4Config& config) {
  const uint64_t hidden = config.hidden;
  V4MtpTensors mtp;
  mtp.block = TRY(read_block(roles, "mtp.0.", 0, false, config, true));
  if (roles.gguf() && roles.has("mtp.0.eh_proj.weight")) {
    mtp.eh_proj = TRY(roles.matrix("mtp.0.eh_proj", hidden, 2 * hidden));
    const DTypeInfo& format = dtype_info(mtp.eh_proj->codes.dtype);
    if (hidden % format.block_elements != 0) {
      return Error::unsupported(
          "nextn.eh_proj", fmt::format("is stored as {}, whose blocks of {} do not end at half "
                                       "a row ({} inputs)",
                                       format.name, format.block_elements, hidden));
    }
  } else {
    mtp.e_proj = TRY(roles.matrix("mtp.0.e_proj", hidden, hidden));
    mtp.h_proj = TRY(roles.matrix("mtp.0.h_proj", hidden, hidden));
  }
  mtp.e_norm = TRY(roles.norm("mtp.0.enorm.weight", hidden));
  mtp.h_norm = TRY(roles.norm("mtp.0.hnorm.weight", hidden));
  mtp.norm = TRY(roles.norm("mtp.0.norm.weight", hidden));
  mtp.head = TRY(read_hyper_head(roles, "mtp.0.", config.hyper.streams, hidden));
  return mtp;
}

Result<DsparkTensors> read_dspark(DeepseekRoles& roles, const DeepseekV4Config& config) {
  const uint64_t hidden = config.hidden, rank = config.dspark.markov_rank;
  DsparkTensors dspark;
  for (uint32_t stage = 0; stage < config.dspark.stages; ++stage) {
    const std::string prefix = fmt::format("mtp.{}.", stage);
    dspark.v4_stages.push_back(TRY(read_block(roles, prefix, 0, false, config, true)));
  }
  const uint64_t taps = config.dspark.target_layers.size() * hidden;
  dspark.main_proj = TRY(roles.matrix("mtp.0.main_proj", hidden, taps));
  dspark.main_norm = TRY(roles.norm("mtp.0.main_norm.weight", hidden));
  const std::string last = fmt::format("mtp.{}.", config.dspark.stages - 1);
  dspark.norm = TRY(roles.norm(last + "norm.weight", hidden));
  dspark.head = TRY(read_hyper_head(roles, last, config.hyper.streams, hidden));
  dspark.markov_embed =
      TRY(roles.matrix(last + "markov_head.markov_w1", config.vocab, rank, Storage::plain));
  dspark.markov_head =
      TRY(roles.matrix(last + "markov_head.markov_w2", config.vocab, rank, Storage::plain));
  dspark.confidence =
      TRY(roles.plain(last + "confidence_head.proj.weight", {1, hidden + rank}, DType::bf16));
  return dspark;
}

Result<DeepseekV4Tensors> read_all(DeepseekRoles& roles, const DeepseekV4Config& config) {
  DeepseekV4Tensors tensors;
  roles.enter(Part::embedding);
  tensors.embedding = TRY(roles.matrix("embed", config.vocab, config.hidden, Storage::plain)).codes;
  roles.enter(Part::head);
  tensors.output = TRY(roles.matrix("head", config.vocab, config.hidden, Storage::plain));
  tensors.norm = TRY(roles.norm("norm.weight", config.hidden));
  tensors.head = TRY(read_hyper_head(roles, "", config.hyper.streams, config.hidden));
  tensors.layers.reserve(config.layers);
  for (uint32_t n = 0; n < config.layers; ++n) {
    tensors.layers.push_back(TRY(read_block(roles, fmt::format("layers.{}.", n), config.ratios[n],
                                            n < config.hash_layers, config, false)));
  }
  roles.enter(Part::draft);
  roles.enter_experts(Part::draft_experts);
  if (config.mtp) tensors.mtp = TRY(read_mtp(roles, config));
  if (config.dspark.stages > 0) tensors.dspark = TRY(read_dspark(roles, config));
  return tensors;
}

DeepseekRoles roles_of(const Checkpoint& checkpoint, const DeepseekV4Config& config) {
  Translation gguf;
  if (checkpoint.container() == Container::gguf) {
    gguf = [&config](std::string_view official) { return gguf_v4_name(official, config.layers); };
  }
  return DeepseekRoles(checkpoint, config.quantization, gguf);
}

}  // namespace

Result<DeepseekV4Tensors> read_deepseek_v4_tensors(const Checkpoint& checkpoint,
                                                   const DeepseekV4Config& config) {
  DeepseekRoles roles = roles_of(checkpoint, config);
  DeepseekV4Tensors tensors = TRY(read_all(roles, config));
  TRY(roles.check_all_used());
  return tensors;
}

Result<std::vector<TensorSpec>> deepseek_v4_specs(const DeepseekV4Config& config) {
  DeepseekRoles roles(config.quantization);
  TRY(read_all(roles, config));
  return std::move(roles).specs();
}

Result<std::vector<TensorSpec>> found_v4_specs(const Checkpoint& checkpoint,
                                               const DeepseekV4Config& config) {
  DeepseekRoles roles = roles_of(checkpoint, config);
  TRY(read_all(roles, config));
  TRY(roles.check_all_used());
  return std::move(roles).specs();
}

}  // namespace deepinfer::weights
