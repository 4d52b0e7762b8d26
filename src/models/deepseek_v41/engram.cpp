#include "models/deepseek_v41/engram.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "weights/deepseek/engram_primes.h"

namespace deepinfer::models {
namespace {

// Sums over a row run in kLanes chains, so that compilers vectorise them, on every instruction set
// in the same order.
constexpr size_t kLanes = 16;

float fold(const std::array<float, kLanes>& sums) {
  float total = 0;
  for (float sum : sums) total += sum;
  return total;
}

// sum of x, of x * x * w * y, ..: the three sums that a gate needs.
struct GateSums {
  float dot, x, key;
};

GateSums gate_sums(const float* x, const float* weight, const float* key, size_t n) {
  std::array<float, kLanes> dot{}, xx{}, kk{};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) {
      dot[j] += x[i + j] * weight[i + j] * key[i + j];
      xx[j] += x[i + j] * x[i + j];
      kk[j] += key[i + j] * key[i + j];
    }
  }
  for (size_t j = 0; i < n; ++i, ++j) {
    dot[j] += x[i] * weight[i] * key[i];
    xx[j] += x[i] * x[i];
    kk[j] += key[i] * key[i];
  }
  return {fold(dot), fold(xx), fold(kk)};
}

}  // namespace

Engram::Engram(EngramHash hash, const weights::DeepseekV41Config& config, kernels::Target target,
               Rounding rounding, RowWork& work, Profile& profile)
    : hash_(std::move(hash)),
      hidden_(config.hidden),
      streams_(config.hyper.streams),
      head_dim_(config.engram.head_dim),
      eps_(static_cast<float>(config.norm_eps)),
      target_(target),
      rounding_(rounding),
      work_(work),
      profile_(profile) {}

Result<void> Engram::create(size_t max_rows, size_t threads,
                            std::unique_ptr<weights::DiskReader> reader) {
  check(reader != nullptr, "a reader of the tables");
  const size_t per_position = hash_.rows_per_position();
  rows_ = TRY(Buffer::create(threads * per_position * head_dim_ * sizeof(float)));
  key_value_ = TRY(Buffer::create(max_rows * (streams_ + 1) * hidden_ * sizeof(float)));
  reader_ = std::move(reader);
  // A value takes four bytes at most (F32 tables), with its part of a scale five.
  fetched_ = TRY(Buffer::create(max_rows * per_position * head_dim_ * 5));
  return {};
}

size_t Engram::bytes() const { return rows_.size() + key_value_.size() + fetched_.size(); }

void Engram::remember(std::span<const StepRun> runs, std::span<const int32_t> ids,
                      std::span<const uint8_t> image, size_t stream) {
  pages_.begin(runs, stream);
  for (const StepRun& run : runs) {
    std::byte* const* pages = pages_.of(run.sequence);
    for (size_t i = 0; i < run.rows; ++i) {
      const uint64_t position = run.first_position + i;
      if (position < run.start.entries) continue;  // restored
      const size_t row = run.first_row + i;
      reinterpret_cast<int32_t*>(
          pages[position / cache::kTokensPerPage])[position % cache::kTokensPerPage] =
          image[row] != 0 ? EngramHash::kDead : hash_.class_of(ids[row]);
    }
  }
}

void Engram::rows_of(const EngramLayer& layer, const StepRun& run, uint64_t position,
                     uint64_t* out) const {
  std::array<int32_t, weights::kEngramNgramLimit> classes;
  std::byte* const* pages = pages_.of(run.sequence);
  for (size_t i = 0; i < hash_.ngram(); ++i) {
    classes[i] = i > position
                     ? EngramHash::kDead
                     : reinterpret_cast<const int32_t*>(
                           pages[(position - i) / cache::kTokensPerPage])[(position - i) %
                                                                          cache::kTokensPerPage];
  }
  hash_.rows(layer.index, std::span(classes).first(hash_.ngram()), out);
}

void Engram::find_rows(const EngramLayer& layer, std::span<const StepRun> runs, size_t rows) {
  const size_t per_position = hash_.rows_per_position();
  numbers_.resize(rows * per_position);
  for (const StepRun& run : runs) {
    for (size_t i = 0; i < run.rows; ++i) {
      rows_of(layer, run, run.first_position + i,
              numbers_.data() + (run.first_row + i) * per_position);
    }
  }
}

Result<ScaledView> Engram::fetch(const EngramLayer& layer, size_t rows) {
  const size_t count = rows * hash_.rows_per_position();
  std::byte* codes = fetched_.data();
  std::byte* scales = codes + count * layer.codes.bytes;
  ranges_.clear();
  const auto add = [&](weights::DiskRange range, uint64_t row, std::byte* target) {
    if (range.bytes == 0) return;  // a table without scales
    range.offset += row * range.bytes;
    range.target = target;
    ranges_.push_back(range);
  };
  for (size_t i = 0; i < count; ++i) {
    add(layer.codes, numbers_[i], codes + i * layer.codes.bytes);
    add(layer.scales, numbers_[i], scales + i * layer.scales.bytes);
  }
  TRY(reader_->read(ranges_));
  bytes_read_ += count * (layer.codes.bytes + layer.scales.bytes);
  ScaledView table = layer.table;
  table.codes.shape = {count, table.codes.row_elements()};
  table.codes.data = codes;
  if (table.scaled()) {
    table.scales.shape = {count, table.scales.row_elements()};
    table.scales.data = scales;
  }
  return table;
}

Result<void> Engram::apply(const EngramLayer& layer, std::span<const StepRun> runs,
                           std::span<const uint8_t> image, HyperStreams& streams,
                           const std::string& where) {
  const size_t per_position = hash_.rows_per_position(), inputs = per_position * head_dim_;
  const size_t outputs = (streams_ + 1) * hidden_;
  const size_t rows = runs.back().first_row + runs.back().rows;
  find_rows(layer, runs, rows);
  ScaledView table;
  {
    const auto timer = profile_.measure(Operation::engram_read);
    table = TRY(fetch(layer, rows));
  }
  const auto timer = profile_.measure(Operation::engram, layer.kv.bytes(),
                                      2.0 * static_cast<double>(rows * inputs * outputs));
  activations_.begin(target_, rows, inputs, layer.kv.form());
  work_.for_rows(rows, inputs, [&](size_t row, size_t worker) {
    float* values = rows_.as<float>() + worker * inputs;
    for (size_t i = 0; i < per_position; ++i) {
      decode_row(table, row * per_position + i, values + i * head_dim_);
    }
    work_.expect_finite(values, inputs);
    activations_.fill_row(row, values);
  });
  if (work_.found_bad()) return not_finite(where + " table");
  float* key_value = key_value_.as<float>();
  kernels::matmul(work_.pool(), activations_,
                  {{.weights = &layer.kv, .out = key_value, .stride = outputs}});
  work_.for_rows(rows, outputs, [&](size_t row, size_t) {
    float* kv = key_value + row * outputs;
    rounding_.bf16(kv, outputs);
    work_.expect_finite(kv, outputs);
    if (image[row] == 0) gate_row(layer, kv, streams.row(row));
  });
  if (work_.found_bad()) return not_finite(where + " kv");
  return {};
}

void Engram::gate_row(const EngramLayer& layer, const float* key_value, float* streams) const {
  const float width = static_cast<float>(hidden_);
  const float* value = key_value + streams_ * hidden_;
  for (size_t s = 0; s < streams_; ++s) {
    float* x = streams + s * hidden_;
    const GateSums sums =
        gate_sums(x, layer.weight.data() + s * hidden_, key_value + s * hidden_, hidden_);
    const float dot = sums.dot / std::sqrt(sums.x / width + eps_) /
                      std::sqrt(sums.key / width + eps_) / std::sqrt(width);
    const float root = std::copysign(std::sqrt(std::max(std::abs(dot), 1e-6f)), dot);
    const float gate = 1.0f / (1.0f + std::exp(-root));
    for (size_t i = 0; i < hidden_; ++i) x[i] += gate * value[i];
    rounding_.bf16(x, hidden_);
  }
}

}  // namespace deepinfer::models
