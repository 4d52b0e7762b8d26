#include <cstddef>

#include "kernels/cpu/vec_avx512.h"
#include "kernels/hyper_connection_kernel.h"

#pragma clang attribute push(                                                                    \
    __attribute__((target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), \
    apply_to = function)
namespace deepinfer::kernels::avx512 {
namespace {
#include "kernels/cpu/hyper_connection.inc"
}  // namespace

const HyperKernel& hyper_kernel() { return kHyperKernel; }

}  // namespace deepinfer::kernels::avx512
#pragma clang attribute pop
