#include "models/window_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace deepinfer::models {

size_t WindowCache::add(cache::CacheLayout& layout, std::string name, size_t keep,
                        size_t row_bytes) {
  // Rings start on cache lines, so that rows whose size allows it are aligned.
  const size_t rows = keep + spare_;
  const size_t bytes =
      (rows * row_bytes + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
  rings_.push_back(
      {.rows = rows, .row_bytes = row_bytes, .offset = layout.frontier_bytes(), .fresh = {}});
  layout.frontier.push_back({std::move(name), bytes});
  return rings_.size() - 1;
}

Result<void> WindowCache::create(size_t max_rows) {
  for (Ring& ring : rings_) ring.fresh = TRY(Buffer::create(max_rows * ring.row_bytes));
  return {};
}

size_t WindowCache::bytes() const {
  size_t bytes = 0;
  for (const Ring& ring : rings_) bytes += ring.fresh.size();
  return bytes;
}

const std::byte* WindowCache::at(size_t ring, const StepRun& run, uint64_t position) const {
  const Ring& r = rings_[ring];
  if (position >= run.first_position) {
    return r.fresh.data() + (run.first_row + (position - run.first_position)) * r.row_bytes;
  }
  return run.cache->frontier() + r.offset + position % r.rows * r.row_bytes;
}

void WindowCache::place(kernels::LatentQuery& query, size_t ring, const StepRun& run,
                        uint64_t position, size_t window, uint64_t first) const {
  const Ring& r = rings_[ring];
  query.window_end = position + 1;
  query.window_first = std::max(query.window_end > window ? query.window_end - window : 0, first);
  query.ring = run.cache->frontier() + r.offset;
  query.ring_rows = r.rows;
  query.fresh = r.fresh.data() + run.first_row * r.row_bytes;
  query.fresh_first = run.first_position;
}

void WindowCache::commit(size_t ring, std::span<const StepRun> runs) {
  const Ring& r = rings_[ring];
  for (const StepRun& run : runs) {
    std::byte* slots = run.cache->frontier() + r.offset;
    const size_t kept = std::min(run.rows, r.rows);
    for (size_t i = run.rows - kept; i < run.rows; ++i) {
      std::memcpy(slots + (run.first_position + i) % r.rows * r.row_bytes,
                  r.fresh.data() + (run.first_row + i) * r.row_bytes, r.row_bytes);
    }
  }
}

}  // namespace deepinfer::models
