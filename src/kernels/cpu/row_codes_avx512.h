#pragma once

// Codes of cache rows on AVX-512: 16 lanes; interface and method as in cpu/row_codes_avx2.h.

#include <cstring>

#include "kernels/cpu/vec_avx512.h"

#pragma clang attribute push(                                                                    \
    __attribute__((target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), \
    apply_to = function)
namespace deepinfer::kernels::avx512 {

struct VecPair {
  Vec first, second;
};
inline VecPair load_e4m3(const std::byte* p) {
  const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m512i halves = _mm512_and_si512(_mm512_slli_epi16(_mm512_cvtepi8_epi16(codes), 7),
                                          _mm512_set1_epi16(static_cast<short>(0xBFFF)));
  return {{_mm512_cvtph_ps(_mm512_castsi512_si256(halves))},
          {_mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1))}};
}

inline Vec load_e2m1(const std::byte* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m512i halves =
      _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
                               _mm512_castsi128_si512(bytes));
  const __m512i codes = _mm512_srlv_epi32(
      halves, _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28));
  const __m512 table = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f,
                                      -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
  return {_mm512_permutexvar_ps(codes, table)};
}

inline void store_e4m3(Vec x, std::byte* p) {
  const __m512 scaled = _mm512_mul_ps(x.v, _mm512_set1_ps(0x1p-8f));
  const __m256i halves = _mm512_cvtps_ph(scaled, _MM_FROUND_TO_NEAREST_INT);
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi16(halves, 8), _mm256_set1_epi16(0x80));
  const __m256i magnitude = _mm256_and_si256(_mm256_srli_epi16(halves, 7), _mm256_set1_epi16(0x7F));
  const __m128i codes = _mm256_cvtepi16_epi8(_mm256_or_si256(sign, magnitude));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), codes);
}
inline void store_e2m1(Vec x, std::byte* p) {
  const __m512 scaled = _mm512_mul_ps(x.v, _mm512_set1_ps(0x1p-14f));
  const __m256i halves = _mm512_cvtps_ph(scaled, _MM_FROUND_TO_NEAREST_INT);
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi16(halves, 12), _mm256_set1_epi16(8));
  const __m256i magnitude = _mm256_and_si256(_mm256_srli_epi16(halves, 9), _mm256_set1_epi16(7));
  const __m256i codes = _mm256_or_si256(sign, magnitude);
  const __m256i pairs = _mm256_or_si256(codes, _mm256_srli_epi32(codes, 12));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm256_cvtepi32_epi8(pairs));
}

inline Vec nearest_bf16(Vec x) {
  const __m512i bits = _mm512_castps_si512(x.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const __m512i either = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q),
                                              bits, _mm512_set1_epi32(0x00400000));
  return {_mm512_castsi512_ps(
      _mm512_and_si512(either, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))))};
}
inline void store_bf16(Vec x, std::byte* p) {
  const __m512i codes = _mm512_srli_epi32(_mm512_castps_si512(x.v), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(codes));
}

inline Vec max_bits(Vec a, Vec b) {
  return {
      _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a.v), _mm512_castps_si512(b.v)))};
}
inline uint32_t reduce_max_bits(Vec a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m256i h =
      _mm256_max_epu32(_mm512_castsi512_si256(bits), _mm512_extracti64x4_epi64(bits, 1));
  __m128i x = _mm_max_epu32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
  x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0x4E));
  x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(x));
}

inline Vec power_above(Vec x, int least, int shift) {
  const __m512i exponent =
      _mm512_and_si512(_mm512_castps_si512(x.v), _mm512_set1_epi32(0x7F800000));
  const __m512i at_least = _mm512_max_epi32(exponent, _mm512_set1_epi32((least + 127) << 23));
  return {_mm512_castsi512_ps(_mm512_add_epi32(at_least, _mm512_set1_epi32(shift << 23)))};
}
inline Vec with_sign(Vec magnitude, Vec sign) {
  const __m512i bit = _mm512_set1_epi32(static_cast<int>(1u << 31));
  return {_mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(magnitude.v),
                                              _mm512_and_si512(_mm512_castps_si512(sign.v), bit)))};
}

}  // namespace deepinfer::kernels::avx512
#pragma clang attribute pop
