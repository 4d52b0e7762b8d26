#pragma once

// Integer codes of packed weights on AVX-512 VNNI: 16 lanes; interface as in cpu/codes_avx2.h.
// vpdpbusd wants the weights unsigned: byte codes are stored with 128 added, and every sum starts
// at minus the offset times the sum of the activations (planes of one int32 per row).

#include "kernels/cpu/vec_avx512.h"

#pragma clang attribute push(                                                                    \
    __attribute__((target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), \
    apply_to = function)
namespace deepinfer::kernels::avx512 {

inline constexpr uint8_t kByteFlip = 0x80;

struct Codes {
  __m512i v;
  static Codes load(const std::byte* p) { return {_mm512_load_si512(p)}; }
  void store(std::byte* p) const { _mm512_store_si512(p, v); }
  Codes low() const { return {_mm512_and_si512(v, _mm512_set1_epi8(15))}; }
  Codes high() const { return {_mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15))}; }
  template <int Step>
  Codes pairs() const {
    const __m512i at4 =
        Step < 2 ? _mm512_slli_epi16(v, 4 - 2 * Step) : _mm512_srli_epi16(v, 2 * Step - 4);
    return {_mm512_and_si512(at4, _mm512_set1_epi8(0x30))};
  }
  Codes operator|(Codes other) const { return {_mm512_or_si512(v, other.v)}; }
  Codes e2m1_plus12() const {
    const __m128i table = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), v)};
  }
  template <int Index>
  Vec unsigned_code() const {
    const __m512i byte =
        Index == 3 ? _mm512_srli_epi32(v, 24)
                   : _mm512_and_si512(_mm512_srli_epi32(v, 8 * Index), _mm512_set1_epi32(255));
    return {_mm512_cvtepi32_ps(byte)};
  }
  template <int Index>
  Vec byte_code() const {
    const __m512i flipped = _mm512_xor_si512(v, _mm512_set1_epi8(static_cast<char>(kByteFlip)));
    return {_mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(flipped, 24 - 8 * Index), 24))};
  }
};

inline __m512i broadcast(const int32_t* x) { return _mm512_set1_epi32(*x); }

struct Narrow {
  __m512i v;
  using Weights = Codes;
  static Weights prepare(Codes codes) { return codes; }
  static Narrow zero() { return {_mm512_setzero_si512()}; }
  static Narrow start(const int32_t* plane) { return {_mm512_set1_epi32(*plane)}; }
  void dot(Weights w, __m512i x) { v = _mm512_dpbusd_epi32(v, w.v, x); }
  // The sum is complete here, and no load moves across: keeps the compiler from reordering the
  // additions and hoisting loads, which costs spills where sums fill the registers.
  void pin() { asm volatile("" : "+v"(v) : : "memory"); }
  Vec to_float() const { return {_mm512_cvtepi32_ps(v)}; }
};
using Wide = Narrow;

inline Vec load_f16(const std::byte* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline Vec load_u8(const std::byte* p) {
  return {_mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
inline Vec load_i8(const std::byte* p) {
  return {_mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
inline Vec load_half_exponent(const std::byte* p) {
  const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __mmask16 keep = _mm512_cmpgt_epi32_mask(e, _mm512_set1_epi32(1));
  return {_mm512_castsi512_ps(
      _mm512_maskz_slli_epi32(keep, _mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23))};
}
inline Vec bf16_first(Codes c) { return {_mm512_castsi512_ps(_mm512_slli_epi32(c.v, 16))}; }
inline Vec bf16_second(Codes c) {
  return {
      _mm512_castsi512_ps(_mm512_and_si512(c.v, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))))};
}

// As in cpu/codes_avx2.h, but by way of halves, where subnormal codes become normal floats:
// subnormal inputs of a multiplication are slow on Intel.
struct Fp8Step {
  static constexpr size_t kUnit = 2, kBytes = kUnit * 32;
  static constexpr float kFactor = 0x1p-8f;
  static Vec widen(__m256i halves) { return {_mm512_cvtph_ps(halves)}; }
  template <int V>
  static void load(const std::byte* step, size_t, Vec w[kUnit][V]) {
    static_assert(V == 2);
    const __m512i mask = _mm512_set1_epi16(static_cast<short>(0xBF80u));
    const __m512i x = Codes::load(step).v;
    const __m512i odd = _mm512_and_si512(_mm512_srai_epi16(x, 1), mask);
    const __m512i even = _mm512_and_si512(_mm512_srai_epi16(_mm512_slli_epi16(x, 8), 1), mask);
    w[0][0] = widen(_mm512_castsi512_si256(even));
    w[0][1] = widen(_mm512_extracti64x4_epi64(even, 1));
    w[1][0] = widen(_mm512_castsi512_si256(odd));
    w[1][1] = widen(_mm512_extracti64x4_epi64(odd, 1));
  }
};

}  // namespace deepinfer::kernels::avx512
#pragma clang attribute pop
