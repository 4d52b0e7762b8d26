#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "weights/config_reader.h"
#include "weights/gguf/metadata.h"
#include "weights/tensor_table.h"

namespace deepinfer::weights {
namespace {

// The dense families; the others have readers of their own.
Result<Family> read_llama_family(const Metadata& metadata, const std::string& source) {
  const Family family = TRY(read_gguf_family(metadata, source));
  if (family <= Family::qwen3) return family;
  return Error::unsupported(source, fmt::format("is of the family {}, expected llama, qwen2 or "
                                                "qwen3",
                                                family_name(family)));
}

// Keys under the architecture's prefix that change what is computed, with the only value that this
// program computes.
Result<void> refuse_options(const MetadataReader& reader, const std::string& prefix,
                            uint32_t head_dim) {
  struct Option {
    const char* key;
    double only;
  };
  const Option options[] = {{"expert_count", 0},
                            {"attention.sliding_window", 0},
                            {"attention.scale", 0},
                            {"attention.value_length", static_cast<double>(head_dim)},
                            {"attention.clamp_kqv", 0},
                            {"attention.max_alibi_bias", 0},
                            {"logit_scale", 0},
                            {"embedding_scale", 0},
                            {"residual_scale", 0},
                            {"attn_logit_softcapping", 0},
                            {"final_logit_softcapping", 0},
                            {"rope.scaling.yarn_ext_factor", 1},
                            {"rope.scaling.yarn_log_multiplier", 0}};
  for (const Option& option : options) {
    const std::string key = prefix + option.key;
    const double value = TRY(reader.number_or(key, option.only));
    if (value == option.only) continue;
    return Error::unsupported(reader.thing(key),
                              fmt::format("is {}, known is {}", value, option.only));
  }
  for (const auto& [name, only] :
       {std::pair("attention.causal", true), std::pair("use_parallel_residual", false)}) {
    const std::string key = prefix + name;
    if (TRY(reader.flag_or(key, only)) == only) continue;
    return Error::unsupported(reader.thing(key), fmt::format("is {}, known is {}", !only, only));
  }
  return {};
}

// ggml multiplies the two attention factors with YaRN's own (0.1 ln factor + 1).
Result<void> read_yarn(const MetadataReader& reader, const std::string& scaling, uint32_t context,
                       RopeConfig& rope) {
  rope.original_context = TRY(reader.number_or(scaling + "original_context_length", context));
  rope.beta_fast = TRY(reader.number_or(scaling + "yarn_beta_fast", 32.0));
  rope.beta_slow = TRY(reader.number_or(scaling + "yarn_beta_slow", 1.0));
  const double attention = TRY(reader.number_or(scaling + "attn_factor", 1.0));
  const double yarn_attention = TRY(reader.number_or(scaling + "yarn_attn_factor", 1.0));
  rope.attention_factor = yarn_attention_factor(rope.factor) * attention * yarn_attention;
  return {};
}

Result<RopeConfig> read_rope(const MetadataReader& reader, const std::string& prefix,
                             uint32_t head_dim, uint32_t context) {
  RopeConfig rope;
  rope.dims = static_cast<uint32_t>(
      TRY(reader.integer_or(prefix + "rope.dimension_count", 1, kHeadLimit, head_dim)));
  rope.theta = TRY(reader.number_or(prefix + "rope.freq_base", 10000.0));
  const std::string scaling = prefix + "rope.scaling.";
  // Old files scale linearly under a key of its own; a factor without a type is linear as well.
  const double old_factor = TRY(reader.number_or(prefix + "rope.scale_linear", 1.0));
  const double factor = TRY(reader.number_or(scaling + "factor", old_factor));
  const std::string type =
      TRY(reader.text_or(scaling + "type", factor == 1.0 || factor == 0.0 ? "none" : "linear"));
  if (type == "none") return rope;
  if (type != "linear" && type != "yarn") {
    return Error::unsupported(reader.thing(scaling + "type"),
                              fmt::format("is {}, known are none, linear, yarn", printable(type)));
  }
  rope.factor = factor;
  if (type == "yarn") {
    rope.scaling = RopeScaling::yarn;
    TRY(read_yarn(reader, scaling, context, rope));
  } else {
    rope.scaling = RopeScaling::linear;
    const double attention = TRY(reader.number_or(scaling + "attn_factor", 1.0));
    if (attention != 1.0) {
      return Error::unsupported(
          reader.thing(scaling + "attn_factor"),
          fmt::format("is {}, known is 1 unless the type is yarn", attention));
    }
  }
  return rope;
}

Result<uint32_t> read_head_dim(const MetadataReader& reader, const std::string& prefix,
                               const LlamaConfig& config, const std::string& source) {
  const std::string key = prefix + "attention.key_length";
  if (reader.has(key)) return static_cast<uint32_t>(TRY(reader.integer(key, 1, kHeadLimit)));
  if (config.hidden % config.heads != 0) {
    return Error::corrupt(
        source, fmt::format("{}embedding_length {} is not a multiple of attention.head_count {}, "
                            "and there is no attention.key_length",
                            prefix, config.hidden, config.heads));
  }
  return config.hidden / config.heads;
}

}  // namespace

Result<Family> read_gguf_family(const Metadata& metadata, const std::string& source) {
  const MetadataReader reader(metadata, source);
  const std::string name = TRY(reader.text("general.architecture"));
  struct Architecture {
    std::string_view name;
    Family family;
  };
  constexpr Architecture kKnown[] = {{"llama", Family::llama},
                                     {"qwen2", Family::qwen2},
                                     {"qwen3", Family::qwen3},
                                     {"deepseek2", Family::deepseek_v3},
                                     {"deepseek4", Family::deepseek_v4}};
  std::string known;
  for (const Architecture& one : kKnown) {
    if (one.name == name) return one.family;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", one.name);
  }
  if (name == "deepseek41") {
    return Error::unsupported(source,
                              "architecture deepseek41: files name the tensors of V4.1 in several "
                              "ways, none of them settled",
                              "use the official safetensors");
  }
  return Error::unsupported(
      source, fmt::format("unknown architecture {}, known are {}", printable(name), known));
}

Result<uint32_t> read_gguf_vocab(const MetadataReader& reader, const std::string& prefix) {
  const std::string key = prefix + "vocab_size";
  const std::string list = "tokenizer.ggml.tokens";
  if (!reader.has(list)) return static_cast<uint32_t>(TRY(reader.integer(key, 1, kVocabLimit)));
  const uint64_t tokens = TRY(reader.texts(list))->size();
  if (tokens < 1 || tokens > kVocabLimit) {
    return Error::corrupt(reader.thing(list),
                          fmt::format("has {} tokens, expected 1 to {}", tokens, kVocabLimit));
  }
  const uint64_t vocab = TRY(reader.integer_or(key, 1, kVocabLimit, tokens));
  if (vocab < tokens) {
    return Error::corrupt(reader.thing(list),
                          fmt::format("has {} tokens, {} is {}", tokens, key, vocab));
  }
  return static_cast<uint32_t>(vocab);
}

Result<void> read_gguf_ids(const MetadataReader& reader, ModelConfig& config) {
  const auto id = [&](const char* key) -> Result<std::optional<uint32_t>> {
    if (!reader.has(key)) return std::optional<uint32_t>();
    return std::optional<uint32_t>(
        static_cast<uint32_t>(TRY(reader.integer(key, 0, kVocabLimit - 1))));
  };
  config.bos_id = TRY(id("tokenizer.ggml.bos_token_id"));
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    const std::optional<uint32_t> end = TRY(id(key));
    if (end && std::ranges::count(config.eos_ids, *end) == 0) config.eos_ids.push_back(*end);
  }
  return {};
}

Result<LlamaConfig> parse_gguf_llama_config(const Metadata& metadata, const std::string& source) {
  const MetadataReader reader(metadata, source);
  LlamaConfig config;
  config.family = TRY(read_llama_family(metadata, source));
  const std::string prefix = std::string(family_name(config.family)) + ".";
  const auto count = [&](const char* key, uint64_t most) -> Result<uint32_t> {
    return static_cast<uint32_t>(TRY(reader.integer(prefix + key, 1, most)));
  };
  config.layers = TRY(count("block_count", kLayerLimit));
  config.hidden = TRY(count("embedding_length", kWidthLimit));
  config.intermediate = TRY(count("feed_forward_length", kWidthLimit));
  config.heads = TRY(count("attention.head_count", kHeadLimit));
  config.kv_heads = static_cast<uint32_t>(
      TRY(reader.integer_or(prefix + "attention.head_count_kv", 1, kHeadLimit, config.heads)));
  config.head_dim = TRY(read_head_dim(reader, prefix, config, source));
  config.vocab = TRY(read_gguf_vocab(reader, prefix));
  config.context = TRY(count("context_length", kContextLimit));
  config.norm_eps = TRY(reader.number(prefix + "attention.layer_norm_rms_epsilon"));
  TRY(refuse_options(reader, prefix, config.head_dim));
  config.rope = TRY(read_rope(reader, prefix, config.head_dim, config.context));
  config.qk_norm = config.family == Family::qwen3;
  TRY(read_gguf_ids(reader, config));
  TRY(check_llama_config(config, source));
  return config;
}

}  // namespace deepinfer::weights
