// Budget: one kernel; the bodies are in the included files.
#include "kernels/matmul/matmul_kernel.h"

#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/cpu/codes_avx2.h"
#include "kernels/cpu/fp8_panel.h"
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
inline constexpr size_t kPrefetchBytes = 4096;
inline constexpr int kFp8Sums = 8;
inline constexpr size_t kFp8Ahead = 4096, kFp8TileGroups = 2;

// Rows beyond this many groups go through decoded tiles: of 2048 inputs, in the L2 cache. Signed
// bytes need two vectors a code, so one panel at a time fills the registers.
inline constexpr size_t kTileGroups = 4, kTileBlocks = 64;
template <class F>
inline constexpr int kTilePanels = F::kDType == DType::q8_0 ? 1 : 2;

// One row reads two panels, so two streams, where that measured faster.
template <class F>
inline constexpr bool kPairAlone = F::kDType == DType::q8_0;

// Two panels at once share the broadcast of an activation.
template <class F>
constexpr bool use_pairs(int rows) {
  return rows == 1 && kPairAlone<F>;
}

// Sums that leave few registers.
template <int N>
constexpr bool keep_order(int rows) {
  return N * rows > 2;
}

template <class Visit>
void for_each_group_size(Visit&& visit) {
  [&]<int... kSizes>(std::integer_sequence<int, kSizes...>) {
    (visit(std::integral_constant<int, kSizes>()), ...);
  }(Int8Groups256());
}
template <class Visit>
void for_each_f32_group_size(Visit&& visit) {
  [&]<int... kSizes>(std::integer_sequence<int, kSizes...>) {
    (visit(std::integral_constant<int, kSizes>()), ...);
  }(F32Groups());
}

#include "kernels/cpu/matmul_int8.inc"

#include "kernels/cpu/matmul_f32.inc"

#include "kernels/cpu/matmul_fp8.inc"

#include "kernels/cpu/matmul_lists.inc"

}  // namespace deepinfer::kernels::avx2
#pragma clang attribute pop
