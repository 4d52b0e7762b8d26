#pragma once

// The RowOps of each instruction set, chosen from by row_ops(). Calling a function of a set that
// the machine lacks is undefined.

#include "kernels/row_ops.h"

namespace deepinfer::kernels {

namespace ref {
const RowOps& row_ops_table();
}
namespace avx2 {
const RowOps& row_ops_table();
}
namespace avx512 {
const RowOps& row_ops_table();
}
namespace emulated512 {
const RowOps& row_ops_table();
}

}  // namespace deepinfer::kernels
