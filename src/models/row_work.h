#pragma once

// RowWork: what every family does with the rows of a step: run a function over them on the pool,
// and notice values that are no numbers, without an exception and without a branch per value.
//
//   work.for_rows(rows, width, [&](size_t row, size_t worker) {
//     work.expect_finite(x + row * width, width);
//     ...
//   });
//   if (work.found_bad()) return not_finite(in_layer(layer, "ffn down"));
//
// Threads: for_rows() and found_bad() from the thread of forward(); expect_finite() from workers.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/row_ops.h"

namespace deepinfer::models {

class RowWork {
 public:
  RowWork(ThreadPool& pool, kernels::Isa isa) : pool_(pool), ops_(kernels::row_ops(isa)) {}

  ThreadPool& pool() { return pool_; }
  const kernels::RowOps& ops() const { return ops_; }

  // function(row, worker) for every row, in chunks that are worth a worker.
  template <class Function>
  void for_rows(size_t rows, size_t floats_per_row, Function&& function) {
    const size_t wanted = (kFloatsPerChunk + floats_per_row - 1) / floats_per_row;
    const size_t per_chunk = (wanted + kRowsTogether - 1) / kRowsTogether * kRowsTogether;
    pool_.run((rows + per_chunk - 1) / per_chunk, [&](size_t chunk, size_t worker) {
      const size_t end = std::min(rows, (chunk + 1) * per_chunk);
      for (size_t row = chunk * per_chunk; row < end; ++row) function(row, worker);
    });
  }

  // Remembers that a value was NaN or infinite. found_bad() tells and forgets.
  void expect_finite(const float* values, size_t count) {
    if (!ops_.all_finite(values, count)) bad_.store(true, std::memory_order_relaxed);
  }
  bool found_bad() { return bad_.exchange(false, std::memory_order_relaxed); }

 private:
  // Work of a row region that is worth another worker: below it the caller does all by itself.
  static constexpr size_t kFloatsPerChunk = 16384;
  // Neighbouring rows share cache lines in Activations, so they go to one worker.
  static constexpr size_t kRowsTogether = 4;

  ThreadPool& pool_;
  const kernels::RowOps& ops_;
  std::atomic<bool> bad_{false};
};

// "layer 3 ffn down"
inline std::string in_layer(size_t layer, std::string_view operation) {
  return "layer " + std::to_string(layer) + " " + std::string(operation);
}

// The error of forward() when found_bad().
inline Error not_finite(std::string where) {
  return Error{ErrorKind::internal, std::move(where), "the result is NaN or infinite",
               "the weights may be damaged: compare the file's checksum"};
}

}  // namespace deepinfer::models
