// Fuzzes config.json: whatever the text, a config that is accepted is consistent, and its tensors
// can be listed.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/model_config.h"
#include "weights/tensor_spec.h"

using namespace deepinfer;
using namespace deepinfer::weights;

namespace {

void check_base(const ModelConfig& model) {
  check(model.layers > 0 && model.hidden > 0 && model.vocab > 0 && model.context > 0);
  for (const uint32_t id : model.eos_ids) check(id < model.vocab);
}

void check_moe(const MoeConfig& moe) {
  check(moe.experts > 0 && moe.per_token > 0 && moe.per_token <= moe.experts);
  check(moe.groups > 0 && moe.experts % moe.groups == 0 && moe.groups_kept <= moe.groups);
}

template <class Specs>
void check_specs(const Specs& specs, uint32_t layers) {
  check(!specs.ok() || specs.value().size() > layers);
}

void try_llama(std::string_view text) {
  const Result<LlamaConfig> config = parse_hf_llama_config(text, "input");
  if (!config.ok()) return check(!config.error().text().empty());
  const LlamaConfig& model = config.value();
  check_base(model);
  check(model.kv_heads > 0 && model.heads % model.kv_heads == 0);
  check(model.head_dim > 0 && model.head_dim % 2 == 0 && model.rope.dims == model.head_dim);
}

void try_v3(std::string_view text) {
  const Result<DeepseekV3Config> config = parse_deepseek_v3_config(text, "input");
  if (!config.ok()) return check(!config.error().text().empty());
  const DeepseekV3Config& model = config.value();
  check_base(model);
  check_moe(model.moe);
  check(model.softmax_scale > 0 && model.rope.dims % 2 == 0);
  check_specs(deepseek_v3_specs(model), model.layers);
}

void try_v4(std::string_view text) {
  const Result<DeepseekV4Config> config = parse_deepseek_v4_config(text, "input");
  if (!config.ok()) return check(!config.error().text().empty());
  const DeepseekV4Config& model = config.value();
  check_base(model);
  check_moe(model.moe);
  check(model.ratios.size() == model.layers && model.heads % model.o_groups == 0);
  check_specs(deepseek_v4_specs(model), model.layers);
}

void try_v41(std::string_view text) {
  const Result<DeepseekV41Config> config = parse_deepseek_v41_config(text, "input");
  if (!config.ok()) return check(!config.error().text().empty());
  const DeepseekV41Config& model = config.value();
  check_base(model);
  check_moe(model.moe);
  for (uint32_t layer = 0; layer < model.layers; ++layer) {
    if (model.ratios[layer] == 0) continue;
    check(model.kv_sources[model.kv_source_of(layer)] <= layer);
    check(model.index_sources[model.index_source_of(layer)] <= layer);
  }
  check_specs(deepseek_v41_specs(model), model.layers);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_llama(text);
  try_v3(text);
  try_v4(text);
  try_v41(text);
  return 0;
}
