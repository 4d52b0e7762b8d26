#pragma once

// What the driver of latent attention (latent_attention.cpp) and its bodies share.
// Internal to src/kernels.
//
// A block is one span of one query's list for one group of up to kGroupHeads heads. Work on it:
//   transpose   query [heads][dim] -> panels of queries, lanes are heads
//   score       rows [begin, end) of the span -> their dot products [rows][lanes]
//   soften      dot products of 16 lanes -> weights exp(a - M), M and their sum
//   weigh       weights and columns [begin, end) of the values -> state [lanes][value_stride]
// then states of the spans are merged in order and finished. Every number is a chain of roundings
// of its own, so that the cuts (rows at multiples of kRowUnit, columns of kColumnUnit) change no
// bit.
//
// Threads: pure functions of their arguments; tile belongs to one worker.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/attention/latent_attention.h"

namespace deepinfer::kernels {

inline constexpr size_t kGroupHeads = 64;
// Heads of a panel of queries, and the unit in which heads are filled up.
inline constexpr size_t kPanelLanes = 32;
inline constexpr size_t kLaneUnit = 16;
// Rows whose values are widened at a time: their weights for 64 heads and three vectors of their
// values fit L1.
inline constexpr size_t kTileRows = 96;
inline constexpr size_t kRowUnit = 48;  // a multiple of the rows that every body scores at once
inline constexpr size_t kColumnUnit = 64;

inline size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// The rows that a query sees, in order: window rows, then entries.
class LatentList {
 public:
  LatentList(const LatentShape& shape, const LatentQuery& query)
      : query_(&query),
        window_count_(static_cast<size_t>(query.window_end - query.window_first)),
        window_bytes_(shape.window.row_bytes()),
        entry_bytes_(shape.entries.row_bytes()),
        entries_per_page_(shape.entries_per_page),
        page_mask_(std::has_single_bit(shape.entries_per_page) ? shape.entries_per_page - 1 : 0),
        page_shift_(std::countr_zero(shape.entries_per_page)) {}

  size_t size() const { return window_count_ + query_->entry_count; }
  size_t window_count() const { return window_count_; }

  // i < window_count()
  const std::byte* window_row(size_t i) const {
    const uint64_t position = query_->window_first + i;
    if (query_->fresh != nullptr && position >= query_->fresh_first) {
      return query_->fresh + static_cast<size_t>(position - query_->fresh_first) * window_bytes_;
    }
    return query_->ring + static_cast<size_t>(position % query_->ring_rows) * window_bytes_;
  }
  // j < entry_count
  const std::byte* entry_row(size_t j) const {
    const size_t entry = query_->selected != nullptr ? query_->selected[j] : j;
    if (page_mask_ == 0) {
      return query_->pages[entry / entries_per_page_] + entry % entries_per_page_ * entry_bytes_;
    }
    return query_->pages[entry >> page_shift_] + (entry & page_mask_) * entry_bytes_;
  }
  bool in_window(size_t i) const { return i < window_count_; }
  const std::byte* row(size_t i) const {
    return in_window(i) ? window_row(i) : entry_row(i - window_count_);
  }
  size_t row_bytes(size_t i) const { return in_window(i) ? window_bytes_ : entry_bytes_; }

 private:
  const LatentQuery* query_;
  size_t window_count_;
  size_t window_bytes_;
  size_t entry_bytes_;
  size_t entries_per_page_;
  size_t page_mask_;  // 0: entries_per_page_ is no power of two, or 1
  int page_shift_;
};

struct LatentBlock {
  const LatentShape* shape = nullptr;
  const LatentQuery* query = nullptr;
  size_t first_head = 0;
  size_t heads = 0;
  size_t first_row = 0;  // of the list
  size_t rows = 0;       // at most kLatentSpan

  size_t lanes() const { return round_up(heads, kLaneUnit); }
  // 16 more than needed, so that rows do not fall into the same cache sets.
  size_t value_stride() const { return round_up(shape->value_dim, 16) + 16; }
  size_t tile_stride() const { return round_up(shape->dim, 16) + 16; }

  // Floats of the buffers.
  size_t query_floats() const { return lanes() * shape->dim; }
  size_t tile_floats() const { return kTileRows * tile_stride(); }
  size_t score_floats() const { return round_up(rows, kTileRows) * lanes(); }
  // Sums [lanes][value_stride], then maxima [lanes] and sums of weights [lanes].
  size_t state_floats() const { return lanes() * (value_stride() + 2); }
  float* tops(float* state) const { return state + lanes() * value_stride(); }
  float* totals(float* state) const { return tops(state) + lanes(); }
};

struct LatentKernel {
  // queries [lanes / 32][dim][32], the last panel 16 wide where lanes say so; the panel of `lane`.
  void (*transpose)(const LatentBlock& block, size_t lane, float* queries) noexcept;
  void (*score)(const LatentBlock& block, size_t begin, size_t end, const float* queries,
                float* tile, float* scores) noexcept;
  // Lanes [lane, lane + 16) of scores [rows][lanes], in place.
  void (*soften)(const LatentBlock& block, size_t lane, float* scores, float* state) noexcept;
  // Columns [begin, end); begin: a multiple of kColumnUnit; end: another or value_dim.
  void (*weigh)(const LatentBlock& block, size_t begin, size_t end, const float* weights,
                float* tile, float* state) noexcept;
  // The next span's state joins those before it.
  void (*merge)(const LatentBlock& block, float* state, float* next) noexcept;
  // Columns as for weigh().
  void (*finish)(const LatentBlock& block, size_t begin, size_t end, float* state) noexcept;
};

namespace avx2 {
const LatentKernel& latent_kernel();
}
namespace avx512 {
const LatentKernel& latent_kernel();
}
namespace emulated512 {
const LatentKernel& latent_kernel();
}

namespace ref {
// Doubles that latent_attention_head() needs for a list of `rows` rows.
inline size_t latent_scratch_doubles(const LatentShape& shape, size_t rows) {
  return rows + shape.value_dim + shape.dim;
}
// One head of one query, in double.
void latent_attention_head(const LatentShape& shape, const LatentQuery& query, size_t head,
                           double* scratch) noexcept;
}  // namespace ref

}  // namespace deepinfer::kernels
