// Budget: one kernel; the bodies are in the included files.
#include "kernels/matmul_kernel.h"

#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/cpu/codes_emulated512.h"
#include "kernels/cpu/matmul_scratch.h"
#include "kernels/cpu/panel_pack.h"

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::kernels::emulated512 {

inline constexpr Isa kIsa = Isa::emulated512;
#define KERNEL_NAME(format) format ".emulated512"

// Rows of a group: 24 sums, two weight vectors and the mask fill 28 of the 32 registers.
inline constexpr size_t kMaxGroup = 24, kMaxF32Group = 6;
inline constexpr int kRegisterSums = 8;  // rows whose float sums stay in registers too
inline constexpr int kTileVectors = 4;   // 4 x 6 sums, 4 weights, 1 activation
inline constexpr int kDirectSums = 24;
inline constexpr size_t kPrefetchBytes = 4096;

template <class Visit>
void for_each_group_size(Visit&& visit) {
  [&]<int... kSizes>(std::integer_sequence<int, kSizes...>) {
    (visit(std::integral_constant<int, kSizes>()), ...);
  }(std::integer_sequence<int, 1, 2, 4, 6, 8, 12, 16, 24>());
}
template <class Visit>
void for_each_f32_group_size(Visit&& visit) {
  [&]<int... kSizes>(std::integer_sequence<int, kSizes...>) {
    (visit(std::integral_constant<int, kSizes>()), ...);
  }(std::integer_sequence<int, 1, 2, 3, 4, 6>());
}

#include "kernels/cpu/matmul_int8.inc"

#include "kernels/cpu/matmul_f32.inc"

#include "kernels/cpu/matmul_lists.inc"

}  // namespace deepinfer::kernels::emulated512
#pragma clang attribute pop
