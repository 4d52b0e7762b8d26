#include "models/deepseek_v3/mla_indexer.h"

#include <cmath>

namespace deepinfer::models {
namespace {

constexpr float kKeyNormEps = 1e-6f;

// In double, in order: a row of 128 values costs nothing beside its product.
void layer_norm(float* x, const float* weight, const float* bias, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += double{x[i]};
  const double mean = sum / static_cast<double>(n);
  double squares = 0;
  for (size_t i = 0; i < n; ++i) squares += (double{x[i]} - mean) * (double{x[i]} - mean);
  const double variance = squares / static_cast<double>(n);
  const double factor = 1.0 / std::sqrt(variance + double{kKeyNormEps});
  for (size_t i = 0; i < n; ++i) {
    const float normed = static_cast<float>((double{x[i]} - mean) * factor);
    x[i] = normed * weight[i] + bias[i];
  }
}

}  // namespace

Result<void> MlaIndexer::create(size_t max_rows, size_t block_rows) {
  keys_ = TRY(Buffer::create(max_rows * shape_.index_dim * sizeof(float)));
  weights_ = TRY(Buffer::create(max_rows * shape_.index_heads * sizeof(float)));
  queries_ =
      TRY(Buffer::create(block_rows * shape_.index_heads * shape_.index_dim * sizeof(float)));
  selected_ = TRY(Buffer::create(block_rows * shape_.index_topk * sizeof(uint32_t)));
  return {};
}

size_t MlaIndexer::bytes() const {
  return keys_.size() + weights_.size() + queries_.size() + selected_.size() + scores_.size();
}

void MlaIndexer::finish_key(const MlaIndexLayer& layer, const RopeRows& rope, size_t row,
                            std::byte* entry) {
  float* k = key(row);
  layer_norm(k, layer.key_norm.data(), layer.key_bias.data(), shape_.index_dim);
  rope.rotate_front(work_.ops(), row, k);
  work_.expect_finite(k, shape_.index_dim);
  kernels::latent_row_ops(isa_).encode(shape_.index_row, k, entry);
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape_.index_heads * shape_.index_dim));
  float* w = weights(row);
  for (size_t h = 0; h < shape_.index_heads; ++h) w[h] *= scale;
  work_.expect_finite(w, shape_.index_heads);
}

void MlaIndexer::finish_query(const RopeRows& rope, size_t row, size_t slot) {
  float* q = query(slot);
  work_.expect_finite(q, shape_.index_heads * shape_.index_dim);
  for (size_t h = 0; h < shape_.index_heads; ++h) {
    rope.rotate_front(work_.ops(), row, q + h * shape_.index_dim);
  }
}

Result<void> MlaIndexer::select(std::span<const Row> rows, const std::string& where) {
  counts_.assign(rows.size(), 0);
  choosing_.clear();
  index_queries_.clear();
  size_t floats = 0;
  for (size_t slot = 0; slot < rows.size(); ++slot) {
    if (rows[slot].visible <= shape_.index_topk) continue;
    choosing_.push_back(slot);
    floats += rows[slot].visible;
  }
  if (choosing_.empty()) return {};
  if (scores_.size() < floats * sizeof(float)) {
    scores_ = Buffer();  // gives the old one back first
    scores_ = TRY(Buffer::create((floats + floats / 4) * sizeof(float)));
  }
  float* scores = scores_.as<float>();
  for (const size_t slot : choosing_) {
    index_queries_.push_back({.query = query(slot),
                              .weights = weights(rows[slot].row),
                              .pages = rows[slot].pages,
                              .visible = rows[slot].visible,
                              .scores = scores});
    scores += rows[slot].visible;
  }
  const auto timer =
      profile_.measure(Operation::indexer, 0,
                       2.0 * static_cast<double>(floats * shape_.index_heads * shape_.index_dim));
  kernels::index_scores(work_.pool(), isa_,
                        {.heads = shape_.index_heads,
                         .keys = shape_.index_row,
                         .entries_per_page = cache::kTokensPerPage},
                        index_queries_);
  work_.pool().run(choosing_.size(), [&](size_t i, size_t) {
    const kernels::IndexQuery& of = index_queries_[i];
    work_.expect_finite(of.scores, of.visible);
    counts_[choosing_[i]] =
        kernels::select_top(of.scores, of.visible, shape_.index_topk,
                            selected_.as<uint32_t>() + choosing_[i] * shape_.index_topk);
  });
  if (work_.found_bad()) return not_finite(where + " index scores");
  return {};
}

}  // namespace deepinfer::models
