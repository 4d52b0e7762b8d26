#include "models/deepseek_v4/v4_selection.h"

#include <algorithm>
#include <cmath>

#include "kernels/hadamard.h"

namespace deepinfer::models {
namespace {

// Scores that are kept at a time: rows are taken together until there are more (32 MB).
constexpr size_t kScoreFloats = size_t{8} << 20;

}  // namespace

V4Selection::V4Selection(const weights::IndexerConfig& config, kernels::Target target,
                         Rounding rounding, RowWork& work, Profile& profile)
    : config_(config),
      target_(target),
      rounding_(rounding),
      work_(work),
      profile_(profile),
      scale_(static_cast<float>(
          1.0 / std::sqrt(static_cast<double>(config.dim) * static_cast<double>(config.heads)))) {}

Result<void> V4Selection::create(size_t max_rows) {
  queries_ = TRY(Buffer::create(max_rows * config_.heads * config_.dim * sizeof(float)));
  weights_ = TRY(Buffer::create(max_rows * config_.heads * sizeof(float)));
  selected_.resize(max_rows * config_.topk);
  return {};
}

size_t V4Selection::bytes() const {
  return queries_.size() + weights_.size() + scores_.size() + selected_.size() * sizeof(uint32_t);
}

bool V4Selection::begin(std::span<const uint64_t> positions) {
  counts_.resize(positions.size());
  all_.resize(positions.size());
  bool needed = false;
  for (size_t row = 0; row < positions.size(); ++row) {
    const size_t visible = entries_visible(positions[row], kOverlapRatio);
    counts_[row] = std::min<size_t>(visible, config_.topk);
    all_[row] = visible <= config_.topk ? 1 : 0;
    needed |= all_[row] == 0;
  }
  return needed;
}

// The row's queries and weights as the scores read them.
void V4Selection::prepare(const RopeRows& rope, const EntryStore& store, size_t row) {
  const kernels::LatentRowOps& latent = kernels::latent_row_ops(target_.isa);
  const size_t dim = config_.dim, width = config_.heads * dim;
  float* query = queries() + row * width;
  rounding_.bf16(query, width);
  for (size_t h = 0; h < config_.heads; ++h) {
    rope.rotate(work_.ops(), row, query + h * dim, dim);
  }
  rounding_.bf16(query, width);
  for (size_t h = 0; store.hadamard && h < config_.heads; ++h) {
    kernels::hadamard(query + h * dim, dim);
    rounding_.bf16(query + h * dim, dim);
    latent.round(store.format, query + h * dim);
  }
  float* weights = this->weights() + row * config_.heads;
  rounding_.bf16(weights, config_.heads);
  for (size_t h = 0; h < config_.heads; ++h) weights[h] *= scale_;
  rounding_.bf16(weights, config_.heads);
  work_.expect_finite(weights, config_.heads);
}

void V4Selection::score(std::span<kernels::IndexQuery> queries, std::span<const size_t> rows,
                        const EntryStore& store) {
  size_t total = 0;
  for (const kernels::IndexQuery& query : queries) total += query.visible;
  if (scores_.size() < total * sizeof(float)) {
    scores_ = Buffer();  // gives the old one back first
    scores_ = Buffer(std::max(total, std::min(total * 2, kScoreFloats)) * sizeof(float));
  }
  float* at = scores_.as<float>();
  for (kernels::IndexQuery& query : queries) {
    query.scores = at;
    at += query.visible;
  }
  const kernels::IndexShape shape = {
      .heads = config_.heads, .keys = store.format, .entries_per_page = store.per_page};
  kernels::index_scores(work_.pool(), target_.isa, shape, queries);
  work_.pool().run(queries.size(), [&](size_t i, size_t) {
    const size_t row = rows[i];
    work_.expect_finite(queries[i].scores, queries[i].visible);
    counts_[row] = kernels::select_top(queries[i].scores, queries[i].visible, config_.topk,
                                       selected_.data() + row * config_.topk);
  });
}

Result<void> V4Selection::choose(std::span<const StepRun> runs, std::span<const uint64_t> positions,
                                 const RopeRows& rope, const PageLists& pages,
                                 const EntryStore& store, const std::string& where) {
  const size_t rows = positions.size(), width = config_.heads * config_.dim;
  double scored = 0;
  for (size_t row = 0; row < rows; ++row) {
    if (all_[row] == 0) {
      scored += static_cast<double>(entries_visible(positions[row], kOverlapRatio));
    }
  }
  const auto timer =
      profile_.measure(Operation::indexer, 0, 2.0 * scored * static_cast<double>(width));
  work_.for_rows(rows, width, [&](size_t row, size_t) {
    if (all_[row] == 0) prepare(rope, store, row);
  });
  std::vector<kernels::IndexQuery> queries;
  std::vector<size_t> of_row;
  size_t total = 0;
  const auto flush = [&] {
    if (!queries.empty()) score(queries, of_row, store);
    queries.clear();
    of_row.clear();
    total = 0;
  };
  for (const StepRun& run : runs) {
    for (size_t row = run.first_row; row < run.first_row + run.rows; ++row) {
      if (all_[row] != 0) continue;
      const size_t visible = entries_visible(positions[row], kOverlapRatio);
      if (total + visible > kScoreFloats) flush();
      queries.push_back({.query = this->queries() + row * width,
                         .weights = weights() + row * config_.heads,
                         .pages = pages.of(run.sequence),
                         .visible = visible});
      of_row.push_back(row);
      total += visible;
    }
  }
  flush();
  if (work_.found_bad()) return not_finite(where + " indexer");
  return {};
}

}  // namespace deepinfer::models
