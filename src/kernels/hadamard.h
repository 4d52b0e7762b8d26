#pragma once

// The Walsh-Hadamard transform of V4's indexer (source: spec v4.md 3): natural order, scaled by
// n^-1/2, so that it is its own inverse and keeps dot products. float32; every instruction set
// gives the same bits. Threads: any; pure.

#include <cstddef>

namespace deepinfer::kernels {

// x [n] in place; n is a power of two.
void hadamard(float* x, size_t n);

}  // namespace deepinfer::kernels
