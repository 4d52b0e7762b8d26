#pragma once

// MatmulKernel: one implementation of the product for one storage format and instruction set, as a
// table of functions; internal to kernels/. kernels/matmul.h states the arithmetic.
//
// Adding a format: its codes and scales in cpu/panel_pack.cpp, a policy in cpu/matmul_int8.inc (or
// cpu/matmul_f32.inc), a line in cpu/matmul_lists.inc; matmul_test covers it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/isa.h"
#include "kernels/matmul.h"
#include "tensor/scaled_view.h"
#include "tensor/tensor.h"

namespace deepinfer::kernels {

// Panels [panel_begin, panel_end) of one matrix times all rows: what one chunk of a region does.
struct MatmulChunk {
  const std::byte* panels = nullptr;
  size_t panel_bytes = 0;
  size_t inputs = 0;
  size_t outputs = 0;
  size_t panel_begin = 0;
  size_t panel_end = 0;
  std::span<const RowGroup> groups;
  const std::byte* activations = nullptr;
  size_t record_dwords = 0;    // int8: dwords of one row in a block's record
  size_t plane_dword = 0;      // int8: where the kernel's plane starts, times padded rows
  size_t rows_per_output = 1;  // int8: 2 when rows are refined; groups then hold pairs of rows
  size_t first_row = 0;        // the row of the activations that row 0 of `out` belongs to
  float* out = nullptr;
  size_t stride = 0;
  const float* bias = nullptr;
  Epilogue epilogue = Epilogue::store;
};

struct MatmulKernel {
  std::string_view name;  // "q4_0.int8.avx512"
  DType dtype = DType::f32;
  Isa isa = Isa::ref;
  ActivationForms forms = 0;
  size_t panel_outputs = 0;
  size_t panels_together = 1;  // that a body takes at once: chunks hold multiples of it
  size_t (*panel_bytes)(size_t inputs) = nullptr;
  // Empty when the kernel takes matrices of this width, else the reason.
  std::string (*refuse)(size_t inputs) = nullptr;
  // Rows first_output .. of the matrix into one zeroed panel.
  void (*pack)(const ScaledView& weights, size_t first_output, std::byte* panel) = nullptr;
  void (*run)(const MatmulChunk& chunk) noexcept = nullptr;
  // Output `lane` of the panel as floats.
  void (*decode_row)(const std::byte* panel, size_t lane, size_t inputs, float* out) = nullptr;
};

// Of one instruction set, best first; the last one takes every decodable format.
std::span<const MatmulKernel> matmul_kernels(Isa isa);

// Group sizes that an instruction set has bodies for, ascending.
using Int8Groups256 = std::integer_sequence<int, 1, 2, 3, 4, 6>;
using Int8Groups512 = std::integer_sequence<int, 1, 2, 4, 6, 8, 12>;
using F32Groups = std::integer_sequence<int, 1, 2, 3, 4, 6>;
std::span<const uint8_t> int8_group_sizes(Isa isa);
std::span<const uint8_t> f32_group_sizes(Isa isa);

// Offset in dwords per row of a plane within a record of the given forms; the record's length for
// plane 0.
size_t int8_record_dwords(ActivationForms forms, ActivationForms plane);

// Where quantize_row() writes: slot `row` of a group of `padded` rows, and slot row + 1 for the
// codes of the error when forms has kRefined.
struct Int8Target {
  uint32_t* group = nullptr;  // first record
  size_t padded = 0;
  size_t row = 0;
  ActivationForms forms = 0;
  bool paired_planes =
      false;  // AVX2: an offset plane holds two int16, for k mod 4 in {0,1} and {2,3}
};

}  // namespace deepinfer::kernels
