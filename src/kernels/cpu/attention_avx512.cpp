#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/attention/attention_kernel.h"
#include "kernels/cpu/vec_avx512.h"

#pragma clang attribute push(                                                                    \
    __attribute__((target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), \
    apply_to = function)
namespace deepinfer::kernels::avx512 {
namespace {
#include "kernels/cpu/exp.inc"

#include "kernels/cpu/attention.inc"
}  // namespace

const AttentionKernel& attention_kernel() { return kAttentionKernel; }

}  // namespace deepinfer::kernels::avx512
#pragma clang attribute pop
