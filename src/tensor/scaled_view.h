#pragma once

// ScaledView: a matrix [outputs, inputs] as a checkpoint stores it: codes, and for FP8 and FP4 a
// second tensor of block scales.
//
//   value(n, k) = code(n, k) * scale(n / tile_outputs, k / tile_inputs)
//
// FP4 codes (F4_E2M1) have the shape [outputs, inputs] with two codes a byte, low nibble first:
// files that call them I8 [outputs, inputs / 2] are turned by the folder that reads names.
//
// Threads: a plain value that does not own.

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "tensor/tensor.h"

namespace deepinfer {

struct ScaledView {
  TensorView codes;   // [outputs, inputs]
  TensorView scales;  // data null: none, or folded into panels. F8_E8M0 or F32,
                      // [ceil(outputs / tile_outputs), ceil(inputs / tile_inputs)]
  // 0: never had scales. When codes are panels, these and scales.dtype still say what is in them.
  uint32_t tile_outputs = 0;
  uint32_t tile_inputs = 0;

  bool scaled() const { return scales.data != nullptr; }
  uint64_t outputs() const { return codes.rows(); }
  uint64_t inputs() const { return codes.row_elements(); }
  size_t bytes() const { return codes.bytes() + (scaled() ? scales.bytes() : 0); }

  // What the code of this place is multiplied by; 1 without scales.
  float scale(uint64_t output, uint64_t input) const;

  // Outputs [first, first + count) as a matrix of its own. Requires: first is a multiple of
  // tile_outputs when scaled.
  ScaledView slice_outputs(uint64_t first, uint64_t count) const;
};

// out [inputs]: row `output`, exact: one float product of code and scale. An FP8 NaN code or a NaN
// scale gives NaN.
void decode_row(const ScaledView& matrix, uint64_t output, float* out);

// The part of check_scaled() that reads no data: shapes and the dtype of the scales.
Result<void> check_scaled_shape(const ScaledView& matrix, const std::string& name);

// Scales of the shape the tiles ask for, of a dtype that is known; no FP8 NaN code, no scale that
// is NaN, infinite or negative. Reads everything once; of panels only the shapes: who packed them
// checked them. name: how errors call the matrix.
Result<void> check_scaled(const ScaledView& matrix, const std::string& name);

}  // namespace deepinfer
