#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"
#include "kernels/limits_kernel.h"

// The empty asm statements hide values from the compiler, so that it neither hoists nor drops work.

#pragma clang attribute push(                                                                    \
    __attribute__((                                                                              \
        target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16"))), \
    apply_to = function)
namespace deepinfer::kernels::avx512 {
namespace {

void bf16(size_t rounds) noexcept {
  __m512 acc[16] = {};
  __m512i x = _mm512_set1_epi16(0x3F80);
  asm volatile("" : "+v"(x));
  for (size_t round = 0; round < rounds; ++round) {
#pragma unroll
    for (auto& a : acc) {
      a = _mm512_dpbf16_ps(a, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(x));
    }
#pragma unroll
    for (auto& a : acc) asm volatile("" : "+v"(a));
  }
}

}  // namespace
}  // namespace deepinfer::kernels::avx512
#pragma clang attribute pop

#pragma clang attribute push(                                                                    \
    __attribute__((target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), \
    apply_to = function)
namespace deepinfer::kernels::avx512 {
namespace {

uint64_t read(const std::byte* first, const std::byte* second, size_t bytes) noexcept {
  __m512i sums[8] = {};
  for (size_t at = 0; at < bytes; at += 256) {
#pragma unroll
    for (size_t i = 0; i < 4; ++i) {
      sums[i] = _mm512_xor_si512(sums[i], _mm512_loadu_si512(first + at + 64 * i));
      sums[4 + i] = _mm512_xor_si512(sums[4 + i], _mm512_loadu_si512(second + at + 64 * i));
    }
  }
  for (size_t i = 1; i < 8; ++i) sums[0] = _mm512_add_epi64(sums[0], sums[i]);
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(sums[0]));
}

void f32(size_t rounds) noexcept {
  __m512 acc[16];
#pragma unroll
  for (auto& a : acc) a = _mm512_set1_ps(0.5f);
  __m512 x = _mm512_set1_ps(0.75f), y = _mm512_set1_ps(0.125f);
  asm volatile("" : "+v"(x), "+v"(y));
  for (size_t round = 0; round < rounds; ++round) {
#pragma unroll
    for (auto& a : acc) a = _mm512_fmadd_ps(a, x, y);
  }
#pragma unroll
  for (auto& a : acc) asm volatile("" ::"v"(a));
}

void int8(size_t rounds) noexcept {
  __m512i acc[16] = {};
  __m512i codes = _mm512_set1_epi8(3), x = _mm512_set1_epi8(5);
  asm volatile("" : "+v"(codes), "+v"(x));
  for (size_t round = 0; round < rounds; ++round) {
#pragma unroll
    for (auto& a : acc) a = _mm512_dpbusd_epi32(a, codes, x);
#pragma unroll
    for (auto& a : acc) asm volatile("" : "+v"(a));
  }
}

}  // namespace

const LimitKernels& limit_kernels() {
  static const LimitKernels kernels = {
      .read = read,
      .f32 = {f32, 16 * 16 * 2},
      .int8_unsigned = {int8, 16 * 64 * 2},
      .int8_signed = {int8, 16 * 64 * 2},
      .bf16 = cpu_features().avx512_bf16 ? LimitLoop{bf16, 16 * 32 * 2} : LimitLoop{}};
  return kernels;
}

}  // namespace deepinfer::kernels::avx512
#pragma clang attribute pop
