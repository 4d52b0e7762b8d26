#pragma once

// The places where weights lie, for `selftest`: budgets of streamed experts that make some of them
// come from disk, and a packed copy of a checkpoint that goes away with its owner.
//
// Threads: the main thread.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/isa.h"
#include "weights/checkpoint.h"

namespace deepinfer::apps {

// Two budgets that hold a part of the routed experts, and one that holds all; empty for a model
// without experts.
Result<std::vector<uint64_t>> stream_budgets(const weights::Checkpoint& checkpoint);

class PackedCopy {
 public:
  // Weights beyond this are not copied: packing takes as much disk again.
  static constexpr uint64_t kMostBytes = uint64_t{4} << 30;

  static Result<PackedCopy> create(const weights::Checkpoint& checkpoint, kernels::Isa isa);
  ~PackedCopy();
  PackedCopy(PackedCopy&& other) noexcept;
  PackedCopy& operator=(PackedCopy&&) = delete;

  const weights::Checkpoint& checkpoint() const { return *checkpoint_; }

 private:
  explicit PackedCopy(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
  std::unique_ptr<weights::Checkpoint> checkpoint_;
};

// Whether the checkpoint is a packed one.
bool is_packed(const weights::Checkpoint& checkpoint);

}  // namespace deepinfer::apps
