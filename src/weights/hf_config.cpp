#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "weights/config_reader.h"
#include "weights/json_fields.h"
#include "weights/tensor_table.h"

namespace deepinfer::weights {
namespace {

using simdjson::SUCCESS;
using simdjson::dom::array;
using simdjson::dom::element;

// The family, when it is one of these.
Result<Family> read_llama_family(const Fields& fields) {
  const Family family = TRY(read_family(fields));
  if (family <= Family::qwen3) return family;
  return Error::unsupported(
      fields.source(),
      fmt::format("is of the family {}, expected llama, qwen2 or qwen3", family_name(family)));
}

// Options of these families that change what is computed and that this program does not do.
Result<void> refuse_options(const Fields& fields) {
  TRY(fields.require_text("hidden_act", "silu"));
  for (const char* key : {"mlp_bias", "use_sliding_window", "rope_interleaved", "use_mrope"}) {
    TRY(fields.require_flag(key, false));
  }
  if (fields.has("quantization_config")) {
    return Error::unsupported(fields.thing("quantization_config"),
                              "is there, safetensors are read unquantised only");
  }
  const double rotary = TRY(fields.number_or("partial_rotary_factor", 1.0));
  if (rotary != 1.0) {
    return Error::unsupported(fields.thing("partial_rotary_factor"),
                              fmt::format("is {}, known is 1", rotary));
  }
  const std::optional<element> types = fields.find("layer_types");
  if (!types) return {};
  array list;
  if (types->get(list) != SUCCESS) return fields.mismatch("layer_types", *types, "a list");
  for (const element item : list) {
    std::string_view type;
    if (item.get(type) == SUCCESS && type == "full_attention") continue;
    return Error::unsupported(
        fields.thing("layer_types"),
        fmt::format("has {}, known is \"full_attention\"", printable(simdjson::to_string(item))));
  }
  return {};
}

Result<void> read_yarn(const Fields& scaling, uint32_t context, RopeConfig& rope) {
  TRY(scaling.require_flag("truncate", true));
  rope.original_context = TRY(scaling.number_or("original_max_position_embeddings", context));
  rope.beta_fast = TRY(scaling.number_or("beta_fast", 32.0));
  rope.beta_slow = TRY(scaling.number_or("beta_slow", 1.0));
  const double mscale = TRY(scaling.number_or("mscale", 0.0));
  const double mscale_all = TRY(scaling.number_or("mscale_all_dim", 0.0));
  double attention = yarn_attention_factor(rope.factor);
  if (mscale != 0 && mscale_all != 0) {
    attention =
        yarn_attention_factor(rope.factor, mscale) / yarn_attention_factor(rope.factor, mscale_all);
  }
  rope.attention_factor = TRY(scaling.number_or("attention_factor", attention));
  return {};
}

Result<void> read_scaling(const Fields& scaling, uint32_t context, RopeConfig& rope) {
  const std::string old_type = TRY(scaling.text_or("type", "default"));
  const std::string type = TRY(scaling.text_or("rope_type", old_type));
  if (type == "default") return {};
  if (type != "linear" && type != "llama3" && type != "yarn") {
    return Error::unsupported(
        scaling.thing("rope_type"),
        fmt::format("is {}, known are default, linear, llama3, yarn", printable(type)));
  }
  rope.factor = TRY(scaling.number("factor"));
  if (type == "linear") {
    rope.scaling = RopeScaling::linear;
    return {};
  }
  if (type == "yarn") {
    rope.scaling = RopeScaling::yarn;
    return read_yarn(scaling, context, rope);
  }
  rope.scaling = RopeScaling::llama3;
  rope.low_freq_factor = TRY(scaling.number("low_freq_factor"));
  rope.high_freq_factor = TRY(scaling.number("high_freq_factor"));
  rope.original_context = TRY(scaling.number("original_max_position_embeddings"));
  return {};
}

// rope_scaling beside rope_theta (until transformers 4), or rope_parameters with both (from 5 on).
Result<RopeConfig> read_rope(const Fields& fields, uint32_t head_dim, uint32_t context) {
  RopeConfig rope;
  rope.dims = head_dim;
  std::optional<Fields> scaling = TRY(fields.child("rope_parameters"));
  if (!scaling) scaling = TRY(fields.child("rope_scaling"));
  rope.theta = TRY(fields.number_or("rope_theta", 10000.0));
  if (!scaling) return rope;
  if (scaling->has("rope_theta")) {
    const double inner = TRY(scaling->number("rope_theta"));
    if (fields.has("rope_theta") && inner != rope.theta) {
      return Error::corrupt(scaling->thing("rope_theta"),
                            fmt::format("is {}, rope_theta beside it {}", inner, rope.theta));
    }
    rope.theta = inner;
  }
  TRY(read_scaling(*scaling, context, rope));
  return rope;
}

Result<uint32_t> read_head_dim(const Fields& fields, const LlamaConfig& config) {
  if (fields.has("head_dim")) return fields.count("head_dim", kHeadLimit);
  if (config.hidden % config.heads != 0) {
    return Error::corrupt(fields.source(),
                          fmt::format("hidden_size {} is not a multiple of num_attention_heads {}, "
                                      "and there is no head_dim",
                                      config.hidden, config.heads));
  }
  return config.hidden / config.heads;
}

}  // namespace

Result<LlamaConfig> parse_hf_llama_config(std::string_view json, const std::string& source) {
  simdjson::dom::parser parser;
  const Fields fields = TRY(parse_fields(parser, json, source));
  LlamaConfig config;
  config.family = TRY(read_llama_family(fields));
  TRY(refuse_options(fields));
  config.layers = TRY(fields.count("num_hidden_layers", kLayerLimit));
  config.hidden = TRY(fields.count("hidden_size", kWidthLimit));
  config.intermediate = TRY(fields.count("intermediate_size", kWidthLimit));
  config.heads = TRY(fields.count("num_attention_heads", kHeadLimit));
  config.kv_heads = TRY(fields.count_or("num_key_value_heads", kHeadLimit, config.heads));
  config.head_dim = TRY(read_head_dim(fields, config));
  config.vocab = TRY(fields.count("vocab_size", kVocabLimit));
  config.context = TRY(fields.count("max_position_embeddings", kContextLimit));
  config.norm_eps = TRY(fields.number("rms_norm_eps"));
  config.rope = TRY(read_rope(fields, config.head_dim, config.context));
  config.tied_embeddings = TRY(fields.flag_or("tie_word_embeddings", false));
  const bool attention_bias = TRY(fields.flag_or("attention_bias", false));
  config.qkv_bias = attention_bias || config.family == Family::qwen2;
  config.output_bias = attention_bias && config.family != Family::qwen2;
  config.qk_norm = config.family == Family::qwen3;
  const std::vector<uint32_t> bos = TRY(fields.ids("bos_token_id"));
  if (!bos.empty()) config.bos_id = bos.front();
  config.eos_ids = TRY(fields.ids("eos_token_id"));
  TRY(check_llama_config(config, source));
  return config;
}

Result<std::vector<uint32_t>> parse_hf_eos_ids(std::string_view json, const std::string& source) {
  simdjson::dom::parser parser;
  const Fields fields = TRY(parse_fields(parser, json, source));
  return fields.ids("eos_token_id");
}

}  // namespace deepinfer::weights
