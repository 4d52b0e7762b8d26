#include "speculation/ngram_drafter.h"

#include <algorithm>

#include "base/check.h"

namespace deepinfer::speculation {
namespace {

constexpr size_t kFirstSlots = 256;
constexpr size_t kWays = 4;    // slots of a bucket
constexpr double kKept = 0.9;  // of an observation, at the next one

// First slot of the bucket of an n-gram. Multiplicative hashing (Knuth, volume 3, 6.4).
size_t bucket_of(const int32_t* ngram, size_t length, size_t slots) {
  uint64_t hash = length;
  for (size_t i = 0; i < length; ++i) {
    hash = (hash + static_cast<uint32_t>(ngram[i]) + 1) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  }
  return static_cast<size_t>(hash >> 32) & (slots - 1) & ~(kWays - 1);
}

// Whether the n-gram ends at `end` in ids.
bool stands_at(std::span<const int32_t> ids, size_t end, const int32_t* ngram, size_t length) {
  return end >= length && end < ids.size() &&
         std::equal(ngram, ngram + length, ids.data() + end - length);
}

}  // namespace

NgramDrafter::NgramDrafter(size_t most) : most_(most) {
  check(most > 0, "a drafter that proposes nothing");
}

size_t NgramDrafter::index_bytes(uint64_t sequence) const {
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end()) return 0;
  size_t bytes = 0;
  for (const auto& ends : found->second.ends) bytes += ends.capacity() * sizeof(uint32_t);
  return bytes;
}

// Indexes the n-grams that end before the last id: something follows each of them.
void NgramDrafter::extend(Index& index, std::span<const int32_t> ids) {
  const size_t stop = ids.empty() ? 0 : ids.size() - 1;
  if (stop < index.indexed) index.indexed = 0;  // the sequence was cut: start over
  size_t slots = index.ends[0].size();
  const size_t wanted_slots = std::min(kMostSlots, std::max(kFirstSlots, 2 * stop));
  if (slots < wanted_slots || index.indexed == 0) {
    while (slots < wanted_slots) slots = slots == 0 ? kFirstSlots : 2 * slots;
    for (auto& ends : index.ends) ends.assign(slots, 0);
    index.indexed = 0;
  }
  for (size_t end = index.indexed + 1; end <= stop; ++end) {
    for (size_t length = kShortest; length <= std::min(kLongest, end); ++length) {
      const int32_t* ngram = ids.data() + end - length;
      uint32_t* bucket = index.ends[length - kShortest].data() + bucket_of(ngram, length, slots);
      // In the place of its last occurrence, else of the oldest of the bucket.
      uint32_t* place = std::min_element(bucket, bucket + kWays);
      for (size_t way = 0; way < kWays; ++way) {
        if (stands_at(ids, bucket[way], ngram, length)) place = bucket + way;
      }
      *place = static_cast<uint32_t>(end);
    }
  }
  index.indexed = stop;
}

// Whether the last proposal stood, once the id at its place is known.
void NgramDrafter::judge(Index& index, std::span<const int32_t> ids) {
  if (index.drafted_at == 0 || ids.size() <= index.drafted_at) return;
  const size_t i = index.drafted_length - kShortest;
  const bool stood = ids[index.drafted_at] == index.drafted_id;
  index.stood[i] = index.stood[i] * kKept + (stood ? 1.0 : 0.0);
  index.judged[i] = index.judged[i] * kKept + 1.0;
  index.drafted_at = 0;
}

NgramDrafter::Match NgramDrafter::find(const Index& index, std::span<const int32_t> ids) {
  for (size_t length = std::min(kLongest, ids.size()); length >= kShortest; --length) {
    const int32_t* suffix = ids.data() + ids.size() - length;
    const auto& ends = index.ends[length - kShortest];
    const uint32_t* bucket = ends.data() + bucket_of(suffix, length, ends.size());
    for (size_t way = 0; way < kWays; ++way) {
      if (stands_at(ids, bucket[way], suffix, length)) return {bucket[way], length};
    }
  }
  return {};
}

void NgramDrafter::propose(DraftTask& task) {
  check(task.draft != nullptr, "a task without a place for its draft");
  task.draft->clear();
  Index& index = sequences_[task.sequence];
  judge(index, task.ids);
  extend(index, task.ids);
  index.drafted_at = 0;
  const size_t count = std::min(task.most, most_);
  if (count == 0) return;
  const Match match = find(index, task.ids);
  if (match.end == 0) return;
  const size_t period = task.ids.size() - match.end;  // 1 or more
  const size_t i = match.length - kShortest;
  const double confidence = (index.stood[i] + 0.5) / (index.judged[i] + 1.0);
  for (size_t k = 0; k < count; ++k) {
    const int32_t id = k < period ? task.ids[match.end + k] : task.draft->ids[k - period];
    task.draft->ids.push_back(id);
    task.draft->confidences.push_back(static_cast<float>(confidence));
  }
  index.drafted_at = task.ids.size();
  index.drafted_length = match.length;
  index.drafted_id = task.draft->ids.front();
}

Result<void> NgramDrafter::draft(std::span<DraftTask> tasks) {
  for (DraftTask& task : tasks) propose(task);
  return {};
}

void NgramDrafter::committed(uint64_t sequence, std::span<const int32_t> ids) {
  Index& index = sequences_[sequence];
  judge(index, ids);
  extend(index, ids);
}

}  // namespace deepinfer::speculation
