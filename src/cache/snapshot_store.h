#pragma once

// SnapshotStore: copies of frontiers within a budget of bytes, ordered by value.
//
// Value (source: the GreedyDual rule): worth = age + weight of the kind * (1 + log2(1 + pages to
// compute again without it)), set when it is made and at each use; `age` is the worth of the last
// one that had to go. So what is used stays, what saves much stays longer, and nothing stays for
// ever. Preempted ones are pinned: they have no place in the order until they are taken.
//
// Invariants (check_invariants()):
//   1. bytes() is the sum of all snapshots' bytes and at most max_bytes;
//   2. the order holds exactly the snapshots that are not pinned.
//
// Threads: the engine's thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>

#include "cache/page_text.h"
#include "cache/sequence_start.h"
#include "tensor/tensor.h"

namespace deepinfer::cache {

struct PrefixNode;

struct Snapshot {
  PrefixNode* below = nullptr;  // the node of all complete pages before the page of its last token
  PageText text;                // the tokens after those, up to its position; 1 .. 128
  Exactness exactness = Exactness::exact;
  uint64_t position = 0;
  SequenceStart start;
  SnapshotKind kind = SnapshotKind::grid;
  bool pinned = false;
  Buffer bytes;  // [frontier_bytes of the layout]
  double worth = 0;
  uint64_t tick = 0;  // of the last use
};

class SnapshotStore {
 public:
  explicit SnapshotStore(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  uint64_t bytes() const { return bytes_; }
  uint64_t max_bytes() const { return max_bytes_; }
  size_t size() const { return owned_.size(); }
  bool holds(const Snapshot* snapshot) const { return owned_.contains(snapshot); }
  // A reference that keeps it from being evicted.
  std::shared_ptr<const Snapshot> share(const Snapshot* snapshot) const;

  // The worth that a snapshot used now has; `distance` in tokens to the resume point before it.
  double worth_now(SnapshotKind kind, uint64_t distance) const;
  // Requires room.
  Snapshot* add(std::unique_ptr<Snapshot> snapshot, std::span<const std::byte> frontier,
                uint64_t distance);
  // Counts as a use; the kind becomes the more valuable of the two. preempted pins.
  void renew(Snapshot* snapshot, SnapshotKind kind, uint64_t distance);
  // A preempted one was taken, or will not be: from now on an output's.
  void unpin(Snapshot* snapshot, uint64_t distance);
  // The first that may go; null: all are pinned or shared.
  Snapshot* least_valuable() const;
  // Nothing of less worth is kept any longer.
  void grow_old(double worth);
  // The bytes live on while they are shared.
  void erase(Snapshot* snapshot);

  void check_invariants() const;

 private:
  struct ByWorth {
    bool operator()(const Snapshot* a, const Snapshot* b) const {
      return a->worth != b->worth ? a->worth < b->worth : a->tick < b->tick;
    }
  };
  void place(Snapshot* snapshot, uint64_t distance);

  uint64_t max_bytes_;
  uint64_t bytes_ = 0;
  uint64_t tick_ = 0;
  double age_ = 0;
  std::unordered_map<const Snapshot*, std::shared_ptr<Snapshot>> owned_;
  std::set<Snapshot*, ByWorth> order_;
};

}  // namespace deepinfer::cache
