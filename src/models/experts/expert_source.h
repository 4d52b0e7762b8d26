#pragma once

// ExpertSource: the routed experts of all layers of a model, resident or fetched from disk.
//
//   ExpertLease lease = TRY(source.acquire(layer, experts));   // pinned until the lease ends
//   lease.matrices[i].gate ...
//
// The matrices' bytes are the same whatever the source does, so results are too.
// Threads: acquire() from one thread at a time; a lease may be read by workers.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kernels/matmul.h"
#include "models/model.h"
#include "weights/deepseek/deepseek_tensors.h"

namespace deepinfer::models {

struct ExpertMatrices {
  kernels::PackedMatrix gate, up;  // [width, hidden]
  kernels::PackedMatrix down;      // [hidden, width]
  size_t bytes() const { return gate.bytes() + up.bytes() + down.bytes(); }
};

// Bytes of an expert's gate, up and down as they are packed for `target`; reads no weights.
inline Result<std::array<size_t, 3>> packed_bytes(const weights::ExpertTensors& expert,
                                                  kernels::Target target) {
  std::array<size_t, 3> bytes{};
  bytes[0] = TRY(kernels::PackedMatrix::packed_bytes(expert.gate, target));
  bytes[1] = TRY(kernels::PackedMatrix::packed_bytes(expert.up, target));
  bytes[2] = TRY(kernels::PackedMatrix::packed_bytes(expert.down, target));
  return bytes;
}

struct ExpertLease {
  std::vector<const ExpertMatrices*> matrices;  // one per expert asked for, in order
  std::function<void()> release;                // empty for resident experts
  ExpertLease() = default;
  ExpertLease(ExpertLease&& other) noexcept
      : matrices(std::move(other.matrices)), release(std::exchange(other.release, nullptr)) {}
  ExpertLease& operator=(ExpertLease&&) = delete;
  ~ExpertLease() {
    if (release) release();
  }
};

class ExpertSource {
 public:
  virtual ~ExpertSource() = default;
  // experts: distinct ids. An error (a disk that fails) names file and offset; nothing stays
  // pinned. A source that cannot hold all of them at once hands them out in parts: it returns fewer
  // than asked for (at least one), the first ones, and the caller comes back for the rest.
  virtual Result<ExpertLease> acquire(size_t layer, std::span<const int32_t> experts) = 0;
  // Memory of its own, beside what the model's arena holds.
  virtual size_t resident_bytes() const = 0;
  virtual StreamCounters counters() const { return {}; }
};

}  // namespace deepinfer::models
