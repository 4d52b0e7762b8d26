#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/attention/indexer_kernel.h"
#include "kernels/cpu/transpose_emulated512.h"

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::kernels::emulated512 {
namespace {
// Heads that go together: their sums and dots fill the registers.
inline constexpr size_t kCodeHeads = 4;
inline constexpr size_t kFloatHeads = 8;
#include "kernels/cpu/indexer.inc"
}  // namespace

const IndexKernel& index_kernel() { return kIndexKernel; }

}  // namespace deepinfer::kernels::emulated512
#pragma clang attribute pop
