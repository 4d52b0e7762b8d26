// The configuration of DeepSeek-V3, R1 and V3.2 from config.json.

#include <fmt/format.h>

#include <cmath>

#include "weights/config_reader.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/deepseek/deepseek_config_parts.h"
#include "weights/gguf/gguf_deepseek.h"
#include "weights/tensor_table.h"

namespace deepinfer::weights {
namespace {

Result<void> read_attention(const Fields& fields, DeepseekV3Config& config) {
  config.heads = TRY(fields.count("num_attention_heads", kHeadLimit));
  const uint32_t kv_heads = TRY(fields.count_or("num_key_value_heads", kHeadLimit, config.heads));
  if (kv_heads != config.heads) {
    return fields.conflict("num_key_value_heads",
                           fmt::format("is {}, num_attention_heads {}", kv_heads, config.heads));
  }
  config.q_lora = TRY(fields.count_or("q_lora_rank", kWidthLimit, 0));
  config.kv_lora = TRY(fields.count("kv_lora_rank", kWidthLimit));
  config.nope_dim = TRY(fields.count("qk_nope_head_dim", kHeadLimit));
  config.rope_dim = TRY(fields.count("qk_rope_head_dim", kHeadLimit));
  config.value_dim = TRY(fields.count("v_head_dim", kHeadLimit));
  if (config.rope_dim % 2 != 0) {
    return fields.conflict("qk_rope_head_dim",
                           fmt::format("is {}, expected an even number", config.rope_dim));
  }
  return fields.require_flag("rope_interleave", true);
}

Result<void> read_feed_forward(const Fields& fields, DeepseekV3Config& config) {
  config.dense_layers = TRY(fields.amount_or("first_k_dense_replace", kLayerLimit, 0));
  if (config.dense_layers > config.layers) {
    return fields.conflict(
        "first_k_dense_replace",
        fmt::format("is {}, num_hidden_layers {}", config.dense_layers, config.layers));
  }
  config.dense_width = TRY(fields.count("intermediate_size", kWidthLimit));
  TRY(fields.require_number("moe_layer_freq", 1));
  MoeConfig& moe = config.moe;
  moe.experts = TRY(fields.count("n_routed_experts", kExpertLimit));
  moe.per_token = TRY(fields.count("num_experts_per_tok", kExpertLimit));
  moe.width = TRY(fields.count("moe_intermediate_size", kWidthLimit));
  const uint32_t shared = TRY(fields.amount_or("n_shared_experts", 64, 0));
  moe.shared = shared > 0 ? 1 : 0;
  moe.shared_width = shared * moe.width;
  moe.scaling = TRY(fields.positive("routed_scaling_factor"));
  moe.normalize = TRY(fields.flag_or("norm_topk_prob", true));
  moe.groups = TRY(fields.count("n_group", kExpertLimit));
  moe.groups_kept = TRY(fields.count("topk_group", kExpertLimit));
  if (moe.experts % moe.groups != 0) {
    return fields.conflict(
        "n_group",
        fmt::format("is {}, which does not divide n_routed_experts {}", moe.groups, moe.experts));
  }
  if (moe.groups_kept > moe.groups) {
    return fields.conflict("topk_group",
                           fmt::format("is {}, n_group {}", moe.groups_kept, moe.groups));
  }
  const uint32_t choice = moe.experts / moe.groups * moe.groups_kept;
  if (moe.per_token > choice) {
    return fields.conflict("num_experts_per_tok",
                           fmt::format("is {}, n_routed_experts, n_group and topk_group leave {}",
                                       moe.per_token, choice));
  }
  return {};
}

// cos and sin are multiplied by y(mscale) / y(mscale_all_dim), the scores by y(mscale_all_dim)^2,
// y(m) = 0.1 m ln(factor) + 1.
Result<void> read_rope(const Fields& fields, DeepseekV3Config& config) {
  RopeConfig& rope = config.rope;
  rope.dims = config.rope_dim;
  rope.theta = TRY(fields.positive("rope_theta"));
  config.softmax_scale = 1.0 / std::sqrt(static_cast<double>(config.nope_dim + config.rope_dim));
  const std::optional<Fields> scaling = TRY(fields.child("rope_scaling"));
  if (!scaling) return {};
  const std::string old_type = TRY(scaling->text_or("type", "default"));
  const std::string type = TRY(scaling->text_or("rope_type", old_type));
  if (type == "default") return {};
  if (type != "yarn") {
    return Error::unsupported(scaling->thing("rope_type"),
                              fmt::format("is {}, known are default, yarn", printable(type)));
  }
  rope.scaling = RopeScaling::yarn;
  rope.factor = TRY(scaling->number("factor"));
  rope.original_context = TRY(scaling->number("original_max_position_embeddings"));
  rope.beta_fast = TRY(scaling->number_or("beta_fast", 32.0));
  rope.beta_slow = TRY(scaling->number_or("beta_slow", 1.0));
  TRY(check_yarn(rope, *scaling));
  const double mscale = TRY(scaling->number_or("mscale", 1.0));
  const double mscale_all = TRY(scaling->number_or("mscale_all_dim", 0.0));
  const double all = yarn_attention_factor(rope.factor, mscale_all);
  rope.attention_factor = yarn_attention_factor(rope.factor, mscale) / all;
  TRY(scaling->require_number("attention_factor", rope.attention_factor));
  config.softmax_scale *= all * all;
  return {};
}

Result<void> read_v3_indexer(const Fields& fields, DeepseekV3Config& config) {
  if (config.family == Family::deepseek_v3) {
    if (!fields.has("index_n_heads") && !fields.has("index_topk")) return {};
    return fields.conflict("index_n_heads",
                           "is there, the family deepseek_v3 has no indexer "
                           "(deepseek_v32 has)");
  }
  const IndexerConfig indexer = TRY(read_indexer(fields, config.rope_dim));
  config.index_heads = indexer.heads;
  config.index_dim = indexer.dim;
  config.index_topk = indexer.topk;
  TRY(fields.require_flag("indexer_rope_interleave", false));
  if (config.q_lora > 0) return {};
  return Error::corrupt(fields.thing("q_lora_rank"), "is missing, the indexer needs it");
}

}  // namespace

Result<DeepseekV3Config> parse_deepseek_v3_config(std::string_view json,
                                                  const std::string& source) {
  simdjson::dom::parser parser;
  const Fields fields = TRY(parse_fields(parser, json, source));
  DeepseekV3Config config;
  config.family = TRY(read_family(fields));
  if (config.family != Family::deepseek_v3 && config.family != Family::deepseek_v32) {
    return Error::unsupported(source, fmt::format("is of the family {}, expected deepseek_v3 or "
                                                  "deepseek_v32",
                                                  family_name(config.family)));
  }
  TRY(refuse_deepseek_options(fields, "sigmoid"));
  TRY(read_model_fields(fields, fields, config));
  TRY(read_attention(fields, config));
  TRY(read_feed_forward(fields, config));
  TRY(check_expert_count(config.layers, config.moe.experts, source));
  TRY(read_rope(fields, config));
  TRY(read_v3_indexer(fields, config));
  config.next_layers = TRY(fields.amount_or("num_nextn_predict_layers", kStageLimit, 0));
  config.tied_embeddings = TRY(fields.flag_or("tie_word_embeddings", false));
  config.quantization = TRY(read_quantization(fields, MatrixStorage::fp8_128_f32));
  return config;
}

Result<DeepseekV3Config> read_deepseek_v3_config(const Checkpoint& checkpoint) {
  if (checkpoint.container() == Container::gguf) {
    return parse_gguf_deepseek_v3_config(checkpoint.metadata(), checkpoint.path());
  }
  const ConfigText file = config_text(checkpoint);
  DeepseekV3Config config = TRY(parse_deepseek_v3_config(file.text, file.source));
  TRY(add_generation_ids(checkpoint, config));
  // Copies of the model are common without their layers for drafting.
  const std::string first = fmt::format("model.layers.{}.enorm.weight", config.layers);
  if (checkpoint.find(first) == nullptr) config.next_layers = 0;
  return config;
}

}  // namespace deepinfer::weights
