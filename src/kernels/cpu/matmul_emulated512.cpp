// Budget: one kernel; the bodies are in the included files.
#include "kernels/matmul/matmul_kernel.h"

#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/cpu/codes_emulated512.h"
#include "kernels/cpu/fp8_panel.h"
#include "kernels/cpu/matmul_scratch.h"
#include "kernels/cpu/panel_pack.h"

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::kernels::emulated512 {

inline constexpr Isa kIsa = Isa::emulated512;
#define KERNEL_NAME(format) format ".emulated512"

#include "kernels/cpu/matmul_sizes512.inc"

#include "kernels/cpu/matmul_int8.inc"

#include "kernels/cpu/matmul_f32.inc"

#include "kernels/cpu/matmul_fp8.inc"

#include "kernels/cpu/matmul_lists.inc"

}  // namespace deepinfer::kernels::emulated512
#pragma clang attribute pop
