#pragma once

// Engram: rows of a large table, chosen by the last ids, gated into the residual streams before a
// layer. Source: spec v41.md 4.8.
//
//   e = the position's table rows, concatenated; key[n][D] | value[D] = kv e
//   dot_j = sum_i X_j[i] w_j[i] key_j[i] / rms(X_j) / rms(key_j) / sqrt(D)   w = q_weight *
//   k_weight X_j += sigmoid(sign(dot_j) sqrt(max(|dot_j|, 1e-6))) * value             image
//   positions: not
//
// The classes of past ids are a growing stream of the cache, 4 bytes a token: they survive chunks,
// rollback and resumption like every other entry. Table rows are read by a disk reader through the
// page cache: many at once, without the read-ahead of a mapping, and a disk's failure or a file
// that shrank is an error of the step.
//
// Threads: from the thread of forward(), on the pool.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/matmul.h"
#include "models/deepseek_v41/engram_hash.h"
#include "models/hyper_streams.h"
#include "models/profile.h"
#include "models/rounding.h"
#include "models/row_work.h"
#include "models/step_runs.h"
#include "tensor/scaled_view.h"
#include "weights/disk/disk_reader.h"

namespace deepinfer::models {

// One layer's.
struct EngramLayer {
  size_t index = 0;           // of the Engram layers
  ScaledView table;           // [rows, head_dim]; its data is not read here
  kernels::PackedMatrix kv;   // [(n + 1) * D, rows_per_position * head_dim]
  std::vector<float> weight;  // [n][D], q_weight * k_weight
  // Where the table's first row lies and what a row takes.
  weights::DiskRange codes, scales;
};

class Engram {
 public:
  Engram(EngramHash hash, const weights::DeepseekV41Config& config, kernels::Target target,
         Rounding rounding, RowWork& work, Profile& profile);
  // reader: of the checkpoint's files.
  Result<void> create(size_t max_rows, size_t threads, std::unique_ptr<weights::DiskReader> reader);
  size_t bytes() const;
  const EngramHash& hash() const { return hash_; }

  uint64_t bytes_read() const { return bytes_read_; }  // by the disk reader

  // Writes the classes of the step's rows; image [rows]: 1 where the position is of an image.
  void remember(std::span<const StepRun> runs, std::span<const int32_t> ids,
                std::span<const uint8_t> image, size_t stream);
  // Adds to the streams of all rows of the runs.
  Result<void> apply(const EngramLayer& layer, std::span<const StepRun> runs,
                     std::span<const uint8_t> image, HyperStreams& streams,
                     const std::string& where);

  // Table rows of a position, for tests: [rows_per_position()].
  void rows_of(const EngramLayer& layer, const StepRun& run, uint64_t position,
               uint64_t* out) const;

 private:
  // Numbers of the table rows of every row of the step.
  void find_rows(const EngramLayer& layer, std::span<const StepRun> runs, size_t rows);
  // Reads them from disk, and gives them as a table of their own, in order.
  Result<ScaledView> fetch(const EngramLayer& layer, size_t rows);
  void gate_row(const EngramLayer& layer, const float* key_value, float* streams) const;

  const EngramHash hash_;
  const size_t hidden_, streams_, head_dim_;
  const float eps_;
  const kernels::Target target_;
  const Rounding rounding_;
  RowWork& work_;
  Profile& profile_;
  PageLists pages_;  // of the classes
  kernels::Activations activations_;
  std::unique_ptr<weights::DiskReader> reader_;
  std::vector<weights::DiskRange> ranges_;
  std::vector<uint64_t> numbers_;  // [rows][rows_per_position]
  Buffer fetched_;                 // [max_rows][rows_per_position] codes, then as many scales
  uint64_t bytes_read_ = 0;
  Buffer rows_;       // [threads][rows_per_position * head_dim]
  Buffer key_value_;  // [max_rows][(n + 1) * D]
};

}  // namespace deepinfer::models
