#pragma once

// NgramDrafter: proposes what followed the last tokens the time before (prompt lookup). The longest
// suffix of kLongest down to kShortest ids that occurred earlier in prompt or output is looked up,
// its most recent occurrence first, and what followed is proposed; where that reaches the end it
// goes on in itself, so a loop is proposed as a loop. No occurrence: no proposal, no cost.
//
// The index of a sequence maps a hash of each n-gram to where it ended last: O(1) per new token,
// amortised. It holds up to kMostSlots positions per length, beyond that the most recent, so that
// its memory is bounded by 12 * kMostSlots bytes whatever the context. Found positions are compared
// with the ids themselves: a collision proposes nothing.
//
// Confidences are the share of recent proposals of that suffix length that stood in this sequence.
//
// Threads: one thread at a time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "speculation/drafter.h"

namespace deepinfer::speculation {

class NgramDrafter final : public Drafter {
 public:
  static constexpr size_t kShortest = 2;
  static constexpr size_t kLongest = 4;
  static constexpr size_t kLengths = kLongest - kShortest + 1;
  static constexpr size_t kMostSlots = size_t{1} << 16;

  // most: proposals in a row, 1 or more.
  explicit NgramDrafter(size_t most);

  std::string_view name() const override { return "ngram"; }
  size_t most() const override { return most_; }
  Result<void> draft(std::span<DraftTask> tasks) override;
  void committed(uint64_t sequence, std::span<const int32_t> ids) override;
  void end(uint64_t sequence) override { sequences_.erase(sequence); }

  size_t sequence_count() const { return sequences_.size(); }
  size_t index_bytes(uint64_t sequence) const;  // 0 for unknown ones

 private:
  struct Index {
    // [kLengths][slots] where an n-gram ended last (position behind it), 0: nowhere.
    std::array<std::vector<uint32_t>, kLengths> ends;
    size_t indexed = 0;  // n-grams that end at or before this position are in the index
    // [kLengths] decayed counts of first proposals that stood, and of all.
    std::array<double, kLengths> stood = {};
    std::array<double, kLengths> judged = {};
    // What was proposed last, and from where: judged at the next look at the ids.
    size_t drafted_at = 0;  // ids.size() then; 0: nothing
    size_t drafted_length = 0;
    int32_t drafted_id = -1;
  };
  struct Match {
    size_t end = 0;  // position of what followed; 0: none
    size_t length = 0;
  };

  static void extend(Index& index, std::span<const int32_t> ids);
  static void judge(Index& index, std::span<const int32_t> ids);
  static Match find(const Index& index, std::span<const int32_t> ids);
  void propose(DraftTask& task);

  size_t most_;
  std::unordered_map<uint64_t, Index> sequences_;
};

}  // namespace deepinfer::speculation
