#include "cache/snapshot_store.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace deepinfer::cache {
namespace {

// The shared system part serves every conversation, a branch at least two; ends serve one; the
// grid is insurance. A preempted one is pinned, and counts as a branch beside a second reason.
double weight(SnapshotKind kind) {
  switch (kind) {
    case SnapshotKind::system:
      return 8;
    case SnapshotKind::branch:
    case SnapshotKind::preempted:
      return 4;
    case SnapshotKind::prompt:
    case SnapshotKind::output:
      return 2;
    case SnapshotKind::grid:
      return 1;
  }
  return 1;
}

}  // namespace

std::shared_ptr<const Snapshot> SnapshotStore::share(const Snapshot* snapshot) const {
  const auto found = owned_.find(snapshot);
  check(found != owned_.end(), "snapshot of another store");
  return found->second;
}

double SnapshotStore::worth_now(SnapshotKind kind, uint64_t distance) const {
  const double pages = static_cast<double>(distance) / static_cast<double>(kTokensPerPage);
  return age_ + weight(kind) * (1 + std::log2(1 + pages));
}

void SnapshotStore::place(Snapshot* snapshot, uint64_t distance) {
  snapshot->worth = worth_now(snapshot->kind, distance);
  snapshot->tick = ++tick_;
  if (!snapshot->pinned) order_.insert(snapshot);
}

Snapshot* SnapshotStore::add(std::unique_ptr<Snapshot> snapshot,
                             std::span<const std::byte> frontier, uint64_t distance) {
  check(bytes_ + frontier.size() <= max_bytes_, "snapshot over the budget");
  std::shared_ptr<Snapshot> owned = std::move(snapshot);
  owned->bytes = Buffer(frontier.size());
  std::memcpy(owned->bytes.data(), frontier.data(), frontier.size());
  owned->pinned = owned->kind == SnapshotKind::preempted;
  bytes_ += frontier.size();
  Snapshot* added = owned.get();
  owned_.emplace(added, std::move(owned));
  place(added, distance);
  return added;
}

void SnapshotStore::renew(Snapshot* snapshot, SnapshotKind kind, uint64_t distance) {
  if (!snapshot->pinned) order_.erase(snapshot);
  if (kind == SnapshotKind::preempted) snapshot->pinned = true;
  const bool more = weight(kind) > weight(snapshot->kind);
  if (more && kind != SnapshotKind::preempted) snapshot->kind = kind;
  place(snapshot, distance);
}

void SnapshotStore::unpin(Snapshot* snapshot, uint64_t distance) {
  if (!snapshot->pinned) return;
  snapshot->pinned = false;
  if (snapshot->kind == SnapshotKind::preempted) snapshot->kind = SnapshotKind::output;
  place(snapshot, distance);
}

Snapshot* SnapshotStore::least_valuable() const {
  // Those that a lease holds are few: as many as admissions in flight.
  for (Snapshot* snapshot : order_) {
    if (owned_.at(snapshot).use_count() == 1) return snapshot;
  }
  return nullptr;
}

void SnapshotStore::grow_old(double worth) { age_ = std::max(age_, worth); }

void SnapshotStore::erase(Snapshot* snapshot) {
  if (!snapshot->pinned) order_.erase(snapshot);
  bytes_ -= snapshot->bytes.size();
  check(owned_.erase(snapshot) == 1, "snapshot of another store");
}

void SnapshotStore::check_invariants() const {
  uint64_t bytes = 0;
  size_t unpinned = 0;
  for (const auto& [key, snapshot] : owned_) {
    bytes += snapshot->bytes.size();
    unpinned += snapshot->pinned ? 0 : 1;
    check(snapshot->pinned || order_.contains(snapshot.get()), "snapshot without a place");
  }
  check(bytes == bytes_ && bytes <= max_bytes_, "bytes of snapshots");
  check(unpinned == order_.size(), "place of a snapshot that is not there");
}

}  // namespace deepinfer::cache
