#include "models/llama/llama.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/attention/attention.h"
#include "kernels/rope.h"
#include "kernels/row_ops.h"
#include "models/llama/llama_step.h"
#include "models/llama/llama_weights.h"
#include "models/profile.h"
#include "models/rope_rows.h"
#include "models/row_work.h"

namespace deepinfer::models {
namespace {

static_assert(cache::kTokensPerPage == kernels::kPageTokens);

kernels::AttentionShape attention_shape(const weights::LlamaConfig& config, KvMode kv) {
  return {.heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .form = kv == KvMode::f32 ? kernels::KvForm::f32 : kernels::KvForm::bf16,
          .scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim))};
}

Result<void> check_shape(const weights::LlamaConfig& config) {
  if (config.head_dim % 8 != 0) {
    return Error::unsupported("head_dim", std::to_string(config.head_dim) + " is no multiple of 8");
  }
  if (config.rope.dims > config.head_dim) {
    return Error::invalid("rope dims", std::to_string(config.rope.dims) + " exceed head_dim " +
                                           std::to_string(config.head_dim));
  }
  return {};
}

const float* data_or_null(const std::vector<float>& values) {
  return values.empty() ? nullptr : values.data();
}

class Llama final : public Model {
 public:
  Llama(weights::LlamaConfig config, const ModelOptions& options, ThreadPool& pool,
        LlamaWeights weights, kernels::RopeTable rope)
      : config_(std::move(config)),
        options_(options),
        pool_(pool),
        work_(pool, options.target.isa),
        ops_(work_.ops()),
        weights_(std::move(weights)),
        widths_(llama_widths(config_)),
        rope_(std::move(rope)),
        shape_(attention_shape(config_, options.kv)),
        layout_(llama_cache(config_, options.kv)) {}

  Result<void> create_step() {
    return step_.create(widths_, rope_.pairs(), options_.max_rows, pool_.thread_count());
  }

  const weights::ModelConfig& config() const override { return config_; }
  const cache::CacheLayout& cache_layout() const override { return layout_; }
  size_t weight_bytes_per_step() const override { return weights_.bytes(); }
  size_t resident_bytes() const override { return weights_.bytes() + step_.bytes(); }
  const std::vector<kernels::Choice>& choices() const override { return weights_.choices; }
  void set_profiling(bool on) override { profile_.set_on(on); }
  std::vector<OperationTime> take_profile() override { return profile_.take(); }

  Result<void> forward(const StepBatch& batch, StepOutput& output) override;

 private:
  Result<void> embed(const StepBatch& batch);
  Result<void> attention_part(const StepBatch& batch, size_t layer, size_t& rows);
  Result<void> rotate_and_append(const StepBatch& batch, size_t layer);
  void gather_wanted(size_t& rows);
  Result<void> ffn_part(size_t layer, size_t rows);
  Result<void> logits(size_t rows, StepOutput& output);
  // Activations of rms_norm(residual); checks what `before` added to the residual.
  Result<void> normalize(size_t rows, const std::vector<float>& weight, unsigned forms,
                         const std::string& before);
  void multiply(Operation operation, size_t rows, std::span<const kernels::Product> products);

  const weights::LlamaConfig config_;
  const ModelOptions options_;
  ThreadPool& pool_;
  RowWork work_;
  const kernels::RowOps& ops_;
  const LlamaWeights weights_;
  const LlamaWidths widths_;
  const kernels::RopeTable rope_;
  const kernels::AttentionShape shape_;
  const cache::CacheLayout layout_;

  LlamaStep step_;
  kernels::Activations activations_;
  kernels::AttentionWorkspace attention_workspace_;
  Profile profile_;
};

unsigned form_bit(const kernels::PackedMatrix& matrix) {
  return static_cast<unsigned>(matrix.form());
}

Result<void> Llama::embed(const StepBatch& batch) {
  const auto timer = profile_.measure(Operation::embedding);
  const size_t rows = batch.ids.size();
  work_.for_rows(rows, widths_.hidden, [&](size_t row, size_t) {
    const int32_t id = batch.ids[row];
    check(id >= 0 && static_cast<uint32_t>(id) < config_.vocab, "id outside the vocabulary");
    weights_.embed(static_cast<size_t>(id), step_.residual(row));
    rope_.fill(batch.positions[row], step_.cosine(row), step_.sine(row));
    work_.expect_finite(step_.residual(row), widths_.hidden);
  });
  if (!work_.found_bad()) return {};
  for (size_t row = 0; row < rows; ++row) {
    if (!ops_.all_finite(step_.residual(row), widths_.hidden)) {
      return not_finite("embedding of id " + std::to_string(batch.ids[row]));
    }
  }
  return not_finite("embedding");
}

// The inputs of the attention and of the head are refined where products round them to int8: half
// of the error of `fast` comes from these two (docs/ARCHITECTURE.md, Numerics), and they are cheap:
// few rows reach the head, and q, k, v are an eighth of a model.
Result<void> Llama::normalize(size_t rows, const std::vector<float>& weight, unsigned forms,
                              const std::string& before) {
  const auto timer = profile_.measure(Operation::norm);
  const float eps = static_cast<float>(config_.norm_eps);
  activations_.begin(options_.target, rows, widths_.hidden, forms);
  work_.for_rows(rows, widths_.hidden, [&](size_t row, size_t worker) {
    work_.expect_finite(step_.residual(row), widths_.hidden);
    ops_.rms_norm(step_.residual(row), weight.data(), eps, step_.scratch(worker), widths_.hidden);
    activations_.fill_row(row, step_.scratch(worker));
  });
  if (work_.found_bad()) return not_finite(before);
  return {};
}

void Llama::multiply(Operation operation, size_t rows, std::span<const kernels::Product> products) {
  size_t bytes = 0;
  double operations = 0;
  for (const kernels::Product& product : products) {
    bytes += product.weights->bytes();
    operations += 2.0 * static_cast<double>(rows) *
                  static_cast<double>(product.weights->outputs()) *
                  static_cast<double>(product.weights->inputs());
  }
  const auto timer = profile_.measure(operation, bytes, operations);
  kernels::matmul(pool_, activations_, products);
}

Result<void> Llama::rotate_and_append(const StepBatch& batch, size_t layer) {
  const auto timer = profile_.measure(Operation::rope);
  const LlamaLayer& w = weights_.layers[layer];
  const size_t dim = config_.head_dim;
  const float eps = static_cast<float>(config_.norm_eps);
  step_.select_layer(batch, layer);
  work_.for_rows(batch.ids.size(), widths_.qkv(), [&](size_t row, size_t) {
    float* query = step_.qkv(row);
    float* keys = query + widths_.query;
    const uint64_t position = batch.positions[row];
    work_.expect_finite(query, widths_.qkv());
    const auto finish_head = [&](float* head, const std::vector<float>& norm) {
      if (!norm.empty()) ops_.rms_norm(head, norm.data(), eps, head, dim);
      ops_.rope(head, step_.cosine(row), step_.sine(row), rope_.pairs(), weights_.pairing);
    };
    for (size_t h = 0; h < config_.heads; ++h) finish_head(query + h * dim, w.q_norm);
    for (size_t h = 0; h < config_.kv_heads; ++h) finish_head(keys + h * dim, w.k_norm);
    kernels::kv_append(shape_, step_.page_of(row, position), position % kernels::kPageTokens, keys,
                       keys + widths_.key_value);
  });
  if (work_.found_bad()) return not_finite(in_layer(layer, "attention q, k, v"));
  return {};
}

// Keeps the residual rows whose logits are wanted, densely; wanted rows move to lower places only.
void Llama::gather_wanted(size_t& rows) {
  for (const RowRun& run : step_.wanted_runs()) {
    if (run.out_row == run.first_row) continue;
    std::memmove(step_.residual(run.out_row), step_.residual(run.first_row),
                 run.rows * widths_.hidden * sizeof(float));
  }
  rows = step_.wanted_rows();
}

// Leaves rows == 0 when the last layer has nothing more to do.
Result<void> Llama::attention_part(const StepBatch& batch, size_t layer, size_t& rows) {
  const LlamaLayer& w = weights_.layers[layer];
  TRY(normalize(rows, w.attention_norm,
                form_bit(w.q) | form_bit(w.k) | form_bit(w.v) | kernels::kRefined,
                layer == 0 ? "embedding" : in_layer(layer - 1, "ffn down")));
  const size_t stride = widths_.qkv();
  float* qkv = step_.qkv(0);
  const kernels::Product products[] = {
      {.weights = &w.q, .out = qkv, .stride = stride, .bias = data_or_null(w.q_bias)},
      {.weights = &w.k,
       .out = qkv + widths_.query,
       .stride = stride,
       .bias = data_or_null(w.k_bias)},
      {.weights = &w.v,
       .out = qkv + widths_.query + widths_.key_value,
       .stride = stride,
       .bias = data_or_null(w.v_bias)}};
  multiply(Operation::qkv, rows, products);
  TRY(rotate_and_append(batch, layer));

  const bool last = layer + 1 == weights_.layers.size();
  if (last) gather_wanted(rows);
  if (rows == 0) return {};
  const std::vector<RowRun>& runs = last ? step_.wanted_runs() : step_.all_runs();
  double keys = 0;
  for (const RowRun& run : runs) {
    keys += static_cast<double>(run.rows) * (static_cast<double>(batch.positions[run.first_row]) +
                                             static_cast<double>(run.rows + 1) / 2);
  }
  {
    const auto timer =
        profile_.measure(Operation::attention, 0, 4.0 * keys * static_cast<double>(widths_.query));
    kernels::attention(pool_, options_.target.isa, shape_, step_.attention_sequences(batch, runs),
                       stride, widths_.query, attention_workspace_);
  }
  {
    const auto timer = profile_.measure(Operation::norm);
    activations_.begin(options_.target, rows, widths_.query, form_bit(w.o));
    work_.for_rows(rows, widths_.query, [&](size_t row, size_t) {
      work_.expect_finite(step_.attended(row), widths_.query);
      activations_.fill_row(row, step_.attended(row));
    });
  }
  if (work_.found_bad()) return not_finite(in_layer(layer, "attention"));
  const kernels::Product product[] = {{.weights = &w.o,
                                       .out = step_.residual(0),
                                       .stride = widths_.hidden,
                                       .bias = data_or_null(w.o_bias),
                                       .epilogue = kernels::Epilogue::add}};
  multiply(Operation::attention_output, rows, product);
  return {};
}

Result<void> Llama::ffn_part(size_t layer, size_t rows) {
  const LlamaLayer& w = weights_.layers[layer];
  TRY(normalize(rows, w.ffn_norm, form_bit(w.gate) | form_bit(w.up),
                in_layer(layer, "attention output")));
  const size_t stride = 2 * widths_.intermediate;
  const kernels::Product products[] = {{.weights = &w.gate, .out = step_.gate(0), .stride = stride},
                                       {.weights = &w.up, .out = step_.up(0), .stride = stride}};
  multiply(Operation::ffn_up, rows, products);
  {
    const auto timer = profile_.measure(Operation::activation);
    activations_.begin(options_.target, rows, widths_.intermediate, form_bit(w.down));
    work_.for_rows(rows, widths_.intermediate, [&](size_t row, size_t worker) {
      float* product = step_.scratch(worker);
      ops_.silu_mul(step_.gate(row), step_.up(row), product, widths_.intermediate);
      work_.expect_finite(product, widths_.intermediate);
      activations_.fill_row(row, product);
    });
  }
  if (work_.found_bad()) return not_finite(in_layer(layer, "ffn gate and up"));
  const kernels::Product product[] = {{.weights = &w.down,
                                       .out = step_.residual(0),
                                       .stride = widths_.hidden,
                                       .epilogue = kernels::Epilogue::add}};
  multiply(Operation::ffn_down, rows, product);
  return {};
}

Result<void> Llama::logits(size_t rows, StepOutput& output) {
  TRY(normalize(rows, weights_.output_norm, form_bit(weights_.output) | kernels::kRefined,
                in_layer(weights_.layers.size() - 1, "ffn down")));
  const size_t bytes = rows * config_.vocab * sizeof(float);
  if (output.logits.size() < bytes) {
    output.logits = Buffer();  // gives the old one back first
    output.logits = TRY(Buffer::create(bytes));
  }
  float* out = output.logits.as<float>();
  const kernels::Product product[] = {
      {.weights = &weights_.output, .out = out, .stride = config_.vocab}};
  multiply(Operation::logits, rows, product);
  work_.for_rows(rows, config_.vocab, [&](size_t row, size_t) {
    work_.expect_finite(out + row * config_.vocab, config_.vocab);
  });
  if (work_.found_bad()) return not_finite("output head");
  output.wanted_rows = rows;
  return {};
}

Result<void> Llama::forward(const StepBatch& batch, StepOutput& output) {
  output.wanted_rows = 0;
  step_.begin(batch);
  TRY(embed(batch));
  size_t rows = batch.ids.size();
  for (size_t layer = 0; layer < weights_.layers.size(); ++layer) {
    TRY(attention_part(batch, layer, rows));
    if (rows == 0) return {};
    TRY(ffn_part(layer, rows));
  }
  return logits(rows, output);
}

}  // namespace

cache::CacheLayout llama_cache(const weights::LlamaConfig& config, KvMode kv) {
  const size_t bytes_per_page = attention_shape(config, kv).page_bytes();
  cache::CacheLayout layout;
  for (uint32_t i = 0; i < config.layers; ++i) {
    layout.growing.push_back({"layer " + std::to_string(i) + " keys and values", bytes_per_page});
  }
  return layout;
}

Result<std::unique_ptr<Model>> open_llama(const weights::Checkpoint& checkpoint,
                                          weights::LlamaConfig config, const ModelOptions& options,
                                          ThreadPool& pool, const Progress& progress) {
  TRY(check_shape(config));
  kernels::RopeTable rope = TRY(kernels::RopeTable::create(rope_parameters(config.rope)));
  LlamaWeights weights =
      TRY(load_llama_weights(checkpoint, config, options.target, pool, progress));
  auto model = std::make_unique<Llama>(std::move(config), options, pool, std::move(weights),
                                       std::move(rope));
  TRY(model->create_step());
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace deepinfer::models
