#include "models/deepseek_v4/deepseek_v4_cache.h"

#include <bit>
#include <string>
#include <utility>

namespace deepinfer::models {
namespace {

size_t whole_lines(size_t bytes) {
  return (bytes + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
}

V4EntryStream add_entries(cache::CacheLayout& layout, WindowCache& windows, const std::string& name,
                          size_t ratio, size_t dim, EntryStore store) {
  V4EntryStream entries;
  store.per_page = cache::kTokensPerPage / ratio;
  entries.store = store;
  entries.stream = layout.growing.size();
  layout.growing.push_back({name, whole_lines(store.per_page * store.format.row_bytes())});
  entries.ring = windows.add(layout, name + " pending", pending_rows_kept(ratio),
                             pending_row_bytes(ratio, dim));
  return entries;
}

EntryStore index_store(const weights::IndexerConfig& indexer, KvMode kv) {
  using kernels::LatentCode;
  EntryStore store;
  store.format.width = indexer.dim;
  if (kv == KvMode::f32) return store;
  constexpr uint32_t kBlock = 32;  // of q4u
  store.hadamard = std::has_single_bit(indexer.dim) && indexer.dim >= kBlock;
  store.format.code = store.hadamard ? LatentCode::q4u : LatentCode::bf16;
  return store;
}

}  // namespace

kernels::LatentFormat v4_row_format(const weights::DeepseekV4Config& config, KvMode kv) {
  kernels::LatentFormat format;
  format.width = config.head_dim;
  if (kv == KvMode::f32) return format;
  format.code = kernels::LatentCode::v4;
  format.rope = config.rope_dim;
  return format;
}

Result<V4CachePlan> plan_v4_cache(const weights::DeepseekV4Config& config, KvMode kv,
                                  WindowCache& windows) {
  V4CachePlan plan;
  plan.row = v4_row_format(config, kv);
  const size_t row_bytes = plan.row.row_bytes();
  for (size_t i = 0; i < config.layers; ++i) {
    const std::string name = "layer " + std::to_string(i);
    const size_t ratio = config.ratios[i];
    if (ratio != 0 && cache::kTokensPerPage % ratio != 0) {
      return Error::unsupported("compress_ratios", name + " has " + std::to_string(ratio) +
                                                       ", which does not divide the " +
                                                       std::to_string(cache::kTokensPerPage) +
                                                       " tokens of a page");
    }
    V4BlockCache block{.ratio = ratio, .entries = {}, .index_keys = {}};
    block.window = windows.add(plan.layout, name + " window", config.window - 1, row_bytes);
    if (ratio != 0) {
      block.entries = add_entries(plan.layout, windows, name + " entries", ratio, config.head_dim,
                                  {.format = plan.row});
    }
    if (ratio == kOverlapRatio) {
      block.index_keys = add_entries(plan.layout, windows, name + " index keys", ratio,
                                     config.indexer.dim, index_store(config.indexer, kv));
    }
    plan.layers.push_back(block);
  }
  const size_t stages = config.mtp ? 1 : config.dspark.stages;
  for (size_t s = 0; s < stages; ++s) {
    const std::string name =
        config.mtp ? std::string("mtp window") : "dspark stage " + std::to_string(s) + " window";
    V4BlockCache block{.entries = {}, .index_keys = {}};
    block.window = windows.add(plan.layout, name, config.window - 1, row_bytes);
    plan.drafts.push_back(block);
  }
  return plan;
}

}  // namespace deepinfer::models
