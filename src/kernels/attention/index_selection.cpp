// The best of many scores: select_top, select_blocks, select_top_in_blocks of
// kernels/attention/indexer.h.
//
// One pass keeps a list of candidates, in the order of their indices, above a rising threshold:
// when the list is full, the k best of it stay and the least of them becomes the threshold. A
// candidate is one integer whose order is (score ascending, index descending), so that ties need no
// thought. A first threshold comes from a sample, so that the list seldom fills; should fewer than
// k scores reach it, the pass is made again without.

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "base/check.h"
#include "kernels/attention/indexer.h"

namespace deepinfer::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargestBf16 = 0x1.FEp127f;
constexpr size_t kSamples = 1024;

// Order-preserving: NaN is 0, then -infinity .. -0 = +0 .. +infinity.
uint32_t order_of(float value) {
  if (std::isnan(value)) return 0;
  const uint32_t bits = value == 0.0f ? 0 : std::bit_cast<uint32_t>(value);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

float value_of(uint32_t order) {
  if (order == 0) return kNaN;
  return std::bit_cast<float>((order >> 31) != 0 ? order & 0x7FFFFFFFu : ~order);
}

// Bit i: scores[i] >= least, i < count <= 64.
uint64_t reaching(const float* scores, size_t count, float least) {
  const __m128 threshold = _mm_set1_ps(least);
  uint64_t bits = 0;
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const int four = _mm_movemask_ps(_mm_cmpge_ps(_mm_loadu_ps(scores + i), threshold));
    bits |= static_cast<uint64_t>(four) << i;
  }
  for (; i < count; ++i) bits |= static_cast<uint64_t>(scores[i] >= least) << i;
  return bits;
}

class TopSelector {
 public:
  // least_order: scores below it are left out from the start; 0: none.
  TopSelector(size_t k, uint32_t least_order)
      : k_(k), capacity_(std::max(4 * k, k + 3072)), least_(least_order) {
    candidates_.reserve(capacity_);
    set_threshold();
  }

  // Scores [begin, end), every index once, ascending over all calls.
  void add(const float* scores, size_t begin, size_t end) {
    for (size_t at = begin; at < end; at += 64) {
      const size_t count = std::min<size_t>(end - at, 64);
      // NaN reaches no threshold, and none is above it.
      if (std::isnan(threshold_)) {
        for (size_t i = 0; i < count; ++i) offer(order_of(scores[at + i]), at + i);
        continue;
      }
      for (uint64_t bits = reaching(scores + at, count, threshold_); bits != 0; bits &= bits - 1) {
        const size_t i = at + static_cast<size_t>(std::countr_zero(bits));
        offer(order_of(scores[i]), i);
      }
    }
  }

  size_t size() const { return candidates_.size(); }

  // Indices ascending; returns how many.
  size_t finish(uint32_t* out) {
    if (candidates_.size() > k_) keep_best();
    for (uint64_t candidate : candidates_) *out++ = ~static_cast<uint32_t>(candidate);
    return candidates_.size();
  }

 private:
  void offer(uint32_t order, size_t index) {
    if (order < least_) return;
    candidates_.push_back(uint64_t{order} << 32 | ~static_cast<uint32_t>(index));
    if (candidates_.size() == capacity_) keep_best();
  }

  // Afterwards k are held, and an equal score of a higher index loses.
  void keep_best() {
    sorted_ = candidates_;
    const auto last = sorted_.begin() + static_cast<ptrdiff_t>(k_) - 1;
    std::nth_element(sorted_.begin(), last, sorted_.end(), std::greater<>());
    const uint64_t cut = *last;
    size_t kept = 0;
    for (uint64_t candidate : candidates_) {
      candidates_[kept] = candidate;
      kept += candidate >= cut ? 1 : 0;
    }
    candidates_.resize(kept);
    least_ = static_cast<uint32_t>(cut >> 32) + 1;
    set_threshold();
  }

  void set_threshold() { threshold_ = value_of(least_); }

  size_t k_;
  size_t capacity_;
  std::vector<uint64_t> candidates_;
  std::vector<uint64_t> sorted_;
  uint32_t least_;          // order that a score must reach
  float threshold_ = 0.0f;  // the same as a number, NaN when anything reaches it
};

// An order that a little more than k of the scores reach, by a sample; 0 when they are few.
uint32_t sampled_threshold(const float* scores, size_t count, size_t k) {
  if (count < 8 * kSamples || k > count / 8) return 0;
  std::vector<uint32_t> samples(kSamples);
  const size_t step = count / kSamples;
  for (size_t i = 0; i < kSamples; ++i) samples[i] = order_of(scores[i * step]);
  // Four standard deviations above the expected number of samples among the k best.
  const double expected =
      static_cast<double>(k) * static_cast<double>(kSamples) / static_cast<double>(count);
  const auto rank = static_cast<ptrdiff_t>(expected + 4.0 * std::sqrt(expected) + 1.0);
  std::nth_element(samples.begin(), samples.begin() + rank, samples.end(), std::greater<>());
  return samples[static_cast<size_t>(rank)];
}

// The largest of scores [begin, end), NaN when all are.
float block_score(const float* scores, size_t begin, size_t end) {
  __m128 best = _mm_set1_ps(-kInfinity);
  size_t i = begin;
  for (; i + 4 <= end; i += 4) best = _mm_max_ps(_mm_loadu_ps(scores + i), best);
  best = _mm_max_ps(best, _mm_movehl_ps(best, best));
  float highest = std::max(best[0], best[1]);
  for (; i < end; ++i) highest = scores[i] > highest ? scores[i] : highest;
  if (highest != -kInfinity) return std::min(highest, kLargestBf16);
  const bool number =
      std::any_of(scores + begin, scores + end, [](float v) { return !std::isnan(v); });
  return number ? highest : kNaN;
}

}  // namespace

size_t select_top(const float* scores, size_t count, size_t k, uint32_t* out) {
  check(count <= std::numeric_limits<uint32_t>::max(), "more scores than 32-bit indices");
  if (k == 0) return 0;
  if (count <= k) {
    for (size_t i = 0; i < count; ++i) out[i] = static_cast<uint32_t>(i);
    return count;
  }
  if (const uint32_t least = sampled_threshold(scores, count, k); least > 0) {
    TopSelector selector(k, least);
    selector.add(scores, 0, count);
    if (selector.size() >= k) return selector.finish(out);
  }
  TopSelector selector(k, 0);
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
  best[count - 1] = kInfinity;
  return select_top(best.data(), count, blocks, out);
}

size_t select_top_in_blocks(const float* scores, size_t visible, size_t k, size_t block,
                            std::span<const uint32_t> candidates, uint32_t* out) {
  if (k == 0) return 0;
  TopSelector selector(k, 0);
  for (size_t i = 0; i < candidates.size();) {
    const size_t first = candidates[i];
    size_t run = 1;  // neighbouring blocks are one range
    while (i + run < candidates.size() && candidates[i + run] == first + run) ++run;
    const size_t begin = std::min(visible, first * block);
    selector.add(scores, begin, std::min(visible, (first + run) * block));
    i += run;
  }
  return selector.finish(out);
}

}  // namespace deepinfer::kernels
