#include "models/deepseek_v41/v41_selection.h"

#include <algorithm>
#include <numeric>

namespace deepinfer::models {
namespace {

// Scores that are in memory at a time: 16 MB, or one row's if it has more.
constexpr size_t kScoreFloats = size_t{4} << 20;

struct RowOf {
  const StepRun* run;
  size_t row;
  size_t visible;
};

std::vector<RowOf> rows_of(std::span<const StepRun> runs, size_t ratio) {
  std::vector<RowOf> rows;
  for (const StepRun& run : runs) {
    for (size_t i = 0; i < run.rows; ++i) {
      rows.push_back(
          {&run, run.first_row + i, static_cast<size_t>((run.first_position + i + 1) / ratio)});
    }
  }
  return rows;
}

}  // namespace

V41Selection::V41Selection(const weights::DeepseekV41Config& config, kernels::LatentFormat keys,
                           kernels::Target target, Rounding rounding, RowWork& work,
                           Profile& profile)
    : hidden_(config.hidden),
      heads_(config.indexer.heads),
      dim_(config.indexer.dim),
      topk_(config.indexer.topk),
      blocks_(config.candidate_source ? config.candidate_blocks : 0),
      block_(config.candidate_block),
      candidate_source_(config.candidate_source),
      keys_(keys),
      target_(target),
      rounding_(rounding),
      latent_ops_(kernels::latent_row_ops(target.isa)),
      work_(work),
      profile_(profile) {}

Result<void> V41Selection::create(size_t max_rows) {
  queries_ = TRY(Buffer::create(max_rows * heads_ * dim_ * sizeof(float)));
  weights_ = TRY(Buffer::create(max_rows * heads_ * sizeof(float)));
  selected_.resize(max_rows * topk_);
  counts_.resize(max_rows);
  candidates_.resize(max_rows * blocks_);
  candidate_counts_.resize(max_rows);
  return {};
}

size_t V41Selection::bytes() const {
  return queries_.size() + weights_.size() + scores_.size() +
         (selected_.size() + candidates_.size() + 2 * counts_.size()) * sizeof(uint32_t);
}

V41Selection::Level V41Selection::level(size_t layer) const {
  if (!candidate_source_ || layer < *candidate_source_) return Level::plain;
  return layer == *candidate_source_ ? Level::source : Level::inside;
}

bool V41Selection::takes_all(Level level, size_t visible) const {
  if (visible > topk_) return false;
  return level == Level::plain || visible <= blocks_ * block_;
}

bool V41Selection::needs_scores(size_t layer, size_t ratio, std::span<const StepRun> runs) const {
  return std::any_of(runs.begin(), runs.end(), [&](const StepRun& run) {
    return !takes_all(level(layer), static_cast<size_t>(run.end_position() / ratio));
  });
}

// Queries rotated and, where the keys are stored in four bits, rounded to four bits; head weights.
Result<void> V41Selection::prepare(const V41Indexer& weights, const float* h, size_t rows,
                                   const RopeRows& rope, const std::string& where) {
  activations_.begin(target_, rows, hidden_, weights.weights.form() | kernels::kRefined);
  work_.for_rows(rows, hidden_ + heads_ * dim_, [&](size_t row, size_t) {
    activations_.fill_row(row, h + row * hidden_);
    float* query = queries() + row * heads_ * dim_;
    rounding_.bf16(query, heads_ * dim_);
    for (size_t head = 0; head < heads_; ++head) {
      float* values = query + head * dim_;
      rope.rotate(work_.ops(), row, values, dim_);
      rounding_.bf16(values, dim_);
      latent_ops_.round(keys_, values);
    }
  });
  kernels::matmul(work_.pool(), activations_,
                  {{.weights = &weights.weights, .out = weights_.as<float>(), .stride = heads_}});
  work_.for_rows(rows, heads_, [&](size_t row, size_t) {
    rounding_.bf16(weights_.as<float>() + row * heads_, heads_);
    work_.expect_finite(weights_.as<float>() + row * heads_, heads_);
  });
  if (work_.found_bad()) return not_finite(where + " weights");
  return {};
}

void V41Selection::take_all(Level level, size_t row, size_t visible) {
  std::iota(selected(row), selected(row) + visible, 0u);
  counts_[row] = static_cast<uint32_t>(visible);
  if (level != Level::source) return;
  candidate_counts_[row] = static_cast<uint32_t>((visible + block_ - 1) / block_);
  std::iota(candidates(row), candidates(row) + candidate_counts_[row], 0u);
}

void V41Selection::take_best(Level level, size_t row, size_t visible, const float* scores) {
  size_t count = 0;
  if (level == Level::inside) {
    count = kernels::select_top_in_blocks(
        scores, visible, topk_, block_,
        std::span<const uint32_t>(candidates(row), candidate_counts_[row]), selected(row));
  } else {
    count = kernels::select_top(scores, visible, topk_, selected(row));
  }
  counts_[row] = static_cast<uint32_t>(count);
  if (level == Level::source) {
    candidate_counts_[row] = static_cast<uint32_t>(
        kernels::select_blocks(scores, visible, block_, blocks_, candidates(row)));
  }
}

// Visible entries in the row's candidate blocks; only the newest block may be partly visible.
size_t V41Selection::candidate_entries(size_t row, size_t visible) {
  const size_t count = candidate_counts_[row];
  const size_t last = candidates(row)[count - 1] * block_;
  return (count - 1) * block_ + std::min(block_, visible - last);
}

void V41Selection::list_blocks(size_t row, const std::byte* const* pages, size_t per_page,
                               const std::byte** blocks) {
  for (size_t i = 0; i < candidate_counts_[row]; ++i) {
    const size_t entry = candidates(row)[i] * block_;
    blocks[i] = pages[entry / per_page] + entry % per_page * keys_.row_bytes();
  }
}

// Scores of the candidate blocks' entries, one block after the other.
void V41Selection::take_best_of_blocks(size_t row, size_t entries, const float* scores) {
  uint32_t* out = selected(row);
  const size_t count = kernels::select_top(scores, entries, topk_, out);
  counts_[row] = static_cast<uint32_t>(count);
  const auto block = static_cast<uint32_t>(block_);
  for (size_t i = 0; i < count; ++i) {
    out[i] = candidates(row)[out[i] / block] * block + out[i] % block;
  }
}

Result<void> V41Selection::reserve_scores(size_t floats) {
  if (scores_.size() >= floats * sizeof(float)) return {};
  scores_ = Buffer();  // gives the old one back first
  scores_ = TRY(Buffer::create(std::max(floats, kScoreFloats / 16) * sizeof(float)));
  return {};
}

Result<void> V41Selection::select(size_t layer, const V41Indexer& weights,
                                  const V41EntryStreams& streams, const float* h,
                                  std::span<const StepRun> runs, const RopeRows& rope,
                                  const std::string& where) {
  const Level at = level(layer);
  std::vector<RowOf> scored;
  const std::vector<RowOf> rows = rows_of(runs, streams.ratio);
  for (const RowOf& row : rows) {
    if (takes_all(at, row.visible)) {
      take_all(at, row.row, row.visible);
    } else {
      scored.push_back(row);
    }
  }
  if (scored.empty()) return {};
  const auto timer = profile_.measure(Operation::indexer, weights.weights.bytes());
  TRY(prepare(weights, h, rows.size(), rope, where));
  pages_.begin(runs, streams.keys);
  kernels::IndexShape shape = {
      .heads = heads_, .keys = keys_, .entries_per_page = streams.per_page};
  // The keys of candidate blocks are scored as if each block were a page of its own.
  const bool blockwise = at == Level::inside && streams.per_page % block_ == 0;
  if (blockwise) shape.entries_per_page = block_;
  for (RowOf& row : scored) {
    if (blockwise) row.visible = candidate_entries(row.row, row.visible);
  }
  for (size_t first = 0, end = 0; first < scored.size(); first = end) {
    size_t floats = 0;
    while (end < scored.size() && (end == first || floats + scored[end].visible <= kScoreFloats)) {
      floats += scored[end++].visible;
    }
    TRY(reserve_scores(floats));
    block_pages_.resize(blockwise ? (end - first) * blocks_ : 0);
    std::vector<kernels::IndexQuery> queries;
    float* scores = scores_.as<float>();
    for (size_t i = first; i < end; ++i) {
      const std::byte* const* pages = pages_.of(scored[i].run->sequence);
      if (blockwise) {
        const std::byte** blocks = block_pages_.data() + (i - first) * blocks_;
        list_blocks(scored[i].row, pages, streams.per_page, blocks);
        pages = blocks;
      }
      queries.push_back({.query = this->queries() + scored[i].row * heads_ * dim_,
                         .weights = weights_.as<float>() + scored[i].row * heads_,
                         .pages = pages,
                         .visible = scored[i].visible,
                         .scores = scores});
      scores += scored[i].visible;
    }
    kernels::index_scores(work_.pool(), target_.isa, shape, queries);
    work_.for_rows(queries.size(), floats / queries.size() + 1, [&](size_t i, size_t) {
      if (blockwise) {
        take_best_of_blocks(scored[first + i].row, queries[i].visible, queries[i].scores);
      } else {
        take_best(at, scored[first + i].row, queries[i].visible, queries[i].scores);
      }
    });
  }
  return {};
}

}  // namespace deepinfer::models
