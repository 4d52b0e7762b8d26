#pragma once

// Passes over one row of the vocabulary, as one table of function pointers per instruction set.
// Pure functions with a fixed order of sums per instruction set. x may be unaligned, n is any
// length, exp is that of kernels/cpu/exp.inc (within 2 ulp), the standard library's in ref.
//
// Threads: any.

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"

namespace deepinfer::sampling {

// Ids per partial sum of exp_sums.
inline constexpr size_t kSumBlock = 1024;

struct VocabularyOps {
  // Index of the highest value, the lowest of equals; n when a value is NaN. Reads the row once.
  size_t (*highest)(const float* x, size_t n);
  // sums[b] = sum of exp((x[i] - top) / temperature) over i / kSumBlock == b. [ceil(n / kSumBlock)]
  // Requires top >= every value.
  void (*exp_sums)(const float* x, size_t n, float top, float temperature, double* sums);
  // weights[i] = exp((x[i] - top) / temperature), the same bits as in exp_sums.
  void (*weights)(const float* x, size_t n, float top, float temperature, float* weights);
  // The ascending indices of values >= threshold; returns how many. ids: room for n.
  size_t (*at_least)(const float* x, size_t n, float threshold, int32_t* ids);
  // out[i] = bit i of the mask is set ? x[i] : -infinity. mask [ceil(n / 32)]; out may be x.
  void (*masked)(const float* x, const uint32_t* mask, size_t n, float* out);
};

const VocabularyOps& vocabulary_ops(kernels::Isa isa);

// The tables behind vocabulary_ops(); calling one that the machine lacks is undefined.
namespace ref {
const VocabularyOps& vocabulary_table();
}
namespace avx2 {
const VocabularyOps& vocabulary_table();
}
namespace avx512 {
const VocabularyOps& vocabulary_table();
}
namespace emulated512 {
const VocabularyOps& vocabulary_table();
}

}  // namespace deepinfer::sampling
