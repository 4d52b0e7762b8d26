#pragma once

// What the driver of hyper-connections (hyper_connection.cpp) and the bodies share.
//
// Order of additions of one product (all vectors of one instruction set): the row is cut into
// segments of kHyperSegment values; within a segment lane l adds the values l, l + lanes, ...;
// lanes are added by halves; segments are added in ascending order. Rows, outputs and threads do
// not enter. Threads: pure functions of their arguments.

#include <cstddef>

#include "kernels/hyper_connection.h"

namespace deepinfer::kernels {

// 4 KB of a row: four rows and four outputs stay in L1 together.
inline constexpr size_t kHyperSegment = 1024;

struct HyperTile {
  const float* fn = nullptr;    // [outputs][width]
  const float* rows = nullptr;  // [row_count][width]
  size_t outputs = 0;
  size_t row_count = 0;
  size_t width = 0;
  // sums[r * stride + o] = fn row o . row r; squares[r * stride] = row r . row r unless null.
  float* sums = nullptr;
  float* squares = nullptr;
  size_t stride = 0;
};

struct HyperKernel {
  void (*products)(const HyperTile& tile);
  HyperRowOps row_ops;
};

namespace ref {
const HyperKernel& hyper_kernel();
}
namespace avx2 {
const HyperKernel& hyper_kernel();
}
namespace avx512 {
const HyperKernel& hyper_kernel();
}
namespace emulated512 {
const HyperKernel& hyper_kernel();
}

}  // namespace deepinfer::kernels
