// Budget: one kernel; the bodies are in the included files.
#include "kernels/matmul_kernel.h"

#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/cpu/codes_avx2.h"
#include "kernels/cpu/matmul_scratch.h"
#include "kernels/cpu/panel_pack.h"

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::kernels::avx2 {

inline constexpr Isa kIsa = Isa::avx2;
#define KERNEL_NAME(format) format ".avx2"

// Rows of a group: 6 sums, two weight vectors, the mask and temporaries fill the 16 registers.
inline constexpr size_t kMaxGroup = 6, kMaxF32Group = 6;
inline constexpr int kRegisterSums = 2;  // rows whose float sums stay in registers too
inline constexpr int kTileVectors = 2;   // 2 x 6 sums, 2 weights, 1 activation
inline constexpr int kDirectSums = 8;
inline constexpr size_t kPrefetchBytes = 2304;

template <class Visit>
void for_each_group_size(Visit&& visit) {
  [&]<int... kSizes>(std::integer_sequence<int, kSizes...>) {
    (visit(std::integral_constant<int, kSizes>()), ...);
  }(std::integer_sequence<int, 1, 2, 3, 4, 6>());
}
template <class Visit>
void for_each_f32_group_size(Visit&& visit) {
  for_each_group_size(visit);
}

#include "kernels/cpu/matmul_int8.inc"

#include "kernels/cpu/matmul_f32.inc"

#include "kernels/cpu/matmul_lists.inc"

}  // namespace deepinfer::kernels::avx2
#pragma clang attribute pop
