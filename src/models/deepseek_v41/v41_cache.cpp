#include "models/deepseek_v41/v41_cache.h"

#include <algorithm>
#include <string>

namespace deepinfer::models {

using kernels::LatentCode;
using weights::DeepseekV41Config;

kernels::LatentFormat v41_window_format(const DeepseekV41Config& config, KvMode kv) {
  return {.code = kv == KvMode::f32 ? LatentCode::f32 : LatentCode::q8,
          .width = config.head_dim,
          .rope = 0};
}

kernels::LatentFormat v41_entry_format(const DeepseekV41Config& config, KvMode kv) {
  const LatentCode official = config.fp4_sparse_kv ? LatentCode::q4e : LatentCode::q8;
  return {
      .code = kv == KvMode::f32 ? LatentCode::f32 : official, .width = config.head_dim, .rope = 0};
}

kernels::LatentFormat v41_key_format(const DeepseekV41Config& config, KvMode kv) {
  return {.code = kv == KvMode::f32 ? LatentCode::f32 : LatentCode::q4u,
          .width = config.indexer.dim,
          .rope = 0};
}

V41CachePlan plan_v41_cache(const DeepseekV41Config& config, KvMode kv, WindowCache& windows) {
  V41CachePlan plan;
  cache::CacheLayout& layout = plan.layout;
  for (const uint32_t layer : config.kv_sources) {
    const std::string where = "layer " + std::to_string(layer);
    V41EntryStreams source;
    source.ratio = config.ratios[layer];
    source.per_page = cache::kTokensPerPage / source.ratio;
    source.entries = layout.growing.size();
    layout.growing.push_back(
        {where + " entries", source.per_page * v41_entry_format(config, kv).row_bytes()});
    source.keys = layout.growing.size();
    layout.growing.push_back(
        {where + " index keys", source.per_page * v41_key_format(config, kv).row_bytes()});
    if (source.ratio > 1) {
      source.pending = windows.add(layout, where + " open block", source.ratio,
                                   size_t{2} * config.head_dim * sizeof(float));
    }
    plan.sources.push_back(source);
  }
  const size_t row_bytes = v41_window_format(config, kv).row_bytes();
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    plan.windows.push_back(windows.add(layout, "layer " + std::to_string(layer) + " window",
                                       config.window, row_bytes));
  }
  for (uint32_t stage = 0; stage < config.dspark.stages; ++stage) {
    plan.drafters.push_back(windows.add(layout, "drafter " + std::to_string(stage) + " window",
                                        config.window, row_bytes));
  }
  if (!config.engram.layers.empty()) {
    plan.engram = layout.growing.size();
    layout.growing.push_back({"engram token classes", cache::kTokensPerPage * sizeof(int32_t)});
  }
  return plan;
}

}  // namespace deepinfer::models
