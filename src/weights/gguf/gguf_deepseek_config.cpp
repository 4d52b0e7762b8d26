// DeepSeek configurations from GGUF metadata (spec gguf.md).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "weights/config_reader.h"
#include "weights/deepseek/deepseek_config_parts.h"
#include "weights/gguf/gguf_deepseek.h"

namespace deepinfer::weights {
namespace {

// expert_gating_func.
constexpr uint64_t kSoftmax = 1;
constexpr uint64_t kSigmoid = 2;
constexpr uint64_t kSqrtSoftplus = 4;

// The keys below one architecture's prefix.
class Keys {
 public:
  Keys(const Metadata& metadata, const std::string& source, std::string prefix)
      : metadata_(metadata), reader_(metadata, source), prefix_(std::move(prefix)) {}

  const MetadataReader& reader() const { return reader_; }
  const std::string& prefix() const { return prefix_; }
  bool has(const char* key) const { return reader_.has(prefix_ + key); }
  std::string thing(const char* key) const { return reader_.thing(prefix_ + key); }

  Result<uint32_t> count(const char* key, uint64_t most) const {
    return static_cast<uint32_t>(TRY(reader_.integer(prefix_ + key, 1, most)));
  }
  Result<uint32_t> amount_or(const char* key, uint64_t most, uint32_t fallback) const {
    return static_cast<uint32_t>(TRY(reader_.integer_or(prefix_ + key, 0, most, fallback)));
  }
  Result<double> number(const char* key) const { return reader_.number(prefix_ + key); }
  Result<double> number_or(const char* key, double fallback) const {
    return reader_.number_or(prefix_ + key, fallback);
  }
  Result<double> positive(const char* key) const {
    const double value = TRY(number(key));
    if (value > 0) return value;
    return Error::corrupt(thing(key), fmt::format("is {}, expected a number above 0", value));
  }
  Result<std::string> text_or(const char* key, const char* fallback) const {
    return reader_.text_or(prefix_ + key, fallback);
  }
  Result<bool> flag_or(const char* key, bool fallback) const {
    return reader_.flag_or(prefix_ + key, fallback);
  }
  Result<const std::vector<int64_t>*> integers(const char* key) const {
    return reader_.integers(prefix_ + key);
  }
  Error conflict(const char* key, const std::string& what) const {
    return Error::corrupt(thing(key), what);
  }
  Result<void> require(const char* key, uint64_t only) const {
    const uint64_t value = TRY(reader_.integer(prefix_ + key, 0, UINT32_MAX));
    if (value == only) return {};
    return Error::unsupported(thing(key), fmt::format("is {}, known is {}", value, only));
  }

  // The one value of a list of numbers that are all the same; 0 when absent.
  Result<double> repeated(const char* key) const {
    const auto found = metadata_.find(prefix_ + key);
    if (found == metadata_.end()) return 0.0;
    const auto* list = std::get_if<std::vector<double>>(&found->second);
    if (list == nullptr) return number(key);
    for (const double value : *list) {
      if (std::isfinite(value) && value >= 0 && value == list->front()) continue;
      return Error::unsupported(thing(key), fmt::format("has {} and {}, known is one value for all "
                                                        "layers",
                                                        list->front(), value));
    }
    return list->empty() ? 0.0 : list->front();
  }

 private:
  const Metadata& metadata_;
  MetadataReader reader_;
  std::string prefix_;
};

// Everything of ModelConfig but the family; returns the number of draft layers, which block_count
// includes.
Result<uint32_t> read_model_keys(const Keys& keys, ModelConfig& config, const std::string& source) {
  const uint32_t blocks = TRY(keys.count("block_count", kLayerLimit));
  const uint32_t next = TRY(keys.amount_or("nextn_predict_layers", kStageLimit, 0));
  if (next >= blocks) {
    return keys.conflict("nextn_predict_layers",
                         fmt::format("is {}, block_count {}", next, blocks));
  }
  config.layers = blocks - next;
  config.hidden = TRY(keys.count("embedding_length", kWidthLimit));
  config.context = TRY(keys.count("context_length", kContextLimit));
  config.vocab = TRY(read_gguf_vocab(keys.reader(), keys.prefix()));
  config.norm_eps = TRY(keys.positive("attention.layer_norm_rms_epsilon"));
  TRY(read_gguf_ids(keys.reader(), config));
  TRY(check_model_config(config, source));
  return next;
}

// rope.scaling.*: the scaling, or none when there are no such keys.
Result<void> read_yarn_keys(const Keys& keys, RopeConfig& rope) {
  const std::string type = TRY(keys.text_or("rope.scaling.type", "none"));
  if (type == "none") return {};
  if (type != "yarn") {
    return Error::unsupported(keys.thing("rope.scaling.type"),
                              fmt::format("is {}, known are none and yarn", type));
  }
  rope.scaling = RopeScaling::yarn;
  rope.factor = TRY(keys.positive("rope.scaling.factor"));
  rope.original_context =
      static_cast<double>(TRY(keys.count("rope.scaling.original_context_length", kContextLimit)));
  rope.beta_fast = TRY(keys.number_or("rope.scaling.yarn_beta_fast", 32.0));
  rope.beta_slow = TRY(keys.number_or("rope.scaling.yarn_beta_slow", 1.0));
  if (rope.beta_slow > 0 && rope.beta_fast > rope.beta_slow) return {};
  return keys.conflict("rope.scaling.yarn_beta_slow",
                       fmt::format("is {}, yarn_beta_fast {}: expected 0 < slow < fast",
                                   rope.beta_slow, rope.beta_fast));
}

Result<MoeConfig> read_moe_keys(const Keys& keys, uint64_t gating) {
  MoeConfig moe;
  moe.experts = TRY(keys.count("expert_count", kExpertLimit));
  moe.per_token = TRY(keys.count("expert_used_count", kExpertLimit));
  moe.width = TRY(keys.count("expert_feed_forward_length", kWidthLimit));
  const uint32_t shared = TRY(keys.amount_or("expert_shared_count", 64, 0));
  moe.shared = shared > 0 ? 1 : 0;
  moe.shared_width = shared * moe.width;
  moe.scaling = TRY(keys.positive("expert_weights_scale"));
  moe.normalize = TRY(keys.flag_or("expert_weights_norm", false));
  TRY(keys.require("expert_gating_func", gating));
  moe.groups = std::max(1u, TRY(keys.amount_or("expert_group_count", kExpertLimit, 1)));
  moe.groups_kept =
      std::max(1u, TRY(keys.amount_or("expert_group_used_count", kExpertLimit, moe.groups)));
  if (moe.experts % moe.groups != 0 || moe.groups_kept > moe.groups) {
    return keys.conflict("expert_group_count",
                         fmt::format("is {} with {} used, expert_count {}", moe.groups,
                                     moe.groups_kept, moe.experts));
  }
  if (moe.per_token > moe.experts / moe.groups * moe.groups_kept) {
    return keys.conflict("expert_used_count",
                         fmt::format("is {}, expert_count {}, groups {}, used {}", moe.per_token,
                                     moe.experts, moe.groups, moe.groups_kept));
  }
  return moe;
}

// --------------------------------------------------------------------------- V4
Result<void> read_v4_attention(const Keys& keys, DeepseekV4Config& config) {
  config.heads = TRY(keys.count("attention.head_count", kHeadLimit));
  TRY(keys.require("attention.head_count_kv", 1));
  config.head_dim = TRY(keys.count("attention.key_length", kHeadLimit));
  TRY(keys.require("attention.value_length", config.head_dim));
  config.rope_dim = TRY(keys.count("rope.dimension_count", kHeadLimit));
  config.q_lora = TRY(keys.count("attention.q_lora_rank", kWidthLimit));
  config.o_lora = TRY(keys.count("attention.output_lora_rank", kWidthLimit));
  config.o_groups = TRY(keys.count("attention.output_group_count", kHeadLimit));
  config.window = TRY(keys.count("attention.sliding_window", kContextLimit));
  if (config.rope_dim > config.head_dim || config.rope_dim % 2 != 0) {
    return keys.conflict("rope.dimension_count",
                         fmt::format("is {}, expected an even number up to key_length {}",
                                     config.rope_dim, config.head_dim));
  }
  if (config.heads % config.o_groups != 0) {
    return keys.conflict(
        "attention.output_group_count",
        fmt::format("is {}, which does not divide head_count {}", config.o_groups, config.heads));
  }
  config.indexer.heads = TRY(keys.count("attention.indexer.head_count", kHeadLimit));
  config.indexer.dim = TRY(keys.count("attention.indexer.key_length", kHeadLimit));
  config.indexer.topk = TRY(keys.count("attention.indexer.top_k", kTopkLimit));
  if (config.indexer.dim >= config.rope_dim) return {};
  return keys.conflict(
      "attention.indexer.key_length",
      fmt::format("is {}, below rope.dimension_count {}", config.indexer.dim, config.rope_dim));
}

Result<void> read_v4_ratios(const Keys& keys, DeepseekV4Config& config) {
  constexpr const char* kKey = "attention.compress_ratios";
  const std::vector<int64_t>& listed = *TRY(keys.integers(kKey));
  if (listed.size() < config.layers || listed.size() > config.layers + kStageLimit) {
    return keys.conflict(
        kKey, fmt::format("has {} items, there are {} layers", listed.size(), config.layers));
  }
  for (uint32_t n = 0; n < config.layers; ++n) {
    if (listed[n] < 0 || listed[n] > static_cast<int64_t>(kRatioLimit)) {
      return keys.conflict(
          kKey, fmt::format("item {} is {}, expected 0 to {}", n, listed[n], kRatioLimit));
    }
    config.ratios.push_back(static_cast<uint32_t>(listed[n]));
  }
  return {};
}

Result<double> read_clamp(const Keys& keys) {
  const double routed = TRY(keys.repeated("swiglu_clamp_exp"));
  if (!keys.has("swiglu_clamp_shexp")) return routed;
  const double shared = TRY(keys.repeated("swiglu_clamp_shexp"));
  if (routed == shared) return routed;
  return Error::unsupported(
      keys.thing("swiglu_clamp_shexp"),
      fmt::format("is {}, swiglu_clamp_exp {}: known are equal ones", shared, routed));
}

Result<void> read_v4_hyper(const Keys& keys, HyperConfig& hyper) {
  hyper.streams = TRY(keys.count("hyper_connection.count", kStreamLimit));
  hyper.sinkhorn_iterations = TRY(keys.count("hyper_connection.sinkhorn_iterations", 1000));
  hyper.eps = TRY(keys.positive("hyper_connection.epsilon"));
  return {};
}

// --------------------------------------------------------------------------- V3
// Lengths of MLA heads: under keys of their own where the cache's are the absorbed ones.
Result<void> read_v3_attention(const Keys& keys, DeepseekV3Config& config) {
  config.heads = TRY(keys.count("attention.head_count", kHeadLimit));
  config.q_lora = TRY(keys.amount_or("attention.q_lora_rank", kWidthLimit, 0));
  config.kv_lora = TRY(keys.count("attention.kv_lora_rank", kWidthLimit));
  config.rope_dim = TRY(keys.count("rope.dimension_count", kHeadLimit));
  const bool absorbed = keys.has("attention.key_length_mla");
  const char* key = absorbed ? "attention.key_length_mla" : "attention.key_length";
  const char* value = absorbed ? "attention.value_length_mla" : "attention.value_length";
  const uint32_t length = TRY(keys.count(key, kHeadLimit));
  config.value_dim = TRY(keys.count(value, kHeadLimit));
  if (config.rope_dim % 2 != 0 || config.rope_dim >= length) {
    return keys.conflict(
        "rope.dimension_count",
        fmt::format("is {}, expected an even number below {} {}", config.rope_dim, key, length));
  }
  config.nope_dim = length - config.rope_dim;
  return {};
}

// ggml writes 0.1 mscale_all_dim as yarn_log_multiplier and leaves cos and sin unscaled.
Result<void> read_v3_rope(const Keys& keys, DeepseekV3Config& config) {
  config.rope.dims = config.rope_dim;
  config.rope.theta = TRY(keys.positive("rope.freq_base"));
  config.softmax_scale = 1.0 / std::sqrt(static_cast<double>(config.nope_dim + config.rope_dim));
  TRY(read_yarn_keys(keys, config.rope));
  if (config.rope.scaling == RopeScaling::none) return {};
  const double multiplier = TRY(keys.number("rope.scaling.yarn_log_multiplier"));
  const double all = yarn_attention_factor(config.rope.factor, multiplier / 0.1);
  config.softmax_scale *= all * all;
  return {};
}

}  // namespace

Result<DeepseekV4Config> parse_gguf_deepseek_v4_config(const Metadata& metadata,
                                                       const std::string& source) {
  const Keys keys(metadata, source, "deepseek4.");
  DeepseekV4Config config;
  config.family = Family::deepseek_v4;
  const uint32_t next = TRY(read_model_keys(keys, config, source));
  TRY(read_v4_attention(keys, config));
  TRY(read_v4_ratios(keys, config));
  config.moe = TRY(read_moe_keys(keys, kSqrtSoftplus));
  TRY(check_expert_count(config.layers, config.moe.experts, source));
  config.moe.clamp = TRY(read_clamp(keys));
  if (config.moe.shared_width != config.moe.width || !config.moe.normalize) {
    return Error::unsupported(keys.thing("expert_shared_count"),
                              "known is 1, with expert_weights_norm true");
  }
  config.hash_layers = TRY(keys.amount_or("hash_layer_count", config.layers, 0));
  TRY(read_v4_hyper(keys, config.hyper));
  config.rope.dims = config.compress_rope.dims = config.rope_dim;
  config.rope.theta = TRY(keys.positive("rope.freq_base"));
  config.compress_rope.theta = TRY(keys.positive("attention.compress_rope_freq_base"));
  TRY(read_yarn_keys(keys, config.compress_rope));
  if (next > 1) {
    return Error::unsupported(keys.thing("nextn_predict_layers"),
                              fmt::format("is {}, known are 0 and 1", next));
  }
  config.mtp = next == 1;
  return config;
}

Result<DeepseekV3Config> parse_gguf_deepseek_v3_config(const Metadata& metadata,
                                                       const std::string& source) {
  const Keys keys(metadata, source, "deepseek2.");
  DeepseekV3Config config;
  config.family = Family::deepseek_v3;
  config.next_layers = TRY(read_model_keys(keys, config, source));
  TRY(read_v3_attention(keys, config));
  config.dense_layers = TRY(keys.amount_or("leading_dense_block_count", config.layers, 0));
  config.dense_width = TRY(keys.count("feed_forward_length", kWidthLimit));
  config.softmax_router = TRY(keys.amount_or("expert_gating_func", UINT32_MAX, 0)) == kSoftmax;
  config.moe = TRY(read_moe_keys(keys, config.softmax_router ? kSoftmax : kSigmoid));
  if (config.softmax_router && config.moe.groups > 1) {
    return Error::unsupported(
        keys.thing("expert_group_count"),
        fmt::format("is {} with softmax routing, known is 1", config.moe.groups));
  }
  TRY(check_expert_count(config.layers, config.moe.experts, source));
  TRY(read_v3_rope(keys, config));
  return config;
}

}  // namespace deepinfer::weights
