#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/attention/latent_row_tables.h"
#include "kernels/cpu/row_codes_avx512.h"
#include "tensor/dtype.h"

#pragma clang attribute push(                                                                    \
    __attribute__((target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), \
    apply_to = function)
namespace deepinfer::kernels::avx512 {
namespace {
#include "kernels/cpu/latent_decode.inc"

#include "kernels/cpu/latent_rows.inc"
}  // namespace

const LatentRowOps& latent_row_ops_table() { return kLatentRowOps; }

}  // namespace deepinfer::kernels::avx512
#pragma clang attribute pop
