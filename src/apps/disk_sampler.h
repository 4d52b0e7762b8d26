#pragma once

// DiskSampler: bytes per second of the files that hold a checkpoint's weights, read as streamed
// experts are: past the page cache, in pieces of 4 MiB at random places, 256 MiB a sample. Holes of
// sparse files are left out, no disk reads them.
//
// Threads: one.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"
#include "weights/checkpoint.h"
#include "weights/disk/disk_reader.h"

namespace deepinfer::apps {

class DiskSampler {
 public:
  // Fails (unsupported) when the files hold less than a block of data.
  static Result<DiskSampler> create(const weights::Checkpoint& checkpoint);
  Result<double> sample();

 private:
  struct Extent {
    uint32_t file;
    uint64_t begin, bytes;  // data of whole blocks, a piece at least
  };
  uint64_t random(uint64_t below);

  std::unique_ptr<weights::DiskReader> reader_;
  std::vector<Extent> extents_;
  uint64_t piece_ = 0;  // bytes
  uint64_t total_ = 0;  // of all extents
  uint64_t seed_ = 1;
  Buffer target_;  // [kTogether][piece]
};

}  // namespace deepinfer::apps
