#pragma once

// Sixteen rows of sixteen dwords turned; interface as in cpu/transpose_avx2.h.

#include "kernels/cpu/codes_avx512.h"

#pragma clang attribute push(                                                                    \
    __attribute__((target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), \
    apply_to = function)
namespace deepinfer::kernels::avx512 {

inline void transpose_words(const std::byte* const* rows, std::byte* out, size_t stride) {
  __m512i a[16], b[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(rows[i]);
#pragma unroll
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
#pragma unroll
  for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  // a[4g + c]: quarter q holds dword 4q + c of the rows 4g .. 4g + 3.
#pragma unroll
  for (size_t c = 0; c < 4; ++c) {
    const __m512i low = _mm512_shuffle_i32x4(a[c], a[4 + c], 0x44);
    const __m512i high = _mm512_shuffle_i32x4(a[c], a[4 + c], 0xEE);
    const __m512i low2 = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0x44);
    const __m512i high2 = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0xEE);
    Codes{_mm512_shuffle_i32x4(low, low2, 0x88)}.store(out + c * stride);
    Codes{_mm512_shuffle_i32x4(low, low2, 0xDD)}.store(out + (4 + c) * stride);
    Codes{_mm512_shuffle_i32x4(high, high2, 0x88)}.store(out + (8 + c) * stride);
    Codes{_mm512_shuffle_i32x4(high, high2, 0xDD)}.store(out + (12 + c) * stride);
  }
}

}  // namespace deepinfer::kernels::avx512
#pragma clang attribute pop
