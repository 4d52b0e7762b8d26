#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/attention/latent_attention_kernel.h"
#include "kernels/attention/latent_row_tables.h"
#include "kernels/cpu/row_codes_emulated512.h"

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::kernels::emulated512 {
namespace {
#include "kernels/cpu/exp.inc"

#include "kernels/cpu/latent_decode.inc"

#include "kernels/cpu/latent_attention.inc"
}  // namespace

const LatentKernel& latent_kernel() { return kLatentKernel; }

}  // namespace deepinfer::kernels::emulated512
#pragma clang attribute pop
