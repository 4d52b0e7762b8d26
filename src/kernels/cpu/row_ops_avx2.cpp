#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/cpu/vec_avx2.h"
#include "kernels/row_ops_tables.h"

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::kernels::avx2 {
namespace {
#include "kernels/cpu/exp.inc"

#include "kernels/cpu/row_ops.inc"
}  // namespace

const RowOps& row_ops_table() { return kRowOps; }

}  // namespace deepinfer::kernels::avx2
#pragma clang attribute pop
