// Budget: one kernel; the bodies are in the included files.
#include "kernels/matmul_kernel.h"

#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/cpu/codes_avx512.h"
#include "kernels/cpu/matmul_scratch.h"
#include "kernels/cpu/panel_pack.h"

#pragma clang attribute push(                                                                    \
    __attribute__((target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), \
    apply_to = function)
namespace deepinfer::kernels::avx512 {

inline constexpr Isa kIsa = Isa::avx512;
#define KERNEL_NAME(format) format ".avx512"

// Rows of a group: 12 rows x 2 panels of sums, 4 weight vectors, 1 activation and the mask fill 30
// of the 32 registers.
inline constexpr size_t kMaxGroup = 12, kMaxF32Group = 6;
inline constexpr int kRegisterSums = 8;  // rows whose float sums stay in registers too
inline constexpr int kTileVectors = 4;   // 4 x 6 sums, 4 weights, 1 activation
inline constexpr int kDirectSums = 24;
inline constexpr size_t kPrefetchBytes = 6144;

// Rows beyond this many groups go through decoded tiles: of 2 panels and 2048 inputs, in the L2
// cache.
inline constexpr size_t kTileGroups = 3, kTileBlocks = 64;
template <class F>
inline constexpr int kTilePanels = 2;

// One row reads two panels, so two streams, where that measured faster.
template <class F>
inline constexpr bool kPairAlone = F::kDType != DType::q4_0 && F::kDType != DType::q4_1;

// Two panels at once share the broadcast of an activation.
template <class F>
constexpr bool use_pairs(int rows) {
  return (rows == 1 && kPairAlone<F>) || (rows >= 6 && rows * 2 <= 24);
}

// Sums that leave few registers.
template <int N>
constexpr bool keep_order([[maybe_unused]] int rows) {
  return N > 1 && rows > 1;
}

template <class Visit>
void for_each_group_size(Visit&& visit) {
  [&]<int... kSizes>(std::integer_sequence<int, kSizes...>) {
    (visit(std::integral_constant<int, kSizes>()), ...);
  }(std::integer_sequence<int, 1, 2, 4, 6, 8, 12>());
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

}  // namespace deepinfer::kernels::avx512
#pragma clang attribute pop
