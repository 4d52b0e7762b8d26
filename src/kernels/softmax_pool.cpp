#include "kernels/softmax_pool.h"

namespace deepinfer::kernels {

SoftmaxPool softmax_pool(Isa isa) {
  switch (isa) {
    case Isa::ref:
      break;
    case Isa::avx2:
      return avx2::softmax_pool_body();
    case Isa::avx512:
      return avx512::softmax_pool_body();
    case Isa::emulated512:
      return emulated512::softmax_pool_body();
  }
  return ref::softmax_pool_body();
}

}  // namespace deepinfer::kernels
