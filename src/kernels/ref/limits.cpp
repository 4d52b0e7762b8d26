// The loops of plain C++: what the reference bodies could reach at best.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/limits_kernel.h"

namespace deepinfer::kernels::ref {
namespace {

uint64_t read(const std::byte* first, const std::byte* second, size_t bytes) noexcept {
  uint64_t sums[8] = {};
  for (size_t at = 0; at < bytes; at += sizeof(sums)) {
    uint64_t a[8], b[8];  // one line of each stream
    std::memcpy(a, first + at, sizeof(a));
    std::memcpy(b, second + at, sizeof(b));
    for (size_t i = 0; i < 8; ++i) sums[i] += a[i] ^ b[i];
  }
  uint64_t sum = 0;
  for (uint64_t s : sums) sum += s;
  return sum;
}

void f32(size_t rounds) noexcept {
  float acc[32];
  for (float& a : acc) a = 0.5f;
  float x = 0.75f, y = 0.125f;
  asm volatile("" : "+x"(x), "+x"(y));
  for (size_t round = 0; round < rounds; ++round) {
    for (float& a : acc) a = a * x + y;
  }
  for (float& a : acc) asm volatile("" : "+x"(a));
}

}  // namespace

const LimitKernels& limit_kernels() {
  static constexpr LimitKernels kernels = {
      .read = read, .f32 = {f32, 32 * 2}, .int8_unsigned = {}, .int8_signed = {}, .bf16 = {}};
  return kernels;
}

}  // namespace deepinfer::kernels::ref
