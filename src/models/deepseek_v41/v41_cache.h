#pragma once

// V41CachePlan: what a sequence of V4.1 keeps, from the configuration alone: formats of rows,
// growing streams, rings of the frontier. The model, `plan` and tests read it from here.
//
// Threads: a plain value.

#include <cstddef>
#include <optional>
#include <vector>

#include "cache/layout.h"
#include "kernels/attention/latent_rows.h"
#include "models/model.h"
#include "models/window_cache.h"
#include "weights/deepseek/deepseek_config.h"

namespace deepinfer::models {

// Where one kv source keeps what it makes.
struct V41EntryStreams {
  size_t ratio = 1;
  size_t per_page = 0;            // entries, and keys, of a page
  size_t entries = 0, keys = 0;   // growing streams
  std::optional<size_t> pending;  // ring of WindowCache, rows [s | k]; ratio 2
};

struct V41CachePlan {
  cache::CacheLayout layout;
  std::vector<V41EntryStreams> sources;  // [kv sources]
  std::vector<size_t> windows;           // [layers] rings
  std::vector<size_t> drafters;          // [draft stages] rings
  std::optional<size_t> engram;          // growing stream of token classes
};

kernels::LatentFormat v41_window_format(const weights::DeepseekV41Config& config, KvMode kv);
kernels::LatentFormat v41_entry_format(const weights::DeepseekV41Config& config, KvMode kv);
kernels::LatentFormat v41_key_format(const weights::DeepseekV41Config& config, KvMode kv);

// Declares the rings in `windows`, which is empty and has spare_rows() of
// models/dspark.h.
V41CachePlan plan_v41_cache(const weights::DeepseekV41Config& config, KvMode kv,
                            WindowCache& windows);

}  // namespace deepinfer::models
