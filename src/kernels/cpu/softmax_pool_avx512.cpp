#include <cstddef>
#include <cstdint>

#include "kernels/cpu/vec_avx512.h"
#include "kernels/softmax_pool.h"

#pragma clang attribute push(                                                                    \
    __attribute__((target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), \
    apply_to = function)
namespace deepinfer::kernels::avx512 {
namespace {
#include "kernels/cpu/exp.inc"

#include "kernels/cpu/softmax_pool.inc"
}  // namespace

SoftmaxPool softmax_pool_body() { return pool; }

}  // namespace deepinfer::kernels::avx512
#pragma clang attribute pop
