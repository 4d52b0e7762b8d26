#include "kernels/row_ops.h"

#include "kernels/row_ops_tables.h"

namespace deepinfer::kernels {

const RowOps& row_ops(Isa isa) {
  switch (isa) {
    case Isa::ref:
      break;
    case Isa::avx2:
      return avx2::row_ops_table();
    case Isa::avx512:
      return avx512::row_ops_table();
    case Isa::emulated512:
      return emulated512::row_ops_table();
  }
  return ref::row_ops_table();
}

}  // namespace deepinfer::kernels
