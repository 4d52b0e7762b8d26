#pragma once

// DeepseekV41: the class behind open_deepseek_v41(), with a window for tests: an observer sees, and
// may change, what goes into and comes out of every layer.
//
// Threads: as Model.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/deepseek_v41/deepseek_v41.h"
#include "models/deepseek_v41/deepseek_v41_weights.h"
#include "models/deepseek_v41/engram.h"
#include "models/deepseek_v41/v41_entries.h"
#include "models/deepseek_v41/v41_selection.h"
#include "models/hyper_streams.h"
#include "models/latent_block.h"
#include "models/moe.h"
#include "models/window_cache.h"

namespace deepinfer::models {

// Layer `layer` before it runs (after Engram), or after. Rows that stopped at the decoder are gone.
struct V41LayerView {
  size_t layer = 0;
  bool after = false;
  size_t rows = 0;
  HyperStreams* streams = nullptr;
  float* pre = nullptr;  // [rows][streams]
  V41Selection* selection = nullptr;
  std::span<const StepRun> runs;
  const float* attention_out = nullptr;  // [rows][hidden], after only
  const float* ffn_out = nullptr;        // [rows][hidden], after only
  const Routing* routing = nullptr;      // after only
};

class V41Drafter;

class DeepseekV41 final : public Model {
 public:
  DeepseekV41(weights::DeepseekV41Config config, const ModelOptions& options, ThreadPool& pool,
              DeepseekV41Weights weights);
  Result<void> create(std::optional<EngramHash> hash);

  const weights::ModelConfig& config() const override { return config_; }
  const cache::CacheLayout& cache_layout() const override { return layout_; }
  size_t weight_bytes_per_step() const override { return weights_.bytes_per_step; }
  uint64_t decoder_tail() const override { return config_.decoder_tail(); }
  // Each layer's window rows are right window - 1 positions after those of the layer below.
  uint64_t exact_replay() const override { return uint64_t{config_.layers} * (config_.window - 1); }
  uint64_t bounded_replay() const override { return config_.window + kReplaySpare; }
  size_t rollback_rows() const override { return windows_.spare(); }
  size_t resident_bytes() const override;
  const std::vector<kernels::Choice>& choices() const override { return weights_.choices; }
  StreamCounters stream_counters() const override;
  // Recommended positions of a bounded replay beyond the window: 140 in all for Flash.
  static constexpr uint64_t kReplaySpare = 12;
  void set_profiling(bool on) override { profile_.set_on(on); }
  std::vector<OperationTime> take_profile() override { return profile_.take(); }

  Result<void> forward(const StepBatch& batch, StepOutput& output) override;

  void observe(std::function<void(const V41LayerView&)> observer) {
    observer_ = std::move(observer);
  }
  const V41Entries& entries() const { return entries_; }
  const Engram* engram() const { return engram_ ? &*engram_ : nullptr; }
  const DeepseekV41Weights& weights() const { return weights_; }
  size_t first_decoder_layer() const { return decoder_; }

 private:
  friend class V41Drafter;  // runs its stages on the model's memory between steps
  bool starts_from_tail(std::span<const StepRun> runs) const;
  Result<void> embed(const StepBatch& batch);
  void fill_positions();
  void collapse_all(const std::vector<float>& norm);
  Result<void> run_layer(size_t layer, bool shared_done);
  Result<void> attention_part(size_t layer, bool shared_done);
  Result<void> select_entries(size_t layer, const RopeRows& rope);
  Result<void> attend(size_t layer, const RopeRows& rope);
  // Streams and hidden_ after a sublayer's attention, whose output is out_.
  Result<void> finish_attention(const V41Layer& w, const std::string& where);
  Result<void> ffn_part(const V41Layer& w, const std::string& where);
  Result<void> feed_shared_cache();
  void keep_decoder_rows();
  Result<void> logits(StepOutput& output);
  void show(size_t layer, bool after);
  void commit();

  const weights::DeepseekV41Config config_;
  const ModelOptions options_;
  RowWork work_;
  Profile profile_;
  const Rounding rounding_;
  const size_t decoder_;  // first decoder layer
  DeepseekV41Weights weights_;

  // Set by create().
  cache::CacheLayout layout_;
  WindowCache windows_;
  std::vector<size_t> window_rings_;   // [layers]
  std::vector<size_t> drafter_rings_;  // [stages]
  size_t engram_stream_ = 0;
  std::optional<RopeRows> rope_, compress_rope_;
  std::optional<Engram> engram_;
  HyperStreams streams_;
  LatentBlock block_;
  V41Entries entries_;
  V41Selection selection_;
  Moe moe_;
  Routing routing_;
  Buffer hidden_;           // [max_rows][D], the input of a sublayer
  Buffer out_;              // [max_rows][D], its output
  Buffer attended_;         // [max_rows][D], attention's output, while an observer looks
  std::vector<float> pre_;  // [max_rows][streams]

  // Of the step: rows that run now. Decoder runs replace the step's when rows stop there.
  std::vector<StepRun> step_runs_, runs_;
  std::vector<uint64_t> positions_;
  std::vector<int32_t> ids_;
  std::vector<uint8_t> image_, wanted_;
  PageLists entry_pages_;
  std::vector<kernels::LatentQuery> queries_;
  kernels::Activations head_;
  std::function<void(const V41LayerView&)> observer_;
  V41Drafter* drafter_ = nullptr;  // is fed by every step, when there is one
};

}  // namespace deepinfer::models
