#pragma once

// V4Pass: one block of V4 over the rows of a step, and the memory that the rows need. The backbone
// runs its blocks one after the other; the drafters (models/deepseek_v4/deepseek_v4_draft.h) run
// theirs on the same rows.
//
//   pass.begin(runs, positions, ids);
//   ... pass.streams().set(row, embedding) ...
//   TRY(pass.attention(layer, cache, "layer 3"));
//   TRY(pass.experts(layer, "layer 3"));
//
// Source: spec v4.md 4. Threads: from the thread of forward(), on the pool.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/deepseek_v4/deepseek_v4_cache.h"
#include "models/deepseek_v4/deepseek_v4_weights.h"
#include "models/deepseek_v4/v4_compressor.h"
#include "models/deepseek_v4/v4_selection.h"
#include "models/hyper_streams.h"
#include "models/latent_block.h"
#include "models/moe.h"
#include "models/profile.h"
#include "models/rope_rows.h"
#include "models/rounding.h"
#include "models/row_work.h"
#include "models/step_runs.h"
#include "models/window_cache.h"

namespace deepinfer::models {

// What a block computed on its way, for tests; one row after the other.
struct V4BlockTap {
  std::vector<float> attn_in, attn_out;         // [rows][hidden], after the norm; before expansion
  std::vector<float> ffn_in, ffn_out;           // the same
  std::vector<float> streams;                   // [rows][n][hidden], after the block
  std::vector<std::vector<uint32_t>> selected;  // [rows], CSA
  Routing routing;
};

// FP8 and FP4 products of V4 quantise their inputs in blocks of 128.
inline constexpr uint32_t kV4QuantizerBlock = 128;

class V4Pass {
 public:
  // windows: holds the rings that V4BlockCache names; outlives the pass, as the pool does.
  static Result<std::unique_ptr<V4Pass>> create(const weights::DeepseekV4Config& config,
                                                const ModelOptions& options,
                                                kernels::LatentFormat row, WindowCache& windows,
                                                ThreadPool& pool);
  V4Pass(const V4Pass&) = delete;
  V4Pass& operator=(const V4Pass&) = delete;

  // The rows of a step, until the next begin(). What the spans refer to must outlive it.
  void begin(std::span<const StepRun> runs, std::span<const uint64_t> positions,
             std::span<const int32_t> ids);

  // Streams of all rows through one sublayer. Entries and fresh rows are written.
  Result<void> attention(const V4Block& block, const V4BlockCache& cache, const std::string& where,
                         V4BlockTap* tap = nullptr);
  Result<void> experts(const V4Block& block, ExpertSource& source, const std::string& where,
                       V4BlockTap* tap = nullptr);
  // Only what later tokens read of the attention: window rows, entries, index keys.
  Result<void> fill_cache(const V4Block& block, const V4BlockCache& cache,
                          const std::string& where);
  // For a drafter whose rows see other windows than their own: h, q and fresh rows as attention()
  // makes them, then attention over `queries` (one per row, query and out set here).
  Result<void> project(const V4Block& block, const V4BlockCache& cache, const std::string& where);
  Result<void> attend(const V4Block& block, std::span<kernels::LatentQuery> queries,
                      const std::string& where);
  // out [wanted][vocab]: logits of rows `wanted` (ascending), whose streams move to the front.
  // collapsed [wanted][hidden] or null: the rows before the norm.
  Result<void> logits(const HyperConnection& head, const std::vector<float>& norm,
                      const kernels::PackedMatrix& output, std::span<const size_t> wanted,
                      float* out, float* collapsed = nullptr);

  HyperStreams& streams() { return streams_; }
  RowWork& work() { return work_; }
  Profile& profile() { return profile_; }
  Moe& moe() { return moe_; }
  const Rounding& rounding() const { return rounding_; }
  const LatentBlock& latent() const { return latent_; }
  const RopeRows& plain_rope() const { return plain_rope_; }
  // [hidden] of one row: what the last sublayer gave, and free for the caller between sublayers.
  float* sublayer(size_t row) { return f_.as<float>() + row * hidden_; }
  size_t bytes() const;

 private:
  V4Pass(const weights::DeepseekV4Config& config, const ModelOptions& options,
         kernels::LatentFormat row, WindowCache& windows, ThreadPool& pool, RopeRows plain,
         RopeRows compress);
  Result<void> allocate(size_t max_rows);

  float* h(size_t row) { return h_.as<float>() + row * hidden_; }
  const RopeRows& rope_of(const V4BlockCache& cache) const {
    return cache.ratio == 0 ? plain_rope_ : compress_rope_;
  }
  void collapse(const HyperConnection& hyper, const std::vector<float>& norm);
  void expand();
  Result<void> project_rows(const V4Block& block, const V4BlockCache& cache, bool scores,
                            const std::string& where);
  // Products of the compressors and of the indexer's weights, all of h.
  void compressor_products(const V4Block& block, const V4BlockCache& cache, bool scores);
  Result<void> make_entries(const V4Compressor& compressor, const V4EntryStream& entries,
                            PageLists& pages, const std::string& where);
  Result<void> fill_entries(const V4Block& block, const V4BlockCache& cache, bool scores,
                            const std::string& where);
  void place_queries(const V4BlockCache& cache);
  void tap_rows(std::vector<float>& to, const Buffer& from) const;

  const weights::DeepseekV4Config& config_;
  const kernels::Target target_;
  const size_t hidden_;
  WindowCache& windows_;
  RowWork work_;
  Profile profile_;
  Rounding rounding_;
  RopeRows plain_rope_, compress_rope_;
  HyperStreams streams_;
  LatentBlock latent_;
  V4EntryMaker entry_maker_;
  V4Selection selection_;
  Moe moe_;
  kernels::Activations activations_;
  Buffer h_;  // [max_rows][hidden], input of a sublayer
  Buffer f_;  // [max_rows][hidden], its output

  std::span<const StepRun> runs_;
  std::span<const uint64_t> positions_;
  std::span<const int32_t> ids_;
  PageLists entry_pages_, key_pages_;
  std::vector<kernels::LatentQuery> queries_;  // [rows]
};

}  // namespace deepinfer::models
