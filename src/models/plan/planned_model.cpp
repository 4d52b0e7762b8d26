// What `plan` knows of a model: its configuration, its tensors, its cache; contract in
// models/plan/memory_plan.h.

#include <algorithm>

#include "models/deepseek_v3/mla_layer.h"
#include "models/deepseek_v4/deepseek_v4_cache.h"
#include "models/deepseek_v41/deepseek_v41_weights.h"
#include "models/deepseek_v41/v41_cache.h"
#include "models/dspark.h"
#include "models/llama/llama.h"
#include "models/plan/memory_plan.h"
#include "models/window_cache.h"

namespace deepinfer::models {
namespace {

using weights::Family;

Result<cache::CacheLayout> cache_of(const weights::LlamaConfig& config, KvMode kv) {
  return llama_cache(config, kv);
}

Result<cache::CacheLayout> cache_of(const weights::DeepseekV3Config& config, KvMode kv) {
  return mla_cache(config.layers, TRY(mla_shape(config, kv)));
}

Result<cache::CacheLayout> cache_of(const weights::DeepseekV4Config& config, KvMode kv) {
  WindowCache windows(spare_rows(config.dspark));
  return TRY(plan_v4_cache(config, kv, windows)).layout;
}

Result<cache::CacheLayout> cache_of(const weights::DeepseekV41Config& config, KvMode kv) {
  WindowCache windows(spare_rows(config.dspark));
  return plan_v41_cache(config, kv, windows).layout;
}

}  // namespace

const weights::ModelConfig& base_config(const AnyConfig& config) {
  return std::visit([](const auto& one) -> const weights::ModelConfig& { return one; }, config);
}

Result<cache::CacheLayout> planned_cache(const AnyConfig& config, KvMode kv) {
  return std::visit([&](const auto& one) { return cache_of(one, kv); }, config);
}

Result<PlannedModel> planned_from_config(std::string_view json, const std::string& source) {
  PlannedModel model;
  switch (TRY(weights::parse_hf_family(json, source))) {
    case Family::llama:
    case Family::qwen2:
    case Family::qwen3: {
      const weights::LlamaConfig config = TRY(weights::parse_hf_llama_config(json, source));
      model.tensors = weights::llama_specs(config);
      model.config = config;
      return model;
    }
    case Family::deepseek_v3:
    case Family::deepseek_v32: {
      const weights::DeepseekV3Config config = TRY(weights::parse_deepseek_v3_config(json, source));
      model.tensors = TRY(weights::deepseek_v3_specs(config));
      model.config = config;
      return model;
    }
    case Family::deepseek_v4: {
      const weights::DeepseekV4Config config = TRY(weights::parse_deepseek_v4_config(json, source));
      model.tensors = TRY(weights::deepseek_v4_specs(config));
      model.config = config;
      return model;
    }
    case Family::deepseek_v41: {
      const weights::DeepseekV41Config config =
          TRY(weights::parse_deepseek_v41_config(json, source));
      model.tensors = TRY(weights::deepseek_v41_specs(config));
      model.config = config;
      return model;
    }
  }
  check(false, "every family has a configuration");
  return model;
}

Result<PlannedModel> planned_from_checkpoint(const weights::Checkpoint& checkpoint) {
  PlannedModel model;
  switch (TRY(weights::read_family(checkpoint))) {
    case Family::llama:
    case Family::qwen2:
    case Family::qwen3: {
      model.config = TRY(weights::read_llama_config(checkpoint));
      model.tensors = weights::found_llama_specs(checkpoint);
      return model;
    }
    case Family::deepseek_v3:
    case Family::deepseek_v32: {
      const weights::DeepseekV3Config config = TRY(weights::read_deepseek_v3_config(checkpoint));
      model.tensors = TRY(weights::found_v3_specs(checkpoint, config));
      model.config = config;
      return model;
    }
    case Family::deepseek_v4: {
      const weights::DeepseekV4Config config = TRY(weights::read_deepseek_v4_config(checkpoint));
      model.tensors = TRY(weights::found_v4_specs(checkpoint, config));
      model.config = config;
      return model;
    }
    case Family::deepseek_v41: {
      const weights::DeepseekV41Config config = TRY(weights::read_deepseek_v41_config(checkpoint));
      model.tensors = TRY(weights::found_v41_specs(checkpoint, config));
      model.config = config;
      return model;
    }
  }
  check(false, "every family has a configuration");
  return model;
}

}  // namespace deepinfer::models
