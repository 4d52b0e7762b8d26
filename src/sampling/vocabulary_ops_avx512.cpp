#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/cpu/vec_avx512.h"
#include "sampling/vocabulary_ops.h"

#pragma clang attribute push(                                                                    \
    __attribute__((target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), \
    apply_to = function)
namespace deepinfer::sampling::avx512 {
namespace {
using kernels::avx512::Vec;
#include "kernels/cpu/exp.inc"

#include "sampling/vocabulary_ops.inc"
}  // namespace

const VocabularyOps& vocabulary_table() { return kVocabularyOps; }

}  // namespace deepinfer::sampling::avx512
#pragma clang attribute pop
