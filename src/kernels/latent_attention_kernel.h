#pragma once

// What the driver of latent attention (latent_attention.cpp) and its bodies share.
// Internal to src/kernels.
//
// Threads: pure functions; scratch belongs to one worker.

#include <cstddef>
#include <cstdint>

#include "kernels/latent_attention.h"

namespace deepinfer::kernels {

// The rows that a query sees, in order: window rows, then entries.
class LatentList {
 public:
  LatentList(const LatentShape& shape, const LatentQuery& query)
      : query_(&query),
        window_count_(static_cast<size_t>(query.window_end - query.window_first)),
        window_bytes_(shape.window.row_bytes()),
        entry_bytes_(shape.entries.row_bytes()),
        entries_per_page_(shape.entries_per_page) {}

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
    return query_->pages[entry / entries_per_page_] + entry % entries_per_page_ * entry_bytes_;
  }

 private:
  const LatentQuery* query_;
  size_t window_count_;
  size_t window_bytes_;
  size_t entry_bytes_;
  size_t entries_per_page_;
};

namespace ref {
// Doubles that latent_attention_query() needs for each of its worker's calls.
inline size_t latent_scratch_doubles(const LatentShape& shape, size_t rows) {
  return rows + shape.value_dim + shape.dim;
}
// One head of one query, in double.
void latent_attention_head(const LatentShape& shape, const LatentQuery& query, size_t head,
                           double* scratch) noexcept;
}  // namespace ref

}  // namespace deepinfer::kernels
