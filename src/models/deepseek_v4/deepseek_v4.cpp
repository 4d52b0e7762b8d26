#include "models/deepseek_v4/deepseek_v4.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace deepinfer::models {
namespace {

Result<void> check_shape(const weights::DeepseekV4Config& config) {
  if (config.head_dim % 8 != 0) {
    return Error::unsupported("head_dim", std::to_string(config.head_dim) + " is no multiple of 8");
  }
  if (config.hyper.streams == 0 || config.hyper.streams > kernels::kMaxStreams) {
    return Error::unsupported("hc_mult", std::to_string(config.hyper.streams) + " is not 1 to " +
                                             std::to_string(kernels::kMaxStreams));
  }
  for (const auto& [name, width] :
       {std::pair{"head_dim", config.head_dim}, std::pair{"index_head_dim", config.indexer.dim}}) {
    if (width == 0 || config.rope_dim <= width) continue;  // 0: no indexer
    return Error::invalid("qk_rope_head_dim", std::to_string(config.rope_dim) + " exceeds " + name +
                                                  " " + std::to_string(width));
  }
  return {};
}

}  // namespace

DeepseekV4::DeepseekV4(weights::DeepseekV4Config config, const ModelOptions& options)
    : config_(std::move(config)), options_(options), windows_(spare_rows(config_.dspark)) {}

Result<std::unique_ptr<DeepseekV4>> DeepseekV4::create(const weights::Checkpoint& checkpoint,
                                                       weights::DeepseekV4Config config,
                                                       const ModelOptions& options,
                                                       ThreadPool& pool, const Progress& progress) {
  TRY(check_shape(config));
  std::unique_ptr<DeepseekV4> model(new DeepseekV4(std::move(config), options));
  model->plan_ = TRY(plan_v4_cache(model->config_, options.kv, model->windows_));
  model->weights_ = TRY(load_deepseek_v4_weights(checkpoint, model->config_,
                                                 v4_latent_shape(model->config_, model->plan_.row),
                                                 options, pool, progress));
  TRY(model->windows_.create(options.max_rows));
  model->pass_ =
      TRY(V4Pass::create(model->config_, options, model->plan_.row, model->windows_, pool));
  return model;
}

Result<void> DeepseekV4::embed(const StepBatch& batch) {
  const auto timer = pass_->profile().measure(Operation::embedding);
  HyperStreams& streams = pass_->streams();
  const size_t rows = batch.ids.size(), hidden = config_.hidden;
  pass_->work().for_rows(rows, streams.width(), [&](size_t row, size_t) {
    const int32_t id = batch.ids[row];
    check(id >= 0 && static_cast<uint32_t>(id) < config_.vocab, "id outside the vocabulary");
    float* embedding = pass_->sublayer(row);
    weights_.embed(static_cast<size_t>(id), embedding);
    pass_->work().expect_finite(embedding, hidden);
    pass_->rounding().bf16(embedding, hidden);
    streams.set(row, embedding);
  });
  if (!pass_->work().found_bad()) return {};
  for (size_t row = 0; row < rows; ++row) {
    if (!pass_->work().ops().all_finite(pass_->sublayer(row), hidden)) {
      return not_finite("embedding of id " + std::to_string(batch.ids[row]));
    }
  }
  return not_finite("embedding");
}

// The mean over the streams of a target layer's output goes to its place in the rows of `means`.
void DeepseekV4::keep_means(size_t layer) {
  const std::vector<uint32_t>& targets = config_.dspark.target_layers;
  const auto target = std::find(targets.begin(), targets.end(), layer);
  if (target == targets.end()) return;
  HyperStreams& streams = pass_->streams();
  const size_t hidden = config_.hidden, stride = targets.size() * hidden;
  const std::vector<float> share(streams.count(), 1.0f / static_cast<float>(streams.count()));
  float* means = taps_->means.data() + static_cast<size_t>(target - targets.begin()) * hidden;
  pass_->work().for_rows(
      runs_.back().first_row + runs_.back().rows, streams.width(),
      [&](size_t row, size_t) { streams.gather(row, share.data(), means + row * stride); });
}

// whole: also the last layer, of which later tokens read the cache only.
Result<void> DeepseekV4::run_layers(bool whole) {
  const size_t layers = weights_.layers.size();
  for (size_t i = 0; i < layers; ++i) {
    const V4Block& block = weights_.layers[i];
    const V4BlockCache& cache = plan_.layers[i];
    const std::string where = "layer " + std::to_string(i);
    if (i + 1 == layers && !whole) {
      TRY(pass_->fill_cache(block, cache, where));
      break;
    }
    V4BlockTap* tap = taps_ != nullptr && taps_->blocks ? &taps_->layers[i] : nullptr;
    TRY(pass_->attention(block, cache, where, tap));
    TRY(pass_->experts(block, *weights_.experts, where, tap));
    if (taps_ != nullptr) keep_means(i);
  }
  return {};
}

Result<void> DeepseekV4::logits(const StepBatch& batch, StepOutput& output) {
  wanted_.clear();
  for (size_t row = 0; row < batch.ids.size(); ++row) {
    if (batch.want_logits[row] != 0) wanted_.push_back(row);
  }
  if (wanted_.empty()) return {};
  const size_t bytes = wanted_.size() * config_.vocab * sizeof(float);
  if (output.logits.size() < bytes) {
    output.logits = Buffer();  // gives the old one back first
    output.logits = TRY(Buffer::create(bytes));
  }
  TRY(pass_->logits(weights_.head, weights_.norm, weights_.output, wanted_,
                    output.logits.as<float>()));
  output.wanted_rows = wanted_.size();
  return {};
}

Result<void> DeepseekV4::forward(const StepBatch& batch, StepOutput& output) {
  output.wanted_rows = 0;
  runs_ = step_runs(batch, options_.max_rows);
  for (const StepRun& run : runs_) {
    check(run.start.window == 0 && run.start.decoder == 0 && run.start.entries == 0,
          "V4 resumes from snapshots only");
  }
  for (const float* embedding : batch.embeddings) check(embedding == nullptr, "V4 has no images");
  const size_t rows = batch.ids.size();
  if (taps_ != nullptr) {
    taps_->layers.resize(weights_.layers.size());
    taps_->means.assign(rows * config_.dspark.target_layers.size() * config_.hidden, 0.0f);
  }
  pass_->begin(runs_, batch.positions, batch.ids);
  TRY(embed(batch));
  const bool wanted = std::any_of(batch.want_logits.begin(), batch.want_logits.end(),
                                  [](uint8_t want) { return want != 0; });
  TRY(run_layers(wanted || taps_ != nullptr));
  if (taps_ != nullptr) {
    const float* streams = pass_->streams().row(0);
    taps_->streams.assign(streams, streams + rows * pass_->streams().width());
  }
  TRY(logits(batch, output));
  for (const V4BlockCache& cache : plan_.layers) {
    windows_.commit(cache.window, runs_);
    if (cache.entries) windows_.commit(cache.entries->ring, runs_);
    if (cache.index_keys) windows_.commit(cache.index_keys->ring, runs_);
  }
  return {};
}

Result<std::unique_ptr<Model>> open_deepseek_v4(const weights::Checkpoint& checkpoint,
                                                weights::DeepseekV4Config config,
                                                const ModelOptions& options, ThreadPool& pool,
                                                const Progress& progress) {
  return std::unique_ptr<Model>(
      TRY(DeepseekV4::create(checkpoint, std::move(config), options, pool, progress)));
}

}  // namespace deepinfer::models
