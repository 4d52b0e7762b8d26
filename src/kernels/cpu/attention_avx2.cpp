#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/attention/attention_kernel.h"
#include "kernels/cpu/vec_avx2.h"

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::kernels::avx2 {
namespace {
#include "kernels/cpu/exp.inc"

#include "kernels/cpu/attention.inc"
}  // namespace

const AttentionKernel& attention_kernel() { return kAttentionKernel; }

}  // namespace deepinfer::kernels::avx2
#pragma clang attribute pop
