#pragma once

// Rounding: what `faithful` does to activations of the DeepSeek families and the other numerics do
// not: values that the official code stores in bf16 are rounded to bf16, inputs of products with
// FP8 and FP4 matrices to E4M3 with a UE8M0 scale per block (kernels/attention/latent_rows.h).
// Sources: spec v41.md 7, v4.md 3.
//
// Threads: any; a plain value.

#include <cstddef>
#include <cstdint>

#include "kernels/attention/latent_rows.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"

namespace deepinfer::models {

// FP8 or FP4 codes with block scales: the official code quantises what such a matrix multiplies.
inline bool takes_q8(const kernels::PackedMatrix& matrix) {
  return matrix.dtype() == DType::f8_e4m3 || matrix.dtype() == DType::f4_e2m1;
}

class Rounding {
 public:
  // block: 32 in V4.1, 128 in V4; 0: faithful rounds nothing either.
  Rounding(kernels::Target target, uint32_t block)
      : ops_(&kernels::latent_row_ops(target.isa)),
        on_(target.numerics == kernels::Numerics::faithful && block != 0),
        block_(block) {}

  bool on() const { return on_; }
  uint32_t block() const { return on_ ? block_ : 0; }
  // x in place; nothing unless on().
  void bf16(float* x, size_t n) const {
    if (on_) ops_->round_bf16(x, n);
  }
  void q8(float* x, size_t n) const {
    if (on_) ops_->round_q8(x, n, block_);
  }
  // The input of a product with `matrix`.
  void input_of(const kernels::PackedMatrix& matrix, float* x, size_t n) const {
    if (on_ && takes_q8(matrix)) ops_->round_q8(x, n, block_);
  }

 private:
  const kernels::LatentRowOps* ops_;
  bool on_;
  uint32_t block_;
};

}  // namespace deepinfer::models
