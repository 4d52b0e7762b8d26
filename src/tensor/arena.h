#pragma once

// Arena: many buffers of one lifetime side by side on huge pages. Weights of a model live in one: a
// matrix of a small model is smaller than a huge page, and reading it from 4 KiB pages costs a
// quarter of the memory bandwidth.
//
// Ownership: allocations live as long as the arena. Threads: allocate() from one thread at a time.

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace deepinfer {

class Arena {
 public:
  // Readable bytes that follow every allocation: the most that a kernel prefetches past a matrix.
  static constexpr size_t kSlackBytes = 8192;

  // Zeroed, 64-byte aligned, kSlackBytes of mapped memory behind it. Fails (exhausted) when the
  // system has no such memory.
  Result<std::byte*> allocate(size_t bytes);

  size_t bytes() const { return used_total_; }

 private:
  static constexpr size_t kBlockBytes = size_t{64} << 20;

  std::vector<Buffer> blocks_;
  size_t used_in_last_ = 0;
  size_t used_total_ = 0;
};

}  // namespace deepinfer
