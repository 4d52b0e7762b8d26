// DeepSeek-V4's configuration from config.json (spec v4.md, section 1) and its drafter from the
// tensors (section 8).

#include <fmt/format.h>

#include "weights/config_reader.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/deepseek/deepseek_config_parts.h"
#include "weights/gguf/gguf_deepseek.h"
#include "weights/tensor_table.h"

namespace deepinfer::weights {
namespace {

constexpr uint32_t kReleasedStages = 3;

Result<void> read_ratios(const Fields& fields, DeepseekV4Config& config,
                         std::vector<uint32_t>& listed) {
  constexpr const char* kKey = "compress_ratios";
  listed = TRY(fields.amounts(kKey, kRatioLimit, kLayerLimit + kStageLimit));
  if (!fields.has(kKey)) return Error::corrupt(fields.thing(kKey), "is missing");
  if (listed.size() < config.layers) {
    return fields.conflict(
        kKey, fmt::format("has {} items, num_hidden_layers is {}", listed.size(), config.layers));
  }
  for (size_t n = config.layers; n < listed.size(); ++n) {
    if (listed[n] == 0) continue;
    return Error::unsupported(fields.thing(kKey), fmt::format("item {}, of a draft layer, is {}, "
                                                              "known is 0",
                                                              n, listed[n]));
  }
  config.ratios.assign(listed.begin(), listed.begin() + config.layers);
  return {};
}

Result<void> read_drafter(const Fields& fields, size_t listed, DeepseekV4Config& config) {
  const uint32_t next = TRY(fields.amount_or("num_nextn_predict_layers", kStageLimit, 0));
  if (!fields.has("dspark_block_size")) {
    if (next > 1) {
      return Error::unsupported(fields.thing("num_nextn_predict_layers"),
                                fmt::format("is {}, known are 0 and 1", next));
    }
    config.mtp = next == 1;
    return {};
  }
  config.dspark = TRY(read_dspark(fields, config));
  config.dspark.stages =
      listed > config.layers ? static_cast<uint32_t>(listed - config.layers) : kReleasedStages;
  config.dspark.experts = config.moe.experts;
  config.dspark.experts_per_token = config.moe.per_token;
  return {};
}

bool has_tensor(const Checkpoint& checkpoint, const std::string& name) {
  return checkpoint.find(name) != nullptr || checkpoint.find("model." + name) != nullptr;
}

// Whether a draft module is there, and which, is what the tensors say.
Result<void> confirm_drafter(const Checkpoint& checkpoint, DeepseekV4Config& config) {
  const bool mtp = has_tensor(checkpoint, "mtp.0.e_proj.weight");
  const bool dspark = has_tensor(checkpoint, "mtp.0.main_proj.weight");
  const std::string source = checkpoint.path() + "/config.json";
  if (mtp && config.dspark.stages > 0) {
    return Error::corrupt(source,
                          "has dspark_* fields, the tensors are those of an MTP layer "
                          "(mtp.0.e_proj.weight)");
  }
  if (dspark && config.dspark.stages == 0) {
    return Error::corrupt(source,
                          "has no dspark_block_size, the tensors are those of DSpark "
                          "(mtp.0.main_proj.weight)");
  }
  config.mtp = mtp;
  if (!dspark) config.dspark = {};
  return {};
}

}  // namespace

Result<DeepseekV4Config> parse_deepseek_v4_config(std::string_view json,
                                                  const std::string& source) {
  simdjson::dom::parser parser;
  const Fields fields = TRY(parse_fields(parser, json, source));
  DeepseekV4Config config;
  config.family = TRY(read_family(fields));
  if (config.family != Family::deepseek_v4) {
    return Error::unsupported(
        source, fmt::format("is of the family {}, expected {}", family_name(config.family),
                            family_name(Family::deepseek_v4)));
  }
  TRY(refuse_deepseek_options(fields, "sqrtsoftplus"));
  TRY(read_model_fields(fields, fields, config));
  TRY(read_latent_attention(fields, config));
  std::vector<uint32_t> listed;
  TRY(read_ratios(fields, config, listed));
  config.moe = TRY(read_ungrouped_moe(fields));
  TRY(check_expert_count(config.layers, config.moe.experts, source));
  config.hash_layers = TRY(fields.amount_or("num_hash_layers", kLayerLimit, 0));
  if (config.hash_layers > config.layers) {
    return fields.conflict("num_hash_layers", fmt::format("is {}, num_hidden_layers {}",
                                                          config.hash_layers, config.layers));
  }
  config.indexer = TRY(read_indexer(fields, config.rope_dim));
  config.hyper = TRY(read_hyper(fields));
  const TwoRopes ropes = TRY(read_two_ropes(fields, config.rope_dim));
  config.rope = ropes.rope;
  config.compress_rope = ropes.compress_rope;
  config.quantization = TRY(read_quantization(fields, MatrixStorage::fp8_128));
  TRY(read_drafter(fields, listed.size(), config));
  return config;
}

Result<DeepseekV4Config> read_deepseek_v4_config(const Checkpoint& checkpoint) {
  if (checkpoint.container() == Container::gguf) {
    return parse_gguf_deepseek_v4_config(checkpoint.metadata(), checkpoint.path());
  }
  const ConfigText file = config_text(checkpoint);
  DeepseekV4Config config = TRY(parse_deepseek_v4_config(file.text, file.source));
  TRY(add_generation_ids(checkpoint, config));
  TRY(confirm_drafter(checkpoint, config));
  return config;
}

}  // namespace deepinfer::weights
