#pragma once

// The packed form of E4M3 matrices: panels of 32 outputs, whatever the vector's width.
//
//   [whole lines of 16 floats]  the scale of every 32 inputs, 0 behind the last
//   [ceil(inputs / 32)][32 / unit][32 outputs][unit inputs]  codes, 0 where the matrix has none
//
// unit: 4 inputs for AVX2, 2 for the 512-bit bodies. All 32 outputs share a scale: tiles of scales
// are multiples of 32 by 32. A NaN code makes the scale of its 32 x 32 block NaN, so that decoding
// need not know NaN codes and yet the outputs show it.
//
// Source: kernels.md section 3. Threads: any.

#include <cstddef>

#include "tensor/scaled_view.h"

namespace deepinfer::kernels {

inline constexpr size_t kFp8Outputs = 32;
inline constexpr size_t kFp8BlockBytes = 32 * kFp8Outputs;

// Bytes before the codes.
inline constexpr size_t fp8_scale_bytes(size_t inputs) { return (inputs + 511) / 512 * 64; }
size_t fp8_panel_bytes(size_t inputs);

// panel: zeroed.
void pack_fp8_panel(const ScaledView& weights, size_t first_output, size_t unit, std::byte* panel);

// Output `lane` of a panel: one product of code and scale each.
void decode_fp8_row(const std::byte* panel, size_t lane, size_t unit, size_t inputs, float* out);

}  // namespace deepinfer::kernels
