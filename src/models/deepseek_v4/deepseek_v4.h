#pragma once

// DeepSeek-V4 (Flash, Pro, Base, and the releases with a DSpark drafter): text. Source: spec v4.md.
//
//   X_j = embedding[id], n streams
//   per layer: X = expand(attention(rms_norm(collapse X)));  X = expand(moe(rms_norm(collapse X)))
//   logits = head rms_norm(collapse X)
// Layers of ratio 0 see the window only, of ratio 4 (CSA) also the entries that the indexer
// selects, of any other ratio (HCA) all entries. The first layers choose experts by token id.
//
// Cache: models/deepseek_v4/deepseek_v4_cache.h. Up to kRollbackRows rows may be forgotten again. A
// step whose rows want no logits stops once the last layer's cache is filled.
//
// The MTP layer or the DSpark stages of the file are loaded too;
// models/deepseek_v4/deepseek_v4_draft.h runs them. Resuming with empty windows (SequenceStart) is
// V4.1's: V4 resumes from snapshots only.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "models/deepseek_v4/deepseek_v4_cache.h"
#include "models/deepseek_v4/deepseek_v4_pass.h"
#include "models/deepseek_v4/deepseek_v4_weights.h"
#include "models/model.h"
#include "models/window_cache.h"

namespace deepinfer::models {

// What a step computed on its way, for tests and drafters; overwritten by each step.
struct V4Taps {
  bool blocks = false;             // fill `layers`
  std::vector<V4BlockTap> layers;  // [layers]
  std::vector<float> means;        // [rows][targets * hidden], DSpark: means of target streams
  std::vector<float> streams;      // [rows][n][hidden], after the last layer
};

class DeepseekV4 final : public Model {
 public:
  static constexpr size_t kRollbackRows = 6;

  // Contract of open_model() in models/model.h.
  static Result<std::unique_ptr<DeepseekV4>> create(const weights::Checkpoint& checkpoint,
                                                    weights::DeepseekV4Config config,
                                                    const ModelOptions& options, ThreadPool& pool,
                                                    const Progress& progress);

  const weights::ModelConfig& config() const override { return config_; }
  const cache::CacheLayout& cache_layout() const override { return plan_.layout; }
  size_t weight_bytes_per_step() const override { return weights_.bytes_per_step; }
  // The compressors' pending tokens cannot be had from entries.
  uint64_t exact_replay() const override { return UINT64_MAX; }
  size_t rollback_rows() const override { return kRollbackRows; }
  size_t resident_bytes() const override { return weights_.resident + pass_->bytes(); }
  const std::vector<kernels::Choice>& choices() const override { return weights_.choices; }
  StreamCounters stream_counters() const override { return weights_.experts->counters(); }
  Result<void> forward(const StepBatch& batch, StepOutput& output) override;
  void set_profiling(bool on) override { pass_->profile().set_on(on); }
  std::vector<OperationTime> take_profile() override { return pass_->profile().take(); }

  // null: none (the default). Must outlive the steps. With taps every row runs every layer.
  void set_taps(V4Taps* taps) { taps_ = taps; }

  // For drafters, which run on the model's memory between its steps.
  const weights::DeepseekV4Config& v4_config() const { return config_; }
  const DeepseekV4Weights& weights() const { return weights_; }
  const V4CachePlan& plan() const { return plan_; }
  WindowCache& windows() { return windows_; }
  V4Pass& pass() { return *pass_; }
  const ModelOptions& options() const { return options_; }

 private:
  DeepseekV4(weights::DeepseekV4Config config, const ModelOptions& options);

  Result<void> embed(const StepBatch& batch);
  Result<void> run_layers(bool whole);
  void keep_means(size_t layer);
  Result<void> logits(const StepBatch& batch, StepOutput& output);

  const weights::DeepseekV4Config config_;
  const ModelOptions options_;
  WindowCache windows_;
  V4CachePlan plan_;
  DeepseekV4Weights weights_;
  std::unique_ptr<V4Pass> pass_;
  V4Taps* taps_ = nullptr;
  std::vector<StepRun> runs_;
  std::vector<size_t> wanted_;  // rows
};

Result<std::unique_ptr<Model>> open_deepseek_v4(const weights::Checkpoint& checkpoint,
                                                weights::DeepseekV4Config config,
                                                const ModelOptions& options, ThreadPool& pool,
                                                const Progress& progress);

}  // namespace deepinfer::models
