#pragma once

// V41Entries: the compressed entries and index keys that the kv source layers of V4.1 append to the
// cache and all layers up to the next source read. Source: spec v41.md 4.4.
//
//   ratio 2: s_t = gate h_t, k_t = kv h_t; entry j pools tokens 2j, 2j+1 by softmax of s
//   ratio 1: entry t = kv h_t
//   lat = rms_norm(pooled);  entry = rope(lat, j * ratio)
//   key = rope(rms_norm(index_key lat), j * ratio)
//
// A query at position t sees the entries below (t + 1) / ratio. The raw rows (s, k) of ratio 2 lie
// in a ring of the frontier, so an open block survives chunk ends and rollback.
//
// Bits: an entry depends on its tokens' rows only. Threads: from the thread of forward(), on the
// pool.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/softmax_pool.h"
#include "models/deepseek_v41/deepseek_v41_weights.h"
#include "models/deepseek_v41/v41_cache.h"
#include "models/profile.h"
#include "models/rope_rows.h"
#include "models/rounding.h"
#include "models/row_work.h"
#include "models/step_runs.h"
#include "models/window_cache.h"

namespace deepinfer::models {

class V41Entries {
 public:
  V41Entries(const weights::DeepseekV41Config& config, KvMode kv, kernels::Target target,
             Rounding rounding, RowWork& work, Profile& profile);
  // streams: of all sources.
  Result<void> create(std::vector<V41EntryStreams> streams, size_t max_rows, size_t threads);
  size_t bytes() const;

  const V41EntryStreams& streams(size_t source) const { return streams_[source]; }
  const kernels::LatentFormat& entry_format() const { return entry_format_; }
  const kernels::LatentFormat& key_format() const { return key_format_; }

  // Appends what the rows of the runs complete, but for entries that were restored. h [rows][D],
  // normed, in the layer of the source.
  Result<void> update(size_t source, const V41Compressor& weights, const float* h,
                      std::span<const StepRun> runs, WindowCache& windows, const RopeRows& rope,
                      const std::string& where);

 private:
  struct Made {
    const StepRun* run;
    uint64_t entry;
  };
  void project(const V41Compressor& weights, const float* h, size_t rows, WindowCache& windows,
               const std::optional<size_t>& pending);
  void find_made(const V41EntryStreams& streams, std::span<const StepRun> runs);
  void pool_entry(const V41EntryStreams& streams, const Made& made, const WindowCache& windows,
                  float* out) const;

  const size_t hidden_, dim_, key_dim_;
  const float eps_;
  const kernels::Target target_;
  const Rounding rounding_;
  const kernels::LatentFormat entry_format_, key_format_;
  const kernels::LatentRowOps& latent_ops_;
  const kernels::SoftmaxPool softmax_pool_;
  RowWork& work_;
  Profile& profile_;
  std::vector<V41EntryStreams> streams_;  // [sources]
  std::vector<Made> made_;
  PageLists entry_pages_, key_pages_;
  kernels::Activations activations_;
  Buffer pooled_;  // [max_rows][dim]
  Buffer keys_;    // [max_rows][key_dim]
  Buffer angles_;  // [threads][rope dims]
};

}  // namespace deepinfer::models
