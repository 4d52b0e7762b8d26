#include "weights/deepseek/deepseek_config_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "weights/config_reader.h"
#include "weights/tensor_table.h"

namespace deepinfer::weights {
namespace {

using simdjson::dom::element;

Result<void> require_named(const Fields& fields, const char* key, std::string_view only) {
  if (!fields.has(key)) return Error::corrupt(fields.thing(key), "is missing");
  return fields.require_text(key, only);
}

Result<void> check_block(const Fields& quantization, uint32_t edge) {
  constexpr const char* kKey = "weight_block_size";
  const std::vector<uint32_t> block = TRY(quantization.amounts(kKey, kWidthLimit, 2));
  if (block == std::vector<uint32_t>{edge, edge}) return {};
  const std::optional<element> value = quantization.find(kKey);
  return Error::unsupported(
      quantization.thing(kKey),
      fmt::format("is {}, this family is read with [{}, {}]",
                  value ? printable(simdjson::to_string(*value)) : "missing", edge, edge));
}

// The value of expert_dtype in both of its places; "" when absent.
Result<std::string> read_expert_dtype(const Fields& root,
                                      const std::optional<Fields>& quantization) {
  const std::string outer = TRY(root.text_or("expert_dtype", ""));
  std::string dtype = outer;
  if (quantization) dtype = TRY(quantization->text_or("expert_dtype", outer));
  if (!outer.empty() && outer != dtype) {
    return quantization->conflict(
        "expert_dtype", fmt::format("is {}, expert_dtype outside of {} {}", printable(dtype),
                                    quantization->source(), printable(outer)));
  }
  if (dtype.empty() || dtype == "fp4" || dtype == "fp8") return dtype;
  return Error::unsupported(root.thing("expert_dtype"),
                            fmt::format("is {}, known are fp4 and fp8", printable(dtype)));
}

}  // namespace

Result<void> read_model_fields(const Fields& root, const Fields& text, ModelConfig& config) {
  config.layers = TRY(text.count("num_hidden_layers", kLayerLimit));
  config.hidden = TRY(text.count("hidden_size", kWidthLimit));
  config.vocab = TRY(text.count("vocab_size", kVocabLimit));
  config.context = TRY(text.count("max_position_embeddings", kContextLimit));
  config.norm_eps = TRY(text.positive("rms_norm_eps"));
  const Fields& ids = root.has("eos_token_id") || root.has("bos_token_id") ? root : text;
  const std::vector<uint32_t> bos = TRY(ids.ids("bos_token_id"));
  if (!bos.empty()) config.bos_id = bos.front();
  config.eos_ids = TRY(ids.ids("eos_token_id"));
  return check_model_config(config, text.source());
}

Result<void> check_model_config(const ModelConfig& config, const std::string& source) {
  if (!(config.norm_eps > 0 && config.norm_eps < 1)) {
    return Error::corrupt(
        source, fmt::format("rms_norm_eps is {}, expected between 0 and 1", config.norm_eps));
  }
  std::vector<uint32_t> ids = config.eos_ids;
  if (config.bos_id) ids.push_back(*config.bos_id);
  for (const uint32_t id : ids) {
    if (id < config.vocab) continue;
    return Error::corrupt(source, fmt::format("token id {} (begin or end of text) is outside the "
                                              "vocabulary of {}",
                                              id, config.vocab));
  }
  return {};
}

Result<QuantizationConfig> read_quantization(const Fields& root, MatrixStorage storage) {
  const std::optional<Fields> quantization = TRY(root.child("quantization_config"));
  const std::string experts = TRY(read_expert_dtype(root, quantization));
  QuantizationConfig config;
  if (!quantization) {
    if (experts.empty()) return config;
    return root.conflict("expert_dtype",
                         fmt::format("is {}, and there is no quantization_config", experts));
  }
  TRY(require_named(*quantization, "quant_method", "fp8"));
  TRY(require_named(*quantization, "fmt", "e4m3"));
  TRY(require_named(*quantization, "activation_scheme", "dynamic"));
  if (storage == MatrixStorage::fp8_128_f32) {
    TRY(quantization->require_text("scale_fmt", "ue8m0"));  // of activations; weights have F32
    if (!experts.empty()) {
      return Error::unsupported(root.thing("expert_dtype"),
                                fmt::format("is {}, this family has none", experts));
    }
  } else {
    TRY(require_named(*quantization, "scale_fmt", "ue8m0"));
  }
  TRY(check_block(*quantization, storage == MatrixStorage::fp8_32 ? 32 : 128));
  config.matrices = storage;
  config.fp4_experts = experts == "fp4";
  if (storage == MatrixStorage::fp8_32 && !config.fp4_experts) {
    return Error::unsupported(
        quantization->thing("expert_dtype"),
        fmt::format("is {}, this family is read with fp4", experts.empty() ? "missing" : experts));
  }
  return config;
}

Result<void> refuse_deepseek_options(const Fields& text, const char* scoring) {
  TRY(text.require_text("hidden_act", "silu"));
  TRY(text.require_flag("attention_bias", false));
  TRY(text.require_text("scoring_func", scoring));
  TRY(text.require_text("topk_method", "noaux_tc"));
  return {};
}

Result<void> check_expert_count(uint64_t layers, uint64_t experts, const std::string& source) {
  if (layers * experts <= kAllExpertLimit) return {};
  return Error::exhausted(source, fmt::format("has {} layers of {} experts, the limit is {} in all",
                                              layers, experts, kAllExpertLimit));
}

Result<MoeConfig> read_ungrouped_moe(const Fields& text) {
  MoeConfig moe;
  moe.experts = TRY(text.count("n_routed_experts", kExpertLimit));
  moe.per_token = TRY(text.count("num_experts_per_tok", kExpertLimit));
  moe.width = TRY(text.count("moe_intermediate_size", kWidthLimit));
  moe.scaling = TRY(text.positive("routed_scaling_factor"));
  moe.clamp = TRY(text.positive("swiglu_limit"));
  TRY(text.require_flag("norm_topk_prob", true));
  if (!text.has("n_shared_experts")) {
    return Error::corrupt(text.thing("n_shared_experts"), "is missing");
  }
  TRY(text.require_number("n_shared_experts", 1));
  moe.shared = 1;
  moe.shared_width = moe.width;
  if (moe.per_token > moe.experts) {
    return text.conflict("num_experts_per_tok",
                         fmt::format("is {}, n_routed_experts {}", moe.per_token, moe.experts));
  }
  return moe;
}

Result<HyperConfig> read_hyper(const Fields& text) {
  HyperConfig hyper;
  hyper.streams = TRY(text.count("hc_mult", kStreamLimit));
  hyper.sinkhorn_iterations = TRY(text.count("hc_sinkhorn_iters", 1000));
  hyper.eps = TRY(text.positive("hc_eps"));
  return hyper;
}

Result<IndexerConfig> read_indexer(const Fields& text, uint32_t rope_dim) {
  IndexerConfig indexer;
  indexer.heads = TRY(text.count("index_n_heads", kHeadLimit));
  indexer.dim = TRY(text.count("index_head_dim", kHeadLimit));
  indexer.topk = TRY(text.count("index_topk", kTopkLimit));
  if (indexer.dim < rope_dim) {
    return text.conflict("index_head_dim",
                         fmt::format("is {}, below qk_rope_head_dim {}", indexer.dim, rope_dim));
  }
  return indexer;
}

Result<void> check_yarn(const RopeConfig& rope, const Fields& scaling) {
  if (!(rope.factor > 0 && rope.factor <= kLargestFactor)) {
    return scaling.conflict("factor", fmt::format("is {}, expected above 0 and at most {}",
                                                  rope.factor, kLargestFactor));
  }
  if (rope.original_context < 1) {
    return scaling.conflict("original_max_position_embeddings",
                            fmt::format("is {}, expected at least 1", rope.original_context));
  }
  if (!(rope.beta_slow > 0 && rope.beta_fast > rope.beta_slow)) {
    return scaling.conflict(
        "beta_slow", fmt::format("is {}, beta_fast {}: expected 0 < slow < fast", rope.beta_slow,
                                 rope.beta_fast));
  }
  return {};
}

Result<TwoRopes> read_two_ropes(const Fields& text, uint32_t rope_dim) {
  TwoRopes ropes;
  ropes.rope.dims = rope_dim;
  ropes.rope.theta = TRY(text.positive("rope_theta"));
  RopeConfig& compress = ropes.compress_rope;
  compress.dims = rope_dim;
  compress.theta = TRY(text.positive("compress_rope_theta"));
  const std::optional<Fields> scaling = TRY(text.child("rope_scaling"));
  if (!scaling) return Error::corrupt(text.thing("rope_scaling"), "is missing");
  const char* key = scaling->has("rope_type") ? "rope_type" : "type";
  TRY(require_named(*scaling, key, "yarn"));
  if (scaling->has("type")) TRY(scaling->require_text("type", "yarn"));
  TRY(scaling->require_number("attention_factor", 1.0));
  compress.scaling = RopeScaling::yarn;
  compress.factor = TRY(scaling->number("factor"));
  compress.original_context = TRY(scaling->number("original_max_position_embeddings"));
  compress.beta_fast = TRY(scaling->number("beta_fast"));
  compress.beta_slow = TRY(scaling->number("beta_slow"));
  TRY(check_yarn(compress, *scaling));
  return ropes;
}

template <class Config>
Result<void> read_latent_attention(const Fields& text, Config& config) {
  config.heads = TRY(text.count("num_attention_heads", kHeadLimit));
  TRY(text.require_number("num_key_value_heads", 1));
  config.head_dim = TRY(text.count("head_dim", kHeadLimit));
  config.rope_dim = TRY(text.count("qk_rope_head_dim", kHeadLimit));
  config.q_lora = TRY(text.count("q_lora_rank", kWidthLimit));
  config.o_lora = TRY(text.count("o_lora_rank", kWidthLimit));
  config.o_groups = TRY(text.count("o_groups", kHeadLimit));
  config.window = TRY(text.count("sliding_window", kContextLimit));
  TRY(text.require_flag("tie_word_embeddings", false));
  if (config.rope_dim > config.head_dim || config.rope_dim % 2 != 0) {
    return text.conflict("qk_rope_head_dim",
                         fmt::format("is {}, expected an even number up to head_dim {}",
                                     config.rope_dim, config.head_dim));
  }
  if (config.heads % config.o_groups != 0) {
    return text.conflict("o_groups", fmt::format("is {}, which does not divide "
                                                 "num_attention_heads {}",
                                                 config.o_groups, config.heads));
  }
  return {};
}
template Result<void> read_latent_attention(const Fields&, DeepseekV4Config&);
template Result<void> read_latent_attention(const Fields&, DeepseekV41Config&);

Result<std::vector<uint32_t>> read_layer_list(const Fields& text, const char* key,
                                              uint32_t layers) {
  std::vector<uint32_t> list = TRY(text.amounts(key, kLayerLimit, kLayerLimit));
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] >= layers) {
      return text.conflict(key,
                           fmt::format("has layer {}, num_hidden_layers is {}", list[i], layers));
    }
    if (i > 0 && list[i] <= list[i - 1]) {
      return text.conflict(
          key, fmt::format("has {} after {}, expected ascending layers", list[i], list[i - 1]));
    }
  }
  return list;
}

Result<DsparkConfig> read_dspark(const Fields& text, const ModelConfig& config) {
  DsparkConfig dspark;
  dspark.block = TRY(text.count("dspark_block_size", kDraftLimit));
  dspark.noise_id = static_cast<uint32_t>(TRY(text.whole("dspark_noise_token_id", 0, kVocabLimit)));
  if (dspark.noise_id >= config.vocab) {
    return text.conflict("dspark_noise_token_id",
                         fmt::format("is {}, vocab_size {}", dspark.noise_id, config.vocab));
  }
  dspark.target_layers = TRY(read_layer_list(text, "dspark_target_layer_ids", config.layers));
  if (dspark.target_layers.empty()) {
    return Error::corrupt(text.thing("dspark_target_layer_ids"), "is missing or empty");
  }
  dspark.markov_rank = TRY(text.count("dspark_markov_rank", kWidthLimit));
  return dspark;
}

ConfigText config_text(const Checkpoint& checkpoint) {
  const std::optional<std::string> text = checkpoint.side_file("config.json");
  check(text.has_value(), "a safetensors checkpoint opens with its config.json");
  return {*text, checkpoint.path() + "/config.json"};
}

Result<void> add_generation_ids(const Checkpoint& checkpoint, ModelConfig& config) {
  const std::optional<std::string> generation = checkpoint.side_file("generation_config.json");
  if (!generation) return {};
  const std::string source = checkpoint.path() + "/generation_config.json";
  for (const uint32_t id : TRY(parse_hf_eos_ids(*generation, source))) {
    if (std::ranges::count(config.eos_ids, id) == 0) config.eos_ids.push_back(id);
  }
  return check_model_config(config, source);
}

}  // namespace deepinfer::weights
