#include "apps/selftest_paths.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "apps/forward_pass.h"
#include "llm/llm.h"
#include "text/token_classes.h"

namespace deepinfer::apps {
namespace {

// Rows of the largest step: the whole prompt, or three sequences' chunks.
constexpr size_t kMaxRows = 512;

}  // namespace

std::string variant_name(const Variant& variant) {
  return std::string(kernels::isa_name(variant.target.isa)) + " " +
         std::string(kernels::numerics_name(variant.target.numerics));
}

Comparison compare_logits(std::string path, const Logits& seen, std::string against,
                          const Logits& wanted, Tolerance tolerance) {
  Comparison result{std::move(path), std::move(against), false, 0, tolerance};
  const size_t positions = std::min(seen.positions(), wanted.positions());
  if (positions == 0 || seen.vocab != wanted.vocab) return result;
  std::vector<double> differences(positions);  // the largest of each position
  for (size_t i = 0; i < positions * seen.vocab; ++i) {
    const double difference =
        std::abs(static_cast<double>(seen.values[i]) - static_cast<double>(wanted.values[i]));
    double& largest = differences[i / seen.vocab];
    if (!(difference <= largest)) largest = difference;
  }
  const size_t counted =
      static_cast<size_t>(std::ceil(tolerance.share * static_cast<double>(positions)));
  std::sort(differences.begin(), differences.end(), [](double a, double b) {
    return a < b || (!std::isnan(a) && std::isnan(b));  // NaN last
  });
  result.max_difference = differences[counted - 1];
  const size_t bytes = positions * seen.vocab * sizeof(float);
  result.equal = tolerance.difference > 0
                     ? result.max_difference <= tolerance.difference
                     : std::memcmp(seen.values.data(), wanted.values.data(), bytes) == 0;
  return result;
}

Result<models::Model*> PathRunner::open(const Variant& variant) {
  if (model_ != nullptr && opened_ == variant) return model_.get();
  model_.reset();
  pool_.reset();
  pool_ = TRY(ThreadPool::create({.threads = variant.threads}));
  models::ModelOptions options;
  options.target = variant.target;
  options.max_rows = kMaxRows;
  options.stream_bytes = variant.stream_bytes;
  options.kv = variant.target.numerics == kernels::Numerics::fast ? models::KvMode::official
                                                                  : models::KvMode::f32;
  options.engram_classes = [this](size_t vocab) -> Result<std::vector<int32_t>> {
    return text::token_classes(TRY(llm::open_tokenizer(*checkpoint_)), vocab);
  };
  model_ = TRY(models::open_model(*checkpoint_, options, *pool_));
  opened_ = variant;
  return model_.get();
}

Result<Logits> PathRunner::run(const Variant& variant, size_t count, size_t chunk) {
  models::Model* model = TRY(open(variant));
  Logits logits;
  logits.vocab = model->config().vocab;
  logits.values.reserve(count * logits.vocab);
  TRY(run_chunks(*model, std::span<const int32_t>(ids_).first(count), chunk,
                 [&](size_t, uint64_t, std::span<const float> row) {
                   logits.values.insert(logits.values.end(), row.begin(), row.end());
                 }));
  return logits;
}

Result<Logits> PathRunner::run_among_others(const Variant& variant, size_t count, Place place) {
  models::Model* model = TRY(open(variant));
  Logits logits;
  logits.vocab = model->config().vocab;
  const size_t ours = place == Place::first ? 0 : 2;
  // The others start elsewhere in the same ids.
  std::vector<std::vector<int32_t>> texts(3, ids_);
  for (size_t i = 0; i < 3; ++i) {
    const size_t shift = (i + 3 - ours) % 3 * (ids_.size() / 3);
    std::rotate(texts[i].begin(), texts[i].begin() + static_cast<ptrdiff_t>(shift), texts[i].end());
  }
  constexpr size_t kSteps[] = {7, 1, 16, 3, 33, 1, 64};
  ForwardPass pass = TRY(ForwardPass::create(*model, 3, count));
  std::vector<size_t> at(3, 0);
  for (size_t step = 0; at[ours] < count; ++step) {
    std::vector<Feed> feeds;
    for (size_t i = 0; i < 3; ++i) {
      const size_t rows = std::min(kSteps[(step + 2 * i) % std::size(kSteps)], count - at[i]);
      if (rows == 0) continue;
      feeds.push_back({i, std::span<const int32_t>(texts[i]).subspan(at[i], rows)});
      at[i] += rows;
    }
    TRY(pass.step(feeds, [&](size_t sequence, uint64_t, std::span<const float> row) {
      if (sequence == ours) logits.values.insert(logits.values.end(), row.begin(), row.end());
    }));
  }
  return logits;
}

}  // namespace deepinfer::apps
