#pragma once

// StreamedBlocks: numbered blocks of bytes on disk (one block: a routed expert), of which a bounded
// number is in memory. A block lies in a slot; slots are equal and allocated once.
//
//   auto lease = TRY(blocks.acquire(ids));   // reads what is missing, in one batch
//   lease.slots[i]                           // bytes of block ids[i], until the lease ends
//
// A slot is pinned from acquire() to the end of the lease and never reused before: what a lease
// shows cannot change under its reader. Of the slots that are not pinned the least recently used
// one goes first. When ids need more slots than there are, the lease holds the first ones only.
//
// A block's bytes may be transformed once on arrival (packed for the kernels), and are checked
// against a checksum where the checkpoint has one. A block that fails is dropped: the error names
// file and offset, other blocks stay, and the next acquire() tries again.
//
// Invariants (check_invariants()):
//   1. a block is in one slot at most, and a slot that holds it says so;
//   2. pins of a slot == leases that list it; a pinned slot holds a block.
//
// Threads: acquire() and the end of leases from one thread; slots may be read by any.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"
#include "weights/disk/disk_reader.h"

namespace deepinfer::weights {

// A piece of a block on disk; a block's pieces lie one after the other in its raw form.
struct BlockPart {
  uint32_t file = 0;
  uint64_t offset = 0;
  size_t bytes = 0;
  std::optional<uint64_t> checksum;  // XXH3-64
};

struct StreamedCounters {
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t bytes_read = 0;
  double wait_seconds = 0;  // of acquire(), reading and transforming
};

class StreamedBlocks {
 public:
  struct Lease {
    std::vector<const std::byte*> slots;
    std::vector<uint32_t> slot_index;  // the same slots, numbered
  };
  struct Options {
    size_t slots = 0;       // >= 1
    size_t slot_bytes = 0;  // of a block after the transformation
    // raw bytes of the block (its parts in order) -> slot; empty: they are stored as they are.
    // Called by several threads at once.
    std::function<Result<void>(uint32_t block, std::span<const std::byte> raw,
                               std::span<std::byte> slot)>
        transform;
    // Runs function(0 .. count - 1), in parallel if it likes. Empty: one after the other.
    std::function<void(size_t count, const std::function<void(size_t)>& function)> parallel;
    size_t batch = 8;  // blocks read at once when there is a transformation: raw bytes wait here
  };

  // blocks[b]: the parts of block b; no larger than slot_bytes without a transformation. Fails
  // (exhausted) when the slots cannot be allocated.
  static Result<std::unique_ptr<StreamedBlocks>> create(std::unique_ptr<DiskReader> reader,
                                                        std::vector<std::vector<BlockPart>> blocks,
                                                        std::vector<std::string> paths,
                                                        Options options);
  ~StreamedBlocks();
  StreamedBlocks(const StreamedBlocks&) = delete;
  StreamedBlocks& operator=(const StreamedBlocks&) = delete;

  // ids: distinct.
  Result<Lease> acquire(std::span<const uint32_t> ids);
  void release(const Lease& lease);

  size_t slot_count() const;
  size_t bytes() const;  // slots and what waits to be transformed
  const StreamedCounters& counters() const;
  void check_invariants() const;

 private:
  struct State;
  explicit StreamedBlocks(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer::weights
