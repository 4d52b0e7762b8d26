#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/cpu/vec_avx2.h"
#include "sampling/vocabulary_ops.h"

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
namespace deepinfer::sampling::avx2 {
namespace {
using kernels::avx2::Vec;
#include "kernels/cpu/exp.inc"

#include "sampling/vocabulary_ops.inc"
}  // namespace

const VocabularyOps& vocabulary_table() { return kVocabularyOps; }

}  // namespace deepinfer::sampling::avx2
#pragma clang attribute pop
