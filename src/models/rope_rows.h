#pragma once

// RopeRows: the rotations of the rows of a step: one table, cosine and sine per row. The DeepSeek
// families rotate the last dimensions of a head, in interleaved pairs, and rotate attention's
// result back.
//
// Threads: fill() from the thread of forward() on the pool; rotate() from workers.

#include <cstdint>
#include <span>

#include "base/result.h"
#include "kernels/rope.h"
#include "kernels/row_ops.h"
#include "models/row_work.h"
#include "tensor/tensor.h"
#include "weights/model_config.h"

namespace deepinfer::models {

kernels::RopeParameters rope_parameters(const weights::RopeConfig& config);

class RopeRows {
 public:
  static Result<RopeRows> create(const weights::RopeConfig& config, size_t max_rows);

  void fill(RowWork& work, std::span<const uint64_t> positions);
  size_t bytes() const { return rows_.size(); }
  size_t dims() const { return 2 * table_.pairs(); }

  // The last dims() of head [head_dim], by the position of `row`.
  void rotate(const kernels::RowOps& ops, size_t row, float* head, size_t head_dim) const {
    const float* at = rows_.as<float>() + row * stride();
    ops.rope(head + head_dim - dims(), at, at + pairs(), pairs(),
             kernels::RopePairing::interleaved);
  }
  void rotate_back(const kernels::RowOps& ops, size_t row, float* head, size_t head_dim) const {
    const float* at = rows_.as<float>() + row * stride();
    ops.rope(head + head_dim - dims(), at, at + 2 * pairs(), pairs(),
             kernels::RopePairing::interleaved);
  }
  // The first dims() of head, in half-split pairs: the indexer of V3.2.
  void rotate_front(const kernels::RowOps& ops, size_t row, float* head) const {
    const float* at = rows_.as<float>() + row * stride();
    ops.rope(head, at, at + pairs(), pairs(), kernels::RopePairing::half_split);
  }
  // By a position that is no row's (an entry's); scratch [dims()].
  void rotate_at(const kernels::RowOps& ops, uint64_t position, float* head, size_t head_dim,
                 float* scratch) const {
    table_.fill(position, scratch, scratch + pairs());
    ops.rope(head + head_dim - dims(), scratch, scratch + pairs(), pairs(),
             kernels::RopePairing::interleaved);
  }

 private:
  RopeRows(kernels::RopeTable table, Buffer rows)
      : table_(std::move(table)), rows_(std::move(rows)) {}
  size_t pairs() const { return table_.pairs(); }
  size_t stride() const { return 3 * pairs(); }

  kernels::RopeTable table_;
  Buffer rows_;  // [max_rows][cosine | sine | -sine], [pairs] each
};

}  // namespace deepinfer::models
