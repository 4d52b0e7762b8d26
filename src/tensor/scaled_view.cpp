#include "tensor/scaled_view.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/dtype.h"

namespace deepinfer {
namespace {

uint64_t tiles(uint64_t length, uint64_t tile) { return (length + tile - 1) / tile; }

float scale_at(const TensorView& scales, uint64_t row, uint64_t column) {
  const std::byte* at = scales.row(row);
  if (scales.dtype == DType::f8_e8m0) return ue8m0_to_f32(static_cast<uint8_t>(at[column]));
  float scale;
  std::memcpy(&scale, at + column * sizeof(float), sizeof(float));
  return scale;
}

std::string place(const char* what, uint64_t row, uint64_t column) {
  return std::string(what) + " at row " + std::to_string(row) + ", column " +
         std::to_string(column);
}

// Codes from `first_bad` up, without their sign, are NaN or, in E5M2, infinity.
Result<void> check_codes(const TensorView& codes, uint8_t first_bad, const std::string& name) {
  const uint64_t inputs = codes.row_elements();
  for (uint64_t row = 0; row < codes.rows(); ++row) {
    const auto* code = reinterpret_cast<const uint8_t*>(codes.row(row));
    unsigned bad = 0;  // looked at after the row: a loop without an exit is vectorised
    for (uint64_t k = 0; k < inputs; ++k) bad |= (code[k] & 0x7f) >= first_bad;
    for (uint64_t k = 0; bad && k < inputs; ++k) {
      if ((code[k] & 0x7f) >= first_bad) {
        return Error::corrupt(name, place("the code", row, k) + " is " + std::to_string(code[k]) +
                                        ", not a finite number in " +
                                        std::string(dtype_info(codes.dtype).name));
      }
    }
  }
  return {};
}

Result<void> check_scales(const TensorView& scales, const std::string& name) {
  for (uint64_t row = 0; row < scales.rows(); ++row) {
    for (uint64_t column = 0; column < scales.row_elements(); ++column) {
      const float scale = scale_at(scales, row, column);
      if (std::isfinite(scale) && scale >= 0) continue;
      return Error::corrupt(name, place("the scale", row, column) + " is " + std::to_string(scale));
    }
  }
  return {};
}

}  // namespace

float ScaledView::scale(uint64_t output, uint64_t input) const {
  return scaled() ? scale_at(scales, output / tile_outputs, input / tile_inputs) : 1.0f;
}

ScaledView ScaledView::slice_outputs(uint64_t first, uint64_t count) const {
  check(codes.panels == PanelLayout::rows, "panels have no rows to slice");
  check(first <= outputs() && count <= outputs() - first, "slice beyond the matrix");
  ScaledView slice = *this;
  slice.codes.shape = {count, inputs()};
  slice.codes.data = codes.row(first);
  if (!scaled()) return slice;
  check(first % tile_outputs == 0, "a slice starts with a tile");
  slice.scales.shape = {tiles(count, tile_outputs), scales.row_elements()};
  slice.scales.data = scales.row(first / tile_outputs);
  return slice;
}

void decode_row(const ScaledView& matrix, uint64_t output, float* out) {
  check(matrix.codes.panels == PanelLayout::rows, "panels have no rows to decode");
  const uint64_t inputs = matrix.inputs();
  decode_row(matrix.codes.dtype, matrix.codes.row(output), out, inputs);
  if (!matrix.scaled()) return;
  const uint64_t scale_row = output / matrix.tile_outputs;
  for (uint64_t tile = 0, k = 0; k < inputs; ++tile) {
    const float scale = scale_at(matrix.scales, scale_row, tile);
    for (const uint64_t end = std::min<uint64_t>(k + matrix.tile_inputs, inputs); k < end; ++k) {
      out[k] *= scale;
    }
  }
}

Result<void> check_scaled_shape(const ScaledView& m, const std::string& name) {
  if (m.codes.shape.rank() != 2) {
    return Error::invalid(name, "has the shape " + m.codes.shape.text() + ", a matrix has 2 axes");
  }
  const size_t unit = dtype_info(m.codes.dtype).block_elements;
  if (m.inputs() % unit != 0) {
    return Error::invalid(name, "rows have " + std::to_string(m.inputs()) + " values, " +
                                    std::string(dtype_info(m.codes.dtype).name) +
                                    " stores multiples of " + std::to_string(unit));
  }
  if (!m.scaled()) return {};
  if (m.tile_outputs == 0 || m.tile_inputs == 0) {
    return Error::invalid(name, "has scales without the size of their tiles");
  }
  if (m.scales.dtype != DType::f8_e8m0 && m.scales.dtype != DType::f32) {
    return Error::unsupported(name, "scales are " + std::string(dtype_info(m.scales.dtype).name) +
                                        ", not F8_E8M0 or F32");
  }
  const Shape expected{tiles(m.outputs(), m.tile_outputs), tiles(m.inputs(), m.tile_inputs)};
  if (m.scales.shape == expected) return {};
  return Error::invalid(name, "scales have the shape " + m.scales.shape.text() + ", " +
                                  std::to_string(m.tile_outputs) + "x" +
                                  std::to_string(m.tile_inputs) + " tiles of " +
                                  m.codes.shape.text() + " ask for " + expected.text());
}

Result<void> check_scaled(const ScaledView& matrix, const std::string& name) {
  TRY(check_scaled_shape(matrix, name));
  if (matrix.codes.panels != PanelLayout::rows) return {};
  if (matrix.codes.dtype == DType::f8_e4m3) TRY(check_codes(matrix.codes, 0x7f, name));
  if (matrix.codes.dtype == DType::f8_e5m2) TRY(check_codes(matrix.codes, 0x7c, name));
  if (matrix.scaled()) TRY(check_scales(matrix.scales, name));
  return {};
}

}  // namespace deepinfer
