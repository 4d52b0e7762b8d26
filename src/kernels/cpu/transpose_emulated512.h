#pragma once

// Sixteen rows of sixteen dwords turned by four 8x8 pieces; interface as in cpu/transpose_avx2.h.

#include "kernels/cpu/codes_emulated512.h"
#include "kernels/cpu/transpose_avx2.h"

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::kernels::emulated512 {

inline void transpose_words(const std::byte* const* rows, std::byte* out, size_t stride) {
  for (size_t word = 0; word < 16; word += 8) {
    const std::byte* shifted[16];
    for (size_t r = 0; r < 16; ++r) shifted[r] = rows[r] + word * 4;
    avx2::transpose_words(shifted, out + word * stride, stride);
    avx2::transpose_words(shifted + 8, out + word * stride + 32, stride);
  }
}

}  // namespace deepinfer::kernels::emulated512
#pragma clang attribute pop
