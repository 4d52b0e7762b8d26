#include "models/deepseek_v3/deepseek_v3.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "models/deepseek_v3/deepseek_v3_weights.h"
#include "models/deepseek_v3/mla_block.h"
#include "models/measured_product.h"
#include "models/moe.h"
#include "models/profile.h"
#include "models/rope_rows.h"
#include "models/row_work.h"
#include "models/step_runs.h"

namespace deepinfer::models {
namespace {

// Growing streams of a layer: latent rows, then index keys where there is an indexer.
size_t streams_per_layer(const MlaShape& shape) { return shape.index_topk > 0 ? 2 : 1; }

class DeepseekV3 final : public Model {
 public:
  DeepseekV3(weights::DeepseekV3Config config, const MlaShape& shape, const ModelOptions& options,
             ThreadPool& pool, DeepseekV3Weights weights, RopeRows rope)
      : config_(std::move(config)),
        shape_(shape),
        options_(options),
        weights_(std::move(weights)),
        layout_(mla_cache(config_.layers, shape)),
        work_(pool, options.target.isa),
        rope_(std::move(rope)),
        attention_(shape, options.target, work_, profile_),
        moe_({.target = options.target}, pool) {}

  Result<void> create_step() {
    const size_t bytes = options_.max_rows * config_.hidden * sizeof(float);
    residual_ = TRY(Buffer::create(bytes));
    normed_ = TRY(Buffer::create(bytes));
    ffn_ = TRY(Buffer::create(bytes));
    return attention_.create(options_.max_rows, work_.pool().thread_count());
  }

  const weights::ModelConfig& config() const override { return config_; }
  const cache::CacheLayout& cache_layout() const override { return layout_; }
  size_t weight_bytes_per_step() const override { return weights_.bytes_per_step; }
  size_t resident_bytes() const override {
    return weights_.resident + weights_.experts->resident_bytes() + residual_.size() +
           normed_.size() + ffn_.size() + rope_.bytes() + attention_.bytes() + moe_.bytes();
  }
  const std::vector<kernels::Choice>& choices() const override { return weights_.choices; }
  StreamCounters stream_counters() const override { return weights_.experts->counters(); }
  void set_profiling(bool on) override { profile_.set_on(on); }
  std::vector<OperationTime> take_profile() override { return profile_.take(); }

  Result<void> forward(const StepBatch& batch, StepOutput& output) override;

 private:
  Result<void> embed(const StepBatch& batch);
  void list_rows(std::span<const StepRun> runs, size_t layer);
  void keep_wanted(const StepBatch& batch);
  Result<void> ffn_part(size_t layer);
  Result<void> logits(StepOutput& output);
  float* residual(size_t row) { return residual_.as<float>() + row * config_.hidden; }

  const weights::DeepseekV3Config config_;
  const MlaShape shape_;
  const ModelOptions options_;
  const DeepseekV3Weights weights_;
  const cache::CacheLayout layout_;

  Profile profile_;
  RowWork work_;
  RopeRows rope_;
  MlaBlock attention_;
  Moe moe_;
  kernels::Activations activations_;
  Buffer residual_;  // [max_rows][hidden]
  Buffer normed_;    // [max_rows][hidden]
  Buffer ffn_;       // [max_rows][hidden]

  PageLists pages_, index_pages_;  // of the layer that runs
  std::vector<MlaRow> rows_;       // of the step
  std::vector<uint32_t> live_;     // rows that still run, [] into rows_; residual rows are dense
};

Result<void> DeepseekV3::embed(const StepBatch& batch) {
  const auto timer = profile_.measure(Operation::embedding);
  const size_t rows = batch.ids.size(), hidden = config_.hidden;
  rope_.fill(work_, batch.positions);
  work_.for_rows(rows, hidden, [&](size_t row, size_t) {
    const int32_t id = batch.ids[row];
    check(id >= 0 && static_cast<uint32_t>(id) < config_.vocab, "id outside the vocabulary");
    weights_.embed(static_cast<size_t>(id), residual(row));
    work_.expect_finite(residual(row), hidden);
  });
  if (!work_.found_bad()) return {};
  for (size_t row = 0; row < rows; ++row) {
    if (!work_.ops().all_finite(residual(row), hidden)) {
      return not_finite("embedding of id " + std::to_string(batch.ids[row]));
    }
  }
  return not_finite("embedding");
}

void DeepseekV3::list_rows(std::span<const StepRun> runs, size_t layer) {
  const size_t stream = layer * streams_per_layer(shape_);
  const bool indexed = shape_.index_topk > 0;
  pages_.begin(runs, stream);
  if (indexed) index_pages_.begin(runs, stream + 1);
  rows_.clear();
  for (const StepRun& run : runs) {
    for (size_t i = 0; i < run.rows; ++i) {
      rows_.push_back({.position = run.first_position + i,
                       .pages = pages_.of(run.sequence),
                       .index_pages = indexed ? index_pages_.of(run.sequence) : nullptr});
    }
  }
}

// Keeps the rows whose logits are wanted, densely; they move to lower places only.
void DeepseekV3::keep_wanted(const StepBatch& batch) {
  live_.clear();
  for (size_t row = 0; row < batch.ids.size(); ++row) {
    if (batch.want_logits[row] == 0) continue;
    if (live_.size() != row) {
      std::memcpy(residual(live_.size()), residual(row), config_.hidden * sizeof(float));
    }
    live_.push_back(static_cast<uint32_t>(row));
  }
}

Result<void> DeepseekV3::ffn_part(size_t layer) {
  const V3Layer& w = weights_.layers[layer];
  const size_t rows = live_.size(), hidden = config_.hidden;
  float* n = normed_.as<float>();
  {
    const auto timer = profile_.measure(Operation::norm);
    work_.for_rows(rows, hidden, [&](size_t row, size_t) {
      work_.expect_finite(residual(row), hidden);
      work_.ops().rms_norm(residual(row), w.ffn_norm.data(), shape_.norm_eps, n + row * hidden,
                           hidden);
    });
  }
  if (work_.found_bad()) return not_finite(in_layer(layer, "attention output"));
  const std::span<const float> h(n, rows * hidden);
  float* out = ffn_.as<float>();
  const std::string where = "layer " + std::to_string(layer);
  if (w.dense) {
    TRY(moe_.forward_dense(*w.dense, 0.0f, h, rows, out, where, profile_));
  } else {
    TRY(moe_.forward(*w.moe, *weights_.experts, h, rows, {}, {}, out, where, profile_));
  }
  work_.for_rows(rows, hidden, [&](size_t row, size_t) {
    work_.ops().add(residual(row), out + row * hidden, hidden);
  });
  return {};
}

Result<void> DeepseekV3::logits(StepOutput& output) {
  const size_t rows = live_.size(), hidden = config_.hidden, vocab = config_.vocab;
  {
    const auto timer = profile_.measure(Operation::norm);
    activations_.begin(options_.target, rows, hidden, weights_.output.form() | kernels::kRefined);
    work_.for_rows(rows, hidden, [&](size_t row, size_t) {
      float* n = normed_.as<float>() + row * hidden;
      work_.expect_finite(residual(row), hidden);
      work_.ops().rms_norm(residual(row), weights_.norm.data(), shape_.norm_eps, n, hidden);
      activations_.fill_row(row, n);
    });
  }
  if (work_.found_bad()) return not_finite(in_layer(weights_.layers.size() - 1, "ffn down"));
  const size_t bytes = rows * vocab * sizeof(float);
  if (output.logits.size() < bytes) {
    output.logits = Buffer();  // gives the old one back first
    output.logits = TRY(Buffer::create(bytes));
  }
  float* out = output.logits.as<float>();
  const kernels::Product product[] = {{.weights = &weights_.output, .out = out, .stride = vocab}};
  measured_matmul(work_.pool(), profile_, Operation::logits, rows, activations_, product);
  work_.for_rows(rows, vocab,
                 [&](size_t row, size_t) { work_.expect_finite(out + row * vocab, vocab); });
  if (work_.found_bad()) return not_finite("output head");
  output.wanted_rows = rows;
  return {};
}

Result<void> DeepseekV3::forward(const StepBatch& batch, StepOutput& output) {
  output.wanted_rows = 0;
  const std::vector<StepRun> runs = step_runs(batch, options_.max_rows);
  TRY(embed(batch));
  live_.resize(batch.ids.size());
  std::iota(live_.begin(), live_.end(), 0u);
  for (size_t layer = 0; layer < weights_.layers.size(); ++layer) {
    const MlaLayer& attention = weights_.layers[layer].attention;
    list_rows(runs, layer);
    TRY(attention_.append(attention, rope_, rows_, residual(0), in_layer(layer, "attention"),
                          layer == 0 ? "embedding" : in_layer(layer - 1, "ffn down")));
    if (layer + 1 == weights_.layers.size()) keep_wanted(batch);
    if (live_.empty()) return {};
    TRY(attention_.attend(attention, rope_, rows_, live_, residual(0),
                          in_layer(layer, "attention")));
    TRY(ffn_part(layer));
  }
  return logits(output);
}

}  // namespace

Result<std::unique_ptr<Model>> open_deepseek_v3(const weights::Checkpoint& checkpoint,
                                                weights::DeepseekV3Config config,
                                                const ModelOptions& options, ThreadPool& pool,
                                                const Progress& progress) {
  const MlaShape shape = TRY(mla_shape(config, options.kv));
  RopeRows rope = TRY(RopeRows::create(config.rope, options.max_rows));
  DeepseekV3Weights weights =
      TRY(load_deepseek_v3_weights(checkpoint, config, shape, options, pool, progress));
  auto model = std::make_unique<DeepseekV3>(std::move(config), shape, options, pool,
                                            std::move(weights), std::move(rope));
  TRY(model->create_step());
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace deepinfer::models
