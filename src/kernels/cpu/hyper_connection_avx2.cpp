#include <cstddef>

#include "kernels/cpu/vec_avx2.h"
#include "kernels/hyper_connection_kernel.h"

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::kernels::avx2 {
namespace {
#include "kernels/cpu/hyper_connection.inc"
}  // namespace

const HyperKernel& hyper_kernel() { return kHyperKernel; }

}  // namespace deepinfer::kernels::avx2
#pragma clang attribute pop
