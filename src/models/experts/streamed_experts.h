#pragma once

// StreamedExperts: routed experts fetched from disk through a bounded number of slots
// (weights/disk/streamed_blocks.h); the other ExpertSource is ResidentExperts.
//
// An expert's slot holds its three matrices packed for the kernels, so results are bit for bit
// those of resident experts. From a packed checkpoint the bytes go straight into the slot; from any
// other they are packed on arrival, on the pool.
//
// Memory: the budget counts slots and what waits to be packed. The floor is what one row of one
// layer reads at a time (per_token experts); create() refuses less, naming both numbers.
//
// Threads: acquire() from the thread of forward(), which must not be inside the pool.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/isa.h"
#include "models/experts/expert_source.h"
#include "weights/checkpoint.h"
#include "weights/deepseek/deepseek_tensors.h"
#include "weights/disk/disk_reader.h"

namespace deepinfer::models {

class StreamedExperts final : public ExpertSource {
 public:
  struct Options {
    kernels::Target target;
    uint64_t budget_bytes = 0;
    size_t per_token = 0;  // experts of a row in a layer
    weights::DiskReader::Options disk;
  };
  // layers[l]: the experts of source layer l, all of one shape and storage. The checkpoint and the
  // pool must outlive the source.
  static Result<std::unique_ptr<StreamedExperts>> create(
      const weights::Checkpoint& checkpoint,
      std::span<const std::span<const weights::ExpertTensors>> layers, ThreadPool& pool,
      const Options& options);
  ~StreamedExperts() override;

  Result<ExpertLease> acquire(size_t layer, std::span<const int32_t> experts) override;
  size_t resident_bytes() const override;
  StreamCounters counters() const override;

  size_t slot_count() const;
  size_t expert_bytes() const;  // of one slot
  // The least budget that create() takes for these shapes.
  static Result<uint64_t> floor_bytes(const weights::ExpertTensors& expert, const Options& options);
  // "64 slots of 13.4 MB: 1.8 times what a token reads", for logs and plans.
  std::string text() const;

 private:
  struct State;
  explicit StreamedExperts(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer::models
