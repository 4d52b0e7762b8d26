#pragma once

// What a sequence of V4 keeps (source: spec v4.md 6), and in which formats.
//
//   growing: entries of CSA layers (ratio 4: 32 a page) and of HCA layers (128 / ratio a page);
//     index keys of CSA layers (32 a page)
//   frontier: per layer the window's rows, and the compressors' pending rows (a | s, f32); rows of
//     the drafter's layers
//
// official: rows of `v4`, index keys q4u after a Hadamard transform; an indexer whose dimension
// q4u or the transform does not take (no power of two, or below 32) keeps bf16 keys. f32:
// everything unrounded.
//
// Threads: plain values.

#include <optional>
#include <vector>

#include "base/result.h"
#include "cache/layout.h"
#include "kernels/attention/latent_rows.h"
#include "models/deepseek_v4/v4_compressor.h"
#include "models/model.h"
#include "models/window_cache.h"
#include "weights/deepseek/deepseek_config.h"

namespace deepinfer::models {

// A growing stream and the ring of the rows that its compressor waits with.
struct V4EntryStream {
  size_t stream = 0;  // of CacheLayout::growing
  size_t ring = 0;    // of WindowCache
  EntryStore store;
};

struct V4BlockCache {
  size_t ratio = 0;
  size_t window = 0;  // ring
  std::optional<V4EntryStream> entries;
  std::optional<V4EntryStream> index_keys;
};

struct V4CachePlan {
  cache::CacheLayout layout;
  kernels::LatentFormat row;         // of window rows and entries
  std::vector<V4BlockCache> layers;  // the backbone's
  std::vector<V4BlockCache> drafts;  // the MTP layer, or the DSpark stages
};

// Format of window rows and entries.
kernels::LatentFormat v4_row_format(const weights::DeepseekV4Config& config, KvMode kv);

// Declares all streams and rings. A ratio that does not divide the 128 tokens of a page is refused
// by name.
Result<V4CachePlan> plan_v4_cache(const weights::DeepseekV4Config& config, KvMode kv,
                                  WindowCache& windows);

}  // namespace deepinfer::models
