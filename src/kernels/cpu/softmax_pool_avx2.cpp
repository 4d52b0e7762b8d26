#include <cstddef>
#include <cstdint>

#include "kernels/cpu/vec_avx2.h"
#include "kernels/softmax_pool.h"

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::kernels::avx2 {
namespace {
#include "kernels/cpu/exp.inc"

#include "kernels/cpu/softmax_pool.inc"
}  // namespace

SoftmaxPool softmax_pool_body() { return pool; }

}  // namespace deepinfer::kernels::avx2
#pragma clang attribute pop
