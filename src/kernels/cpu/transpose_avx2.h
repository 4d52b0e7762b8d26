#pragma once

// Eight rows of eight dwords turned into eight vectors of one dword of every row.

#include "kernels/cpu/codes_avx2.h"

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::kernels::avx2 {

// Dword d of row r goes to lane r of the vector at out + d * stride bytes; out 32-byte aligned.
inline void transpose_words(const std::byte* const* rows, std::byte* out, size_t stride) {
  __m256i a[8], b[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    a[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[i]));
  }
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
  }
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    a[i] = _mm256_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm256_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm256_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
#pragma unroll
  for (size_t i = 0; i < 4; ++i) {
    Codes{_mm256_permute2x128_si256(a[i], a[i + 4], 0x20)}.store(out + i * stride);
    Codes{_mm256_permute2x128_si256(a[i], a[i + 4], 0x31)}.store(out + (i + 4) * stride);
  }
}

}  // namespace deepinfer::kernels::avx2
#pragma clang attribute pop
