#pragma once

// Operations on single rows, as one table of function pointers per instruction set. Every function
// is a pure function of its arguments: the result of a row depends on nothing else. Sums over a row
// run in a fixed order that depends on the length and the vector width alone (two ISAs may differ
// in the last bits, a row never differs on one ISA).
//
//   const RowOps& ops = row_ops(target.isa);
//   ops.rms_norm(x, weight, 1e-5f, out, n);
//
// All pointers may be unaligned; out may equal an input unless said. Lengths are in floats, any
// value. Threads: any.

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"

namespace deepinfer::kernels {

enum class RopePairing : uint8_t {
  half_split,   // pairs (i, i + dims/2): Hugging Face files
  interleaved,  // pairs (2i, 2i + 1): llama GGUF files
};

struct RowOps {
  // out[i] = x[i] * rsqrt(mean(x^2) + eps) * weight[i]
  void (*rms_norm)(const float* x, const float* weight, float eps, float* out, size_t n);
  // out[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + exp(-x))
  void (*silu_mul)(const float* gate, const float* up, float* out, size_t n);
  // acc[i] += x[i]
  void (*add)(float* acc, const float* x, size_t n);
  // Rotates the first 2 * pairs values of x in place; cosine, sine [pairs].
  void (*rope)(float* x, const float* cosine, const float* sine, size_t pairs, RopePairing pairing);
  // max over x, lowest index of it; NaN anywhere gives index n. Returns the index.
  size_t (*argmax)(const float* x, size_t n);
  // log(sum(exp(x - max))) + max in a fixed order, double inside.
  double (*log_sum_exp)(const float* x, size_t n);
  // true when every value is finite.
  bool (*all_finite)(const float* x, size_t n);
};

const RowOps& row_ops(Isa isa);

}  // namespace deepinfer::kernels
