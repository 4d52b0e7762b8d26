#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/limits_kernel.h"

// The empty asm statements hide values from the compiler, so that it neither hoists nor drops work.

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::kernels::avx2 {
namespace {

uint64_t read(const std::byte* first, const std::byte* second, size_t bytes) noexcept {
  __m256i sums[8] = {};
  for (size_t at = 0; at < bytes; at += 128) {
#pragma unroll
    for (size_t i = 0; i < 4; ++i) {
      const auto* a = reinterpret_cast<const __m256i*>(first + at + 32 * i);
      const auto* b = reinterpret_cast<const __m256i*>(second + at + 32 * i);
      sums[i] = _mm256_xor_si256(sums[i], _mm256_loadu_si256(a));
      sums[4 + i] = _mm256_xor_si256(sums[4 + i], _mm256_loadu_si256(b));
    }
  }
  for (size_t i = 1; i < 8; ++i) sums[0] = _mm256_add_epi64(sums[0], sums[i]);
  return static_cast<uint64_t>(_mm256_extract_epi64(sums[0], 0) ^ _mm256_extract_epi64(sums[0], 1) ^
                               _mm256_extract_epi64(sums[0], 2) ^ _mm256_extract_epi64(sums[0], 3));
}

void f32(size_t rounds) noexcept {
  __m256 acc[12];
#pragma unroll
  for (auto& a : acc) a = _mm256_set1_ps(0.5f);
  __m256 x = _mm256_set1_ps(0.75f), y = _mm256_set1_ps(0.125f);
  asm volatile("" : "+x"(x), "+x"(y));
  for (size_t round = 0; round < rounds; ++round) {
#pragma unroll
    for (auto& a : acc) a = _mm256_fmadd_ps(a, x, y);
  }
#pragma unroll
  for (auto& a : acc) asm volatile("" ::"x"(a));
}

// Eight products per 16-bit sum, then one widening.
void int8_unsigned(size_t rounds) noexcept {
  __m256i wide[4] = {};
  __m256i codes = _mm256_set1_epi8(3), x = _mm256_set1_epi8(5);
  const __m256i ones = _mm256_set1_epi16(1);
  for (size_t round = 0; round < rounds; ++round) {
#pragma unroll
    for (auto& w : wide) {
      __m256i sum = _mm256_setzero_si256();
#pragma unroll
      for (size_t i = 0; i < 8; ++i) {
        asm volatile("" : "+x"(codes));
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, x));
      }
      w = _mm256_add_epi32(w, _mm256_madd_epi16(sum, ones));
    }
  }
#pragma unroll
  for (auto& w : wide) asm volatile("" ::"x"(w));
}

void int8_signed(size_t rounds) noexcept {
  __m256i wide[4] = {};
  __m256i weights = _mm256_set1_epi8(-3), x = _mm256_set1_epi8(5);
  const __m256i ones = _mm256_set1_epi16(1);
  for (size_t round = 0; round < rounds; ++round) {
    const __m256i magnitude = _mm256_abs_epi8(weights);
#pragma unroll
    for (auto& w : wide) {
      asm volatile("" : "+x"(x));
      const __m256i turned = _mm256_sign_epi8(x, weights);
      w = _mm256_add_epi32(w, _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, turned), ones));
    }
    asm volatile("" : "+x"(weights));
  }
#pragma unroll
  for (auto& w : wide) asm volatile("" ::"x"(w));
}

}  // namespace

const LimitKernels& limit_kernels() {
  static constexpr LimitKernels kernels = {.read = read,
                                           .f32 = {f32, 12 * 8 * 2},
                                           .int8_unsigned = {int8_unsigned, 4 * 8 * 32 * 2},
                                           .int8_signed = {int8_signed, 4 * 32 * 2},
                                           .bf16 = {}};
  return kernels;
}

}  // namespace deepinfer::kernels::avx2
#pragma clang attribute pop
