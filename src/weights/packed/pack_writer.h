#pragma once

// write_packed(): a packed checkpoint (weights/packed/packed.h) out of any other.
//
// Resumable: the work lies in <out>.partial with a journal of the tensors that are written and
// synced; a second run with the same original and instruction set goes on there, any other starts
// over. Atomic: <out> appears by a rename, complete. The original is read and kept.
// Memory: a few pieces of 64 MB, whatever the size of the model.
//
// Threads: the caller's, and the pool; `cancel` may be set from anywhere (ErrorKind::cancelled, and
// the partial work stays).

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/isa.h"
#include "tensor/scaled_view.h"
#include "weights/checkpoint.h"

namespace deepinfer::weights {

struct PackSummary {
  uint64_t original_bytes = 0;
  uint64_t packed_bytes = 0;  // of the file
  size_t tensors = 0;
  size_t packed_tensors = 0;
  size_t resumed_tensors = 0;  // found in the partial work
};

struct PackOptions {
  kernels::Target target;
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes; may be empty
  const std::atomic<bool>* cancel = nullptr;
};

// matrices: those that the model multiplies by, whole tensors of the checkpoint; all others are
// copied as they are, except the scales that the matrices' panels hold. Fails (invalid) when `out`
// exists or the checkpoint is packed already, (io) naming the file and offset.
Result<PackSummary> write_packed(const Checkpoint& checkpoint,
                                 const std::vector<ScaledView>& matrices, const std::string& out,
                                 ThreadPool& pool, const PackOptions& options);

// Reads everything and compares the checksums; names the first tensor that differs.
Result<void> verify_packed(const std::string& directory, ThreadPool& pool,
                           const std::function<void(uint64_t done, uint64_t total)>& progress);

}  // namespace deepinfer::weights
