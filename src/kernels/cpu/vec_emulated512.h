#pragma once

// Sixteen lanes as two AVX2 vectors: the 512-bit bodies on a machine without AVX-512, same bits.

#include "kernels/cpu/vec_avx2.h"

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::kernels::emulated512 {

struct Vec {
  static constexpr size_t kLanes = 16;
  avx2::Vec lo, hi;

  static Vec zero() { return {avx2::Vec::zero(), avx2::Vec::zero()}; }
  static Vec set1(float x) { return {avx2::Vec::set1(x), avx2::Vec::set1(x)}; }
  static Vec load(const float* p) { return {avx2::Vec::load(p), avx2::Vec::load(p + 8)}; }
  static Vec load_bf16(const uint16_t* p) {
    return {avx2::Vec::load_bf16(p), avx2::Vec::load_bf16(p + 8)};
  }
  void store(float* p) const {
    lo.store(p);
    hi.store(p + 8);
  }
  static Vec load_first(const float* p, size_t n) {
    if (n < 8) return {avx2::Vec::load_first(p, n), avx2::Vec::zero()};
    return {avx2::Vec::load(p), avx2::Vec::load_first(p + 8, n - 8)};
  }
  static Vec load_bf16_first(const uint16_t* p, size_t n) {
    if (n < 8) return {avx2::Vec::load_bf16_first(p, n), avx2::Vec::zero()};
    return {avx2::Vec::load_bf16(p), avx2::Vec::load_bf16_first(p + 8, n - 8)};
  }
  void store_first(float* p, size_t n) const {
    if (n < 8) return lo.store_first(p, n);
    lo.store(p);
    hi.store_first(p + 8, n - 8);
  }
};

inline Vec operator+(Vec a, Vec b) { return {a.lo + b.lo, a.hi + b.hi}; }
inline Vec operator-(Vec a, Vec b) { return {a.lo - b.lo, a.hi - b.hi}; }
inline Vec operator*(Vec a, Vec b) { return {a.lo * b.lo, a.hi * b.hi}; }
inline Vec operator/(Vec a, Vec b) { return {a.lo / b.lo, a.hi / b.hi}; }
inline Vec fma(Vec a, Vec b, Vec c) {
  return {avx2::fma(a.lo, b.lo, c.lo), avx2::fma(a.hi, b.hi, c.hi)};
}
inline Vec fnma(Vec a, Vec b, Vec c) {
  return {avx2::fnma(a.lo, b.lo, c.lo), avx2::fnma(a.hi, b.hi, c.hi)};
}
inline Vec max(Vec a, Vec b) { return {avx2::max(a.lo, b.lo), avx2::max(a.hi, b.hi)}; }
inline Vec min(Vec a, Vec b) { return {avx2::min(a.lo, b.lo), avx2::min(a.hi, b.hi)}; }
inline Vec abs(Vec a) { return {avx2::abs(a.lo), avx2::abs(a.hi)}; }
inline Vec round_even(Vec a) { return {avx2::round_even(a.lo), avx2::round_even(a.hi)}; }
inline Vec exp2_integer(Vec n) { return {avx2::exp2_integer(n.lo), avx2::exp2_integer(n.hi)}; }
inline Vec exp2_low_bits(Vec t) { return {avx2::exp2_low_bits(t.lo), avx2::exp2_low_bits(t.hi)}; }
inline uint32_t nan_bits(Vec a) { return avx2::nan_bits(a.lo) | avx2::nan_bits(a.hi) << 8; }
inline uint32_t equal_bits(Vec a, Vec b) {
  return avx2::equal_bits(a.lo, b.lo) | avx2::equal_bits(a.hi, b.hi) << 8;
}
inline Vec keep_first(Vec a, size_t n, Vec other) {
  return {avx2::keep_first(a.lo, n, other.lo), avx2::keep_first(a.hi, n < 8 ? 0 : n - 8, other.hi)};
}
inline float reduce_add(Vec a) { return avx2::reduce_add(a.lo + a.hi); }
inline float reduce_max(Vec a) { return avx2::reduce_max(avx2::max(a.lo, a.hi)); }

}  // namespace deepinfer::kernels::emulated512
#pragma clang attribute pop
