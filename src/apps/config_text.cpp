#include "apps/config_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "apps/terminal.h"

namespace deepinfer::apps {
namespace {

using weights::DeepseekV3Config;
using weights::DeepseekV41Config;
using weights::DeepseekV4Config;
using weights::LlamaConfig;

std::string_view rope_name(weights::RopeScaling scaling) {
  switch (scaling) {
    case weights::RopeScaling::none:
      return "none";
    case weights::RopeScaling::linear:
      return "linear";
    case weights::RopeScaling::llama3:
      return "llama3";
    case weights::RopeScaling::yarn:
      return "yarn";
  }
  return "none";
}

std::string_view storage_name(weights::MatrixStorage storage) {
  switch (storage) {
    case weights::MatrixStorage::plain:
      return "plain";
    case weights::MatrixStorage::fp8_32:
      return "FP8, UE8M0 scales per 32x32";
    case weights::MatrixStorage::fp8_128:
      return "FP8, UE8M0 scales per 128x128";
    case weights::MatrixStorage::fp8_128_f32:
      return "FP8, F32 scales per 128x128";
  }
  return "";
}

// --------------------------------------------------------------------------- JSON
void write_list(JsonWriter& json, std::string_view key, const std::vector<uint32_t>& list) {
  json.key(key);
  json.begin_array();
  for (const uint32_t item : list) json.value(item);
  json.end_array();
}

void write_rope(JsonWriter& json, std::string_view key, const weights::RopeConfig& rope) {
  json.key(key);
  json.begin_object();
  json.member("theta", rope.theta);
  json.member("dims", rope.dims);
  json.member("scaling", rope_name(rope.scaling));
  json.member("factor", rope.factor);
  json.end_object();
}

void write_moe(JsonWriter& json, const weights::MoeConfig& moe) {
  json.key("moe");
  json.begin_object();
  json.member("experts", moe.experts);
  json.member("per_token", moe.per_token);
  json.member("width", moe.width);
  json.member("shared_width", moe.shared_width);
  json.member("scaling", moe.scaling);
  json.member("groups", moe.groups);
  json.member("groups_kept", moe.groups_kept);
  json.member("clamp", moe.clamp);
  json.end_object();
}

void write_indexer(JsonWriter& json, const weights::IndexerConfig& indexer) {
  json.key("indexer");
  json.begin_object();
  json.member("heads", indexer.heads);
  json.member("dim", indexer.dim);
  json.member("topk", indexer.topk);
  json.end_object();
}

void write_dspark(JsonWriter& json, const weights::DsparkConfig& dspark) {
  json.key("dspark");
  if (dspark.stages == 0) return json.null();
  json.begin_object();
  json.member("stages", dspark.stages);
  json.member("block", dspark.block);
  json.member("experts", dspark.experts);
  write_list(json, "target_layers", dspark.target_layers);
  json.end_object();
}

void write_storage(JsonWriter& json, const weights::QuantizationConfig& quantization) {
  json.member("matrices", storage_name(quantization.matrices));
  json.member("fp4_experts", quantization.fp4_experts);
}

void write_own(JsonWriter& json, const LlamaConfig& config) {
  json.member("intermediate", config.intermediate);
  json.member("heads", config.heads);
  json.member("kv_heads", config.kv_heads);
  json.member("head_dim", config.head_dim);
  write_rope(json, "rope", config.rope);
  json.member("tied_embeddings", config.tied_embeddings);
  json.member("qkv_bias", config.qkv_bias);
  json.member("qk_norm", config.qk_norm);
}

void write_own(JsonWriter& json, const DeepseekV3Config& config) {
  json.member("heads", config.heads);
  json.member("q_lora", config.q_lora);
  json.member("kv_lora", config.kv_lora);
  json.member("nope_dim", config.nope_dim);
  json.member("rope_dim", config.rope_dim);
  json.member("value_dim", config.value_dim);
  json.member("dense_layers", config.dense_layers);
  json.member("dense_width", config.dense_width);
  write_moe(json, config.moe);
  write_rope(json, "rope", config.rope);
  write_indexer(json, {config.index_heads, config.index_dim, config.index_topk});
  json.member("next_layers", config.next_layers);
  write_storage(json, config.quantization);
}

// What V4 and V4.1 say in the same words.
template <class Config>
void write_latent(JsonWriter& json, const Config& config) {
  json.member("heads", config.heads);
  json.member("head_dim", config.head_dim);
  json.member("rope_dim", config.rope_dim);
  json.member("q_lora", config.q_lora);
  json.member("o_lora", config.o_lora);
  json.member("o_groups", config.o_groups);
  json.member("window", config.window);
  write_list(json, "compress_ratios", config.ratios);
  write_moe(json, config.moe);
  write_indexer(json, config.indexer);
  json.member("streams", config.hyper.streams);
  write_rope(json, "rope", config.rope);
  write_rope(json, "compress_rope", config.compress_rope);
  write_dspark(json, config.dspark);
  write_storage(json, config.quantization);
}

void write_own(JsonWriter& json, const DeepseekV4Config& config) {
  write_latent(json, config);
  json.member("hash_layers", config.hash_layers);
  json.member("mtp", config.mtp);
}

void write_own(JsonWriter& json, const DeepseekV41Config& config) {
  write_latent(json, config);
  write_list(json, "kv_sources", config.kv_sources);
  write_list(json, "index_sources", config.index_sources);
  json.member("first_decoder_layer", config.first_decoder_layer());
  write_list(json, "engram_layers", config.engram.layers);
  json.member("vision", config.vision.has_value());
}

// --------------------------------------------------------------------------- text
std::string line(std::string_view label, const std::string& text) {
  return fmt::format("  {:<12}{}\n", label, text);
}

std::string rope_line(const weights::RopeConfig& rope) {
  if (rope.scaling == weights::RopeScaling::none) {
    return fmt::format("theta {}, scaling none", rope.theta);
  }
  return fmt::format("theta {}, scaling {} by {}", rope.theta, rope_name(rope.scaling),
                     rope.factor);
}

std::string moe_lines(const weights::MoeConfig& moe) {
  std::string text =
      fmt::format("{} of {} a token, width {}", moe.per_token, moe.experts, moe.width);
  if (moe.groups > 1) text += fmt::format(", from {} of {} groups", moe.groups_kept, moe.groups);
  if (moe.shared > 0) text += fmt::format("; one shared of width {}", moe.shared_width);
  return line("experts", text);
}

std::string storage_line(const weights::QuantizationConfig& quantization) {
  const char* experts = quantization.fp4_experts ? "; experts FP4, UE8M0 scales per 32" : "";
  return line("matrices", fmt::format("{}{}", storage_name(quantization.matrices), experts));
}

std::string own_text(const LlamaConfig& config) {
  return line("attention",
              fmt::format("{} heads of {}, {} for keys and values{}{}", config.heads,
                          config.head_dim, config.kv_heads, config.qkv_bias ? ", bias" : "",
                          config.qk_norm ? ", norm of queries and keys" : "")) +
         line("feed-forward", fmt::format("width {}", config.intermediate)) +
         line("rope", rope_line(config.rope));
}

std::string own_text(const DeepseekV3Config& config) {
  std::string text = line(
      "attention",
      fmt::format(
          "{} heads, {} plain and {} rotated, values of {}, latent of {}{}", config.heads,
          config.nope_dim, config.rope_dim, config.value_dim, config.kv_lora,
          config.q_lora > 0 ? fmt::format(", queries from {}", config.q_lora) : std::string()));
  if (config.index_heads > 0) {
    text += line("indexer", fmt::format("{} heads of {}, best {}", config.index_heads,
                                        config.index_dim, config.index_topk));
  }
  if (config.dense_layers > 0) {
    text += line("dense",
                 fmt::format("first {} layers, width {}", config.dense_layers, config.dense_width));
  }
  text += moe_lines(config.moe) + line("rope", rope_line(config.rope));
  if (config.next_layers > 0) text += line("drafter", fmt::format("{} MTP", config.next_layers));
  return text + storage_line(config.quantization);
}

// Layers by their compression: "2 of 0, 21 of 4, 20 of 128".
std::string ratios_text(const std::vector<uint32_t>& ratios) {
  std::map<uint32_t, size_t> counts;
  for (const uint32_t ratio : ratios) ++counts[ratio];
  std::vector<std::string> parts;
  for (const auto& [ratio, count] : counts) {
    parts.push_back(ratio == 0 ? fmt::format("{} layers with the window alone", count)
                               : fmt::format("{} with {}:1 entries", count, ratio));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

template <class Config>
std::string latent_text(const Config& config) {
  std::string text =
      line("attention", fmt::format("{} heads of {} (one row of keys), {} rotated, window {}",
                                    config.heads, config.head_dim, config.rope_dim, config.window));
  text += line("compression", ratios_text(config.ratios));
  text += line("indexer", fmt::format("{} heads of {}, best {}", config.indexer.heads,
                                      config.indexer.dim, config.indexer.topk));
  text += line("streams", fmt::format("{}, {} Sinkhorn iterations", config.hyper.streams,
                                      config.hyper.sinkhorn_iterations));
  text += moe_lines(config.moe);
  text += line("rope", rope_line(config.rope) + "; compressed " + rope_line(config.compress_rope));
  if (config.dspark.stages > 0) {
    text += line("drafter", fmt::format("DSpark, {} stages, block {}", config.dspark.stages,
                                        config.dspark.block));
  }
  return text;
}

std::string own_text(const DeepseekV4Config& config) {
  std::string text = latent_text(config);
  if (config.hash_layers > 0) {
    text += line("routing", fmt::format("by token id in the first {} layers", config.hash_layers));
  }
  if (config.mtp) text += line("drafter", "one MTP layer");
  return text + storage_line(config.quantization);
}

std::string own_text(const DeepseekV41Config& config) {
  std::string text = latent_text(config);
  text += line("sources", fmt::format("keys of layers {}; selections of layers {}",
                                      fmt::join(config.kv_sources, " "),
                                      fmt::join(config.index_sources, " ")));
  text += line("decoder", fmt::format("from layer {}", config.first_decoder_layer()));
  if (!config.engram.layers.empty()) {
    text +=
        line("Engram", fmt::format("layers {}, up to {} tokens, {} heads of {}",
                                   fmt::join(config.engram.layers, " "), config.engram.max_ngram,
                                   config.engram.heads, config.engram.head_dim));
  }
  if (config.vision) {
    text += line("vision", fmt::format("{} layers of {}, patches of {}", config.vision->layers,
                                       config.vision->hidden, config.vision->patch));
  }
  return text + storage_line(config.quantization);
}

}  // namespace

void write_config(JsonWriter& json, const models::AnyConfig& config) {
  const weights::ModelConfig& base = models::base_config(config);
  json.begin_object();
  json.member("family", weights::family_name(base.family));
  json.member("layers", base.layers);
  json.member("hidden", base.hidden);
  json.member("vocab", base.vocab);
  json.member("context", base.context);
  json.member("norm_eps", base.norm_eps);
  std::visit([&](const auto& own) { write_own(json, own); }, config);
  json.key("bos_id");
  if (base.bos_id) {
    json.value(*base.bos_id);
  } else {
    json.null();
  }
  write_list(json, "eos_ids", base.eos_ids);
  json.end_object();
}

std::string config_text(const models::AnyConfig& config) {
  const weights::ModelConfig& base = models::base_config(config);
  const auto* llama = std::get_if<LlamaConfig>(&config);
  std::string text =
      line("family", fmt::format("{}: {} layers, hidden {}", weights::family_name(base.family),
                                 base.layers, base.hidden));
  text += std::visit([](const auto& own) { return own_text(own); }, config);
  text += line("context", fmt::format("{} tokens", base.context));
  text += line("vocabulary", fmt::format("{}{}", base.vocab,
                                         llama != nullptr && llama->tied_embeddings
                                             ? ", embeddings are the output head too"
                                             : ""));
  return text;
}

void write_parts(JsonWriter& json, const std::vector<models::PartBytes>& parts) {
  json.begin_array();
  for (const models::PartBytes& part : parts) {
    json.begin_object();
    json.member("part", weights::part_name(part.part));
    json.member("tensors", part.tensors);
    json.member("bytes", part.bytes);
    json.end_object();
  }
  json.end_array();
}

std::string parts_text(const std::vector<models::PartBytes>& parts) {
  std::string text;
  for (const models::PartBytes& part : parts) {
    text += fmt::format("    {:<22} {:>6} tensor{} {:>12}\n", weights::part_name(part.part),
                        part.tensors, part.tensors == 1 ? " " : "s",
                        bytes_text(static_cast<double>(part.bytes)));
  }
  return text;
}

}  // namespace deepinfer::apps
