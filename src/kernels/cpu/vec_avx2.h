#pragma once

// The 8-lane float vector of the AVX2 bodies. Operation bodies (cpu/*.inc) are written once over a
// type named `Vec` and compiled in one namespace per instruction set; the attribute below gives
// every function in it, templates and lambdas too, the instructions it needs, without flags on
// files.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::kernels::avx2 {

struct Vec {
  static constexpr size_t kLanes = 8;
  __m256 v;

  static Vec zero() { return {_mm256_setzero_ps()}; }
  static Vec set1(float x) { return {_mm256_set1_ps(x)}; }
  static Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static Vec load_bf16(const uint16_t* p) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16))};
  }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
  // First n < kLanes lanes only; the others read as zero.
  static Vec load_first(const float* p, size_t n) { return {_mm256_maskload_ps(p, mask(n))}; }
  void store_first(float* p, size_t n) const { _mm256_maskstore_ps(p, mask(n), v); }
  static Vec load_bf16_first(const uint16_t* p, size_t n) {
    alignas(16) uint16_t codes[8] = {};
    for (size_t i = 0; i < n; ++i) codes[i] = p[i];
    return load_bf16(codes);
  }
  static __m256i mask(size_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

inline Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }    // a*b + c
inline Vec fnma(Vec a, Vec b, Vec c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }  // c - a*b
// b where either is NaN, as maxps and minps define it.
inline Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
inline Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
inline Vec abs(Vec a) {
  return {_mm256_and_ps(a.v, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF)))};
}
inline Vec round_even(Vec a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// 2^n for integral n in [-126, 127].
inline Vec exp2_integer(Vec n) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(biased, 23))};
}
// 2^k from a float whose lowest nine bits hold k + 127, k in [-127, 128]: 2^-127 reads as 0, 2^128
// as infinity. Such floats come out of an addition to 1.5 * 2^23 + 127 (cpu/exp.inc).
inline Vec exp2_low_bits(Vec t) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t.v), 23))};
}
// One bit for each lane.
inline uint32_t nan_bits(Vec a) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)));
}
inline uint32_t equal_bits(Vec a, Vec b) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)));
}
// Lanes t >= n become `other`.
inline Vec keep_first(Vec a, size_t n, Vec other) {
  if (n >= Vec::kLanes) return a;
  return {_mm256_blendv_ps(other.v, a.v, _mm256_castsi256_ps(Vec::mask(n)))};
}
// Halves added until one is left: (i) + (i + kLanes/2), ...
inline float reduce_add(Vec a) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  x = _mm_add_ss(x, _mm_movehdup_ps(x));
  return _mm_cvtss_f32(x);
}
inline float reduce_max(Vec a) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  x = _mm_max_ss(x, _mm_movehdup_ps(x));
  return _mm_cvtss_f32(x);
}

}  // namespace deepinfer::kernels::avx2
#pragma clang attribute pop
