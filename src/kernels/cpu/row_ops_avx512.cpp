#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/cpu/vec_avx512.h"
#include "kernels/row_ops_tables.h"

#pragma clang attribute push(                                                                    \
    __attribute__((target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), \
    apply_to = function)
namespace deepinfer::kernels::avx512 {
namespace {
#include "kernels/cpu/exp.inc"

#include "kernels/cpu/row_ops.inc"
}  // namespace

const RowOps& row_ops_table() { return kRowOps; }

}  // namespace deepinfer::kernels::avx512
#pragma clang attribute pop
