#pragma once

// cpu/row_codes_avx512.h on pairs of AVX2 vectors.

#include <algorithm>

#include "kernels/cpu/row_codes_avx2.h"
#include "kernels/cpu/vec_emulated512.h"

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::kernels::emulated512 {

struct VecPair {
  Vec first, second;
};
inline VecPair load_e4m3(const std::byte* p) {
  const avx2::VecPair a = avx2::load_e4m3(p), b = avx2::load_e4m3(p + 16);
  return {{a.first, a.second}, {b.first, b.second}};
}
inline Vec load_e2m1(const std::byte* p) { return {avx2::load_e2m1(p), avx2::load_e2m1(p + 4)}; }
inline void store_e4m3(Vec x, std::byte* p) {
  avx2::store_e4m3(x.lo, p);
  avx2::store_e4m3(x.hi, p + 8);
}
inline void store_e2m1(Vec x, std::byte* p) {
  avx2::store_e2m1(x.lo, p);
  avx2::store_e2m1(x.hi, p + 4);
}
inline Vec nearest_bf16(Vec x) { return {avx2::nearest_bf16(x.lo), avx2::nearest_bf16(x.hi)}; }
inline void store_bf16(Vec x, std::byte* p) {
  avx2::store_bf16(x.lo, p);
  avx2::store_bf16(x.hi, p + 16);
}
inline Vec max_bits(Vec a, Vec b) {
  return {avx2::max_bits(a.lo, b.lo), avx2::max_bits(a.hi, b.hi)};
}
inline uint32_t reduce_max_bits(Vec a) {
  return std::max(avx2::reduce_max_bits(a.lo), avx2::reduce_max_bits(a.hi));
}
inline Vec power_above(Vec x, int least, int shift) {
  return {avx2::power_above(x.lo, least, shift), avx2::power_above(x.hi, least, shift)};
}
inline Vec with_sign(Vec magnitude, Vec sign) {
  return {avx2::with_sign(magnitude.lo, sign.lo), avx2::with_sign(magnitude.hi, sign.hi)};
}

}  // namespace deepinfer::kernels::emulated512
#pragma clang attribute pop
