// The best of many scores: select_top, select_blocks, select_top_in_blocks of kernels/indexer.h.
//
// One pass keeps a list of candidates above a rising threshold: when the list is full, the k best
// of it stay and the least of them becomes the threshold. A candidate is one integer whose order is
// (score descending, index ascending), so that ties need no thought. After the first few thousand
// scores nearly all fail one comparison, made on whole blocks.

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "base/check.h"
#include "kernels/indexer.h"

namespace deepinfer::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargestBf16 = 0x1.FEp127f;

// Order-preserving: NaN is 0, then -infinity .. -0 = +0 .. +infinity.
uint32_t order_of(float value) {
  if (std::isnan(value)) return 0;
  const uint32_t bits = value == 0.0f ? 0 : std::bit_cast<uint32_t>(value);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

class TopSelector {
 public:
  explicit TopSelector(size_t k) : k_(k), capacity_(std::max(2 * k, k + 1024)) {
    candidates_.reserve(capacity_);
  }

  // Scores [begin, end), every index once, ascending over all calls.
  void add(const float* scores, size_t begin, size_t end) {
    size_t i = begin;
    while (i < end && !std::isfinite(threshold_)) offer(scores[i], i), ++i;
    for (; i + kBlock <= end; i += kBlock) {
      bool above = false;
      for (size_t t = 0; t < kBlock; ++t) above |= scores[i + t] > threshold_;
      if (!above) continue;
      for (size_t t = 0; t < kBlock; ++t) offer(scores[i + t], i + t);
    }
    for (; i < end; ++i) offer(scores[i], i);
  }

  // Indices ascending; returns how many.
  size_t finish(uint32_t* out) {
    if (candidates_.size() > k_) keep_best();
    for (size_t i = 0; i < candidates_.size(); ++i) out[i] = ~static_cast<uint32_t>(candidates_[i]);
    std::sort(out, out + candidates_.size());
    return candidates_.size();
  }

 private:
  static constexpr size_t kBlock = 64;

  void offer(float score, size_t index) {
    const uint32_t order = order_of(score);
    if (order <= least_order_ && full_) return;
    candidates_.push_back(uint64_t{order} << 32 | ~static_cast<uint32_t>(index));
    if (candidates_.size() == capacity_) keep_best();
  }

  void keep_best() {
    const auto last = candidates_.begin() + static_cast<ptrdiff_t>(k_) - 1;
    std::nth_element(candidates_.begin(), last, candidates_.end(), std::greater<>());
    candidates_.resize(k_);
    full_ = true;
    least_order_ = static_cast<uint32_t>(candidates_.back() >> 32);
    const uint32_t bits = least_order_ >> 31 != 0 ? least_order_ & 0x7FFFFFFFu : ~least_order_;
    threshold_ = least_order_ == 0 ? kNaN : std::bit_cast<float>(bits);
  }

  size_t k_;
  size_t capacity_;
  std::vector<uint64_t> candidates_;
  bool full_ = false;         // k are held: an equal score of a higher index loses
  uint32_t least_order_ = 0;  // of those held
  float threshold_ = kNaN;    // the same as a number; block tests need it finite
};

float block_score(const float* scores, size_t begin, size_t end) {
  float best = kNaN;
  for (size_t i = begin; i < end; ++i) {
    if (!(scores[i] <= best) && !std::isnan(scores[i])) best = scores[i];
  }
  return best > kLargestBf16 ? kLargestBf16 : best;
}

}  // namespace

size_t select_top(const float* scores, size_t count, size_t k, uint32_t* out) {
  check(count <= std::numeric_limits<uint32_t>::max(), "more scores than 32-bit indices");
  if (k == 0) return 0;
  if (count <= k) {
    for (size_t i = 0; i < count; ++i) out[i] = static_cast<uint32_t>(i);
    return count;
  }
  TopSelector selector(k);
  selector.add(scores, 0, count);
  return selector.finish(out);
}

size_t select_blocks(const float* scores, size_t visible, size_t block, size_t blocks,
                     uint32_t* out) {
  check(block > 0, "candidate blocks of no entries");
  const size_t count = (visible + block - 1) / block;
  if (count <= blocks) return select_top(scores, count, blocks, out);
  std::vector<float> best(count);
  for (size_t b = 0; b < count; ++b) {
    best[b] = block_score(scores, b * block, std::min(visible, (b + 1) * block));
  }
  best[count - 1] = std::numeric_limits<float>::infinity();
  return select_top(best.data(), count, blocks, out);
}

size_t select_top_in_blocks(const float* scores, size_t visible, size_t k, size_t block,
                            std::span<const uint32_t> candidates, uint32_t* out) {
  if (k == 0) return 0;
  TopSelector selector(k);
  for (uint32_t candidate : candidates) {
    const size_t begin = size_t{candidate} * block;
    if (begin >= visible) continue;
    selector.add(scores, begin, std::min(visible, begin + block));
  }
  return selector.finish(out);
}

}  // namespace deepinfer::kernels
