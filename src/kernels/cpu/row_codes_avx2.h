#pragma once

// Codes of cache rows on AVX2: 8 lanes between float and E4M3, E2M1, bf16. Both small formats have
// the layout of a short fp16, which F16C converts exactly, subnormals included and whatever MXCSR
// says about denormals.

#include <cstring>

#include "kernels/cpu/vec_avx2.h"

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::kernels::avx2 {

// 2 * kLanes codes as values / 256, which the block's scale makes up for; NaN codes read as +-480.
struct VecPair {
  Vec first, second;
};
inline VecPair load_e4m3(const std::byte* p) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7),
                                          _mm256_set1_epi16(static_cast<short>(0xBFFF)));
  return {{_mm256_cvtph_ps(_mm256_castsi256_si128(halves))},
          {_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))}};
}

// kLanes / 2 bytes, the even lane in the low nibble.
inline Vec load_e2m1(const std::byte* p) {
  int bytes = 0;
  std::memcpy(&bytes, p, sizeof(bytes));
  const __m256i codes =
      _mm256_srlv_epi32(_mm256_set1_epi32(bytes), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
  const __m256 table = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
  const __m256i sign =
      _mm256_and_si256(_mm256_slli_epi32(codes, 28), _mm256_set1_epi32(static_cast<int>(1u << 31)));
  return {_mm256_xor_ps(_mm256_permutevar8x32_ps(table, codes), _mm256_castsi256_ps(sign))};
}

// x holds values of the format.
inline void store_e4m3(Vec x, std::byte* p) {
  const __m256 scaled = _mm256_mul_ps(x.v, _mm256_set1_ps(0x1p-8f));
  const __m128i halves = _mm256_cvtps_ph(scaled, _MM_FROUND_TO_NEAREST_INT);
  const __m128i sign = _mm_and_si128(_mm_srli_epi16(halves, 8), _mm_set1_epi16(0x80));
  const __m128i magnitude = _mm_and_si128(_mm_srli_epi16(halves, 7), _mm_set1_epi16(0x7F));
  const __m128i codes = _mm_or_si128(sign, magnitude);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(codes, codes));
}
inline void store_e2m1(Vec x, std::byte* p) {
  const __m256 scaled = _mm256_mul_ps(x.v, _mm256_set1_ps(0x1p-14f));
  const __m128i halves = _mm256_cvtps_ph(scaled, _MM_FROUND_TO_NEAREST_INT);
  const __m128i sign = _mm_and_si128(_mm_srli_epi16(halves, 12), _mm_set1_epi16(8));
  const __m128i magnitude = _mm_and_si128(_mm_srli_epi16(halves, 9), _mm_set1_epi16(7));
  const __m128i codes = _mm_or_si128(sign, magnitude);
  const __m128i pairs =
      _mm_and_si128(_mm_or_si128(codes, _mm_srli_epi32(codes, 12)), _mm_set1_epi32(0xFF));
  const __m128i words = _mm_packus_epi32(pairs, pairs);
  const int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
  std::memcpy(p, &bytes, sizeof(bytes));
}

// Nearest bf16, ties to even; NaN becomes quiet.
inline Vec nearest_bf16(Vec x) {
  const __m256i bits = _mm256_castps_si256(x.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
  const __m256 either = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet),
                                         _mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
  return {
      _mm256_and_ps(either, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xFFFF0000u))))};
}
// x holds bf16 values.
inline void store_bf16(Vec x, std::byte* p) {
  const __m256i codes = _mm256_srli_epi32(_mm256_castps_si256(x.v), 16);
  const __m128i packed =
      _mm_packus_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
}

// Larger of the bits, of lanes without sign: infinity above every number, NaN above infinity.
inline Vec max_bits(Vec a, Vec b) {
  return {
      _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(a.v), _mm256_castps_si256(b.v)))};
}
inline uint32_t reduce_max_bits(Vec a) {
  const __m256i bits = _mm256_castps_si256(a.v);
  __m128i x = _mm_max_epu32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
  x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0x4E));
  x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(x));
}

// 2^(max(exponent of x, least) + shift); x without sign, finite.
inline Vec power_above(Vec x, int least, int shift) {
  const __m256i exponent =
      _mm256_and_si256(_mm256_castps_si256(x.v), _mm256_set1_epi32(0x7F800000));
  const __m256i at_least = _mm256_max_epi32(exponent, _mm256_set1_epi32((least + 127) << 23));
  return {_mm256_castsi256_ps(_mm256_add_epi32(at_least, _mm256_set1_epi32(shift << 23)))};
}
inline Vec with_sign(Vec magnitude, Vec sign) {
  const __m256 bit = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(1u << 31)));
  return {_mm256_or_ps(magnitude.v, _mm256_and_ps(sign.v, bit))};
}

}  // namespace deepinfer::kernels::avx2
#pragma clang attribute pop
