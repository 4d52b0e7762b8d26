#pragma once

// Integer codes of packed weights on AVX2: 8 lanes, 4 codes (k..k+3) a lane.
//
// Narrow sums codes of up to 6 bits in int16 (safe ranges: kernels.md section 2; sums may wrap on
// the way, the offset planes bring the final value back into range); Wide sums signed bytes in
// int32.

#include "kernels/cpu/vec_avx2.h"

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::kernels::avx2 {

// Signed byte codes stay signed; a plane of offsets holds two int16 per row.
inline constexpr uint8_t kByteFlip = 0;

struct Codes {
  __m256i v;
  static Codes load(const std::byte* p) {
    return {_mm256_load_si256(reinterpret_cast<const __m256i*>(p))};
  }
  void store(std::byte* p) const { _mm256_store_si256(reinterpret_cast<__m256i*>(p), v); }
  Codes low() const { return {_mm256_and_si256(v, _mm256_set1_epi8(15))}; }
  Codes high() const { return {_mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15))}; }
  // Bits 2 * Step, 2 * Step + 1 of every byte, moved to bits 4, 5.
  template <int Step>
  Codes pairs() const {
    const __m256i at4 =
        Step < 2 ? _mm256_slli_epi16(v, 4 - 2 * Step) : _mm256_srli_epi16(v, 2 * Step - 4);
    return {_mm256_and_si256(at4, _mm256_set1_epi8(0x30))};
  }
  Codes operator|(Codes other) const { return {_mm256_or_si256(v, other.v)}; }
  // 12 + twice the value of E2M1 codes 0..15.
  Codes e2m1_plus12() const {
    const __m128i table = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    return {_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), v)};
  }
  // Code k + Index of every lane as a float.
  template <int Index>
  Vec unsigned_code() const {
    const __m256i byte =
        Index == 3 ? _mm256_srli_epi32(v, 24)
                   : _mm256_and_si256(_mm256_srli_epi32(v, 8 * Index), _mm256_set1_epi32(255));
    return {_mm256_cvtepi32_ps(byte)};
  }
  template <int Index>
  Vec byte_code() const {
    return {_mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(v, 24 - 8 * Index), 24))};
  }
};

// Four int8 activations of one row in every lane.
inline __m256i broadcast(const int32_t* x) { return _mm256_set1_epi32(*x); }

struct Narrow {
  __m256i v;
  using Weights = Codes;
  static Weights prepare(Codes codes) { return codes; }
  static Narrow zero() { return {_mm256_setzero_si256()}; }
  static Narrow start(const int32_t* plane) { return {_mm256_set1_epi32(*plane)}; }
  void dot(Weights w, __m256i x) { v = _mm256_add_epi16(v, _mm256_maddubs_epi16(w.v, x)); }
  // The sum is complete here, and no load moves across: keeps the compiler from reordering the
  // additions and hoisting loads, which costs spills where sums fill the registers.
  void pin() { asm volatile("" : "+x"(v) : : "memory"); }
  Vec to_float() const { return {_mm256_cvtepi32_ps(_mm256_madd_epi16(v, _mm256_set1_epi16(1)))}; }
};

struct Wide {
  __m256i v;
  struct Weights {
    __m256i magnitude, sign;
  };
  static Weights prepare(Codes codes) { return {_mm256_abs_epi8(codes.v), codes.v}; }
  static Wide zero() { return {_mm256_setzero_si256()}; }
  static Wide start(const int32_t*) { return zero(); }
  void dot(Weights w, __m256i x) {
    const __m256i signed_x = _mm256_sign_epi8(x, w.sign);
    const __m256i pairs = _mm256_maddubs_epi16(w.magnitude, signed_x);
    v = _mm256_add_epi32(v, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  void pin() { asm volatile("" : "+x"(v) : : "memory"); }
  Vec to_float() const { return {_mm256_cvtepi32_ps(v)}; }
};

inline Vec load_f16(const std::byte* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline Vec load_u8(const std::byte* p) {
  return {_mm256_cvtepi32_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
}
inline Vec load_i8(const std::byte* p) {
  return {_mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
}
// 2^(e - 128): the scale of doubled E2M1 codes; exponents 0 and 1 (subnormal scales) give 0.
inline Vec load_half_exponent(const std::byte* p) {
  const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m256i bits = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  const __m256i keep = _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1));
  return {_mm256_castsi256_ps(_mm256_and_si256(bits, keep))};
}
// Two BF16 a dword: the first (low half) and the second of every lane.
inline Vec bf16_first(Codes c) { return {_mm256_castsi256_ps(_mm256_slli_epi32(c.v, 16))}; }
inline Vec bf16_second(Codes c) {
  return {
      _mm256_castsi256_ps(_mm256_and_si256(c.v, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u))))};
}

// E4M3 codes of one step of a panel (cpu/fp8_panel.h), kUnit inputs of 32 outputs, as floats of
// value * kFactor. The bits of a code, moved, are those of a float 2^-120 times as large; subnormal
// codes are then subnormal floats, which needs DAZ off.
struct Fp8Step {
  static constexpr size_t kUnit = 4, kBytes = kUnit * 32;
  static constexpr float kFactor = 0x1p-120f;
  // w[i][v]: input i, outputs 8 * (first + v) ..
  template <int V>
  static void load(const std::byte* step, size_t first, Vec w[kUnit][V]) {
    const __m256i mask = _mm256_set1_epi32(static_cast<int>(0x87F00000u));
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const __m256i x = Codes::load(step + (first + static_cast<size_t>(v)) * 32).v;
      const __m256i odd = _mm256_srai_epi16(x, 4);
      const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 4);
      w[0][v] = {_mm256_castsi256_ps(_mm256_and_si256(_mm256_slli_epi32(even, 16), mask))};
      w[1][v] = {_mm256_castsi256_ps(_mm256_and_si256(_mm256_slli_epi32(odd, 16), mask))};
      w[2][v] = {_mm256_castsi256_ps(_mm256_and_si256(even, mask))};
      w[3][v] = {_mm256_castsi256_ps(_mm256_and_si256(odd, mask))};
    }
  }
};

}  // namespace deepinfer::kernels::avx2
#pragma clang attribute pop
