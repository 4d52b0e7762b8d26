#pragma once

// cpu/codes_avx512.h on pairs of AVX2 vectors: vpdpbusd as two exact 16-bit products.

#include "kernels/cpu/codes_avx2.h"
#include "kernels/cpu/vec_emulated512.h"

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::kernels::emulated512 {

inline constexpr uint8_t kByteFlip = 0x80;

struct Codes {
  avx2::Codes lo, hi;
  static Codes load(const std::byte* p) {
    return {avx2::Codes::load(p), avx2::Codes::load(p + 32)};
  }
  void store(std::byte* p) const {
    lo.store(p);
    hi.store(p + 32);
  }
  Codes low() const { return {lo.low(), hi.low()}; }
  Codes high() const { return {lo.high(), hi.high()}; }
  template <int Step>
  Codes pairs() const {
    return {lo.pairs<Step>(), hi.pairs<Step>()};
  }
  Codes operator|(Codes other) const { return {lo | other.lo, hi | other.hi}; }
  Codes e2m1_plus12() const { return {lo.e2m1_plus12(), hi.e2m1_plus12()}; }
  template <int Index>
  Vec unsigned_code() const {
    return {lo.unsigned_code<Index>(), hi.unsigned_code<Index>()};
  }
  template <int Index>
  Vec byte_code() const {
    const __m256i flip = _mm256_set1_epi8(static_cast<char>(kByteFlip));
    return {avx2::Codes{_mm256_xor_si256(lo.v, flip)}.byte_code<Index>(),
            avx2::Codes{_mm256_xor_si256(hi.v, flip)}.byte_code<Index>()};
  }
};

using avx2::broadcast;

struct Narrow {
  __m256i lo, hi;
  using Weights = Codes;
  static Weights prepare(Codes codes) { return codes; }
  static Narrow zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static Narrow start(const int32_t* plane) {
    return {_mm256_set1_epi32(*plane), _mm256_set1_epi32(*plane)};
  }
  static __m256i dot_half(__m256i sum, __m256i w, __m256i x) {
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(w, _mm256_set1_epi16(255)),
                                           _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(w, 8), _mm256_srai_epi16(x, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
  }
  void dot(Weights w, __m256i x) {
    lo = dot_half(lo, w.lo.v, x);
    hi = dot_half(hi, w.hi.v, x);
  }
  void pin() {}
  Vec to_float() const {
    return {avx2::Vec{_mm256_cvtepi32_ps(lo)}, avx2::Vec{_mm256_cvtepi32_ps(hi)}};
  }
};
using Wide = Narrow;

inline Vec load_f16(const std::byte* p) { return {avx2::load_f16(p), avx2::load_f16(p + 16)}; }
inline Vec load_u8(const std::byte* p) { return {avx2::load_u8(p), avx2::load_u8(p + 8)}; }
inline Vec load_i8(const std::byte* p) { return {avx2::load_i8(p), avx2::load_i8(p + 8)}; }
inline Vec load_half_exponent(const std::byte* p) {
  return {avx2::load_half_exponent(p), avx2::load_half_exponent(p + 8)};
}
inline Vec bf16_first(Codes c) { return {avx2::bf16_first(c.lo), avx2::bf16_first(c.hi)}; }
inline Vec bf16_second(Codes c) { return {avx2::bf16_second(c.lo), avx2::bf16_second(c.hi)}; }

struct Fp8Step {
  static constexpr size_t kUnit = 2, kBytes = kUnit * 32;
  static constexpr float kFactor = 0x1p-8f;
  static Vec widen(__m256i halves) {
    return {avx2::Vec{_mm256_cvtph_ps(_mm256_castsi256_si128(halves))},
            avx2::Vec{_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))}};
  }
  template <int V>
  static void load(const std::byte* step, size_t, Vec w[kUnit][V]) {
    static_assert(V == 2);
    const __m256i mask = _mm256_set1_epi16(static_cast<short>(0xBF80u));
    const Codes x = Codes::load(step);
    const __m256i halves[2] = {x.lo.v, x.hi.v};
    for (int v = 0; v < V; ++v) {
      const __m256i shifted = _mm256_slli_epi16(halves[v], 8);
      w[0][v] = widen(_mm256_and_si256(_mm256_srai_epi16(shifted, 1), mask));
      w[1][v] = widen(_mm256_and_si256(_mm256_srai_epi16(halves[v], 1), mask));
    }
  }
};

}  // namespace deepinfer::kernels::emulated512
#pragma clang attribute pop
