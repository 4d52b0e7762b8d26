#pragma once

// Activation rows to int8 codes with one scale per 32 values, written into the interleaved records
// of a row group (kernels/matmul.h states the formula, the same bits on every instruction set).
//
// Threads: distinct rows from any worker.

#include "kernels/matmul/matmul_kernel.h"

namespace deepinfer::kernels {

void quantize_row(Isa isa, const float* values, size_t inputs, const Int8Target& target) noexcept;

}  // namespace deepinfer::kernels
