#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/cpu/vec_emulated512.h"
#include "sampling/vocabulary_ops.h"

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::sampling::emulated512 {
namespace {
using kernels::emulated512::Vec;
#include "kernels/cpu/exp.inc"

#include "sampling/vocabulary_ops.inc"
}  // namespace

const VocabularyOps& vocabulary_table() { return kVocabularyOps; }

}  // namespace deepinfer::sampling::emulated512
#pragma clang attribute pop
