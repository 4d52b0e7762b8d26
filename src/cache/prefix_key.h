#pragma once

// PrefixKey: what a sequence's tokens are, and the grades of what is kept about them.
//
// Threads: plain values.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/hash.h"

namespace deepinfer::cache {

// Positions that an image takes, and what it shows: the ids there are the same for every image.
struct ContentSpan {
  size_t start = 0;
  size_t count = 0;
  Hash128 content;
  bool operator==(const ContentSpan&) const = default;
};

// What a sequence's tokens are. The views must outlive the call only.
struct PrefixKey {
  std::span<const int32_t> ids;
  std::span<const ContentSpan> contents = {};  // ascending, apart
  uint64_t salt = 0;  // of the tenant: sequences of different salts never share
};

// Pages whose entries came out of a bounded replay are not those of a computation in full; only a
// lookup that allows it finds them.
enum class Exactness { exact, approximate };

// Why a snapshot is worth keeping; the value of a resume point in eviction.
enum class SnapshotKind { prompt, output, system, branch, grid, preempted };

}  // namespace deepinfer::cache
